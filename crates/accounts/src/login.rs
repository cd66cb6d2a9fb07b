//! Login attempts: cached verdicts, verdicts that need a hash, and attempts that must back off.
//!
//! A hash takes about 20 ms of a core and 19 MiB: they run one at a time, for a queue of bounded
//! length, and not after too many wrong guesses. Successful verdicts are cached, so known clients
//! skip all this.

use crate::account::{AccountId, Credential};
use crate::backoff::{Backoff, BackoffLimits};
use crate::directory::Directory;
use crate::hasher::PasswordHasher;
use crate::{locked, password};
use ekiden_model::units::{Span, Time};
use ring::hmac;
use ring::rand::SystemRandom;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginVerdict {
    /// The login belongs to this account.
    Known(AccountId),
    /// Wrong user or password, without saying which.
    Wrong,
    /// Too many wrong attempts; try again after this time.
    Wait(Span),
    /// Too many attempts at once; try again in a second.
    Busy,
}

/// Attempts that wait to be looked at: at 40 ms each the last of them waits 2.6 s.
const QUEUE: usize = 64;
/// Verdicts kept: a few devices each of some thousands of accounts; 1 MiB.
const KEPT: usize = 16_384;
/// algorithms/split-connections C.9: cached credentials are good for 24 h.
const GOOD_FOR: Span = Span::from_secs(24 * 3600);

/// Guessing one user's password from one address: beyond a few typing mistakes it is at most one in five minutes.
const BY_BOTH: BackoffLimits = BackoffLimits {
    free: 5,
    first: Span::from_secs(1),
    most: Span::from_secs(300),
    forget: Span::from_secs(900),
    remembered: 16_384,
};
/// Guessing one user's password from anywhere. The longest wait is short: the user may have to wait
/// too.
const BY_USER: BackoffLimits = BackoffLimits { free: 10, most: Span::from_secs(60), ..BY_BOTH };
/// Users guessed at from one address, each counted once: a village behind it may have as many
/// devices with an old password, and none stops its neighbours.
const BY_ADDRESS: BackoffLimits = BackoffLimits { free: 30, ..BY_BOTH };

type Digest = [u8; 32];

/// Looks at attempts to log in.
#[derive(Debug)]
pub struct LoginAttempts {
    key: hmac::Key,
    begun: Instant,
    kept: Mutex<VerdictCache>,
    addresses: Mutex<Backoff<IpAddr>>,
    users: Mutex<Backoff<Digest>>,
    both: Mutex<Backoff<Digest>>,
    waiting: AtomicUsize,
    turn: Arc<Semaphore>,
    hashing: PasswordHasher<OwnedSemaphorePermit>,
}

/// Against whom a wrong guess is held.
struct GuessKeys {
    address: IpAddr,
    user: Digest,
    both: Digest,
}

/// Verdicts by a keyed hash of user, password and its stored hash, so that a change voids them.
#[derive(Debug, Default)]
struct VerdictCache {
    verdicts: BTreeMap<Digest, (AccountId, Time)>,
    order: VecDeque<Digest>,
}

impl LoginAttempts {
    /// None yet. Fails when the system gives no random bytes, or no thread.
    pub fn new() -> Result<Self, String> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        // now, and not while somebody waits
        let _ = nobody();
        Ok(Self {
            key: key.map_err(|_| "the system gives no random bytes".to_owned())?,
            begun: Instant::now(),
            kept: Mutex::default(),
            addresses: Mutex::new(Backoff::new(BY_ADDRESS)),
            users: Mutex::new(Backoff::new(BY_USER)),
            both: Mutex::new(Backoff::new(BY_BOTH)),
            waiting: AtomicUsize::new(0),
            turn: Arc::new(Semaphore::new(1)),
            hashing: PasswordHasher::begin()
                .map_err(|error| format!("no thread for passwords: {error}"))?,
        })
    }

    /// Whose user and password these are, from an address.
    pub async fn verify_login(
        &self,
        directory: &Directory,
        user: &str,
        password: &str,
        from: IpAddr,
    ) -> LoginVerdict {
        let known = directory.by_user(user);
        // for a user that is not there the same is done, so that the time tells nothing
        let (account, stored) = match known {
            Some((account, Credential::Password { hash, .. })) => (Some(account.id), hash.as_str()),
            _ => (None, nobody()),
        };
        let digest = self.digest(&[user, password, stored]);
        let now = self.now();
        if let Some(account) = account
            && self.is_kept(&digest, account, now)
        {
            return LoginVerdict::Known(account);
        }
        let who = self.who(from, user);
        let wait = self.wait(now, &who);
        if wait > Span::ZERO {
            return LoginVerdict::Wait(wait);
        }
        let Some(_place) = QueueSlot::take(&self.waiting) else { return LoginVerdict::Busy };
        let Ok(turn) = Arc::clone(&self.turn).acquire_owned().await else {
            return LoginVerdict::Busy;
        };
        // many wait their turn while the first of them are found wrong
        let now = self.now();
        let wait = self.wait(now, &who);
        if wait > Span::ZERO {
            return LoginVerdict::Wait(wait);
        }
        let right = self.hashing.matches(password, stored, turn).await;
        match account.filter(|_| right) {
            Some(account) => {
                self.keep(digest, account);
                LoginVerdict::Known(account)
            }
            None => {
                self.on_wrong(&who);
                LoginVerdict::Wrong
            }
        }
    }

    fn who(&self, from: IpAddr, user: &str) -> GuessKeys {
        let address = network(from);
        let both = self.digest(&[&address.to_string(), user]);
        GuessKeys { address, user: self.digest(&[user]), both }
    }

    fn wait(&self, now: Time, who: &GuessKeys) -> Span {
        let by_address = locked(&self.addresses).wait(now, &who.address);
        let by_user = locked(&self.users).wait(now, &who.user);
        by_address.max(by_user).max(locked(&self.both).wait(now, &who.both))
    }

    fn on_wrong(&self, who: &GuessKeys) {
        let now = self.now();
        if locked(&self.both).on_failure(now, &who.both) == 1 {
            locked(&self.addresses).on_failure(now, &who.address);
        }
        locked(&self.users).on_failure(now, &who.user);
    }

    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn digest(&self, parts: &[&str]) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            // with its length, so that no two lists are the same bytes
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part.as_bytes());
        }
        let mut digest = Digest::default();
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }

    fn is_kept(&self, digest: &Digest, account: AccountId, now: Time) -> bool {
        locked(&self.kept)
            .verdicts
            .get(digest)
            .is_some_and(|(whose, since)| *whose == account && now.since(*since) < GOOD_FOR)
    }

    fn keep(&self, digest: Digest, account: AccountId) {
        let now = self.now();
        let mut kept = locked(&self.kept);
        if kept.verdicts.insert(digest, (account, now)).is_none() {
            kept.order.push_back(digest);
        }
        if kept.order.len() > KEPT
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.verdicts.remove(&oldest);
        }
    }
}

struct QueueSlot<'a>(&'a AtomicUsize);

impl<'a> QueueSlot<'a> {
    fn take(waiting: &'a AtomicUsize) -> Option<Self> {
        let taken = waiting.fetch_update(Relaxed, Relaxed, |n| (n < QUEUE).then_some(n + 1));
        taken.ok().map(|_| Self(waiting))
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The hash of a password that nobody has.
fn nobody() -> &'static str {
    static NOBODY: OnceLock<String> = OnceLock::new();
    // made once, as the others are; should that fail, comparing with nothing is only quicker
    NOBODY.get_or_init(|| password::hash("nobody has this one").unwrap_or_default())
}

/// Whom an address stands for: of IPv6 a customer has a /64 at least (RFC 6177).
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Account, Attributes, Device};

    fn account(password: &str) -> Directory {
        let hash = password::hash(password).unwrap();
        let credential = Credential::Password { user: "anna".into(), hash };
        let device = Device { name: "phone".into(), credential };
        Directory::new(
            1,
            vec![Account {
                id: AccountId(7),
                name: "tanaka".into(),
                devices: vec![device],
                attributes: Attributes::default(),
            }],
        )
    }

    fn from(last: u8) -> IpAddr {
        IpAddr::from([100, 64, 0, last])
    }

    #[tokio::test]
    async fn caches_a_verdict_until_the_password_changes() {
        let (attempts, before) = (LoginAttempts::new().unwrap(), account("old password"));
        let known = LoginVerdict::Known(AccountId(7));
        assert_eq!(attempts.verify_login(&before, "anna", "old password", from(1)).await, known);
        // with nobody left to work anything out, only what is kept is known
        let _all = attempts.turn.clone().acquire_owned().await.unwrap();
        attempts.waiting.store(QUEUE, Relaxed);
        assert_eq!(attempts.verify_login(&before, "anna", "old password", from(1)).await, known);
        let after = account("new password");
        let asked = attempts.verify_login(&after, "anna", "old password", from(1)).await;
        assert_eq!(asked, LoginVerdict::Busy);
    }

    #[tokio::test]
    async fn guessing_backs_off_and_known_users_do_not_wait() {
        let (attempts, directory) = (LoginAttempts::new().unwrap(), account("right password"));
        let known = attempts.verify_login(&directory, "anna", "right password", from(1)).await;
        assert_eq!(known, LoginVerdict::Known(AccountId(7)));
        let mut verdicts = Vec::new();
        for guess in 0..8 {
            let guess = format!("guess number {guess}");
            verdicts.push(attempts.verify_login(&directory, "anna", &guess, from(1)).await);
        }
        assert_eq!(verdicts[..6], [LoginVerdict::Wrong; 6]);
        assert!(matches!(verdicts[6], LoginVerdict::Wait(_)), "{verdicts:?}");
        // a neighbour behind the same address
        let other = attempts.verify_login(&directory, "otto", "a wrong password", from(1)).await;
        assert_eq!(other, LoginVerdict::Wrong);
        // the same address, the same user
        let known = attempts.verify_login(&directory, "anna", "right password", from(1)).await;
        assert_eq!(known, LoginVerdict::Known(AccountId(7)));
    }

    #[tokio::test]
    async fn distributed_guessing_backs_off_one_user_only() {
        let (attempts, directory) = (LoginAttempts::new().unwrap(), account("right password"));
        let mut last = LoginVerdict::Wrong;
        for address in 0..=11 {
            last =
                attempts.verify_login(&directory, "anna", "a wrong password", from(address)).await;
        }
        assert!(matches!(last, LoginVerdict::Wait(_)), "{last:?}");
        let other = attempts.verify_login(&directory, "otto", "a wrong password", from(99)).await;
        assert_eq!(other, LoginVerdict::Wrong);
        // who has to wait does not stand in the way of those who may try
        attempts.waiting.store(QUEUE, Relaxed);
        let waits = attempts.verify_login(&directory, "anna", "a wrong password", from(100)).await;
        assert!(matches!(waits, LoginVerdict::Wait(_)), "{waits:?}");
    }

    #[test]
    fn guessing_many_users_backs_off_the_address() {
        let attempts = LoginAttempts::new().unwrap();
        let waits = |user: usize| {
            let who = attempts.who(from(1), &format!("user {user}"));
            let wait = attempts.wait(attempts.now(), &who);
            attempts.on_wrong(&who);
            wait > Span::ZERO
        };
        assert_eq!((0..40).position(waits), Some(31));
    }

    #[tokio::test]
    async fn unknown_users_and_wrong_passwords_get_the_same_answer() {
        let (attempts, directory) = (LoginAttempts::new().unwrap(), account("right password"));
        for (last, user) in [(2, "anna"), (3, "otto"), (4, "")] {
            let asked =
                attempts.verify_login(&directory, user, "nobody has this one", from(last)).await;
            assert_eq!(asked, LoginVerdict::Wrong, "{user}");
        }
    }

    #[test]
    fn ipv6_addresses_count_by_their_64_prefix() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(network(ip("2001:db8::1")), network(ip("2001:db8::2:3")));
        assert_ne!(network(ip("2001:db8:0:1::1")), network(ip("2001:db8::1")));
        assert_eq!(network(ip("::ffff:192.0.2.1")), ip("192.0.2.1"));
    }
}
