//! Networks of hosts, routers and links carry what they should.

use crate::traffic::{datagrams, stream, transfer, two};
use ekiden_emulator::topology::{BuildError, Host, LinkPlan, ProcessPlan, Topology, TopologyPlan};
use ekiden_linux::host::sysctl;
use ekiden_model::network::link::{Config, FqCodelConfig, Serialiser};
use ekiden_model::units::{Rate, Span};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

/// What a datagram and its answer take, at least.
fn round_trip(topology: &Topology, from: &str, to: &str, v6: bool) -> Duration {
    let address = |name: &str| -> IpAddr {
        let host = topology.host(name).unwrap();
        if v6 { host.address_v6().into() } else { host.address().into() }
    };
    let asking = datagrams(topology.host(from).unwrap(), address(from));
    let answering = datagrams(topology.host(to).unwrap(), address(to));
    let begun = Instant::now();
    asking.send_to(b"?", answering.local_addr().unwrap()).unwrap();
    let (_, who) = answering.recv_from(&mut [0; 8]).unwrap();
    answering.send_to(b"!", who).unwrap();
    asking.recv(&mut [0; 8]).unwrap();
    begun.elapsed()
}

fn delay(millis: u64) -> Config {
    Config { delay: Span::from_millis(millis), ..Config::default() }
}

pub(crate) fn an_empty_link_delays() {
    let topology = Topology::build(&two(delay(20), delay(10))).unwrap();
    for v6 in [false, true] {
        // never sooner: how much later is the machine's matter
        assert!(round_trip(&topology, "a", "b", v6) >= Duration::from_millis(30));
    }
    let report = &topology.finish().unwrap()[0];
    let delays = report.directions.iter().map(|direction| direction.delay_ns.unwrap().most);
    assert_eq!(delays.collect::<Vec<_>>(), [20_000_000, 10_000_000]);
}

pub(crate) fn steps_hand_over_together_what_is_due() {
    let step = Span::from_millis(100);
    let topology = Topology::build_in_steps(&two(delay(20), delay(10)), step).unwrap();
    // the second waits a whole step; another packet may have begun that of the first
    assert!(round_trip(&topology, "a", "b", false) >= Duration::from_millis(120));
    let got = stream(&topology, 200, 100, Duration::from_millis(1));
    let report = topology.finish().unwrap().swap_remove(0);
    let [there, back] = &report.directions[..] else { panic!("two directions") };
    assert_eq!((got, there.packets.offered, there.packets.delivered), (200, 201, 201));
    assert_eq!(back.packets.delivered, 1);
    // the link's own delay is as ever
    assert_eq!(there.delay_ns.unwrap().most, 20_000_000);
}

pub(crate) fn loss_is_what_was_asked() {
    let forward = Config { loss: "10%".parse().unwrap(), seed: 42, ..Config::default() };
    let topology = Topology::build(&two(forward, Config::default())).unwrap();
    let got = stream(&topology, 5_000, 100, Duration::from_micros(50));
    let packets = topology.finish().unwrap()[0].directions[0].packets;
    assert_eq!(packets.offered, 5_000);
    assert_eq!(packets.delivered, u64::from(got), "what the link delivered arrived");
    // 500 ± 2.576 · √(5000 · 0.1 · 0.9); the seed is fixed, so this cannot flicker
    assert!((445..=555).contains(&packets.lost), "{}", packets.lost);
}

const PLAN: &str = r#"
seed = 7

[[host]]
name = "desk"
congestion = "cubic"

[[host]]
name = "office"
router = true

[[host]]
name = "exchange"
router = true

[[host]]
name = "hub"
router = true

[[host]]
name = "server"

[[link]]
between = ["desk", "office"]
delay = "1 ms"

[[link]]
name = "thin"
between = ["office", "exchange"]
delay = "5 ms"
rate = "10 Mbit/s"
forward = { rate = "2 Mbit/s" }

[[link]]
between = ["exchange", "hub"]
delay = "3 ms"
loss = "0.1%"

[[link]]
between = ["hub", "server"]
delay = "1 ms"
"#;

pub(crate) fn three_routers_from_a_plan() {
    let plan = TopologyPlan::read(PLAN, Path::new(".")).unwrap();
    let topology = Topology::build(&plan).unwrap();
    for v6 in [false, true] {
        assert!(round_trip(&topology, "desk", "server", v6) >= Duration::from_millis(20));
        // routers are hosts, too
        assert!(round_trip(&topology, "office", "hub", v6) >= Duration::from_millis(16));
    }
    let (desk, server) = (topology.host("desk").unwrap(), topology.host("server").unwrap());
    let there = transfer(desk, server, server.address().into(), 200_000);
    let back = transfer(server, desk, desk.address_v6().into(), 200_000);
    assert_eq!((there, back), (200_000, 200_000));
    let used = desk.congestion_towards(server).unwrap();
    assert_eq!(used.as_deref(), Some("cubic"));
    let reports = topology.finish().unwrap();
    assert_eq!(
        reports.iter().map(|report| report.name.as_str()).collect::<Vec<_>>(),
        ["desk-office", "thin", "exchange-hub", "hub-server"]
    );
    assert!(reports.iter().all(|report| report.directions[0].packets.delivered_bytes > 200_000));
}

pub(crate) fn every_mtu() {
    for (mtu, super_packets) in
        [(576, false), (1280, false), (9000, false), (65_535, false), (1500, true)]
    {
        let mut plan = two(delay(1), delay(1));
        plan.links[0] = LinkPlan { mtu, super_packets, ..plan.links[0].clone() };
        let topology = Topology::build(&plan).unwrap();
        let (a, b) = (topology.host("a").unwrap(), topology.host("b").unwrap());
        assert_eq!(transfer(a, b, b.address().into(), 2_000_000), 2_000_000, "MTU {mtu}");
        if mtu >= 1280 {
            assert_eq!(transfer(a, b, b.address_v6().into(), 100_000), 100_000, "MTU {mtu}");
        }
        let report = &topology.finish().unwrap()[0];
        let there = &report.directions[0];
        assert_eq!(there.counts.super_packets > 0, super_packets, "MTU {mtu}: {}", report.mode);
        if !super_packets {
            assert!(there.packets.offered_bytes / there.packets.offered <= u64::from(mtu));
        }
    }
}

pub(crate) fn congestion_control_by_route() {
    let available = sysctl::read("net.ipv4.tcp_available_congestion_control").unwrap_or_default();
    for name in ["reno", "cubic"].into_iter().filter(|name| available.contains(name)) {
        let mut plan = two(delay(1), delay(1));
        plan.hosts[0].congestion = Some(name.into());
        let topology = Topology::build(&plan).unwrap();
        let (a, b) = (topology.host("a").unwrap(), topology.host("b").unwrap());
        assert_eq!(a.congestion_towards(b).unwrap().as_deref(), Some(name));
        assert_eq!(b.congestion_towards(a).unwrap(), None);
    }
    let mut plan = two(delay(1), delay(1));
    plan.hosts[0].congestion = Some("nonesuch".into());
    assert!(matches!(Topology::build(&plan), Err(BuildError::Netlink(_))));
}

pub(crate) fn marks_instead_of_drops() {
    let forward = Config {
        discipline: ekiden_model::network::link::Discipline::FqCodel(FqCodelConfig::default()),
        serialiser: Serialiser::Rate(Rate::from_bits_per_second(10_000_000)),
        ..delay(5)
    };
    let mut plan = two(forward, delay(5));
    for host in &mut plan.hosts {
        host.sysctls.insert("net.ipv4.tcp_ecn".into(), "1".into());
        // bbr does not heed marks
        host.congestion = Some("cubic".into());
    }
    let topology = Topology::build(&plan).unwrap();
    let (a, b) = (topology.host("a").unwrap(), topology.host("b").unwrap());
    assert_eq!(transfer(a, b, b.address().into(), 3_000_000), 3_000_000);
    let read =
        |host: &Host, path: &str| host.run(|| std::fs::read_to_string(path)).unwrap().unwrap();
    let counters = read(b, "/proc/thread-self/net/netstat");
    let retransmitted = counter(&read(a, "/proc/thread-self/net/snmp"), "RetransSegs");
    let there = topology.finish().unwrap()[0].directions[0].packets;
    assert!(there.marked > 0, "{there:?}");
    // Linux retransmits without ECT: a busy machine that lets a timer expire causes such packets
    assert!(there.dropped <= retransmitted, "a packet with ECT is marked, not dropped: {there:?}");
    // the receiver's kernel saw each mark, with a valid checksum
    let ce = counter(&counters, "InCEPkts");
    assert_eq!(ce, there.marked);
}

/// A counter of `/proc/net/netstat` or `snmp`: a line of names, then a line of values.
fn counter(text: &str, name: &str) -> u64 {
    let lines: Vec<&str> = text.lines().collect();
    let found = lines.chunks(2).find_map(|pair| {
        let at = pair[0].split_whitespace().position(|word| word == name)?;
        pair[1].split_whitespace().nth(at)?.parse().ok()
    });
    found.unwrap_or_else(|| panic!("there is no {name}"))
}

pub(crate) fn processes_in_order() {
    let mut plan = two(delay(1), delay(1));
    let listener = |host: &str, port: u16| ProcessPlan {
        host: host.into(),
        command: format!("exec nc -l -k -p {port} || exec nc -lk {port}"),
        ready: Some(port),
    };
    plan.processes = vec![
        listener("b", 7001),
        ProcessPlan {
            host: "a".into(),
            // finds the other host by its name, and only if that is listening already
            command: "nc -z b 7001 && exec nc -lk 7002".into(),
            ready: Some(7002),
        },
    ];
    let topology = Topology::build(&plan).unwrap();
    topology.finish().unwrap();
}

pub(crate) fn a_process_that_fails_is_told() {
    let mut plan = two(delay(1), delay(1));
    plan.processes =
        vec![ProcessPlan { host: "b".into(), command: "exit 3".into(), ready: Some(1) }];
    let error = Topology::build(&plan).unwrap_err().to_string();
    assert!(error.contains("`exit 3` on b") && error.contains("exit status: 3"), "{error}");
}
