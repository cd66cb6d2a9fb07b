//! The accounts' limits, driven by [`ekiden_model::resources::quota`].
//!
//! ```text
//! set(), remove(), set_until()      change an account's limits, also for live connections
//! admit_by_origin(), admit_known()  a connection of an account: an AccountConnection, or why not
//! on_question(), on_reply()         a question for a name, and what is sent back
//! AccountConnection, Meter          asked before bytes are read: how many may pass now, or wake
//! later
//! usage()                           bytes of each account since the start
//! ```
//! **What counts**: HTTP messages with heads, interim responses, chunk framing and trailers; requests
//! that open a tunnel, and their answers; the payload of tunnels and datagrams, with the heads of SOCKS
//! and of capsules; questions for names, and replies; TLS records and frames of HTTP/2 around them
//! (`Framing`). Each byte counts once, when the limits let it pass, also from the cache, and even if
//! it is lost later or its receiver broke. What is written anew counts as it was read or as it was
//! written, whichever is longer. The relay's own refusals and retransmissions do not count.
//!
//! A connection from before there was an account or a relay-wide rate stays unmetered to its end.
//! One lock guards all state; it is held for about a microsecond, and never across a wait.

mod admission;
mod claims;
mod connection;
mod framing;
mod meter;
mod names;
mod refusal;
mod report;
mod spent_readers;
mod state;
mod used_up;

pub(crate) use connection::AccountConnection;
pub(crate) use framing::Framing;
pub(crate) use meter::Meter;
pub(crate) use names::QuestionVerdict;
pub(crate) use refusal::NotAdmitted;
pub use report::AccountRank;
pub(crate) use spent_readers::SpentReaders;

use crate::settings::{Limits, Sharing};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::{Bytes, Span, Time};
use state::{State, config};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use used_up::UsedUp;

/// The account of unclaimed clients; no configured account can have this name.
const UNCLAIMED: &str = "(unclaimed)";

/// All accounts and their limits; see the module.
#[derive(Debug)]
pub struct Quotas {
    state: Mutex<State>,
    /// Wakes the background task because a deadline came closer.
    rearm: Notify,
    wanted: AtomicBool,
    used_up: Mutex<UsedUp>,
}

/// An account's usage since the start: payload bytes, each once. It never decreases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The account's name.
    pub account: Arc<str>,
    /// Bytes to the account.
    pub down: u64,
    /// Bytes from the account.
    pub up: u64,
}

impl Quotas {
    pub(crate) fn new(settings: &Sharing) -> Arc<Self> {
        let quotas = Self {
            state: Mutex::new(State::new(settings)),
            rearm: Notify::new(),
            wanted: AtomicBool::new(false),
            used_up: Mutex::default(),
        };
        quotas.configure(settings);
        Arc::new(quotas)
    }

    /// Applies other settings, also to live connections; those of accounts that left end. An account that
    /// [`Quotas::set`] named stays as it is.
    pub(crate) fn configure(&self, settings: &Sharing) {
        let (gone, twice) = self.change(|state, now| {
            state.unclaimed = settings.unclaimed;
            if state.config != config(settings) {
                state.config = config(settings);
                state.quota.set_relay(now, state.config);
            }
            state.claims = Default::default();
            let mut twice: Vec<Arc<str>> = Vec::new();
            for account in &settings.list {
                let (name, is_twice) = state.set_by_file(now, &account.name, account.limits);
                account.addresses.iter().for_each(|net| state.claims.claim(*net, &name));
                account.peers.iter().for_each(|peer| state.claims.claim_peer(peer, &name));
                twice.extend(is_twice.then_some(name));
            }
            let named = |name: &str| settings.list.iter().any(|one| one.name == name);
            (state.leave_file(now, named), twice)
        });
        gone.iter().for_each(|entry| entry.end());
        twice.iter().for_each(|name| warn_of_two(name));
    }

    /// Adds an account of the directory or changes its limits, which count before those of the configuration. An
    /// existing account keeps its connections and usage.
    pub fn set(&self, name: &str, limits: Limits) {
        if self.change(|state, now| state.set_by_directory(now, name, limits)) {
            warn_of_two(name);
        }
    }

    /// Removes an account and ends its connections; returns how many there were. Of one that [`Quotas::set`] named, the
    /// configuration's limits count from now on, if it has any.
    pub fn remove(&self, name: &str) -> usize {
        let entries = self.change(|state, now| state.leave_directory(now, name));
        entries.iter().for_each(|entry| entry.end());
        entries.len()
    }

    /// Lets an account go on until [`Quotas::usage`] reaches `until` bytes, both directions
    /// together; its period ends after `ends_in`. For bookkeeping that outlives this process or
    /// follows the calendar. With `more` it waits there for another allowance instead of counting
    /// as spent. `false`: no such account, or no quota.
    pub fn set_until(&self, name: &str, until: u64, ends_in: Span, more: bool) -> bool {
        self.change(|state, now| {
            let found = state.accounts.get(name).filter(|one| one.limits.quota.is_some());
            let Some((account, found)) = found.and_then(|one| Some((one.account?, one))) else {
                return false;
            };
            let [up, down] = found.used.get();
            let left = Bytes::new(until.saturating_sub(up.saturating_add(down)));
            state.quota.set_left(now, account, left, now + ends_in, more);
            true
        })
    }

    /// Usage of each account since the start, also of removed accounts.
    pub fn usage(&self) -> Vec<Usage> {
        locked(&self.state).usage()
    }

    /// Wakes connections whose turn comes by time alone. Never returns.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let due = {
                let mut state = locked(&self.state);
                state.armed = state.deadline();
                state.armed
            };
            tokio::select! {
                () = sleep_until(due) => self.change(|state, now| state.on_deadline(now)),
                () = self.rearm.notified() => {}
            }
        }
    }

    pub(crate) fn on_second(&self) {
        let used_up = self.change(|state, now| {
            state.on_second(now);
            state.used_up()
        });
        self.say_used_up(&used_up);
    }

    /// Changes the state, then wakes and ends the connections that the change concerns.
    fn change<T>(&self, work: impl FnOnce(&mut State, Time) -> T) -> T {
        let (result, deferred) = {
            let state = &mut *locked(&self.state);
            let result = work(state, clock::now());
            self.wanted.store(state.is_wanted(), Relaxed);
            (result, state.deferred())
        };
        deferred.run(self);
        result
    }
}

fn warn_of_two(account: &str) {
    tracing::warn!(%account, "the configuration and the database have this account: the database's limits count");
}

async fn sleep_until(due: Time) {
    if due == Time::NEVER {
        return std::future::pending().await;
    }
    // the timer's range is limited; the loop checks again after a day
    let wait = due.since(clock::now()).min(Span::from_secs(86_400));
    tokio::time::sleep(wait.into()).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Account, Allowance, ExceededAction};

    fn quota(bytes: u64) -> Limits {
        let (bytes, period) = (Bytes::new(bytes), Span::from_secs(3_600));
        let quota = Allowance { bytes, period, on_exceeded: ExceededAction::Cut };
        Limits { quota: Some(quota), ..Limits::default() }
    }

    fn naming_tanaka() -> Sharing {
        let (name, addresses, peers) = ("tanaka".to_owned(), Vec::new(), Vec::new());
        let tanaka = Account { name, addresses, peers, limits: Limits::default() };
        Sharing { list: vec![tanaka], ..Sharing::default() }
    }

    fn standing(quotas: &Quotas) -> Option<[Option<u64>; 2]> {
        quotas.account("tanaka").map(|one| [one.quota, one.quota_left])
    }

    #[test]
    fn an_account_of_the_directory_keeps_its_limits_over_reloads() {
        let quotas = Quotas::new(&naming_tanaka());
        assert_eq!(standing(&quotas), Some([None, None]));
        quotas.set("tanaka", quota(1_000_000));
        assert!(quotas.set_until("tanaka", 400_000, Span::from_secs(3_600), false));
        for sharing in [naming_tanaka(), Sharing::default(), naming_tanaka()] {
            quotas.configure(&sharing);
            assert_eq!(standing(&quotas), Some([Some(1_000_000), Some(400_000)]));
            assert!(quotas.admit_known("tanaka", None).is_ok());
        }
    }

    #[test]
    fn an_account_that_left_the_directory_is_the_configurations_again() {
        let quotas = Quotas::new(&naming_tanaka());
        quotas.set("tanaka", quota(1_000_000));
        quotas.remove("tanaka");
        assert_eq!(standing(&quotas), Some([None, None]));
        assert!(quotas.admit_known("tanaka", None).is_ok());
        quotas.configure(&Sharing::default());
        assert_eq!(standing(&quotas), None);
        assert!(quotas.admit_known("tanaka", None).is_err());
    }
}
