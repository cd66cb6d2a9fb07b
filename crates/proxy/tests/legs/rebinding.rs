//! Names that resolve to where their asker may not go.

use crate::harness::*;
use crate::name_server::{NameServer, SPECIAL, addresses};
use crate::upstream::{Script, add, scripted};
use ekiden_proxy::settings::{Access, HostPattern, Pattern, Rule, Settings};
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
    let server = NameServer::of_special_addresses();
    let port = echo_everywhere();
    let relay = asking(&server, &[]);
    for name in SPECIAL {
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

/// A translator's prefix that leads nowhere.
const PREFIX: &str = "100:0:0:2::/96";

/// Denies 9.9.9.0/24.
fn deny() -> Rule {
    let host = HostPattern::Net("9.9.9.0/24".parse().unwrap());
    Rule { to: vec![Pattern { host, ports: None }], ..Rule::default() }
}

#[test]
fn addresses_of_a_translator_are_refused_as_those_of_ipv4() {
    let none = addresses(&[]);
    let server = NameServer::start(&[
        ("metadata.test", none.clone(), addresses(&["100:0:0:2::169.254.169.254"])),
        ("loopback.test", none.clone(), addresses(&["100:0:0:2::127.0.0.1"])),
        ("denied.test", none.clone(), addresses(&["100:0:0:2::9.9.9.9"])),
        ("known.test", none, addresses(&["64:ff9b::9.9.9.9"])),
    ]);
    let mut settings = Settings { access: Access::default(), ..settings() };
    settings.access.rules = vec![deny()];
    settings.dns.servers = vec![server.address.into()];
    settings.dns.nat64 = Some(PREFIX.parse().unwrap());
    let relay = Relay::start(settings);
    let hosts = [
        "100:0:0:2::169.254.169.254",
        "100:0:0:2::a9fe:a9fe",
        "100:0:0:2::127.0.0.1",
        "100:0:0:2::9.9.9.9",
        "64:ff9b::9.9.9.9",
        "metadata.test",
        "loopback.test",
        "denied.test",
        "known.test",
    ];
    for host in hosts {
        let bracketed = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let text = refusal(relay.address, format!("{bracketed}:80"));
        assert!(text.starts_with("HTTP/1.1 403"), "{host}: {text}");
        assert_eq!(socks5(relay.address, host, 80).0, 2, "{host}");
        let (head, _) = connect_udp(relay.address, host, 53);
        assert!(head.starts_with("HTTP/1.1 403"), "{host}: {head}");
    }
    assert_eq!(relay.status().totals.refused, 3 * hosts.len() as u64);
}

#[test]
fn a_reload_of_the_translators_prefix_changes_what_is_refused() {
    let (hop, _) = scripted(Script::Say(b"HTTP/1.1 200 OK\r\n\r\n"));
    let with = |listen, nat64: Option<&str>| {
        let mut settings = Settings { access: Access::default(), listen, ..settings() };
        settings.access.rules = vec![deny()];
        settings.dns.nat64 = nat64.map(|prefix| prefix.parse().unwrap());
        add(&mut settings, "hop", "http", hop, None);
        settings.routes.push(route(vec![], &[&["hop"]]));
        settings
    };
    let relay = Relay::start(with(vec![loopback(0)], None));
    let status = |host: &str| {
        let (head, _) = connect(relay.address, format!("[{host}]:80"));
        head.split(' ').nth(1).unwrap().to_owned()
    };
    for (prefix, refused) in [
        (None, false),
        (Some(PREFIX), true),
        (Some("100:0:0:3::/96"), false),
        (Some(PREFIX), true),
        (None, false),
    ] {
        relay.reload(with(vec![relay.address], prefix)).unwrap();
        let expected = if refused { "403" } else { "200" };
        for host in ["100:0:0:2::169.254.169.254", "100:0:0:2::9.9.9.9"] {
            assert_eq!(status(host), expected, "{host} with {prefix:?}");
        }
        assert_eq!(
            (status("100:0:0:2::8.8.8.8"), status("64:ff9b::9.9.9.9")),
            ("200".into(), "403".into())
        );
    }
}

#[test]
fn names_of_relays_are_no_destinations() {
    let (hop, asked) = scripted(Script::Say(b"HTTP/1.1 200 OK\r\n\r\n"));
    let mut through = settings();
    add(&mut through, "hop", "http", hop, None);
    through.routes.push(route(vec![], &[&["hop"]]));
    for relay in [Relay::start(through), Relay::start(settings())] {
        for (name, port) in
            [("names.ekiden.invalid", 53), ("Measure.Ekiden.Invalid.", 5), ("ekiden.invalid", 80)]
        {
            let text = refusal(relay.address, format!("{name}:{port}"));
            assert!(
                text.starts_with("HTTP/1.1 403") && text.contains("for relays alone"),
                "{text}"
            );
            assert_eq!(socks5(relay.address, name, port).0, 2, "{name}");
        }
    }
    let relay = Relay::start(settings());
    let (head, _) = connect_udp(relay.address, "names.ekiden.invalid", 53);
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    assert_eq!(asked.load(std::sync::atomic::Ordering::SeqCst), 0);
}
