//! What comes out of a tunnel: a flow whose other end is a relay that was let in.

use crate::chain::Purpose;
use crate::failure::{Failure, Kind};
use crate::registry::Protocol;
use crate::session::{Session, Tunnel};
use crate::tunnels::{Arrival, destination, reason, refuse};
use ekiden_tunnel::driver::Incoming;
use ekiden_tunnel::reason::Reason;

/// Opens the way to where the flow is to go, by this relay's own routes and rules, and answers.
pub(crate) async fn serve(session: &Session, arrival: &Arrival) -> Option<Tunnel> {
    let (Incoming { flow, opening, relay }, inside) = arrival.take()?;
    let Some(to) = destination(&opening.target) else {
        let failure = Failure::new(Kind::Malformed(400), "the flow's destination is none");
        session.failed(&session.nothing(Protocol::Tunnel), &failure);
        refuse(flow, Reason::NoName, &failure.text);
        return None;
    };
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
