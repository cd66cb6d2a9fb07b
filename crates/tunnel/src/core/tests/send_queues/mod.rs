//! Bytes that wait to be sent: bounded for all of a peer's flows, and no flow waits for others.

mod orphans;
mod owners;

use super::liar::{Liar, MEMORY};
use super::network::{FAR, NEAR, Network, Path, pattern};
use crate::core::*;
use crate::frame::{Carries, Opening};
use ekiden_model::resources::send_queue::LEAST;
use ekiden_model::units::{self, Span};
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

/// At NEAR, half of which may wait.
const LITTLE: units::Bytes = units::Bytes::mib(1);

/// Writers at NEAR that write where they are told of room, as tasks do, and readers at FAR.
struct Writers {
    network: Network,
    flows: Vec<FlowId>,
    written: Vec<u64>,
    read: Vec<u64>,
    /// Each writes so much.
    size: u64,
    /// Which were told of something and have not looked yet.
    told: BTreeSet<FlowId>,
    /// Whether the memory was, in the order of events.
    used_up: Vec<bool>,
}

impl Writers {
    fn new(path: &Path, flows: u16, size: u64) -> Self {
        let mut network = Network::new(path);
        // credit for each flow, and for all
        network.ends[FAR].limits.memory = units::Bytes::mib(64);
        network.set_up();
        let mut writers = Self {
            network,
            flows: Vec::new(),
            written: Vec::new(),
            read: Vec::new(),
            size,
            told: BTreeSet::new(),
            used_up: Vec::new(),
        };
        writers.open(flows);
        writers
    }

    fn open(&mut self, flows: u16) {
        for port in 1..=flows {
            let flow = self.network.flow(port);
            self.told.insert(flow);
            self.flows.push(flow);
        }
        self.written.resize(self.flows.len(), 0);
        self.read.resize(self.flows.len(), 0);
        self.network.settle(500);
    }

    /// What waits at NEAR, with the memory of pieces.
    fn waiting(&mut self) -> u64 {
        self.network.tunnel(NEAR).assert_bounded();
        self.network.ends[NEAR].snapshots()[0].waiting
    }

    /// Whether a flow waits for the memory.
    fn is_short(&self) -> bool {
        let end = &self.network.ends[NEAR];
        self.flows.iter().filter_map(|flow| end.flow_status(*flow)).any(|seen| seen.short)
    }

    fn most(&self) -> u64 {
        LITTLE.as_u64() / 2 + self.flows.len() as u64 * LEAST
    }

    /// Goes on for so long; these flows are read.
    fn run_for(&mut self, span: Span, reads: impl Fn(usize) -> bool) {
        let until = self.network.now + span;
        while self.network.now < until {
            for (nth, flow) in self.flows.clone().into_iter().enumerate() {
                if self.told.remove(&flow) {
                    self.write(nth, flow);
                }
                if reads(nth) {
                    let there = self.network.twin(flow, FAR);
                    let (bytes, state) = self.network.read(FAR, there);
                    assert_eq!(bytes, pattern(self.read[nth], bytes.len()));
                    assert_eq!(state, Read::Blocked);
                    self.read[nth] += bytes.len() as u64;
                }
            }
            let most = self.most();
            assert!(self.waiting() <= most);
            let step = self.network.now + Span::from_millis(5);
            self.network.step(step.min(until));
            for event in std::mem::take(&mut self.network.events[NEAR]) {
                match event {
                    Event::Flow(flow) => _ = self.told.insert(flow),
                    Event::SendMemory { used_up, .. } => self.used_up.push(used_up),
                    // the loss of a lane's first packets three times over looks as if its mark was dropped
                    Event::Unmarked { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    fn write(&mut self, nth: usize, flow: FlowId) {
        let (now, end) = (self.network.now, &mut self.network.ends[NEAR]);
        while self.written[nth] < self.size {
            let room = end.writable(flow) as u64;
            let bytes =
                pattern(self.written[nth], room.min(self.size - self.written[nth]) as usize);
            self.written[nth] += end.try_write(now, flow, bytes) as u64;
            if room == 0 {
                return;
            }
        }
    }
}

/// A round trip of 10 ms, and so 330 kB of credit for each flow.
fn path() -> Path {
    let rtt = Span::from_millis(10);
    Path { rates: [4.0, 4.0], rtt, memory: LITTLE, ..Path::default() }
}

#[test]
fn flows_of_which_the_peer_takes_nothing_share_the_memory() {
    let mut writers = Writers::new(&path(), 20, 1_000_000);
    writers.run_for(Span::from_secs(30), |_| false);
    let waiting = writers.waiting();
    assert!(waiting > LITTLE.as_u64() / 4, "{waiting}");
    let seen = writers.network.ends[NEAR].snapshots()[0].clone();
    assert_eq!((seen.in_flight, writers.network.down(NEAR)), (0, None));
    assert_eq!((writers.is_short(), &*writers.used_up), (true, &[true][..]));
    // another comes, and has all of the rate
    writers.open(1);
    writers.run_for(Span::from_secs(4), |nth| nth == 20);
    assert_eq!(writers.read[20], 1_000_000);
    writers.run_for(Span::from_secs(60), |_| true);
    assert_eq!(writers.read, [1_000_000; 21]);
    assert_eq!(writers.waiting(), 0);
    assert_eq!((writers.is_short(), writers.used_up.last()), (false, Some(&false)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever flows are read for a while and then not, over any path: one that is read again is sent again.
    #[test]
    fn no_flow_waits_for_ever(
        flows in 1_u16..30,
        loss in 0_u32..5,
        seed in 1_u64..1_000,
        readers in prop::collection::vec((any::<u32>(), 10_u64..1_500), 1..8),
    ) {
        let path = Path { loss: f64::from(loss), seed, rates: [20.0, 4.0], ..path() };
        let size = 300_000;
        let mut writers = Writers::new(&path, flows, size);
        for (who, millis) in readers {
            writers.run_for(Span::from_millis(millis), |nth| who >> nth & 1 == 1);
        }
        writers.run_for(Span::from_secs(20), |_| true);
        prop_assert_eq!(&writers.read, &vec![size; usize::from(flows)]);
        prop_assert_eq!(writers.waiting(), 0);
    }
}

/// FAR writes to flows of two tunnels.
#[test]
fn all_tunnels_of_a_peer_share_the_memory() {
    let mut liar = Liar::new();
    let tunnels = liar.tunnels(FAR);
    let now = liar.network.now;
    let end = &mut liar.network.ends[FAR];
    let mut flows = Vec::new();
    for tunnel in tunnels {
        for port in 0..40 {
            flows.push(end.open(now, tunnel, Opening::named("example.org", port)).unwrap());
        }
    }
    let waits = |end: &Endpoint| end.snapshots().iter().map(|seen| seen.waiting).sum::<u64>();
    let bytes = Bytes::from(vec![0; 1 << 20]);
    for flow in &flows {
        let written: usize = (0..10).map(|_| end.try_write(now, *flow, bytes.clone())).sum();
        assert!(written as u64 >= LEAST / 2, "{written}");
    }
    let (all, budget) = (waits(end), MEMORY.as_u64() / 2);
    assert!((budget / 2..=budget + flows.len() as u64 * LEAST).contains(&all), "{all}");
    let last = flows[79];
    assert!(end.writable(last) < 2_000);
    end.close(now, tunnels[0], "an end");
    assert!(end.room(last) > 200_000);
    end.close(now, tunnels[1], "an end");
    assert_eq!(waits(end), 0);
}

#[test]
fn packets_that_wait_share_the_memory() {
    let mut network = Network::up(&path());
    network.carries = Carries::Packets;
    let flows: Vec<FlowId> = (1..=60).map(|port| network.flow(port)).collect();
    let now = network.now;
    let end = &mut network.ends[NEAR];
    for flow in &flows {
        let taken = (0..1_000).take_while(|_| end.send_packet(now, *flow, pattern(0, 1_000)));
        assert!(taken.count() >= 3);
    }
    let waiting = end.snapshots()[0].waiting;
    let most = LITTLE.as_u64() / 2 + 60 * LEAST;
    assert!(waiting > LITTLE.as_u64() / 4 && waiting < most, "{waiting}");
    // one that nothing waits of takes a long one
    let flow = network.flow(61);
    assert!(network.ends[NEAR].send_packet(network.now, flow, pattern(0, 16_000)));
    assert!(!network.ends[NEAR].send_packet(network.now, flow, pattern(0, 1_000)));
    network.run_for(Span::from_secs(5));
    assert_eq!(network.ends[NEAR].snapshots()[0].waiting, 0);
    network.tunnel(NEAR).assert_bounded();
}

/// What QUIC keeps of a lane: all that follows a lost packet on its stream. Here one of 200 is lost, and so is whatever
/// is sent again.
#[test]
fn bytes_that_are_not_acknowledged_are_bounded() {
    let path = Path { rates: [100.0, 100.0], memory: LITTLE, ..Path::default() };
    let mut writers = Writers::new(&path, 4, 0);
    let network = &mut writers.network;
    network.tunnel(NEAR).forget_repairs();
    let mut under_way: [VecDeque<(Time, BytesMut)>; 2] = Default::default();
    let (mut buf, mut sent) = (Vec::new(), 0);
    for _ in 0..20_000 {
        network.now += Span::from_millis(1);
        let now = network.now;
        for flow in &writers.flows {
            let room = network.ends[NEAR].room(*flow);
            network.ends[NEAR].write(now, *flow, pattern(0, room));
        }
        for (end, under_way) in under_way.iter_mut().enumerate() {
            let at = network.addresses[end];
            while let Some((_, bytes)) = under_way.pop_front_if(|(due, _)| *due <= now) {
                network.ends[1 - end].receive(now, at, bytes);
            }
            network.ends[end].on_deadline(now);
            let mut before = network.tunnel(end).counted().0;
            while let Some(out) = network.ends[end].transmit(now, &mut buf) {
                sent += 1;
                let after = network.tunnel(end).counted().0;
                let new = std::mem::replace(&mut before, after) < after;
                if end == FAR || out.mark != Some(1) || new && sent % 200 != 0 {
                    let due = now + Span::from_millis(50);
                    under_way.push_back((due, BytesMut::from(&buf[..out.size])));
                }
            }
            while let Some(event) = network.ends[end].event() {
                assert!(!matches!(event, Event::Down { .. }), "{event:?}");
            }
        }
    }
    // a lane may hold 2 MiB; the rest came before the first loss on its stream
    let sent = network.tunnel(NEAR).counted().0;
    assert!(sent > 2 << 20 && sent < 4 << 20, "{sent}");
    // it goes on where nothing is lost any more
    let mut read = 0;
    for _ in 0..200 {
        network.run_for(Span::from_millis(100));
        for flow in &writers.flows {
            let there = network.twin(*flow, FAR);
            read += network.read(FAR, there).0.len() as u64;
        }
    }
    let (sent, _) = network.tunnel(NEAR).counted();
    assert_eq!((read, network.ends[NEAR].snapshots()[0].waiting), (sent, 0));
}
