//! What holds of every run with a proxy, looked at every 10 to 100 ms of it.

use super::*;
use crate::applications::proxy::leg::{Peer, Stand};
use crate::network::connection::ConnectionConfig;
use crate::network::topology::Topology;
use crate::simulator::Simulator;
use ekiden_model::network::link::Config;
use proptest::prelude::*;
use std::collections::BTreeSet;

const SECOND: Span = Span::from_secs(1);

/// A proxy with few places and many who want them.
fn narrow(scheme: Scheme, clients: u32, seed: u64) -> ProxyConfig {
    let pool = Bytes::kib(20 * 16);
    let study = ProxyConfig::study(scheme, clients, seed);
    ProxyConfig { most_connections: 20, servers: 8, pool, ..study }
}

impl Simulator<()> {
    fn proxy_now(&self) -> &Proxy {
        self.proxy_of().unwrap()
    }
}

impl Proxy {
    fn holds(&self) {
        let stands = |wanted: fn(Stand) -> bool| {
            self.legs.iter().flatten().filter(|leg| wanted(leg.stand)).count() as u64
        };
        let idle = stands(|stand| matches!(stand, Stand::Idle(_)));
        let busy = stands(|stand| stand == Stand::Busy);
        assert_eq!(self.open, idle + busy, "who has a place is idle or busy");
        assert!(self.open <= self.config.most_connections);
        assert_eq!(self.register.len() as u64, idle, "the register has whoever is idle");
        let waiting = stands(|stand| stand == Stand::Waiting);
        let sought = self.legs.iter().flatten();
        let sought = sought.filter(|leg| matches!(leg.origin, leg::Origin::Sought(_))).count();
        assert_eq!(self.admission.waiting() as u64, waiting + sought as u64);
        let evicts = self.config.scheme.admission().evict;
        let room = !self.pressure.low() || (evicts && idle > 0);
        assert!(self.admission.waiting() == 0 || !room, "nobody waits while there is room");
        let report = self.allocator.snapshot();
        assert!(report.granted <= report.budget || self.config.scheme == Scheme::Conventional);
        let known: BTreeSet<u64> = report.buffers.iter().map(|row| row.id).collect();
        assert_eq!(known.len() as u64, self.open, "whoever has a place has a buffer");
        for (leg, number) in self.legs.iter().zip(0_u64..) {
            let Some(leg) = leg else { continue };
            if let Stand::Idle(_) = leg.stand {
                assert!(!leg.answering && leg.unwritten == 0 && leg.works_for.is_none());
            }
            if let Some(client) = leg.works_for {
                assert!(known.contains(&number));
                let client = self.leg(client).unwrap();
                assert_eq!(client.origin, leg::Origin::Server(number as u32));
                assert!(client.stand == Stand::Busy && matches!(client.peer, Peer::Client(_)));
            }
        }
        let result = self.result();
        assert_eq!(result.asked, result.answered + result.refused + result.outstanding);
    }
}

fn run(config: &ProxyConfig, seconds: u64, steps: u64) -> Simulator<()> {
    let mut net = build(config, ()).unwrap();
    for step in 1..=seconds * steps {
        net.run(Time::ZERO + Span::from_nanos(step * (SECOND.as_nanos() / steps)));
        net.proxy_now().holds();
    }
    net
}

#[test]
fn every_scheme_serves_and_keeps_to_its_limits() {
    for scheme in Scheme::ALL {
        for knowledge in [Knowledge::Perfect, Knowledge::Estimated] {
            let net = run(&ProxyConfig { knowledge, ..narrow(scheme, 30, 1) }, 60, 50);
            let result = net.proxy_result().unwrap();
            assert!(result.answered > 100, "{scheme:?} {result:?}");
            assert!(result.most_open == 20, "{scheme:?} {result:?}");
            let evicted = result.idle.unwrap().evicted;
            assert_eq!(evicted > 0, scheme.admission().evict, "{scheme:?}");
            assert!(result.ticks >= 60, "{scheme:?}: each second, and when newcomers hurry");
        }
    }
}

#[test]
fn places_are_used_again() {
    let config = narrow(Scheme::Shrinking, 40, 3);
    let mut net = build(&config, ()).unwrap();
    net.run(Time::ZERO + Span::from_secs(60));
    let before = net.places();
    net.run(Time::ZERO + Span::from_secs(240));
    let opened = net.proxy_result().unwrap().opened;
    assert!(opened > 5 * before as u64, "{opened} connections opened, {before} places");
    assert!(net.places() <= before + 8, "{before} places became {}", net.places());
}

#[test]
fn drops_packets_in_flight_of_a_closed_connection() {
    let mut topology = Topology::new();
    let [a, b] = [topology.host(), topology.host()];
    let link = Config { delay: Span::from_millis(50), ..Config::default() };
    topology.link(a, b, link.clone(), link);
    let mut net = Simulator::new(topology, ());
    let routes = net.routes(a, b).unwrap();
    let begin = |net: &mut Simulator<()>, now| {
        let base = ConnectionConfig::new(a, b, Era::Ns21b9);
        let start = Time::NEVER;
        let config = ConnectionConfig { start, three_way: true, handshake_bytes: 48, ..base };
        net.begin(now, config, routes, [set_up::flow(Era::Ns21b9), set_up::flow(Era::Ns21b9)])
    };
    let (first, [up, _]) = begin(&mut net, Time::ZERO);
    let at = |ms| Time::ZERO + Span::from_millis(ms);
    net.run(at(200));
    net.put(at(200), up, 2_000);
    net.end(at(200), first);
    let (second, flows) = begin(&mut net, at(200));
    assert_eq!((second, flows[0]), (first, up), "its number is used again");
    net.run(at(5_000));
    assert_eq!(net.come(up), 0, "what was written before the end");
    net.put(at(5_000), up, 700);
    net.run(at(9_000));
    assert_eq!((net.come(up), net.acknowledged(up), net.places()), (700, 700, 1));
}

#[test]
fn every_scheme_gets_the_same_requests() {
    // as long as nobody is slow or refused, each scheme is asked for the same
    let asked = |scheme| {
        let mut net =
            build(&ProxyConfig { most_connections: 500, ..narrow(scheme, 4, 9) }, ()).unwrap();
        net.run(Time::ZERO + Span::from_secs(20));
        net.proxy_result().unwrap().asked
    };
    let all = Scheme::ALL.map(asked);
    assert!(all.iter().all(|asked| asked.abs_diff(all[0]) <= 4), "{all:?}");
}

#[test]
fn people_of_the_other_set_come_and_go() {
    let config = ProxyConfig { surge: Surge::clusters(), ..narrow(Scheme::Connections, 20, 5) };
    let net = run(&config, 120, 10);
    assert!(net.proxy_result().unwrap().answered > 100);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn holds_for_any_draw(seed: u64, clients in 1_u32..60, scheme in 0_usize..4, estimated: bool) {
        let knowledge = if estimated { Knowledge::Estimated } else { Knowledge::Perfect };
        run(&ProxyConfig { knowledge, ..narrow(Scheme::ALL[scheme], clients, seed) }, 15, 100);
    }
}
