//! How a client arrived, other than at a listening address: out of a peer's tunnel, diverted, or at a forwarded port.

use crate::observe::gateway_counts::LiveGuard;
use crate::observe::leg_stats::TunnelLeg;
use crate::settings::PortForward;
use ekiden_linux::host::sync::locked;
use ekiden_linux::sockets::socket;
use ekiden_tunnel::driver::Incoming;
use ekiden_tunnel::frame::reason::Reason;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};
use tokio::net::TcpStream;

#[derive(Debug)]
pub(crate) struct TunnelArrival {
    leg: TunnelLeg,
    hops: u8,
    flow: Mutex<Option<(Incoming, TcpStream)>>,
}

impl TunnelArrival {
    pub(crate) fn new(incoming: Incoming, inside: TcpStream) -> Arc<Self> {
        let leg = TunnelLeg { peer: incoming.peer.as_str().into(), flow: incoming.flow.view() };
        let hops = incoming.opening.hops;
        Arc::new(Self { leg, hops, flow: Mutex::new(Some((incoming, inside))) })
    }

    /// How many tunnels the flow has passed.
    pub(crate) const fn hops(&self) -> u8 {
        self.hops
    }

    pub(crate) fn peer(&self) -> &str {
        &self.leg.peer
    }

    /// What carries the client's bytes.
    pub(crate) const fn leg(&self) -> &TunnelLeg {
        &self.leg
    }

    pub(crate) fn take(&self) -> Option<(Incoming, TcpStream)> {
        locked(&self.flow).take()
    }

    pub(crate) fn deny(&self, why: &str) {
        self.refuse(Reason::Denied, why);
    }

    pub(crate) fn refuse_for_room(&self) {
        self.refuse(Reason::Exhausted, "there is no room for another connection");
    }

    fn refuse(&self, reason: Reason, words: &str) {
        if let Some((Incoming { flow, .. }, _)) = self.take() {
            flow.refuse(reason, words.to_owned());
        }
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
pub(crate) fn reset(client: &TcpStream) {
    let _ = socket::abort(client.as_fd());
}
