//! The effect of loss on handshakes.

use super::seconds;
use crate::units::Span;

/// Mean delay that lost SYNs and SYN/ACKs add to a handshake, seconds: RTO₀·f/(1 − 2f) with f = (1
/// − (1 − q)²)ᵏ; `q` loss of a packet, k `copies` an attempt, RTO₀ = `first`, doubling. Infinite
/// from f = ½ on.
pub fn handshake_delay(q: f64, first: Span, copies: u32) -> f64 {
    let failed = libm::pow(1.0 - (1.0 - q) * (1.0 - q), f64::from(copies));
    if failed < 0.5 { seconds(first) * failed / (1.0 - 2.0 * failed) } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_take_as_long_as_computed() {
        // algorithms/asymmetric D.5: with 3 s, with 1 s, with 3 s and two SYNs; share of handshakes that wait
        for (q, three, one, twice, waits, waits_twice) in [
            (0.01, 0.062, 0.021, 0.001, 2.0, 0.04),
            (0.05, 0.363, 0.121, 0.029, 9.8, 0.95),
            (0.10, 0.919, 0.306, 0.117, 19.0, 3.6),
            (0.20, 3.857, 1.286, 0.525, 36.0, 13.0),
        ] {
            let told = [(3, 1), (1, 1), (3, 2)].map(|(first, copies)| {
                (handshake_delay(q, Span::from_secs(first), copies) * 1e3).round() / 1e3
            });
            assert_eq!(told, [three, one, twice], "{q}");
            let fails = 1.0 - (1.0 - q) * (1.0 - q);
            assert!((fails * 100.0 - waits).abs() <= 0.1, "{q}");
            assert!((fails * fails * 100.0 - waits_twice).abs() <= 0.05, "{q}");
        }
        assert_eq!(handshake_delay(0.3, Span::from_secs(1), 1), f64::INFINITY);
    }
}
