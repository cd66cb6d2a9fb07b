//! A relay does not connect to itself, however it is named.

use crate::harness::*;
use crate::name_server::{NameServer, addresses};
use crate::upstream::refusing;
use ekiden_proxy::settings::Settings;

/// Everything opened, so that only the relay's own listener is in the way.
fn open(listen: &[&str], server: &NameServer) -> Settings {
    let mut settings = settings();
    settings.listen = listen.iter().map(|text| text.parse().unwrap()).collect();
    settings.access.allow_destinations = ["0.0.0.0/0", "::/0"].map(|n| n.parse().unwrap()).into();
    settings.dns.servers = vec![server.address.into()];
    settings
}

fn names() -> NameServer {
    let none = addresses(&[]);
    NameServer::start(&[
        ("me.test", addresses(&["127.0.0.1"]), none.clone()),
        ("other.test", addresses(&["127.0.0.2"]), none.clone()),
        ("mapped.test", none.clone(), addresses(&["::ffff:127.0.0.1"])),
        ("any.test", addresses(&["0.0.0.0"]), none.clone()),
        ("any6.test", none.clone(), addresses(&["::"])),
        ("six.test", none, addresses(&["::1"])),
    ])
}

fn refused(relay: &Relay, hosts: &[&str]) {
    let accepted = relay.status().totals.accepted;
    for host in hosts {
        let text = refusal(relay.address, format!("{host}:{}", relay.address.port()));
        assert!(text.starts_with("HTTP/1.1 508"), "{host}: {text}");
    }
    // it was seen beforehand: the relay was never its own client
    assert_eq!(relay.status().totals.accepted - accepted, hosts.len() as u64);
}

#[test]
fn associates_by_address_and_by_name() {
    let server = names();
    let relay = Relay::start(open(&["127.0.0.1:0"], &server));
    refused(
        &relay,
        &[
            "127.0.0.1",
            "me.test",
            "mapped.test",
            "[::ffff:127.0.0.1]",
            "localhost",
            "any.test",
            "0.0.0.0",
        ],
    );
}

#[test]
fn a_translator_does_not_lead_back() {
    let server = names();
    let mut settings = open(&["127.0.0.1:0"], &server);
    settings.dns.nat64 = Some("100:0:0:2::/96".parse().unwrap());
    let relay = Relay::start(settings);
    refused(&relay, &["[100:0:0:2::127.0.0.1]", "[64:ff9b::127.0.0.1]"]);
    let (head, _) = connect_udp(relay.address, "100:0:0:2::127.0.0.1", relay.address.port());
    assert!(head.starts_with("HTTP/1.1 508"), "{head}");
}

#[test]
fn a_wildcard_listener_is_every_address_of_this_machine() {
    let server = names();
    let mut settings = open(&["0.0.0.0:0"], &server);
    let relay = Relay::start(settings.clone());
    let hosts = ["127.0.0.1", "127.0.0.2", "me.test", "other.test", "mapped.test", "any.test"];
    refused(&relay, &hosts);
    // the leg's own source address changes nothing about where it leads
    settings.legs.get_mut("direct").unwrap().socket.source = Some("127.0.0.7".parse().unwrap());
    refused(&Relay::start(settings), &hosts);
    let relay = Relay::start(open(&["[::]:0"], &server));
    let (port, accepted) = (relay.address.port(), relay.status().totals.accepted);
    let client = std::net::SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
    for host in ["[::1]", "six.test", "any6.test", "[::]"] {
        let text = refusal(client, format!("{host}:{port}"));
        assert!(text.starts_with("HTTP/1.1 508"), "{host}: {text}");
    }
    assert_eq!(relay.status().totals.accepted - accepted, 4);
}

/// The kernel's rules are for what it forwards, and not for what the relay itself sends.
#[cfg(feature = "wireguard")]
#[test]
fn clients_of_wireguard_are_no_destinations() {
    let server = names();
    let mut settings = open(&["127.0.0.1:0"], &server);
    // without a folder for its key it does not open, and its networks are its own all the same
    settings.wireguard.listen = vec!["127.0.0.1:0".parse().unwrap()];
    let relay = Relay::start(settings);
    for host in
        ["10.77.0.3", "[::ffff:10.77.0.3]", "[64:ff9b::10.77.0.3]", "[fd65:6b69:6465:6e77::3]"]
    {
        let text = refusal(relay.address, format!("{host}:9"));
        assert!(text.starts_with("HTTP/1.1 403"), "{host}: {text}");
        assert!(text.contains("a client of [wireguard]"), "{host}: {text}");
    }
    let (head, _) = connect_udp(relay.address, "10.77.0.3", 9);
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
}

/// The kernel's rules keep others from these addresses only where a packet has them.
#[cfg(feature = "wireguard")]
#[test]
fn no_header_of_a_proxy_names_a_client_of_wireguard() {
    use std::io::{ErrorKind, Read as _, Write as _};
    let server = names();
    let mut settings = open(&["127.0.0.1:0"], &server);
    settings.wireguard.listen = vec!["127.0.0.1:0".parse().unwrap()];
    settings.access.proxy_protocol_from = vec!["127.0.0.1/32".parse().unwrap()];
    let relay = Relay::start(settings);
    let answer = |client: &str| {
        let mut stream = std::net::TcpStream::connect(relay.address).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        let said = format!("PROXY TCP4 {client} 192.0.2.1 4711 80\r\n");
        let request = "GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n";
        stream.write_all(format!("{said}{request}").as_bytes()).unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).map(|()| head).map_err(|error| error.kind())
    };
    assert_eq!(answer("10.77.0.3"), Err(ErrorKind::ConnectionReset));
    // any other is judged by the rules
    assert_eq!(answer("10.78.0.3"), Ok(*b"HTTP/1.1 403"));
}

/// A tunnel's fallback listens on the same port of TCP: no client may speak to it through the relay.
#[test]
fn a_tunnel_s_port_is_the_relay_itself() {
    let server = names();
    let mut settings = open(&["127.0.0.1:0"], &server);
    let folder = tempfile::tempdir().unwrap();
    settings.tunnel.state = Some(folder.path().to_owned());
    settings.tunnel.listen = vec![refusing()];
    let relay = Relay::start(settings.clone());
    let text = refusal(relay.address, settings.tunnel.listen[0]);
    assert!(text.starts_with("HTTP/1.1 508"), "{text}");
}

/// A question through the relay would come from this machine, which may always ask.
#[test]
fn the_port_for_names_is_the_relay_itself() {
    let server = names();
    let mut settings = open(&["127.0.0.1:0"], &server);
    settings.dns.listen = vec![refusing()];
    let (relay, at) = (Relay::start(settings.clone()), settings.dns.listen[0]);
    let text = refusal(relay.address, at);
    assert!(text.starts_with("HTTP/1.1 508"), "{text}");
    let (head, _) = connect_udp(relay.address, &at.ip().to_string(), at.port());
    assert!(head.starts_with("HTTP/1.1 508"), "{head}");
}

#[test]
fn another_server_on_the_same_port_is_no_loop() {
    let server = names();
    let relay = Relay::start(open(&["127.0.0.1:0"], &server));
    let port = relay.address.port();
    let Ok(other) = std::net::TcpListener::bind(("127.0.0.2", port)) else {
        return skip("the port is taken on 127.0.0.2");
    };
    echo_on(other);
    let (head, mut stream) = connect(relay.address, format!("other.test:{port}"));
    assert!(head.contains(" 200 ") && echoes(&mut stream), "{head}");
}
