//! Speed tests of the page for users: who may run one now.

use ekiden_linux::host::sync::locked;
use ekiden_model::units::{Span, Time};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Tests of all clients at a time.
const AT_ONCE: usize = 4;
/// A test has up to five parts; these are two tests.
const PARTS: u32 = 10;
/// The time in which one account has that many.
const WINDOW: Span = Span::from_secs(60);

/// Who runs a test, and who ran one a short while ago.
#[derive(Debug, Default)]
pub(crate) struct SpeedTests(Mutex<BTreeMap<String, Recent>>);

#[derive(Debug)]
struct Recent {
    running: bool,
    since: Time,
    parts: u32,
}

/// One part of a test. Its drop lets the account begin the next.
#[derive(Debug)]
pub(crate) struct SpeedTest<'a>(&'a SpeedTests, String);

impl SpeedTests {
    /// Begins a part of a test of an account, or of a client without one. Fails with the time to wait.
    pub(crate) fn begin(&self, who: &str, now: Time) -> Result<SpeedTest<'_>, Span> {
        const SECOND: Span = Span::from_secs(1);
        let mut all = locked(&self.0);
        all.retain(|_, one| one.running || now.since(one.since) < WINDOW);
        if all.values().filter(|one| one.running).count() >= AT_ONCE {
            return Err(SECOND);
        }
        let own = all.entry(who.to_owned());
        let own = own.or_insert(Recent { running: false, since: now, parts: 0 });
        if own.running {
            return Err(SECOND);
        }
        if now.since(own.since) >= WINDOW {
            (own.since, own.parts) = (now, 0);
        }
        if own.parts >= PARTS {
            let left = WINDOW.as_nanos().saturating_sub(now.since(own.since).as_nanos());
            return Err(Span::from_nanos(left).max(SECOND));
        }
        own.running = true;
        own.parts += 1;
        Ok(SpeedTest(self, who.to_owned()))
    }
}

impl Drop for SpeedTest<'_> {
    fn drop(&mut self) {
        if let Some(own) = locked(&self.0.0).get_mut(&self.1) {
            own.running = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn an_account_runs_one_at_a_time_and_few_in_a_minute() {
        let tests = SpeedTests::default();
        let first = tests.begin("home", at(0)).unwrap();
        assert_eq!(tests.begin("home", at(0)).unwrap_err(), Span::from_secs(1));
        drop(first);
        for _ in 1..PARTS {
            drop(tests.begin("home", at(10)).unwrap());
        }
        assert_eq!(tests.begin("home", at(20)).unwrap_err(), Span::from_secs(40));
        assert!(tests.begin("other", at(20)).is_ok());
        assert!(tests.begin("home", at(60)).is_ok());
        assert_eq!(locked(&tests.0).len(), 2, "those that are over are forgotten");
        let _last = tests.begin("third", at(200));
        assert_eq!(locked(&tests.0).len(), 1);
    }

    #[test]
    fn all_together_run_few_at_a_time() {
        let tests = SpeedTests::default();
        let running: Vec<_> =
            (0..AT_ONCE).map(|n| tests.begin(&n.to_string(), at(0)).unwrap()).collect();
        assert!(tests.begin("one more", at(0)).is_err());
        drop(running);
        assert!(tests.begin("one more", at(0)).is_ok());
    }
}
