//! Mean windows under loss: one packet in 1/p is lost, the window is a saw tooth (RFC 9438 §4.3, §5).

/// Reno's mean window, segments: √(3/(2bp)), `b` segments per ACK, loss probability `p`; infinite
/// at 0.
pub fn reno_window(b: f64, p: f64) -> f64 {
    libm::sqrt(3.0 / (2.0 * b * p))
}

/// RFC 9438 equation 5: CUBIC's mean window, segments: ⁴√(C(3+β)/(4(1−β))) · (RTT/p)^¾, RTT in
/// seconds. CUBIC follows [`reno_window`] with b = 1 where that is larger.
pub fn cubic_window(c: f64, beta: f64, rtt: f64, p: f64) -> f64 {
    let steepness = libm::pow(c * (3.0 + beta) / (4.0 * (1.0 - beta)), 0.25);
    steepness * libm::pow(rtt / p, 0.75)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CUBIC's window, or Reno's where that is larger.
    fn cubic(c: f64, rtt: f64, p: f64) -> f64 {
        cubic_window(c, 0.7, rtt, p).max(reno_window(1.0, p))
    }

    #[test]
    fn windows_of_rfc_9438_tables_1_and_2() {
        // p; RTT 0.1 s and C = 0.04, 0.4, 4; RTT 0.01 s and the same. The RFC rounds Reno's to
        // 1.2 and 0.38 · √(1/p), so that some cells hold to 2 %
        for (p, tenth, hundredth) in [
            (1e-2, [12.0, 12.0, 12.0], [12.0, 12.0, 12.0]),
            (1e-3, [38.0, 38.0, 59.0], [38.0, 38.0, 38.0]),
            (1e-4, [120.0, 187.0, 333.0], [120.0, 120.0, 120.0]),
            (1e-5, [593.0, 1_054.0, 1_874.0], [379.0, 379.0, 379.0]),
            (1e-6, [3_332.0, 5_926.0, 10_538.0], [1_200.0, 1_200.0, 1_874.0]),
            (1e-7, [18_740.0, 33_325.0, 59_261.0], [3_795.0, 5_926.0, 10_538.0]),
            (1e-8, [105_383.0, 187_400.0, 333_250.0], [18_740.0, 33_325.0, 59_261.0]),
        ] {
            for (rtt, expected) in [(0.1, tenth), (0.01, hundredth)] {
                for (c, expected) in [0.04, 0.4, 4.0].into_iter().zip(expected) {
                    let told = cubic(c, rtt, p);
                    let (curve, reno) = (cubic_window(c, 0.7, rtt, p), reno_window(1.0, p));
                    let tolerance = if curve > reno { 0.000_5 } else { 0.025 };
                    let near =
                        (told / expected - 1.0).abs() < tolerance || (told - expected).abs() < 1.0;
                    assert!(near, "p {p}, {rtt} s, C {c}: {told} for {expected}");
                }
            }
        }
    }

    #[test]
    fn loss_rates_of_rfc_9438_table_3() {
        // Mbit/s at 1500 bytes and 100 ms; p for Reno and CUBIC
        for (window, reno, cubic) in
            [(833.3, 2.0e-6, 1.4e-5), (8_333.3, 2.0e-8, 6.3e-7), (83_333.3, 2.0e-10, 2.9e-8)]
        {
            assert!((reno_window(1.0, reno) / window - 1.0).abs() < 0.05, "{window}");
            assert!((cubic_window(0.4, 0.7, 0.1, cubic) / window - 1.0).abs() < 0.03, "{window}");
        }
    }

    #[test]
    fn rates_as_computed() {
        // algorithms/split-connections C.3: Mbit/s of Reno and CUBIC at MSS 1448, b = 1
        for (p, ms, reno, cubics) in [
            (1e-5, 50, 89.7, 145.2),
            (1e-5, 25, 179.5, 179.5),
            (1e-4, 50, 28.4, 28.4),
            (1e-4, 25, 56.7, 56.7),
            (1e-4, 10, 141.9, 141.9),
            (1e-3, 50, 9.0, 9.0),
            (1e-3, 25, 17.9, 17.9),
            (1e-3, 10, 44.9, 44.9),
            (4e-3, 50, 4.5, 4.5),
            (4e-3, 25, 9.0, 9.0),
            (4e-3, 10, 22.4, 22.4),
        ] {
            let rtt = ms as f64 / 1e3;
            let mbit = |window: f64| window * 1448.0 * 8.0 / rtt / 1e6;
            let (by_reno, by_cubic) = (mbit(reno_window(1.0, p)), mbit(cubic(0.4, rtt, p)));
            assert_eq!((by_reno * 10.0).round() / 10.0, reno, "{p}, {ms} ms");
            assert_eq!((by_cubic * 10.0).round() / 10.0, cubics, "{p}, {ms} ms");
        }
    }

    #[test]
    fn splitting_gains_as_derived() {
        // algorithms/split-connections C.3: loss spread evenly over k segments: k^1.5 for Reno, k for CUBIC's curve
        for k in [2.0_f64, 4.0, 5.0] {
            let (rtt, p) = (0.05, 1e-6);
            let reno = k * reno_window(1.0, p / k) / reno_window(1.0, p);
            assert!((reno - k.powf(1.5)).abs() < 1e-9, "{reno}");
            let curve = cubic_window(0.4, 0.7, rtt / k, p / k) * k / cubic_window(0.4, 0.7, rtt, p);
            assert!((curve - k).abs() < 1e-9, "{curve}");
        }
    }

    #[test]
    fn satellite_window_has_computed_loss_events() {
        // algorithms/satellite E.2: 456 kbit/s over 615 ms are 24 segments, or one loss event in
        // 0.26 % (b = 1), 0.13 % (b = 2)
        assert_eq!(f64::round(456e3 * 0.615 / 8.0 / 1460.0), 24.0);
        for (b, percent) in [(1.0, 0.26), (2.0, 0.13)] {
            assert_eq!(reno_window(b, percent / 100.0).round(), 24.0);
        }
    }
}
