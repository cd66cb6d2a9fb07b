//! How late datagrams left that had a time to leave at.

use ekiden_model::units::Span;

/// Lateness by powers of the square root of two, from 1 µs up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacingError {
    counts: [u64; 48],
    total: u64,
}

impl Default for PacingError {
    fn default() -> Self {
        Self { counts: [0; 48], total: 0 }
    }
}

impl PacingError {
    pub(super) fn add(&mut self, late: Span) {
        let mut nth = 0;
        while nth < self.counts.len() - 1 && late > Self::edge(nth) {
            nth += 1;
        }
        self.counts[nth] += 1;
        self.total += 1;
    }

    fn edge(nth: usize) -> Span {
        let whole = 1_000_u64 << (nth / 2);
        Span::from_nanos(if nth.is_multiple_of(2) { whole } else { whole * 1_414 / 1_000 })
    }

    /// How many there were.
    pub const fn count(&self) -> u64 {
        self.total
    }

    /// So many per cent were no later than this upper edge (at most 1.42 times the truth), if any.
    pub fn percentile(&self, percent: u64) -> Option<Span> {
        let wanted = (self.total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let nth = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        nth.filter(|_| self.total > 0).map(Self::edge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_upper_edges() {
        let mut late = PacingError::default();
        assert_eq!(late.percentile(50), None);
        (0..90).for_each(|_| late.add(Span::from_micros(3)));
        (0..10).for_each(|_| late.add(Span::from_micros(700)));
        assert_eq!(late.percentile(50), Some(Span::from_micros(4)));
        assert_eq!(late.percentile(99), Some(Span::from_nanos(724_000 - 32)));
        assert_eq!(late.count(), 100);
    }
}
