//! Medians, quartiles and intervals of a handful of repeats; ratios of runs that belong together.

pub(crate) mod bootstrap;
pub(crate) mod paired;

/// The middle value, the mean of the two middle ones for an even number; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// The quantile at `share` (0 … 1) by linear interpolation between ranks (Hyndman and Fan's type 7, as in R and
/// numpy); `None` of nothing.
pub fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let rank = share.clamp(0.0, 1.0) * last as f64;
    let below = *sorted.get(rank.floor() as usize)?;
    let above = *sorted.get(rank.ceil() as usize)?;
    Some(below + (above - below) * rank.fract())
}

/// The n-th root of the product; `None` of nothing and of anything not above zero.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|v| *v <= 0.0 || !v.is_finite()) {
        return None;
    }
    Some((values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// Largest less smallest, as a share of the median; `None` of nothing or of a median of zero.
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
    fn median_ignores_one_outlier() {
        assert_eq!(median(&[10.0, 11.0, 900.0]), Some(11.0));
        assert_eq!(median(&[4.0, 2.0]), Some(3.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn quartiles_are_those_of_r_and_numpy() {
        let values = [7.0, 1.0, 3.0, 5.0];
        assert_eq!(quantile(&values, 0.25), Some(2.5));
        assert_eq!(quantile(&values, 0.75), Some(5.5));
        assert_eq!(quantile(&values, 0.5), median(&values));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn twice_as_fast_and_half_as_fast_is_equal() {
        assert!((geometric_mean(&[2.0, 0.5]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[2.0, 0.0]), None);
    }

    #[test]
    fn spread_is_relative_to_the_median() {
        assert_eq!(spread(&[9.0, 10.0, 11.0]), Some(0.2));
        assert_eq!(spread(&[0.0]), None);
    }
}
