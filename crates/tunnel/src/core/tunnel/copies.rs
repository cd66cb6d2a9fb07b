//! Interactive data is sent once more a little later, as a datagram: a loss then costs no round trip. All else
//! that is lost quinn-proto sends again.

use super::{ScheduledCopy, Tunnel};
use bytes::Bytes;
use ekiden_model::units::{Span, Time};

/// The quickest repair by the peer's acknowledgement is quicker than a copy on paths shorter than this.
const COPY_FROM: Span = Span::from_millis(40);
/// δ, the delay of a copy: a sixteenth of the round trip, so that two copies and their answers'
/// stay well below a second one, yet beyond a burst of losses where possible (algorithms/satellite
/// E.2: up to 19 packets, 57 ms at 4 Mbit/s).
const COPY_AFTER: (Span, Span) = (Span::from_millis(5), Span::from_millis(40));
/// Above this loss a second copy follows, as long after the first. At 5 % one of 400 pairs is lost,
/// and each holds up a round trip's keystrokes.
pub(super) const COPY_AGAIN: f64 = 0.005;

impl Tunnel {
    pub(super) fn copy(&mut self, now: Time, bytes: Bytes) {
        let Some(rtt) = self.rtt().filter(|rtt| *rtt >= COPY_FROM) else { return };
        let after = Span::from_nanos(rtt.as_nanos() / 16).clamp(COPY_AFTER.0, COPY_AFTER.1);
        let again = self.lately > COPY_AGAIN;
        for (queue, nth) in self.copies.iter_mut().zip(1..=1 + u64::from(again)) {
            let due = now + after.saturating_mul(nth);
            // in order, though the round trip changes
            let due = queue.back().map_or(due, |last: &ScheduledCopy| last.due.max(due));
            queue.push_back(ScheduledCopy { due, bytes: bytes.clone() });
        }
    }

    pub(super) fn send_due_copies(&mut self, now: Time) {
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
}
