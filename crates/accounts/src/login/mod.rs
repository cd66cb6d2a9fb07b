//! Login attempts: cached verdicts, verdicts that need a hash, and attempts that must back off.
//!
//! A hash takes about 20 ms of a core and 19 MiB: they run one at a time, from a [`queue`] of bounded length that
//! addresses share fairly, and not after too many wrong guesses. Loopback may be a web server with many clients behind
//! it: there names share the queue instead, and names that nobody has give way. Attempts of one address with the same user
//! and password share one hash.
//!
//! Verdicts are kept for a day, by address. Known clients skip all this there. Not at another one: who had to wait would be
//! let in by the right guess of as many as he likes. A device that repeats an old password skips the hash, too: the same
//! guess teaches nobody anything, and does not count.

mod backoff;
mod guesses;
mod hasher;
mod queue;
mod remembered;
#[cfg(test)]
mod tests;
mod verdicts;

pub use backoff::{Backoff, BackoffLimits};

use crate::account::{AccountId, Credential};
use crate::directory::Directory;
use crate::password;
use ekiden_model::units::Span;
use guesses::{GuessKeys, network};
use hasher::{Attempt, PasswordHasher};
use ring::hmac;
use ring::rand::SystemRandom;
use std::net::IpAddr;
use std::sync::OnceLock;
use verdicts::Digest;

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginVerdict {
    /// The login belongs to this account.
    Known(AccountId),
    /// Wrong user or password, without saying which.
    Wrong,
    /// The same, and the same attempt of this address was wrong before: nothing was hashed, and nothing is counted.
    WrongAgain,
    /// Too many wrong attempts; try again after this time.
    Wait(Span),
    /// Too many attempts at once; try again in a second.
    Busy,
}

/// Looks at attempts to log in.
#[derive(Debug)]
pub struct LoginAttempts {
    key: hmac::Key,
    hasher: PasswordHasher,
}

impl LoginAttempts {
    /// None yet. Fails when the system gives no random bytes, or no thread.
    pub fn new() -> Result<Self, String> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        // now, and not while somebody waits
        let _ = nobody();
        Ok(Self {
            key: key.map_err(|_| "the system gives no random bytes".to_owned())?,
            hasher: PasswordHasher::begin()
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
        // whose it is belongs to it: attempts alike share a verdict, and a number may become another's
        let number = account.map(|account| account.0.to_string()).unwrap_or_default();
        let digest = self.digest(&[user, password, stored, &number]);
        let address = network(from);
        if let Some(account) = account
            && self.hasher.is_known(address, &digest, account)
        {
            return LoginVerdict::Known(account);
        }
        let who = self.who(address, user, stored);
        if let Some(verdict) = self.hasher.verdict_at_once(&who, &digest) {
            return verdict;
        }
        // asked for either, so that the time tells nothing
        let decoy = self.is_decoy(user);
        let expected = account.is_some() || decoy;
        let (password, stored) = (password.to_owned(), stored.to_owned());
        self.hasher.verdict(Attempt { who, digest, account, expected, password, stored }).await
    }

    /// Whether a name that nobody has is treated as one that somebody has: one in sixteen, which only this process knows.
    /// So a place in the full queue does not tell that a name exists.
    fn is_decoy(&self, user: &str) -> bool {
        self.digest(&["decoy", user])[0] < 16
    }

    /// Wrong guesses are held against a name with its present password: they were of another one before a change.
    fn who(&self, address: IpAddr, user: &str, stored: &str) -> GuessKeys {
        let both = self.digest(&[&address.to_string(), user, stored]);
        GuessKeys { address, user: self.digest(&[user, stored]), both }
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
}

/// The hash of a password that nobody has.
fn nobody() -> &'static str {
    static NOBODY: OnceLock<String> = OnceLock::new();
    // made once, as the others are; should that fail, comparing with nothing is only quicker
    NOBODY.get_or_init(|| password::hash("nobody has this one").unwrap_or_default())
}
