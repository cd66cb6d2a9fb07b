//! Questions for names, and their replies. They belong to no connection of an account, and count all the same: else
//! whatever they carry would pass for nothing.

use super::state::State;
use super::{NotAdmitted, Quotas, UNCLAIMED, framing};
use crate::settings::{Limits, Unclaimed};
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::quota::{Config, Direction};
use ekiden_model::units::{Span, Time};
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
            if state.quota.cut_until(account).is_some() {
                return QuestionVerdict::Spent;
            }
            // what others left, or no question would ever pay for it
            if Direction::ALL.into_iter().any(|way| charge(state, now, payer, way, 0).is_none()) {
                return QuestionVerdict::Spent;
            }
            let mut paid_at = |direction| state.quota.paid_at(now, account, direction);
            let is_late =
                Direction::ALL.into_iter().any(|direction| paid_at(direction) > now + BEHIND);
            if is_late || used.due.iter().any(|due| due.load(Relaxed) > DUE) {
                return QuestionVerdict::Later;
            }
            match charge(state, now, payer, Direction::Up, bytes) {
                Some(()) => QuestionVerdict::Counts,
                None => QuestionVerdict::Spent,
            }
        })
    }

    /// A reply of so many bytes goes to the account.
    pub(crate) fn on_reply(&self, payer: &str, bytes: usize) {
        self.change(|state, now| charge(state, now, payer, Direction::Down, bytes));
    }
}

/// `None`: nothing of the account may pass any more.
fn charge(
    state: &mut State,
    now: Time,
    payer: &str,
    direction: Direction,
    bytes: usize,
) -> Option<()> {
    let found = state.accounts.get(payer)?;
    let (account, used) = (found.account?, Arc::clone(&found.used));
    let due = &used.due[direction as usize];
    // with what is due, or a busy relay would let it grow
    let before = due.swap(0, Relaxed);
    let all = before.saturating_add(bytes as u64);
    let counted = framing::charge(state, now, account, &used, direction, all);
    let rest = counted.map_or(before, |counted| all - counted);
    due.fetch_add(rest, Relaxed);
    counted.map(|_| ())
}
