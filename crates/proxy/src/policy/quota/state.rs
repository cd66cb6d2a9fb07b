//! What the quotas' lock guards, and what follows a change once the lock is free.

use super::claims::Claims;
use super::{Quotas, Usage, framing};
use crate::observe::registry::ConnectionEntry;
use crate::settings::{Limits, Sharing, Unclaimed};
use ekiden_linux::host::clock;
use ekiden_model::resources::quota::{Account, Config, Direction, Flow, Quota};
use ekiden_model::units::{Span, Time};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::Waker;

/// How long connections of a cut account may take to deliver bytes they were granted.
const LAST_BYTES: Span = Span::from_secs(10);

#[derive(Debug)]
pub(super) struct State {
    pub(super) quota: Quota,
    pub(super) config: Config,
    pub(super) unclaimed: Unclaimed,
    /// Every account since the start.
    pub(super) accounts: BTreeMap<Arc<str>, AccountState>,
    names: BTreeMap<Account, Arc<str>>,
    pub(super) claims: Claims,
    pub(super) slots: HashMap<Flow, ConnectionSlot>,
    /// When the background task wakes.
    pub(super) armed: Time,
    /// Connections to end at a time, unless they ended by themselves or may go on by then.
    ending: VecDeque<(Time, Flow)>,
    pub(super) refused: u64,
}

/// An account. Its counters outlive it, for later readers.
#[derive(Debug)]
pub(super) struct AccountState {
    /// `None` once it was removed.
    pub(super) account: Option<Account>,
    pub(super) limits: Limits,
    /// What the configuration says, if it names it: it leaves with that.
    in_file: Option<Limits>,
    /// Whether the directory sets its limits, which count before the configuration's.
    in_directory: bool,
    pub(super) used: Arc<UsageCounters>,
    before: [u64; 2],
    pub(super) last_second: [u64; 2],
}

/// Bytes up and down since the start.
#[derive(Debug, Default)]
pub(super) struct UsageCounters {
    pub(super) used: [AtomicU64; 2],
    /// Framing of connections that are gone, which is still to be charged.
    pub(super) due: [AtomicU64; 2],
}

impl UsageCounters {
    /// Under the lock of the quota, so that the two never differ.
    pub(super) fn add(&self, direction: Direction, bytes: u64) {
        self.used[direction as usize].fetch_add(bytes, Relaxed);
    }

    pub(super) fn get(&self) -> [u64; 2] {
        [self.used[0].load(Relaxed), self.used[1].load(Relaxed)]
    }
}

#[derive(Debug)]
pub(super) struct ConnectionSlot {
    pub(super) entry: Option<Weak<ConnectionEntry>>,
    pub(super) wakers: [Option<Waker>; 2],
}

/// Work for after the lock is free.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    wakers: Vec<Waker>,
    ended: Vec<Arc<ConnectionEntry>>,
    rearm: bool,
}

pub(super) const fn config(settings: &Sharing) -> Config {
    Config { rates: [settings.uplink, settings.downlink] }
}

impl State {
    pub(super) fn new(settings: &Sharing) -> Self {
        let config = config(settings);
        Self {
            quota: Quota::new(config, clock::now()),
            config,
            unclaimed: settings.unclaimed,
            accounts: BTreeMap::new(),
            names: BTreeMap::new(),
            claims: Claims::default(),
            slots: HashMap::new(),
            armed: Time::NEVER,
            ending: VecDeque::new(),
            refused: 0,
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.config != Config::default()
            || self.unclaimed == Unclaimed::Refuse
            || !self.names.is_empty()
            || !self.claims.is_empty()
    }

    pub(super) fn set(&mut self, now: Time, name: &str, limits: Limits) -> Arc<str> {
        let name: Arc<str> = name.into();
        let state = self.accounts.entry(Arc::clone(&name)).or_insert_with(|| AccountState {
            account: None,
            limits,
            in_file: None,
            in_directory: false,
            used: Arc::default(),
            before: [0; 2],
            last_second: [0; 2],
        });
        match state.account {
            // unchanged limits must not restart the quota's period
            Some(_) if state.limits == limits => {}
            Some(account) => self.quota.set_limits(now, account, limits),
            None => {
                let account = self.quota.join(now, limits);
                state.account = Some(account);
                self.names.insert(account, Arc::clone(&name));
            }
        }
        state.limits = limits;
        name
    }

    /// The configuration's limits. `true`: the directory's count instead, which is news.
    pub(super) fn set_by_file(
        &mut self,
        now: Time,
        name: &str,
        limits: Limits,
    ) -> (Arc<str>, bool) {
        let in_directory = self.accounts.get(name).is_some_and(|state| state.in_directory);
        let name: Arc<str> = match in_directory {
            true => name.into(),
            false => self.set(now, name, limits),
        };
        let before = self.accounts.get_mut(&name).and_then(|state| state.in_file.replace(limits));
        (name, in_directory && before.is_none())
    }

    /// The directory's limits. `true`: the configuration has others, which is news.
    pub(super) fn set_by_directory(&mut self, now: Time, name: &str, limits: Limits) -> bool {
        let name = self.set(now, name, limits);
        let Some(state) = self.accounts.get_mut(&name) else { return false };
        let before = std::mem::replace(&mut state.in_directory, true);
        !before && state.in_file.is_some()
    }

    /// An account leaves. One of the directory that the configuration names, too, begins anew with those limits.
    pub(super) fn leave_directory(&mut self, now: Time, name: &str) -> Vec<Arc<ConnectionEntry>> {
        let entries = self.remove(now, name);
        let Some(state) = self.accounts.get_mut(name) else { return entries };
        let was_there = std::mem::take(&mut state.in_directory);
        if let Some(limits) = state.in_file.filter(|_| was_there) {
            self.set(now, name, limits);
        }
        entries
    }

    /// Accounts that the configuration names no more leave, but for those of the directory.
    pub(super) fn leave_file(
        &mut self,
        now: Time,
        is_named: impl Fn(&str) -> bool,
    ) -> Vec<Arc<ConnectionEntry>> {
        let mut gone = Vec::new();
        for (name, state) in &mut self.accounts {
            if !is_named(name) && state.in_file.take().is_some() && !state.in_directory {
                gone.push(Arc::clone(name));
            }
        }
        gone.iter().flat_map(|name| self.remove(now, name)).collect()
    }

    fn remove(&mut self, now: Time, name: &str) -> Vec<Arc<ConnectionEntry>> {
        let Some(state) = self.accounts.get_mut(name) else { return Vec::new() };
        let Some(account) = state.account.take() else { return Vec::new() };
        self.names.remove(&account);
        let of = |(flow, slot): (&Flow, &ConnectionSlot)| {
            (self.quota.whose(*flow) == Some(account)).then_some(slot.entry.as_ref()?.upgrade()?)
        };
        let entries = self.slots.iter().filter_map(of).collect();
        self.quota.leave(now, account);
        entries
    }

    pub(super) fn usage(&self) -> Vec<Usage> {
        let usage = |(name, state): (&Arc<str>, &AccountState)| {
            let [up, down] = state.used.get();
            Usage { account: Arc::clone(name), down, up }
        };
        self.accounts.iter().map(usage).collect()
    }

    pub(super) fn on_second(&mut self, now: Time) {
        self.charge_late(now);
        for state in self.accounts.values_mut() {
            let used = state.used.get();
            state.last_second = [0, 1].map(|at| used[at].saturating_sub(state.before[at]));
            state.before = used;
        }
    }

    /// Charges accounts for what connections left that are gone.
    fn charge_late(&mut self, now: Time) {
        let is_due = |state: &AccountState| state.used.due.iter().any(|due| due.load(Relaxed) > 0);
        let all = self.accounts.values().filter(|state| is_due(state));
        let all: Vec<_> =
            all.filter_map(|state| Some((state.account?, Arc::clone(&state.used)))).collect();
        for (account, used) in all {
            for direction in Direction::ALL {
                framing::charge_due(self, now, (account, &used), &used.due, direction);
            }
        }
    }

    pub(super) fn deadline(&self) -> Time {
        let ending = self.ending.front().map_or(Time::NEVER, |(due, _)| *due);
        self.quota.deadline().min(ending)
    }

    pub(super) fn on_deadline(&mut self, now: Time) {
        if self.quota.deadline() <= now {
            self.quota.on_deadline(now);
        }
    }

    /// Collects whom to wake and whom to end after a change.
    pub(super) fn deferred(&mut self) -> Deferred {
        let mut deferred = Deferred::default();
        while let Some((flow, direction)) = self.quota.next_ready() {
            let slot = self.slots.get_mut(&flow);
            deferred.wakers.extend(slot.and_then(|slot| slot.wakers[direction as usize].take()));
        }
        while let Some(account) = self.quota.next_cut() {
            // woken, they end by themselves once they have delivered granted bytes
            let due = clock::now() + LAST_BYTES;
            let of = |flow: &&Flow| self.quota.whose(**flow) == Some(account);
            self.ending.extend(self.slots.keys().filter(of).map(|flow| (due, *flow)));
        }
        if self.ending.front().is_some_and(|(due, _)| *due <= clock::now()) {
            let now = clock::now();
            let due = self.ending.iter().take_while(|(due, _)| *due <= now).count();
            for (_, flow) in self.ending.drain(..due) {
                let slot = self.slots.get(&flow).filter(|_| self.quota.is_over(flow));
                deferred.ended.extend(slot.and_then(|slot| slot.entry.as_ref()?.upgrade()));
            }
        }
        deferred.rearm = self.deadline() < self.armed;
        deferred
    }
}

impl Deferred {
    pub(super) fn run(self, quotas: &Quotas) {
        self.wakers.into_iter().for_each(Waker::wake);
        self.ended.iter().for_each(|entry| entry.end());
        if self.rearm {
            quotas.rearm.notify_one();
        }
    }
}
