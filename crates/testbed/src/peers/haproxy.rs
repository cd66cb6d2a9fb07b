//! HAProxy in TCP mode, with `splice` and without; one thread, because every peer gets one processor.

use super::process::Preparation;
use super::{Peer, PeerError, Protocol, Start, ports};
use crate::certificate::Certificate;
use crate::limits;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

const PIPES: u64 = 256;

/// Starts HAProxy forwarding to `targets` in turn, with `splice` or by copying. Splicing is asked for in both
/// directions, because `option splice-auto` alone was seen to copy a saturated loopback connection (strace,
/// 2.6.12).
pub fn start(start: &Start, targets: &[SocketAddr], splice: bool) -> Result<Peer, PeerError> {
    let peer = prepare(start, "haproxy", splice)?;
    forward(peer, start, splice, "", targets)
}

/// Forwards to `targets` in turn. `bind`: more words about its socket.
fn forward(
    peer: Preparation,
    start: &Start,
    splice: bool,
    bind: &str,
    targets: &[SocketAddr],
) -> Result<Peer, PeerError> {
    let mut listen = format!(
        "listen relay\n    bind {} backlog 4096{bind}\n    balance roundrobin\n",
        peer.address
    );
    for (n, target) in targets.iter().enumerate() {
        listen += &format!("    server s{n} {target}\n");
    }
    run(peer, start, splice, &listen, Protocol::TcpForward(targets.to_vec()))
}

/// Starts HAProxy for connections that TPROXY sends to the port returned, of 127.0.0.1: it connects to the address
/// and port that the client did. The peer's own port refuses everybody, and shows that it runs.
pub fn transparent(start: &Start, splice: bool) -> Result<(Peer, u16), PeerError> {
    let diverted = ports::elsewhere(Ipv4Addr::LOCALHOST.into());
    let peer = prepare(start, "haproxy tproxy", splice)?;
    let listen = format!(
        "listen relay\n    bind {diverted} transparent backlog 4096\n    server original 0.0.0.0:0\n\
         frontend ready\n    bind {}\n    tcp-request connection reject\n",
        peer.address
    );
    Ok((run(peer, start, splice, &listen, Protocol::Transparent)?, diverted.port()))
}

fn prepare(start: &Start, name: &str, splice: bool) -> Result<Preparation, PeerError> {
    let name = format!("{name} {}", if splice { "splice" } else { "copy" });
    Preparation::new(start, &name, ("haproxy", "haproxy"), "-v")
}

fn run(
    peer: Preparation,
    start: &Start,
    splice: bool,
    listen: &str,
    protocol: Protocol,
) -> Result<Peer, PeerError> {
    let descriptors = limits::descriptors();
    // Two descriptors a connection and two a pipe, and HAProxy will have all of them beforehand.
    let connections = (descriptors.saturating_sub(2 * PIPES + 150) / 2).min(40_000);
    let option = if splice {
        "    option splice-auto\n    option splice-request\n    option splice-response"
    } else {
        "    no option splice-auto"
    };
    let text = format!(
        "global
    nbthread 1
    maxconn {connections}
    maxpipes {PIPES}
    ulimit-n {descriptors}
defaults
    mode tcp
    maxconn {connections}
    timeout connect 10s
    timeout client 1h
    timeout server 1h
{option}
{listen}"
    );
    let file = peer.write("haproxy.cfg", text)?;
    // -db: stay in the foreground.
    let arguments = ["-db".into(), "-f".into(), file.into_os_string()];
    peer.start(start, arguments, protocol)
}

/// Starts HAProxy that ends TLS and forwards what is within to `targets` in turn.
pub fn tls_stream(
    start: &Start,
    targets: &[SocketAddr],
    certificate: &Certificate,
) -> Result<Peer, PeerError> {
    let peer = prepare(start, "haproxy tls", false)?;
    let bind = format!(" ssl crt {}", certificate.both().display());
    forward(peer, start, false, &bind, targets)
}

/// Starts HAProxy as TLS in front of an HTTP proxy at `target`. `certificate`: a PEM file with
/// certificate and key.
pub fn tls(start: &Start, target: SocketAddr, certificate: &Path) -> Result<Peer, PeerError> {
    let peer = Preparation::new(start, "haproxy tls", ("haproxy", "haproxy"), "-v")?;
    let text = format!(
        "global
    nbthread 1
    maxconn 1000
defaults
    mode tcp
    timeout connect 10s
    timeout client 1h
    timeout server 1h
listen secure
    bind {address} ssl crt {certificate} alpn http/1.1
    server s0 {target}
",
        address = peer.address,
        certificate = certificate.display(),
    );
    let file = peer.write("haproxy.cfg", text)?;
    let arguments = ["-db".into(), "-f".into(), file.into_os_string()];
    peer.start(start, arguments, Protocol::HttpProxy)
}
