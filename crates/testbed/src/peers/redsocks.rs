//! redsocks: takes connections that REDIRECT sends it, and asks a SOCKS5 proxy for their destinations. It has no way of
//! its own to a destination.

use super::process::{Preparation, io_error};
use super::{Peer, PeerError, Protocol, Start};
use crate::limits;
use std::io;

/// Starts redsocks in front of the upstream, a SOCKS5 proxy; REDIRECT connections to the peer's address. `splice`: let
/// the kernel move bytes. Errors: see [`PeerError`]; `start` names no upstream.
pub fn start(start: &Start, splice: bool) -> Result<Peer, PeerError> {
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
