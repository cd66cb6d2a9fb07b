//! How a client arrived, other than at a listening address: out of a peer's tunnel, diverted, or at a forwarded port.

use crate::observe::gateway_counts::LiveGuard;
use crate::observe::leg_stats::TunnelLeg;
use crate::settings::PortForward;
use crate::transfer::end::End;
use ekiden_tunnel::driver::{FlowStream, Incoming};
use ekiden_tunnel::frame::reason::Reason;
use ekiden_tunnel::frame::{Opening, Target};
use std::net::SocketAddr;
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct TunnelArrival {
    leg: TunnelLeg,
    flow: Arc<FlowStream>,
    opening: Opening,
}

impl TunnelArrival {
    /// The arrival, and the client's end of the connection.
    pub(crate) fn new(incoming: Incoming) -> (Arc<Self>, End) {
        let Incoming { flow, opening, peer } = incoming;
        let leg = TunnelLeg { peer: peer.into(), flow: flow.view() };
        let flow = Arc::new(flow.into_stream(|_, _, _| ()));
        let end = End::Flow(Arc::clone(&flow));
        (Arc::new(Self { leg, flow, opening }), end)
    }

    /// How many tunnels the flow has passed.
    pub(crate) const fn hops(&self) -> u8 {
        self.opening.hops
    }

    pub(crate) fn peer(&self) -> &str {
        &self.leg.peer
    }

    /// What carries the client's bytes.
    pub(crate) const fn leg(&self) -> &TunnelLeg {
        &self.leg
    }

    pub(crate) const fn target(&self) -> &Target {
        &self.opening.target
    }

    /// Says that the destination was reached.
    pub(crate) fn accept(&self) {
        self.flow.accept();
    }

    pub(crate) fn deny(&self, why: &str) {
        self.refuse(Reason::Denied, why.to_owned());
    }

    pub(crate) fn refuse_for_room(&self) {
        self.refuse(Reason::Exhausted, "there is no room for another connection".to_owned());
    }

    /// Says why it was not reached; the flow is over.
    pub(crate) fn refuse(&self, reason: Reason, words: String) {
        self.flow.refuse(reason, words);
    }
}

/// How a client arrived that speaks with its destination and not with this relay.
#[derive(Debug, Clone)]
pub(crate) enum Directed {
    /// Its connection was diverted.
    Diverted(Diverted),
    /// It came to a forwarded port.
    Forward(Arc<PortForward>),
}

/// A diverted connection.
#[derive(Debug, Clone)]
pub(crate) struct Diverted {
    /// Where it was going.
    pub(crate) to: SocketAddr,
    /// Whether it is this machine's own.
    pub(crate) own: bool,
    pub(crate) _live: Arc<LiveGuard>,
}

/// Makes the coming close a reset: no other answer fits every protocol.
pub(crate) fn reset(client: &End) {
    client.abort("closed");
}
