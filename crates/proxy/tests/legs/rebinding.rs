//! Names that resolve to where their asker may not go.

use crate::harness::*;
use crate::name_server::{NameServer, addresses};
use ekiden_proxy::settings::{Access, Settings};
use std::net::TcpListener;

fn asking(server: &NameServer, opened: &[&str]) -> Relay {
    let mut settings = Settings { access: Access::default(), ..settings() };
    settings.access.allow_destinations = opened.iter().map(|net| net.parse().unwrap()).collect();
    settings.dns.servers = vec![server.address.into()];
    Relay::start(settings)
}

/// Accepts on every address of both families, so that nothing but a rule keeps anybody out.
fn echo_everywhere() -> u16 {
    eventually("the state", || {
        let v4 = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = v4.local_addr().unwrap().port();
        let v6 = TcpListener::bind(("::1", port)).ok()?;
        echo_on(v4);
        echo_on(v6);
        Some(port)
    })
}

#[test]
fn refuses_a_name_by_its_resolved_address() {
    let none = addresses(&[]);
    let server = NameServer::start(&[
        ("loopback.test", addresses(&["127.0.0.1"]), none.clone()),
        ("six.test", none.clone(), addresses(&["::1"])),
        ("mapped.test", none.clone(), addresses(&["::ffff:127.0.0.1"])),
        ("metadata.test", addresses(&["169.254.169.254"]), none.clone()),
        ("this.test", addresses(&["0.0.0.0"]), none.clone()),
        ("group.test", addresses(&["224.0.0.1"]), none),
    ]);
    let port = echo_everywhere();
    let relay = asking(&server, &[]);
    for name in ["loopback", "six", "mapped", "metadata", "this", "group"] {
        let text = refusal(relay.address, format!("{name}.test:{port}"));
        assert!(text.starts_with("HTTP/1.1 403") && text.contains("--allow-destination"), "{text}");
        assert_eq!(socks5(relay.address, &format!("{name}.test"), port).0, 2, "{name}");
        let (head, _) = connect_udp(relay.address, &format!("{name}.test"), port);
        let prohibited = "error=destination_ip_prohibited";
        assert!(head.starts_with("HTTP/1.1 403") && head.contains(prohibited), "{name}: {head}");
    }
    assert_eq!(relay.status().totals.refused, 18);
    // opened by the operator; the mapped form is the IPv4 address, whichever way it came
    let relay = asking(&server, &["127.0.0.0/8"]);
    for name in ["loopback", "mapped"] {
        let (head, mut stream) = connect(relay.address, format!("{name}.test:{port}"));
        assert!(head.contains(" 200 ") && echoes(&mut stream), "{name} {head}");
    }
    assert!(refusal(relay.address, format!("six.test:{port}")).contains(" 403 "));
    for (name, status) in [("loopback", 101), ("mapped", 101), ("six", 403)] {
        let (head, _) = connect_udp(relay.address, &format!("{name}.test"), port);
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{name}: {head}");
    }
}

#[test]
fn tries_only_allowed_addresses() {
    let server = NameServer::start(&[(
        "mixed.test",
        addresses(&["127.0.0.1", "127.9.9.9", "169.254.169.254"]),
        addresses(&["::1"]),
    )]);
    let port = echo_everywhere();
    let relay = asking(&server, &["127.9.9.9/32"]);
    let (head, mut stream) = connect(relay.address, format!("mixed.test:{port}"));
    assert!(head.contains(" 200 ") && echoes(&mut stream), "{head}");
    assert_eq!(relay.relayed().legs[1].peer.unwrap().to_string(), format!("127.9.9.9:{port}"));
    drop(stream);
    // the allowed one does not answer: its own failure is told, and the others are still not tried
    let closed = crate::upstream::refusing().port();
    let text = refusal(relay.address, format!("mixed.test:{closed}"));
    assert!(
        text.starts_with("HTTP/1.1 502") && text.contains("cannot connect to 127.9.9.9"),
        "{text}"
    );
}
