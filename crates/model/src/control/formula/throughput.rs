//! A Reno sender's rate under loss (Padhye, Firoiu, Towsley, Kurose 1998), as E-ATBT uses it.

use super::seconds;
use crate::units::Span;

/// A sender's estimates of its path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Path {
    /// The round-trip time, R; above 0.
    pub rtt: Span,
    /// The retransmission time-out, T₀.
    pub timeout: Span,
    /// The probability p that a packet is lost, of the first in a burst; 0 … 1.
    pub loss: f64,
    /// Segments that one ACK answers, b: 2 with delayed ACKs, else 1.
    pub segments_per_ack: f64,
    /// The largest window, in segments; [`f64::INFINITY`] where nothing but loss limits.
    pub window: f64,
}

impl Path {
    /// The mean rate, segments/s: 1 / (R·√(2bp/3) + T₀·min(1, 3·√(3bp/8))·p·(1 + 32p²)) (Padhye et
    /// al. 1998, equation 32), at most a window per round trip; infinite where nothing limits.
    pub fn rate(&self) -> f64 {
        let (rtt, p, b) = (seconds(self.rtt), self.loss, self.segments_per_ack);
        let timeouts = (3.0 * libm::sqrt(3.0 * b * p / 8.0)).min(1.0);
        let waiting = seconds(self.timeout) * timeouts * p * (1.0 + 32.0 * p * p);
        let loss_limit = 1.0 / (rtt * libm::sqrt(2.0 * b * p / 3.0) + waiting);
        loss_limit.min(self.window / rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::formula::reno_window;

    const MSS: f64 = 1460.0;

    fn path(loss: f64, rtt_ms: u64, segments_per_ack: f64) -> Path {
        Path {
            rtt: Span::from_millis(rtt_ms),
            timeout: Span::from_millis(4 * rtt_ms),
            loss,
            segments_per_ack,
            window: f64::INFINITY,
        }
    }

    #[test]
    fn rates_as_computed() {
        // algorithms/buffers A.3: MSS 1460, T₀ = 4 RTT; B/s and bytes per RTT
        for (loss, rtt_ms, b, rate, window) in [
            (1e-4, 20, 2.0, 6_316_300.8, 126_326.0),
            (1e-4, 400, 2.0, 315_815.0, 126_326.0),
            (1e-3, 100, 2.0, 396_270.9, 39_627.0),
            (1e-3, 200, 1.0, 280_205.9, 56_041.0),
            (1e-2, 50, 2.0, 231_938.2, 11_597.0),
            (1e-2, 400, 1.0, 41_001.3, 16_401.0),
        ] {
            let path = path(loss, rtt_ms, b);
            let told = path.rate() * MSS;
            assert_eq!((told * 10.0).round() / 10.0, rate, "{path:?}");
            let told = path.rate() * seconds(path.rtt) * MSS;
            // 16,400.506 stands rounded up in the table
            assert!((told - window).abs() <= 0.5, "{path:?}: {told}");
        }
        for (loss, rtt_ms, mbit) in
            [(1e-4, 20, 50.530), (1e-4, 400, 2.527), (1e-3, 100, 3.170), (1e-2, 50, 1.856)]
        {
            let told = path(loss, rtt_ms, 2.0).rate() * MSS * 8.0 / 1e6;
            assert_eq!((told * 1e3).round() / 1e3, mbit);
        }
    }

    #[test]
    fn at_25_percent_loss_every_loss_times_out() {
        // 3·√(3·2·0.25/8) = 1.3 counts as 1: 1 / (0.1·√(1/3) + 0.4·0.25·3)
        let told = path(0.25, 100, 2.0).rate();
        assert!((told - 2.795_365_5).abs() < 1e-6, "{told}");
    }

    #[test]
    fn satellite_rates_match_the_study() {
        // algorithms/satellite E.2: kbit/s over 615 ms at 1, 3 and 5 %, two segments per ACK and
        // one. The time-out is not printed; 1.2 s gives all six
        for (b, expected) in [(2.0, [158.0, 84.0, 59.0]), (1.0, [223.0, 118.0, 84.0])] {
            let told = [0.01, 0.03, 0.05].map(|loss| {
                let timeout = Span::from_millis(1_200);
                let path = Path { timeout, ..path(loss, 615, b) };
                (path.rate() * MSS * 8.0 / 1e3).round()
            });
            assert_eq!(told, expected, "b = {b}");
        }
    }

    #[test]
    fn a_window_limits() {
        // algorithms/satellite E.2: 65,535 bytes over 510 and 615 ms, in kbit/s; 850 kbit/s are 53 KiB
        for (rtt_ms, kbit) in [(510, 1_028.0), (615, 852.0)] {
            let path = Path { window: 65_535.0 / MSS, ..path(5e-6, rtt_ms, 1.0) };
            assert_eq!((path.rate() * MSS * 8.0 / 1e3).round(), kbit);
        }
        assert_eq!((850e3_f64 * 0.51 / 8.0 / 1024.0).round(), 53.0);
        let free = Path { loss: 0.0, ..path(0.0, 100, 1.0) };
        assert_eq!(free.rate(), f64::INFINITY);
        assert_eq!((Path { window: 10.0, ..free }).rate(), 100.0);
    }

    proptest::proptest! {
        #[test]
        fn time_outs_cost_and_more_loss_costs_more(
            loss in 1e-6_f64..0.3, more in 1.0_f64..3.0, rtt_ms in 1_u64..2_000, b in 1.0_f64..4.0,
        ) {
            let less = path(loss, rtt_ms, b);
            let worse = Path { loss: loss * more, ..less };
            proptest::prop_assert!(less.rate() <= reno_window(b, loss) / seconds(less.rtt));
            proptest::prop_assert!(worse.rate() <= less.rate());
        }
    }
}
