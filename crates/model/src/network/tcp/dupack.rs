//! Loss recovery by duplicate acknowledgements: Tahoe, Reno (RFC 5681 §3.2), NewReno (RFC 6582).

use super::{Counting, DUPLICATES, Reason, Variant};

/// Most segments the last acknowledgement moved by if a retransmission was lost (RFC 6582 §4.1).
const HEURISTIC: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Usual,
    /// A loss: reduce, send the first outstanding segment again.
    Enter,
    /// Another loss in the same window: send the first outstanding segment again.
    Partial {
        /// Whether the timer starts anew.
        restart_timer: bool,
        /// The window shrinks by so many segments.
        deflate: u64,
    },
    /// All that was outstanding when recovery began has arrived.
    Exit,
}

#[derive(Debug, Clone)]
pub(crate) struct Duplicates {
    pub(crate) config: Counting,
    count: u32,
    /// Segments by which the window exceeds the control's.
    inflation: u64,
    /// Everything below was sent before the last loss; `None` before the first.
    recover: Option<u64>,
    pub(crate) recovering: bool,
    after_timeout: bool,
    partial: bool,
    /// Segments by which the last new acknowledgement moved.
    moved: u64,
    /// The first outstanding segment is to be sent again.
    pub(crate) resend: Option<Reason>,
    /// Segments that may still be sent for the last event.
    pub(crate) budget: u32,
}

impl Duplicates {
    pub(crate) const fn new(config: Counting) -> Self {
        Self {
            config,
            count: 0,
            inflation: 0,
            recover: None,
            recovering: false,
            after_timeout: false,
            partial: false,
            moved: 0,
            resend: None,
            budget: u32::MAX,
        }
    }

    /// Whether the data outstanding at a timeout is still being repaired.
    pub(crate) const fn timed_out(&self) -> bool {
        self.after_timeout
    }

    /// Whether all that was sent before the last loss has arrived.
    pub(crate) fn is_past(&self, una: u64) -> bool {
        self.recover.is_none_or(|recover| una >= recover)
    }

    pub(crate) fn extra(&self) -> u64 {
        if self.recovering {
            self.inflation
        } else if self.config.limited_transmit && self.count < DUPLICATES {
            self.count.into()
        } else {
            0
        }
    }

    /// An acknowledgement of nothing new; `window` is the control's, in segments.
    pub(crate) fn on_duplicate(&mut self, una: u64, max: u64, window: f64) -> Verdict {
        self.count += 1;
        self.budget = self.config.burst.unwrap_or(u32::MAX);
        if self.recovering {
            self.inflation += 1;
            return Verdict::Usual;
        }
        if self.count < DUPLICATES {
            self.budget = u32::from(self.config.limited_transmit);
            return Verdict::Usual;
        }
        if self.count > DUPLICATES || !self.may_enter(una, window) {
            return Verdict::Usual;
        }
        self.recover = Some(max);
        self.resend = Some(Reason::Fast);
        if self.config.variant != Variant::Tahoe {
            self.recovering = true;
            self.partial = false;
            self.inflation = DUPLICATES.into();
        }
        Verdict::Enter
    }

    fn may_enter(&self, una: u64, window: f64) -> bool {
        let past = self.recover.is_none_or(|recover| una > recover);
        let heuristic = self.config.ack_heuristic && window > 1.0;
        past || !self.config.careful || (heuristic && self.moved <= HEURISTIC)
    }

    /// An acknowledgement that moves to `ack` by so many segments.
    pub(crate) fn on_new(&mut self, ack: u64, segments: u64) -> Verdict {
        self.moved = segments;
        self.resend = None;
        self.budget = u32::MAX;
        let missing = self.recover.is_some_and(|recover| ack < recover);
        if self.recovering && missing && self.config.variant == Variant::NewReno {
            let restart_timer = !self.config.impatient || !self.partial;
            self.partial = true;
            self.resend = Some(Reason::Partial);
            self.budget = self.config.burst.unwrap_or(u32::MAX);
            return Verdict::Partial { restart_timer, deflate: self.deflate(segments) };
        }
        self.after_timeout &= missing;
        self.count = 0;
        self.inflation = 0;
        if core::mem::take(&mut self.recovering) { Verdict::Exit } else { Verdict::Usual }
    }

    /// Takes departed segments from the inflation; returns the shortfall. One is added for the
    /// retransmission.
    fn deflate(&mut self, segments: u64) -> u64 {
        if !self.config.partial_deflation {
            self.inflation = 0;
            return 0;
        }
        if self.inflation > segments {
            self.inflation -= segments.saturating_sub(1);
            return 0;
        }
        let short = segments - self.inflation;
        self.inflation = 1;
        short
    }

    /// The timer fired; `max` has been sent.
    pub(crate) fn on_timeout(&mut self, max: u64) {
        self.recover = Some(max);
        self.recovering = false;
        self.after_timeout = true;
        self.count = 0;
        self.inflation = 0;
        self.resend = None;
        self.budget = u32::MAX;
    }

    pub(crate) const fn on_found(&mut self) {
        self.after_timeout = false;
        self.budget = u32::MAX;
    }
}
