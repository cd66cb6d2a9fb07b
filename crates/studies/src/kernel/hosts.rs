//! Hosts of an emulated network, and programs on them.

use ekiden_emulator::topology::{Host, Topology};
use ekiden_lab::engine::EngineError;
use ekiden_linux::namespaces::mounts::Mounts;
use ekiden_linux::namespaces::netns::{self, Netns};
use ekiden_testbed::peers::PeerHost;
use std::fs::{self, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

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
    place_by(host, netns::place)
}

/// The same for programs that also know these names, by a file of their own in place of `/etc/hosts`.
pub(crate) fn place_knowing(host: &Host, known: &[(String, IpAddr)]) -> io::Result<PeerHost> {
    if known.is_empty() {
        return place(host);
    }
    let line = |(name, address): &(String, IpAddr)| format!("{address} {name}\n");
    let text: String = known.iter().map(line).collect();
    place_showing(host, &format!("127.0.0.1 localhost\n{text}"), "/etc/hosts")
}

/// The same for programs that ask this resolver for names.
pub(crate) fn place_asking(host: &Host, resolver: IpAddr) -> io::Result<PeerHost> {
    place_showing(host, &format!("nameserver {resolver}\n"), "/etc/resolv.conf")
}

/// The same for programs that see this text in a file of the system.
fn place_showing(host: &Host, text: &str, at: &str) -> io::Result<PeerHost> {
    let file = tempfile::Builder::new().prefix("ekiden-names-").tempfile()?;
    fs::write(file.path(), text)?;
    fs::set_permissions(file.path(), Permissions::from_mode(0o644))?;
    let mounts = Mounts::new(&[(file.path(), at)])?;
    if let Some(why) = mounts.skipped().first() {
        return Err(io::Error::other(format!("names of the network: {why}")));
    }
    place_by(host, move |command, netns| {
        // the file is there for as long as commands may be started
        let _kept = &file;
        netns::place_with(command, netns, &mounts)
    })
}

fn place_by(
    host: &Host,
    prepare: impl Fn(&mut Command, &Netns) -> io::Result<()> + Send + Sync + 'static,
) -> io::Result<PeerHost> {
    PeerHost::in_namespace(host.netns(), host.address().into(), NETWORK, prepare)
}
