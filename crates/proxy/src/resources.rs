//! Buffers, idle connections, room: the driver of `model`'s allocator, idle register, pressure and
//! admission, and the one place where a connection is closed for another's sake.
//!
//! ```text
//! arrive()       a client: in at once, in after an idle one was closed, or it waits its turn
//! manage()       a leg: its buffers are shared out until the answer is dropped
//! park()         a client between two requests; resume() when it speaks, which says whether it was closed
//! keep()/take()  a connection to an origin, between two requests
//! beat()         every 100 ms: a tenth of all legs is looked at; the tick, when it is due
//! ```
//! **An idle connection is closed only while its sockets hold nothing unread**: bytes that came in the
//! moment it was chosen make it active, and the next one is chosen. A client's request that is still on
//! its way meets a closed connection; clients repeat it (RFC 9112 §9.3.1). Tunnels are ended for reading
//! alone, so that what is within the relay still arrives.
//!
//! One lock guards it all. It is never held while somebody is waited for, nor while a leg is dropped,
//! which takes it again: that is what [`After`] is for.

mod idle;
mod leg;
mod newcomers;
mod report;
mod setup;
mod sizes;
mod spare;

pub(crate) use idle::{Kept, PoolKey, watch};
pub(crate) use newcomers::{Newcomer, Place, Turned, turn_away};
pub(crate) use sizes::Managed;
pub(crate) use spare::Spare;

use crate::registry::{Entry, locked};
use crate::settings::Settings;
use ekiden_linux::buffers::Limits;
use ekiden_linux::{clock, usage};
use ekiden_model::buffers::{Allocator, Side};
use ekiden_model::idle::{Handle, Pool, Register};
use ekiden_model::pressure::{Admission, Pressure, Resource, Verdict, Watermarks};
use ekiden_model::units::{Span, Time};
use idle::Parked;
use leg::Leg;
use setup::Setup;
use std::collections::{BTreeMap, HashMap};
use std::hash::RandomState;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Each leg is looked at once in so many beats, ten of them a second.
const BEATS: u64 = 10;

/// Between two beats.
pub(crate) const BEAT: Span = Span::from_millis(100);

/// How often what may run out is counted, and idle ones closed for it.
const COUNTED: Span = Span::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Resources {
    state: Mutex<State>,
    /// Numbers of legs.
    next: AtomicU64,
    /// Those whose turn it is, for the server to begin with.
    admitted: mpsc::UnboundedSender<(Newcomer, Place)>,
}

#[derive(Debug)]
struct State {
    settings: Setup,
    /// This relay's name, for those who are turned away.
    name: Arc<str>,
    /// The kernel's, of sending and receiving, as they were at the start.
    limits: [Limits; 2],
    allocator: Allocator,
    register: Register<Pool<u64, PoolKey>, Parked, RandomState>,
    pressure: Pressure,
    admission: Admission<Newcomer>,
    legs: BTreeMap<u64, Leg>,
    /// Clients that are in.
    clients: u64,
    /// Sockets that wait beside the first of an opening.
    spares: u64,
    /// Connections in the pool, by key.
    pooled: HashMap<PoolKey, u32>,
    /// Those who notice that a pooled connection ends, by its number.
    watchers: BTreeMap<u64, idle::Watcher>,
    /// Clients and tunnels in the register, by the client's connection.
    parked: BTreeMap<u64, Handle>,
    counts: Counts,
    /// Of pooled connections.
    numbers: u64,
    beats: u64,
    counted: Time,
    /// When sizes were last decided before their time.
    hurried: Time,
}

/// Since the start.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    /// Closed to make room, by what was low.
    evicted: [u64; 5],
    /// Chosen to be closed when bytes had just come, and so kept.
    spoke: u64,
    /// Pooled connections used again, and those whose time was over or which the other side closed.
    reused: u64,
    expired: u64,
    /// Refused after they had waited, or since too many waited.
    turned_away: u64,
    /// Of those, while an idle connection was held.
    turned_away_beside_idle: u64,
    /// Sizes that the kernel did not give in full.
    refused: u64,
    last_refused: Option<leg::Refused>,
}

/// What is to be done when the lock is free again.
#[derive(Debug, Default)]
struct After {
    admitted: Vec<Newcomer>,
    /// Closed by being dropped.
    dropped: Vec<Kept>,
    watchers: Vec<AbortHandle>,
}

impl Resources {
    /// Nothing open yet; and where those come out who waited.
    pub(crate) fn new(
        settings: &Settings,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<(Newcomer, Place)>) {
        let (admitted, turns) = mpsc::unbounded_channel();
        let setup = Setup::of(settings);
        let limits = Side::ALL.map(Limits::of);
        let now = clock::now();
        let state = State {
            settings: setup,
            name: settings.name.as_str().into(),
            limits,
            allocator: Allocator::new(setup.allocator(setup.buffers.budget.is_none()), now),
            register: Register::new(setup.idle(), RandomState::new()),
            pressure: setup.pressure(),
            admission: Admission::new(setup.admission()),
            legs: BTreeMap::new(),
            clients: 0,
            spares: 0,
            pooled: HashMap::new(),
            watchers: BTreeMap::new(),
            parked: BTreeMap::new(),
            counts: Counts::default(),
            numbers: 0,
            beats: 0,
            counted: Time::ZERO,
            hurried: Time::ZERO,
        };
        let resources = Self { state: Mutex::new(state), next: AtomicU64::new(0), admitted };
        (Arc::new(resources), turns)
    }

    /// Other settings from now on. How many connections there may be stays as it was at the start.
    pub(crate) fn reload(&self, settings: &Settings) {
        let now = clock::now();
        let state = &mut *locked(&self.state);
        state.name = settings.name.as_str().into();
        let connections = state.settings.connections;
        let setup = Setup { connections, ..Setup::of(settings) };
        if setup == state.settings {
            return;
        }
        state.settings = setup;
        let marks = Watermarks { high: setup.pressure.high, low: setup.pressure.low };
        for resource in Resource::ALL.into_iter().filter(|one| *one != Resource::Connections) {
            state.pressure.set_watermarks(resource, marks);
        }
        state.register.set_config(setup.idle());
        state.admission.set_config(setup.admission());
        let automatic = state.is_automatic(setup.buffers.budget.is_none());
        state.allocator.set_config(now, setup.allocator(automatic));
    }

    /// A tenth of the legs is looked at; and what is due is done.
    pub(crate) fn beat(self: &Arc<Self>, silent: impl FnOnce(Span) -> Vec<Arc<Entry>>) {
        let (looks, silence) = {
            let state = &mut *locked(&self.state);
            state.beats += 1;
            let turn = state.beats % BEATS;
            let in_turn = |(id, leg): (&u64, &Leg)| {
                (id % BEATS == turn && !leg.idle).then(|| (*id, leg.stream().clone()))
            };
            let looks: Vec<_> = state.legs.iter().filter_map(in_turn).collect();
            (looks, state.settings.pressure.silent_tunnel.filter(|_| turn == 0))
        };
        // the kernel is asked without the lock
        let seen: Vec<_> =
            looks.iter().filter_map(|(id, stream)| Some((*id, leg::look(stream)?))).collect();
        let silent = silence.map(silent).unwrap_or_default();
        let now = clock::now();
        let mut after = After::default();
        let timed_out = {
            let state = &mut *locked(&self.state);
            for (id, seen) in &seen {
                state.allocator.on_facts(now, *id, &seen.facts());
                state.widen(now, *id, seen);
            }
            for entry in silent {
                state.park_tunnel(now, entry);
            }
            if now >= state.counted + COUNTED {
                state.counted = now;
                state.count(&mut after);
                let allocator = &mut state.allocator;
                state.register.shrink(now, |_, parked| {
                    parked
                        .legs()
                        .into_iter()
                        .fold(false, |again, id| allocator.on_shrink(id) | again)
                });
            }
            state.choose_mode(now);
            if now >= state.allocator.deadline() {
                let changes = state.allocator.on_deadline(now);
                state.apply(changes);
            }
            let mut timed_out = Vec::new();
            while let Some(newcomer) = state.admission.on_deadline(now) {
                state.count_refusal();
                timed_out.push(newcomer);
            }
            state.serve(&mut after);
            timed_out
        };
        for newcomer in timed_out {
            self.turn_away(newcomer);
        }
        after.run(self);
    }
}

impl State {
    /// How many places are taken; told before every question to pressure or admission.
    fn level(&mut self) {
        // each pooled connection has its watcher
        let used = self.clients + self.spares + self.watchers.len() as u64;
        self.pressure.on_level(Resource::Connections, used, Some(self.settings.connections));
    }

    /// A newcomer that is refused.
    fn count_refusal(&mut self) {
        self.counts.turned_away += 1;
        self.counts.turned_away_beside_idle += u64::from(!self.register.is_empty());
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Counts what may run out, and closes idle connections while something is low.
    fn count(&mut self, after: &mut After) {
        let told = |state: &mut Self, resource, usage: Option<usage::Usage>| {
            let (used, most) = usage.map_or((0, None), |usage| (usage.used, usage.most));
            state.pressure.on_level(resource, used, most);
        };
        told(self, Resource::Descriptors, usage::descriptors());
        told(self, Resource::SocketMemory, usage::socket_memory());
        told(self, Resource::OwnMemory, usage::own_memory());
        let mut towards: HashMap<SocketAddr, u64> = HashMap::new();
        for to in self.legs.values().filter_map(|leg| leg.to) {
            *towards.entry(to).or_default() += 1;
        }
        let used = towards.into_values().max().unwrap_or(0);
        told(
            self,
            Resource::Ports,
            usage::local_ports().map(|n| usage::Usage { used, most: Some(n) }),
        );
        self.level();
        // connections are counted one by one, when somebody comes
        let short =
            self.pressure.shortage().filter(|short| short.resource != Resource::Connections);
        if let Some(short) = short.filter(|_| self.settings.evicts()) {
            let open = self.legs.len() as u64;
            self.evict(short.connections(open), after);
        }
    }

    /// Lets in those who wait, as far as there is room.
    fn serve(&mut self, after: &mut After) {
        loop {
            self.level();
            let Some((newcomer, verdict)) =
                self.admission.next(&self.pressure, self.register.len())
            else {
                return;
            };
            if newcomer.is_gone() {
                continue;
            }
            if let Verdict::Evict(n) = verdict {
                // if all of them spoke in this moment it comes in all the same: it was promised
                self.evict(n, after);
            }
            self.clients += 1;
            after.admitted.push(newcomer);
        }
    }
}

impl After {
    fn run(self, resources: &Arc<Resources>) {
        self.watchers.iter().for_each(AbortHandle::abort);
        drop(self.dropped);
        for newcomer in self.admitted {
            let place = Place::taken(resources);
            // nobody takes them any more when the server is gone, and then they are closed
            let _ = resources.admitted.send((newcomer, place));
        }
    }
}

impl Resources {
    /// Nothing is kept any more: pooled connections are closed, those who wait are sent away.
    pub(crate) fn stop(self: &Arc<Self>) {
        let mut after = After::default();
        {
            let state = &mut *locked(&self.state);
            state.settings.pool.connections = 0;
            while state.admission.on_deadline(Time::NEVER).is_some() {}
            state.empty_pool(&mut after);
        }
        after.run(self);
    }
}
