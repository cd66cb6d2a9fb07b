//! How far flows may be sent: each by itself, and all of them together.

use super::super::{Event, FlowId};
use super::Tunnel;
use crate::frame::Frame;
use crate::reason::Reason;
use ekiden_model::units::{self, Span, Time};

/// Memory that a flow holds whose bytes nobody takes is wanted back after so long.
const STALLED: Span = Span::from_secs(10);

impl Tunnel {
    /// What a flow may have under way and waiting here: what the path holds six times at the rate we want to
    /// receive, within half the memory. What comes after a loss waits for its repeat, and that may be lost
    /// too: at 5 % and a thousand packets a round trip every eighth round trip has a packet lost three times.
    pub(super) fn window(&self) -> u64 {
        let rtt = self.rtt().unwrap_or(Span::from_millis(100)) + Span::from_millis(100);
        let bytes =
            u128::from(self.terms.receive.as_bytes_per_second()) * u128::from(rtt.as_nanos()) * 6
                / 1_000_000_000;
        let most = (self.limits.memory.as_u64() / 2).max(64 * 1024);
        u64::try_from(bytes).unwrap_or(u64::MAX).clamp((256 * 1024).min(most), most)
    }

    pub(super) fn on_credit(&mut self, flow: u64, limit: u64) {
        if let Some(known) = self.flows.get_mut(&flow) {
            known.sending.limit = known.sending.limit.max(limit);
            self.offer(flow);
        }
    }

    /// Tells the scheduler of what may be sent.
    pub(super) fn offer(&mut self, id: u64) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let more = flow.sending.offer_more();
        if more > 0 {
            self.scheduler.on_waiting(flow.turns, units::Bytes::new(more));
        }
    }

    /// So many of the peer's bytes take no room here any more.
    pub(super) fn release(&mut self, bytes: u64) {
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

    /// When most of the memory is held, the flow that holds most of it and has not taken any for long is
    /// given up: it would stop all others.
    pub(super) fn relieve(&mut self, now: Time) {
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

    pub(super) fn peer_has_room(&self) -> bool {
        self.total_sent < self.total_limit && self.lanes.iter().flatten().any(|lane| lane.connected)
    }
}
