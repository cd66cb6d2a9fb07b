//! Which engine repairs losses, and the one that counts duplicates.

use super::super::prr::Prr;
use super::super::{Acknowledgement, Repair, Segment, Selective, Variant};
use super::{Sender, SenderConfig, Spurious};
use crate::control::congestion::Control;
use crate::network::tcp::dupack::{Duplicates, Verdict};
use crate::network::tcp::sack_pipe::Piping;
use crate::network::tcp::scoreboard::Board;
use crate::units::Time;
use alloc::boxed::Box;

#[derive(Debug, Clone)]
pub(super) enum Engine {
    Duplicates(Duplicates),
    Board(Box<Selecting>),
    Piping(Piping),
}

#[derive(Debug, Clone)]
pub(super) struct Selecting {
    pub(super) config: Selective,
    pub(super) board: Board,
    /// Recovery, or repair after a timeout, ends when all below is acknowledged.
    pub(super) recover: Option<u64>,
    /// It was a timeout that began it.
    pub(super) timed_out: bool,
    pub(super) prr: Option<Prr>,
    pub(super) duplicates: u32,
    pub(super) probe: Time,
    /// A probe is out: where the flight ended, and whether it was sent for the second time.
    pub(super) probing: Option<(u64, bool)>,
    pub(super) send_probe: bool,
    /// The first segment of a recovery leaves whatever the window (RFC 6675 §5 step 4.3).
    pub(super) first: bool,
}

impl Engine {
    pub(super) fn new(config: &SenderConfig) -> Self {
        match config.repair {
            Repair::Counting(counting) => Self::Duplicates(Duplicates::new(counting)),
            Repair::Piping => Self::Piping(Piping::new()),
            Repair::Selective(selective) => Self::Board(Box::new(Selecting {
                config: selective,
                board: Board::new(config.mss, selective.rack),
                recover: None,
                timed_out: false,
                prr: None,
                duplicates: 0,
                probe: Time::NEVER,
                probing: None,
                send_probe: false,
                first: false,
            })),
        }
    }

    pub(super) fn extra(&self) -> u64 {
        match self {
            Self::Duplicates(duplicates) => duplicates.extra(),
            Self::Piping(piping) => piping.extra(),
            Self::Board(_) => 0,
        }
    }

    pub(super) const fn recovering(&self) -> bool {
        match self {
            Self::Duplicates(duplicates) => duplicates.recovering,
            Self::Piping(piping) => piping.recovering,
            Self::Board(selecting) => selecting.recover.is_some(),
        }
    }

    /// Whether repair after a timeout is going on.
    pub(super) const fn timed_out(&self) -> bool {
        match self {
            Self::Duplicates(duplicates) => duplicates.timed_out(),
            Self::Piping(piping) => piping.timed_out(),
            Self::Board(selecting) => selecting.timed_out,
        }
    }

    pub(super) const fn f_rto(&self) -> bool {
        match self {
            Self::Duplicates(duplicates) => duplicates.config.f_rto,
            Self::Piping(_) => false,
            Self::Board(selecting) => selecting.config.f_rto,
        }
    }

    pub(super) fn deadline(&self) -> Time {
        match self {
            Self::Duplicates(_) | Self::Piping(_) => Time::NEVER,
            Self::Board(selecting) => selecting.probe.min(selecting.board.deadline()),
        }
    }

    /// The application has written: what an acknowledgement allowed is no limit any more.
    pub(super) const fn unlimited(&mut self) {
        match self {
            Self::Duplicates(duplicates) => duplicates.budget = u32::MAX,
            Self::Piping(piping) => piping.budget = u32::MAX,
            Self::Board(_) => {}
        }
    }

    pub(super) fn on_sent(&mut self, now: Time, segment: &Segment, fresh: bool) {
        match self {
            Self::Duplicates(duplicates) => {
                duplicates.budget = duplicates.budget.saturating_sub(1);
            }
            Self::Piping(piping) => piping.on_sent(),
            Self::Board(selecting) => {
                if fresh {
                    selecting.board.on_sent(now, segment.end());
                } else {
                    selecting.board.on_sent_again(now, segment.start);
                }
                if let Some(prr) = &mut selecting.prr {
                    prr.on_sent(segment.len.into());
                }
            }
        }
    }

    pub(super) fn on_timeout(&mut self, max: u64) {
        match self {
            Self::Duplicates(duplicates) => duplicates.on_timeout(max),
            Self::Piping(piping) => piping.on_timeout(max),
            Self::Board(selecting) => {
                selecting.board.lose_all();
                selecting.recover = Some(max);
                selecting.timed_out = true;
                selecting.prr = None;
                selecting.duplicates = 0;
                selecting.probe = Time::NEVER;
                selecting.probing = None;
                selecting.send_probe = false;
            }
        }
    }

    /// The timeout was spurious.
    pub(super) fn found(&mut self) {
        match self {
            Self::Duplicates(duplicates) => duplicates.on_found(),
            Self::Piping(_) => {}
            Self::Board(selecting) => {
                selecting.board.find_all();
                selecting.recover = None;
                selecting.timed_out = false;
            }
        }
    }
}

impl Sender {
    /// An acknowledgement of something new, duplicates being counted.
    pub(super) fn on_new(&mut self, now: Time, ack: &Acknowledgement) {
        let acked = ack.ack - self.una;
        let segments = acked.div_ceil(self.mss);
        let Engine::Duplicates(duplicates) = &mut self.engine else { return };
        let past = duplicates.is_past(ack.ack);
        let verdict = duplicates.on_new(ack.ack, segments);
        if let Verdict::Partial { restart_timer, deflate } = verdict {
            if deflate > 0 {
                let window = self.control.window() - deflate as f64;
                self.control.cap(window.max(1.0));
            }
            if restart_timer {
                self.arm(now);
            }
            if self.timed.take_if(|(end, _)| *end <= ack.ack).is_some() {
                self.rto.on_progress();
            }
            self.advance(ack.ack);
            return;
        }
        let rtt = self.sample(now, ack);
        if verdict == Verdict::Exit && self.exits_to_flight() {
            let flight = self.segments(self.max - ack.ack).max(1.0) + 1.0;
            self.control.cap(flight.min(self.control.threshold()));
        }
        self.grow(now, acked, rtt, ack.marked);
        self.advance(ack.ack);
        self.arm_or_stop(now);
        self.watch(now, past);
    }

    fn exits_to_flight(&self) -> bool {
        matches!(&self.engine, Engine::Duplicates(duplicates) if duplicates.config.exit_to_flight)
    }

    pub(super) fn advance(&mut self, ack: u64) {
        self.una = ack;
        self.next = self.next.max(ack);
    }

    /// F-RTO after an acknowledgement of something new (RFC 5682 §2.1).
    fn watch(&mut self, now: Time, past: bool) {
        match self.spurious {
            Spurious::No => {}
            _ if past => self.spurious = Spurious::No,
            Spurious::First => {
                // new data instead of old, if any may go (RFC 5682 step 2b)
                if self.has_new() {
                    self.spurious = Spurious::Second(2);
                    self.next = self.max;
                } else {
                    self.spurious = Spurious::No;
                }
            }
            Spurious::Second(_) => self.on_spurious(now),
        }
    }

    pub(super) fn on_duplicate(&mut self, now: Time) {
        self.count.duplicates += 1;
        if matches!(self.spurious, Spurious::Second(_)) {
            // the timeout was right: go back after all
            self.next = self.una;
        }
        self.spurious = Spurious::No;
        let window = self.control.window();
        let Engine::Duplicates(duplicates) = &mut self.engine else { return };
        if duplicates.on_duplicate(self.una, self.max, window) != Verdict::Enter {
            return;
        }
        let variant = duplicates.config.variant;
        if variant == Variant::Tahoe {
            // slow start from the first outstanding segment instead
            duplicates.resend = None;
        }
        self.count.recoveries += 1;
        let basis = self.basis_before_inflation();
        if variant == Variant::Tahoe {
            self.control.on_timeout(now, basis, false);
            self.next = self.una;
        } else {
            self.control.on_loss(now, basis);
        }
        self.arm(now);
        self.timed = None;
    }

    /// The inflation of the recovery that begins does not count.
    fn basis_before_inflation(&self) -> f64 {
        match self.config.decrease {
            super::Decrease::FromFlight => self.basis(),
            super::Decrease::FromWindow => {
                self.control.window().min(self.segments(self.peer_window))
            }
        }
    }

    pub(super) fn next_by_counting(&mut self) -> Option<Segment> {
        let window = self.control.window() as u64;
        let Engine::Duplicates(duplicates) = &mut self.engine else { return None };
        if let Some(reason) = duplicates.resend.take() {
            duplicates.budget = duplicates.budget.saturating_add(1);
            let len = (self.max - self.una).min(self.mss) as u32;
            return Some(Segment { start: self.una, len, reason, reduced: false });
        }
        if duplicates.budget == 0 {
            return None;
        }
        let limit = match self.spurious {
            Spurious::Second(0) => return None,
            // two segments beyond what is outstanding, whatever the window (RFC 5682 step 2b)
            Spurious::Second(_) => u64::MAX,
            _ => self.una + (window + duplicates.extra()) * self.mss,
        };
        self.cut_and_count(limit)
    }

    /// As [`Sender::cut`]; what F-RTO sends is counted.
    pub(super) fn cut_and_count(&mut self, limit: u64) -> Option<Segment> {
        let segment = self.cut(limit);
        if let Spurious::Second(left) = &mut self.spurious
            && segment.is_some()
        {
            *left -= 1;
        }
        segment
    }
}
