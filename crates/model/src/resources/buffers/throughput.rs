//! How fast a sender will be: the equation behind E-ATBT, exchangeable.

use crate::control::formula::{Equation, Path};

/// Predicts the mean rate of a TCP sender from estimates of its path.
pub trait Throughput {
    /// λ in payload bytes per second, with segments of `mss` bytes; infinite where nothing limits.
    fn bytes_per_second(&self, path: &Path, mss: u64) -> f64;
}

/// Padhye's with the window's limit, or the square root (algorithms/buffers A.3).
impl Throughput for Equation {
    fn bytes_per_second(&self, path: &Path, mss: u64) -> f64 {
        self.rate(path) * mss as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    #[test]
    fn vectors_of_the_specification() {
        // algorithms/buffers A.3: MSS 1460, T₀ = 4 RTT, no window; B/s
        for (loss, rtt_ms, segments_per_ack, expected) in [
            (1e-4, 20, 2.0, 6_316_300.8),
            (1e-4, 400, 2.0, 315_815.0),
            (1e-3, 100, 2.0, 396_270.9),
            (1e-3, 200, 1.0, 280_205.9),
            (1e-2, 50, 2.0, 231_938.2),
            (1e-2, 400, 1.0, 41_001.3),
        ] {
            let (rtt, timeout) = (ms(rtt_ms), ms(4 * rtt_ms));
            let path = Path { rtt, timeout, loss, segments_per_ack, window: f64::INFINITY };
            let told = Equation::Padhye.bytes_per_second(&path, 1_460);
            assert_eq!((told * 10.0).round() / 10.0, expected, "{path:?}");
            // 11 segments in each round trip at most
            let limited = Path { window: 11.0, ..path };
            let most = 11.0 * 1_460.0 / (rtt_ms as f64 / 1e3);
            for equation in [Equation::Padhye, Equation::SquareRoot] {
                let free = equation.bytes_per_second(&path, 1_460);
                let told = equation.bytes_per_second(&limited, 1_460);
                assert!((told - free.min(most)).abs() < 1e-6, "{told}");
            }
        }
    }
}
