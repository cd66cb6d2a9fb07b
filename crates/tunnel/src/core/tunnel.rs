//! A tunnel: two lanes, one rate, and the flows in it.

use super::config::{Limits, Terms};
use super::controller::Fate;
use super::flow::{End, Flow, WAITING};
use super::lane::{About, Heard, Lane, Polled};
use super::{Event, Fingerprint, FlowId, Out, Read, Snapshot, TunnelId};
use crate::frame::{self, Frame, Hello, Open, Opening};
use crate::reason::Reason;
use bytes::{Bytes, BytesMut};
use ekiden_model::pacing::Pacer;
use ekiden_model::rate_hold::{RateHold, Told};
use ekiden_model::scheduler::{self, Household, Scheduler};
use ekiden_model::units::{self, Rate, Span, Time};
use quinn_proto::StreamId;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

/// The quickest repair by the peer's acknowledgement is quicker than a copy on paths shorter than this.
const COPY_FROM: Span = Span::from_millis(40);
/// δ, by how much a copy follows: a sixteenth of the round trip, so that two copies and their answers'
/// two stay well below a second round trip, and further apart than a burst of losses where that is
/// possible (ALGORITHMS E.2: up to 19 packets, 57 ms at 4 Mbit/s).
const COPY_AFTER: (Span, Span) = (Span::from_millis(5), Span::from_millis(40));
/// Where more is lost than this a second copy follows, as long after the first. At 5 % one of 400 pairs is
/// lost, and each holds up the keystrokes of a round trip after it.
const COPY_AGAIN: f64 = 0.005;
/// What is lost is counted over so many packets; rate holding does not count where little is sent.
const LATELY: f64 = 400.0;
/// Flows that a peer opened and that were not seen yet, below the last that was.
const MISSING: usize = 8_192;
/// Memory that a flow holds whose bytes nobody takes is wanted back after so long.
const STALLED: Span = Span::from_secs(10);

/// What a flow may be sent before the peer has said hello, and an eighth of what all may; nobody grants
/// less.
const EARLY: u64 = 64 * 1024;
/// An epoch's number and, above it, the agreement it belongs to.
const EPOCH_BITS: u32 = 48;
const EPOCHS: u64 = (1 << EPOCH_BITS) - 1;

/// A copy that waits for its time.
#[derive(Debug)]
struct Copy {
    due: Time,
    bytes: Bytes,
}

#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) id: TunnelId,
    pub(super) peer: Fingerprint,
    pub(super) session: u64,
    /// This end opened it, and opens flows of even numbers.
    pub(super) opener: bool,
    pub(super) lanes: [Option<Lane>; 2],
    /// The secret of the invitation, while the peer may not know us yet.
    pub(super) secret: Bytes,
    /// Flows may begin before the peer has said hello.
    pub(super) hasty: bool,
    terms: Terms,
    limits: Limits,
    hold: RateHold,
    /// What it was made for, and how many there were before.
    hold_allotted: Rate,
    agreement: u64,
    pacer: Pacer,
    scheduler: Scheduler,
    households: BTreeMap<Bytes, Household>,
    flows: BTreeMap<u64, Flow>,
    turns: HashMap<scheduler::Flow, u64>,
    /// Flows given up here of which it is not known yet how much the peer sent; how much was counted.
    given_up: BTreeMap<u64, u64>,
    next_flow: u64,
    /// Beyond the peer's last flow that was seen, and those below it that were not.
    peer_next: u64,
    missing: BTreeSet<u64>,
    /// First and second copies, each in order.
    copies: [VecDeque<Copy>; 2],
    /// What our hellos said a new flow may be sent.
    promised: u64,
    /// What the peer said in its hello, once it has.
    greeting: Option<Hello>,
    /// New bytes sent, and the most that may be.
    total_sent: u64,
    total_limit: u64,
    /// Bytes taken or thrown away, and the most the peer may have sent.
    released: u64,
    total_granted: u64,
    in_flight: u64,
    /// The share of packets lost, over the last few hundred.
    lately: f64,
    pub(super) events: VecDeque<Event>,
    /// Why it cannot go on.
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
}

impl Tunnel {
    pub(super) fn new(
        now: Time,
        (id, peer, session, opener): (TunnelId, Fingerprint, u64, bool),
        terms: Terms,
        limits: Limits,
    ) -> Self {
        let config = limits.hold(terms.send);
        Self {
            id,
            peer,
            session,
            opener,
            lanes: [None, None],
            secret: Bytes::new(),
            hasty: false,
            terms,
            limits,
            hold: RateHold::new(config, now),
            hold_allotted: terms.send,
            agreement: 0,
            pacer: Pacer::new(terms.send, Pacer::slack(terms.send, units::Bytes::new(1_500)), now),
            scheduler: Scheduler::new(scheduler::Config::default()),
            households: BTreeMap::new(),
            flows: BTreeMap::new(),
            turns: HashMap::new(),
            given_up: BTreeMap::new(),
            next_flow: if opener { 2 } else { 1 },
            peer_next: if opener { 1 } else { 2 },
            missing: BTreeSet::new(),
            copies: [VecDeque::new(), VecDeque::new()],
            promised: 0,
            greeting: None,
            total_sent: 0,
            total_limit: 8 * EARLY,
            released: 0,
            total_granted: limits.memory.as_u64(),
            in_flight: 0,
            // some, until it is known better
            lately: 4.0 * COPY_AGAIN,
            events: VecDeque::new(),
            broken: None,
            up: false,
            counts: Counts::default(),
        }
    }

    /// Another agreement on rates, from now on.
    pub(super) fn set_terms(&mut self, now: Time, terms: Terms) {
        let receives = self.terms.receive != terms.receive;
        self.terms = terms;
        self.agree(now);
        if receives {
            let hellos = [self.hello(0), self.hello(1)];
            for (lane, hello) in self.lanes.iter_mut().flatten().zip(hellos) {
                if let Some(control) = lane.control {
                    self.promised = self.promised.max(hello.window);
                    lane.write(control, Frame::Hello(hello).to_bytes());
                }
            }
        }
    }

    /// The rate is the smaller of what may be sent and what the peer wants to receive.
    fn agree(&mut self, now: Time) {
        let receive = self.greeting.as_ref().map_or(self.terms.send, |hello| hello.receive);
        let allotted = self.terms.send.min(receive);
        if self.hold_allotted != allotted {
            // what is under way belongs to the agreement before, and says nothing about this one
            self.hold = RateHold::new(self.limits.hold(allotted), now);
            self.hold_allotted = allotted;
            self.agreement += 1;
        }
    }

    // ---- what lanes say

    /// Says hello on lanes that have just come up, and listens to all.
    pub(super) fn listen(&mut self, now: Time, clock: Instant) {
        for nth in 0..2 {
            self.greet(nth);
            let Some(lane) = &mut self.lanes[nth] else { continue };
            let fates = lane.fates(clock);
            match lane.hear() {
                Ok(heard) => heard.into_iter().for_each(|heard| self.on_heard(now, nth, heard)),
                Err(bad) => self.fail(format!("the peer sent {bad}")),
            }
            self.on_fates(now, clock, &fates);
        }
    }

    fn greet(&mut self, nth: usize) {
        let hello = self.hello(nth);
        let Some(lane) = &mut self.lanes[nth] else { return };
        if !lane.connected || lane.control.is_some() {
            return;
        }
        if let Some(control) = lane.open() {
            lane.control = Some(control);
            self.promised = self.promised.max(hello.window);
            lane.write(control, Frame::Hello(hello).to_bytes());
            // flows may follow at once: a round trip less for whoever waits for the tunnel
            if self.hasty {
                self.come_up();
            }
        }
    }

    fn come_up(&mut self) {
        if !std::mem::replace(&mut self.up, true) {
            self.events.push_back(Event::Up { tunnel: self.id, peer: self.peer });
        }
    }

    fn hello(&self, nth: usize) -> Hello {
        Hello {
            version: frame::VERSION,
            lane: nth as u8,
            session: self.session,
            receive: self.terms.receive,
            window: self.window(),
            total: self.limits.memory.as_u64(),
            secret: self.secret.clone(),
        }
    }

    /// What a flow may have under way and waiting here: what the path holds six times at the rate we want to
    /// receive, within half the memory. What comes after a loss waits for its repeat, and that may be lost
    /// too: at 5 % and a thousand packets a round trip every eighth round trip has a packet lost three times.
    fn window(&self) -> u64 {
        let rtt = self.rtt().unwrap_or(Span::from_millis(100)) + Span::from_millis(100);
        let bytes =
            u128::from(self.terms.receive.as_bytes_per_second()) * u128::from(rtt.as_nanos()) * 6
                / 1_000_000_000;
        let most = (self.limits.memory.as_u64() / 2).max(64 * 1024);
        u64::try_from(bytes).unwrap_or(u64::MAX).clamp((256 * 1024).min(most), most)
    }

    fn rtt(&self) -> Option<Span> {
        let lane = self.lanes.iter().flatten().find(|lane| lane.connected)?;
        Some(Span::from_nanos(u64::try_from(lane.quinn.rtt().as_nanos()).unwrap_or(u64::MAX)))
    }

    fn on_fates(&mut self, now: Time, clock: Instant, fates: &[Fate]) {
        for fate in fates {
            let (Fate::Arrived(told, _) | Fate::Lost(told)) = fate;
            self.in_flight = self.in_flight.saturating_sub(told.bytes.as_u64());
            let lost = matches!(fate, Fate::Lost(_));
            self.counts.lost += u64::from(lost);
            self.lately += (f64::from(u8::from(lost)) - self.lately) / LATELY;
            if told.epoch >> EPOCH_BITS != self.agreement {
                continue;
            }
            let told = Told { epoch: told.epoch & EPOCHS, ..*told };
            match fate {
                Fate::Arrived(_, sent) => {
                    let rtt = sent.map(|sent| clock.saturating_duration_since(sent).as_nanos());
                    let rtt =
                        rtt.map(|nanos| Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
                    self.hold.on_acked(now, told, rtt);
                }
                Fate::Lost(_) => self.hold.on_lost(now, told),
            }
        }
    }

    /// Something came on a lane.
    pub(super) fn on_heard(&mut self, now: Time, nth: usize, heard: Heard) {
        match heard {
            Heard::Datagram(frames) => {
                let mut about = About::Unknown;
                for frame in frames {
                    about = self.on_frame(now, nth, about, frame, None);
                }
            }
            Heard::Frame(id, frame) => {
                let lane = self.lanes[nth].as_mut();
                let about =
                    lane.and_then(|lane| lane.about(id)).map_or(About::Unknown, |about| *about);
                let after = self.on_frame(now, nth, about, frame, Some(id));
                if let Some(about) = self.lanes[nth].as_mut().and_then(|lane| lane.about(id)) {
                    *about = after;
                }
            }
        }
    }

    fn on_frame(
        &mut self,
        now: Time,
        nth: usize,
        about: About,
        frame: Frame,
        stream: Option<StreamId>,
    ) -> About {
        match (about, frame) {
            (_, Frame::Unknown(_)) => return about,
            (About::Unknown | About::Control, Frame::Hello(hello)) if stream.is_some() => {
                self.on_hello(now, nth, hello);
                return About::Control;
            }
            (About::Unknown, Frame::Open(open)) => {
                let flow = open.flow;
                self.on_open(now, open);
                return About::Flow(flow);
            }
            (About::Unknown, Frame::Attach(flow)) => return About::Flow(flow),
            (About::Control, Frame::Credit { flow, limit }) => self.on_credit(flow, limit),
            (About::Control, Frame::Total(limit)) => self.total_limit = self.total_limit.max(limit),
            (About::Flow(flow), Frame::Data { offset, bytes }) => {
                self.on_data(now, flow, offset, bytes);
            }
            (About::Flow(flow), Frame::Fin(offset)) => self.on_end(now, flow, offset, End::Fin),
            (About::Flow(flow), Frame::Reset { offset, reason, words }) => {
                self.on_end(now, flow, offset, End::Reset(reason, words));
            }
            (About::Flow(flow), Frame::Opened) => self.on_answer(now, flow, Ok(())),
            (About::Flow(flow), Frame::Refused { reason, words }) => {
                self.on_answer(now, flow, Err((reason, words)));
            }
            (_, frame) => {
                self.fail(format!("the peer said {} where it has no meaning", name(&frame)))
            }
        }
        about
    }

    fn on_hello(&mut self, now: Time, nth: usize, hello: Hello) {
        if let Some(lane) = &mut self.lanes[nth] {
            lane.greeted = true;
        }
        if hello.session != self.session || usize::from(hello.lane) != nth {
            return self.fail("the peer takes this lane for another".to_owned());
        }
        self.total_limit = self.total_limit.max(hello.total);
        for flow in self.flows.values_mut() {
            flow.sending.limit = flow.sending.limit.max(hello.window);
        }
        let again = self.greeting.as_ref().is_some_and(|before| before.receive == hello.receive);
        self.greeting = Some(hello);
        if !again {
            self.agree(now);
        }
        let flows: Vec<u64> = self.flows.keys().copied().collect();
        flows.into_iter().for_each(|id| self.offer(id));
        self.secret = Bytes::new();
        self.come_up();
    }

    fn on_open(&mut self, now: Time, open: Open) {
        let Open { flow: id, opening } = open;
        if (id % 2 == 0) == self.opener {
            return self.fail("the peer opened a flow with one of our numbers".to_owned());
        }
        if id >= self.peer_next {
            let between = (id - self.peer_next) / 2;
            if between as usize + self.missing.len() > MISSING {
                return self.fail("the peer left out too many flows".to_owned());
            }
            self.missing.extend((self.peer_next..id).step_by(2));
            self.peer_next = id + 2;
        } else if !self.missing.remove(&id) {
            // a copy
            return;
        }
        if self.flows.len() >= self.limits.flows {
            let reason = Reason::Exhausted;
            let words = format!("the relay has {} flows of this tunnel already", self.flows.len());
            self.enter(now, id, false, opening);
            return self.refuse(now, id, reason, words);
        }
        self.enter(now, id, false, opening.clone());
        let flow = FlowId { tunnel: self.id, flow: id };
        self.events.push_back(Event::Incoming { flow, opening });
    }

    fn enter(&mut self, now: Time, id: u64, ours: bool, opening: Opening) {
        let household = *self
            .households
            .entry(opening.account.clone())
            .or_insert_with(|| self.scheduler.join(1));
        let Some(turns) = self.scheduler.open(household, scheduler::Lane::Interactive) else {
            return self.fail("a household is gone whose flow begins".to_owned());
        };
        let limit = self.greeting.as_ref().map_or(EARLY, |hello| hello.window);
        let window = self.window();
        let limits = (limit, window.max(self.promised));
        let flow = Flow::new(now, ours, opening, (household, turns), limits);
        self.turns.insert(turns, id);
        self.flows.insert(id, flow);
        // what hello promised may be less than what the path has turned out to need
        if window > self.promised
            && let Some((lane, control)) = self.control()
        {
            lane.write(control, Frame::Credit { flow: id, limit: window }.to_bytes());
        }
    }

    fn on_credit(&mut self, flow: u64, limit: u64) {
        if let Some(known) = self.flows.get_mut(&flow) {
            known.sending.limit = known.sending.limit.max(limit);
            self.offer(flow);
        }
    }

    fn on_data(&mut self, now: Time, id: u64, offset: u64, bytes: Bytes) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let length = bytes.len() as u64;
        let end = offset + length;
        let receiving = &mut flow.receiving;
        let beyond_end = receiving.end.as_ref().is_some_and(|(last, _)| end > *last);
        if end > receiving.granted || beyond_end {
            let of = if beyond_end { "its end" } else { "its credit" };
            return self.fail(format!("the peer sent bytes of a flow beyond {of}"));
        }
        if receiving.assembly.held() == 0 {
            receiving.taken_at = now;
        }
        let before = receiving.assembly.twice;
        receiving.assembly.insert(offset, bytes);
        self.counts.twice += receiving.assembly.twice - before;
        let lane = flow.on_moved(now, length);
        self.scheduler.set_lane(flow.turns, lane);
        if flow.ours && flow.answer.is_none() {
            flow.answer = Some(Ok(()));
        }
        self.changed(id);
        self.relieve(now);
    }

    /// When most of the memory is held, the flow that holds most of it and has not taken any for long is
    /// given up: it would stop all others.
    fn relieve(&mut self, now: Time) {
        let memory = self.limits.memory.as_u64();
        // what the peer may still send
        let left = self.total_granted.saturating_sub(self.released + self.held_at_most());
        if left > memory / 4 {
            return;
        }
        let stalled =
            self.flows.iter().filter(|(_, flow)| now.since(flow.receiving.taken_at) > STALLED);
        let worst = stalled.max_by_key(|(_, flow)| flow.receiving.assembly.held());
        if let Some((&id, _)) = worst {
            self.abort(
                now,
                id,
                Reason::Stalled,
                "its bytes were not taken and others wait".to_owned(),
            );
            self.events.push_back(Event::Flow(FlowId { tunnel: self.id, flow: id }));
        }
    }

    fn held_at_most(&self) -> u64 {
        self.flows.values().map(|flow| flow.receiving.assembly.held()).sum()
    }

    fn on_end(&mut self, now: Time, id: u64, offset: u64, end: End) {
        if let Some(counted) = self.given_up.remove(&id) {
            self.release(offset.saturating_sub(counted));
            return;
        }
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let receiving = &mut flow.receiving;
        match &receiving.end {
            // a copy, or a break after the end
            Some((known, _)) if *known == offset => {}
            None if offset >= receiving.assembly.complete() && offset <= receiving.granted => {}
            _ => return self.fail("the peer ended a flow in two places".to_owned()),
        }
        let reset = matches!(end, End::Reset(..));
        if receiving.end.is_none() || reset {
            // told also to who has taken a half-close
            receiving.ended = receiving.ended && !reset;
            receiving.end = Some((offset, end));
        }
        if reset && !flow.sending.ended {
            // nobody wants it any more; how much was sent is said, so that both count the same
            let words = String::new();
            let last = Frame::Reset { offset: flow.sending.sent, reason: Reason::Closed, words };
            self.write_last(now, id, &last);
        }
        self.changed(id);
    }

    fn on_answer(&mut self, now: Time, id: u64, answer: Result<(), (Reason, String)>) {
        if self.given_up.contains_key(&id) && answer.is_err() {
            // it has sent nothing
            self.given_up.remove(&id);
        }
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if !flow.ours {
            return self.fail("the peer answered its own flow".to_owned());
        }
        if flow.answer.is_some() {
            return;
        }
        flow.answer = Some(answer.clone());
        if let Err((reason, words)) = answer {
            flow.receiving.end = Some((0, End::Reset(reason, words)));
            let last = Frame::Reset {
                offset: flow.sending.sent,
                reason: Reason::Closed,
                words: String::new(),
            };
            if !flow.sending.ended {
                self.write_last(now, id, &last);
            }
        }
        self.changed(id);
    }

    fn changed(&mut self, flow: u64) {
        self.events.push_back(Event::Flow(FlowId { tunnel: self.id, flow }));
    }

    fn fail(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }

    // ---- what flows want

    /// A new flow.
    pub(super) fn open(&mut self, now: Time, opening: Opening) -> Result<FlowId, Reason> {
        if !self.up {
            return Err(Reason::TunnelLost);
        }
        if self.flows.len() >= self.limits.flows {
            return Err(Reason::Exhausted);
        }
        let id = self.next_flow;
        self.next_flow += 2;
        self.enter(now, id, true, opening);
        // at once, and its copy: who opens a flow waits for it
        self.say(now, id, 0, &[], true);
        if self.flows.get(&id).is_some_and(|flow| flow.sending.streams == [None; 2]) {
            self.remove(id);
            return Err(Reason::Exhausted);
        }
        Ok(FlowId { tunnel: self.id, flow: id })
    }

    /// The destination answered.
    pub(super) fn accept(&mut self, now: Time, id: u64) {
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| !flow.ours) else { return };
        if flow.answer.is_none() {
            flow.answer = Some(Ok(()));
            self.say(now, id, 0, &[Frame::Opened], true);
        }
    }

    /// It did not.
    pub(super) fn refuse(&mut self, now: Time, id: u64, reason: Reason, words: String) {
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| !flow.ours) else { return };
        if flow.answer.is_some() {
            return;
        }
        flow.answer = Some(Err((reason, words.clone())));
        self.say(now, id, 0, &[Frame::Refused { reason, words }], true);
        self.finish_streams(id);
        self.give_up(id);
    }

    /// Bytes that may be written now.
    pub(super) fn room(&self, id: u64) -> u64 {
        self.flows.get(&id).map_or(0, |flow| match flow.sending.end {
            Some(_) => 0,
            None => WAITING.saturating_sub(flow.sending.queued),
        })
    }

    /// Takes bytes to be sent, all of them.
    pub(super) fn write(&mut self, now: Time, id: u64, bytes: Bytes) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if flow.sending.ended || flow.sending.end.is_some() {
            return;
        }
        let lane = flow.on_moved(now, bytes.len() as u64);
        flow.sending.push(bytes);
        self.scheduler.set_lane(flow.turns, lane);
        self.offer(id);
    }

    /// Nothing more is written.
    pub(super) fn end(&mut self, now: Time, id: u64, end: End) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        match (&flow.sending.end, end) {
            // a connection may break after its half-close, and the peer must learn of that, too
            (Some(_), End::Reset(reason, words)) if flow.sending.ended => {
                return self.abort(now, id, reason, words);
            }
            (None, end) | (Some(End::Fin), end @ End::Reset(..)) => flow.sending.end = Some(end),
            (Some(_), _) => {}
        }
        self.end_if_all_sent(now, id);
    }

    /// What has come, in order.
    pub(super) fn read(&mut self, now: Time, id: u64) -> Read {
        let window = self.window();
        let Some(flow) = self.flows.get_mut(&id) else { return Read::Gone };
        let receiving = &mut flow.receiving;
        if let Some(bytes) = receiving.assembly.take() {
            receiving.taken_at = now;
            let taken = receiving.assembly.taken();
            let grant = (receiving.granted - taken < window / 2 + window / 4)
                .then_some(taken + window)
                .filter(|grant| *grant > receiving.granted);
            if let Some(limit) = grant {
                receiving.granted = limit;
                if let Some((lane, control)) = self.control() {
                    lane.write(control, Frame::Credit { flow: id, limit }.to_bytes());
                }
            }
            self.counts.taken += bytes.len() as u64;
            self.release(bytes.len() as u64);
            return Read::Bytes(bytes);
        }
        match &receiving.end {
            Some((offset, end)) if receiving.assembly.complete() >= *offset => {
                let end = end.clone();
                receiving.ended = true;
                if flow.is_over() {
                    self.remove(id);
                }
                Read::End(end)
            }
            _ => Read::Blocked,
        }
    }

    /// The destination's answer, once it has come.
    pub(super) fn answer(&self, id: u64) -> Option<Result<(), (Reason, String)>> {
        let lost = || Some(Err((Reason::TunnelLost, "the flow is gone".to_owned())));
        self.flows.get(&id).map_or_else(lost, |flow| flow.answer.clone())
    }

    /// Gives a flow up: what waits is thrown away, and the peer is told.
    pub(super) fn abort(&mut self, now: Time, id: u64, reason: Reason, words: String) {
        let Some(flow) = self.flows.get(&id) else { return };
        let refused = matches!(flow.answer, Some(Err(_)));
        let broken = matches!(flow.receiving.end, Some((_, End::Reset(..))));
        if !(flow.sending.ended && (refused || broken)) {
            let last = Frame::Reset { offset: flow.sending.sent, reason, words };
            self.write_last(now, id, &last);
        }
        self.give_up(id);
    }

    fn give_up(&mut self, id: u64) {
        let Some(flow) = self.flows.get(&id) else { return };
        let counted = flow.receiving.assembly.taken();
        match flow.receiving.end {
            Some((offset, _)) => self.release(offset.saturating_sub(counted)),
            None => {
                self.given_up.insert(id, counted);
            }
        }
        self.remove(id);
    }

    fn remove(&mut self, id: u64) {
        let Some(flow) = self.flows.remove(&id) else { return };
        self.turns.remove(&flow.turns);
        self.scheduler.close(flow.turns);
        if self.scheduler.leave(flow.household) {
            self.households.remove(&flow.opening.account);
        }
    }

    /// So many of the peer's bytes take no room here any more.
    fn release(&mut self, bytes: u64) {
        self.released += bytes;
        let memory = self.limits.memory.as_u64();
        let limit = self.released + memory;
        if limit - self.total_granted >= memory / 8 {
            self.total_granted = limit;
            if let Some((lane, control)) = self.control() {
                lane.write(control, Frame::Total(limit).to_bytes());
            }
        }
    }

    /// Tells the scheduler of what may be sent.
    fn offer(&mut self, id: u64) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let more = flow.sending.offer_more();
        if more > 0 {
            self.scheduler.on_waiting(flow.turns, units::Bytes::new(more));
        }
    }

    fn control(&mut self) -> Option<(&mut Lane, StreamId)> {
        self.lanes.iter_mut().flatten().find_map(|lane| {
            let control = lane.control?;
            Some((lane, control))
        })
    }

    // ---- what is said of flows

    /// Says something about a flow on a lane, or on the other where that is not possible.
    fn say(&mut self, now: Time, id: u64, nth: usize, frames: &[Frame], copy: bool) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let header = match (flow.ours, &flow.answer) {
            (true, None) => Frame::Open(Open { flow: id, opening: flow.opening.clone() }),
            _ => Frame::Attach(id),
        };
        let mut bytes = BytesMut::new();
        for nth in [nth, 1 - nth] {
            let Some(lane) = self.lanes[nth].as_mut().filter(|lane| lane.connected) else {
                continue;
            };
            let stream = match flow.sending.streams[nth] {
                Some(stream) => stream,
                None => {
                    let Some(stream) = lane.open() else { continue };
                    flow.sending.streams[nth] = Some(stream);
                    header.write(&mut bytes);
                    stream
                }
            };
            frames.iter().for_each(|frame| frame.write(&mut bytes));
            lane.write(stream, bytes);
            break;
        }
        if copy {
            let mut bytes = header.to_bytes();
            frames.iter().for_each(|frame| frame.write(&mut bytes));
            self.copy(now, bytes.freeze());
        }
    }

    /// The last thing said of a flow in this direction.
    fn write_last(&mut self, now: Time, id: u64, frame: &Frame) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.sending.clear();
        self.scheduler.close(flow.turns);
        self.turns.remove(&flow.turns);
        // nothing is told to the closed handle again: `ended` keeps bytes out
        if std::mem::replace(&mut flow.sending.ended, true) {
            // after a half-close its streams are over
            flow.sending.streams = [None; 2];
        }
        let nth =
            usize::from(flow.sending.streams[0].is_none() && flow.sending.streams[1].is_some());
        self.say(now, id, nth, std::slice::from_ref(frame), false);
        self.finish_streams(id);
    }

    fn finish_streams(&mut self, id: u64) {
        let Some(flow) = self.flows.get(&id) else { return };
        for (lane, stream) in self.lanes.iter_mut().zip(flow.sending.streams) {
            if let (Some(lane), Some(stream)) = (lane, stream) {
                lane.finish(stream);
            }
        }
    }

    fn end_if_all_sent(&mut self, now: Time, id: u64) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let sending = &mut flow.sending;
        if sending.ended || sending.queued > 0 {
            return;
        }
        let Some(end) = sending.end.clone() else { return };
        sending.ended = true;
        let offset = sending.sent;
        let nth = usize::from(sending.streams[0].is_none() && sending.streams[1].is_some());
        let (frame, reset) = match end {
            End::Fin => (Frame::Fin(offset), false),
            End::Reset(reason, words) => (Frame::Reset { offset, reason, words }, true),
        };
        let interactive = flow.lane == scheduler::Lane::Interactive;
        self.say(now, id, nth, &[frame], interactive);
        self.finish_streams(id);
        if reset {
            self.give_up(id);
        } else if self.flows.get(&id).is_some_and(Flow::is_over) {
            self.remove(id);
        }
    }

    fn copy(&mut self, now: Time, bytes: Bytes) {
        let Some(rtt) = self.rtt().filter(|rtt| *rtt >= COPY_FROM) else { return };
        let after = Span::from_nanos(rtt.as_nanos() / 16).clamp(COPY_AFTER.0, COPY_AFTER.1);
        let again = self.lately > COPY_AGAIN;
        for (queue, nth) in self.copies.iter_mut().zip(1..=1 + u64::from(again)) {
            let due = now + after.saturating_mul(nth);
            // in order, though the round trip changes
            let due = queue.back().map_or(due, |last: &Copy| last.due.max(due));
            queue.push_back(Copy { due, bytes: bytes.clone() });
        }
    }

    // ---- what leaves

    /// The next datagram, if one is due.
    pub(super) fn transmit(&mut self, now: Time, clock: Instant, buf: &mut Vec<u8>) -> Option<Out> {
        if !self.wants_to_send(now) {
            return None;
        }
        self.hold.on_deadline(now);
        let rate = self.hold.rate();
        if rate != self.pacer.rate() {
            self.pacer.set_rate(now, rate, Pacer::slack(rate, units::Bytes::new(self.mtu())));
        }
        if self.pacer.next(now) > now {
            return None;
        }
        self.send_due_copies(now);
        self.poll_lane(now, clock, 0, buf)
            .or_else(|| self.turn(now, clock, buf, true))
            .or_else(|| self.poll_lane(now, clock, 1, buf))
            .or_else(|| self.turn(now, clock, buf, false))
    }

    /// When to ask for the next datagram, and to tell lanes the time.
    pub(super) fn deadline(&mut self, now: Time) -> Time {
        let slot = if self.wants_to_send(now) { self.pacer.next(now) } else { Time::NEVER };
        let copies = self.copies.iter().filter_map(|queue| queue.front());
        let copy = copies.map(|copy| copy.due).min().unwrap_or(Time::NEVER);
        slot.min(copy.max(self.pacer.next(now)))
    }

    fn wants_to_send(&self, now: Time) -> bool {
        self.lanes.iter().flatten().any(|lane| lane.busy)
            || self.copies.iter().filter_map(|queue| queue.front()).any(|copy| copy.due <= now)
            || self.may_send_new() && self.scheduler.snapshot().waiting != [0; 2]
            || self.may_send_interactive() && self.scheduler.snapshot().waiting[0] > 0
    }

    /// Whether new bytes may be sent: the peer has room for them, and the path too.
    fn may_send_new(&self) -> bool {
        self.peer_has_room() && self.in_flight + self.mtu() <= self.hold.in_flight_cap().as_u64()
    }

    /// The same for what is interactive: it may go an eighth beyond what may be under way. What is lost and
    /// not yet known to be must not stop a keystroke.
    fn may_send_interactive(&self) -> bool {
        let cap = self.hold.in_flight_cap().as_u64();
        self.peer_has_room() && self.in_flight + self.mtu() <= cap + cap / 8 + 4 * self.mtu()
    }

    fn peer_has_room(&self) -> bool {
        self.total_sent < self.total_limit && self.lanes.iter().flatten().any(|lane| lane.connected)
    }

    fn mtu(&self) -> u64 {
        let lanes = self.lanes.iter().flatten();
        lanes.map(|lane| u64::from(lane.quinn.current_mtu())).max().unwrap_or(1_200) + 28
    }

    fn send_due_copies(&mut self, now: Time) {
        for queue in &mut self.copies {
            while let Some(copy) = queue.pop_front_if(|copy| copy.due <= now) {
                let Some(lane) = self.lanes[0].as_mut().filter(|lane| lane.connected) else {
                    continue;
                };
                let length = copy.bytes.len() as u64;
                if lane.send_datagram(copy.bytes) {
                    self.counts.copies += 1;
                    self.counts.copied += length;
                }
            }
        }
    }

    /// Writes one packet's worth of whoever is next, and sends it. With `interactive` only where something
    /// interactive waits.
    fn turn(
        &mut self,
        now: Time,
        clock: Instant,
        buf: &mut Vec<u8>,
        interactive: bool,
    ) -> Option<Out> {
        let may = match interactive {
            true => self.may_send_interactive() && self.scheduler.snapshot().waiting[0] > 0,
            false => self.may_send_new(),
        };
        if !may {
            return None;
        }
        let left = self.total_limit - self.total_sent;
        let lanes = self.lanes.iter().flatten().filter(|lane| lane.connected);
        let room = lanes.map(|lane| lane.room(self.total_sent) as u64).min()?.min(left);
        let turn = self.scheduler.next(units::Bytes::new(room))?;
        let id = *self.turns.get(&turn.flow)?;
        let flow = self.flows.get_mut(&id)?;
        let offset = flow.sending.sent;
        let bytes = flow.sending.take(turn.bytes.as_u64());
        let length = bytes.len() as u64;
        self.total_sent += length;
        let nth = turn.lane as usize;
        let copy = nth == 0 && flow.sending.copies(now, length);
        let more = flow.sending.queued < WAITING / 2;
        self.say(now, id, nth, &[Frame::Data { offset, bytes }], copy);
        self.end_if_all_sent(now, id);
        if more {
            self.changed(id);
        }
        self.poll_lane(now, clock, nth, buf).or_else(|| self.poll_lane(now, clock, 1 - nth, buf))
    }

    fn poll_lane(
        &mut self,
        now: Time,
        clock: Instant,
        nth: usize,
        buf: &mut Vec<u8>,
    ) -> Option<Out> {
        let lane = self.lanes[nth].as_mut().filter(|lane| lane.busy)?;
        let polled = lane.poll_transmit(clock, buf)?;
        let wire = units::Bytes::new(polled.size as u64 + overhead(polled.to));
        self.pacer.on_sent(now, wire);
        self.counts.packets += 1;
        self.counts.wire += wire.as_u64();
        if polled.counts {
            let epoch = self.hold.on_sent(now, wire) & EPOCHS | self.agreement << EPOCH_BITS;
            self.in_flight += wire.as_u64();
            lane.on_sent(polled, Told { epoch, bytes: wire });
        }
        let Polled { to, size, .. } = polled;
        Some(Out { to, lane: nth as u8, size })
    }

    /// What there is to see.
    pub(super) fn snapshot(&self) -> Snapshot {
        let lane = self.lanes.iter().flatten().find(|lane| lane.connected);
        let hold = self.hold.snapshot();
        let scheduler = self.scheduler.snapshot();
        let held = self.flows.values().map(|flow| flow.receiving.assembly.held());
        Snapshot {
            tunnel: self.id,
            peer: self.peer,
            address: lane.map(|lane| lane.quinn.remote_address()),
            up: self.up,
            opened_here: self.opener,
            allotted: self.allotted(),
            receive: self.terms.receive,
            rate: Rate::from_bits_per_second(hold.rate),
            line: hold.line.map(Rate::from_bits_per_second),
            rtt: self.rtt().unwrap_or_default(),
            base_rtt: hold.base,
            queue_delay: hold.queue,
            path_loss: hold.loss,
            packets: self.counts.packets,
            lost: self.counts.lost,
            wire_bytes: self.counts.wire,
            in_flight: self.in_flight,
            waiting: self.flows.values().map(|flow| flow.sending.queued).sum(),
            sent: scheduler.sent.iter().sum(),
            received: self.counts.taken,
            held: held.sum(),
            copies: self.counts.copies,
            copied_bytes: self.counts.copied,
            twice_bytes: self.counts.twice,
            flows: self.flows.len(),
            mtu: u16::try_from(self.mtu()).unwrap_or(u16::MAX),
        }
    }

    fn allotted(&self) -> Rate {
        let receive = self.greeting.as_ref().map_or(self.terms.send, |hello| hello.receive);
        self.terms.send.min(receive)
    }

    /// New bytes sent, and the peer's bytes that take no room here any more.
    #[cfg(test)]
    pub(super) const fn counted(&self) -> (u64, u64) {
        (self.total_sent, self.released)
    }

    /// Sends whatever the peer has room for, as nobody should.
    #[cfg(test)]
    pub(super) fn forget_credit(&mut self) {
        self.total_limit = u64::MAX;
        self.flows.values_mut().for_each(|flow| flow.sending.limit = u64::MAX);
    }

    #[cfg(test)]
    pub(super) fn assert_balanced(&self) {
        assert!(self.given_up.is_empty(), "{:?}", self.given_up);
        assert!(self.flows.is_empty() && self.turns.is_empty(), "{:?}", self.flows);
        let snapshot = self.scheduler.snapshot();
        assert_eq!((snapshot.flows, snapshot.households, snapshot.waiting), (0, 0, [0, 0]));
    }

    /// All flows, when the tunnel is lost.
    pub(super) fn flows(&self) -> impl Iterator<Item = FlowId> {
        self.flows.keys().map(|flow| FlowId { tunnel: self.id, flow: *flow })
    }
}

/// Of IP and UDP.
const fn overhead(to: SocketAddr) -> u64 {
    if to.is_ipv4() { 28 } else { 48 }
}

const fn name(frame: &Frame) -> &'static str {
    match frame {
        Frame::Hello(_) => "HELLO",
        Frame::Open(_) => "OPEN",
        Frame::Attach(_) => "ATTACH",
        Frame::Data { .. } => "DATA",
        Frame::Fin(_) => "FIN",
        Frame::Reset { .. } => "RESET",
        Frame::Opened => "OPENED",
        Frame::Refused { .. } => "REFUSED",
        Frame::Credit { .. } => "CREDIT",
        Frame::Total(_) => "TOTAL",
        Frame::Unknown(_) => "a frame",
    }
}
