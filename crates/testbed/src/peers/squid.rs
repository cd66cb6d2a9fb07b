//! Squid with one worker, no cache and everything allowed; CONNECT may go to any port, loopback included.

use super::process::{Preparation, several};
use super::{Peer, PeerError, Protocol, Start, ports};
use crate::limits;
use ekiden_model::units::Span;
use std::net::SocketAddr;

/// Starts squid, going straight to destinations, or through an upstream that is an HTTP proxy.
pub fn start(start: &Start) -> Result<Peer, PeerError> {
    let parent = start.upstream.map_or(String::new(), |parent| {
        let (ip, port) = (parent.ip(), parent.port());
        format!(
            "cache_peer {ip} parent {port} 0 no-query no-digest no-netdb-exchange default\nnever_direct allow all\n"
        )
    });
    let peer = prepare(start)?;
    let address = peer.address;
    run(peer, start, limits::descriptors(), &format!("http_port {address}\n{parent}"))
}

/// Starts squid for HTTP that REDIRECT sends to the port returned, of the peer's address; it goes straight to the
/// destinations. The peer's own port is there because squid wants one that is asked as a proxy.
pub fn intercept(start: &Start) -> Result<(Peer, u16), PeerError> {
    let peer = prepare(start)?;
    let (address, diverted) = (peer.address, ports::elsewhere(peer.address.ip()));
    let ports = format!("http_port {address}\nhttp_port {diverted} intercept\n");
    Ok((run(peer, start, limits::descriptors(), &ports)?, diverted.port()))
}

/// Starts squid, straight to destinations, with so few descriptors; idle connections are kept for `persist`.
pub fn start_limited(start: &Start, descriptors: u64, persist: Span) -> Result<Peer, PeerError> {
    let seconds = persist.as_secs().max(1);
    let more = format!(
        "client_idle_pconn_timeout {seconds} seconds\nserver_idle_pconn_timeout {seconds} seconds\n"
    );
    let peer = prepare(start)?;
    let address = peer.address;
    run(peer, start, descriptors, &format!("http_port {address}\n{more}"))
}

/// Starts squid with a port for each of these origins, to which all goes that it gets there, by whatever name;
/// returns the ports, in their order.
pub fn proxies(
    start: &Start,
    origins: &[SocketAddr],
) -> Result<(Peer, Vec<SocketAddr>), PeerError> {
    let peer = prepare(start)?;
    let addresses = several(&peer, origins.len())?;
    let mut ports = "never_direct allow all\n".to_owned();
    for (nth, (address, origin)) in addresses.iter().zip(origins).enumerate() {
        let (ip, port) = (origin.ip(), origin.port());
        ports += &format!(
            "http_port {address} name=p{nth}
acl from{nth} myportname p{nth}
cache_peer {ip} parent {port} 0 no-query no-digest no-netdb-exchange originserver name=o{nth}
cache_peer_access o{nth} allow from{nth}
cache_peer_access o{nth} deny all
"
        );
    }
    Ok((run(peer, start, limits::descriptors(), &ports)?, addresses))
}

fn prepare(start: &Start) -> Result<Preparation, PeerError> {
    Preparation::new(start, "squid", ("squid", "squid"), "-v")
}

fn run(peer: Preparation, start: &Start, descriptors: u64, more: &str) -> Result<Peer, PeerError> {
    let folder = peer.folder.path().display();
    let file = peer.write(
        "squid.conf",
        format!(
            "visible_hostname squid{port}.lab
workers 1
max_filedescriptors {descriptors}
http_access allow all
cache deny all
cache_mem 8 MB
access_log none
read_ahead_gap 4 MB
cache_log {folder}/squid.log
pid_filename {folder}/squid.pid
coredump_dir {folder}
netdb_filename none
pinger_enable off
shutdown_lifetime 0 seconds
{more}",
            port = peer.address.port(), // two squids of one name take each other for a loop
        ),
    )?;
    // -N: no daemon and no supervisor process, -n: so that two of them do not share memory segments.
    let name = format!("lab{}", peer.address.port());
    let arguments = ["-N".into(), "-n".into(), name.into(), "-f".into(), file.into_os_string()];
    peer.start(start, arguments, Protocol::HttpProxy)
}
