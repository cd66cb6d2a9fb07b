//! Buffers, idle connections, admission: the driver of `model`'s allocator, idle register, overload
//! control and admission. Only this module closes a connection to make room for another.
//!
//! ```text
//! admit()                a client: admitted at once, after an eviction, or in turn
//! hold()                 memory for a head, TLS or HTTP/2, counted until the result is dropped
//! manage()               a leg: its buffers are managed until the result is dropped
//! park(), resume()       a client between two requests; resume() tells whether it was evicted
//! put_idle(), take_idle() a connection to an origin, between two requests
//! tick()                 every 100 ms: measures a tenth of the legs that moved, and does what is due
//! ```
//! **An idle connection is evicted only while its sockets hold no unread bytes**; such bytes make
//! it active, and the next one is chosen. A request in transit meets a closed connection, and
//! clients repeat it (RFC 9112 §9.3.1). An evicted tunnel is shut down for reading only, so that
//! bytes within the relay still arrive.
//!
//! One lock guards all state. It is never held across a wait, nor while a leg is dropped, or TLS that
//! may have one: that takes it again. [`Deferred`] holds such work back.

mod admission;
pub(crate) mod arrival;
mod leg;
mod legs;
mod memory;
pub(crate) mod origin;
mod place;
mod pool;
mod reading;
mod report;
mod reserve;
mod setup;
mod sizing;

pub(crate) use crate::resources::admission::AcceptedClient;
pub(crate) use crate::resources::memory::HeldMemory;
pub(crate) use crate::resources::place::{AdmissionPermit, ShareUsed};
pub(crate) use crate::resources::pool::{IdleOrigin, Owner, PoolKey, watch};
pub(crate) use crate::resources::reserve::DescriptorReserve;
pub(crate) use crate::resources::sizing::ManagedLeg;

use crate::observe::leg_stats::TlsLeg;
use crate::observe::log_throttle::LogThrottle;
use crate::observe::registry::ConnectionEntry;
use crate::resources::arrival::JoinedPeers;
use crate::resources::pool::IdleConnection;
use crate::resources::reading::DueLook;
use crate::settings::Settings;
use crate::transfer::rejection::Rejections;
use ekiden_linux::host::sync::locked;
use ekiden_linux::host::{clock, usage};
use ekiden_linux::sockets::buffers::Limits;
use ekiden_model::resources::budget::Budget;
use ekiden_model::resources::buffers::{Allocator, Side};
use ekiden_model::resources::idle::{Handle, Keepers, Pool, Register};
use ekiden_model::resources::overload::{
    Admission, Pressure, Resource, Source, Sources, Watermarks,
};
use ekiden_model::resources::socket_memory::{SocketMemory, SocketMemoryConfig, SocketShortage};
use ekiden_model::units::{Bytes, Span, Time};
use legs::{Holder, Legs};
use memory::{MemoryTurn, RefusedMemory};
use place::Place;
use setup::ResourceSettings;
use std::collections::{BTreeMap, HashMap};
use std::hash::RandomState;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

/// Each leg is measured once in so many ticks.
pub(crate) const TICKS_PER_LOOK: u64 = 10;

/// After so many legs or connections a tick lets other tasks run: some 0.2 ms.
pub(crate) const AT_ONCE: usize = 64;

pub(crate) const TICK: Span = Span::from_millis(100);

/// How often scarce resources are counted, and idle connections evicted for them.
const COUNTED: Span = Span::from_secs(1);

#[derive(Debug)]
pub(crate) struct Resources {
    state: Mutex<State>,
    /// For heads, TLS and HTTP/2.
    memory: Arc<Budget>,
    /// Those who wait for memory: of small sources, and the others.
    memory_turns: [MemoryTurn; 2],
    /// How often it did not suffice.
    memory_refused: RefusedMemory,
    next: AtomicU64,
    pub(crate) rejections: Rejections,
    /// Peers that have opened flows.
    pub(crate) peers: JoinedPeers,
    /// Admitted clients that waited, for the server to begin.
    admitted: mpsc::UnboundedSender<(AcceptedClient, AdmissionPermit)>,
}

#[derive(Debug)]
struct State {
    settings: ResourceSettings,
    name: Arc<str>,
    /// The kernel's limits for send and receive buffers, as of the start.
    limits: [Limits; 2],
    allocator: Allocator,
    register: Register<Pool<u64, PoolKey>, IdleConnection, RandomState>,
    pressure: Pressure,
    socket_memory: SocketMemory<Holder>,
    admission: Admission<AcceptedClient, Source>,
    sources: Sources<Arc<Place>>,
    /// What a source holds of the memory, while it has connections or associations.
    memory_by_source: HashMap<Source, Arc<place::SourceMemory>>,
    /// How many of them were in use when that was last looked at.
    memory_kept: usize,
    /// When the memory of silent connections was added up, and the sum.
    silent_looked: Option<Time>,
    silent_memory: u64,
    /// Closed for others, when, and their tasks still hold memory.
    ending: Vec<(Time, Arc<Place>)>,
    memory: Arc<Budget>,
    legs: Legs,
    clients: u64,
    /// Auxiliary sockets, such as extra SYN attempts and loopback connections.
    spares: u64,
    /// The address towards which local ports are low.
    crowded: Option<SocketAddr>,
    /// Pooled connections by key.
    pooled: HashMap<PoolKey, u32>,
    /// Tasks that notice the end of a pooled connection, by its number.
    watchers: BTreeMap<u64, pool::PoolWatcher>,
    /// For whom they are kept.
    keepers: Keepers,
    /// Parked clients and tunnels, by the client's connection.
    parked: BTreeMap<u64, Handle>,
    counts: ResourceCounts,
    /// The last number of a pooled connection.
    numbers: u64,
    beats: u64,
    counted: Time,
    /// When sizes were last decided ahead of schedule.
    hurried: Time,
}

#[derive(Debug, Default, Clone, Copy)]
struct ResourceCounts {
    /// Evicted, by the scarce resource.
    evicted: [u64; 5],
    /// Chosen for eviction, but kept because bytes had just arrived.
    spoke: u64,
    /// Pooled connections that were reused, and those that expired or that the other side closed.
    reused: u64,
    expired: u64,
    /// Clients that were rejected after a wait, or because too many waited.
    turned_away: u64,
    /// Of those, clients rejected while an idle connection existed.
    turned_away_beside_idle: u64,
    /// Silent connections that were closed for a client of another address, or a flow of a peer.
    silent_evicted: u64,
    /// Unfinished connections that were closed for want of memory.
    unfinished_evicted: u64,
    /// Connections of which a request stood still, closed for want of socket memory.
    stalled_evicted: u64,
    /// Requests and flows that were refused because their address or peer has its share.
    share_refused: u64,
    /// Sizes that the kernel did not grant in full.
    refused: u64,
    last_refused: Option<leg::SizeRefusal>,
}

/// Work for after the lock is free.
#[derive(Debug, Default)]
struct Deferred {
    admitted: Vec<(AcceptedClient, Arc<Place>)>,
    ended: Vec<Arc<ConnectionEntry>>,
    refused: Vec<AcceptedClient>,
    /// Flows whose peers have their share.
    beyond_share: Vec<AcceptedClient>,
    /// Closed by their drop.
    dropped: Vec<IdleOrigin>,
    /// Of connections that were looked at, see [`ConnectionEntry::sessions`].
    sessions: Vec<Arc<dyn TlsLeg>>,
    watchers: Vec<pool::PoolWatcher>,
}

impl Resources {
    /// The resources, and the receiver of admitted clients that waited.
    pub(crate) fn new(
        settings: &Settings,
        accounts: bool,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<(AcceptedClient, AdmissionPermit)>) {
        let (admitted, turns) = mpsc::unbounded_channel();
        let setup = ResourceSettings::of(settings, accounts);
        let memory = Arc::new(Budget::new(settings.budgets.sessions.as_u64()));
        let limits = Side::ALL.map(Limits::of);
        let now = clock::now();
        let state = State {
            settings: setup,
            name: settings.name.as_str().into(),
            limits,
            allocator: Allocator::new(setup.allocator(setup.buffers.budget.is_none()), now),
            register: Register::new(setup.idle(), RandomState::new()),
            pressure: setup.pressure(),
            socket_memory: SocketMemory::new(SocketMemoryConfig::default()),
            admission: Admission::by_source(setup.admission(), AcceptedClient::source),
            sources: Sources::new(setup.sources()),
            memory_by_source: HashMap::new(),
            memory_kept: 64,
            silent_looked: None,
            silent_memory: 0,
            ending: Vec::new(),
            memory: Arc::clone(&memory),
            legs: Legs::default(),
            clients: 0,
            spares: 0,
            crowded: None,
            pooled: HashMap::new(),
            watchers: BTreeMap::new(),
            keepers: Keepers::default(),
            parked: BTreeMap::new(),
            counts: ResourceCounts::default(),
            numbers: 0,
            beats: 0,
            counted: Time::ZERO,
            hurried: Time::ZERO,
        };
        let (state, next) = (Mutex::new(state), AtomicU64::new(0));
        let memory_refused = RefusedMemory::default();
        let memory_turns = Default::default();
        let rejections = Rejections::new(settings.budgets.rejections);
        let peers = JoinedPeers::default();
        let resources =
            Self { state, memory, memory_turns, memory_refused, next, rejections, peers, admitted };
        (Arc::new(resources), turns)
    }

    pub(crate) fn reload(&self, settings: &Settings) {
        let now = clock::now();
        let state = &mut *locked(&self.state);
        state.name = settings.name.as_str().into();
        let ResourceSettings { connections, accounts, .. } = state.settings;
        let setup = ResourceSettings { connections, ..ResourceSettings::of(settings, accounts) };
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
        state.sources.set_config(setup.sources());
        let automatic = state.is_automatic(setup.buffers.budget.is_none());
        state.allocator.set_config(now, setup.allocator(automatic));
    }

    /// From this silence on a tunnel may be closed for others; `None` where it may not.
    pub(crate) fn silent_tunnel(&self) -> Option<Span> {
        locked(&self.state).settings.pressure.silent_tunnel
    }

    /// Measures a tenth of the legs, and does what is due. `silent`: tunnels that have been silent for long enough to be
    /// closed for others.
    pub(crate) async fn tick(self: &Arc<Self>, silent: Vec<Arc<ConnectionEntry>>) {
        let due = {
            let state = &mut *locked(&self.state);
            state.beats += 1;
            state.legs.due(state.beats)
        };
        for some in due.chunks(AT_ONCE) {
            // the kernel is queried without the lock
            some.iter().filter(|due| !due.is_settled).for_each(|due| self.settle(due.id));
            let seen: Vec<_> = some.iter().filter_map(DueLook::look).collect();
            locked(&self.state).on_readings(clock::now(), &seen);
            tokio::task::yield_now().await;
        }
        let now = clock::now();
        let timed_out = self.change(|state, deferred| {
            for entry in silent {
                state.park_tunnel(now, entry);
            }
            if now >= state.counted + COUNTED {
                state.counted = now;
                state.count(now, deferred);
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
            while let Some(client) = state.admission.on_deadline(now) {
                state.count_refusal();
                timed_out.push(client);
            }
            state.serve(deferred);
            timed_out
        });
        timed_out.into_iter().for_each(|client| self.reject_late(client));
    }
}

impl State {
    /// Reports the number of connections to the overload control, before each question to it.
    fn level(&mut self) {
        // each pooled connection has a watcher
        let used = self.connections();
        self.pressure.on_level(Resource::Connections, used, Some(self.settings.connections));
    }

    fn connections(&self) -> u64 {
        self.clients + self.spares + self.watchers.len() as u64
    }

    fn is_full(&self) -> bool {
        self.connections() >= self.settings.connections
    }

    fn count_refusal(&mut self) {
        self.counts.turned_away += 1;
        self.counts.turned_away_beside_idle += u64::from(!self.register.is_empty());
    }

    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Counts scarce resources, and evicts idle connections while one is low. Socket memory is also had from requests in
    /// service.
    fn count(&mut self, now: Time, deferred: &mut Deferred) {
        let report = |state: &mut Self, resource, usage: Option<usage::Usage>| {
            let (used, most) = usage.map_or((0, None), |usage| (usage.used, usage.most));
            state.pressure.on_level(resource, used, most);
        };
        let descriptors = usage::descriptors().map(|usage| self.without_waiting(usage));
        report(self, Resource::Descriptors, descriptors);
        report(self, Resource::SocketMemory, usage::socket_memory());
        report(self, Resource::OwnMemory, usage::own_memory());
        let fullest = self.legs.most_towards();
        let used = fullest.map_or(0, |(used, _)| used);
        report(
            self,
            Resource::Ports,
            usage::local_ports().map(|n| usage::Usage { used, most: Some(n) }),
        );
        self.free_ports(fullest.map(|(_, to)| to), deferred);
        self.relieve(deferred);
        self.free_socket_memory(now, deferred);
    }

    /// Evicts idle connections while something is low that all need.
    fn relieve(&mut self, deferred: &mut Deferred) {
        self.level();
        // connections are checked at each admission
        let short =
            self.pressure.shortage().filter(|short| short.resource != Resource::Connections);
        if let Some(short) = short.filter(|_| self.settings.evicts()) {
            let open = self.legs.len() as u64;
            let wanted = short.connections(open);
            // then silent ones, but none of an address that has one or two
            let idle = self.evict(wanted, deferred);
            for _ in idle..wanted {
                if !self.evict_silent(1, false, deferred) {
                    break;
                }
            }
        }
    }

    /// While socket memory stays low, closes connections that stand still, of those who hold the most of it.
    fn free_socket_memory(&mut self, now: Time, deferred: &mut Deferred) {
        let Some(short) = self.pressure.shortage_of(Resource::SocketMemory) else {
            return self.socket_memory.on_enough();
        };
        let bytes = |pages: u64| pages.saturating_mul(usage::page_size());
        let shortage = SocketShortage { limit: bytes(short.max), excess: bytes(short.excess) };
        let (places, served): (Vec<_>, Vec<_>) =
            self.legs.served(&self.sources).into_iter().unzip();
        let chosen = self.socket_memory.on_low(now, shortage, &served);
        if chosen.is_empty() || !self.settings.evicts() {
            return;
        }
        let freed = Bytes::new(chosen.iter().map(|at| served[*at].held).sum());
        let first = served[chosen[0]].holder;
        chosen.iter().for_each(|at| self.end_place(places[*at], deferred));
        self.counts.stalled_evicted += chosen.len() as u64;
        static LOGGED: LogThrottle = LogThrottle::new();
        if LOGGED.is_due() {
            let (now, all) = (chosen.len(), self.counts.stalled_evicted);
            tracing::warn!(
                "{short} (net.ipv4.tcp_mem, pages): closed {now} connections with {freed} that stood still, first of {first}, which holds the most; {all} since the start"
            );
        }
    }
}

impl Deferred {
    fn run(self, resources: &Arc<Resources>) {
        self.watchers.iter().for_each(pool::PoolWatcher::stop);
        drop(self.dropped);
        drop(self.sessions);
        self.ended.iter().for_each(|entry| entry.end());
        self.refused.into_iter().for_each(|client| resources.reject_late(client));
        self.beyond_share.iter().for_each(|client| resources.refuse_share(client));
        for (client, place) in self.admitted {
            let permit = AdmissionPermit::counted(resources, place, false);
            // fails when the server is gone; the client is closed then
            let _ = resources.admitted.send((client, permit));
        }
    }
}

impl Resources {
    /// Changes the state, then does what had to wait for the lock.
    fn change<T>(self: &Arc<Self>, work: impl FnOnce(&mut State, &mut Deferred) -> T) -> T {
        let mut deferred = Deferred::default();
        let result = work(&mut locked(&self.state), &mut deferred);
        deferred.run(self);
        result
    }

    /// Closes pooled connections, rejects waiting clients, and pools none any more.
    pub(crate) fn stop(self: &Arc<Self>) {
        let waiting = self.change(|state, deferred| {
            state.settings.pool.connections = 0;
            let mut waiting = Vec::new();
            while let Some(client) = state.admission.on_deadline(Time::NEVER) {
                state.count_refusal();
                waiting.push(client);
            }
            state.empty_pool(deferred);
            waiting
        });
        waiting.into_iter().for_each(|client| self.reject_at_stop(client));
    }
}
