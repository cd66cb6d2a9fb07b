//! A tunnel: two lanes, one rate, and the flows in it.

mod coded;
mod copies;
mod credit;
pub(crate) mod flow_api;
mod flows;
mod marks;
mod orphans;
mod packets;
pub(super) mod peer_memory;
mod probes;
mod receive;
mod repair;
mod send;
mod transmit;

use super::config::{Limits, Terms};
use super::flow::Flow;
use super::lane::Lane;
use super::{Event, Fingerprint, FlowId, Snapshot, TunnelId};
use crate::frame::{self, Carries, Frame, Hello};
use bytes::Bytes;
use copies::{CopyBudget, ScheduledCopy};
use credit::{Hellos, Tolerance};
use ekiden_model::control::pacing::Pacer;
use ekiden_model::control::rate_hold::{RateHold, Restraint, RestraintWatch};
use ekiden_model::control::repair::PathLoss;
use ekiden_model::control::scheduler::{self, Scheduler};
use ekiden_model::units::{self, Rate, Span, Time};
use flows::accounts::Accounts;
use marks::Marks;
use orphans::Orphans;
use peer_memory::{Shortage, TunnelMemory};
use probes::Probes;
use quinn_proto::StreamId;
use repair::Repairs;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// A flow's bytes before the peer's HELLO, and an eighth of the total; nobody grants less.
const EARLY: u64 = 64 * 1024;

#[derive(Debug, Clone, Copy)]
struct GivenUp {
    /// Bytes that were taken, and that had come.
    taken: u64,
    came: u64,
    /// The peer may have sent so many.
    granted: u64,
    carries: Carries,
}

#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) id: TunnelId,
    pub(super) peer: Fingerprint,
    pub(super) session: u64,
    /// Gone with the tunnel, so that others see that it ended.
    pub(super) alive: Arc<()>,
    /// This end opened it, and opens flows of even numbers.
    pub(super) opener: bool,
    pub(super) lanes: [Option<Lane>; 2],
    /// The secret of the invitation, while the peer may not know us yet.
    pub(super) secret: Bytes,
    /// Flows may begin before the peer's HELLO.
    pub(super) hasty: bool,
    terms: Terms,
    limits: Limits,
    pub(super) hold: RateHold,
    /// The rate that it holds, and whether its breaker was open at the last event.
    hold_allotted: Rate,
    restrained: bool,
    /// What has held the rate down for long.
    restraints: RestraintWatch,
    /// Of the memory for bytes that wait to be sent.
    shortage: Shortage,
    /// Its beginning was reported, and its end was not.
    told_restrained: bool,
    pacer: Pacer,
    scheduler: Scheduler,
    accounts: Accounts,
    flows: BTreeMap<u64, Flow>,
    turns: HashMap<scheduler::Flow, u64>,
    /// Flows that nobody here has any more, with bytes that wait.
    orphans: Orphans,
    /// Flows given up here of which it is not known yet how much the peer sent.
    given_up: BTreeMap<u64, GivenUp>,
    next_flow: u64,
    /// Beyond the peer's last flow that was seen, and those below it that were not.
    peer_next: u64,
    missing: BTreeSet<u64>,
    /// First copies, second ones and so on, each in order.
    copies: [VecDeque<ScheduledCopy>; copies::MOST],
    copy_budget: CopyBudget,
    repairs: Repairs,
    /// The window for new flows in our last HELLO.
    promised: u64,
    /// The peer's HELLO, once it arrived, and what counts of those before it.
    greeting: Option<Hello>,
    hellos: Hellos,
    /// The peer's flows beyond those that it may have.
    refused: Tolerance,
    /// New bytes sent, and the most that may be.
    total_sent: u64,
    total_limit: u64,
    /// New bytes that the peer sent, and those of flows that wait to be taken.
    came: u64,
    held: u64,
    /// Pieces of flows that wait for one before them.
    pieces: usize,
    /// Memory of packets that wait to be taken.
    packets: u64,
    /// What it holds, with all else of its peer.
    memory: TunnelMemory,
    released: u64,
    total_granted: u64,
    /// Since when the peer has little of that, or when flows whose bytes nobody reads were last looked for.
    short_since: Option<Time>,
    in_flight: u64,
    /// Packets since the bulk lane last sent, while it has something to send.
    bulk_passed: u32,
    /// When a packet of the bulk lane was last acknowledged.
    bulk_heard: Time,
    /// How many packets the path loses.
    loss: PathLoss,
    /// Bytes of the longest packet whose repairs fitted within the last minute, and when it last did.
    widest: (usize, Time),
    /// Long datagrams of packets since one had the largest size.
    unfilled: u8,
    probes: Probes,
    marks: Marks,
    pub(super) events: VecDeque<Event>,
    /// Flows that the peer opened before its HELLO.
    before_up: VecDeque<Event>,
    pub(super) broken: Option<String>,
    pub(super) up: bool,
    counts: Counts,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    packets: u64,
    lost: u64,
    wire: u64,
    taken: u64,
    copies: u64,
    copied: u64,
    twice: u64,
    repairs: u64,
    repair_bytes: u64,
    repaired: u64,
}

impl Tunnel {
    pub(super) fn new(
        now: Time,
        (id, peer, session, opener): (TunnelId, Fingerprint, u64, bool),
        terms: Terms,
        (limits, memory): (Limits, TunnelMemory),
    ) -> Self {
        let config = limits.hold(&terms);
        Self {
            id,
            peer,
            session,
            alive: Arc::default(),
            opener,
            lanes: [None, None],
            secret: Bytes::new(),
            hasty: false,
            terms,
            limits,
            hold: RateHold::new(config, now),
            hold_allotted: terms.send,
            restrained: false,
            shortage: Shortage::default(),
            told_restrained: false,
            restraints: RestraintWatch::default(),
            pacer: Pacer::new(terms.send, Pacer::slack(terms.send, units::Bytes::new(1_500)), now),
            scheduler: Scheduler::new(scheduler::Config::default()),
            accounts: Accounts::default(),
            flows: BTreeMap::new(),
            turns: HashMap::new(),
            orphans: Orphans::default(),
            given_up: BTreeMap::new(),
            next_flow: if opener { 2 } else { 1 },
            peer_next: if opener { 1 } else { 2 },
            missing: BTreeSet::new(),
            copies: Default::default(),
            copy_budget: CopyBudget::new(now),
            repairs: Repairs::default(),
            promised: 0,
            greeting: None,
            hellos: Hellos::default(),
            refused: Tolerance::default(),
            total_sent: 0,
            total_limit: 8 * EARLY,
            came: 0,
            held: 0,
            pieces: 0,
            packets: 0,
            memory,
            released: 0,
            total_granted: limits.memory.as_u64(),
            short_since: None,
            in_flight: 0,
            bulk_passed: 0,
            bulk_heard: Time::ZERO,
            // some, until it is known better
            loss: PathLoss::new(4.0 * copies::COPY_AGAIN),
            widest: (0, now),
            unfilled: 0,
            probes: Probes::new(now),
            marks: Marks::default(),
            events: VecDeque::new(),
            before_up: VecDeque::new(),
            broken: None,
            up: false,
            counts: Counts::default(),
        }
    }

    pub(super) fn set_terms(&mut self, now: Time, terms: Terms) {
        let receives = self.terms.receive != terms.receive;
        if self.terms.dedicated != terms.dedicated {
            self.hold.set_mode(now, self.limits.hold(&terms).mode);
        }
        self.terms = terms;
        self.agree(now);
        if receives {
            self.hold.set_reverse(self.terms.receive);
            let hellos = [self.hello(0), self.hello(1)];
            for (lane, hello) in self.lanes.iter_mut().flatten().zip(hellos) {
                if let Some(control) = lane.control {
                    self.promised = self.promised.max(hello.window);
                    lane.write(control, Frame::Hello(hello).to_bytes());
                }
            }
        }
    }

    fn agree(&mut self, now: Time) {
        let allotted = self.allotted();
        if self.hold_allotted != allotted {
            self.hold.set_allotted(now, allotted);
            self.hold_allotted = allotted;
        }
    }

    fn hello(&self, nth: usize) -> Hello {
        Hello {
            version: frame::VERSION,
            lane: nth as u8,
            session: self.session,
            receive: self.terms.receive,
            window: self.first_window(),
            total: self.limits.memory.as_u64(),
            secret: self.secret.clone(),
            repairs: true,
            coded: true,
        }
    }

    fn rtt(&self) -> Option<Span> {
        let lane = self.lanes.iter().flatten().find(|lane| lane.connected)?;
        Some(Span::from_nanos(u64::try_from(lane.quinn.rtt().as_nanos()).unwrap_or(u64::MAX)))
    }

    fn changed(&mut self, flow: u64) {
        self.events.push_back(Event::Flow(FlowId { tunnel: self.id, flow }));
    }

    fn fail(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }

    fn control(&mut self) -> Option<(&mut Lane, StreamId)> {
        self.lanes.iter_mut().flatten().find_map(|lane| {
            let control = lane.control?;
            Some((lane, control))
        })
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let lane = self.lanes.iter().flatten().find(|lane| lane.connected);
        let hold = self.hold.snapshot();
        let (orphans, orphans_reset) = self.orphans.counts();
        Snapshot {
            tunnel: self.id,
            peer: self.peer,
            address: lane.map(|lane| lane.quinn.remote_address()),
            up: self.up,
            allotted: self.allotted(),
            receive: self.terms.receive,
            rate: Rate::from_bits_per_second(hold.rate),
            line: hold.line.map(Rate::from_bits_per_second),
            rtt: self.rtt().unwrap_or_default(),
            queue_delay: hold.queue,
            path_loss: hold.loss,
            contended: hold.contended,
            breaker: hold.breaker.open.map(|(trip, _)| trip),
            restrained: hold
                .breaker
                .open
                .map_or(self.restraints.long(), |(trip, _)| Some(Restraint::Breaker(trip))),
            packets: self.counts.packets,
            lost: self.counts.lost,
            wire_bytes: self.counts.wire,
            in_flight: self.in_flight,
            waiting: self.flows.values().map(|flow| flow.queue().bytes).sum(),
            sent: self.scheduler.sent(),
            received: self.counts.taken,
            held: self.held,
            copies: self.counts.copies,
            copied_bytes: self.counts.copied,
            twice_bytes: self.counts.twice,
            repairs: self.counts.repairs,
            repair_bytes: self.counts.repair_bytes,
            repaired_bytes: self.counts.repaired,
            flows: self.flows.len(),
            orphans,
            orphans_reset,
            mtu: self.smallest_mtu(),
            unmarked: self.marks.unmarked(),
        }
    }

    /// The rate is the smaller of our send limit and the peer's receive limit.
    fn allotted(&self) -> Rate {
        let receive = self.greeting.as_ref().map_or(self.terms.send, |hello| hello.receive);
        self.terms.send.min(receive)
    }

    /// New bytes sent, and the peer's bytes that take no room here any more.
    #[cfg(test)]
    pub(super) const fn counted(&self) -> (u64, u64) {
        (self.total_sent, self.released)
    }

    /// Sends each flow up to its limit, as no implementation should.
    #[cfg(test)]
    pub(super) fn forget_total(&mut self) {
        self.total_limit = u64::MAX;
    }

    /// Sends as much as the peer has room for, as no implementation should.
    #[cfg(test)]
    pub(super) fn forget_credit(&mut self) {
        self.total_limit = u64::MAX;
        self.flows.values_mut().for_each(|flow| flow.sending.limit = u64::MAX);
    }

    /// As a peer that does not know of repairs.
    #[cfg(test)]
    pub(super) fn forget_repairs(&mut self) {
        if let Some(peer) = &mut self.greeting {
            (peer.repairs, peer.coded) = (false, false);
        }
    }

    /// Whatever the peer sends, no more than this is held for it.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn assert_bounded(&self) {
        let memory = self.limits.memory.as_u64();
        // a quarter of a mebibyte beyond the quarter: one packet flow may be filled by the last packet
        let packets = self.packets.saturating_sub(1 << 18);
        assert!(self.held <= memory.max(8 * EARLY) && packets <= memory / 4);
        assert!(self.flows.len() <= self.limits.flows + 1, "{}", self.flows.len());
        // a flow that was reset takes no turns, and stays until its end is read
        self.accounts.assert_bounded(self.flows.len());
        assert!(self.turns.len() <= self.flows.len());
        assert!(self.pieces as u64 <= (memory / 256).max(4_096) + 1, "{}", self.pieces);
        self.repairs.assert_bounded(self.flows.values(), memory);
        self.assert_memory_bounded();
        assert!(self.missing.len() <= 8_192 && self.given_up.len() <= 8_193);
        let queued: u64 = self.flows.values().map(|flow| flow.sending.queued).sum();
        assert!(queued <= self.flows.len() as u64 * (1 << 22));
        let waiting: u64 = self.flows.values().map(|flow| flow.queue().shared()).sum();
        assert_eq!(waiting, self.memory.waiting());
        assert!(self.lanes.iter().flatten().all(|lane| lane.waiting < 4 << 20));
    }

    #[cfg(test)]
    pub(super) fn assert_balanced(&self) {
        assert!(self.given_up.is_empty(), "{:?}", self.given_up);
        assert_eq!((self.held, self.pieces, self.packets), (0, 0, 0));
        assert!(self.flows.is_empty() && self.turns.is_empty(), "{:?}", self.flows);
        let scheduler::Snapshot { flows, parts, accounts, waiting, .. } = self.scheduler.snapshot();
        assert_eq!((flows, parts, accounts, waiting), (0, 0, 0, [0, 0]));
    }

    pub(super) fn flows(&self) -> impl Iterator<Item = FlowId> {
        self.flows.keys().map(|flow| FlowId { tunnel: self.id, flow: *flow })
    }
}
