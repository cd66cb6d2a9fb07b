//! The thread that verifies passwords, one at a time. It rests after each for as long as that took, and runs at
//! low priority: guessing must not slow down other clients.

use super::LoginVerdict;
use super::guesses::GuessKeys;
use super::queue::{FairQueue, Pushed, Ticket};
use super::remembered::Remembered;
use super::verdicts::Digest;
use crate::account::AccountId;
use crate::{locked, password};
use ekiden_linux::host::panics::restarted_on_thread;
use ekiden_model::units::{Span, Time};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
#[cfg(test)]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;
use tokio::sync::watch;

/// Of the 19 steps of `nice`: under full load this leaves a tenth of a core, so that a first log-in
/// takes some 0.2 s.
const BEHIND: i32 = 10;
/// Passwords that wait to be hashed: at 40 ms each the last of them waits 2.6 s.
const QUEUE: usize = 64;

/// A password to look at.
pub(crate) struct Attempt {
    pub(crate) who: GuessKeys,
    /// Of user, password, the stored hash and the account.
    pub(crate) digest: Digest,
    /// Whose login it is if the password is right.
    pub(crate) account: Option<AccountId>,
    /// A name that somebody has, or one of those that are treated alike. It counts only at an address that many share.
    pub(crate) expected: bool,
    pub(crate) password: String,
    pub(crate) stored: String,
}

impl Attempt {
    /// Attempts alike share a hash. Not across addresses: the time would tell one what another tries.
    const fn key(&self) -> (IpAddr, Digest) {
        (self.who.address, self.digest)
    }

    /// Whose line of the queue it waits in: its address's. All who come through a web server on this machine have
    /// loopback's, so there each name has a line.
    fn line(&self) -> Line {
        (self.who.address, self.who.address.is_loopback().then_some(self.who.user))
    }
}

type Line = (IpAddr, Option<Digest>);

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("address", &self.who.address).finish_non_exhaustive()
    }
}

/// The thread's post box; it ends with it.
#[derive(Debug)]
pub(crate) struct PasswordHasher(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    begun: Instant,
    state: Mutex<State>,
    /// Something came, or all is over.
    changed: Condvar,
    /// It is to panic at the next attempt.
    #[cfg(test)]
    panics: AtomicBool,
}

#[derive(Debug)]
struct State {
    queue: FairQueue<Line, Attempt>,
    /// Those that wait or are being hashed.
    open: BTreeMap<(IpAddr, Digest), Open>,
    remembered: Remembered,
    ended: bool,
}

#[derive(Debug)]
struct Open {
    /// While it waits.
    ticket: Option<Ticket>,
    answer: watch::Sender<Option<LoginVerdict>>,
}

impl PasswordHasher {
    pub(crate) fn begin() -> std::io::Result<Self> {
        let shared = Arc::new(Shared::new());
        let theirs = Arc::clone(&shared);
        thread::Builder::new().name("passwords".to_owned()).spawn(move || theirs.run())?;
        Ok(Self(shared))
    }

    /// Whether this was right at this address before, lately enough.
    pub(crate) fn is_known(&self, address: IpAddr, digest: &Digest, account: AccountId) -> bool {
        locked(&self.0.state).remembered.is_known(self.0.now(), address, digest, account)
    }

    /// The verdict on what is not known, where no hash is needed or where the attempt has to wait.
    pub(crate) fn verdict_at_once(&self, who: &GuessKeys, digest: &Digest) -> Option<LoginVerdict> {
        locked(&self.0.state).remembered.verdict_at_once(self.0.now(), who, digest)
    }

    #[cfg(test)]
    pub(super) fn on_wrong(&self, who: &GuessKeys) {
        locked(&self.0.state).remembered.guesses.on_wrong(self.0.now(), who);
    }

    /// The verdict: 20 to 40 ms after its turn. [`LoginVerdict::Busy`] where the queue has no room. The password is
    /// forgotten when it was hashed, and before when all who wait for the verdict are gone.
    pub(crate) async fn verdict(&self, attempt: Attempt) -> LoginVerdict {
        let Some(mut place) = self.0.enter(attempt) else { return LoginVerdict::Busy };
        let verdict = place.verdict.wait_for(Option::is_some).await;
        // without one, another took its place
        verdict.ok().and_then(|verdict| *verdict).unwrap_or(LoginVerdict::Busy)
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        self.0.end();
    }
}

impl Drop for PasswordHasher {
    fn drop(&mut self) {
        self.end();
    }
}

/// Somebody who waits for a verdict.
struct Place<'a> {
    shared: &'a Shared,
    key: (IpAddr, Digest),
    line: Line,
    ticket: Option<Ticket>,
    verdict: watch::Receiver<Option<LoginVerdict>>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = locked(&self.shared.state);
        let Some(open) = state.open.get(&self.key) else { return };
        // the last one that waits for it; another like it may have come after it lost its place
        if let Some(ticket) = self.ticket
            && open.ticket == self.ticket
            && open.answer.receiver_count() <= 1
        {
            state.queue.remove(&self.line, ticket);
            state.open.remove(&self.key);
        }
    }
}

impl Shared {
    fn new() -> Self {
        let state = State {
            queue: FairQueue::new(QUEUE),
            open: BTreeMap::new(),
            remembered: Remembered::new(),
            ended: false,
        };
        Self {
            begun: Instant::now(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            #[cfg(test)]
            panics: AtomicBool::new(false),
        }
    }

    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn enter(&self, attempt: Attempt) -> Option<Place<'_>> {
        let (key, line, now) = (attempt.key(), attempt.line(), self.now());
        let mut state = locked(&self.state);
        if state.ended {
            return None;
        }
        if let Some(open) = state.open.get(&key) {
            let (ticket, verdict) = (open.ticket, open.answer.subscribe());
            return Some(Place { shared: self, key, line, ticket, verdict });
        }
        // names that nobody has give way there as addresses that guess do
        let gives_way = match key.0.is_loopback() {
            true => !attempt.expected,
            false => state.remembered.guesses.has_guessed(now, &key.0),
        };
        let Pushed::Queued(ticket, dropped) = state.queue.push(line, gives_way, attempt) else {
            return None;
        };
        if let Some(dropped) = dropped {
            state.open.remove(&dropped.key());
        }
        let (ticket, (answer, verdict)) = (Some(ticket), watch::channel(None));
        state.open.insert(key, Open { ticket, answer });
        self.changed.notify_one();
        Some(Place { shared: self, key, line, ticket, verdict })
    }

    fn run(&self) {
        /// Nobody waits for a thread that is gone.
        struct Ending<'a>(&'a Shared);
        impl Drop for Ending<'_> {
            fn drop(&mut self) {
                self.0.end();
            }
        }
        let _ending = Ending(self);
        // of this thread alone (setpriority(2)); where that is refused it is as urgent as the others
        let _ = rustix::process::setpriority_process(None, BEHIND);
        restarted_on_thread("the check of passwords", || self.work());
    }

    fn work(&self) {
        // the one at which a panic ended it has no verdict
        locked(&self.state).open.retain(|_, open| open.ticket.is_some());
        while let Some((attempt, wait)) = self.next() {
            #[cfg(test)]
            assert!(!self.panics.swap(false, Ordering::AcqRel), "a test asked for it");
            let begun = Instant::now();
            let verdict = if wait > Span::ZERO { LoginVerdict::Wait(wait) } else { hash(&attempt) };
            let key = attempt.key();
            self.on_verdict(&attempt, verdict);
            drop(attempt);
            if let Some(open) = locked(&self.state).open.remove(&key) {
                // whoever asked may have gone
                let _ = open.answer.send(Some(verdict));
            }
            thread::sleep(begun.elapsed());
        }
    }

    /// The next attempt, waited for, and how long it must back off: many wait while the first of them are found wrong.
    fn next(&self) -> Option<(Attempt, Span)> {
        let mut state = locked(&self.state);
        loop {
            if state.ended {
                return None;
            }
            if let Some(attempt) = state.queue.pop() {
                if let Some(open) = state.open.get_mut(&attempt.key()) {
                    open.ticket = None;
                }
                let wait = state.remembered.guesses.wait(self.now(), &attempt.who);
                return Some((attempt, wait));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn on_verdict(&self, attempt: &Attempt, verdict: LoginVerdict) {
        let (mut state, now) = (locked(&self.state), self.now());
        match verdict {
            LoginVerdict::Known(account) => {
                state.remembered.on_right(now, &attempt.who, attempt.digest, account);
            }
            LoginVerdict::Wrong => {
                state.remembered.on_wrong(now, &attempt.who, attempt.digest);
                state.queue.on_guess(&attempt.line());
            }
            LoginVerdict::WrongAgain | LoginVerdict::Wait(_) | LoginVerdict::Busy => {}
        }
    }

    fn end(&self) {
        let mut state = locked(&self.state);
        state.ended = true;
        state.queue.clear();
        state.open.clear();
        self.changed.notify_all();
    }
}

fn hash(attempt: &Attempt) -> LoginVerdict {
    let right = password::matches(&attempt.password, &attempt.stored);
    attempt.account.filter(|_| right).map_or(LoginVerdict::Wrong, LoginVerdict::Known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::task::Poll;

    fn attempt(address: [u8; 4], digest: u8, password: &str, stored: &str) -> Attempt {
        let address = IpAddr::V4(Ipv4Addr::from(address));
        let who = GuessKeys { address, user: [digest; 32], both: [digest; 32] };
        let (password, stored) = (password.to_owned(), stored.to_owned());
        let account = Some(AccountId(7));
        Attempt { who, digest: [digest; 32], account, expected: true, password, stored }
    }

    /// Without a thread, so that all wait.
    fn idle() -> Shared {
        Shared::new()
    }

    fn waiting(shared: &Shared) -> usize {
        let state = locked(&shared.state);
        assert!(state.open.values().all(|open| open.ticket.is_some()));
        state.open.len()
    }

    #[tokio::test]
    async fn verifies_passwords_at_low_priority() {
        let hasher = PasswordHasher::begin().unwrap();
        let stored = password::hash("right password").unwrap();
        let known = LoginVerdict::Known(AccountId(7));
        let right = attempt([100, 64, 0, 1], 1, "right password", &stored);
        assert_eq!(hasher.verdict(right).await, known);
        let wrong = attempt([100, 64, 0, 1], 2, "wrong password", &stored);
        assert_eq!(hasher.verdict(wrong).await, LoginVerdict::Wrong);
        let own = |thread: &std::fs::DirEntry| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            let (name, rest) = stat.rsplit_once(") ")?;
            let nice = rest.split(' ').nth(16)?.parse::<i32>().ok()?;
            name.ends_with("(passwords").then_some(nice)
        };
        let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        assert!(threads.filter_map(|thread| own(&thread)).any(|nice| nice >= BEHIND));
    }

    #[test]
    fn attempts_alike_of_one_address_wait_for_one_hash() {
        let shared = idle();
        let enter = |last, digest| shared.enter(attempt([100, 64, 0, last], digest, "", ""));
        let places: Vec<_> = (0..1_000).map(|_| enter(1, 1).unwrap()).collect();
        assert_eq!(waiting(&shared), 1);
        let other = enter(2, 1).unwrap();
        assert_eq!(waiting(&shared), 2, "another address learns nothing from the time");
        drop(other);
        assert_eq!(waiting(&shared), 1);
        // the password is kept for as long as one waits
        let mut places = places.into_iter();
        let last = places.next();
        places.for_each(drop);
        assert_eq!(waiting(&shared), 1);
        drop(last);
        assert_eq!(waiting(&shared), 0);
        assert!(locked(&shared.state).queue.pop().is_none());
    }

    #[tokio::test]
    async fn a_newcomer_takes_the_place_of_the_largest_holder() {
        let shared = idle();
        let enter = |last, digest| shared.enter(attempt([100, 64, 0, last], digest, "", ""));
        let mut crowd: Vec<_> = (0..QUEUE as u8).map(|nth| enter(1, nth).unwrap()).collect();
        assert!(enter(1, 200).is_none());
        let newcomer = enter(2, 1);
        assert!(newcomer.is_some());
        assert_eq!(waiting(&shared), QUEUE);
        // the newest of the other learns at once that there is no room
        let mut dropped = crowd.pop().unwrap();
        drop(crowd.pop());
        // one like it has come meanwhile, and stays when it goes
        let again = enter(1, QUEUE as u8 - 1).unwrap();
        assert_eq!(waiting(&shared), QUEUE);
        {
            let mut learns = std::pin::pin!(dropped.verdict.wait_for(Option::is_some));
            let learned =
                std::future::poll_fn(|context| Poll::Ready(learns.as_mut().poll(context)));
            assert!(matches!(learned.await, Poll::Ready(Err(_))));
        }
        drop(dropped);
        assert_eq!(waiting(&shared), QUEUE);
        drop(again);
        assert_eq!(waiting(&shared), QUEUE - 1);
    }

    #[test]
    fn names_that_nobody_has_take_no_place_of_others_behind_a_web_server() {
        let shared = idle();
        let enter = |address, name, expected| {
            shared.enter(Attempt { expected, ..attempt(address, name, "", "") })
        };
        let local = [127, 0, 0, 1];
        let mut crowd: Vec<_> =
            (0..QUEUE as u8).map(|name| enter(local, name, false).unwrap()).collect();
        assert!(enter(local, 100, false).is_none());
        crowd.push(enter(local, 101, true).unwrap());
        assert_eq!(waiting(&shared), QUEUE);
        // and it has its turn at once
        let first = locked(&shared.state).queue.pop().unwrap();
        assert!(first.expected && first.digest == [101; 32]);
        // elsewhere an address has one line for all names
        let shared = idle();
        let enter = |address, name, expected| {
            shared.enter(Attempt { expected, ..attempt(address, name, "", "") })
        };
        let there = [100, 64, 0, 1];
        crowd.clear();
        let crowd: Vec<_> =
            (0..QUEUE as u8).map(|name| enter(there, name, false).unwrap()).collect();
        assert!(enter(there, 101, true).is_none());
        drop(crowd);
    }

    #[tokio::test]
    async fn a_thread_that_panics_gives_no_verdict_and_checks_the_next_password() {
        let hasher = PasswordHasher::begin().unwrap();
        let stored = password::hash("right password").unwrap();
        let right = || attempt([100, 64, 0, 1], 1, "right password", &stored);
        hasher.0.panics.store(true, Ordering::Release);
        assert_eq!(hasher.verdict(right()).await, LoginVerdict::Busy);
        assert_eq!(hasher.verdict(right()).await, LoginVerdict::Known(AccountId(7)));
    }

    #[tokio::test]
    async fn nobody_waits_for_a_thread_that_ended() {
        let hasher = PasswordHasher::begin().unwrap();
        hasher.end();
        let asked = hasher.verdict(attempt([100, 64, 0, 1], 1, "a password", "")).await;
        assert_eq!(asked, LoginVerdict::Busy);
    }
}
