//! Repair by counting data in flight: see [`crate::network::tcp::sack_pipe`].

use super::super::{Acknowledgement, Reason, Segment};
use super::Sender;
use super::repair::Engine;
use crate::control::congestion::Control;
use crate::network::tcp::sack_pipe::Verdict;
use crate::units::Time;

impl Sender {
    pub(super) fn on_piped(&mut self, now: Time, ack: &Acknowledgement) {
        let Engine::Piping(piping) = &mut self.engine else { return };
        let verdict = piping.on_ack(ack, self.una, self.max, self.mss);
        match verdict {
            Verdict::Nothing => {}
            Verdict::Duplicate => self.count.duplicates += 1,
            Verdict::New => {
                let rtt = self.sample(now, ack);
                self.grow(now, ack.ack - self.una, rtt, ack.marked);
                self.advance(ack.ack);
                self.arm_or_stop(now);
            }
            Verdict::Enter => {
                self.count.duplicates += 1;
                self.count.recoveries += 1;
                let basis = self.basis();
                self.control.on_loss(now, basis);
                self.arm(now);
                self.timed = None;
            }
            Verdict::Partial => {
                self.rto.on_progress();
                self.advance(ack.ack);
                self.arm(now);
            }
            // the window does not open
            Verdict::Exit => {
                let _rtt = self.sample(now, ack);
                self.advance(ack.ack);
                self.arm_or_stop(now);
            }
        }
    }

    pub(super) fn next_by_piping(&mut self) -> Option<Segment> {
        let window = self.control.window() as u64;
        let (una, max, mss) = (self.una, self.max, self.mss);
        let Engine::Piping(piping) = &mut self.engine else { return None };
        if piping.resend {
            piping.on_first();
            let len = (max - una).min(mss) as u32;
            return Some(Segment { start: una, len, reason: Reason::Fast, reduced: false });
        }
        if !piping.recovering {
            if piping.budget == 0 {
                return None;
            }
            let limit = una + (window + piping.extra()) * mss;
            return self.cut(limit);
        }
        if piping.pipe >= window as i64 {
            return None;
        }
        if let Some(hole) = piping.hole(una, mss) {
            self.next = self.next.max(hole.end.min(max));
            let len = (max.min(hole.end) - hole.start) as u32;
            return Some(Segment {
                start: hole.start,
                len,
                reason: Reason::Selective,
                reduced: false,
            });
        }
        self.cut(u64::MAX)
    }
}
