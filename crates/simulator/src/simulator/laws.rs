//! Laws of every network: conservation, and internal shortcuts that change nothing observable.

use super::*;
use crate::network::dumbbell::{Dumbbell, DumbbellConfig};
use crate::network::flow::Scripted;
use crate::observer::{Delivery, Loss};
use crate::random::Substreams;
use ekiden_model::control::congestion::Algorithm;
use ekiden_model::network::link::{Config, Link, LossUnit, Serialiser};
use ekiden_model::network::tcp::preset::{Era, Flavour};
use ekiden_model::network::tcp::{Acknowledging, ReceiverConfig};
use ekiden_model::units::{Rate, Share, Span};
use proptest::prelude::*;

/// Observations in whatever order they come.
#[derive(Debug, Default, PartialEq)]
struct ObservedEvents {
    deliveries: Vec<(Time, Delivery)>,
    losses: Vec<(LinkDirection, u32, u32, bool)>,
}

impl Observer for ObservedEvents {
    const ORDERED: bool = false;

    fn delivered(&mut self, delivery: &Delivery) {
        self.deliveries.push((delivery.written + delivery.end_to_end, *delivery));
    }

    fn lost(&mut self, loss: &Loss) {
        self.losses.push((loss.way, loss.owner, loss.bytes, loss.dropped));
    }
}

impl ObservedEvents {
    fn sorted(mut self) -> Self {
        self.deliveries.sort_by_key(|(at, delivery)| (*at, delivery.flow, delivery.written));
        self.losses.sort_unstable();
        self
    }
}

/// A dumbbell whose every link may drop or lose.
#[derive(Debug, Clone)]
struct Small {
    pairs: u32,
    mbit: u64,
    delay_us: u64,
    queue: u64,
    /// Of the bottleneck, of the way back, of the last link: parts per thousand.
    losses: [u64; 3],
    era: Era,
    flavour: Flavour,
    writes: Vec<u32>,
    seed: u64,
}

fn small() -> impl Strategy<Value = Small> {
    let era = prop_oneof![Just(Era::Ns228), Just(Era::Ns235), Just(Era::Rfc), Just(Era::Linux)];
    let flavour = prop_oneof![Just(Flavour::Reno), Just(Flavour::NewReno), Just(Flavour::Sack)];
    let links = (1_u32..4, 1_u64..20, 10_u64..20_000, 1_u64..12);
    let writes = prop::collection::vec(1_u32..40_000, 1..8);
    (links, [0_u64..40, 0..40, 0..40], era, flavour, writes, any::<u64>()).prop_map(
        |((pairs, mbit, delay_us, queue), losses, era, flavour, writes, seed)| Small {
            pairs,
            mbit,
            delay_us,
            queue,
            losses,
            era,
            flavour,
            writes,
            seed,
        },
    )
}

fn loss(per_mille: u64) -> ekiden_model::network::link::Loss {
    let share = Share::from_parts_per_billion(per_mille * 1_000_000).unwrap();
    ekiden_model::network::link::Loss::Independent(share, LossUnit::Packet)
}

impl Small {
    fn build(&self) -> Simulator<ObservedEvents> {
        let streams = Substreams::new(self.seed);
        let rate = Rate::from_bits_per_second(self.mbit * 1_000_000);
        let access = (Rate::from_bits_per_second(100_000_000), Span::from_micros(977));
        let delay = Span::from_micros(self.delay_us);
        let mut config = DumbbellConfig::new(self.pairs, access, (rate, delay), self.queue);
        let [there, back, last] = self.losses;
        config.bottleneck.loss = loss(there);
        config.back.loss = loss(back);
        let mut dumbbell = Dumbbell::new(&config);
        dumbbell.topology.for_each_way(|number, way| {
            way.seed = streams.of("loss", number.into()).next_u64();
            // Simultaneous events happen in the order of pushing, which differs; and without jitter
            // they occur, because delayed acknowledgements make pauses recur and the next segment
            // comes with the next such timer.
            way.jitter = Span::from_micros(100);
            if way.loss == ekiden_model::network::link::Loss::None {
                way.loss = loss(last);
            }
        });
        let mut simulator = Simulator::new(dumbbell.topology, ObservedEvents::default());
        for (server, client) in dumbbell.senders.iter().zip(&dumbbell.receivers) {
            let connection = ConnectionConfig::new(*server, *client, self.era);
            let connection = simulator.connect(connection).unwrap();
            let flow = self.flow(streams.of("clock", connection.into()).below(10_000_000));
            simulator.flow(connection, Direction::FromOpener, flow).unwrap();
        }
        simulator
    }

    fn flow(&self, phase: u64) -> FlowConfig {
        let writes = self.writes.iter().enumerate().map(|(number, bytes)| Scripted {
            at: Time::from_nanos(phase + number as u64 * 90_000_000),
            bytes: *bytes,
            kind: 0,
        });
        let sender = self.era.sender(self.flavour, 1000, 64.0, Span::from_nanos(phase));
        let receiver = ReceiverConfig {
            selective: self.flavour == Flavour::Sack,
            duplicates: false,
            ..ReceiverConfig::linux(1000, 64_000, 7)
        };
        FlowConfig::new(sender, receiver, Source::Script(writes.collect()))
    }
}

impl<O: Observer> Simulator<O> {
    /// Each link with events of its own.
    fn waking(mut self) -> Self {
        let ways = self.topology.ways.iter();
        let waking = |config: &Config| Carrier::Waking {
            link: Box::new(Link::new(config, Time::ZERO)),
            event: Time::NEVER,
        };
        self.carriers = ways.map(|way| waking(&way.config)).collect();
        self
    }

    /// Packets that came to a host.
    fn received(&mut self) -> u64 {
        let ways: Vec<_> = (0..self.carriers.len() as u32).map(LinkDirection).collect();
        let last: Vec<_> = ways.into_iter().filter(|way| self.topology.is_to_host(*way)).collect();
        last.into_iter().map(|way| self.way(way).unwrap().delivered).sum()
    }

    fn snapshots(&mut self) -> Vec<Snapshot> {
        (0..self.carriers.len() as u32).map(|way| self.way(LinkDirection(way)).unwrap()).collect()
    }
}

const LONG: Span = Span::from_secs(100_000);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_packet_is_somewhere(small in small(), stops in prop::collection::vec(0_u64..2_000, 1..8)) {
        let mut simulator = small.build().waking();
        let mut stops = stops;
        stops.sort_unstable();
        for stop in stops {
            simulator.run(Time::ZERO + Span::from_millis(stop));
            let totals = simulator.totals();
            let gone = simulator.received() + totals.dropped + totals.lost;
            prop_assert_eq!(totals.packets, gone + simulator.under_way() as u64, "at {} ms", stop);
        }
    }

    #[test]
    fn all_is_delivered_and_nothing_left(small in small()) {
        let mut simulator = small.build();
        simulator.run(Time::ZERO + LONG);
        let written: u64 = small.writes.iter().map(|bytes| u64::from(*bytes)).sum();
        for flow in 0..small.pairs {
            prop_assert_eq!(simulator.receiver(flow).unwrap().in_order, written);
            let report = simulator.observer.deliveries.iter().filter(|(_, report)| report.flow == flow);
            prop_assert_eq!(report.count(), small.writes.len());
        }
        let totals = simulator.totals();
        let gone = simulator.received() + totals.dropped + totals.lost;
        prop_assert_eq!((simulator.under_way(), totals.packets), (0, gone));
        let links = simulator.snapshots();
        prop_assert_eq!(totals.dropped, links.iter().map(|link| link.dropped).sum::<u64>());
        prop_assert_eq!(totals.lost, links.iter().map(|link| link.lost).sum::<u64>());
    }

    #[test]
    fn packets_without_events_change_nothing(small in small()) {
        let until = Time::ZERO + LONG;
        let mut at_once = small.build();
        at_once.run(until);
        let fed = |by: Feed| at_once.hops.iter().any(|hop| hop.feed == by);
        prop_assert!(fed(Feed::AtOnce), "the last links are fed by one other");
        prop_assert_eq!(fed(Feed::Inbox), small.pairs > 1, "the bottleneck by several");
        prop_assert!(at_once.flows.iter().all(|flow| flow.alone));
        let mut one_by_one = small.build();
        one_by_one.run_as_it_is(until);
        prop_assert!(at_once.totals().events < one_by_one.totals().events);
        prop_assert_eq!(at_once.snapshots(), one_by_one.snapshots());
        prop_assert_eq!(at_once.fingerprints()[1], one_by_one.fingerprints()[1]);
        prop_assert_eq!(at_once.observer.sorted(), one_by_one.observer.sorted());
    }

    #[test]
    fn pauses_change_nothing(small in small(), stops in prop::collection::vec(0_u64..2_000_000, 1..8)) {
        let (mut paused, mut whole) = (small.build(), small.build());
        let mut stops = stops;
        stops.sort_unstable();
        for stop in stops {
            let stop = Time::ZERO + Span::from_micros(stop);
            paused.run(stop);
            let mut fresh = small.build();
            fresh.run_as_it_is(stop);
            for flow in 0..small.pairs {
                prop_assert_eq!(paused.sender(flow), fresh.sender(flow));
                prop_assert_eq!(paused.receiver(flow), fresh.receiver(flow));
            }
        }
        for simulator in [&mut paused, &mut whole] {
            simulator.run(Time::ZERO + LONG);
        }
        prop_assert_eq!(paused.fingerprints()[1], whole.fingerprints()[1]);
        prop_assert_eq!(paused.snapshots(), whole.snapshots());
        prop_assert_eq!(paused.observer.sorted(), whole.observer.sorted());
    }

    #[test]
    fn links_with_events_of_their_own_change_nothing(small in small()) {
        let until = Time::ZERO + LONG;
        let (mut steady, mut waking) = (small.build(), small.build().waking());
        steady.run(until);
        waking.run(until);
        prop_assert!(steady.totals().events < waking.totals().events);
        prop_assert_eq!(steady.snapshots(), waking.snapshots());
        prop_assert_eq!(steady.observer.sorted(), waking.observer.sorted());
    }
}

/// Packets of one size at random times wait ρ/(2(1 − ρ)) of a sending time (Pollaczek and
/// Khinchine, M/D/1).
#[test]
fn random_arrivals_wait_as_long_as_they_should() {
    const PACKETS: u32 = 100_000;
    const SIZE: u32 = 1_000;
    // 8,000 bits at 8 Mbit/s
    const SERVICE: f64 = 1e6;
    for (load, tolerance) in [(0.3, 0.03), (0.6, 0.03), (0.8, 0.06)] {
        let mut rng = Substreams::new(11).of("arrivals", (load * 10.0) as u64);
        let mut topology = Topology::new();
        let (server, router, client) = (topology.host(), topology.router(), topology.host());
        let quick = Config { delay: Span::from_micros(10), ..Config::default() };
        topology.link(server, router, quick.clone(), quick.clone());
        let rate = Serialiser::Rate(Rate::from_bits_per_second(8_000_000));
        topology.link(router, client, Config { serialiser: rate, ..quick.clone() }, quick);
        let mut simulator = Simulator::new(topology, ObservedEvents::default());
        let connection = ConnectionConfig::new(server, client, Era::Rfc);
        let connection = simulator.connect(connection).unwrap();
        let mut at = 1e9;
        let script = (0..PACKETS).map(|_| {
            let uniform = (rng.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64;
            at -= uniform.ln() * SERVICE / load;
            Scripted { at: Time::from_nanos(at as u64), bytes: SIZE - 40, kind: 0 }
        });
        let mut sender = Era::Rfc.sender(Flavour::Sack, SIZE - 40, f64::INFINITY, Span::ZERO);
        sender.congestion.algorithm = Algorithm::Fixed(10_000.0);
        sender.nagle = false;
        let receiver = ReceiverConfig {
            acknowledging: Acknowledging::EACH,
            duplicates: false,
            ..ReceiverConfig::linux(SIZE - 40, 1 << 30, 14)
        };
        let flow = FlowConfig::new(sender, receiver, Source::Script(script.collect()));
        simulator.flow(connection, Direction::FromOpener, flow).unwrap();
        simulator.run(Time::ZERO + LONG);
        assert_eq!(simulator.sender(0).unwrap().count.retransmitted, 0, "none comes twice");
        let deliveries = &simulator.observer.deliveries;
        assert_eq!(deliveries.len(), PACKETS as usize);
        let router: f64 = deliveries.iter().map(|(_, d)| d.router.as_nanos() as f64).sum();
        let waited = router / f64::from(PACKETS) - SERVICE;
        let derived = SERVICE * load / (2.0 * (1.0 - load));
        let ratio = waited / derived;
        assert!((ratio - 1.0).abs() < tolerance, "load {load}: {waited} ns, {derived} derived");
    }
}
