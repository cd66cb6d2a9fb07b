//! Connections that the kernel brings to the relay: of the house, of this machine, and of telephones.

use super::canary::{Canary, Forbidden, OPEN, PORT, is_reset, name_server, routed};
use crate::network::{Network, PATIENCE_OF_SILENCE, SERVER, config};
use crate::phone::{DOOR, OFF, Phone, program};
use crate::relayed::access_log;
use crate::wireguard::door;
use ekiden_linux::namespaces::netns::Netns;
use ekiden_testkit::forbidden::{LINK_LOCAL, SPELLINGS};
use ekiden_testkit::{Daemon, wait_for};
use std::net::{IpAddr, SocketAddr};

const DEVICES: &str = "devices = [\"eth1\"]";
const NAMES: &str = "[dns]\nservers = [\"9.9.9.2\"]\n";
const NAMELESS: &[u8] = b"\0nothing";

/// Resets all of them, and the access log says so of each; nobody arrives.
fn all_are_reset(netns: &Netns, list: &[Forbidden], daemon: &Daemon, canary: &Canary) {
    let refused = || daemon.status()["totals"]["refused"].as_u64().unwrap();
    let before = refused();
    for (_, at, _) in list {
        assert!(is_reset(netns, SocketAddr::new(*at, PORT), NAMELESS), "{at} was reached");
    }
    wait_for("the refusals", || refused() == before + list.len() as u64);
    for (_, at, kind) in list {
        let why = format!("{} is {kind}", at.to_canonical());
        wait_for("its line", || access_log(daemon).contains(&why));
    }
    assert_eq!(canary.seen(), [] as [IpAddr; 0]);
}

/// Where all is opened, they are reached: what kept them apart was the relay.
fn some_are_reached(netns: &Netns, list: &[Forbidden], canary: &Canary) {
    let reached = list
        .iter()
        .filter(|(_, at, _)| !is_reset(netns, SocketAddr::new(*at, PORT), NAMELESS))
        .count();
    assert!(reached > list.len() / 2 && canary.seen().len() >= reached, "{reached}");
}

pub(super) fn diverted_tcp_reaches_nothing_forbidden(network: &Network) {
    let canary = Canary::start(network);
    let daemon = network.serve(DEVICES, "");
    all_are_reset(&network.lan, &routed(), &daemon, &canary);
    daemon.reload(&config(DEVICES, OPEN));
    some_are_reached(&network.lan, &routed(), &canary);
}

pub(super) fn own_traffic_reaches_nothing_forbidden(network: &Network) {
    let canary = Canary::start(network);
    let home = Network::home("own_traffic = true", "");
    let Some(daemon) = network.serve_as_nobody(&home) else { return };
    // the link's own business passes by, as `ekiden gateway show` says
    let own = |(_, at, kind): &Forbidden| {
        *kind != LINK_LOCAL || !matches!(at.to_canonical(), IpAddr::V4(_))
    };
    let list: Vec<_> = routed().into_iter().filter(own).collect();
    all_are_reset(&network.gateway, &list, &daemon, &canary);
    assert_eq!(daemon.status()["gateway"]["own"].as_u64(), Some(list.len() as u64));
}

/// The relay resolves names that clients say: each to an address of the list, and one to another address each time.
pub(super) fn names_of_forbidden_addresses_lead_nowhere(network: &Network) {
    let canary = Canary::start(network);
    name_server(network);
    let gateway = format!("{DEVICES}\ngo_to = \"name\"");
    let daemon = network.serve(&gateway, &format!("{NAMES}min_ttl = \"0 s\"\n"));
    let (to, private) =
        (SocketAddr::new(SERVER.parse().unwrap(), PORT), ekiden_testkit::forbidden::PRIVATE);
    let says = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").into_bytes();
    for (nth, at, kind) in super::canary::list() {
        if kind == private {
            continue;
        }
        assert!(is_reset(&network.lan, to, &says(&format!("a{nth}.test"))), "{at} was reached");
        let why = format!("{} is {kind}", at.to_canonical());
        wait_for("its line", || access_log(&daemon).contains(&why));
    }
    for host in ["localhost", "a.localhost", "LOCALHOST."] {
        assert!(is_reset(&network.lan, to, &says(host)), "{host} was reached");
    }
    assert_eq!(canary.seen(), [] as [IpAddr; 0]);
    // another address the second time
    assert!(!is_reset(&network.lan, to, &says("turns.test")));
    wait_for("the other address", || is_reset(&network.lan, to, &says("turns.test")));
    assert!(canary.seen().iter().all(|at| *at == to.ip()));
    // what is no name leaves the client's own choice
    for host in SPELLINGS.iter().filter(|host| !host.to_ascii_lowercase().contains("localhost")) {
        is_reset(&network.lan, to, &says(host));
    }
    let seen = canary.seen();
    assert!(!seen.is_empty() && seen.iter().all(|at| *at == to.ip()), "{seen:?}");
}

pub(super) fn a_telephone_reaches_nothing_forbidden(network: &Network) {
    let Some(program) = program() else { return };
    let canary = Canary::start(network);
    let home = Network::home(OFF, DOOR);
    let daemon = network.serve_in(&home);
    let text = daemon.printed(&["account", "add", "anna", "--wireguard", "--device", "phone"]);
    wait_for("the peer", || door(&daemon)["peers"][0]["account"] == "anna");
    let phone = Phone::new(network, &program, &text);
    let first = phone.page(network, &["http://9.9.9.2/"]);
    assert!(first.starts_with("9.9.9.1 "), "{first}");
    all_are_reset(&phone.netns, &routed(), &daemon, &canary);
    // datagrams pass by the kernel: they are judged in the tunnel, by every address that the telephone's kernel sends there
    let refused = || door(&daemon)["refused"].as_u64().unwrap();
    let (before, list) = (refused(), routed());
    for (_, at, _) in &list {
        let own = &phone.own()[usize::from(at.is_ipv6() && at.to_canonical().is_ipv6())];
        let to = SocketAddr::new(at.to_canonical(), PORT);
        assert_eq!(phone.ask(own, to, b"x", PATIENCE_OF_SILENCE / 10), None, "{at}");
    }
    wait_for("the refusals", || refused() >= before + list.len() as u64);
    assert_eq!(canary.seen(), [] as [IpAddr; 0]);
    // and the relay's own addresses, where its services are
    for at in ["9.9.9.1", "192.168.77.1", "10.77.0.1"] {
        let to = SocketAddr::new(at.parse().unwrap(), PORT);
        let own = &phone.own()[0];
        // the first has a way beside the tunnel, as the tunnel's own packets need one
        if at != "9.9.9.1" {
            assert_eq!(phone.ask(own, to, b"x", PATIENCE_OF_SILENCE), None, "{at}");
        }
    }
    assert_eq!(canary.seen(), [] as [IpAddr; 0]);
}
