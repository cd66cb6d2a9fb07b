//! Unbound, as a resolver that knows a few names and asks nobody.

use super::process::Preparation;
use super::{Peer, PeerError, Protocol, Start};
use std::net::IpAddr;

/// How long its answers hold, seconds.
const HOLD: u32 = 300;

/// Starts it with these names, all below `test.`, for the place's network. For other types of record and other names
/// below `test.` it has the zone's proof that there are none. It listens on port 53 if `start` says no other. Errors:
/// it is not installed, or did not start.
pub fn start(start: &Start, names: &[(String, IpAddr)]) -> Result<Peer, PeerError> {
    let at = Start { port: start.port.or(Some(53)), ..start.clone() };
    let peer = Preparation::new(&at, "unbound", ("unbound", "unbound"), "-V")?;
    let network = at.place.as_ref().map_or("127.0.0.0/8", |place| place.network.as_str());
    let (folder, address) = (peer.folder.path().display(), peer.address);
    let mut text = format!(
        "server:
interface: {ip}
port: {port}
do-daemonize: no
username: \"\"
chroot: \"\"
directory: \"{folder}\"
pidfile: \"\"
use-syslog: no
access-control: {network} allow
local-zone: \"test.\" static
local-data: \"test. {HOLD} IN SOA ns.test. root.test. 1 3600 600 86400 {HOLD}\"
local-data: \"test. {HOLD} IN NS ns.test.\"
",
        ip = address.ip(),
        port = address.port(),
    );
    for (name, address) in names {
        let kind = if address.is_ipv4() { "A" } else { "AAAA" };
        text += &format!("local-data: \"{name}. {HOLD} IN {kind} {address}\"\n");
    }
    text += "remote-control:\ncontrol-enable: no\n";
    let file = peer.write("unbound.conf", text)?;
    let arguments = ["-d".into(), "-c".into(), file.into_os_string()];
    peer.start(&at, arguments, Protocol::Resolver)
}
