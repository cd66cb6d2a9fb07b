//! Hosts of an emulated network, and programs on them.

use ekiden_emulator::topology::{Host, Topology};
use ekiden_lab::engine::EngineError;
use ekiden_linux::namespaces::netns::{self, Netns};
use ekiden_testbed::peers::PeerHost;
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

/// All hosts of a topology: the space shared by carriers (RFC 6598).
const NETWORK: &str = "100.64.0.0/10";

/// A host that the plan has. Errors: the plan has none of this name.
pub(crate) fn host<'a>(topology: &'a Topology, name: &str) -> Result<&'a Host, EngineError> {
    topology.host(name).ok_or_else(|| EngineError(format!("the network has no host {name}")))
}

pub(crate) fn bind_udp(host: &Host) -> Result<UdpSocket, EngineError> {
    let address = SocketAddr::from((host.address(), 0));
    Ok(host.run(|| UdpSocket::bind(address))??)
}

/// Where peers run that are to run on `host`.
pub(crate) fn place(host: &Host) -> io::Result<PeerHost> {
    let netns = Arc::new(host.netns().try_clone()?);
    let there: Arc<Netns> = Arc::clone(&netns);
    let accepts = move |address: SocketAddr| {
        let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok();
        there.run(connect).unwrap_or(false)
    };
    Ok(PeerHost {
        address: host.address().into(),
        network: NETWORK.to_owned(),
        // out of descriptors, the program starts on the wrong host; `accepts` then reports that nobody listens
        prepare: Arc::new(move |command| drop(netns::place(command, &netns))),
        accepts: Arc::new(accepts),
    })
}
