//! Another host to run a peer on: a network namespace, usually.

use ekiden_linux::namespaces::netns::Netns;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

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

impl PeerHost {
    /// A network namespace with this address, serving `network`; `prepare` makes a command start there, as
    /// [`place`](ekiden_linux::namespaces::netns::place) does. Errors: no descriptor is left.
    pub fn in_namespace(
        netns: &Netns,
        address: IpAddr,
        network: &str,
        prepare: impl Fn(&mut Command, &Netns) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let netns = Arc::new(netns.try_clone()?);
        let there = Arc::clone(&netns);
        let accepts = move |address: SocketAddr| {
            let connect =
                || TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok();
            there.run(connect).unwrap_or(false)
        };
        Ok(Self {
            address,
            network: network.to_owned(),
            // out of descriptors, the program starts on the wrong host; `accepts` then reports that nobody listens
            prepare: Arc::new(move |command| drop(prepare(command, &netns))),
            accepts: Arc::new(accepts),
        })
    }
}

impl fmt::Debug for PeerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerHost({})", self.address)
    }
}
