//! Another host to run a peer on: a network namespace, usually.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::Arc;

/// A host that peers are started on.
#[derive(Clone)]
pub struct PeerHost {
    /// Where they listen.
    pub address: IpAddr,
    /// Whom they serve and where they may go, such as `10.0.0.0/8`: everybody of the topology.
    pub network: String,
    /// Makes a command run there; applied before it is started.
    pub prepare: Arc<dyn Fn(&mut Command) + Send + Sync>,
    /// Whether somebody accepts connections there; asked from within the host until it is true.
    pub accepts: Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>,
}

impl fmt::Debug for PeerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerHost({})", self.address)
    }
}
