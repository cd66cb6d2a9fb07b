//! Cross traffic: packets of one size at a fixed mean rate, steady or in bursts, without answers
//! (the asymmetric study's "jam packets", as DBS made them).

use crate::rng::Rng;
use crate::units::{Rate, Span};

/// A stream of equal packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamConfig {
    /// Mean, of whatever `wire` counts; 0 sends nothing.
    pub rate: Rate,
    /// Bytes of a packet as the rate counts them, above 0: with framing where the link adds it.
    pub wire: u32,
    /// How it comes.
    pub shape: Shape,
    /// Each packet's random time within its interval, so that periods lock to no other ("traffic
    /// phase effects", Floyd and Jacobson 1992).
    pub seed: u64,
}

/// How a stream comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Evenly.
    Steady,
    /// For `on`, then nothing for `off`, both above 0: while it is on, at (on + off)/on of the mean rate.
    Bursts {
        /// How long a burst is.
        on: Span,
        /// How long the silence after it.
        off: Span,
    },
}

/// A stream while it runs: ask [`Stream::next_at`] for the time of each packet in turn.
#[derive(Debug, Clone)]
pub struct Stream {
    config: StreamConfig,
    rng: Rng,
    sent: u64,
}

impl Stream {
    /// Begins.
    pub fn new(config: StreamConfig) -> Self {
        Self { rng: Rng::new(config.seed), sent: 0, config }
    }

    /// When the next packet is sent, since the stream began; `None` for no stream. Does not drift:
    /// the n-th packet lies in the n-th interval.
    pub fn next_at(&mut self) -> Option<Span> {
        let bits = u128::from(self.config.rate.as_bits_per_second());
        if bits == 0 || self.config.wire == 0 {
            return None;
        }
        let work = u128::from(self.config.wire) * 8 * 1_000_000_000;
        let start = |n: u64| u128::from(n) * work / bits;
        let (begin, end) = (start(self.sent), start(self.sent + 1));
        let wide = u64::try_from(end - begin).unwrap_or(u64::MAX);
        let even = u64::try_from(begin).ok()?.checked_add(self.rng.below(wide.max(1)))?;
        self.sent += 1;
        Some(Span::from_nanos(match self.config.shape {
            Shape::Steady => even,
            Shape::Bursts { on, off } => gathered(even, on.as_nanos(), off.as_nanos()),
        }))
    }
}

/// An even stream's time, gathered into the first part of each period.
fn gathered(even: u64, on: u64, off: u64) -> u64 {
    let period = on.saturating_add(off).max(1);
    let within = u128::from(even % period) * u128::from(on) / u128::from(period);
    even - even % period + within as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn times(config: StreamConfig, count: usize) -> Vec<u64> {
        let mut stream = Stream::new(config);
        (0..count).filter_map(|_| stream.next_at()).map(Span::as_nanos).collect()
    }

    const BURSTS: Shape = Shape::Bursts { on: ms(10), off: ms(10) };

    #[test]
    fn ten_thousand_packets_take_as_long_as_they_should() {
        // 1,514 bytes at 5 Mbit/s: 2,422.4 µs each
        for shape in [Shape::Steady, BURSTS] {
            let rate = Rate::from_bits_per_second(5_000_000);
            let times = times(StreamConfig { rate, wire: 1514, shape, seed: 3 }, 10_001);
            let last = times[10_000] as f64 / 1e9;
            assert!((last - 24.224).abs() < 0.02, "{shape:?}: {last} s");
        }
    }

    #[test]
    fn bursts_are_silent_half_of_the_time_and_dense_the_other() {
        let rate = Rate::from_bits_per_second(12_000_000); // 1,500 bytes: 1,000 a second
        let times = times(StreamConfig { rate, wire: 1500, shape: BURSTS, seed: 1 }, 1000);
        assert!(times.iter().all(|at| at % 20_000_000 < 10_000_000));
        let first = times.iter().filter(|at| **at < 20_000_000).count();
        assert_eq!(first, 20, "a period's worth in its first half");
    }

    #[test]
    fn no_rate_sends_nothing() {
        let config = StreamConfig { rate: Rate::default(), wire: 100, shape: BURSTS, seed: 1 };
        assert_eq!(Stream::new(config).next_at(), None);
    }

    proptest! {
        #[test]
        fn times_never_go_back(bits in 1_u64..10_000_000_000, wire in 1_u32..10_000, on in 1_u64..30_000_000, off in 1_u64..30_000_000, burst: bool, seed: u64) {
            let shape = if burst {
                Shape::Bursts { on: Span::from_nanos(on), off: Span::from_nanos(off) }
            } else {
                Shape::Steady
            };
            let config = StreamConfig { rate: Rate::from_bits_per_second(bits), wire, shape, seed };
            let all = times(config, 300);
            prop_assert!(all.is_sorted());
            // the n-th stays within its interval, and within a period of it in bursts
            let each = f64::from(wire) * 8e9 / bits as f64;
            let slack = if burst { (on + off) as f64 } else { each } + 1.0;
            for (n, at) in all.iter().enumerate() {
                let off = *at as f64 - n as f64 * each;
                prop_assert!(off >= -slack && off <= slack + each, "{n}: {off}");
            }
        }
    }
}
