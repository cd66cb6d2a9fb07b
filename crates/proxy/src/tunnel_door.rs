//! What comes out of a tunnel: a flow whose other end is a relay that was let in.

use crate::chain::Purpose;
use crate::failure::{Failure, Kind};
use crate::registry::Protocol;
use crate::session::{Session, Tunnel};
use crate::tunnels::{Arrival, destination, measure, reason, refuse};
use ekiden_tunnel::driver::Incoming;
use ekiden_tunnel::reason::Reason;
use socket2::SockRef;
use std::net::Shutdown;
use std::time::Duration;

/// For what a measurement has counted to arrive.
const LAST_WORD: Duration = Duration::from_secs(5);

/// Opens the way to where the flow is to go, by this relay's own routes and rules, and answers.
pub(crate) async fn serve(session: &Session, arrival: &Arrival) -> Option<Tunnel> {
    let (Incoming { flow, opening, relay }, inside) = arrival.take()?;
    let Some(to) = destination(&opening.target) else {
        let failure = Failure::new(Kind::Malformed(400), "the flow's destination is none");
        session.failed(&session.nothing(Protocol::Tunnel), &failure);
        refuse(flow, Reason::NoName, &failure.text);
        return None;
    };
    if let Some(asked) = measure::is_meant(&to) {
        flow.accept();
        let place = session.world.means.resources.taken();
        let carrying = tokio::spawn(async move {
            flow.carry(inside, |_, _| ()).await;
            drop(place);
        });
        measure::serve(&session.client, asked).await;
        // what was counted is still on its way
        let _ = SockRef::from(&*session.client).shutdown(Shutdown::Write);
        let _ = tokio::time::timeout(LAST_WORD, carrying).await;
        return None;
    }
    let mut entry = session.begin(Protocol::Tunnel, &to, Some(relay), to.to_string());
    match session.open(&to, Purpose::Tunnel).await {
        Ok(way) => {
            flow.accept();
            let place = session.world.means.resources.taken();
            tokio::spawn(async move {
                flow.carry(inside, |_, _| ()).await;
                drop(place);
            });
            entry.status = Some(0);
            Some(session.tunnel_over(way, Vec::new(), entry))
        }
        Err(failure) => {
            session.failed(&entry, &failure);
            refuse(flow, reason(failure.kind), &failure.text);
            None
        }
    }
}
