//! When to ask a database again that did not answer. What it was asked may still wait there, and hold a connection.

use crate::store::StoreError;
use std::time::{Duration, Instant};

/// The first wait; each next one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// The longest: a tenth of the silence after which a relay counts as gone.
const LONGEST: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pause {
    wait: Duration,
    /// Its end, while there was no answer.
    until: Option<Instant>,
}

impl Pause {
    /// Whether the database may be asked at `now`.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// Whether there was no answer the last time.
    pub(super) const fn is_begun(&self) -> bool {
        self.until.is_some()
    }

    /// What the database answered at `now`. One that cannot be reached keeps nothing waiting.
    pub(super) fn on_answer<T>(&mut self, answer: &Result<T, StoreError>, now: Instant) {
        match answer {
            Ok(_) => *self = Self::default(),
            Err(StoreError::Late(_)) => {
                self.wait = (2 * self.wait).clamp(FIRST, LONGEST);
                self.until = Some(now + self.wait);
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_does_not_answer_is_asked_after_growing_pauses() {
        let (mut pause, mut now) = (Pause::default(), Instant::now());
        assert!(pause.is_over(now) && !pause.is_begun());
        let late = || Err::<(), _>(StoreError::Late(5));
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            pause.on_answer(&late(), now);
            let end = now + Duration::from_secs(seconds);
            assert!(!pause.is_over(end - Duration::from_millis(1)) && pause.is_over(end));
            now = end;
        }
        // one that cannot be reached at all changes nothing
        pause.on_answer(&Err::<(), _>(StoreError::Database(sqlx::Error::PoolClosed)), now);
        assert!(pause.is_over(now) && pause.is_begun());
        pause.on_answer(&Ok(()), now);
        assert!(!pause.is_begun());
        pause.on_answer(&late(), now);
        assert!(pause.is_over(now + FIRST));
    }
}
