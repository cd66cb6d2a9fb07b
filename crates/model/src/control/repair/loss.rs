//! How much a path loses, from what became of packets.
//!
//! Two means are kept: one of the last few hundred packets, which follows the path, and one of the last few thousand,
//! which varies less. The second leaves the first's range of chance only by following it.

/// Packets of the mean that follows, as an exponential one.
const LATELY: f64 = 400.0;
/// Packets of the steady mean.
const STEADY: f64 = 4_000.0;
/// What the first guess counts for among those.
const GUESS: f64 = 50.0;
/// Standard deviations of the mean that follows within which the steady one stays, below it and above it. A rise is
/// followed sooner.
const RANGE: [f64; 2] = [2.0, 3.0];

/// The loss of a path, as its sender has measured it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathLoss {
    lately: f64,
    steady: f64,
    /// Packets of the steady mean so far.
    packets: f64,
}

impl PathLoss {
    /// `guess`: the share of packets lost, 0 to 1, while nothing is known.
    pub const fn new(guess: f64) -> Self {
        Self { lately: guess, steady: guess, packets: GUESS }
    }

    /// A packet was lost, or arrived.
    pub fn on_packet(&mut self, lost: bool) {
        let lost = f64::from(u8::from(lost));
        self.lately += (lost - self.lately) / LATELY;
        self.packets = (self.packets + 1.0).min(STEADY);
        self.steady += (lost - self.steady) / self.packets;
        let [below, above] = RANGE.map(|range| range * deviation(self.lately, 2.0 * LATELY));
        self.steady = self.steady.clamp(self.lately - below, self.lately + above).max(0.0);
    }

    /// The share of packets lost among the last few hundred, 0 to 1.
    pub const fn lately(&self) -> f64 {
        self.lately
    }

    /// What the share exceeds in one of 15 cases, 0 to 1: one and a half deviations above the steady mean. For a thousand
    /// packets after a rise it may be four fifths of the share.
    pub fn upper(&self) -> f64 {
        // an exponential mean varies as a plain one of twice as many
        let packets = self.packets * (1.0 + self.packets / STEADY);
        (self.steady + 1.5 * deviation(self.steady, packets)).min(1.0)
    }
}

/// The standard deviation of a mean of so many packets, each lost by itself.
fn deviation(loss: f64, packets: f64) -> f64 {
    libm::sqrt(loss * (1.0 - loss) / packets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn send(loss: &mut PathLoss, packets: u32, share: f64, rng: &mut Rng) {
        for _ in 0..packets {
            let lost = (rng.below(1 << 30) as f64) < share * f64::from(1 << 30);
            loss.on_packet(lost);
            assert!((0.0..=1.0).contains(&loss.lately()) && (0.0..=1.0).contains(&loss.upper()));
        }
    }

    #[test]
    fn few_packets_tell_little_and_many_nearly_all() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            for share in [0.01, 0.05] {
                let mut loss = PathLoss::new(0.02);
                assert!(loss.upper() > 0.045);
                send(&mut loss, 20_000, share, &mut rng);
                let off = loss.upper() / share;
                assert!((0.85..1.7).contains(&off), "{share}, {seed}: {off}");
            }
        }
    }

    /// To see it fail: keep the steady mean where it is.
    #[test]
    fn a_rise_is_followed_within_a_thousand_packets_and_a_fall_within_4_000() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let mut loss = PathLoss::new(0.02);
            send(&mut loss, 20_000, 0.01, &mut rng);
            send(&mut loss, 1_000, 0.06, &mut rng);
            assert!(loss.upper() > 0.035, "{seed}: {}", loss.upper());
            send(&mut loss, 4_000, 0.0, &mut rng);
            assert!(loss.upper() < 0.001, "{seed}: {}", loss.upper());
        }
    }
}
