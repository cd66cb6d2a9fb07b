//! A Reno sender's rate under loss (Padhye, Firoiu, Towsley, Kurose 1998), as E-ATBT uses it.

use super::response::reno_window;
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

/// Which equation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Equation {
    /// 1 / (R·√(2bp/3) + T₀·min(1, 3·√(3bp/8))·p·(1 + 32p²)) (Padhye et al. 1998, equation 32).
    Padhye,
    /// √(3/(2bp)) / R: without time-outs (Mathis et al. 1997).
    SquareRoot,
}

impl Equation {
    /// The mean rate, segments/s, at most a window per round trip; infinite where nothing limits.
    pub fn rate(self, path: &Path) -> f64 {
        let (rtt, p, b) = (seconds(path.rtt), path.loss, path.segments_per_ack);
        let loss_limit = match self {
            Self::Padhye => {
                let timeouts = (3.0 * libm::sqrt(3.0 * b * p / 8.0)).min(1.0);
                let waiting = seconds(path.timeout) * timeouts * p * (1.0 + 32.0 * p * p);
                1.0 / (rtt * libm::sqrt(2.0 * b * p / 3.0) + waiting)
            }
            Self::SquareRoot => reno_window(b, p) / rtt,
        };
        loss_limit.min(path.window / rtt)
    }

    /// The mean window, in segments: [`Equation::rate`] × RTT.
    pub fn window(self, path: &Path) -> f64 {
        self.rate(path) * seconds(path.rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let told = Equation::Padhye.rate(&path) * MSS;
            assert_eq!((told * 10.0).round() / 10.0, rate, "{path:?}");
            let told = Equation::Padhye.window(&path) * MSS;
            // 16,400.506 stands rounded up in the table
            assert!((told - window).abs() <= 0.5, "{path:?}: {told}");
        }
        for (loss, rtt_ms, mbit) in
            [(1e-4, 20, 50.530), (1e-4, 400, 2.527), (1e-3, 100, 3.170), (1e-2, 50, 1.856)]
        {
            let told = Equation::Padhye.rate(&path(loss, rtt_ms, 2.0)) * MSS * 8.0 / 1e6;
            assert_eq!((told * 1e3).round() / 1e3, mbit);
        }
    }

    #[test]
    fn at_25_percent_loss_every_loss_times_out() {
        // 3·√(3·2·0.25/8) = 1.3 counts as 1: 1 / (0.1·√(1/3) + 0.4·0.25·3)
        let told = Equation::Padhye.rate(&path(0.25, 100, 2.0));
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
                (Equation::Padhye.rate(&path) * MSS * 8.0 / 1e3).round()
            });
            assert_eq!(told, expected, "b = {b}");
        }
    }

    #[test]
    fn square_root_window_depends_on_loss_alone() {
        // algorithms/buffers A.3: W = √(3/(2bp))
        for rtt_ms in [1, 50, 600] {
            let window = Equation::SquareRoot.window(&path(1e-3, rtt_ms, 2.0));
            assert!((window - 27.386_127_875_258_307).abs() < 1e-9, "{window}");
        }
    }

    #[test]
    fn a_window_limits() {
        // algorithms/satellite E.2: 65,535 bytes over 510 and 615 ms, in kbit/s; 850 kbit/s are 53 KiB
        for (rtt_ms, kbit) in [(510, 1_028.0), (615, 852.0)] {
            let path = Path { window: 65_535.0 / MSS, ..path(5e-6, rtt_ms, 1.0) };
            for equation in [Equation::Padhye, Equation::SquareRoot] {
                let told = equation.rate(&path) * MSS * 8.0 / 1e3;
                assert_eq!(told.round(), kbit, "{equation:?}");
            }
        }
        assert_eq!((850e3_f64 * 0.51 / 8.0 / 1024.0).round(), 53.0);
        let free = Path { loss: 0.0, ..path(0.0, 100, 1.0) };
        assert_eq!(Equation::Padhye.rate(&free), f64::INFINITY);
        assert_eq!(Equation::Padhye.rate(&Path { window: 10.0, ..free }), 100.0);
    }

    proptest::proptest! {
        #[test]
        fn time_outs_cost_and_more_loss_costs_more(
            loss in 1e-6_f64..0.3, more in 1.0_f64..3.0, rtt_ms in 1_u64..2_000, b in 1.0_f64..4.0,
        ) {
            let less = path(loss, rtt_ms, b);
            let worse = Path { loss: loss * more, ..less };
            proptest::prop_assert!(Equation::Padhye.rate(&less) <= Equation::SquareRoot.rate(&less));
            for equation in [Equation::Padhye, Equation::SquareRoot] {
                proptest::prop_assert!(equation.rate(&worse) <= equation.rate(&less));
            }
        }
    }
}
