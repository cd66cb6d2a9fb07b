//! Flows from a peer's tunnel.

use crate::error::{Failure, FailureKind};
use crate::inbound::dns::Origin;
use crate::inbound::dns::stream::{PEER_IDLE, serve as serve_names};
use crate::observe::registry::Protocol;
use crate::outbound::connect::Purpose;
use crate::outbound::dns;
use crate::outbound::tunnel::{destination, measure, reason};
use crate::resources::arrival::TunnelArrival;
use crate::session::{OpenTunnel, Session};
use crate::transfer::tls::TlsTransport;
use ekiden_tunnel::driver::Incoming;
use ekiden_tunnel::frame::reason::Reason;
use socket2::SockRef;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

/// How long the result of a measurement may take to arrive.
const LAST_WORD: Duration = Duration::from_secs(5);

/// Opens the way to the flow's destination by this relay's routes and rules, and answers.
pub(crate) async fn serve(session: &Session, arrival: &TunnelArrival) -> Option<OpenTunnel> {
    let (Incoming { flow, opening, peer }, inside) = arrival.take()?;
    let Some(to) = destination(&opening.target) else {
        let failure =
            Failure::new(FailureKind::Malformed(400), "the flow has no valid destination");
        session.on_failure(&session.new_entry(Protocol::Tunnel), &failure);
        flow.refuse(Reason::NoName, failure.text);
        return None;
    };
    if let Some(asked) = measure::is_meant(&to) {
        flow.accept();
        let place = session.config.shared.resources.always_reserve();
        let carrying = tokio::spawn(async move {
            flow.carry(inside, |_, _, _| ()).await;
            drop(place);
        });
        measure::serve(&session.client, asked).await;
        // the result is still in transit
        let _ = SockRef::from(&*session.client).shutdown(Shutdown::Write);
        let _ = tokio::time::timeout(LAST_WORD, carrying).await;
        return None;
    }
    if dns::is_meant(&to) {
        flow.accept();
        let place = session.config.shared.resources.always_reserve();
        tokio::spawn(async move {
            flow.carry(inside, |_, _, _| ()).await;
            drop(place);
        });
        let stream = TlsTransport::new(Arc::clone(&session.client), Vec::new());
        let config = || Arc::clone(&session.config);
        let serving = Box::pin(serve_names(config, Origin::Peer, PEER_IDLE, stream));
        session.unless_stopping(serving).await;
        return None;
    }
    let mut entry = session.begin(Protocol::Tunnel, &to, Some(peer), to.to_string());
    match session.open(&to, Purpose::Tunnel { via: b"" }).await {
        Ok(way) => {
            flow.accept();
            let place = session.config.shared.resources.always_reserve();
            tokio::spawn(async move {
                flow.carry(inside, |_, _, _| ()).await;
                drop(place);
            });
            entry.status = Some(0);
            Some(session.tunnel_over(way, Vec::new(), entry))
        }
        Err(failure) => {
            session.on_failure(&entry, &failure);
            flow.refuse(reason(failure.kind), failure.text);
            None
        }
    }
}
