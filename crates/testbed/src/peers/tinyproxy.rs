//! tinyproxy: a small HTTP proxy, one thread a connection.

use super::process::Preparation;
use super::{Peer, PeerError, Protocol, Start};

/// Starts tinyproxy, with everything allowed.
pub fn start(start: &Start) -> Result<Peer, PeerError> {
    let peer = Preparation::new(start, "tinyproxy", ("tinyproxy", "tinyproxy-bin"), "-v")?;
    let (ip, port) = (peer.address.ip(), peer.address.port());
    let configuration =
        format!("Listen {ip}\nPort {port}\nMaxClients 20000\nTimeout 600\nLogLevel Error\n");
    let file = peer.write("tinyproxy.conf", configuration)?;
    let arguments = ["-d".into(), "-c".into(), file.into_os_string()];
    peer.start(start, arguments, Protocol::HttpProxy)
}
