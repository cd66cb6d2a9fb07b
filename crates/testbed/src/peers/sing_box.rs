//! sing-box with hysteria2: QUIC at a fixed rate in whole Mbit/s. `scripts/peers.sh --sing-box` builds it,
//! because Debian has no package.

use super::process::{Preparation, io_error, version};
use super::{Peer, PeerError, Protocol, Start, ports};
use crate::certificate::Certificate;
use ekiden_model::units::Rate;
use serde_json::{Map, Value, json};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

const PROGRAM: &str = "sing-box";
/// What certificate and client call the server; its address stands elsewhere.
const NAME: &str = "ekiden.test";
/// Within namespaces that nobody else is in.
const PASSWORD: &str = "between two namespaces";

/// The rates of both ends, as the client sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hysteria2Rates {
    /// From the server to the client.
    pub down: Rate,
    /// From the client to the server.
    pub up: Rate,
}

/// Where it is. Errors: it was not built.
pub fn find() -> Result<PathBuf, PeerError> {
    super::find_built(PROGRAM, "(none: scripts/peers.sh --sing-box)")
}

/// A proxy without hysteria2: HTTP and SOCKS5 on one port, straight to destinations.
pub fn proxy(start: &Start) -> Result<Peer, PeerError> {
    run(start, "sing-box", |peer| {
        Ok(json!({
            "inbounds": [door(peer.address)],
            "outbounds": [{ "type": "direct" }],
        }))
    })
}

/// An HTTP proxy within TLS, straight to destinations.
pub fn tls_proxy(start: &Start, certificate: &Certificate) -> Result<Peer, PeerError> {
    run(start, "sing-box tls", |peer| {
        Ok(json!({
            "inbounds": [{
                "type": "http", "listen": peer.address.ip(), "listen_port": peer.address.port(),
                "tls": { "enabled": true, "min_version": "1.3",
                         "certificate_path": certificate.certificate(), "key_path": certificate.key() },
            }],
            "outbounds": [{ "type": "direct" }],
        }))
    })
}

/// For connections that TPROXY sends to the port returned, of 127.0.0.1; it goes straight to their destinations. The
/// peer's own port is the proxy of [`proxy`], so that it can be seen that it runs.
pub fn tproxy(start: &Start) -> Result<(Peer, u16), PeerError> {
    let diverted = ports::elsewhere(Ipv4Addr::LOCALHOST.into());
    let peer = run(start, "sing-box tproxy", |peer| {
        let inbound = json!({
            "type": "tproxy", "listen": diverted.ip(), "listen_port": diverted.port(),
            "network": "tcp",
        });
        Ok(json!({
            "inbounds": [inbound, door(peer.address)],
            "outbounds": [{ "type": "direct" }],
        }))
    })?;
    Ok((peer, diverted.port()))
}

/// The end that is connected to by UDP on the peer's address; it goes straight to destinations. It resolves the names
/// in `known`; without any, all as the system does.
pub fn server(
    start: &Start,
    configured: Hysteria2Rates,
    known: &[(String, IpAddr)],
) -> Result<Peer, PeerError> {
    run(start, "hysteria2 server", |peer| {
        let (key, certificate) = pair(peer)?;
        let key = peer.write("key.pem", key)?;
        let certificate = peer.write("certificate.pem", certificate)?;
        let mut configuration = json!({
            "inbounds": [
                {
                    "type": "hysteria2", "listen": peer.address.ip(), "listen_port": peer.address.port(),
                    "up_mbps": mbps(configured.down), "down_mbps": mbps(configured.up),
                    "users": [{ "password": PASSWORD }],
                    "tls": { "enabled": true, "server_name": NAME, "key_path": key,
                             "certificate_path": certificate },
                },
                // of TCP, so that it can be seen that it runs
                door(peer.address),
            ],
            "outbounds": [{ "type": "direct" }],
        });
        if !known.is_empty() {
            let names: Map<String, Value> =
                known.iter().map(|(name, address)| (name.clone(), json!(address))).collect();
            let server = json!({ "type": "hosts", "tag": "known", "predefined": names });
            configuration["dns"] = json!({ "servers": [server] });
            configuration["outbounds"][0]["domain_resolver"] = json!("known");
        }
        Ok(configuration)
    })
}

/// The end that is asked by SOCKS5 and HTTP, and goes through `server` to everything.
pub fn client(
    start: &Start,
    server: SocketAddr,
    configured: Hysteria2Rates,
) -> Result<Peer, PeerError> {
    run(start, "hysteria2", |peer| {
        Ok(json!({
            "inbounds": [door(peer.address)],
            "outbounds": [{
                "type": "hysteria2", "server": server.ip(), "server_port": server.port(),
                "up_mbps": mbps(configured.up), "down_mbps": mbps(configured.down), "password": PASSWORD,
                "tls": { "enabled": true, "server_name": NAME, "insecure": true },
            }],
        }))
    })
}

fn run(
    start: &Start,
    name: &str,
    configuration: impl FnOnce(&Preparation) -> Result<Value, PeerError>,
) -> Result<Peer, PeerError> {
    let program = find()?;
    let version = version(&program, "version");
    let peer = Preparation::of_file(start, name, program, version)?;
    let mut configured = configuration(&peer)?;
    configured["log"] = json!({ "level": "error" });
    let file = peer.write("sing-box.json", configured.to_string())?;
    let arguments = ["run".into(), "-c".into(), file.into_os_string()];
    peer.start(start, arguments, Protocol::AnyProxy)
}

fn door(address: SocketAddr) -> Value {
    json!({ "type": "mixed", "listen": address.ip(), "listen_port": address.port() })
}

/// It takes whole numbers alone: the nearest, and one at least.
fn mbps(rate: Rate) -> u64 {
    ((rate.as_bits_per_second() + 500_000) / 1_000_000).max(1)
}

/// A key and its certificate, which it makes itself.
fn pair(peer: &Preparation) -> Result<(String, String), PeerError> {
    let failed = |error: io::Error| io_error(&peer.name, error);
    let asked = Command::new(&peer.program).args(["generate", "tls-keypair", NAME]).output();
    let text = String::from_utf8_lossy(&asked.map_err(failed)?.stdout).into_owned();
    let at = text.find("-----BEGIN CERTIFICATE").ok_or_else(|| {
        failed(io::Error::other("`sing-box generate tls-keypair` made no certificate"))
    })?;
    let (key, certificate) = text.split_at(at);
    Ok((key.trim().to_owned() + "\n", certificate.trim().to_owned() + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_whole_and_never_nothing() {
        let configured = |bits| mbps(Rate::from_bits_per_second(bits));
        assert_eq!([configured(20_000_000), configured(800_000), configured(100_000)], [20, 1, 1]);
    }
}
