//! What the relay was told of an account's quota, and whether it has to be told again.

use ekiden_accounts::{Calendar, QuotaShare};
use ekiden_model::units::{Span, Time};
use jiff::Timestamp;

/// An end that moved by more is told again. Clocks that are kept right drift by less in a second.
const MOVED: Span = Span::from_secs(1);

/// One telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Books {
    /// When the period began.
    begun: Timestamp,
    /// What this relay may carry in it, and whether it may be more.
    may: u64,
    more: bool,
    /// The relay's own count where the period began. It moves where bytes are found that this process did not count.
    zero: u64,
    /// When it ends, by the clock that is never set.
    ends: Time,
}

impl Books {
    /// What is to be told when the calendar shows `now`, at an instant, and `counted` is the relay's own count.
    pub(super) fn new(
        calendar: &Calendar,
        (now, instant): (Timestamp, Time),
        QuotaShare { may, used, more }: QuotaShare,
        counted: u64,
    ) -> Self {
        let left = calendar.next(now).map_or(Span::MAX, |next| {
            let nanos = next.duration_since(now).as_nanos();
            Span::from_nanos(u64::try_from(nanos).unwrap_or(0))
        });
        // what was used before this process began is not in its count
        let zero = counted.wrapping_sub(used);
        Self { begun: calendar.begun(now), may, more, zero, ends: instant + left }
    }

    /// How long the period still goes on.
    pub(super) fn ends_in(&self, instant: Time) -> Span {
        self.ends.since(instant)
    }

    /// Whether the relay keeps to these, with what it was told before. Where that let the period end before its time,
    /// by a clock that was set or slowed down since, the relay has begun a whole quota anew.
    pub(super) fn are_kept(&self, told: Option<Self>, instant: Time) -> bool {
        told.is_some_and(|told| {
            let moved = self.ends.since(told.ends).max(told.ends.since(self.ends));
            let same = Self { ends: self.ends, ..told } == *self;
            same && moved <= MOVED && instant < told.ends
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_accounts::Period;

    const SHARE: QuotaShare = QuotaShare { may: 1_000, used: 10, more: false };

    fn books(period: Period, now: &str, seconds: u64, share: QuotaShare) -> (Books, Time) {
        let calendar = Calendar::new(period, "UTC", 1).unwrap();
        let instant = Time::ZERO + Span::from_secs(seconds);
        let now = now.parse().unwrap();
        (Books::new(&calendar, (now, instant), share, share.used), instant)
    }

    #[test]
    fn a_clock_that_is_set_moves_the_end_of_a_period() {
        let (told, _) = books(Period::Month, "2026-11-20T00:00:00Z", 100, SHARE);
        for (now, seconds, kept) in [
            ("2026-11-20T00:00:01Z", 101, true),
            ("2026-11-20T00:00:01.5Z", 101, true),
            // set back, and ahead
            ("2026-11-10T00:00:00Z", 101, false),
            ("2026-11-29T00:00:00Z", 101, false),
            // over the period's begin
            ("2026-10-31T00:00:00Z", 101, false),
            ("2026-12-01T00:00:00Z", 100 + 11 * 86_400, false),
            // the clock was slowed down, and the relay ended the period at the instant it was told
            ("2026-11-30T23:59:59.5Z", 100 + 11 * 86_400, false),
        ] {
            let (books, instant) = books(Period::Month, now, seconds, SHARE);
            assert_eq!(books.are_kept(Some(told), instant), kept, "{now}");
        }
        let (books, instant) = books(Period::Month, "2026-11-10T00:00:00Z", 101, SHARE);
        assert_eq!(books.ends_in(instant), Span::from_secs(21 * 86_400));
        assert!(!books.are_kept(None, instant));
    }

    #[test]
    fn another_share_is_told_and_what_never_ends_once() {
        let (told, _) = books(Period::Never, "2026-11-20T00:00:00Z", 100, SHARE);
        let later = |share| {
            let (books, instant) = books(Period::Never, "2020-01-01T00:00:00Z", 500, share);
            books.are_kept(Some(told), instant)
        };
        assert!(later(SHARE) && later(QuotaShare { used: 500, ..SHARE }));
        assert!(!later(QuotaShare { may: 2_000, ..SHARE }));
        assert!(!later(QuotaShare { more: true, ..SHARE }));
        // bytes of before that were found later leave less
        let calendar = Calendar::new(Period::Never, "UTC", 1).unwrap();
        let instant = Time::ZERO + Span::from_secs(500);
        let found = QuotaShare { used: 500, ..SHARE };
        let books =
            Books::new(&calendar, ("2026-11-20T00:00:00Z".parse().unwrap(), instant), found, 10);
        assert!(!books.are_kept(Some(told), instant));
    }
}
