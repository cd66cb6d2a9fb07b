//! Questions for names, and their replies. They belong to no connection of an account, and count all the same: else
//! whatever they carry would pass for nothing.

use super::{NotAdmitted, Quotas, UNCLAIMED, framing};
use crate::settings::{Limits, Unclaimed};
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::quota::{Config, Direction};
use ekiden_model::units::Span;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How far an account's rate may be behind: questions come in bursts, and a busy account is always a little behind.
const BEHIND: Span = Span::from_secs(1);

/// Bytes that may wait to be charged, where it is the turn of other accounts.
const DUE: u64 = 64 * 1024;

/// What an account's limits say to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionVerdict {
    /// It has counted, and its reply will.
    Counts,
    /// The rate has to pay for others first.
    Later,
    /// The quota is used up. Few questions are answered then, for nothing: browsers find no page that says so without names.
    Spent,
}

impl Quotas {
    /// The account that pays for the questions of a client that has none by itself. `None`: nobody limits it.
    pub(crate) fn payer_at(&self, client: IpAddr) -> Result<Option<Arc<str>>, NotAdmitted> {
        if !self.wanted.load(Relaxed) {
            return Ok(None);
        }
        let state = locked(&self.state);
        match state.claims.of_client(client, None) {
            Some(name) => Ok(Some(Arc::clone(name))),
            None if state.unclaimed == Unclaimed::Refuse => Err(NotAdmitted::Unclaimed),
            None => Ok((state.config != Config::default()).then(|| UNCLAIMED.into())),
        }
    }

    /// A question of so many bytes came for the account.
    pub(crate) fn on_question(&self, payer: &str, bytes: usize) -> QuestionVerdict {
        self.change(|state, now| {
            if !state.accounts.contains_key(payer) {
                state.set(now, payer, Limits::default());
            }
            // a removed account stays removed
            let found = state.accounts.get(payer);
            let account = found.and_then(|found| Some((found.account?, Arc::clone(&found.used))));
            let Some((account, used)) = account else { return QuestionVerdict::Later };
            // what others left, or no question would ever pay for it
            for direction in Direction::ALL {
                framing::charge_due(state, now, (account, &used), &used.due, direction);
            }
            if state.quota.cut_until(account).is_some() {
                return QuestionVerdict::Spent;
            }
            let mut paid_at = |direction| state.quota.paid_at(now, account, direction);
            let is_late =
                Direction::ALL.into_iter().any(|direction| paid_at(direction) > now + BEHIND);
            if is_late || used.due.iter().any(|due| due.load(Relaxed) > DUE) {
                return QuestionVerdict::Later;
            }
            used.due[Direction::Up as usize].fetch_add(bytes as u64, Relaxed);
            framing::charge_due(state, now, (account, &used), &used.due, Direction::Up);
            QuestionVerdict::Counts
        })
    }

    /// A reply of so many bytes goes to the account.
    pub(crate) fn on_reply(&self, payer: &str, bytes: usize) {
        self.charge_for(payer, Direction::Down, bytes);
    }

    /// So many bytes came from the account that are no question.
    pub(crate) fn on_discarded(&self, payer: &str, bytes: usize) {
        self.charge_for(payer, Direction::Up, bytes);
    }

    fn charge_for(&self, payer: &str, direction: Direction, bytes: usize) {
        self.change(|state, now| {
            if !state.accounts.contains_key(payer) {
                state.set(now, payer, Limits::default());
            }
            let Some(found) = state.accounts.get(payer) else { return };
            let Some(account) = found.account else { return };
            let used = Arc::clone(&found.used);
            // with what is due, or a busy relay would let it grow
            used.due[direction as usize].fetch_add(bytes as u64, Relaxed);
            framing::charge_due(state, now, (account, &used), &used.due, direction);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Allowance, ExceededAction, Sharing};
    use ekiden_model::units::Bytes;

    fn used(quotas: &Quotas) -> u64 {
        quotas.usage().iter().map(|usage| usage.up + usage.down).sum()
    }

    #[test]
    fn bytes_beyond_a_quota_are_due_until_it_grows_and_count_once() {
        let limits = |bytes| {
            let (bytes, period) = (Bytes::new(bytes), Span::from_secs(3_600));
            let quota = Allowance { bytes, period, on_exceeded: ExceededAction::Cut };
            Limits { quota: Some(quota), ..Limits::default() }
        };
        let quotas = Quotas::new(&Sharing::default());
        quotas.set("anna", limits(1_000));
        let anna = quotas.admit_known("anna", None).unwrap();
        assert_eq!(quotas.on_question("anna", 100), QuestionVerdict::Counts);
        anna.charge_later(Direction::Down, 1_200);
        // the first uses it up, the second finds it so
        quotas.on_second();
        quotas.on_second();
        quotas.on_reply("anna", 300);
        assert_eq!(quotas.on_question("anna", 100), QuestionVerdict::Spent, "for nothing");
        assert_eq!(used(&quotas), 1_000);
        quotas.set("anna", limits(10_000));
        quotas.on_second();
        quotas.on_second();
        assert_eq!(used(&quotas), 1_600);
    }
}
