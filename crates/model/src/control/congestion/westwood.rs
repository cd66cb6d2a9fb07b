//! Westwood+ (Grieco and Mascolo 2004, constants as in Linux): random losses say nothing about
//! bandwidth, so the window after a loss is ACK rate × minimum RTT. Bias: a queue that stands since
//! the connection began counts as path.

use super::reno::grow;
use super::window::{Window, by_window};
use super::{Ack, Config, Control, Snapshot, seconds};
use crate::units::{Span, Time};

/// Linux's TCP_WESTWOOD_RTT_MIN: a sample takes an RTT, and at least this.
const LEAST_SAMPLE: Span = Span::from_millis(50);
/// Of a filter's old value, this is kept.
const KEPT: f64 = 7.0 / 8.0;

/// Reno whose decrease follows an estimate of the bandwidth.
#[derive(Debug, Clone, PartialEq)]
pub struct WestwoodPlus {
    window: Window,
    bandwidth: Bandwidth,
    /// [`Span::MAX`] before the first sample.
    rtt_min: Span,
}

impl WestwoodPlus {
    /// A connection that has sent nothing.
    pub fn new(config: &Config) -> Self {
        Self {
            window: Window::new(config),
            bandwidth: Bandwidth { began: None, acked: 0.0, stages: None },
            rtt_min: Span::MAX,
        }
    }

    /// The estimated bandwidth times the minimum RTT; without an estimate, Reno's half.
    fn filled(&self, basis: f64) -> f64 {
        match self.bandwidth.estimate() {
            Some(bandwidth) if self.rtt_min < Span::MAX => bandwidth * seconds(self.rtt_min),
            _ => basis / 2.0,
        }
    }
}

/// Segments per second, by two low-pass filters in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bandwidth {
    /// When the current sample began; none before the first ACK.
    began: Option<Time>,
    /// Acknowledged in the current sample, in segments.
    acked: f64,
    /// Both filters; the first sample fills them, as they would take thirty more from 0.
    stages: Option<(f64, f64)>,
}

impl Bandwidth {
    /// One sample per RTT: bytes acknowledged after its first ACK; a silence is slow for one sample
    /// only.
    fn on_ack(&mut self, ack: &Ack) {
        let Some(began) = self.began else {
            self.began = Some(ack.now);
            return;
        };
        self.acked += ack.acked;
        let took = ack.now.since(began);
        if took < ack.smoothed.max(LEAST_SAMPLE) {
            return;
        }
        let sample = self.acked / seconds(took);
        self.stages = Some(match self.stages {
            None => (sample, sample),
            Some((first, second)) => {
                let first = KEPT * first + (1.0 - KEPT) * sample;
                (first, KEPT * second + (1.0 - KEPT) * first)
            }
        });
        self.began = Some(ack.now);
        self.acked = 0.0;
    }

    fn estimate(&self) -> Option<f64> {
        self.stages.map(|(_, second)| second)
    }
}

impl Control for WestwoodPlus {
    fn on_ack(&mut self, ack: &Ack) {
        if let Some(rtt) = ack.rtt {
            self.rtt_min = self.rtt_min.min(rtt);
        }
        self.bandwidth.on_ack(ack);
        grow(&mut self.window, ack);
    }
    fn on_loss(&mut self, _: Time, basis: f64) {
        self.window.reduce(self.filled(basis));
    }
    fn on_timeout(&mut self, _: Time, basis: f64, again: bool) {
        self.window.collapse(self.filled(basis), again);
    }
    fn on_restart(&mut self, _: Time) {
        self.window.restart();
    }
    fn undo(&mut self, _: Time) {
        self.window.undo();
    }
    by_window!();
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            bandwidth: self.bandwidth.estimate(),
            rtt_min: (self.rtt_min < Span::MAX).then_some(self.rtt_min),
            ..self.window.snapshot()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::congestion::{Algorithm, Counting, SlowStart};

    fn westwood(window: f64) -> WestwoodPlus {
        WestwoodPlus::new(&Config {
            algorithm: Algorithm::WestwoodPlus,
            initial_window: window,
            initial_threshold: window,
            counting: Counting::PerAck,
            slow_start: SlowStart::Standard,
            ..Config::default()
        })
    }

    fn ack(ms: u64, acked: f64, rtt_ms: u64) -> Ack {
        Ack {
            now: Time::ZERO + Span::from_millis(ms),
            acked,
            in_flight: 100.0,
            rtt: Some(Span::from_millis(rtt_ms)),
            smoothed: Span::from_millis(rtt_ms),
            limited: true,
            ..Ack::default()
        }
    }

    fn estimates(acks: &[(u64, f64)], rtt_ms: u64) -> std::vec::Vec<Option<f64>> {
        let mut westwood = westwood(100.0);
        let acks = acks.iter().map(|(ms, acked)| {
            westwood.on_ack(&ack(*ms, *acked, rtt_ms));
            westwood.snapshot().bandwidth
        });
        acks.collect()
    }

    #[test]
    fn filter_matches_hand_computation() {
        // samples of 100, 200 and 40 segments/s over 100 ms each: first 100; 7/8·100 + 1/8·200 =
        // 112.5, 7/8·100 + 1/8·112.5 = 101.5625; 7/8·112.5 + 1/8·40 = 103.4375, 7/8·101.5625 +
        // 1/8·103.4375 = 101.796875
        let acks = &[(100, 7.0), (150, 4.0), (200, 6.0), (260, 10.0), (300, 10.0), (400, 4.0)];
        let told = estimates(acks, 100);
        assert_eq!(told, [None, None, Some(100.0), Some(100.0), Some(101.5625), Some(101.796_875)]);
    }

    #[test]
    fn sample_lasts_at_least_50_ms() {
        let told = estimates(&[(10, 1.0), (20, 1.0), (30, 1.0), (59, 1.0), (60, 2.0)], 10);
        assert_eq!(told, [None, None, None, None, Some(100.0)]);
    }

    #[test]
    fn window_becomes_rate_times_minimum_rtt() {
        let mut westwood = westwood(80.0);
        westwood.on_ack(&ack(100, 1.0, 100));
        westwood.on_ack(&ack(300, 100.0, 200));
        // 500 segments/s · 100 ms
        westwood.on_loss(Time::ZERO, 80.0);
        assert_eq!((westwood.window(), westwood.threshold()), (50.0, 50.0));
        westwood.undo(Time::ZERO);
        assert!(westwood.window() > 80.0);
        westwood.on_timeout(Time::ZERO, 80.0, false);
        assert_eq!((westwood.window(), westwood.threshold()), (1.0, 50.0));
        // a window below what would be filled stays; the threshold lets it grow
        westwood.on_loss(Time::ZERO, 1.0);
        assert_eq!((westwood.window(), westwood.threshold()), (1.0, 50.0));
    }

    #[test]
    fn without_an_estimate_half_remains() {
        let mut westwood = westwood(80.0);
        westwood.on_loss(Time::ZERO, 60.0);
        assert_eq!((westwood.window(), westwood.threshold()), (30.0, 30.0));
    }

    #[test]
    fn acks_during_recovery_are_measured() {
        let mut westwood = westwood(80.0);
        westwood.on_ack(&ack(100, 1.0, 100));
        let window = westwood.window();
        westwood.on_ack(&Ack { recovering: true, ..ack(200, 10.0, 100) });
        assert_eq!((westwood.snapshot().bandwidth, westwood.window()), (Some(100.0), window));
    }
}
