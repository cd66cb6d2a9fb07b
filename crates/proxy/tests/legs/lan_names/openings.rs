//! A server to which a stream takes longer to open than a question may wait.

use super::server::*;
use super::tls_of;
use crate::harness::*;
use ekiden_model::units::Span;
use ekiden_proxy::settings::DnsServer;
use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::RecordType;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

/// Takes connections to there; each waits so long before its first byte goes on.
fn late(to: SocketAddr, wait: Duration) -> SocketAddr {
    let listener = TcpListener::bind(loopback(0)).unwrap();
    let at = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            std::thread::spawn(move || {
                std::thread::sleep(wait);
                let server = TcpStream::connect(to).unwrap();
                let copy = |mut from: TcpStream, mut to: TcpStream| {
                    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                };
                copy(client.try_clone().unwrap(), server.try_clone().unwrap());
                copy(server, client);
            });
        }
    });
    at
}

#[test]
fn a_stream_that_opens_late_brings_names_that_cannot_wait_so_long() {
    let server = Server::start(|query, _| addresses(query, &["192.0.2.7"], 60));
    let folder = tempfile::tempdir().unwrap();
    let (config, authorities) = tls_of(folder.path());
    let at = late(server.within_tls(config), Duration::from_secs(3));
    let mut settings = settings();
    let names = free_port();
    settings.dns.listen = vec![names];
    settings.dns.servers = vec![DnsServer::Tls { at, name: Some("dns.example".to_owned()) }];
    settings.dns.authorities = Some(authorities);
    settings.timeouts.resolve = Span::from_secs(1);
    let _relay = Relay::start(settings);
    let client = UdpSocket::bind(loopback(0)).unwrap();
    client.connect(names).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let (mut nth, mut buffer) = (0, [0; 4_096]);
    wait_for("an address", || {
        let message = query(&format!("n{nth}.example."), RecordType::A, None);
        nth += 1;
        client.send(&message.to_vec().unwrap()).unwrap();
        let reply = client.recv(&mut buffer).ok();
        let reply = reply.map(|n| Message::from_vec(&buffer[..n]).unwrap());
        reply.is_some_and(|reply| !found(&reply).is_empty())
    });
}
