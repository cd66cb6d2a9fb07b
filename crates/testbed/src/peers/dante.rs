//! Dante: the SOCKS server of the island papers. It forks a process per task and children on demand.

use super::process::Preparation;
use super::{Peer, PeerError, Protocol, Start};
use std::net::SocketAddr;

/// Starts danted, going straight to destinations or through an upstream that speaks SOCKS5; it must be root to begin with, and drops to `nobody`.
pub fn start(start: &Start) -> Result<Peer, PeerError> {
    if let Some(next) = start.upstream { start_behind(start, next, false) } else { run(start, "") }
}

/// Starts danted going to everything through `next`: by HTTP CONNECT if `http`, else by SOCKS5.
pub fn start_behind(start: &Start, next: SocketAddr, http: bool) -> Result<Peer, PeerError> {
    let (ip, port) = (next.ip(), next.port());
    let protocol = if http { "http" } else { "socks_v5" };
    // One statement a line: its parser does not read them side by side.
    let route = format!(
        "route {{ from: 0.0.0.0/0 to: 0.0.0.0/0 via: {ip} port = {port}
proxyprotocol: {protocol}
command: connect
}}
"
    );
    run(start, &route)
}

fn run(start: &Start, more: &str) -> Result<Peer, PeerError> {
    let peer = Preparation::new(start, "dante", ("danted", "dante-server"), "-v")?;
    let file = peer.write(
        "danted.conf",
        format!(
            "logoutput: {log}
internal: {ip} port = {port}
external: {ip}
clientmethod: none
socksmethod: none
user.privileged: root
user.unprivileged: nobody
client pass {{ from: {clients} to: 0.0.0.0/0 }}
socks pass {{ from: {clients} to: 0.0.0.0/0 command: connect }}
{more}",
            log = peer.path("dante.log").display(),
            ip = peer.address.ip(),
            clients = start.place.as_ref().map_or("127.0.0.0/8", |place| &place.network),
            port = peer.address.port(),
        ),
    )?;
    let pid = peer.path("danted.pid").into_os_string();
    let arguments = ["-f".into(), file.into_os_string(), "-p".into(), pid];
    peer.start(start, arguments, Protocol::Socks5)
}
