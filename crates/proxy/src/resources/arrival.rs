//! A flow from a peer's tunnel that waits for admission.

use ekiden_linux::host::sync::locked;
use ekiden_tunnel::driver::Incoming;
use ekiden_tunnel::frame::reason::Reason;
use std::sync::{Arc, Mutex};
use tokio::net::TcpStream;

#[derive(Debug)]
pub(crate) struct TunnelArrival {
    peer: String,
    hops: u8,
    flow: Mutex<Option<(Incoming, TcpStream)>>,
}

impl TunnelArrival {
    pub(crate) fn new(incoming: Incoming, inside: TcpStream) -> Arc<Self> {
        let (peer, hops) = (incoming.peer.clone(), incoming.opening.hops);
        Arc::new(Self { peer, hops, flow: Mutex::new(Some((incoming, inside))) })
    }

    /// How many tunnels the flow has passed.
    pub(crate) const fn hops(&self) -> u8 {
        self.hops
    }

    pub(crate) fn peer(&self) -> &str {
        &self.peer
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
