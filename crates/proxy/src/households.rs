//! Households: who may have how much of the relay, driven by [`ekiden_model::quota`].
//!
//! ```text
//! set(), remove(), set_until()  what a household may, from now on, on connections that run too
//! admit()                       a connection of a household: a Member, or why not
//! Member, Meter                 asked before bytes are read; says how many may go, else wakes when
//! usage()                       what each has used, since the start
//! ```
//! **What is counted** is payload: bytes of bodies, tunnels and datagrams that were taken from one side to be
//! written to the other, once each, when the limits let them pass. Heads of HTTP requests and responses, the
//! conversations of SOCKS and CONNECT, chunks' frames, refusals and retransmissions are not counted. What came out
//! of the cache counts as what came from the origin. A datagram counts once it is let pass, whatever becomes of it
//! on its way; and what was taken for a side that then broke was used.
//!
//! A connection that was begun while there was neither a household nor a rate of the relay's is not measured, and so
//! not limited, to its end: its bytes pass without a look at anything.
//!
//! One lock guards it all; it is held for the microsecond of a question, and never while somebody is waited for.

mod claims;
mod member;
mod refusal;
mod report;

pub(crate) use member::{Member, Meter};
pub(crate) use refusal::NotAdmitted;

use crate::registry::{Entry, locked};
use crate::settings;
use crate::settings::{Limits, Strangers};
use claims::Claims;
use ekiden_linux::clock;
use ekiden_model::quota::{Config, Flow, Household, Quota, Refused};
use ekiden_model::units::{Bytes, Span, Time};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;
use tokio::sync::Notify;

/// The household of all that no household claims. Not a name that a household can have.
const STRANGERS: &str = "(strangers)";

/// How long connections of a household that is cut may take to hand over what they were given.
const LAST_BYTES: Span = Span::from_secs(10);

/// See the module.
#[derive(Debug)]
pub struct Households {
    state: Mutex<State>,
    /// Something is due earlier than it was.
    earlier: Notify,
    /// Whether clients are to be asked about at all.
    wanted: AtomicBool,
}

#[derive(Debug)]
struct State {
    quota: Quota,
    config: Config,
    strangers: Strangers,
    /// Every household that there was since the start.
    homes: BTreeMap<Arc<str>, Home>,
    names: BTreeMap<Household, Arc<str>>,
    claims: Claims,
    seats: HashMap<Flow, Seat>,
    /// For when the chore sleeps.
    armed: Time,
    /// Connections that end then if they have not by themselves, and are still not to go on.
    ending: VecDeque<(Time, Flow)>,
    refused: u64,
}

/// A household: its counters stay when it goes, for whoever reads them later.
#[derive(Debug)]
struct Home {
    /// `None` when it is gone.
    household: Option<Household>,
    limits: Limits,
    /// It stands in the configuration, and goes when it does not any more.
    configured: bool,
    used: Arc<Used>,
    /// At the last full second, and what moved in it.
    before: [u64; 2],
    lately: [u64; 2],
}

/// Bytes up and down since the start.
#[derive(Debug, Default)]
struct Used([AtomicU64; 2]);

impl Used {
    fn get(&self) -> [u64; 2] {
        [self.0[0].load(Relaxed), self.0[1].load(Relaxed)]
    }
}

/// A connection's place.
#[derive(Debug)]
struct Seat {
    entry: Option<Weak<Entry>>,
    wakers: [Option<Waker>; 2],
}

/// What a household has used since the start: payload bytes, each once. It never becomes less.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Its name.
    pub household: Arc<str>,
    /// To it.
    pub down: u64,
    /// From it.
    pub up: u64,
}

/// What is to be done when the lock is free again.
#[derive(Debug, Default)]
struct After {
    wakers: Vec<Waker>,
    ended: Vec<Arc<Entry>>,
    earlier: bool,
}

impl Households {
    /// As the settings say.
    pub(crate) fn new(settings: &settings::Households) -> Arc<Self> {
        let config = config(settings);
        let state = State {
            quota: Quota::new(config, clock::now()),
            config,
            strangers: settings.strangers,
            homes: BTreeMap::new(),
            names: BTreeMap::new(),
            claims: Claims::default(),
            seats: HashMap::new(),
            armed: Time::NEVER,
            ending: VecDeque::new(),
            refused: 0,
        };
        let households = Self {
            state: Mutex::new(state),
            earlier: Notify::new(),
            wanted: AtomicBool::new(false),
        };
        households.configure(settings);
        Arc::new(households)
    }

    /// Other settings from now on: rates and limits on connections that run too; households that are not in them
    /// any more go, with their connections.
    pub(crate) fn configure(&self, settings: &settings::Households) {
        let gone: Vec<Arc<str>> = self.change(|state, now| {
            state.strangers = settings.strangers;
            if state.config != config(settings) {
                state.config = config(settings);
                state.quota.set_relay(now, state.config);
            }
            state.claims = Claims::default();
            for household in &settings.list {
                let name = state.set(now, &household.name, household.limits);
                if let Some(home) = state.homes.get_mut(&name) {
                    home.configured = true;
                }
                household.addresses.iter().for_each(|net| state.claims.claim(*net, &name));
                household.relays.iter().for_each(|relay| state.claims.claim_relay(relay, &name));
            }
            let named = |name: &str| settings.list.iter().any(|one| one.name == name);
            let gone = |(name, home): (&Arc<str>, &Home)| {
                (home.configured && !named(name)).then(|| Arc::clone(name))
            };
            state.homes.iter().filter_map(gone).collect()
        });
        for name in gone {
            self.remove(&name);
        }
    }

    /// A household, and what it may from now on. One that is there keeps its connections and what it has used.
    pub fn set(&self, name: &str, limits: Limits) {
        self.change(|state, now| state.set(now, name, limits));
    }

    /// A household goes, and its connections end. How many there were.
    pub fn remove(&self, name: &str) -> usize {
        self.change(|state, now| {
            let Some(home) = state.homes.get_mut(name) else { return (0, Vec::new()) };
            let Some(household) = home.household.take() else { return (0, Vec::new()) };
            home.configured = false;
            state.names.remove(&household);
            let entries = state.entries(household);
            state.quota.leave(now, household);
            (entries.len(), entries)
        })
        .end()
    }

    /// A household may go on until [`Households::usage`] says so many bytes, both directions together, and its period
    /// ends after so long: for whoever keeps the books over restarts or goes by the calendar, from the same count.
    /// `more`: there it waits to hear of more, and is not taken for spent.
    /// `false` where there is no such household, or it has no quota.
    pub fn set_until(&self, name: &str, until: u64, ends_in: Span, more: bool) -> bool {
        self.change(|state, now| {
            let home = state.homes.get(name).filter(|home| home.limits.quota.is_some());
            let Some((household, home)) = home.and_then(|home| Some((home.household?, home)))
            else {
                return false;
            };
            let [up, down] = home.used.get();
            let left = Bytes::new(until.saturating_sub(up.saturating_add(down)));
            state.quota.set_left(now, household, left, now + ends_in, more);
            true
        })
    }

    /// What each household has used since the start, also those that are gone.
    #[must_use]
    pub fn usage(&self) -> Vec<Usage> {
        let state = locked(&self.state);
        let usage = |(name, home): (&Arc<str>, &Home)| {
            let [up, down] = home.used.get();
            Usage { household: Arc::clone(name), down, up }
        };
        state.homes.iter().map(usage).collect()
    }

    /// A connection of whoever is at that address, or behind that relay's tunnel. `None`: it is nobody's, and nothing
    /// limits it.
    pub(crate) fn receive(
        self: &Arc<Self>,
        address: IpAddr,
        relay: Option<&str>,
        entry: Option<&Arc<Entry>>,
    ) -> Result<Option<Arc<Member>>, NotAdmitted> {
        if !self.wanted.load(Relaxed) {
            return Ok(None);
        }
        let claimed = {
            let state = &mut *locked(&self.state);
            let claimed = match relay {
                Some(relay) => state.claims.of_relay(relay),
                None => state.claims.of(address),
            };
            match claimed {
                Some(name) => Arc::clone(name),
                None if state.strangers == Strangers::Refuse => {
                    state.refused += 1;
                    return Err(NotAdmitted::Stranger);
                }
                None if state.config == Config::default() => return Ok(None),
                None => {
                    let now = clock::now();
                    let there = state.homes.get(STRANGERS).is_some_and(|h| h.household.is_some());
                    match there {
                        true => STRANGERS.into(),
                        false => state.set(now, STRANGERS, Limits::default()),
                    }
                }
            }
        };
        match self.admit(&claimed, entry) {
            Ok(member) => Ok(Some(member)),
            Err(refused) => Err(NotAdmitted::Household(claimed, refused)),
        }
    }

    /// A connection of the household of this name, whoever said so. It is counted from its first byte: one that
    /// nobody has said the limits of yet has none until then.
    pub(crate) fn admit_known(
        self: &Arc<Self>,
        name: &str,
        entry: Option<&Arc<Entry>>,
    ) -> Result<Arc<Member>, NotAdmitted> {
        self.change(|state, now| {
            // one that was removed stays so
            if !state.homes.contains_key(name) {
                state.set(now, name, Limits::default());
            }
        });
        self.admit(name, entry).map_err(|why| NotAdmitted::Household(name.into(), why))
    }

    /// A connection of a household.
    pub(crate) fn admit(
        self: &Arc<Self>,
        name: &str,
        entry: Option<&Arc<Entry>>,
    ) -> Result<Arc<Member>, Refused> {
        let state = &mut *locked(&self.state);
        let admitted = state
            .homes
            .get_key_value(name)
            .and_then(|(name, home)| Some((name, home, home.household?)))
            .ok_or(Refused::Gone)
            .and_then(|(name, home, household)| {
                let flow = state.quota.admit(clock::now(), household)?;
                Ok((flow, Arc::clone(name), Arc::clone(&home.used)))
            });
        let (flow, name, used) = admitted.inspect_err(|_| state.refused += 1)?;
        state
            .seats
            .insert(flow, Seat { entry: entry.map(Arc::downgrade), wakers: [const { None }; 2] });
        Ok(Arc::new(Member::new(self, flow, name, used)))
    }

    /// Calls those whose turn comes by time alone. Never returns.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            let due = {
                let mut state = locked(&self.state);
                state.armed = state.deadline();
                state.armed
            };
            tokio::select! {
                () = sleep_until(due) => self.change(|state, now| state.on_deadline(now)),
                () = self.earlier.notified() => {}
            }
        }
    }

    /// A second has passed: what moved in it.
    pub(crate) fn on_second(&self) {
        let mut state = locked(&self.state);
        for home in state.homes.values_mut() {
            let used = home.used.get();
            for (lately, (used, before)) in home.lately.iter_mut().zip(used.iter().zip(home.before))
            {
                *lately = used.saturating_sub(before);
            }
            home.before = used;
        }
    }

    /// Changes something, and calls whoever is concerned.
    fn change<T>(&self, work: impl FnOnce(&mut State, Time) -> T) -> T {
        let (result, after) = {
            let state = &mut *locked(&self.state);
            let result = work(state, clock::now());
            self.wanted.store(state.is_wanted(), Relaxed);
            (result, state.after())
        };
        after.run(self);
        result
    }
}

/// Connections that are to be ended, and how many there were.
trait End {
    fn end(self) -> usize;
}

impl End for (usize, Vec<Arc<Entry>>) {
    fn end(self) -> usize {
        self.1.iter().for_each(|entry| entry.end());
        self.0
    }
}

impl State {
    /// Whether somebody has to be asked about, or counted.
    fn is_wanted(&self) -> bool {
        self.config != Config::default()
            || self.strangers == Strangers::Refuse
            || !self.names.is_empty()
            || !self.claims.is_empty()
    }

    fn set(&mut self, now: Time, name: &str, limits: Limits) -> Arc<str> {
        let name: Arc<str> = name.into();
        let home = self.homes.entry(Arc::clone(&name)).or_insert_with(|| Home {
            household: None,
            limits,
            configured: false,
            used: Arc::default(),
            before: [0; 2],
            lately: [0; 2],
        });
        match home.household {
            // the period of a quota goes on, and nothing is looked at twice
            Some(_) if home.limits == limits => {}
            Some(household) => self.quota.set_limits(now, household, limits),
            None => {
                let household = self.quota.join(now, limits);
                home.household = Some(household);
                self.names.insert(household, Arc::clone(&name));
            }
        }
        home.limits = limits;
        name
    }

    /// The connections of a household that can be ended.
    fn entries(&self, household: Household) -> Vec<Arc<Entry>> {
        let of = |(flow, seat): (&Flow, &Seat)| {
            (self.quota.whose(*flow) == Some(household)).then_some(seat.entry.as_ref()?.upgrade()?)
        };
        self.seats.iter().filter_map(of).collect()
    }

    fn deadline(&self) -> Time {
        let ending = self.ending.front().map_or(Time::NEVER, |(due, _)| *due);
        self.quota.deadline().min(ending)
    }

    fn on_deadline(&mut self, now: Time) {
        if self.quota.deadline() <= now {
            self.quota.on_deadline(now);
        }
    }

    /// Who is to be called after a change.
    fn after(&mut self) -> After {
        let mut after = After::default();
        while let Some((flow, direction)) = self.quota.next_ready() {
            let seat = self.seats.get_mut(&flow);
            after.wakers.extend(seat.and_then(|seat| seat.wakers[direction as usize].take()));
        }
        while let Some(household) = self.quota.next_cut() {
            // they are called, and end when they have handed over what they were given
            let due = clock::now() + LAST_BYTES;
            let of = |flow: &&Flow| self.quota.whose(**flow) == Some(household);
            self.ending.extend(self.seats.keys().filter(of).map(|flow| (due, *flow)));
        }
        if self.ending.front().is_some_and(|(due, _)| *due <= clock::now()) {
            let now = clock::now();
            let due = self.ending.iter().take_while(|(due, _)| *due <= now).count();
            for (_, flow) in self.ending.drain(..due) {
                let seat = self.seats.get(&flow).filter(|_| self.quota.is_over(flow));
                after.ended.extend(seat.and_then(|seat| seat.entry.as_ref()?.upgrade()));
            }
        }
        after.earlier = self.deadline() < self.armed;
        after
    }
}

impl After {
    fn run(self, households: &Households) {
        self.wakers.into_iter().for_each(Waker::wake);
        self.ended.iter().for_each(|entry| entry.end());
        if self.earlier {
            households.earlier.notify_one();
        }
    }
}

const fn config(settings: &settings::Households) -> Config {
    Config { rates: [settings.uplink, settings.downlink] }
}

async fn sleep_until(due: Time) {
    if due == Time::NEVER {
        return std::future::pending().await;
    }
    // beyond a day it is looked again
    let wait = due.since(clock::now()).min(Span::from_secs(86_400));
    tokio::time::sleep(wait.into()).await;
}
