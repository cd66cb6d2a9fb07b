//! Credentials for upstream proxies, and chains of both protocols.

use crate::harness::*;
use crate::upstream::{Script, add, scripted};
use ekiden_proxy::settings::Settings;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// Ends the process it holds.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A SOCKS5 server that asks for this user and password.
fn microsocks(user: &str, password: &str) -> Option<(Process, SocketAddr)> {
    let address = crate::upstream::refusing();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let mut command = Command::new("microsocks");
    command.args(["-i", &host, "-p", &port, "-u", user, "-P", password]);
    let Ok(child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        skip("microsocks is not installed: apt-get install microsocks");
        return None;
    };
    let process = Process(child);
    eventually("the listener", || TcpStream::connect(address).ok());
    Some((process, address))
}

fn by(protocol: &str, at: SocketAddr, credentials: Option<(&str, &str)>) -> Relay {
    let mut settings: Settings = settings();
    add(&mut settings, "far", protocol, at, credentials);
    settings.routes.push(route(vec![], &[&["far"]]));
    Relay::start(settings)
}

#[test]
fn sends_a_socks5_password_and_reports_its_refusal() {
    let Some((_process, at)) = microsocks("ship", "anchor: 100%") else { return };
    let server = echo();
    let relay = by("socks5", at, Some(("ship", "anchor: 100%")));
    let (head, mut stream) = connect(relay.address, server);
    assert!(head.contains(" 200 ") && echoes(&mut stream), "{head}");
    for (credentials, words) in [
        (Some(("ship", "rope")), "does not accept its user and password"),
        (Some(("boat", "anchor: 100%")), "does not accept its user and password"),
        (None, "wants a user and password, and none are configured"),
    ] {
        let relay = by("socks5", at, credentials);
        let text = refusal(relay.address, server);
        assert!(text.starts_with("HTTP/1.1 502") && text.contains(words), "{text}");
        assert!(!text.contains("rope") && !text.contains("anchor"), "{text}");
        let status = relay.status().upstreams.remove(0);
        assert!(!status.available && status.last_error.unwrap().contains(words));
    }
}

/// Asks for a password, and passes on when it is right.
fn basic_proxy(wanted: &'static str) -> SocketAddr {
    let listener = TcpListener::bind(loopback(0)).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let head = read_head(&mut stream);
            let right = head.contains(&format!("\r\nProxy-Authorization: Basic {wanted}\r\n"));
            let text: &[u8] = if right {
                b"HTTP/1.1 200 Connection established\r\n\r\n"
            } else {
                b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n"
            };
            let _ = stream.write_all(text);
            let mut buffer = [0; 5];
            if right && stream.read_exact(&mut buffer).is_ok() {
                let _ = stream.write_all(&buffer);
            }
        }
    });
    address
}

#[test]
fn sends_a_basic_password_and_reports_its_refusal() {
    // ship:anchor: 100%, RFC 7617
    let at = basic_proxy("c2hpcDphbmNob3I6IDEwMCU=");
    let relay = by("http", at, Some(("ship", "anchor: 100%")));
    let (head, mut stream) = connect(relay.address, "far.test:7");
    assert!(head.contains(" 200 ") && echoes(&mut stream), "{head}");
    for credentials in [Some(("ship", "rope")), None] {
        let relay = by("http", at, credentials);
        let text = refusal(relay.address, "far.test:7");
        let words = "answered 407 for far.test:7; check its user and password";
        assert!(text.starts_with("HTTP/1.1 502") && text.contains(words), "{text}");
        assert!(!text.contains("rope"), "{text}");
    }
}

#[test]
fn two_hops_of_either_protocol() {
    let server = echo();
    for (near, far) in
        [("http", "http"), ("http", "socks5"), ("socks5", "http"), ("socks5", "socks5")]
    {
        let hops = [(near, Relay::start(settings())), (far, Relay::start(settings()))];
        let mut settings = settings();
        add(&mut settings, "near", near, hops[0].1.address, None);
        add(&mut settings, "far", far, hops[1].1.address, None);
        settings.routes.push(route(vec![], &[&["near", "far"]]));
        let relay = Relay::start(settings);
        let (head, mut stream) = connect(relay.address, server);
        assert!(head.contains(" 200 ") && echoes(&mut stream), "{near} > {far}: {head}");
        assert_eq!(relay.relayed().through, ["near", "far"]);
        let protocol = |name: &str| if name == "http" { "connect" } else { "socks5" }.to_owned();
        assert_eq!(hops[0].1.relayed().protocol, protocol(near));
        assert_eq!(hops[0].1.relayed().destination.unwrap(), hops[1].1.address.to_string());
        assert_eq!(hops[1].1.relayed().protocol, protocol(far));
        assert_eq!(hops[1].1.relayed().destination.unwrap(), server.to_string());
    }
}

#[test]
fn keeps_early_bytes_of_the_far_end() {
    for (protocol, text) in [
        ("http", &b"HTTP/1.1 200 OK\r\n\r\nSSH-2.0-early"[..]),
        ("http", b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\n\r\nSSH-2.0-early"),
        ("socks5", b"\x05\x00\x05\x00\x00\x03\x01x\x00\x07SSH-2.0-early"),
    ] {
        let (at, _) = scripted(Script::Say(text));
        let relay = by(protocol, at, None);
        let (head, mut stream) = connect(relay.address, "far.test:22");
        assert!(head.contains(" 200 "), "{head}");
        let mut early = [0; 13];
        stream.read_exact(&mut early).unwrap();
        assert_eq!(&early, b"SSH-2.0-early", "{protocol}");
    }
}
