//! Medians and spreads of a handful of repeats.

/// The middle value, the mean of the two middle ones for an even number; `None` of nothing.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// Largest less smallest, as a share of the median: 0.1 is «within 10 %». `None` of nothing or of a
/// median of zero.
#[must_use]
pub fn spread(values: &[f64]) -> Option<f64> {
    let middle = median(values).filter(|m| *m != 0.0)?;
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some((high - low) / middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_one_bad_run() {
        assert_eq!(median(&[10.0, 11.0, 900.0]), Some(11.0));
        assert_eq!(median(&[4.0, 2.0]), Some(3.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn the_spread_is_relative_to_the_median() {
        assert_eq!(spread(&[9.0, 10.0, 11.0]), Some(0.2));
        assert_eq!(spread(&[0.0]), None);
    }
}
