//! Frames from the peer, and outcomes of our packets.

use super::super::flow::{End, Flow};
use super::super::lane::{Lane, LaneEvent, NO_DATAGRAMS, StreamOwner};
use super::super::{Event, FlowId};
use super::{EARLY, Tunnel};
use crate::core::ack_tap::PacketOutcome;
use crate::frame::reason::Reason;
use crate::frame::{Frame, Hello, Open, Opening};
use bytes::Bytes;
use ekiden_model::control::repair::Repaired;
use ekiden_model::units::{Span, Time};
use quinn_proto::StreamId;
use std::time::Instant;

/// While bulk is acknowledged, its round trips count: the interactive lane's few packets are
/// acknowledged late, and would look queued.
const BULK_SILENT: Span = Span::from_secs(1);
/// One piece of a flow that waits for one before it, for so many bytes of memory; at least so many pieces. A peer that
/// sends packets full has a fifth of that with the memory full.
const PIECE: u64 = 256;
const PIECES: u64 = 4_096;
/// Flows that a peer opened and that were not seen yet, below the last that was.
const MISSING: usize = 8_192;
/// Flows beyond its limit that a peer may open at once, and how long until one more. Each takes up to 10 µs. A peer whose
/// clients all begin anew opens no more than it had, while this side still has those.
const REFUSED: u64 = 4_096;
const REFUSED_AFTER: Span = Span::from_millis(1);

impl Tunnel {
    /// Says hello on lanes that have just come up, and listens to all.
    pub(in crate::core) fn listen(&mut self, now: Time, clock: Instant) {
        for nth in 0..2 {
            self.send_hello(nth);
            let Some(lane) = &mut self.lanes[nth] else { continue };
            let fates = lane.outcomes(clock);
            let finished = lane.finished();
            match lane.poll_frames() {
                Ok(heard) => {
                    heard.into_iter().for_each(|heard| self.on_lane_event(now, nth, heard))
                }
                Err(bad) => self.fail(format!("the peer sent {bad}")),
            }
            self.on_outcomes(now, clock, nth, &fates);
            self.on_finished(nth, &finished);
        }
        self.probe_after_news(now);
        // also where no bytes come any more, because there is no memory for them
        self.relieve(now);
        self.count_memory();
    }

    fn send_hello(&mut self, nth: usize) {
        let new = |lane: &Lane| lane.connected && lane.control.is_none();
        if !self.lanes[nth].as_ref().is_some_and(new) {
            return;
        }
        let hello = self.hello(nth);
        let Some(lane) = &mut self.lanes[nth] else { return };
        if lane.lacks_datagrams() {
            return self.fail(NO_DATAGRAMS.to_owned());
        }
        if let Some(control) = lane.open() {
            lane.control = Some(control);
            self.promised = self.promised.max(hello.window);
            lane.write(control, Frame::Hello(hello).to_bytes());
            // flows may follow at once, which saves a round trip for those that wait for the tunnel
            if self.hasty {
                self.set_up();
            }
        }
    }

    fn set_up(&mut self) {
        if !std::mem::replace(&mut self.up, true) {
            self.events.push_back(Event::Up { tunnel: self.id, peer: self.peer });
            self.events.append(&mut self.before_up);
        }
    }

    fn on_outcomes(&mut self, now: Time, clock: Instant, nth: usize, fates: &[PacketOutcome]) {
        for fate in fates {
            let (PacketOutcome::Arrived(told, _) | PacketOutcome::Lost(told)) = fate;
            self.in_flight = self.in_flight.saturating_sub(told.bytes.as_u64());
            let lost = matches!(fate, PacketOutcome::Lost(_));
            self.counts.lost += u64::from(lost);
            self.loss.on_packet(lost);
            match fate {
                PacketOutcome::Arrived(_, sent) => {
                    self.marks.on_acknowledged(now, nth);
                    self.probes.on_arrived(now, *sent);
                    let rtt = sent.map(|sent| clock.saturating_duration_since(sent).as_nanos());
                    let rtt =
                        rtt.map(|nanos| Span::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
                    if nth == 1 {
                        self.bulk_heard = now;
                    }
                    let is_told = nth == 1 || now.since(self.bulk_heard) > BULK_SILENT;
                    self.hold.on_acked(now, *told, rtt.filter(|_| is_told));
                }
                PacketOutcome::Lost(_) => self.hold.on_lost(now, *told),
            }
        }
    }

    pub(in crate::core) fn on_lane_event(&mut self, now: Time, nth: usize, heard: LaneEvent) {
        match heard {
            LaneEvent::Datagram(frames) => {
                let mut about = StreamOwner::Unknown;
                for frame in frames {
                    about = self.on_frame(now, nth, about, frame, None).alone();
                }
            }
            LaneEvent::Frame(id, frame) => {
                let lane = self.lanes[nth].as_mut();
                let about = lane
                    .and_then(|lane| lane.about(id))
                    .map_or(StreamOwner::Unknown, |about| *about);
                let after = self.on_frame(now, nth, about, frame, Some(id));
                if let Some(about) = self.lanes[nth].as_mut().and_then(|lane| lane.about(id)) {
                    *about = after;
                }
            }
        }
    }

    pub(in crate::core) fn on_frame(
        &mut self,
        now: Time,
        nth: usize,
        about: StreamOwner,
        frame: Frame,
        stream: Option<StreamId>,
    ) -> StreamOwner {
        // what came behind a frame that ends the tunnel is not worth any work
        if self.broken.is_some() {
            return about;
        }
        match (about, frame) {
            (_, Frame::Unknown(_)) => return about,
            (StreamOwner::Unknown | StreamOwner::Control, Frame::Hello(hello))
                if stream.is_some() =>
            {
                self.on_hello(now, nth, hello);
                return StreamOwner::Control;
            }
            (StreamOwner::Unknown, Frame::Open(open)) => {
                let flow = open.flow;
                self.on_open(now, open);
                return StreamOwner::Flow { flow, shared: false };
            }
            (StreamOwner::Unknown, Frame::Attach(flow)) => {
                return StreamOwner::Flow { flow, shared: false };
            }
            (StreamOwner::Control, Frame::Credit { flow, limit }) => self.on_credit(flow, limit),
            (StreamOwner::Control, Frame::Total(limit)) => {
                self.total_limit = self.total_limit.max(limit)
            }
            (StreamOwner::Flow { flow, shared }, Frame::Data { offset, bytes }) => {
                self.on_data(now, flow, offset, bytes, !shared);
                return StreamOwner::Flow { flow, shared: true };
            }
            (StreamOwner::Flow { flow, .. }, Frame::Repair { window, symbol }) => {
                self.on_repair(now, flow, window, &symbol);
            }
            (StreamOwner::Flow { flow, .. }, Frame::Fin(offset)) => {
                self.on_end(now, flow, offset, End::Fin)
            }
            (StreamOwner::Flow { flow, .. }, Frame::Reset { offset, reason, words }) => {
                self.on_end(now, flow, offset, End::Reset(reason, words));
            }
            (StreamOwner::Flow { flow, .. }, Frame::Packet(packet)) => {
                self.on_packet(now, flow, packet)
            }
            (StreamOwner::Flow { flow, .. }, Frame::Numbered { number, back, part, packet }) => {
                self.on_numbered(now, flow, (number, back, part), packet);
            }
            (StreamOwner::Flow { flow, .. }, Frame::PacketRepair(repair)) => {
                self.on_packet_repair(now, flow, repair);
            }
            (StreamOwner::Flow { flow, .. }, Frame::Opened) => self.on_answer(now, flow, Ok(())),
            (StreamOwner::Flow { flow, .. }, Frame::Refused { reason, words }) => {
                self.on_answer(now, flow, Err((reason, words)));
            }
            (_, frame) => self
                .fail(format!("the peer sent {} on a stream that does not carry it", name(&frame))),
        }
        about
    }

    fn on_hello(&mut self, now: Time, nth: usize, hello: Hello) {
        if hello.session != self.session || usize::from(hello.lane) != nth {
            return self.fail("the peer opened this stream for a different lane".to_owned());
        }
        self.on_terms(now, hello);
        self.secret = Bytes::new();
        self.set_up();
    }

    fn on_open(&mut self, now: Time, open: Open) {
        let Open { flow: id, opening } = open;
        if (id % 2 == 0) == self.opener {
            return self.fail("the peer opened a flow with a flow number of this end".to_owned());
        }
        if id >= self.peer_next {
            let between = (id - self.peer_next) / 2;
            if between as usize + self.missing.len() > MISSING {
                return self.fail("the peer skipped too many flow numbers".to_owned());
            }
            self.missing.extend((self.peer_next..id).step_by(2));
            self.peer_next = id + 2;
        } else if !self.missing.remove(&id) {
            // a copy
            return;
        }
        let of_peer = self.flows.len() + self.memory.flows_elsewhere();
        if !self.has_room_for(&opening.account) || of_peer >= 2 * self.limits.flows {
            // where others have room, it is one account's fault, and not that of the relay it goes through
            if of_peer >= self.limits.flows && !self.refused.allows(now, REFUSED, REFUSED_AFTER) {
                return self.fail("the peer opened too many flows beyond its limit".to_owned());
            }
            let reason = Reason::Exhausted;
            let words = format!(
                "the relay already has {of_peer} flows of this peer, or too many of this account"
            );
            self.enter(now, id, false, opening);
            return self.refuse(now, id, reason, words);
        }
        self.enter(now, id, false, opening.clone());
        let flow = FlowId { tunnel: self.id, flow: id };
        // an OPEN may overtake HELLO; its sender is identified after Up
        let events = if self.up { &mut self.events } else { &mut self.before_up };
        events.push_back(Event::Incoming { flow, peer: self.peer, opening });
    }

    pub(super) fn enter(&mut self, now: Time, id: u64, ours: bool, opening: Opening) {
        let entered = self.accounts.enter(&opening.account, &mut self.scheduler, &self.memory);
        let Some((turns, owner)) = entered else {
            return self.fail("internal error: a new flow has no account".to_owned());
        };
        let limit = self.greeting.as_ref().map_or(EARLY, |_| self.hellos.window);
        let window = self.first_window();
        let limits = (limit, window.max(self.promised));
        let flow = Flow::new(now, ours, opening, (turns, owner), limits);
        self.turns.insert(turns, id);
        self.flows.insert(id, flow);
        // the window promised in HELLO may be less than what the path turned out to need
        if window > self.promised
            && let Some((lane, control)) = self.control()
        {
            lane.write(control, Frame::Credit { flow: id, limit: window }.to_bytes());
        }
    }

    /// `repairable`: its sender may send repairs of it, so it is kept for decoding others.
    fn on_data(&mut self, now: Time, id: u64, offset: u64, bytes: Bytes, repairable: bool) {
        let repaired = match repairable {
            true => self.recover(id, offset, &bytes),
            false => Repaired::new(),
        };
        self.take_data(now, id, offset, bytes);
        self.on_repaired(now, id, repaired);
    }

    /// Bytes of a flow, as they arrived or were decoded.
    pub(super) fn take_data(&mut self, now: Time, id: u64, offset: u64, bytes: Bytes) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if flow.opening.carries.is_packets() {
            return self.fail("the peer sent bytes in a flow of packets".to_owned());
        }
        let length = bytes.len() as u64;
        let end = offset + length;
        let receiving = &mut flow.receiving;
        let beyond_end = receiving.end.as_ref().is_some_and(|(last, _)| end > *last);
        if end > receiving.granted.max(self.promised) || beyond_end {
            let of = if beyond_end { "its end" } else { "its credit" };
            return self.fail(format!("the peer sent bytes of a flow beyond {of}"));
        }
        if receiving.assembly.held() == 0 {
            receiving.taken_at = now;
        }
        let assembly = &mut receiving.assembly;
        let (twice, came) = (assembly.twice, assembly.came());
        self.pieces -= assembly.pieces();
        assembly.insert(offset, bytes);
        self.pieces += assembly.pieces();
        self.counts.twice += assembly.twice - twice;
        let new = assembly.came() - came;
        self.held += new;
        // copies say nothing of the flow
        if new > 0 {
            let lane = flow.on_moved(now, new);
            self.scheduler.set_lane(flow.turns, lane);
        }
        if flow.ours && flow.answer.is_none() {
            flow.answer = Some(Ok(()));
        }
        self.changed(id);
        self.on_came(new);
        if self.pieces as u64 > (self.limits.memory.as_u64() / PIECE).max(PIECES) {
            self.fail("the peer sent too many pieces of flows out of order".to_owned());
        }
    }

    fn on_end(&mut self, now: Time, id: u64, offset: u64, end: End) {
        if let Some(given_up) = self.given_up.remove(&id) {
            if offset > self.most(given_up.granted, given_up.carries) {
                return self.fail("the peer ended a flow beyond its credit".to_owned());
            }
            return self.count_rest(given_up, offset);
        }
        let Some(flow) = self.flows.get(&id) else { return };
        let receiving = &flow.receiving;
        let most = self.most(receiving.granted, flow.opening.carries);
        match &receiving.end {
            // a copy, or a break after the end
            Some((known, _)) if *known == offset => {}
            None if offset > most => {
                return self.fail("the peer ended a flow beyond its credit".to_owned());
            }
            None if offset >= receiving.assembly.reaches() => {}
            _ => return self.fail("the peer ended a flow in two places".to_owned()),
        }
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let receiving = &mut flow.receiving;
        let reset = matches!(end, End::Reset(..));
        if receiving.end.is_none() || reset {
            // reported also to a reader that saw a half-close
            receiving.ended = receiving.ended && !reset;
            receiving.end = Some((offset, end));
        }
        if reset {
            let left = flow.left;
            self.stop_sending(now, id);
            if left {
                self.give_up(id);
                return self.changed(id);
            }
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
            self.stop_sending(now, id);
        }
        self.changed(id);
    }

    /// Nobody reads our bytes any more; their size is still sent, so that both sides count the same.
    fn stop_sending(&mut self, now: Time, id: u64) {
        let open = self.flows.get(&id).filter(|flow| !flow.sending.ended);
        let Some(offset) = open.map(|flow| flow.sending.sent) else { return };
        let last = Frame::Reset { offset, reason: Reason::Closed, words: String::new() };
        self.write_last(now, id, &last);
    }
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
        Frame::Packet(_) => "PACKET",
        Frame::Numbered { .. } => "NUMBERED",
        Frame::Repair { .. } => "REPAIR",
        Frame::PacketRepair(_) => "PACKET REPAIR",
        Frame::Unknown(_) => "a frame",
    }
}
