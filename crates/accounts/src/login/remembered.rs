//! What is remembered of attempts: wrong guesses, and verdicts.

use super::LoginVerdict;
use super::guesses::{GuessKeys, Guesses};
use super::verdicts::{Digest, VerdictCache};
use crate::account::AccountId;
use ekiden_model::units::{Span, Time};
use std::net::IpAddr;

#[derive(Debug)]
pub(crate) struct Remembered {
    pub(crate) guesses: Guesses,
    kept: VerdictCache,
}

impl Remembered {
    pub(crate) fn new() -> Self {
        Self { guesses: Guesses::new(), kept: VerdictCache::default() }
    }

    /// Whether this was right at this address, lately enough. One that is known at other addresses alone is not: who has to
    /// wait would find it by guesses that do not count.
    pub(crate) fn is_known(
        &mut self,
        now: Time,
        address: IpAddr,
        digest: &Digest,
        account: AccountId,
    ) -> bool {
        self.kept.holds(address, digest, account, now)
    }

    /// The verdict on what is not known, where no hash is needed or where the attempt has to wait.
    pub(crate) fn verdict_at_once(
        &mut self,
        now: Time,
        who: &GuessKeys,
        digest: &Digest,
    ) -> Option<LoginVerdict> {
        // also of a user that is not there, so that the time tells nothing
        let is_wrong = self.kept.is_wrong(who.address, digest, now);
        let wait = self.guesses.wait(now, who);
        if wait > Span::ZERO {
            // also where it was wrong before: otherwise guesses without end would tell what others tried
            return Some(LoginVerdict::Wait(wait));
        }
        is_wrong.then_some(LoginVerdict::WrongAgain)
    }

    /// A password was right.
    pub(crate) fn on_right(
        &mut self,
        now: Time,
        who: &GuessKeys,
        digest: Digest,
        account: AccountId,
    ) {
        self.kept.keep(who.address, digest, account, now);
    }

    /// A password was wrong.
    pub(crate) fn on_wrong(&mut self, now: Time, who: &GuessKeys, digest: Digest) {
        self.guesses.on_wrong(now, who);
        self.kept.keep_wrong(who.address, digest, now);
    }
}
