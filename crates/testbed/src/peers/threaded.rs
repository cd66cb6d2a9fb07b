//! Small proxies with one thread a connection: microsocks, for SOCKS5, and tinyproxy, for HTTP.

use super::process::Preparation;
use super::{Peer, PeerError, Protocol, Start, find};
use std::path::Path;
use std::process::Command;

/// Starts microsocks.
pub fn microsocks(start: &Start) -> Result<Peer, PeerError> {
    let program = find("microsocks", "microsocks")?;
    let version = package_version(&program);
    let peer = Preparation::of_file(start, "microsocks", program, version)?;
    let (ip, port) = (peer.address.ip().to_string(), peer.address.port().to_string());
    let arguments = ["-i".to_owned(), ip, "-p".to_owned(), port];
    peer.start(start, arguments, Protocol::Socks5)
}

/// Starts tinyproxy, with everything allowed.
pub fn tinyproxy(start: &Start) -> Result<Peer, PeerError> {
    let peer = Preparation::new(start, "tinyproxy", ("tinyproxy", "tinyproxy-bin"), "-v")?;
    let (ip, port) = (peer.address.ip(), peer.address.port());
    let configuration =
        format!("Listen {ip}\nPort {port}\nMaxClients 20000\nTimeout 600\nLogLevel Error\n");
    let file = peer.write("tinyproxy.conf", configuration)?;
    let arguments = ["-d".into(), "-c".into(), file.into_os_string()];
    peer.start(start, arguments, Protocol::HttpProxy)
}

/// It has no flag for its version; Debian's package has one.
fn package_version(program: &Path) -> String {
    let asked = Command::new("dpkg-query").args(["-W", "-f", "${Version}", "microsocks"]).output();
    let text = asked.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    text.ok()
        .filter(|v| !v.is_empty())
        .map_or_else(|| program.display().to_string(), |v| format!("microsocks {v} (Debian)"))
}
