//! The clock that relays of one database share: the database's, where a relay's own is apart from it.
//!
//! Grants of a quota are kept by when its period began, and relays that are silent give theirs back.
//! A relay whose clock is wrong would take grants of another month, or count as gone.

use crate::locked;
use jiff::{SignedDuration, Timestamp};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Clocks may be so far apart: a tenth of the silence after which a relay counts as gone.
const APART: SignedDuration = SignedDuration::from_secs(60);
/// A clock that is not set is complained of so often.
const AGAIN: Duration = Duration::from_secs(3600);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SharedClock {
    /// What the database's clock showed, and when that was heard. From there on the time goes by a
    /// clock that nobody sets.
    heard: Mutex<Option<(Timestamp, Instant)>>,
    complained: Mutex<Option<Instant>>,
}

impl SharedClock {
    /// The time for periods and for what other relays are told: by the own clock until the
    /// database's is known.
    pub(crate) fn now(&self) -> Timestamp {
        self.at(Timestamp::now(), Instant::now())
    }

    fn at(&self, own: Timestamp, instant: Instant) -> Timestamp {
        let theirs = self.theirs(instant).unwrap_or(own);
        if own.duration_since(theirs).abs() > APART { theirs } else { own }
    }

    fn theirs(&self, instant: Instant) -> Option<Timestamp> {
        let (showed, heard) = (*locked(&self.heard))?;
        let since = SignedDuration::try_from(instant.saturating_duration_since(heard)).ok()?;
        showed.checked_add(since).ok()
    }

    pub(crate) fn is_known(&self) -> bool {
        locked(&self.heard).is_some()
    }

    /// The database's clock shows this now. Why the two clocks cannot both be right, if that was not
    /// said lately.
    pub(crate) fn on_heard(&self, showed: Timestamp) -> Option<String> {
        self.on_heard_at(showed, Timestamp::now(), Instant::now())
    }

    fn on_heard_at(&self, showed: Timestamp, own: Timestamp, instant: Instant) -> Option<String> {
        *locked(&self.heard) = Some((showed, instant));
        let ahead = own.duration_since(showed);
        let mut complained = locked(&self.complained);
        if ahead.abs() <= APART
            || complained.is_some_and(|at| instant.saturating_duration_since(at) < AGAIN)
        {
            return None;
        }
        *complained = Some(instant);
        let side = if ahead.is_positive() { "ahead of" } else { "behind" };
        let seconds = ahead.as_secs().unsigned_abs();
        Some(format!(
            "this machine's clock is {seconds} s {side} that of the accounts' database; quotas go by the \
             database's clock until the wrong one is set, for example with `sudo timedatectl set-ntp true`"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_database_s_clock_counts_where_the_own_one_is_apart() {
        let (clock, start) = (SharedClock::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let (month_behind, right) = (at("2026-10-28T12:00:00Z"), at("2026-11-28T12:00:00Z"));
        assert!(!clock.is_known());
        assert_eq!(clock.at(month_behind, start), month_behind);
        let said = clock.on_heard_at(right, month_behind, start).unwrap();
        assert!(said.contains("2678400 s behind"), "{said}");
        assert!(clock.is_known());
        assert_eq!(clock.at(month_behind, start), right);
        // the own clock is set right, and is believed at once, as is known without asking
        assert_eq!(clock.at(at("2026-11-28T12:01:40Z"), after(80)), at("2026-11-28T12:01:40Z"));
        // it jumps, and the time goes on
        assert_eq!(clock.at(at("2027-11-28T00:00:00Z"), after(90)), at("2026-11-28T12:01:30Z"));
    }

    #[test]
    fn clocks_that_are_apart_are_complained_of_once_an_hour() {
        let (clock, start) = (SharedClock::default(), Instant::now());
        let (own, theirs) = (at("2026-11-28T12:00:00Z"), at("2026-11-28T12:02:00Z"));
        let said = |minutes: u64, own| {
            let instant = start + Duration::from_secs(60 * minutes);
            clock.on_heard_at(theirs, own, instant).is_some()
        };
        let said = [
            said(0, theirs - SignedDuration::from_secs(60)),
            said(1, own),
            said(2, own),
            said(60, own),
            said(61, own),
        ];
        assert_eq!(said, [false, true, false, false, true]);
    }
}
