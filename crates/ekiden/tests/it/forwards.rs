//! Forwarded ports, and the client's address across proxies, by two daemons in a row.

use crate::daemons::{daemon, free_port};
use ekiden_testkit::{Daemon, PATIENCE, wait_for};
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

const COMMON: &str = "control = \"DIR/ekiden.sock\"\n[management]\nlisten = \"off\"\n\
    [log]\naccess = \"DIR/access\"\n";
const LOOPBACK: &str = "[access]\nallow_destinations = [\"127.0.0.0/8\"]\n";

fn forward(port: u16, to: impl std::fmt::Display, more: &str) -> String {
    format!("[[forward]]\nlisten = [\"127.0.0.1:{port}\"]\nto = \"{to}\"\n{more}")
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn access_log(daemon: &Daemon) -> String {
    fs::read_to_string(daemon.path().join("access")).unwrap_or_default()
}

/// Bytes that come until the end.
fn all(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_port_leads_to_one_destination() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (to, port, closed) = (server.local_addr().unwrap(), free_port(), free_port());
    let config = |to: SocketAddr| {
        let elsewhere = forward(closed, "192.0.2.1:80", "");
        format!("{COMMON}{LOOPBACK}{}{elsewhere}", forward(port, to, ""))
    };
    let daemon = daemon(&config(to));
    let mut client = connect(port);
    let (mut accepted, _) = server.accept().unwrap();
    client.write_all(b"up").unwrap();
    let mut up = [0; 2];
    accepted.read_exact(&mut up).unwrap();
    accepted.write_all(b"down").unwrap();
    drop(accepted);
    assert_eq!((&up, all(&mut client).as_str()), (b"up", "down"));
    drop(client);
    wait_for("its line", || access_log(&daemon).contains("\"protocol\":\"forward\""));
    // a special address stays closed here, too
    let error = connect(closed).read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    wait_for("its refusal", || daemon.status()["totals"]["refused"] == 1);
    // a reload changes where it leads, and keeps the socket
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    daemon.reload(&config(other.local_addr().unwrap()));
    let _client = connect(port);
    other.accept().unwrap();
    // and without it nobody listens
    daemon.reload(&format!("{COMMON}{LOOPBACK}"));
    wait_for("the end of the port", || TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn datagrams_go_there_and_back() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let (to, port) = (server.local_addr().unwrap(), free_port());
    let forward = forward(port, to, "protocol = \"udp\"\n");
    let daemon = daemon(&format!("{COMMON}{LOOPBACK}{forward}[udp]\nidle = \"1 s\"\n"));
    let clients = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    for (nth, client) in clients.iter().enumerate() {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.connect(("127.0.0.1", port)).unwrap();
        let sent = [b'a' + nth as u8; 1200];
        client.send(&sent).unwrap();
        let mut bytes = [0; 2000];
        let (n, from) = server.recv_from(&mut bytes).unwrap();
        assert_eq!(bytes[..n], sent);
        server.send_to(&bytes[..n / 2], from).unwrap();
        assert_eq!(client.recv(&mut bytes).unwrap(), 600);
    }
    assert_eq!(daemon.status()["udp"]["associations"], 2);
    wait_for("the end of both", || daemon.status()["udp"]["associations"] == 0);
    wait_for("their lines", || access_log(&daemon).matches("1 datagrams up, 1 down").count() == 2);
    let log = access_log(&daemon);
    assert!(log.contains(&format!("\"target\":\"{to}\"")), "{log}");
}

#[test]
fn only_trusted_proxies_name_the_client() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let (to, near, far) = (server.local_addr().unwrap(), free_port(), free_port());
    // the far one tells the server, and refuses one client
    let trusted = "proxy_protocol_from = [\"127.0.0.1\"]\n";
    let deny = "[[rule]]\nfrom = [\"192.0.2.0/24\"]\naction = \"deny\"\n";
    let rules =
        format!("{deny}[[rule]]\nfrom = [\"198.51.100.7\", \"127.0.0.0/8\"]\naction = \"allow\"\n");
    let last = forward(far, to, "send_proxy = \"v1\"\n");
    let behind = daemon(&format!("{COMMON}{LOOPBACK}{trusted}{rules}{last}"));
    let before = daemon(&format!(
        "{COMMON}{LOOPBACK}{}",
        forward(near, SocketAddr::from(([127, 0, 0, 1], far)), "send_proxy = \"v2\"\n")
    ));
    let served = |port: u16, first: &[u8]| {
        let mut client = connect(port);
        client.write_all(first).unwrap();
        let (mut accepted, _) = server.accept().unwrap();
        accepted.set_read_timeout(Some(PATIENCE)).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        (client.local_addr().unwrap(), all(&mut accepted))
    };
    // through both: the server hears of the client itself
    let (client, text) = served(near, b"hello");
    let begins = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} ", client.port());
    assert!(text.starts_with(&begins) && text.ends_with("\r\nhello"), "{text}");
    // in text, as HAProxy sends it
    let (_, text) = served(far, b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 80\r\nhi");
    assert!(text.starts_with("PROXY TCP4 198.51.100.7 127.0.0.1 4711 "), "{text}");
    wait_for("its line", || access_log(&behind).contains("\"client\":\"198.51.100.7:4711\""));
    // a client that a rule refuses, no header, and a malformed one
    for first in [
        &b"PROXY TCP4 192.0.2.9 192.0.2.1 1 80\r\n"[..],
        b"GET / HTTP/1.1\r\n",
        b"PROXY TCP4 x\r\n",
    ] {
        let mut client = connect(far);
        client.write_all(first).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }
    wait_for("three refusals", || behind.status()["totals"]["refused"] == 3);
    // a balancer that asks whether the port is open is no refusal
    drop(connect(far));
    let reset = connect(far);
    socket2::SockRef::from(&reset).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(reset);
    // the proxy's own port, too
    let mut client = TcpStream::connect(behind.address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!("PROXY UNKNOWN\r\nCONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut head = [0; 12];
    client.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    // who is not trusted says nothing: it is a request like any other
    let mut client = TcpStream::connect(before.address).unwrap();
    client.write_all(b"PROXY TCP4 127.0.0.1 127.0.0.1 1 80\r\n\r\n").unwrap();
    client.read_exact(&mut head).unwrap();
    // "1" stands where the version should
    assert_eq!(&head, b"HTTP/1.1 505");
    assert_eq!(behind.status()["totals"]["refused"], 3);
}
