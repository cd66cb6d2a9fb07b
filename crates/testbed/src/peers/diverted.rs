//! Relays that take nothing but diverted connections: redsocks, which asks a SOCKS5 proxy for their destinations, and
//! PEPsal, made for satellites, which connects with the client's own address.

use super::process::{Preparation, io_error, version};
use super::{Peer, PeerError, Protocol, Start, find};
use crate::limits;
use std::io;

/// Starts redsocks in front of the upstream, a SOCKS5 proxy; REDIRECT connections to the peer's address. `splice`: let
/// the kernel move bytes. Errors: see [`PeerError`]; `start` names no upstream.
pub fn redsocks(start: &Start, splice: bool) -> Result<Peer, PeerError> {
    let name = if splice { "redsocks splice" } else { "redsocks" };
    let peer = Preparation::new(start, name, ("redsocks", "redsocks"), "-v")?;
    let none = || io_error(name, io::Error::other("it takes a SOCKS5 proxy as upstream"));
    let upstream = start.upstream.ok_or_else(none)?;
    // two descriptors a connection, and two pipes of two each where it splices
    let descriptors = limits::descriptors();
    let connections = descriptors.saturating_sub(100) / if splice { 6 } else { 2 };
    let text = format!(
        "base {{
    log_debug = off;
    log_info = off;
    log = \"stderr\";
    daemon = off;
    redirector = iptables;
    rlimit_nofile = {descriptors};
    redsocks_conn_max = {connections};
}}
redsocks {{
    local_ip = {ip};
    local_port = {port};
    listenq = 4096;
    splice = {splice};
    ip = {to};
    port = {to_port};
    type = socks5;
}}
",
        ip = peer.address.ip(),
        port = peer.address.port(),
        to = upstream.ip(),
        to_port = upstream.port(),
    );
    let file = peer.write("redsocks.conf", text)?;
    let arguments = ["-c".into(), file.into_os_string()];
    peer.start(start, arguments, Protocol::Transparent)
}

/// Starts PEPsal; divert connections to the peer's port by TPROXY. Answers to the client's address must come back through
/// this machine. Errors: see [`PeerError`]; no Debian has it.
pub fn pepsal(start: &Start) -> Result<Peer, PeerError> {
    let program = find("pepsal", "(none: build github.com/viveris/pepsal, in PATH)")?;
    let version = version(&program, "-V");
    let peer = Preparation::of_file(start, "pepsal", program, version)?;
    let port = peer.address.port().to_string();
    // the most connections that it takes
    let arguments = ["-p".to_owned(), port, "-c".to_owned(), "4096".to_owned()];
    peer.start(start, arguments, Protocol::Transparent)
}
