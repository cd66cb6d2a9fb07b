//! CUBIC (RFC 9438).

use super::window::Window;
use super::{Ack, Config, Control, Snapshot, seconds};
use crate::units::{Span, Time};
use alloc::string::String;

/// CUBIC's constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CubicConfig {
    /// How steep the curve is, in segments/s³; above 0. RFC 9438 §5.1: 0.4.
    pub c: f64,
    /// What is left of the window after a loss; between 0 and 1. RFC 9438 §4.6: 0.7.
    pub beta: f64,
    /// A connection whose windows shrink from loss to loss gives way to newer ones (RFC 9438 §4.7);
    /// off where it has the path for itself.
    pub fast_convergence: bool,
    /// The window is at least what Reno's would be (RFC 9438 §4.3).
    pub friendly: bool,
}

impl Default for CubicConfig {
    fn default() -> Self {
        Self { c: 0.4, beta: 0.7, fast_convergence: true, friendly: true }
    }
}

impl CubicConfig {
    pub(super) fn check(&self) -> Result<(), String> {
        if !self.c.is_finite() || self.c <= 0.0 {
            return Err(alloc::format!("CUBIC's C is {}; it is above 0 (RFC 9438: 0.4)", self.c));
        }
        if self.beta.is_nan() || self.beta <= 0.0 || self.beta >= 1.0 {
            return Err(alloc::format!(
                "CUBIC's β is {}; it is between 0 and 1 (RFC 9438: 0.7)",
                self.beta
            ));
        }
        Ok(())
    }

    /// RFC 9438 §4.3: Reno's growth in segments per RTT that makes AIMD with this β as fast as Reno.
    fn alpha(&self) -> f64 {
        3.0 * (1.0 - self.beta) / (1.0 + self.beta)
    }
}

/// The most by which one RTT's target exceeds the window (RFC 9438 §4.2).
const MOST_GROWTH: f64 = 1.5;

/// A window that grows with time and not with the number of round trips.
#[derive(Debug, Clone, PartialEq)]
pub struct Cubic {
    config: CubicConfig,
    window: Window,
    curve: Curve,
    /// The curve before the last reduction (RFC 9438 §4.9.2).
    before: Curve,
    /// The last ACK's time, and whether it left nothing outstanding.
    last: Time,
    emptied: bool,
}

/// What the window follows in avoidance.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Curve {
    /// Where it is flat, in segments. None before the first loss and after a time-out: then where
    /// avoidance begins (RFC 9438 §4.8, §4.10).
    w_max: Option<f64>,
    /// The window when the threshold was set last, in segments.
    prior: Option<f64>,
    /// From the first ACK in avoidance to the next loss.
    epoch: Option<Epoch>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Epoch {
    /// When it began, moved by the time in which the sender had nothing to send.
    began: Time,
    w_max: f64,
    /// In seconds.
    k: f64,
    /// Reno's window as it would be.
    w_est: f64,
}

impl Epoch {
    /// RFC 9438 equation 1, in segments, `t` seconds after the beginning.
    fn window(&self, c: f64, t: f64) -> f64 {
        let from_flat = t - self.k;
        c * from_flat * from_flat * from_flat + self.w_max
    }
}

impl Cubic {
    /// A connection that has sent nothing.
    #[must_use]
    pub fn new(config: &Config, cubic: CubicConfig, now: Time) -> Self {
        let curve = Curve { w_max: None, prior: None, epoch: None };
        let window = Window::new(config);
        Self { config: cubic, window, curve, before: curve, last: now, emptied: true }
    }

    /// RFC 9438 §4.2, equation 2.
    fn begin(&mut self, now: Time) -> Epoch {
        let size = self.window.size();
        self.curve.prior.get_or_insert(size);
        // without a window to come back to, or above it, the curve begins where it is flat
        let w_max = self.curve.w_max.unwrap_or(size).max(size);
        self.curve.w_max = Some(w_max);
        let k = libm::cbrt((w_max - size) / self.config.c);
        Epoch { began: now, w_max, k, w_est: size }
    }

    /// RFC 9438 §4.2–4.5: one ACK in avoidance, `acked` segments of which count for it.
    fn avoid(&mut self, ack: &Ack, acked: f64) {
        let mut epoch = match self.curve.epoch {
            Some(epoch) => epoch,
            None => self.begin(ack.now),
        };
        let size = self.window.size();
        let reached = self.curve.prior.is_some_and(|prior| epoch.w_est >= prior);
        let alpha = if reached { 1.0 } else { self.config.alpha() };
        epoch.w_est += alpha * acked / size;
        self.curve.epoch = Some(epoch);
        let t = seconds(ack.now.since(epoch.began));
        if self.config.friendly && epoch.window(self.config.c, t) < epoch.w_est {
            self.window.grow_to(epoch.w_est);
            return;
        }
        let ahead = epoch.window(self.config.c, t + seconds(ack.smoothed));
        let target = ahead.clamp(size, size * MOST_GROWTH);
        let grown = size + self.window.steps(acked) * (target - size) / size;
        self.window.grow_to(grown.min(target));
    }

    /// RFC 9438 §5.8: time in which the application and not the window was the limit is no part of t.
    /// Nor is what exceeds a round trip after an ACK that left nothing outstanding.
    fn leave_out_idle(&mut self, ack: &Ack, growing: bool) {
        let gap = ack.now.since(self.last);
        let idle = match (growing, self.emptied) {
            (false, _) => gap,
            (true, true) => {
                Span::from_nanos(gap.as_nanos().saturating_sub(ack.smoothed.as_nanos()))
            }
            (true, false) => Span::ZERO,
        };
        if let Some(epoch) = &mut self.curve.epoch {
            epoch.began += idle;
        }
        self.last = ack.now;
        self.emptied = ack.in_flight <= ack.acked;
    }
}

impl Control for Cubic {
    fn on_ack(&mut self, ack: &Ack) {
        let growing = self.window.may_grow(ack);
        self.leave_out_idle(ack, growing);
        if growing {
            let left = self.window.slow_start(ack);
            if left > 0.0 {
                self.avoid(ack, left);
            }
        }
    }
    /// RFC 9438 §4.6 and §4.7. A mark reduces to two segments at least, as a loss does.
    fn on_loss(&mut self, _: Time, basis: f64) {
        self.before = self.curve;
        let size = self.window.size();
        let shrinking = self.curve.w_max.is_some_and(|w_max| size < w_max);
        let w_max = match shrinking && self.config.fast_convergence {
            true => size * (1.0 + self.config.beta) / 2.0,
            false => size,
        };
        self.curve = Curve { w_max: Some(w_max), prior: Some(size), epoch: None };
        self.window.reduce(basis * self.config.beta);
    }
    /// RFC 9438 §4.8.
    fn on_timeout(&mut self, _: Time, basis: f64, again: bool) {
        if !again {
            self.before = self.curve;
            self.curve.prior = Some(self.window.size());
        }
        self.curve.w_max = None;
        self.curve.epoch = None;
        self.window.collapse(basis * self.config.beta, again);
    }
    fn on_restart(&mut self, _: Time) {
        self.curve.epoch = None;
        self.window.restart();
    }
    fn undo(&mut self, _: Time) {
        if self.window.undo() {
            self.curve = self.before;
        }
    }
    fn window(&self) -> f64 {
        self.window.size()
    }
    fn threshold(&self) -> f64 {
        self.window.threshold()
    }
    fn snapshot(&self) -> Snapshot {
        let epoch = self.curve.epoch;
        Snapshot {
            w_max: self.curve.w_max,
            k: epoch.map(|epoch| epoch.k),
            w_est: epoch.map(|epoch| epoch.w_est),
            ..self.window.snapshot()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{Counting, Phase, SlowStart};

    const RTT: Span = Span::from_millis(100);

    fn config() -> Config {
        Config {
            initial_window: 100.0,
            initial_threshold: 100.0,
            counting: Counting::PerAck,
            slow_start: SlowStart::Standard,
            ..Config::default()
        }
    }

    fn pure() -> CubicConfig {
        CubicConfig { fast_convergence: false, friendly: false, ..CubicConfig::default() }
    }

    fn cubic(constants: CubicConfig) -> Cubic {
        Cubic::new(&config(), constants, Time::ZERO)
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn ack(now: Time) -> Ack {
        Ack {
            now,
            acked: 1.0,
            in_flight: 100.0,
            rtt: Some(RTT),
            smoothed: RTT,
            limited: true,
            una: 0,
            next: 0,
            recovering: false,
        }
    }

    /// Rounds of as many evenly spaced ACKs as the window holds, to `until`.
    fn run(cubic: &mut Cubic, from: Time, until: Time) {
        let mut now = from;
        while now < until {
            cubic.on_ack(&ack(now));
            now += Span::from_nanos((RTT.as_nanos() as f64 / cubic.window()) as u64);
        }
    }

    #[test]
    fn a_loss_leaves_seven_tenths_and_k_is_the_way_back() {
        // RFC 9438 §4.6: ssthresh = flight_size · 0.7; §4.2: K = ∛((W_max − cwnd_epoch) / C) = ∛75
        let mut cubic = cubic(pure());
        cubic.on_loss(at(0), 100.0);
        assert_eq!((cubic.window(), cubic.threshold()), (70.0, 70.0));
        assert_eq!(cubic.snapshot().k, None, "the epoch begins with the first ACK");
        cubic.on_ack(&ack(at(100)));
        let snapshot = cubic.snapshot();
        assert_eq!((snapshot.w_max, snapshot.phase), (Some(100.0), Phase::Avoidance));
        assert!((snapshot.k.unwrap() - 4.217_163_326_508_746).abs() < 1e-12);
        // the threshold is at least 2
        cubic.on_loss(at(100), 1.0);
        assert_eq!((cubic.window(), cubic.threshold()), (2.0, 2.0));
    }

    #[test]
    fn the_curve_passes_where_it_was_computed() {
        // 0.4 · (t − ∛75)³ + 100, computed independently
        let epoch = Epoch { began: at(0), w_max: 100.0, k: libm::cbrt(75.0), w_est: 0.0 };
        for (t, expected) in [
            (0.0, 70.0),
            (1.0, 86.680_763_835),
            (2.0, 95.640_335_687),
            (4.0, 99.995_903_439),
            (5.0, 100.191_899_339),
            (8.0, 121.652_735_140),
            (10.0, 177.353_999_088),
        ] {
            let window = epoch.window(0.4, t);
            assert!((window - expected).abs() < 1e-8, "{t} s: {window}");
        }
    }

    #[test]
    fn the_window_follows_the_curve() {
        let mut cubic = cubic(pure());
        cubic.on_loss(at(0), 100.0);
        let mut from = at(0);
        for (ms, expected) in
            [(1_000, 86.68), (2_000, 95.64), (4_000, 100.0), (8_000, 121.65), (10_000, 177.35)]
        {
            run(&mut cubic, from, at(ms));
            from = at(ms);
            let window = cubic.window();
            assert!((window / expected - 1.0).abs() < 0.01, "{ms} ms: {window}");
        }
    }

    #[test]
    fn one_ack_adds_its_share_of_the_way_to_the_target() {
        // RFC 9438 §4.4: (target − cwnd) / cwnd, with target = W_cubic(t + RTT)
        let mut cubic = cubic(pure());
        cubic.on_loss(at(0), 100.0);
        cubic.on_ack(&ack(at(0)));
        let target = 0.4 * (0.1 - libm::cbrt(75.0)).powi(3) + 100.0;
        assert!((cubic.window() - (70.0 + (target - 70.0) / 70.0)).abs() < 1e-12);
        // and never more than half the window
        let far = ack(at(60_000));
        let before = cubic.window();
        cubic.on_ack(&far);
        assert!((cubic.window() - (before + 0.5)).abs() < 1e-12, "{}", cubic.window() - before);
    }

    #[test]
    fn by_bytes_an_ack_of_two_segments_counts_twice() {
        let counting = Counting::Bytes { limit: 2.0 };
        let mut bytes = Cubic::new(&Config { counting, ..config() }, pure(), at(0));
        let mut acks = cubic(pure());
        for cubic in [&mut bytes, &mut acks] {
            cubic.on_loss(at(0), 100.0);
            cubic.on_ack(&Ack { acked: 2.0, ..ack(at(0)) });
        }
        let (twice, once) = (bytes.window() - 70.0, acks.window() - 70.0);
        assert!((twice - 2.0 * once).abs() < 1e-12, "{twice} {once}");
    }

    #[test]
    fn at_a_short_rtt_the_window_is_reno_s() {
        // RFC 9438 §4.3: α = 3·0.3/1.7 until cwnd_prior is reached, 1 from then on. 0.1 s at 1 ms RTT
        // are 100 rounds in which the curve gains 0.4 · … < 4 segments
        let mut cubic = Cubic::new(&config(), CubicConfig::default(), at(0));
        cubic.on_loss(at(0), 100.0);
        let mut rounds = 0;
        let mut per_round = std::vec::Vec::new();
        while cubic.window() < 110.0 {
            let before = cubic.window();
            for _ in 0..cubic.window() as u64 {
                let now = at(rounds);
                cubic.on_ack(&Ack { smoothed: Span::from_millis(1), ..ack(now) });
            }
            per_round.push((before, cubic.window() - before));
            rounds += 1;
        }
        for (window, grown) in per_round {
            let expected = match window {
                ..99.0 => 0.9 / 1.7,
                100.0.. => 1.0,
                _ => continue,
            };
            // whole ACKs in a round, and a window that grows during it
            assert!((grown - expected).abs() < 0.02 * expected, "at {window}: {grown}");
        }
    }

    #[test]
    fn windows_that_shrink_from_loss_to_loss_give_way() {
        // RFC 9438 §4.7: W_max = cwnd · (1 + β) / 2
        let mut cubic = cubic(CubicConfig { friendly: false, ..CubicConfig::default() });
        cubic.on_loss(at(0), 100.0);
        assert_eq!(cubic.snapshot().w_max, Some(100.0));
        cubic.on_loss(at(100), 70.0);
        let w_max = cubic.snapshot().w_max.unwrap();
        assert!((w_max - 59.5).abs() < 1e-12, "{w_max}");
        let mut alone = self::cubic(pure());
        alone.on_loss(at(0), 100.0);
        alone.on_loss(at(100), 70.0);
        assert_eq!(alone.snapshot().w_max, Some(70.0));
    }

    #[test]
    fn after_a_time_out_the_curve_begins_flat() {
        // RFC 9438 §4.8: ssthresh by β, K = 0, W_max = W_est = cwnd where avoidance begins
        let mut cubic = cubic(CubicConfig::default());
        cubic.on_timeout(at(0), 10.0, false);
        assert_eq!((cubic.window(), cubic.threshold()), (1.0, 7.0));
        (0..6).for_each(|_| cubic.on_ack(&ack(at(100))));
        assert_eq!((cubic.window(), cubic.snapshot().k), (7.0, None));
        cubic.on_ack(&ack(at(200)));
        let snapshot = cubic.snapshot();
        assert_eq!((snapshot.w_max, snapshot.k), (Some(7.0), Some(0.0)));
        assert!((snapshot.w_est.unwrap() - (7.0 + 0.9 / 1.7 / 7.0)).abs() < 1e-12);
    }

    #[test]
    fn a_slow_start_that_ended_without_loss_begins_flat_too() {
        // RFC 9438 §4.10; cwnd_prior = cwnd, so that α is 1
        let mut cubic = cubic(CubicConfig::default());
        cubic.on_ack(&ack(at(0)));
        let snapshot = cubic.snapshot();
        assert_eq!((snapshot.w_max, snapshot.k), (Some(100.0), Some(0.0)));
        assert_eq!(snapshot.w_est, Some(100.01));
    }

    #[test]
    fn a_spurious_loss_leaves_no_trace() {
        // RFC 9438 §4.9.2
        let mut cubic = cubic(CubicConfig::default());
        cubic.on_loss(at(0), 100.0);
        run(&mut cubic, at(0), at(3_000));
        let before = cubic.snapshot();
        cubic.on_loss(at(3_000), 98.0);
        assert!(cubic.window() < before.window);
        cubic.undo(at(3_100));
        assert_eq!(cubic.snapshot(), before);
        cubic.on_timeout(at(3_200), 98.0, false);
        cubic.on_timeout(at(3_800), 1.0, true);
        cubic.undo(at(4_000));
        assert_eq!(cubic.snapshot(), before);
    }

    #[test]
    fn time_without_anything_to_send_is_no_part_of_the_curve() {
        // RFC 9438 §4.2 and §5.8
        let (mut busy, mut pausing) = (cubic(pure()), cubic(pure()));
        for cubic in [&mut busy, &mut pausing] {
            cubic.on_loss(at(0), 100.0);
            run(cubic, at(0), at(2_000));
        }
        let paused = pausing.window();
        // ten seconds of a trickle that the application sets
        (20..120).for_each(|n| pausing.on_ack(&Ack { limited: false, ..ack(at(n * 100)) }));
        assert_eq!(pausing.window(), paused);
        run(&mut busy, at(2_000), at(5_000));
        run(&mut pausing, at(11_900), at(14_900));
        assert!((busy.window() - pausing.window()).abs() < 0.1, "{busy:?} {pausing:?}");
    }

    #[test]
    fn silence_after_the_last_ack_is_no_part_of_the_curve() {
        let mut cubic = cubic(pure());
        cubic.on_loss(at(0), 100.0);
        run(&mut cubic, at(0), at(2_000));
        let began = |cubic: &Cubic| cubic.curve.epoch.unwrap().began;
        assert_eq!(began(&cubic), at(0));
        // the last ACK leaves nothing outstanding; a minute later the next data, and its ACK
        cubic.on_ack(&Ack { in_flight: 1.0, ..ack(at(2_000)) });
        cubic.on_ack(&ack(at(62_100)));
        assert_eq!(began(&cubic), at(60_000));
        cubic.on_ack(&ack(at(62_200)));
        assert_eq!(began(&cubic), at(60_000), "what is outstanding is not idle");
    }
}
