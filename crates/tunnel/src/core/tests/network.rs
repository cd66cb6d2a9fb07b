//! Two ends, two directions, and a queue of what is to be looked at next.

use crate::core::lane::LaneEvent;
use crate::core::*;
use crate::frame::{Carries, Frame, Opening, Target};
use ekiden_model::network::link::{Bound, Config, Discipline, Link, Packet, Serialiser};
use ekiden_model::units::{self, Rate, Share, Span};
use quinn_proto::TransportConfig;
use std::collections::BTreeMap;
use std::net::IpAddr;

pub(super) const NEAR: usize = 0;
pub(super) const FAR: usize = 1;

/// A path; the same both ways but for the rate.
#[derive(Debug, Clone)]
pub(super) struct Path {
    /// Towards FAR and towards NEAR, Mbit/s.
    pub(super) rates: [f64; 2],
    pub(super) rtt: Span,
    pub(super) loss: f64,
    pub(super) jitter: Span,
    /// Queues, in round trips of the rate.
    pub(super) queue: f64,
    pub(super) seed: u64,
    /// What each end says it may be sent, if not what the path gives.
    pub(super) told: Option<[f64; 2]>,
    /// Bytes of the longest UDP payload that the ends try.
    pub(super) datagram: u16,
    pub(super) memory: units::Bytes,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            rates: [20.0, 20.0],
            rtt: Span::from_millis(100),
            loss: 0.0,
            jitter: Span::ZERO,
            queue: 1.0,
            seed: 1,
            told: None,
            datagram: 1_472,
            memory: Limits::default().memory,
        }
    }
}

pub(super) fn mbit(n: f64) -> Rate {
    Rate::from_bits_per_second((n * 1e6) as u64)
}

/// Terms of tunnels whose rate does not matter.
pub(super) fn slow() -> Terms {
    Terms::new(mbit(1.0), mbit(1.0))
}

impl Path {
    fn link(&self, nth: usize) -> Config {
        let bdp = self.rates[nth] * 1e6 / 8.0 * self.rtt.as_nanos() as f64 / 1e9 * self.queue;
        let loss = Share::from_parts_per_billion((self.loss * 1e7) as u64).unwrap();
        Config {
            discipline: Discipline::DropTail(Bound::Bytes(units::Bytes::new(
                bdp.max(30_000.0) as u64
            ))),
            serialiser: Serialiser::Rate(mbit(self.rates[nth])),
            delay: Span::from_nanos(self.rtt.as_nanos() / 2),
            loss: loss.into(),
            jitter: self.jitter,
            reorder: self.jitter > Span::ZERO,
            seed: self.seed * 2 + nth as u64,
            ..Config::default()
        }
    }
}

pub(super) struct Network {
    pub(super) now: Time,
    pub(super) ends: [Endpoint; 2],
    pub(super) links: [Link; 2],
    /// Bytes under way, by direction and number.
    bytes: [BTreeMap<u64, Vec<u8>>; 2],
    number: u64,
    pub(super) tunnel: [Option<TunnelId>; 2],
    /// Events nobody has looked at, by end.
    pub(super) events: [Vec<Event>; 2],
    pub(super) duplicates: bool,
    /// Whether relays that join are kept; `None`: they wait.
    pub(super) keeps: Option<Result<(), &'static str>>,
    /// Nothing comes through in this direction.
    pub(super) cut: [bool; 2],
    /// Datagrams with the mark of this lane are lost in this direction.
    pub(super) drops: [Option<u8>; 2],
    /// Longer datagrams of this lane, and of connections that are not known yet, are lost, both ways.
    pub(super) narrow: Option<(u8, usize)>,
    /// Where NEAR is, if it comes over TCP.
    pub(super) tcp: Option<IpAddr>,
    /// What flows that are opened carry.
    pub(super) carries: Carries,
    buf: Vec<u8>,
    pub(super) addresses: [SocketAddr; 2],
}

pub(super) const SECRET: &[u8] = b"the secret of the invitation";

impl Network {
    /// Two ends that know nothing of each other but an invitation.
    pub(super) fn new(path: &Path) -> Self {
        let origin = Instant::now();
        let credentials = [Credentials::generate().unwrap(), Credentials::generate().unwrap()];
        let far = credentials[FAR].fingerprint();
        let [near_one, far_one] = credentials;
        let limits = Limits { datagram: path.datagram, memory: path.memory, ..Limits::default() };
        let mut ends = [
            Endpoint::new(near_one, limits, false, origin, Some([1; 32])),
            Endpoint::new(far_one, limits, true, origin, Some([2; 32])),
        ];
        let told = path.told.unwrap_or(path.rates);
        let now = Time::ZERO;
        let terms = Terms::new(mbit(told[1]), mbit(told[0]));
        ends[FAR].admit(now, &[], &[Invited { secret: crate::trust::hash(SECRET), terms }]);
        let addresses = ["100.64.0.1:1", "100.64.0.2:4433"].map(|text| text.parse().unwrap());
        let terms = Terms::new(mbit(told[0]), mbit(told[1]));
        let secret = Bytes::from_static(SECRET);
        let tunnel =
            ends[NEAR].connect(now, addresses[FAR], far, secret, terms, (77, true)).unwrap();
        Self {
            now,
            ends,
            links: [0, 1].map(|nth| Link::new(&path.link(nth), now)),
            bytes: [BTreeMap::new(), BTreeMap::new()],
            number: 0,
            tunnel: [Some(tunnel), None],
            events: [Vec::new(), Vec::new()],
            duplicates: false,
            keeps: Some(Ok(())),
            cut: [false; 2],
            drops: [None; 2],
            narrow: None,
            tcp: None,
            carries: Carries::Stream,
            buf: Vec::new(),
            addresses,
        }
    }

    /// The same, and QUIC at NEAR is told something else than it should be.
    pub(super) fn odd(path: &Path, change: impl Fn(&mut TransportConfig)) -> Self {
        let mut network = Self::new(path);
        let far = network.ends[FAR].credentials.fingerprint();
        let to = network.addresses[FAR];
        let near = &mut network.ends[NEAR];
        let id = network.tunnel[NEAR].unwrap();
        let clock = near.instant(network.now);
        near.lanes.clear();
        for nth in 0..2 {
            let ear = AckTap::default();
            let window = quic_window(&near.limits).into_inner();
            let mut transport = transport(&near.limits, &ear, window);
            change(&mut transport);
            let mut config = ClientConfig::new(near.credentials.client(far).unwrap());
            config.transport_config(Arc::new(transport));
            let (handle, quinn) = near.quinn.connect(clock, config, to, "relay.ekiden").unwrap();
            let mut lane = Lane::new(handle, quinn, ear);
            lane.known = true;
            near.tunnels.get_mut(&id).unwrap().set_lane(network.now, nth, lane);
            near.lanes.insert(handle.0, (id, nth));
        }
        network
    }

    pub(super) fn tunnel(&mut self, end: usize) -> &mut Tunnel {
        let id = self.tunnel[end].unwrap();
        self.ends[end].tunnels.get_mut(&id).unwrap()
    }

    /// An end is told something about a flow, as if the other had said it.
    pub(super) fn poll_frames(&mut self, end: usize, frames: Vec<Frame>) {
        let now = self.now;
        self.tunnel(end).on_lane_event(now, 0, LaneEvent::Datagram(frames));
    }

    pub(super) fn down(&self, end: usize) -> Option<&str> {
        self.end_of_tunnel(end).map(|end| end.reason.as_str())
    }

    pub(super) fn end_of_tunnel(&self, end: usize) -> Option<&TunnelEnd> {
        self.events[end].iter().find_map(|event| match event {
            Event::Down { end, .. } => Some(end),
            _ => None,
        })
    }

    /// The same as new, with the tunnel up.
    pub(super) fn up(path: &Path) -> Self {
        let mut network = Self::new(path);
        network.set_up();
        network
    }

    pub(super) fn set_up(&mut self) {
        let until = self.now + Span::from_secs(20);
        while self.tunnel[FAR].is_none() || !self.is_up(NEAR) {
            assert!(self.now < until, "the tunnel does not come up: {:?}", self.events);
            self.step(until);
        }
        self.events = [Vec::new(), Vec::new()];
    }

    pub(super) fn flow_counts(&self) -> [usize; 2] {
        [NEAR, FAR].map(|end| self.ends[end].snapshots()[0].flows)
    }

    pub(super) fn is_up(&self, end: usize) -> bool {
        self.ends[end].snapshots().iter().any(|snapshot| snapshot.up)
    }

    /// Lets all happen that is due, and goes on to the next instant, at most `until`.
    pub(super) fn step(&mut self, until: Time) {
        let mut busy = true;
        while busy {
            busy = false;
            for end in 0..2 {
                self.ends[end].on_deadline(self.now);
                while let Some(out) = self.ends[end].transmit(self.now, &mut self.buf) {
                    busy = true;
                    let narrow =
                        |(lane, most)| out.mark.is_none_or(|of| of == lane) && out.size > most;
                    let dropped = out.mark.is_some() && out.mark == self.drops[end];
                    if self.cut[end] || dropped || self.narrow.is_some_and(narrow) {
                        continue;
                    }
                    for _ in 0..=usize::from(self.duplicates) {
                        self.number += 1;
                        self.bytes[end].insert(self.number, self.buf[..out.size].to_vec());
                        let packet = Packet::new(self.number, out.size as u32 + 28);
                        let _ = self.links[end].offer(self.now, packet);
                    }
                }
                let bytes = &mut self.bytes[end];
                while let Some(delivered) = self.links[end].poll(self.now) {
                    let datagram = bytes.remove(&delivered.packet.id).unwrap();
                    let tcp = self.tcp.filter(|_| end == NEAR);
                    let way = Way { tcp, ..Way::from(self.addresses[end]) };
                    self.ends[1 - end].receive(self.now, way, BytesMut::from(&datagram[..]));
                    busy = true;
                }
                self.links[end].gone(|id, _| {
                    bytes.remove(&id);
                });
            }
            for end in 0..2 {
                while let Some(event) = self.ends[end].event() {
                    match &event {
                        Event::Up { tunnel, .. } => self.tunnel[end] = Some(*tunnel),
                        Event::Joining { invitation, .. } => {
                            if let Some(kept) = self.keeps {
                                self.ends[end].settle_join(self.now, *invitation, kept);
                            }
                        }
                        _ => {}
                    }
                    self.events[end].push(event);
                }
            }
        }
        let mut next = until;
        for end in 0..2 {
            next = next.min(self.ends[end].deadline(self.now)).min(self.links[end].next());
        }
        // a deadline that has come and did nothing must not stop time
        self.now = next.max(self.now + Span::from_nanos(1)).min(until);
    }

    pub(super) fn run_for(&mut self, span: Span) {
        let until = self.now + span;
        while self.now < until {
            self.step(until);
        }
    }

    fn lane(&mut self, tunnel: TunnelId, nth: usize) -> Option<&mut Lane> {
        self.ends[NEAR].tunnels.get_mut(&tunnel)?.lanes[nth].as_mut()
    }

    /// Takes what QUIC has to send on a lane of NEAR past the link: it `arrives` at once, or is lost.
    pub(super) fn pump(&mut self, tunnel: TunnelId, nth: usize, arrives: bool) {
        let clock = self.ends[NEAR].instant(self.now);
        loop {
            let mut buf = std::mem::take(&mut self.buf);
            let out = self.lane(tunnel, nth).and_then(|lane| lane.poll_transmit(clock, &mut buf));
            self.buf = buf;
            let Some(out) = out else { return };
            if arrives {
                let datagram = BytesMut::from(&self.buf[..out.size]);
                self.ends[FAR].receive(self.now, self.addresses[NEAR], datagram);
            }
        }
    }

    /// Streams of which all comes but the beginning: so many, of so many bytes. What QUIC repeats is lost, too.
    pub(super) fn holes(&mut self, tunnel: TunnelId, nth: usize, streams: usize, length: usize) {
        for _ in 0..streams {
            let Some(stream) = self.lane(tunnel, nth).and_then(Lane::open) else { return };
            for (length, arrives) in [(1_200, false), (length, true)] {
                let lane = self.lane(tunnel, nth);
                lane.into_iter().for_each(|lane| lane.write(stream, BytesMut::zeroed(length)));
                self.pump(tunnel, nth, arrives);
            }
        }
        self.now += Span::from_millis(5);
        self.ends[FAR].on_deadline(self.now);
        while let Some(out) = self.ends[FAR].transmit(self.now, &mut self.buf) {
            let datagram = BytesMut::from(&self.buf[..out.size]);
            self.ends[NEAR].receive(self.now, self.addresses[FAR], datagram);
        }
        self.pump(tunnel, nth, false);
    }

    /// Writes as much as there is room for, from this place of the pattern on; its new end.
    pub(super) fn fill(&mut self, end: usize, flow: FlowId, from: u64) -> u64 {
        let room = self.ends[end].room(flow);
        self.ends[end].write(self.now, flow, pattern(from, room));
        from + room as u64
    }

    /// Flows open within this time at both ends.
    pub(super) fn settle(&mut self, millis: u64) {
        self.run_for(Span::from_millis(millis));
        self.accept();
    }

    /// A flow from NEAR, accepted by FAR.
    pub(super) fn flow(&mut self, port: u16) -> FlowId {
        let tunnel = self.tunnel[NEAR].unwrap();
        let carries = self.carries;
        let opening = Opening { carries, ..Opening::named("example.org", port) };
        self.ends[NEAR].open(self.now, tunnel, opening).unwrap()
    }

    /// Accepts all that has come in at FAR, and says which.
    pub(super) fn accept(&mut self) -> Vec<(FlowId, Target)> {
        let mut accepted = Vec::new();
        for event in std::mem::take(&mut self.events[FAR]) {
            if let Event::Incoming { flow, opening, .. } = event {
                self.ends[FAR].accept(self.now, flow);
                accepted.push((flow, opening.target));
            }
        }
        accepted
    }

    /// The same flow at the other end.
    pub(super) fn twin(&self, flow: FlowId, end: usize) -> FlowId {
        FlowId { tunnel: self.tunnel[end].unwrap(), flow: flow.flow }
    }

    pub(super) fn read(&mut self, end: usize, flow: FlowId) -> (Vec<u8>, Read) {
        let mut all = Vec::new();
        loop {
            match self.ends[end].read(self.now, flow) {
                Read::Bytes(bytes) => all.extend_from_slice(&bytes),
                other => return (all, other),
            }
        }
    }
}

/// Bytes that say where they belong.
pub(super) fn pattern(from: u64, length: usize) -> Bytes {
    (from..from + length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
}
