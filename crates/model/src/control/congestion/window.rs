//! Shared by Reno, CUBIC and Westwood+: window, threshold, slow start, and undo.

use super::slow_start::Start;
use super::{Ack, Config, Counting, Cut, Phase, Snapshot};

/// RFC 5681 equation 4: a threshold is at least two segments.
const LEAST_THRESHOLD: f64 = 2.0;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Window {
    size: f64,
    threshold: f64,
    /// At first and after an idle time.
    initial: f64,
    counting: Counting,
    cut: Cut,
    only_when_limited: bool,
    start: Start,
    /// Slow start follows a time-out.
    after_timeout: bool,
    before: Option<Before>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Before {
    size: f64,
    threshold: f64,
    start: Start,
    after_timeout: bool,
}

impl Window {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            size: config.initial_window,
            threshold: config.initial_threshold,
            initial: config.initial_window,
            counting: config.counting,
            cut: config.cut,
            only_when_limited: config.grow_only_when_limited,
            start: Start::new(config.slow_start),
            after_timeout: false,
            before: None,
        }
    }

    pub(super) const fn size(&self) -> f64 {
        self.size
    }

    pub(super) const fn threshold(&self) -> f64 {
        self.threshold
    }

    pub(super) const fn may_grow(&self, ack: &Ack) -> bool {
        !ack.recovering && (ack.limited || !self.only_when_limited)
    }

    /// Grows by slow start's part of an ACK; returns the segments left for avoidance.
    pub(super) fn slow_start(&mut self, ack: &Ack) -> f64 {
        if self.size >= self.threshold {
            return ack.acked;
        }
        let divisor = self.start.divisor();
        let left = match self.counting {
            // passing the threshold by a part of a segment, as one does that counts ACKs
            Counting::PerAck => {
                self.size += 1.0 / divisor;
                0.0
            }
            Counting::Bytes { limit } => {
                let counted = ack.acked.min(if self.after_timeout { 1.0 } else { limit });
                let room = (self.threshold - self.size) * divisor;
                self.size = (self.size + counted / divisor).min(self.threshold);
                (counted - room).max(0.0)
            }
        };
        if self.start.ends(ack, self.size) {
            self.threshold = self.size.max(LEAST_THRESHOLD);
        }
        self.after_timeout &= self.size < self.threshold;
        left
    }

    /// How often avoidance's step for one ACK is to be taken, with `left` segments acknowledged.
    pub(super) const fn steps(&self, left: f64) -> f64 {
        match self.counting {
            Counting::PerAck => 1.0,
            Counting::Bytes { .. } => left,
        }
    }

    pub(super) fn grow_to(&mut self, size: f64) {
        self.size = self.size.max(size);
    }

    /// Threshold and window become `to`, never raised. Cut to whole segments the window may be 1.
    pub(super) fn reduce(&mut self, to: f64) {
        self.remember();
        self.threshold = self.cut(to).max(LEAST_THRESHOLD);
        let size = match self.cut {
            Cut::Neither => self.threshold,
            Cut::Threshold => to.max(1.0),
            Cut::Both => self.cut(to).max(1.0),
        };
        self.size = self.size.min(size);
        self.start.on_loss();
    }

    /// A time-out: a window of one segment. For the same segment `again`, the threshold stays.
    pub(super) fn collapse(&mut self, threshold: f64, again: bool) {
        if !again {
            self.remember();
            self.threshold = self.cut(threshold).max(LEAST_THRESHOLD);
        }
        self.size = 1.0;
        self.after_timeout = true;
        self.start.on_timeout();
    }

    /// RFC 5681 §4.1: the smaller of initial and current window; the threshold remembers the
    /// latter.
    pub(super) fn restart(&mut self) {
        self.size = self.size.min(self.initial);
    }

    pub(super) const fn cap(&mut self, most: f64) {
        self.size = self.size.min(most).max(1.0);
    }

    /// Undoes the last reduction unless the window has grown past it; returns whether it did.
    pub(super) fn undo(&mut self) -> bool {
        match self.before.take() {
            Some(before) if self.size <= before.size => {
                self.size = before.size;
                self.threshold = before.threshold;
                self.start = before.start;
                self.after_timeout = before.after_timeout;
                true
            }
            _ => false,
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let phase = match self.size < self.threshold {
            true if self.start.divisor() > 1.0 => Phase::ConservativeSlowStart,
            true => Phase::SlowStart,
            false => Phase::Avoidance,
        };
        Snapshot { window: self.size, threshold: self.threshold, phase, ..Snapshot::default() }
    }

    const fn remember(&mut self) {
        self.before = Some(Before {
            size: self.size,
            threshold: self.threshold,
            start: self.start,
            after_timeout: self.after_timeout,
        });
    }

    fn cut(&self, segments: f64) -> f64 {
        if self.cut == Cut::Neither { segments } else { libm::floor(segments) }
    }
}

/// The methods of a [`super::Control`] that its `window` answers alone.
macro_rules! by_window {
    () => {
        fn cap(&mut self, most: f64) {
            self.window.cap(most);
        }
        fn window(&self) -> f64 {
            self.window.size()
        }
        fn threshold(&self) -> f64 {
            self.window.threshold()
        }
    };
}
pub(super) use by_window;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::congestion::SlowStart;
    use crate::testing::*;

    fn config(slow_start: SlowStart) -> Config {
        let counting = Counting::Bytes { limit: 2.0 };
        Config { initial_window: 1.2, slow_start, counting, ..Config::default() }
    }

    fn ack(una: u64, acked: f64, rtt_ms: u64) -> Ack {
        Ack {
            now: Time::ZERO,
            acked,
            in_flight: 8.0,
            rtt: Some(ms(rtt_ms)),
            smoothed: ms(rtt_ms),
            limited: true,
            una,
            next: una + 7,
            recovering: false,
        }
    }

    /// Rounds of eight small ACKs, one for each RTT.
    fn rounds(window: &mut Window, una: &mut u64, rtts: &[u64]) {
        for rtt_ms in rtts {
            for _ in 0..8 {
                *una += 1;
                window.slow_start(&ack(*una, 0.01, *rtt_ms));
            }
        }
    }

    #[test]
    fn hystart_ends_slow_start_at_two_segments_or_more() {
        let mut window = Window::new(&config(SlowStart::HyStartPlusPlus));
        let mut una = 0;
        rounds(&mut window, &mut una, &[100, 130, 130]);
        assert_eq!(window.snapshot().phase, Phase::ConservativeSlowStart);
        let before = window.size();
        rounds(&mut window, &mut una, &[130]);
        assert!((window.size() - before - 8.0 * 0.01 / 4.0).abs() < 1e-12, "a quarter");
        rounds(&mut window, &mut una, &[130, 130, 130]);
        assert_eq!((window.threshold(), window.size() < 2.0), (2.0, true));
        let mut large =
            Window::new(&Config { initial_window: 10.0, ..config(SlowStart::HyStartPlusPlus) });
        rounds(&mut large, &mut una, &[100, 130, 130, 130, 130, 130, 130]);
        assert_eq!(large.snapshot().phase, Phase::Avoidance);
        assert_eq!(large.threshold(), large.size());
    }

    #[test]
    fn only_the_first_slow_start_is_watched_and_undoing_gives_the_watch_back() {
        let reductions: [fn(&mut Window); 2] =
            [|window| window.reduce(4.0), |window| window.collapse(4.0, false)];
        for reduce in reductions {
            let phase = |undone: bool| {
                let mut window = Window::new(&config(SlowStart::HyStartPlusPlus));
                reduce(&mut window);
                assert!(!undone || window.undo());
                rounds(&mut window, &mut 0, &[100, 130]);
                window.snapshot().phase
            };
            assert_eq!(phase(false), Phase::SlowStart);
            assert_eq!(phase(true), Phase::ConservativeSlowStart);
        }
    }

    #[test]
    fn undone_timeout_restores_the_window_by_ack_count() {
        let mut window = Window::new(&config(SlowStart::Standard));
        window.collapse(4.0, false);
        assert!(window.undo());
        window.slow_start(&ack(1, 2.0, 100));
        assert_eq!(window.size(), 3.2);
    }
}
