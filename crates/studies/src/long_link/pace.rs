//! How evenly packets leave, by the kernel's time stamps at the link: each gap beside the time that the packet
//! before takes at the held rate, and every interval beside the envelope of algorithms/satellite E.4.

use super::bottleneck::SentPacket;
use ekiden_emulator::topology::MTU;
use ekiden_lab::engine::Outcome;
use ekiden_lab::statistics::quantile;
use ekiden_model::units::Rate;
use std::time::Duration;

/// Up to this rate a burst is two packets (algorithms/satellite E.4: B).
const SLOW: u64 = 200_000_000;
/// Beyond it, what the rate sends in so long, ns.
const BURST: u64 = 100_000;

/// Of what a sender let go over some time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Paced {
    /// What gaps are wrong by, µs: half of them at most, 99 of 100, the worst.
    errors: [f64; 3],
    /// By how much any interval had more than the rate, in packets; a perfect pacer's is 1.
    burst: f64,
    /// How much more is allowed.
    allowed: f64,
}

/// E.4's B, in packets.
fn allowed(rate: Rate) -> f64 {
    let rate = rate.as_bits_per_second();
    if rate <= SLOW {
        return 2.0;
    }
    let bits = u128::from(rate) * u128::from(BURST) / 1_000_000_000;
    bits.div_ceil(8 * u128::from(MTU)) as f64
}

impl Paced {
    /// Of packets in the order in which they left, at `rate` on the wire; nothing of fewer than two.
    pub(crate) fn of(packets: &[SentPacket], rate: Rate) -> Option<Self> {
        let bits = rate.as_bits_per_second().max(1) as f64;
        let takes = |packet: &SentPacket| f64::from(packet.bytes) * 8.0 / bits;
        let gaps = packets.windows(2).filter_map(|pair| match pair {
            [a, b] => Some((b.offered.as_secs_f64() - a.offered.as_secs_f64() - takes(a)).abs()),
            _ => None,
        });
        let errors: Vec<f64> = gaps.map(|gap| gap * 1e6).collect();
        let errors = [quantile(&errors, 0.5)?, quantile(&errors, 0.99)?, quantile(&errors, 1.0)?];
        // the fullest interval: how far the sum sent is ahead of its time, less the least of that before
        let (mut sent, mut least, mut burst) = (0.0, f64::INFINITY, 0.0_f64);
        for packet in packets {
            let at = packet.offered.as_secs_f64();
            least = least.min(sent - at);
            sent += takes(packet);
            burst = burst.max(sent - at - least);
        }
        let burst = burst * bits / 8.0 / f64::from(MTU);
        Some(Self { errors, burst, allowed: allowed(rate) })
    }

    /// The outcome's value becomes the median gap error; its former value becomes a figure.
    pub(crate) fn tell(self, outcome: &mut Outcome) {
        let [half, most, worst] = self.errors;
        // stamps are whole nanoseconds and their sums are not: a hundredth of a packet is no packet
        let beyond = if self.burst < self.allowed + 0.01 { 0.0 } else { self.burst - self.allowed };
        outcome.add_figures([
            ("goodput_mbit", outcome.value),
            ("gap_error_p99_us", most),
            ("gap_error_most_us", worst),
            ("burst_packets", self.burst),
            ("burst_allowed_packets", self.allowed),
            ("beyond_envelope_packets", beyond),
        ]);
        outcome.value = half;
    }
}

/// Those of a record that were offered between two times, in order; `None` where the record lacks some of them.
pub(crate) fn in_order(
    all: &[SentPacket],
    from: Duration,
    to: Duration,
) -> Option<Vec<SentPacket>> {
    let mut within: Vec<SentPacket> =
        all.iter().filter(|seen| (from..to).contains(&seen.offered)).copied().collect();
    within.sort_by_key(|seen| seen.number);
    let whole = within.windows(2).all(|pair| match pair {
        [a, b] => a.number + 1 == b.number,
        _ => true,
    });
    whole.then_some(within)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 1,500 bytes take 1 ms.
    const RATE: Rate = Rate::from_bits_per_second(12_000_000);

    fn packets(at: impl IntoIterator<Item = u64>) -> Vec<SentPacket> {
        let one = |(number, at)| SentPacket::new(number as u64, Duration::from_micros(at), 1_500);
        at.into_iter().enumerate().map(one).collect()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn perfect_pacer_has_no_errors_and_a_burst_of_one() {
        let paced = Paced::of(&packets((0..100).map(|n| 1_000 * n)), RATE).unwrap();
        assert!(paced.errors.iter().all(|error| close(*error, 0.0)) && close(paced.burst, 1.0));
        assert_eq!(paced.allowed, 2.0);
        let mut outcome = Outcome { value: 9.9, ..Outcome::default() };
        paced.tell(&mut outcome);
        assert!(close(outcome.value, 0.0) && outcome.figures["goodput_mbit"] == 9.9);
        assert_eq!(outcome.figures["beyond_envelope_packets"], 0.0);
    }

    #[test]
    fn sees_late_packets_and_the_ones_that_caught_up() {
        // one is 500 µs late, the next in time: two gaps are wrong; then three at once, six within 2.5 ms
        let at = [0, 1_000, 2_500, 3_000, 4_000, 5_000, 5_000, 5_000, 9_000];
        let paced = Paced::of(&packets(at), RATE).unwrap();
        assert!(close(paced.burst, 3.5), "{paced:?}");
        assert!(close(paced.errors[2], 3_000.0), "{paced:?}");
        let mut outcome = Outcome::default();
        paced.tell(&mut outcome);
        assert!(close(outcome.figures["beyond_envelope_packets"], 1.5));
    }

    #[test]
    fn bursts_grow_with_fast_rates() {
        let of = |mbit: u64| allowed(Rate::from_bits_per_second(mbit * 1_000_000));
        assert_eq!([4, 200, 500, 1_000].map(of), [2.0, 2.0, 5.0, 9.0]);
    }

    #[test]
    fn refuses_a_record_with_holes() {
        let mut seen = packets([10, 20, 30, 40]);
        seen.swap(1, 2);
        let (from, to) = (Duration::from_micros(10), Duration::from_micros(40));
        let there = in_order(&seen, from, to).unwrap();
        assert_eq!(there, packets([10, 20, 30]));
        seen.remove(2);
        assert!(in_order(&seen, from, to).is_none());
    }

    proptest! {
        /// Beside every interval looked at by itself.
        #[test]
        fn finds_the_fullest_interval(gaps in prop::collection::vec(0_u64..3_000, 1..40)) {
            let mut at = 0;
            let seen = packets([0].into_iter().chain(gaps).map(|gap| { at += gap; at }));
            let mut most = 0.0_f64;
            for (from, a) in seen.iter().enumerate() {
                for (to, b) in seen.iter().enumerate().skip(from) {
                    let took = (b.offered - a.offered).as_secs_f64() * 1e3;
                    most = most.max((to - from + 1) as f64 - took);
                }
            }
            let paced = Paced::of(&seen, RATE).unwrap();
            prop_assert!((paced.burst - most).abs() < 1e-6, "{} {most}", paced.burst);
        }
    }
}
