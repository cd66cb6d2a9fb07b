//! Repair with a scoreboard: recovery by RFC 6675 or RACK, tail probes, F-RTO.

use super::super::prr::Prr;
use super::super::{Acknowledgement, Block, DUPLICATES, Reason, Segment};
use super::repair::{Engine, Selecting};
use super::{Sampling, Sender, Spurious};
use crate::control::congestion::Control;
use crate::units::{Span, Time};

/// How long a lone segment's acknowledgement may be delayed (RFC 8985 §7.2: WCDelAckT).
const DELAYED: Span = Span::from_millis(200);
/// Silence before a probe while no round trip is known (RFC 8985 §7.2).
const UNMEASURED: Span = Span::from_secs(1);

impl Sender {
    fn selecting(&mut self) -> Option<&mut Selecting> {
        match &mut self.engine {
            Engine::Board(selecting) => Some(selecting.as_mut()),
            Engine::Duplicates(_) | Engine::Piping(_) => None,
        }
    }

    pub(super) fn on_selective(&mut self, now: Time, ack: &Acknowledgement) {
        let acked = ack.ack - self.una;
        let Some(selecting) = self.selecting() else { return };
        let news = selecting.board.on_ack(now, ack);
        if acked > 0 {
            selecting.duplicates = 0;
        } else if news.sacked {
            selecting.duplicates += 1;
            self.count.duplicates += 1;
        }
        let rtt = match self.config.sampling {
            Sampling::Timestamps if acked > 0 => ack.echo.map(|sent| self.on_sample(sent, now)),
            Sampling::Timestamps => None,
            Sampling::OnePerWindow => news.sample.map(|sent| self.on_sample(sent, now)),
        };
        let una = ack.ack;
        if self.selecting().and_then(|s| s.recover).is_some_and(|recover| una >= recover) {
            self.leave();
        }
        if news.delivered > 0 {
            let recovering = self.engine.recovering() && !self.engine.timed_out();
            // only in-order data opens the window (RFC 5681 §3.1), and no ACK that echoes a mark
            // (RFC 3168 §6.1.2)
            let still = recovering || acked == 0 || ack.marked;
            self.grow(now, news.delivered, rtt, still);
        }
        self.una = una;
        self.next = self.next.max(una);
        self.watch_originals(now, acked > 0, news.original);
        self.after_probe(now, news.twice);
        self.judge(now);
        if let Some(Selecting { prr: Some(prr), board, .. }) = self.selecting() {
            prr.on_ack(news.delivered, board.pipe);
        }
        if acked > 0 {
            self.arm_or_stop(now);
        }
        self.schedule_probe(now);
    }

    fn leave(&mut self) {
        self.spurious = Spurious::No;
        if let Some(selecting) = self.selecting() {
            selecting.recover = None;
            selecting.timed_out = false;
            selecting.prr = None;
            selecting.first = false;
        }
    }

    /// F-RTO: what was sent once only and arrives after the timeout was never lost.
    fn watch_originals(&mut self, now: Time, advanced: bool, original: bool) {
        match self.spurious {
            Spurious::No => {}
            _ if original => self.on_spurious(now),
            Spurious::First if advanced && self.has_new() => {
                self.spurious = Spurious::Second(2);
            }
            Spurious::First if !advanced => {}
            Spurious::First | Spurious::Second(_) => self.spurious = Spurious::No,
        }
    }

    /// Marks what must be lost, and begins recovery if anything is.
    fn judge(&mut self, now: Time) {
        let smoothed = self.rto.smoothed().unwrap_or_default();
        let recovering = self.engine.recovering();
        let Some(selecting) = self.selecting() else { return };
        let mut found = selecting.board.judge(now, smoothed, recovering);
        if !recovering && selecting.duplicates >= DUPLICATES && !selecting.config.rack {
            selecting.board.lose_first();
            found = true;
        }
        if found && !recovering {
            self.enter(now);
        }
    }

    fn enter(&mut self, now: Time) {
        let basis = self.basis();
        self.control.on_loss(now, basis);
        self.count.recoveries += 1;
        let (max, mss) = (self.max, self.mss);
        let outstanding = self.max - self.una;
        let threshold = (self.control.threshold() * mss as f64) as u64;
        self.arm(now);
        if let Some(selecting) = self.selecting() {
            selecting.recover = Some(max);
            selecting.first = true;
            selecting.probe = Time::NEVER;
            let proportional = selecting.config.proportional;
            selecting.prr = proportional.then(|| Prr::new(threshold, outstanding, mss));
        }
    }

    pub(super) fn on_selective_deadline(&mut self, now: Time) {
        let Some(selecting) = self.selecting() else { return };
        if selecting.board.deadline() <= now {
            self.judge(now);
        }
        let Some(selecting) = self.selecting() else { return };
        if selecting.probe <= now {
            selecting.probe = Time::NEVER;
            selecting.send_probe = true;
            self.count.probes += 1;
            self.arm(now);
        }
    }

    /// RFC 8985 §7.2: while nothing is known to be missing, one probe after two round trips of silence.
    pub(super) fn schedule_probe(&mut self, now: Time) {
        if !matches!(self.engine, Engine::Board(_)) {
            return;
        }
        let outstanding = self.max - self.una;
        let smoothed = self.rto.smoothed();
        let (mss, timer) = (self.mss, self.timer);
        let Some(selecting) = self.selecting() else { return };
        let quiet = selecting.recover.is_none() && !selecting.board.has_holes();
        let wanted = selecting.config.tail_probe && quiet && selecting.probing.is_none();
        selecting.probe = Time::NEVER;
        if wanted && outstanding > 0 {
            let lone = if outstanding <= mss { DELAYED } else { Span::ZERO };
            let silence = smoothed.map_or(UNMEASURED, |smoothed| smoothed.saturating_mul(2) + lone);
            selecting.probe = (now + silence).min(timer);
        }
    }

    /// A probe's flight is acknowledged: without a DSACK it repaired an unnoticed loss (RFC 8985
    /// §7.4.2).
    fn after_probe(&mut self, now: Time, twice: Option<Block>) {
        let una = self.una;
        let Some(selecting) = self.selecting() else { return };
        let Some((end, again)) = selecting.probing else { return };
        if again && twice.is_some_and(|block| block.end >= end) {
            selecting.probing = None;
        } else if una >= end {
            selecting.probing = None;
            if again && twice.is_none() && selecting.recover.is_none() {
                let basis = self.basis();
                self.control.on_loss(now, basis);
            }
        }
    }

    fn probe(&mut self) -> Option<Segment> {
        let edge = self.una + self.peer_window;
        let fresh = (self.end - self.next).min(self.mss);
        let segment = if fresh > 0 && self.next + fresh <= edge {
            Segment { start: self.next, len: fresh as u32, reason: Reason::New, reduced: false }
        } else {
            let last = self.selecting()?.board.last()?;
            let len = last.len() as u32;
            Segment { start: last.start, len, reason: Reason::Probe, reduced: false }
        };
        let end = self.max.max(segment.end());
        self.selecting()?.probing = Some((end, segment.reason == Reason::Probe));
        Some(segment)
    }

    pub(super) fn next_by_board(&mut self) -> Option<Segment> {
        if core::mem::take(&mut self.selecting()?.send_probe) {
            return self.probe();
        }
        let window = self.control.window() as u64 * self.mss;
        let outstanding = self.max - self.una;
        let new_only = matches!(self.spurious, Spurious::Second(_));
        let selecting = self.selecting()?;
        let repairing = selecting.recover.is_some();
        let counted = repairing || selecting.config.limited_transmit;
        let flight = if counted { selecting.board.pipe } else { outstanding };
        let room = match &selecting.prr {
            Some(prr) => prr.room(),
            None => window.saturating_sub(flight),
        };
        if let Some(lost) = selecting.board.next_lost().filter(|_| repairing && !new_only) {
            let reason = if selecting.timed_out { Reason::Timeout } else { Reason::Selective };
            if room < lost.len() && !core::mem::take(&mut selecting.first) {
                self.limited = true;
                return None;
            }
            selecting.first = false;
            let len = lost.len() as u32;
            return Some(Segment { start: lost.start, len, reason, reduced: false });
        }
        let limit = match self.spurious {
            Spurious::Second(0) => return None,
            Spurious::Second(_) => u64::MAX,
            _ => self.next + room,
        };
        self.cut_and_count(limit)
    }
}
