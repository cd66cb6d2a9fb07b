//! Two states that follow each other: interactive and bulk flows (the thin-client study).

/// Flows of the second kind to one of the first: (1 − α)/(1 − β); α, β: the first, second follows
/// itself.
pub fn stationary_ratio(alpha: f64, beta: f64) -> f64 {
    (1.0 - alpha) / (1.0 - beta)
}

/// How many in a row are of a kind that follows itself with probability `stay`: 1/(1 − stay).
pub fn run_length(stay: f64) -> f64 {
    1.0 / (1.0 - stay)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounded(value: f64, decimals: i32) -> f64 {
        let scale = 10_f64.powi(decimals);
        (value * scale).round() / scale
    }

    #[test]
    fn flows_as_seed_0_counted_them() {
        // algorithms/thin-client B.3: 0.214 where 198 bulk flows to 934 were seen, 0.212; Internet 0.146
        assert_eq!(rounded(stationary_ratio(0.91, 0.58), 3), 0.214);
        assert_eq!(rounded(198.0 / 934.0, 3), 0.212);
        assert_eq!(rounded(stationary_ratio(0.94, 0.59), 3), 0.146);
        // β read as the way from bulk to interactive gives 0.155, and so is not what was meant
        assert_eq!(rounded(stationary_ratio(0.91, 1.0 - 0.58), 3), 0.155);
        assert_eq!((rounded(run_length(0.91), 1), rounded(run_length(0.58), 2)), (11.1, 2.38));
    }
}
