//! Two ends of a tunnel, two directions of a link, and who writes and reads at the far end.

use crate::long_link::bottleneck::{self, SentPacket, Summary};
use crate::long_link::changes::{self, Phase};
use crate::long_link::network;
use bytes::{Bytes, BytesMut};
use ekiden_emulator::recording::{Outcome, Row};
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{During, EngineError};
use ekiden_model::network::link::{Link, Packet};
use ekiden_model::units::{Rate, Span, Time};
use ekiden_tunnel::core::{
    Endpoint, Event, FlowId, Invited, Limits, Read, Snapshot, Terms, TunnelId,
};
use ekiden_tunnel::frame::{Carries, Opening};
use ekiden_tunnel::trust::{Credentials, hash};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// The end that opens the tunnel, where people are.
pub(crate) const NEAR: usize = 0;
/// The other one, where the servers are.
pub(crate) const FAR: usize = 1;
const HEADERS: u32 = 28;
/// The least that an endless writer writes at once.
const PIECE: usize = 16 << 10;
/// A tunnel or byte that has not come within this time does not come.
const PATIENCE: Span = Span::from_secs(20);
const SECRET: &[u8] = b"the secret of the invitation";

static NOTHING: [u8; 1 << 16] = [0; 1 << 16];

/// What a flow asks of the far end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Pour,
    /// To take them.
    Take,
    Echo,
    /// So many bytes, when the request has come.
    Document(u64),
    /// The writes of a number, each at its time.
    Script(usize),
}

/// Datagrams in flight by number, with the link's packet and the time it was offered.
type InFlight = BTreeMap<u64, (Vec<u8>, Packet, Time)>;

pub(crate) struct Pair {
    pub(crate) now: Time,
    /// What came to the far end of those who give without end.
    pub(crate) taken: u64,
    ends: [Endpoint; 2],
    /// Towards FAR and towards NEAR.
    links: [Link; 2],
    phases: [Vec<Phase>; 2],
    under_way: [InFlight; 2],
    number: u64,
    seen: [Vec<SentPacket>; 2],
    tunnels: [Option<TunnelId>; 2],
    asked: BTreeMap<u16, Asked>,
    /// The far end's, with what is still to be written.
    served: Vec<(FlowId, Asked)>,
    addresses: [SocketAddr; 2],
    buffer: Vec<u8>,
}

impl Pair {
    /// Two ends on the links of a cell; the tunnel is begun.
    pub(crate) fn new(cell: &Cell, seed: u64) -> Result<Self, EngineError> {
        const ENDS: &str = "a tunnel's ends";
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
        let [near_one, far_one] = [near_one.during(ENDS)?, far_one.during(ENDS)?];
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
            tunnels: [Some(tunnel.during(ENDS)?), None],
            asked: BTreeMap::new(),
            served: Vec::new(),
            addresses,
            buffer: Vec::new(),
        })
    }

    /// The same with a tunnel that stands, over which something went.
    pub(crate) fn up(cell: &Cell, seed: u64) -> Result<Self, EngineError> {
        let mut this = Self::new(cell, seed)?;
        this.come_up()?;
        let flow = this.open(Asked::Document(1))?;
        this.wait("nothing goes through the tunnel", |this| this.read(NEAR, flow) > 0)?;
        Ok(this)
    }

    /// Until flows may be opened.
    pub(crate) fn come_up(&mut self) -> Result<(), EngineError> {
        let up = |this: &mut Self| this.ends[NEAR].snapshots().iter().any(|seen| seen.up);
        self.wait("the tunnel does not come up", up)
    }

    /// Steps until something is `done`. Errors: it is not within [`PATIENCE`], in these words.
    pub(crate) fn wait(
        &mut self,
        failure: &str,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), EngineError> {
        let end = self.now + PATIENCE;
        while !done(self) {
            if self.now >= end {
                return Err(EngineError(failure.to_owned()));
            }
            self.step(end)?;
        }
        Ok(())
    }

    /// Does all that is due and advances to the next instant, at most `until`. Errors: the tunnel is lost.
    pub(crate) fn step(&mut self, until: Time) -> Result<(), EngineError> {
        self.settle()?;
        self.advance(until);
        Ok(())
    }

    /// Does all that is due, so that what comes at this instant can be read at it. Errors: the tunnel is lost.
    pub(crate) fn settle(&mut self) -> Result<(), EngineError> {
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
        Ok(())
    }

    /// Advances to the next instant at which something is due, at most `until`.
    pub(crate) fn advance(&mut self, until: Time) {
        let mut next = until;
        for end in [NEAR, FAR] {
            next = next.min(self.ends[end].deadline(self.now)).min(self.links[end].next());
        }
        // a deadline that has come and did nothing must not stop time
        self.now = next.max(self.now + Span::from_nanos(1)).min(until);
    }

    fn send(&mut self, end: usize) -> bool {
        let mut any = false;
        while let Some(out) = self.ends[end].transmit(self.now, &mut self.buffer) {
            any = true;
            self.number += 1;
            let packet = Packet::new(self.number, out.size as u32 + HEADERS);
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
            note(packet, offered, fate.into());
        });
        any
    }

    fn hear(&mut self) -> Result<(), EngineError> {
        for end in [NEAR, FAR] {
            while let Some(event) = self.ends[end].event() {
                match event {
                    Event::Up { tunnel, .. } => self.tunnels[end] = Some(tunnel),
                    Event::Down { end, .. } => {
                        return Err(EngineError(format!("the tunnel is lost: {}", end.reason)));
                    }
                    Event::Joining { invitation, .. } => {
                        self.ends[end].settle_join(self.now, invitation, Ok(()));
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

    /// A flow of packets; both ends have it by the same number.
    pub(crate) fn open_packets(&mut self, carries: Carries) -> Result<FlowId, EngineError> {
        let no_tunnel = || EngineError("there is no tunnel".to_owned());
        let tunnel = self.tunnels[NEAR].ok_or_else(no_tunnel)?;
        let opening = Opening { carries, ..Opening::named("server", 443) };
        let opened = self.ends[NEAR].open(self.now, tunnel, opening);
        opened.map_err(|reason| EngineError(format!("a flow was not opened: {reason}")))
    }

    fn at(&self, end: usize, flow: FlowId) -> FlowId {
        FlowId { tunnel: self.tunnels[end].unwrap_or(flow.tunnel), ..flow }
    }

    /// Sends a packet from an end; what finds no room is dropped.
    pub(crate) fn send_packet(&mut self, end: usize, flow: FlowId, packet: Bytes) {
        let flow = self.at(end, flow);
        let _dropped = self.ends[end].send_packet(self.now, flow, packet);
    }

    /// The next packet that came to an end.
    pub(crate) fn packet(&mut self, end: usize, flow: FlowId) -> Option<Bytes> {
        let flow = self.at(end, flow);
        self.ends[end].packet(flow)
    }

    pub(crate) fn open(&mut self, asked: Asked) -> Result<FlowId, EngineError> {
        let no_tunnel = || EngineError("there is no tunnel".to_owned());
        let tunnel = self.tunnels[NEAR].ok_or_else(no_tunnel)?;
        let port = self.asked.len() as u16 + 1;
        self.asked.insert(port, asked);
        let opened = self.ends[NEAR].open(self.now, tunnel, Opening::named("server", port));
        opened.map_err(|reason| EngineError(format!("a flow was not opened: {reason}")))
    }

    /// The far end's side of scripts, by their numbers.
    pub(crate) fn scripts(&self) -> BTreeMap<usize, FlowId> {
        let of = |(flow, asked): &(FlowId, Asked)| match asked {
            Asked::Script(number) => Some((*number, *flow)),
            _ => None,
        };
        self.served.iter().filter_map(of).collect()
    }

    pub(crate) fn room(&self, end: usize, flow: FlowId) -> usize {
        self.ends[end].room(flow)
    }

    pub(crate) fn write(&mut self, end: usize, flow: FlowId, bytes: usize) {
        let piece = Bytes::from_static(&NOTHING).slice(..bytes.min(NOTHING.len()));
        if !piece.is_empty() {
            self.ends[end].write(self.now, flow, piece);
        }
    }

    /// Writes as much as there is room for, if it is to.
    pub(crate) fn pour(&mut self, end: usize, flow: FlowId, is_to: bool) {
        let room = if is_to { self.ends[end].room(flow) } else { 0 };
        if room >= PIECE {
            self.write(end, flow, room);
        }
    }

    pub(crate) fn read(&mut self, end: usize, flow: FlowId) -> u64 {
        let mut all = 0;
        while let Read::Bytes(bytes) = self.ends[end].read(self.now, flow) {
            all += bytes.len() as u64;
        }
        all
    }

    pub(crate) fn snapshot(&self, end: usize) -> Option<Snapshot> {
        self.ends[end].snapshots().into_iter().next()
    }

    /// What the link is in a direction, and when.
    pub(crate) fn phases(&self, down: bool) -> &[Phase] {
        &self.phases[usize::from(down)]
    }

    /// What became of packets that way and back, of those that were offered between two times.
    pub(crate) fn sides(&self, down: bool, (from, to): (Span, Span)) -> (Summary, Summary) {
        let [from, to] = [from, to].map(Duration::from);
        let of = |down: bool| bottleneck::sum(&self.seen[usize::from(down)], from, to);
        (of(down), of(!down))
    }
}
