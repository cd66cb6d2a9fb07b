//! When to order a certificate: by the authority's advice (RFC 9773), else by its age; after
//! failures later and later.
//!
//! Times are those of the calendar, as nanoseconds since 1970, because certificates are dated so.

use crate::rng::Rng;
use crate::units::{Span, Time};

/// The waits of [`Renewal`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// After a first failure; ten times as long with each further one (Let's Encrypt's integration
    /// guide: a minute, 10 min, 100 min, then daily). Default 1 min.
    pub first_wait: Span,
    /// But never longer than this. Default 1 day.
    pub longest_wait: Span,
    /// How soon after a certificate the next is ordered at the earliest, or a third of its life if
    /// that is less, unless the authority's advice has changed meanwhile. Default 1 day.
    pub shortest_use: Span,
    /// How often the authority is asked for its advice where it does not say. Default 6 h, as RFC
    /// 9773 §4.3.2 recommends.
    pub ask_again: Span,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            first_wait: Span::from_secs(60),
            longest_wait: Span::from_secs(86_400),
            shortest_use: Span::from_secs(86_400),
            ask_again: Span::from_secs(6 * 3600),
        }
    }
}

/// The authority is asked at least so often and at most so often (RFC 9773 §4.3.2: a minute, a day).
const ASKED: [Span; 2] = [Span::from_secs(60), Span::from_secs(86_400)];

/// The time in which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    /// From then on.
    pub from: Time,
    /// Until then.
    pub until: Time,
}

impl Validity {
    /// Whether it is valid at `now`.
    pub fn holds(&self, now: Time) -> bool {
        self.from <= now && now < self.until
    }

    fn life(&self) -> Span {
        self.until.since(self.from)
    }
}

/// Decides when a certificate is ordered, and when the authority is asked for advice.
#[derive(Debug, Clone)]
pub struct Renewal {
    config: Config,
    rng: Rng,
    certificate: Option<Validity>,
    /// The window of the certificate that was heard of last.
    window: Option<(Time, Time)>,
    /// When the next is due by the certificate's age or the advice, whatever the clock shows.
    planned: Time,
    due: Time,
    asked_at: Time,
    failures: u32,
    failed_at: Time,
    /// How long the authority told to wait then.
    told: Span,
    /// No order before this, after failures.
    waits_until: Time,
}

impl Renewal {
    /// Without a certificate, which is due at once. `seed` spreads the orders of many relays.
    pub fn new(config: Config, seed: u64) -> Self {
        Self {
            config,
            rng: Rng::new(seed),
            certificate: None,
            window: None,
            planned: Time::ZERO,
            due: Time::ZERO,
            asked_at: Time::NEVER,
            failures: 0,
            failed_at: Time::ZERO,
            told: Span::ZERO,
            waits_until: Time::ZERO,
        }
    }

    /// A certificate is in use from now on. The next is due when two thirds of its life are over, a
    /// little before; at once if it has ended. One that has not begun says that this machine's clock is
    /// behind, and not that another is needed.
    pub fn on_certificate(&mut self, now: Time, certificate: Validity) {
        self.certificate = Some(certificate);
        self.window = None;
        self.failures = 0;
        self.waits_until = Time::ZERO;
        self.asked_at = now;
        let third = certificate.life().as_nanos() / 3;
        let early = self.rng.below(third / 8 + 1);
        self.planned = certificate.from + Span::from_nanos(2 * third - early);
        self.plan(now, certificate);
    }

    fn plan(&mut self, now: Time, certificate: Validity) {
        self.due = if now < certificate.until { self.planned } else { now };
    }

    /// This machine's clock was set: it shows `now`, where it would have shown `expected`.
    pub fn on_clock(&mut self, now: Time, expected: Time) {
        if let Some(certificate) = self.certificate {
            self.plan(now, certificate);
        }
        // what was to come at a time of the wrong calendar comes after the same wait
        let back = expected.since(now);
        if back > Span::ZERO {
            let earlier = |time: Time| if time == Time::NEVER { time } else { time - back };
            self.asked_at = earlier(self.asked_at);
            self.failed_at = earlier(self.failed_at);
            self.waits_until = earlier(self.waits_until);
        }
    }

    /// The authority has issued a certificate. One that is not valid by this machine's clock, which is
    /// wrong then, is no reason to order the next at once.
    pub fn on_issued(&mut self, now: Time, certificate: Validity) {
        self.on_certificate(now, certificate);
        self.due = self.due.max(now + self.shortest(certificate));
    }

    fn shortest(&self, certificate: Validity) -> Span {
        self.config.shortest_use.min(Span::from_nanos(certificate.life().as_nanos() / 3))
    }

    /// The authority advises to renew between `start` and `end`, and to be asked again after a time.
    pub fn on_window(&mut self, now: Time, start: Time, end: Time, ask_again: Option<Span>) {
        let again = ask_again.unwrap_or(self.config.ask_again);
        self.asked_at = now + again.clamp(ASKED[0], ASKED[1]);
        let (Some(certificate), true) = (self.certificate, start < end) else { return };
        let changed = self.window.is_some_and(|window| window != (start, end));
        if self.window == Some((start, end)) {
            return;
        }
        self.window = Some((start, end));
        let width = end.since(start).as_nanos();
        let chosen = start + Span::from_nanos(self.rng.below(width.saturating_add(1)));
        // an authority that always wants another one must not get one order after the other
        let shortest = self.shortest(certificate);
        let earliest = if changed { now } else { certificate.from + shortest };
        // the end of the window may be that of the certificate
        let latest = certificate.life().as_nanos() / 10 * 9;
        let latest = certificate.from + Span::from_nanos(latest);
        self.due = chosen.max(earliest).min(latest.max(now));
        self.planned = self.due;
    }

    /// The authority gives no advice, or did not answer.
    pub fn on_no_window(&mut self, now: Time) {
        self.asked_at = now + self.config.ask_again;
    }

    /// The operator wants the authority asked now, and a failed order repeated: after the first wait
    /// since it failed at the earliest, and not before the authority allows it.
    pub fn on_asked(&mut self, now: Time) {
        if self.certificate.is_some() {
            self.asked_at = now;
        }
        if self.failures > 0 {
            let earliest = self.failed_at + self.config.first_wait.max(self.told);
            self.waits_until = self.waits_until.min(earliest);
        }
    }

    /// An order failed; the authority may have said how long to wait at least.
    pub fn on_failure(&mut self, now: Time, retry_after: Option<Span>) {
        self.failures = self.failures.saturating_add(1);
        let longest = self.config.longest_wait;
        let factor = 10_u64.saturating_pow((self.failures - 1).min(9));
        let wait = self.config.first_wait.saturating_mul(factor).min(longest);
        (self.failed_at, self.told) = (now, retry_after.unwrap_or(Span::ZERO));
        let wait = wait.max(self.told);
        // many relays that failed for one reason do not come back together
        let later = self.rng.below(wait.as_nanos() / 4 + 1);
        self.waits_until = now + wait + Span::from_nanos(later);
    }

    /// An order was begun before a restart and has not succeeded; the authority may have said how long
    /// to wait. A program that is started again and again does not order each time.
    pub fn on_unfinished(&mut self, begun_at: Time, retry_after: Option<Span>) {
        (self.failed_at, self.told) = (begun_at, retry_after.unwrap_or(Span::ZERO));
        self.waits_until = begun_at + self.config.first_wait.max(self.told);
    }

    /// Failures since the last certificate.
    pub const fn failures(&self) -> u32 {
        self.failures
    }

    /// When the next certificate is to be ordered.
    pub fn due(&self) -> Time {
        self.due.max(self.waits_until)
    }

    /// When the authority is to be asked for its advice; never without a certificate.
    pub const fn ask_at(&self) -> Time {
        self.asked_at
    }

    /// The next time at which something is to be done.
    pub fn deadline(&self) -> Time {
        self.due().min(self.asked_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Span = Span::from_secs(86_400);

    fn at(days: u64) -> Time {
        Time::ZERO + DAY.saturating_mul(10_000 + days)
    }

    fn fresh() -> Renewal {
        let mut renewal = Renewal::new(Config::default(), 7);
        assert!(renewal.due() <= at(0) && renewal.ask_at() == Time::NEVER);
        renewal.on_certificate(at(0), Validity { from: at(0), until: at(90) });
        renewal
    }

    #[test]
    fn renews_before_two_thirds_of_the_life_are_over() {
        let renewal = fresh();
        assert!(renewal.due() > at(56) && renewal.due() <= at(60), "{:?}", renewal.due());
        // one that is over is due at once
        let mut renewal = Renewal::new(Config::default(), 7);
        renewal.on_certificate(at(100), Validity { from: at(0), until: at(90) });
        assert_eq!(renewal.due(), at(100));
    }

    #[test]
    fn a_clock_that_is_set_later_orders_nothing_again() {
        // behind at the start, and then right
        let mut renewal = Renewal::new(Config::default(), 7);
        renewal.on_certificate(Time::ZERO, Validity { from: at(0), until: at(90) });
        assert!(renewal.due() > at(56));
        renewal.on_clock(at(10), Time::ZERO);
        assert!(renewal.due() > at(56) && renewal.due() <= at(60), "{:?}", renewal.due());
        // ahead at the start: an order that fails is not waited for until then
        let mut renewal = Renewal::new(Config::default(), 7);
        renewal.on_certificate(at(400), Validity { from: at(0), until: at(90) });
        assert_eq!(renewal.due(), at(400));
        renewal.on_failure(at(400), None);
        renewal.on_no_window(at(400));
        renewal.on_clock(at(10), at(400));
        assert!(renewal.due() > at(56) && renewal.due() <= at(60), "{:?}", renewal.due());
        assert_eq!(renewal.ask_at(), at(10) + Config::default().ask_again);
        // nor is the wait after a failure shortened or prolonged
        let mut renewal = Renewal::new(Config::default(), 7);
        renewal.on_failure(at(400), None);
        let wait = renewal.due().since(at(400));
        renewal.on_clock(at(10), at(400));
        assert_eq!(renewal.due().since(at(10)), wait);
        assert_eq!(renewal.ask_at(), Time::NEVER);
    }

    #[test]
    fn a_wrong_clock_does_not_order_again_and_again() {
        for now in [at(0), at(500)] {
            let mut renewal = Renewal::new(Config::default(), 7);
            renewal.on_issued(now, Validity { from: at(200), until: at(290) });
            assert!(renewal.due() >= now + DAY, "{now:?}");
        }
    }

    #[test]
    fn follows_the_advice_and_a_change_of_it() {
        let mut renewal = fresh();
        assert_eq!(renewal.ask_at(), at(0));
        renewal.on_window(at(0), at(70), at(72), Some(Span::from_secs(3600)));
        assert!(renewal.due() >= at(70) && renewal.due() <= at(72));
        assert_eq!(renewal.ask_at(), at(0) + Span::from_secs(3600));
        let chosen = renewal.due();
        renewal.on_window(at(1), at(70), at(72), None);
        assert_eq!(renewal.due(), chosen, "drawn once for each window");
        // revoked: at once
        renewal.on_window(at(2), at(1), at(2), None);
        assert_eq!(renewal.due(), at(2));
    }

    #[test]
    fn an_authority_that_wants_another_at_once_gets_one_a_day() {
        let mut renewal = fresh();
        renewal.on_window(at(0), at(0), at(0) + Span::from_secs(1), None);
        assert_eq!(renewal.due(), at(1));
        // a short life is used for a third of it
        let short = Validity { from: at(0), until: at(0) + Span::from_secs(30) };
        renewal.on_certificate(at(0), short);
        renewal.on_window(at(0), at(0), at(0) + Span::from_secs(1), None);
        assert_eq!(renewal.due(), at(0) + Span::from_secs(10));
        // never as late as its end
        renewal.on_certificate(at(0), short);
        renewal.on_window(at(0), at(30), at(31), None);
        assert_eq!(renewal.due(), at(0) + Span::from_secs(27));
    }

    #[test]
    fn asks_no_more_than_each_minute_and_each_day_at_least() {
        let mut renewal = fresh();
        for (said, asked) in [(0, 60), (7200, 7200), (9_000_000, 86_400)] {
            renewal.on_window(at(0), at(70), at(72), Some(Span::from_secs(said)));
            assert_eq!(renewal.ask_at(), at(0) + Span::from_secs(asked));
        }
        renewal.on_no_window(at(1));
        assert_eq!(renewal.ask_at(), at(1) + Span::from_secs(6 * 3600));
    }

    #[test]
    fn a_restart_does_not_forget_a_failure() {
        let mut renewal = Renewal::new(Config::default(), 7);
        renewal.on_unfinished(at(0), None);
        assert_eq!(renewal.due(), at(0) + Span::from_secs(60));
        renewal.on_unfinished(at(0), Some(DAY));
        assert_eq!(renewal.due(), at(1));
    }

    #[test]
    fn waits_longer_after_each_failure_and_as_long_as_it_is_told() {
        let mut renewal = Renewal::new(Config::default(), 7);
        let mut now = at(0);
        for (minutes, failures) in [(1, 1), (10, 2), (100, 3), (1000, 4), (1440, 5), (1440, 6)] {
            renewal.on_failure(now, None);
            let waited = renewal.due().since(now).as_secs();
            assert!(waited >= minutes * 60 && waited <= minutes * 75, "{minutes}: {waited}");
            assert_eq!(renewal.failures(), failures);
            now = renewal.due();
        }
        // an operator who has mended something need not wait a day
        renewal.on_failure(now, None);
        renewal.on_asked(now);
        assert_eq!(renewal.due(), now + Span::from_secs(60));
        renewal.on_failure(now, Some(DAY.saturating_mul(3)));
        renewal.on_asked(now);
        assert!(renewal.due() >= now + DAY.saturating_mul(3));
        renewal.on_certificate(now, Validity { from: now, until: now + DAY.saturating_mul(90) });
        assert_eq!(renewal.failures(), 0);
        assert!(renewal.due() > now + DAY);
    }
}
