<<<<<<< HEAD
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
=======
//! The real clock, as the time that the model's values are told.

use ekiden_model::units::{Span, Time};
use std::sync::OnceLock;
use std::time::Instant;

/// Now, since the first call in this process (CLOCK_MONOTONIC): never goes back, does not count time
/// spent suspended, and is not the time of day.
#[must_use]
pub fn now() -> Time {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    Time::ZERO + Span::from(ORIGIN.get_or_init(Instant::now).elapsed())
>>>>>>> linux
}

#[cfg(test)]
mod tests {
    use super::now;

    #[test]
<<<<<<< HEAD
    fn never_goes_back() {
        let times: Vec<_> = (0..1000).map(|_| now()).collect();
        assert!(times.is_sorted());
=======
    fn goes_forward() {
        let first = now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(now().since(first).as_millis() >= 2);
>>>>>>> linux
    }
}
