//! Local operations on flows: open, write, read, end.

pub(super) mod accounts;

use super::super::config::STREAMS;
use super::super::flow::{End, Receiving};
use super::super::lane::Lane;
use super::super::{FlowId, FlowStatus, Read};
use super::{GivenUp, Tunnel};
use crate::frame::reason::Reason;
use crate::frame::{Carries, Frame, Opening};
use bytes::Bytes;
use ekiden_model::resources::orphan::LEAST_RATE;
use ekiden_model::units::{Span, Time};

/// Abandoned flows of unknown final size: 1,000 a second on a path silent for a tunnel's lifetime.
const MOST_GIVEN_UP: usize = 8_192;
/// A reader whose peer has used up its credit grants more at least so often, however little it has read. An Ekiden peer
/// resets what its owner left behind where nothing is granted for a minute.
const GRANT_AFTER: Span = Span::from_secs(5);
/// And at least as much as it has read since, up to so many bytes a second: twice what keeps such a flow.
const GRANT_LATE: u64 = 2 * LEAST_RATE;
/// A flow's window is so many times what its reader took in the last ten seconds, and grows as much in a round trip.
const PACE: u64 = 4;

impl Tunnel {
    pub(in crate::core) fn open(
        &mut self,
        now: Time,
        mut opening: Opening,
    ) -> Result<FlowId, Reason> {
        if !self.up {
            return Err(Reason::TunnelLost);
        }
        // on a path that is silent the ends of those that are there need streams, too
        let streams = self.lanes[0].as_mut().map_or(0, Lane::streams_in_flight);
        if !self.has_room_for(&opening.account) || streams > STREAMS as usize / 4 * 3 {
            return Err(Reason::Exhausted);
        }
        // a peer that does not know them, or is not known itself, gets plain packets
        let codes = self.greeting.as_ref().is_some_and(|peer| peer.coded);
        if opening.carries == Carries::Coded && !codes {
            opening.carries = Carries::Packets;
        }
        let id = self.next_flow;
        self.next_flow += 2;
        self.enter(now, id, true, opening);
        // at once, and its copy: the opener waits for it
        if !self.say(now, id, 0, &[], true) {
            self.remove(id);
            return Err(Reason::Exhausted);
        }
        Ok(FlowId { tunnel: self.id, flow: id })
    }

    /// Whether an account may have another flow beside those of others.
    pub(super) fn has_room_for(&self, account: &[u8]) -> bool {
        let free = self.limits.flows.saturating_sub(self.flows.len());
        self.accounts.have_room_for(account, free)
    }

    pub(in crate::core) fn accept(&mut self, now: Time, id: u64) {
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| !flow.ours) else { return };
        if flow.answer.is_none() {
            flow.answer = Some(Ok(()));
            self.tell(now, id, 0, &[Frame::Opened], true);
        }
    }

    pub(in crate::core) fn refuse(&mut self, now: Time, id: u64, reason: Reason, words: String) {
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| !flow.ours) else { return };
        if flow.answer.is_some() {
            return;
        }
        flow.answer = Some(Err((reason, words.clone())));
        self.tell(now, id, 0, &[Frame::Refused { reason, words }], true);
        self.finish_streams(id);
        self.give_up(id);
    }

    pub(in crate::core) fn room(&self, id: u64) -> u64 {
        self.flows.get(&id).map_or(0, |flow| match flow.sending.end {
            Some(_) => 0,
            None => flow.queue().room(self.send_memory_free(flow)),
        })
    }

    /// The room where it is worth a write; else its writer is woken when it is.
    pub(in crate::core) fn writable(&mut self, id: u64) -> u64 {
        let room = self.room(id);
        let Some(flow) = self.flows.get_mut(&id) else { return 0 };
        let free = self.memory.free(self.limits.send_memory(), flow);
        let worthwhile = flow.queue().is_worthwhile(room);
        flow.sending.waits = !worthwhile;
        self.shortage.short |= flow.queue().is_short(free);
        if worthwhile { room } else { 0 }
    }

    pub(in crate::core) fn flow_status(&self, id: u64) -> Option<FlowStatus> {
        let flow = self.flows.get(&id)?;
        let sending = &flow.sending;
        let waits = sending.queued > 0;
        Some(FlowStatus {
            answered: matches!(flow.answer, Some(Ok(()))),
            sent: sending.sent,
            queued: sending.queued,
            full: waits && sending.sent >= sending.limit,
            all_full: waits && self.total_sent >= self.total_limit,
            short: sending.waits && flow.queue().is_short(self.send_memory_free(flow)),
            held: flow.receiving.assembly.held(),
        })
    }

    pub(in crate::core) fn write(&mut self, now: Time, id: u64, bytes: Bytes) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        if flow.sending.ended || flow.sending.end.is_some() {
            return;
        }
        let lane = flow.on_moved(now, bytes.len() as u64);
        flow.sending.push(bytes);
        self.memory.on_queue(flow);
        self.scheduler.set_lane(flow.turns, lane);
        self.offer(id);
    }

    pub(in crate::core) fn end(&mut self, now: Time, id: u64, end: End) {
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

    /// The connection at this end broke. A client that resets its connection wants nothing sent any more, and what waits
    /// would take the line from others; what it ended properly before is delivered. So is what a destination sent.
    pub(in crate::core) fn on_broken(&mut self, now: Time, id: u64, reason: Reason, words: String) {
        let Some(flow) = self.flows.get(&id) else { return };
        if flow.ours && flow.sending.end.is_none() {
            self.abort(now, id, reason, words);
        } else {
            self.end(now, id, End::Reset(reason, words));
        }
    }

    pub(in crate::core) fn read(&mut self, now: Time, id: u64) -> Read {
        let (most, least) = (self.window(), self.first_window() / 2);
        // readers of moderate pace, of whom some hold all for long, leave a part, too
        let free = self.limits.memory.as_u64().saturating_sub(self.held);
        let Some(flow) = self.flows.get_mut(&id) else { return Read::Gone };
        let receiving = &mut flow.receiving;
        if let Some(bytes) = receiving.assembly.take() {
            receiving.on_taken(now, bytes.len() as u64);
            let window = receiving.lately(now).saturating_mul(PACE).min(free);
            let window = window.clamp(least, most);
            let taken = receiving.assembly.taken();
            // a slow reader's peer that waits for credit sees that it goes on, also where the window became smaller
            let is_used_up = receiving.assembly.reaches() >= receiving.granted;
            let passed = now.since(receiving.granted_at);
            let is_late = is_used_up && passed >= GRANT_AFTER;
            let since = (taken - receiving.granted_then).min(passed.as_secs() * GRANT_LATE);
            let late = if is_late { receiving.granted + since } else { 0 };
            let grant = (is_late
                || receiving.granted.saturating_sub(taken) < window / 2 + window / 4)
                .then_some(late.max(taken + window))
                .filter(|grant| *grant > receiving.granted);
            if let Some(limit) = grant {
                (receiving.granted, receiving.granted_at) = (limit, now);
                receiving.granted_then = taken;
                if let Some((lane, control)) = self.control() {
                    lane.write(control, Frame::Credit { flow: id, limit }.to_bytes());
                }
            }
            self.counts.taken += bytes.len() as u64;
            self.held -= bytes.len() as u64;
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

    pub(in crate::core) fn is_readable(&self, id: u64) -> bool {
        self.flows.get(&id).is_none_or(|flow| flow.receiving.is_readable())
    }

    pub(in crate::core) fn broken(&self, id: u64) -> Option<(Reason, String)> {
        let Some(flow) = self.flows.get(&id) else {
            return Some((Reason::TunnelLost, "the flow is gone".to_owned()));
        };
        match (&flow.receiving.end, &flow.answer) {
            (Some((_, End::Reset(reason, words))), _) => Some((*reason, words.clone())),
            (_, Some(Err((reason, words)))) => Some((*reason, words.clone())),
            _ => None,
        }
    }

    pub(in crate::core) fn answer(&self, id: u64) -> Option<Result<(), (Reason, String)>> {
        let lost = || Some(Err((Reason::TunnelLost, "the flow is gone".to_owned())));
        self.flows.get(&id).map_or_else(lost, |flow| flow.answer.clone())
    }

    /// Abandons a flow: waiting bytes are discarded, and the peer is informed.
    pub(in crate::core) fn abort(&mut self, now: Time, id: u64, reason: Reason, words: String) {
        let Some(flow) = self.flows.get(&id) else { return };
        let refused = matches!(flow.answer, Some(Err(_)));
        let broken = flow.receiving.is_reset();
        if !(flow.sending.ended && (refused || broken)) {
            let last = Frame::Reset { offset: flow.sending.sent, reason, words };
            self.write_last(now, id, &last);
        }
        self.give_up(id);
    }

    pub(super) fn give_up(&mut self, id: u64) {
        let Some(flow) = self.flows.get(&id) else { return };
        let Receiving { assembly, granted, .. } = &flow.receiving;
        let (taken, came) = (assembly.taken(), assembly.came());
        let (granted, carries) = (*granted, flow.opening.carries);
        let given_up = GivenUp { taken, came, granted, carries };
        match flow.receiving.end {
            Some((offset, _)) => self.count_rest(given_up, offset),
            None => {
                self.given_up.insert(id, given_up);
            }
        }
        if self.given_up.len() > MOST_GIVEN_UP {
            self.fail("the peer did not report the bytes sent on reset flows".to_owned());
        }
        self.remove(id);
    }

    pub(super) fn remove(&mut self, id: u64) {
        let Some(mut flow) = self.flows.remove(&id) else { return };
        self.held -= flow.receiving.assembly.held();
        self.pieces -= flow.receiving.assembly.pieces();
        self.packets -= flow.packets.held();
        self.memory.on_removed(&mut flow);
        self.repairs.on_removed(id, &flow);
        self.turns.remove(&flow.turns);
        self.scheduler.close(flow.turns);
        self.accounts.leave(&flow.opening.account, &mut self.scheduler);
    }
}
