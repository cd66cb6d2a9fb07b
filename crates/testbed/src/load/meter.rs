//! Bytes over time, counted by many threads at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What is counted together.
const SLOT: Duration = Duration::from_millis(100);

/// Counts of bytes by tenths of a second.
#[derive(Debug)]
pub struct Meter {
    begin: Instant,
    slots: Vec<AtomicU64>,
}

impl Meter {
    /// A meter of `lasts` from `begin` on; what comes outside is not counted.
    pub fn new(begin: Instant, lasts: Duration) -> Self {
        let slots = lasts.as_nanos().div_ceil(SLOT.as_nanos());
        Self { begin, slots: (0..slots).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Counts bytes that have come now.
    pub fn add(&self, bytes: u64) {
        self.add_at(Instant::now(), bytes);
    }

    fn add_at(&self, at: Instant, bytes: u64) {
        let Some(since) = at.checked_duration_since(self.begin) else { return };
        let slot = since.as_nanos() / SLOT.as_nanos();
        if let Some(slot) = self.slots.get(slot as usize) {
            slot.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes that came in this time, to a tenth of a second.
    pub fn between(&self, from: Duration, to: Duration) -> u64 {
        let slot = |at: Duration| (at.as_nanos() / SLOT.as_nanos()) as usize;
        let (from, to) = (slot(from), slot(to).min(self.slots.len()));
        let counted = self.slots.get(from..to).unwrap_or_default();
        counted.iter().map(|slot| slot.load(Ordering::Relaxed)).sum()
    }

    /// The longest time between these two in which nothing came, to a tenth of a second.
    pub fn longest_pause(&self, from: Duration, to: Duration) -> Duration {
        let slot = |at: Duration| (at.as_nanos() / SLOT.as_nanos()) as usize;
        let (from, to) = (slot(from), slot(to).min(self.slots.len()));
        let (mut now, mut most) = (0_u32, 0);
        for slot in self.slots.get(from..to).unwrap_or_default() {
            now = if slot.load(Ordering::Relaxed) == 0 { now + 1 } else { 0 };
            most = most.max(now);
        }
        SLOT * most
    }

    /// Mbit/s in each second.
    pub fn over_time(&self) -> Vec<[f64; 2]> {
        let seconds = self.slots.chunks(10).enumerate();
        let rate = |(second, slots): (usize, &[AtomicU64])| {
            let bytes: u64 = slots.iter().map(|slot| slot.load(Ordering::Relaxed)).sum();
            let lasted = slots.len() as f64 * SLOT.as_secs_f64();
            [second as f64, bytes as f64 * 8.0 / 1e6 / lasted]
        };
        seconds.map(rate).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_found_where_they_came() {
        let ms = Duration::from_millis;
        let begin = Instant::now() + ms(10);
        let meter = Meter::new(begin, Duration::from_secs(3));
        meter.add_at(begin + ms(1_250), 1_000);
        meter.add_at(begin + ms(1_250), 250);
        assert_eq!(meter.between(ms(1_200), ms(1_300)), 1_250);
        assert_eq!(meter.between(ms(0), ms(1_200)), 0);
        assert_eq!(meter.between(ms(1_300), ms(9_000)), 0);
        assert_eq!(meter.over_time(), [[0.0, 0.0], [1.0, 0.01], [2.0, 0.0]]);
        let pause = |from, to| meter.longest_pause(ms(from), ms(to));
        assert_eq!(pause(0, 3_000), ms(1_700));
        assert_eq!(
            [pause(0, 1_300), pause(1_200, 1_300), pause(1_000, 9_000)],
            [ms(1_200), ms(0), ms(1_700)]
        );
        // too early and too late
        meter.add_at(begin - ms(1), 1);
        meter.add_at(begin + ms(3_000), 1);
        assert_eq!(meter.between(ms(0), ms(9_000)), 1_250);
    }
}
