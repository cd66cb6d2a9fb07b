//! The monotonic clock, as `model`'s instants.

use ekiden_model::units::Time;
use std::sync::OnceLock;
use std::time::Instant;

/// Nanoseconds since this process first asked (`CLOCK_MONOTONIC`).
#[must_use]
pub fn now() -> Time {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = ORIGIN.get_or_init(Instant::now);
    Time::from_nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::now;

    #[test]
    fn never_goes_back() {
        let times: Vec<_> = (0..1000).map(|_| now()).collect();
        assert!(times.is_sorted());
    }
}
