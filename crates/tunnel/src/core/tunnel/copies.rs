//! Interactive data is sent once more a little later, as a datagram: a loss then costs no round trip. All else
//! that is lost quinn-proto sends again.

use super::Tunnel;
use super::repair::{LEAST_ROOM, QUEUE};
use crate::core::flow::Flow;
use crate::core::lane::Lane;
use crate::frame::{Frame, data_overhead};
use bytes::Bytes;
use ekiden_model::units::{Span, Time};

/// The quickest repair by the peer's acknowledgement is quicker than a copy on paths shorter than this.
const COPY_FROM: Span = Span::from_millis(40);
/// δ, the delay of a copy: a sixteenth of the round trip, so that two copies and their answers'
/// stay well below a second one, yet beyond a burst of losses where possible (algorithms/satellite
/// E.2: up to 19 packets, 57 ms at 4 Mbit/s).
const COPY_AFTER: (Span, Span) = (Span::from_millis(5), Span::from_millis(40));
/// Above these losses a second, third and fourth copy follows, each as long after the one before.
/// A keystroke that is lost with all its copies holds up those of a round trip behind it.
const COPY_MORE: [f64; MOST - 1] = [COPY_AGAIN, COPY_CLOSER, 0.12];
pub(super) const COPY_AGAIN: f64 = 0.005;
/// So many losses are not bursts: copies follow one another after half of δ, so that one echo of a hundred
/// is late by a tenth of the round trip at 10 % and 20 %.
const COPY_CLOSER: f64 = 0.05;
/// Copies of the same.
pub(super) const MOST: usize = 4;
/// Copies' part of the rate, so that many who type at once do not crowd out what they copy.
const PART: u64 = 4;

/// A copy that waits for its time.
#[derive(Debug)]
pub(super) struct ScheduledCopy {
    due: Time,
    bytes: Bytes,
    /// The flow and the offset of the data in it.
    data: Option<(u64, u64)>,
}

impl ScheduledCopy {
    pub(super) const fn due(&self) -> Time {
        self.due
    }
}

/// What copies may still take of the rate: bytes, earned over a second at most.
#[derive(Debug)]
pub(super) struct CopyBudget {
    left: u64,
    since: Time,
}

impl CopyBudget {
    pub(super) const fn new(now: Time) -> Self {
        Self { left: u64::MAX, since: now }
    }

    /// Takes so many bytes at a rate in bytes per second; `false` where too few are left.
    fn take(&mut self, now: Time, bytes: u64, rate: u64) -> bool {
        let nanos = now.since(self.since).min(Span::from_secs(1)).as_nanos();
        let earned = u128::from(rate / PART) * u128::from(nanos) / 1_000_000_000;
        let earned = u64::try_from(earned).unwrap_or(u64::MAX);
        if earned > 0 {
            self.since = now;
        }
        self.left = self.left.saturating_add(earned).min(rate / PART);
        let fits = bytes <= self.left;
        self.left -= if fits { bytes } else { 0 };
        fits
    }
}

impl Tunnel {
    /// Bytes of a flow's data at an offset that fit into a copy, and into a repair, where there may be one.
    pub(super) fn repeatable(&mut self, header: usize, offset: u64) -> u64 {
        let copied = self.lanes[0].as_mut().map_or(0, Lane::datagram_room);
        let copied = copied.saturating_sub(header + data_overhead(offset)) as u64;
        let copied = Some(copied).filter(|room| *room >= u64::from(LEAST_ROOM)).unwrap_or(u64::MAX);
        copied.min(self.repairable(header))
    }

    /// Schedules copies; whether there is one.
    pub(super) fn copy(&mut self, now: Time, bytes: Bytes, data: Option<(u64, u64)>) -> bool {
        let Some(rtt) = self.rtt().filter(|rtt| *rtt >= COPY_FROM) else { return false };
        if self.lanes[0].as_mut().is_none_or(|lane| bytes.len() > lane.datagram_room()) {
            return false;
        }
        let after = Span::from_nanos(rtt.as_nanos() / 16).clamp(COPY_AFTER.0, COPY_AFTER.1);
        let closer = self.loss.lately() > COPY_CLOSER;
        let after = if closer { Span::from_nanos(after.as_nanos() / 2) } else { after };
        let more = COPY_MORE.iter().filter(|loss| self.loss.lately() > **loss).count();
        let rate = self.hold.rate().as_bytes_per_second();
        let mut any = false;
        for (queue, nth) in self.copies.iter_mut().zip(1..=1 + more as u64) {
            if !self.copy_budget.take(now, bytes.len() as u64, rate) {
                break;
            }
            let due = now + after.saturating_mul(nth);
            // in order, though the round trip changes
            let due = queue.back().map_or(due, |last: &ScheduledCopy| last.due.max(due));
            queue.push_back(ScheduledCopy { due, bytes: bytes.clone(), data });
            any = true;
        }
        any
    }

    pub(super) fn send_due_copies(&mut self, now: Time) {
        let useless = self.rtt().map_or(Span::ZERO, |rtt| Span::from_nanos(rtt.as_nanos() / 2));
        for queue in &mut self.copies {
            while queue.pop_front_if(|copy| now.since(copy.due) > useless).is_some() {}
        }
        // a copy saves a round trip where one of a hundred packets is lost; before others' first bytes it costs each of
        // them its own time
        if self.scheduler.snapshot().waiting[0] > 0 && self.may_send_interactive() {
            return;
        }
        let rate = self.hold.rate().as_bytes_per_second();
        // where packets wait more bytes would only lengthen the queue
        let seen = self.hold.snapshot();
        let late = Span::from_nanos(seen.base.as_nanos() / 2 * 5);
        let free = |flow: &Flow| {
            let oldest = flow.sending.repairs.oldest();
            seen.queue < QUEUE && oldest.is_none_or(|sent| now.since(sent) <= late)
        };
        for queue in &mut self.copies {
            while let Some(copy) = queue.pop_front_if(|copy| copy.due <= now) {
                let Some(lane) = self.lanes[0].as_mut().filter(|lane| lane.connected) else {
                    continue;
                };
                let room = lane.datagram_room();
                let flow =
                    copy.data.and_then(|(id, offset)| Some((id, self.flows.get(&id)?, offset)));
                let flow = flow.filter(|(_, flow, _)| free(flow));
                let bytes =
                    flow.and_then(|(id, flow, offset)| with_those_before(id, flow, offset, room));
                // what is more than the copy alone is taken from the copies' part, too
                let more =
                    bytes.as_ref().map_or(0, |all| all.len().saturating_sub(copy.bytes.len()));
                let bytes = bytes.filter(|_| self.copy_budget.take(now, more as u64, rate));
                let bytes = bytes.unwrap_or(copy.bytes);
                let length = bytes.len() as u64;
                if lane.send_datagram(bytes) {
                    self.counts.copies += 1;
                    self.counts.copied += length;
                }
            }
        }
    }
}

/// A copy of data with the unacknowledged data just before it, so that one that arrives makes up for all that
/// were lost. `None` where that is not known: then it goes alone.
fn with_those_before(id: u64, flow: &Flow, offset: u64, room: usize) -> Option<Bytes> {
    let mut bytes = flow.header(id).to_bytes();
    let room = room.saturating_sub(bytes.len());
    let mut data = flow.sending.repairs.copied_with(offset, data_overhead(offset), room);
    if data.is_empty() {
        return None;
    }
    data.reverse();
    for (offset, piece) in data {
        Frame::Data { offset, bytes: piece.clone() }.write(&mut bytes);
    }
    Some(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// In any time no more than a quarter of the rate is copied, and of a second before.
        #[test]
        fn copies_keep_to_their_part(
            rate in 1_000_u64..10_000_000,
            asked in prop::collection::vec((0_u64..2_000_000, 0_u64..3_000), 1..200),
        ) {
            let mut budget = CopyBudget::new(Time::ZERO);
            let (mut now, mut copied) = (Time::ZERO, 0);
            for (micros, bytes) in asked {
                now += Span::from_micros(micros);
                copied += if budget.take(now, bytes, rate) { bytes } else { 0 };
                let seconds = now.since(Time::ZERO).as_secs_f64() + 1.0;
                prop_assert!(copied as f64 <= rate as f64 / PART as f64 * seconds);
            }
        }
    }
}
