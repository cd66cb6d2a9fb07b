//! Burst loss from a path's mean loss, and the effect of loss on handshakes.

use super::seconds;
use crate::network::link::GilbertElliott;
use crate::units::{Share, Span};

/// A Gilbert–Elliott process of mean loss p in bursts of `length` (L) packets in the mean: all lost
/// in the bad state, none in the good; from bad to good with 1/L, to bad with p/((1 − p)·L). `None`
/// for lengths below 1, all lost, or bursts that would begin more often than always.
pub fn gilbert_elliott(mean: Share, length: f64) -> Option<GilbertElliott> {
    let whole = Share::ALL.as_parts_per_billion() as f64;
    let p = mean.as_parts_per_billion() as f64 / whole;
    if !length.is_finite() || length < 1.0 || mean == Share::ALL {
        return None;
    }
    let share = |part: f64| Share::from_parts_per_billion(libm::round(part * whole) as u64);
    Some(GilbertElliott {
        to_bad: share(p / ((1.0 - p) * length))?,
        to_good: share(1.0 / length)?,
        good_loss: Share::NONE,
        bad_loss: Share::ALL,
    })
}

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

    fn percent(n: u64) -> Share {
        Share::from_percent(n).unwrap()
    }

    #[test]
    fn satellite_bursts_are_4_to_19_packets() {
        // algorithms/satellite E.2: loss events of 0.26 %, so that L = p/0.0026 at 1 and 5 %
        for (p, expected) in [(1, 4.0), (5, 19.0)] {
            assert_eq!((p as f64 / 100.0 / 0.0026).round(), expected);
        }
    }

    #[test]
    fn mean_and_length_come_out_again() {
        // algorithms/satellite E.2: r = 1/L, from good to bad r·p/(1 − p)
        let chain = gilbert_elliott(percent(5), 19.0).unwrap();
        assert_eq!(chain.to_good.as_parts_per_billion(), 52_631_579);
        assert_eq!(chain.to_bad.as_parts_per_billion(), 2_770_083);
        assert_eq!((chain.good_loss, chain.bad_loss), (Share::NONE, Share::ALL));
        for (p, length) in [(1, 4.0), (3, 10.0), (5, 19.0), (40, 1.0)] {
            let chain = gilbert_elliott(percent(p), length).unwrap();
            let [bad, good] =
                [chain.to_bad, chain.to_good].map(|s| s.as_parts_per_billion() as f64);
            assert!((bad / (bad + good) - p as f64 / 100.0).abs() < 1e-7);
            assert!((1e9 / good - length).abs() < 1e-5);
        }
    }

    #[test]
    fn impossible_parameters_return_none() {
        assert_eq!(gilbert_elliott(percent(1), 0.9), None);
        assert_eq!(gilbert_elliott(percent(1), f64::NAN), None);
        assert_eq!(gilbert_elliott(percent(100), 5.0), None);
        assert_eq!(gilbert_elliott(percent(60), 1.0), None, "1.5 ways out of the good state");
        assert_eq!(gilbert_elliott(percent(0), 5.0).map(|chain| chain.to_bad), Some(Share::NONE));
    }

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
