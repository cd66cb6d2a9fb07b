//! Reno (RFC 5681), the measure of all others.

use super::window::{Window, by_window};
use super::{Ack, Config, Control, Snapshot};
use crate::units::Time;

/// Slow start, one segment per RTT after that, half after a loss.
#[derive(Debug, Clone, PartialEq)]
pub struct Reno {
    window: Window,
}

impl Reno {
    /// A connection that has sent nothing.
    pub fn new(config: &Config) -> Self {
        Self { window: Window::new(config) }
    }
}

/// RFC 5681 §3.1, equations 2 and 3: 1/cwnd per ACK; counting bytes, the share of the window
/// acknowledged (RFC 3465 §2.1, without whole-segment steps).
pub(super) fn grow(window: &mut Window, ack: &Ack) {
    if !window.may_grow(ack) {
        return;
    }
    let left = window.slow_start(ack);
    if left > 0.0 {
        window.grow_to(window.size() + window.steps(left) / window.size());
    }
}

impl Control for Reno {
    fn on_ack(&mut self, ack: &Ack) {
        grow(&mut self.window, ack);
    }
    /// RFC 5681 equation 4, and step 6 of §3.2.
    fn on_loss(&mut self, _: Time, basis: f64) {
        self.window.reduce(basis / 2.0);
    }
    fn on_timeout(&mut self, _: Time, basis: f64, again: bool) {
        self.window.collapse(basis / 2.0, again);
    }
    fn on_restart(&mut self, _: Time) {
        self.window.restart();
    }
    fn undo(&mut self, _: Time) {
        self.window.undo();
    }
    by_window!();
    fn snapshot(&self) -> Snapshot {
        self.window.snapshot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::congestion::{Algorithm, Counting, Cut, Phase, SlowStart};

    fn config() -> Config {
        Config {
            algorithm: Algorithm::Reno,
            initial_window: 2.0,
            counting: Counting::PerAck,
            slow_start: SlowStart::Standard,
            grow_only_when_limited: false,
            ..Config::default()
        }
    }

    fn ack(acked: f64) -> Ack {
        Ack { acked, in_flight: 10.0, limited: true, ..Ack::default() }
    }

    fn acks(reno: &mut Reno, n: usize, acked: f64) {
        (0..n).for_each(|_| reno.on_ack(&ack(acked)));
    }

    /// In avoidance with this window.
    fn at(window: f64) -> Reno {
        Reno::new(&Config { initial_window: window, initial_threshold: window, ..config() })
    }

    #[test]
    fn slow_start_adds_a_segment_per_ack_and_so_doubles_in_each_round() {
        // RFC 5681 §3.1: "cwnd += min (N, SMSS)"
        let mut reno = Reno::new(&config());
        for expected in [4.0, 8.0, 16.0, 32.0] {
            let window = reno.window() as usize;
            acks(&mut reno, window, 1.0);
            assert_eq!(reno.window(), expected);
        }
        assert_eq!(reno.snapshot().phase, Phase::SlowStart);
        // with delayed ACKs by half in each round
        let mut delayed = Reno::new(&Config { initial_window: 8.0, ..config() });
        acks(&mut delayed, 4, 2.0);
        assert_eq!(delayed.window(), 12.0);
    }

    #[test]
    fn counting_bytes_delayed_acks_double_too_and_a_long_one_is_limited() {
        let config = Config { counting: Counting::Bytes { limit: 2.0 }, ..config() };
        let mut reno = Reno::new(&Config { initial_window: 8.0, ..config });
        acks(&mut reno, 4, 2.0);
        assert_eq!(reno.window(), 16.0);
        // a third of a segment counts as that, ten segments as two
        reno.on_ack(&ack(1.0 / 3.0));
        reno.on_ack(&ack(10.0));
        assert!((reno.window() - (18.0 + 1.0 / 3.0)).abs() < 1e-12);
    }

    #[test]
    fn after_a_time_out_slow_start_counts_one_segment_per_ack() {
        // RFC 3465 §2.3
        let config = Config { counting: Counting::Bytes { limit: 2.0 }, ..config() };
        let mut reno = Reno::new(&config);
        reno.on_timeout(Time::ZERO, 8.0, false);
        acks(&mut reno, 3, 2.0);
        assert_eq!((reno.window(), reno.threshold()), (4.0, 4.0));
        // once over, the limit is the usual one again
        reno.on_restart(Time::ZERO);
        assert_eq!(reno.window(), 2.0);
        acks(&mut reno, 1, 2.0);
        assert_eq!(reno.window(), 4.0);
    }

    #[test]
    fn slow_start_ends_at_the_threshold_and_the_rest_counts_for_avoidance() {
        let config = Config { initial_threshold: 3.0, ..config() };
        let mut bytes =
            Reno::new(&Config { counting: Counting::Bytes { limit: 2.0 }, ..config.clone() });
        bytes.on_ack(&ack(2.0));
        assert_eq!(bytes.window(), 3.0 + 1.0 / 3.0);
        let mut per_ack = Reno::new(&config);
        acks(&mut per_ack, 1, 2.0);
        assert_eq!((per_ack.window(), per_ack.snapshot().phase), (3.0, Phase::Avoidance));
    }

    #[test]
    fn avoidance_adds_one_segment_in_a_round() {
        // RFC 5681 §3.1 equation 3: "cwnd += SMSS*SMSS/cwnd"
        let mut reno = at(10.0);
        acks(&mut reno, 1, 1.0);
        assert_eq!(reno.window(), 10.1);
        acks(&mut reno, 9, 1.0);
        assert!((10.9..11.0).contains(&reno.window()), "{}", reno.window());
        // delayed ACKs: half a segment
        let mut delayed = at(10.0);
        acks(&mut delayed, 5, 2.0);
        assert!((10.45..10.5).contains(&delayed.window()), "{}", delayed.window());
        // and the whole again by bytes
        let counting = Counting::Bytes { limit: 2.0 };
        let mut bytes = Reno::new(&Config {
            initial_window: 10.0,
            initial_threshold: 10.0,
            counting,
            ..config()
        });
        acks(&mut bytes, 5, 2.0);
        assert!((10.9..11.0).contains(&bytes.window()), "{}", bytes.window());
    }

    #[test]
    fn loss_halves_the_flight_size() {
        // RFC 5681 equation 4: "ssthresh = max (FlightSize / 2, 2*SMSS)"
        let mut reno = at(21.0);
        reno.on_loss(Time::ZERO, 15.0);
        assert_eq!((reno.window(), reno.threshold()), (7.5, 7.5));
        reno.on_loss(Time::ZERO, 3.0);
        assert_eq!((reno.window(), reno.threshold()), (2.0, 2.0));
    }

    #[test]
    fn in_whole_segments_as_ns_2_cuts_them() {
        let mut reno = Reno::new(&Config { initial_window: 15.9, cut: Cut::Both, ..config() });
        reno.on_loss(Time::ZERO, 15.9);
        assert_eq!((reno.window(), reno.threshold()), (7.0, 7.0));
        reno.on_loss(Time::ZERO, 3.0);
        assert_eq!((reno.window(), reno.threshold()), (1.0, 2.0));
        reno.on_loss(Time::ZERO, 1.0);
        assert_eq!((reno.window(), reno.threshold()), (1.0, 2.0));
    }

    #[test]
    fn repeated_timeout_keeps_the_threshold() {
        // RFC 5681 §3.1: "the value of ssthresh is held constant"
        let mut reno = at(20.0);
        reno.on_timeout(Time::ZERO, 20.0, false);
        assert_eq!((reno.window(), reno.threshold()), (1.0, 10.0));
        reno.on_timeout(Time::ZERO, 1.0, true);
        assert_eq!((reno.window(), reno.threshold()), (1.0, 10.0));
        // F-RTO finds that none of it was a loss
        reno.undo(Time::ZERO);
        assert_eq!((reno.window(), reno.threshold()), (20.0, 20.0));
    }

    #[test]
    fn restart_keeps_the_threshold() {
        // RFC 5681 §4.1: "RW = min(IW,cwnd)"
        let mut reno = Reno::new(&config());
        acks(&mut reno, 30, 1.0);
        reno.on_loss(Time::ZERO, 32.0);
        reno.on_restart(Time::ZERO);
        assert_eq!((reno.window(), reno.threshold()), (2.0, 16.0));
        assert_eq!(reno.snapshot().phase, Phase::SlowStart);
        reno.on_timeout(Time::ZERO, 2.0, false);
        reno.on_restart(Time::ZERO);
        assert_eq!(reno.window(), 1.0, "never upwards");
    }

    #[test]
    fn undo_keeps_a_larger_window() {
        let mut reno = at(4.0);
        reno.on_loss(Time::ZERO, 4.0);
        acks(&mut reno, 40, 1.0);
        let window = reno.window();
        assert!(window > 4.0);
        reno.undo(Time::ZERO);
        assert_eq!((reno.window(), reno.threshold()), (window, 2.0));
    }

    #[test]
    fn unused_window_does_not_grow_when_validated() {
        let unlimited = Ack { limited: false, ..ack(1.0) };
        let mut always = Reno::new(&config());
        always.on_ack(&unlimited);
        assert_eq!(always.window(), 3.0);
        let mut asked = Reno::new(&Config { grow_only_when_limited: true, ..config() });
        asked.on_ack(&unlimited);
        assert_eq!(asked.window(), 2.0);
    }
}
