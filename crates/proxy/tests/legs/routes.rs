//! Which way a destination goes, by every kind of pattern.

use crate::harness::*;
use crate::name_server::{NameServer, addresses};
use ekiden_proxy::settings::{HostPattern, Pattern};

fn net(text: &str) -> HostPattern {
    HostPattern::Net(text.parse().unwrap())
}

#[test]
fn the_first_route_that_matches_decides() {
    let local = addresses(&["127.0.0.1"]);
    let server = NameServer::start(&[
        ("one.test", local.clone(), addresses(&[])),
        ("below.test", local.clone(), addresses(&[])),
        ("deep.below.test", local.clone(), addresses(&[])),
        ("notbelow.test", local.clone(), addresses(&[])),
        ("else.test", local, addresses(&[])),
    ]);
    // every hop resolves for itself
    let hop = || {
        let mut settings = settings();
        settings.dns.servers = vec![server.address.into()];
        Relay::start(settings)
    };
    let names = ["name", "below", "net", "port", "range", "both", "rest"];
    let hops = names.map(|name| (name, hop()));
    let (low, high) = (echo(), echo());
    let (first, last) = (low.port().min(high.port()), low.port().max(high.port()));
    let other =
        eventually("another port", || Some(echo()).filter(|a| !(first..=last).contains(&a.port())));
    let port = echo();
    let mut settings = settings();
    for (name, hop) in &hops {
        crate::upstream::add(&mut settings, name, "http", hop.address, None);
    }
    let pattern = |host, ports| Pattern { host, ports };
    for (name, to) in [
        ("name", pattern(HostPattern::Name("one.test".into()), None)),
        ("below", pattern(HostPattern::Below("below.test".into()), None)),
        ("net", pattern(net("127.0.0.8/29"), None)),
        ("both", pattern(net("127.0.0.1/32"), Some((port.port(), port.port())))),
        ("port", pattern(HostPattern::Any, Some((port.port(), port.port())))),
        ("range", pattern(HostPattern::Any, Some((first, last)))),
    ] {
        settings.routes.push(route(vec![to], &[&[name]]));
    }
    settings.routes.push(route(vec![], &[&["rest"]]));
    let relay = Relay::start(settings);
    let outside = other.port();
    for (host, to, way) in [
        ("one.test", outside, "name"),
        ("ONE.test.", outside, "name"),
        ("below.test", outside, "below"),
        ("deep.below.test", outside, "below"),
        ("notbelow.test", outside, "rest"),
        ("else.test", outside, "rest"),
        ("127.0.0.1", outside, "rest"),
        ("127.0.0.1", port.port(), "both"),
        ("else.test", port.port(), "port"),
        ("127.0.0.1", first, "range"),
        ("else.test", last, "range"),
        // an earlier route wins over a closer one
        ("one.test", port.port(), "name"),
    ] {
        let (head, mut stream) = connect(relay.address, format!("{host}:{to}"));
        assert!(head.contains(" 200 ") && echoes(&mut stream), "{host}:{to} {head}");
        assert_eq!(relay.relayed().through, [way], "{host}:{to}");
        drop(stream);
        wait_for("relay.status().connections.is_empty()", || relay.status().connections.is_empty());
    }
    // a prefix matches addresses, and nothing listens there
    assert!(refusal(relay.address, format!("127.0.0.9:{outside}")).contains("upstream \"net\""));
}
