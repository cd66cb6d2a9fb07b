//! Flows from a peer's tunnel.

use crate::error::{Failure, FailureKind};
use crate::inbound::dns::Client;
use crate::inbound::dns::stream::{PEER, serve as serve_names};
use crate::observe::registry::Protocol;
use crate::outbound::connect::Purpose;
use crate::outbound::dns;
use crate::outbound::tunnel::{destination, measure, reason};
use crate::resources::arrival::TunnelArrival;
use crate::session::{OpenTunnel, Session};
use crate::transfer::end::End;
use crate::transfer::scratch::with_scratch;
use crate::transfer::tls::TlsTransport;
use crate::transfer::transient::is_transient;
use ekiden_tunnel::frame::reason::Reason;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long the result of a measurement may take to arrive.
const LAST_WORD: Duration = Duration::from_secs(5);

/// Why another measurement is refused.
const BUSY: &str = "this relay measures with yours already, as often as it does at a time; try again when one has ended";

/// Opens the way to the flow's destination by this relay's routes and rules, and answers.
pub(crate) async fn serve(session: &Session, arrival: &TunnelArrival) -> Option<OpenTunnel> {
    let Some(to) = destination(arrival.target()) else {
        let failure =
            Failure::new(FailureKind::Malformed(400), "the flow has no valid destination");
        session.on_failure(&mut session.new_entry(Protocol::Tunnel), &failure);
        arrival.refuse(Reason::NoName, failure.text);
        return None;
    };
    if let Some(asked) = measure::is_meant(&to) {
        let turn = session.unless_stopping(arrival.joined().measure_in_turn()).await?;
        let Some(turn) = turn else {
            let failure = Failure::new(FailureKind::Exhausted, BUSY);
            session.on_failure(&mut session.new_entry(Protocol::Tunnel), &failure);
            arrival.refuse(Reason::Exhausted, failure.text);
            return None;
        };
        arrival.accept();
        measure::serve(&session.client, asked, session.share().as_deref()).await;
        drop(turn);
        session.client.finish();
        // what it still sends must not reset the result
        let _ = tokio::time::timeout(LAST_WORD, discard(&session.client)).await;
        return None;
    }
    if dns::is_meant(&to) {
        arrival.accept();
        let stream = TlsTransport::new(session.client.clone(), Vec::new());
        // the stream lasts as long as the tunnel, over reloads
        let config = || Arc::clone(&session.in_effect.borrow());
        let client = Client::peer(arrival.peer());
        // it may ask as long as its tunnel stands
        let admit = || Some(client.clone());
        let serving = Box::pin(serve_names(config, admit, session.transfer(), PEER, stream));
        session.unless_stopping(serving).await;
        return None;
    }
    let peer = arrival.peer().to_owned();
    let mut entry = session.begin(Protocol::Tunnel, &to, Some(peer), to.to_string());
    match session.open(&to, Purpose::Tunnel { via: b"" }).await {
        Ok(way) => {
            arrival.accept();
            entry.status = Some(0);
            Some(session.tunnel_over(way, Vec::new(), entry))
        }
        Err(failure) => {
            session.on_failure(&mut entry, &failure);
            arrival.refuse(reason(failure.kind), failure.text);
            None
        }
    }
}

/// Reads to the end.
async fn discard(end: &End) -> io::Result<()> {
    loop {
        end.readable().await?;
        match with_scratch(|scratch| end.try_read(scratch)) {
            Ok(0) => return Ok(()),
            Err(error) if !is_transient(&error) => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
}
