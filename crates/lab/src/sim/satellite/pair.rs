//! Two ends of a tunnel, two directions of a link, and who writes and reads at the far end.

use crate::cell::Cell;
use crate::engine::EngineError;
use crate::kernel::satellite::bottleneck::{self, Seen, Summary};
use crate::kernel::satellite::changes::{self, Phase};
use crate::kernel::satellite::network;
use bytes::{Bytes, BytesMut};
use ekiden_emulator::recording::{Outcome, Row};
use ekiden_model::link::{Fate, Link, Packet};
use ekiden_model::units::{Rate, Span, Time};
use ekiden_tunnel::core::{
    Endpoint, Event, FlowId, Invited, Limits, Read, Snapshot, Terms, TunnelId,
};
use ekiden_tunnel::frame::{Carries, Host, Opening, Target};
use ekiden_tunnel::trust::{Credentials, hash};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// The end that opens the tunnel, where people are.
pub(super) const NEAR: usize = 0;
/// The other one, where the servers are.
pub(super) const FAR: usize = 1;
/// Of IP and UDP.
const HEADERS: u32 = 28;
/// Of whoever writes without end, at least so much at once.
const PIECE: usize = 16 << 10;
const SECRET: &[u8] = b"the secret of the invitation";

static NOTHING: [u8; 1 << 16] = [0; 1 << 16];

/// What a flow asks of the far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// Bytes without end.
    Pour,
    /// To take them.
    Take,
    /// What was sent.
    Echo,
    /// So many bytes, when the request has come.
    Document(u64),
    /// The writes of a number, each at its time.
    Script(usize),
}

/// Datagrams with what the link knows of them and when it was told, by number.
type UnderWay = BTreeMap<u64, (Vec<u8>, Packet, Time)>;

pub(super) struct Pair {
    pub(super) now: Time,
    /// What came to the far end of those who give without end.
    pub(super) taken: u64,
    ends: [Endpoint; 2],
    /// Towards FAR and towards NEAR.
    links: [Link; 2],
    phases: [Vec<Phase>; 2],
    /// By direction.
    under_way: [UnderWay; 2],
    number: u64,
    seen: [Vec<Seen>; 2],
    tunnels: [Option<TunnelId>; 2],
    asked: BTreeMap<u16, Asked>,
    /// The far end's, with what is still to be written.
    served: Vec<(FlowId, Asked)>,
    addresses: [SocketAddr; 2],
    buffer: Vec<u8>,
}

impl Pair {
    /// Two ends on the links of a cell; the tunnel is begun.
    pub(super) fn new(cell: &Cell, seed: u64) -> Result<Self, EngineError> {
        let failed = |error: &dyn std::fmt::Display| EngineError::during("a tunnel's ends")(error);
        let plan = network(cell, seed, None)?;
        let phases = changes::links(cell, seed)?;
        let link = plan.links.into_iter().next();
        let link = link.ok_or_else(|| EngineError("the network has no link".to_owned()))?;
        let now = Time::ZERO;
        let links = [Link::new(&link.forward, now), Link::new(&link.backward, now)];
        let rate = |axis: &str| cell.value::<Rate>(axis);
        let own = cell.text("way")? == "dedicated";
        let terms = |send: &str, receive: &str, line: &str| -> Result<Terms, EngineError> {
            let dedicated = if own { Some(rate(line)?) } else { None };
            Ok(Terms { dedicated, ..Terms::new(rate(send)?, rate(receive)?) })
        };
        let near = terms("told-up", "told-down", "uplink")?;
        let far = terms("told-down", "told-up", "downlink")?;
        let [near_one, far_one] = [Credentials::generate(), Credentials::generate()];
        let [near_one, far_one] =
            [near_one.map_err(|e| failed(&e))?, far_one.map_err(|e| failed(&e))?];
        let peer = far_one.fingerprint();
        let origin = Instant::now();
        let seeds = [seed, seed.wrapping_add(1)].map(|seed| {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&seed.to_be_bytes());
            bytes
        });
        let limits = Limits { datagram: 1_472, ..Limits::default() };
        let mut ends = [
            Endpoint::new(near_one, limits, false, origin, Some(seeds[NEAR])),
            Endpoint::new(far_one, limits, true, origin, Some(seeds[FAR])),
        ];
        ends[FAR].admit(now, &[], &[Invited { secret: hash(SECRET), terms: far }]);
        let addresses = [1, 2].map(|n| SocketAddr::from((Ipv4Addr::new(100, 64, 0, n), 4433)));
        let secret = Bytes::from_static(SECRET);
        let tunnel = ends[NEAR].connect(now, addresses[FAR], peer, secret, near, (seed, true));
        Ok(Self {
            now,
            taken: 0,
            ends,
            links,
            phases,
            under_way: [BTreeMap::new(), BTreeMap::new()],
            number: 0,
            seen: [Vec::new(), Vec::new()],
            tunnels: [Some(tunnel.map_err(|error| failed(&error))?), None],
            asked: BTreeMap::new(),
            served: Vec::new(),
            addresses,
            buffer: Vec::new(),
        })
    }

    /// The same with a tunnel that stands, over which something went.
    pub(super) fn up(cell: &Cell, seed: u64) -> Result<Self, EngineError> {
        let mut this = Self::new(cell, seed)?;
        this.come_up()?;
        let flow = this.open(Asked::Document(1))?;
        let end = this.now + super::PATIENCE;
        while this.read(NEAR, flow) == 0 {
            if this.now >= end {
                return Err(EngineError("nothing goes through the tunnel".to_owned()));
            }
            this.step(end)?;
        }
        Ok(this)
    }

    /// Until flows may be opened.
    pub(super) fn come_up(&mut self) -> Result<(), EngineError> {
        let end = self.now + super::PATIENCE;
        while !self.ends[NEAR].snapshots().iter().any(|seen| seen.up) {
            if self.now >= end {
                return Err(EngineError("the tunnel does not come up".to_owned()));
            }
            self.step(end)?;
        }
        Ok(())
    }

    /// Lets all happen that is due, and goes on to the next instant, at most `until`.
    ///
    /// # Errors
    /// The tunnel is lost.
    pub(super) fn step(&mut self, until: Time) -> Result<(), EngineError> {
        let mut busy = true;
        while busy {
            busy = false;
            for end in [NEAR, FAR] {
                self.ends[end].on_deadline(self.now);
                busy |= self.send(end);
                busy |= self.deliver(end);
            }
            self.hear()?;
            self.serve();
        }
        let mut next = until;
        for end in [NEAR, FAR] {
            next = next.min(self.ends[end].deadline(self.now)).min(self.links[end].next());
        }
        // a deadline that has come and did nothing must not stop time
        self.now = next.max(self.now + Span::from_nanos(1)).min(until);
        Ok(())
    }

    fn send(&mut self, end: usize) -> bool {
        let mut any = false;
        while let Some(out) = self.ends[end].transmit(self.now, &mut self.buffer) {
            any = true;
            self.number += 1;
            let packet = Packet {
                id: self.number,
                bytes: out.size as u32 + HEADERS,
                class: 0,
                flow: 0,
                segments: 1,
                ecn_capable: false,
            };
            let datagram = self.buffer[..out.size].to_vec();
            self.under_way[end].insert(self.number, (datagram, packet, self.now));
            let _told_by_gone = self.links[end].offer(self.now, packet);
        }
        any
    }

    fn deliver(&mut self, end: usize) -> bool {
        let mut any = false;
        let (under_way, seen) = (&mut self.under_way[end], &mut self.seen[end]);
        let phases = &self.phases[end];
        let mut note = |packet: Packet, offered: Time, outcome: Outcome| {
            let row = Row { direction: end as u32, number: packet.id, offered, packet, outcome };
            seen.extend(bottleneck::one(&row, phases));
        };
        while let Some(came) = self.links[end].poll(self.now) {
            let Some((datagram, packet, offered)) = under_way.remove(&came.packet.id) else {
                continue;
            };
            note(packet, offered, Outcome::Delivered { due: came.due, marked: came.marked });
            let from = self.addresses[end];
            self.ends[1 - end].receive(self.now, from, BytesMut::from(&datagram[..]));
            any = true;
        }
        self.links[end].gone(|id, fate| {
            let Some((_, packet, offered)) = under_way.remove(&id) else { return };
            let outcome = match fate {
                Fate::Dropped => Outcome::Dropped,
                Fate::Lost => Outcome::Lost,
            };
            note(packet, offered, outcome);
        });
        any
    }

    fn hear(&mut self) -> Result<(), EngineError> {
        for end in [NEAR, FAR] {
            while let Some(event) = self.ends[end].event() {
                match event {
                    Event::Up { tunnel, .. } => self.tunnels[end] = Some(tunnel),
                    Event::Down { reason, .. } => {
                        return Err(EngineError(format!("the tunnel is lost: {reason}")));
                    }
                    Event::Incoming { flow, opening, .. } if end == FAR => {
                        self.ends[end].accept(self.now, flow);
                        let asked = self.asked.get(&opening.target.port);
                        self.served.extend(asked.map(|asked| (flow, *asked)));
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// The far end's side of its flows.
    fn serve(&mut self) {
        let mut served = std::mem::take(&mut self.served);
        for (flow, asked) in &mut served {
            match asked {
                Asked::Pour => self.pour(FAR, *flow, true),
                Asked::Take => self.taken += self.read(FAR, *flow),
                Asked::Echo => {
                    let bytes = self.read(FAR, *flow) as usize;
                    self.write(FAR, *flow, bytes);
                }
                Asked::Document(left) => {
                    let room = self.ends[FAR].room(*flow) as u64;
                    let piece = room.min(*left).min(NOTHING.len() as u64);
                    self.write(FAR, *flow, piece as usize);
                    *left -= piece;
                }
                Asked::Script(_) => {}
            }
        }
        self.served = served;
    }

    /// A flow from the near end; it says at once what it wants.
    pub(super) fn open(&mut self, asked: Asked) -> Result<FlowId, EngineError> {
        let Some(tunnel) = self.tunnels[NEAR] else {
            return Err(EngineError("there is no tunnel".to_owned()));
        };
        let port = self.asked.len() as u16 + 1;
        self.asked.insert(port, asked);
        let target = Target { host: Host::Name("server".to_owned()), port };
        let carries = Carries::Stream;
        let opening = Opening { account: Bytes::new(), hops: 0, target, dscp: None, carries };
        let opened = self.ends[NEAR].open(self.now, tunnel, opening);
        opened.map_err(|reason| EngineError(format!("a flow was not opened: {reason}")))
    }

    /// The far end's side of scripts, by their numbers.
    pub(super) fn scripts(&self) -> BTreeMap<usize, FlowId> {
        let of = |(flow, asked): &(FlowId, Asked)| match asked {
            Asked::Script(number) => Some((*number, *flow)),
            _ => None,
        };
        self.served.iter().filter_map(of).collect()
    }

    /// How many bytes of a flow may be written now.
    pub(super) fn room(&self, end: usize, flow: FlowId) -> usize {
        self.ends[end].room(flow)
    }

    /// Writes so many bytes.
    pub(super) fn write(&mut self, end: usize, flow: FlowId, bytes: usize) {
        let piece = Bytes::from_static(&NOTHING).slice(..bytes.min(NOTHING.len()));
        if !piece.is_empty() {
            self.ends[end].write(self.now, flow, piece);
        }
    }

    /// Writes as much as there is room for, if it is to.
    pub(super) fn pour(&mut self, end: usize, flow: FlowId, is_to: bool) {
        let room = if is_to { self.ends[end].room(flow) } else { 0 };
        if room >= PIECE {
            self.write(end, flow, room);
        }
    }

    /// Takes what has come, and says how many bytes it was.
    pub(super) fn read(&mut self, end: usize, flow: FlowId) -> u64 {
        let mut all = 0;
        while let Read::Bytes(bytes) = self.ends[end].read(self.now, flow) {
            all += bytes.len() as u64;
        }
        all
    }

    /// What an end says of its tunnel.
    pub(super) fn snapshot(&self, end: usize) -> Option<Snapshot> {
        self.ends[end].snapshots().into_iter().next()
    }

    /// What the link is in a direction, and when.
    pub(super) fn phases(&self, down: bool) -> &[Phase] {
        &self.phases[usize::from(down)]
    }

    /// What became of packets that way and back, of those that were offered between two times.
    pub(super) fn sides(&self, down: bool, (from, to): (Span, Span)) -> (Summary, Summary) {
        let [from, to] = [from, to].map(|span| Duration::from_nanos(span.as_nanos()));
        let of = |down: bool| bottleneck::sum(&self.seen[usize::from(down)], from, to);
        (of(down), of(!down))
    }
}
