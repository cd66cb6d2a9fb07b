//! Idle connections (clients between two requests, silent tunnels, pooled connections to origins),
//! and which to evict.

use super::{Deferred, Resources, State};
use crate::destination::Destination;
use crate::observe::registry::{ConnectionEntry, TunnelActivity};
use crate::policy::route::Route;
use crate::resources::origin::Origin;
use crate::resources::place::AdmissionPermit;
use crate::transfer::end::End;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::idle::{Handle, Pool};
use ekiden_model::resources::overload::Resource;
use ekiden_model::units::Time;
use std::future::poll_fn;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use tokio::task::AbortHandle;

pub(crate) type IdleOrigin = Box<Origin>;

/// All in which connections to an origin may differ. The route stands for its leg and upstream
/// proxies, and belongs to one configuration, so none from before a reload is reused. The rules
/// check the address again for each client that takes one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    /// The route's address in memory; the connection keeps the route alive.
    route: usize,
    /// The upstream proxies of its chain.
    through: Arc<[String]>,
    /// Host and port as requested; `None` at a proxy that takes requests in absolute form.
    destination: Option<Destination>,
    /// Whom it is reserved for, because NTLM or Negotiate authenticated it.
    owner: Option<Owner>,
}

/// Who may use an authenticated connection again: one client, under one account. A proxy may send requests of several
/// users on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    /// The number of the client's connection.
    pub(crate) client: u64,
    /// The number of the account, if any.
    pub(crate) account: Option<i64>,
}

impl PoolKey {
    pub(crate) fn new(
        route: &Arc<Route>,
        through: Arc<[String]>,
        destination: Option<Destination>,
        owner: Option<Owner>,
    ) -> Self {
        Self { route: Arc::as_ptr(route) as usize, through, destination, owner }
    }
}

/// An idle connection in the register.
#[derive(Debug)]
pub(super) enum IdleConnection {
    Client {
        entry: Arc<ConnectionEntry>,
        leg: u64,
    },
    /// A silent tunnel, and both its legs.
    Tunnel {
        entry: Arc<ConnectionEntry>,
        legs: [u64; 2],
    },
    Origin {
        origin: IdleOrigin,
        number: u64,
    },
}

/// The task that notices the end or expiry of a pooled connection.
#[derive(Debug)]
pub(super) struct PoolWatcher {
    handle: Handle,
    pub(super) watched: Arc<WatchedStream>,
    task: AbortHandle,
}

impl PoolWatcher {
    /// The connection is not pooled any more.
    pub(super) fn stop(&self) {
        self.watched.leave();
        self.task.abort();
    }
}

/// The stream of a pooled connection, until that is taken. A stream knows one task that waits for bytes: a watcher that
/// asked again after the next reader would be woken in its place, and the reader would sleep beside its answer.
#[derive(Debug)]
pub(super) struct WatchedStream(Mutex<Option<End>>);

impl WatchedStream {
    /// As [`watch`]; also ready once it was left.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &*locked(&self.0) {
            Some(stream) => poll_watch(stream, cx),
            None => Poll::Ready(()),
        }
    }

    /// It is not asked from now on: an abort alone does not wait for a poll that is under way.
    fn leave(&self) {
        let stream = locked(&self.0).take();
        drop(stream);
    }
}

impl IdleConnection {
    pub(super) fn legs(&self) -> Vec<u64> {
        match self {
            Self::Client { leg, .. } => vec![*leg],
            Self::Tunnel { legs, .. } => legs.to_vec(),
            Self::Origin { origin, .. } => vec![origin.managed.id],
        }
    }
}

impl Resources {
    /// Parks a client until its next request.
    pub(crate) fn park(self: &Arc<Self>, entry: &Arc<ConnectionEntry>, permit: &AdmissionPermit) {
        self.change(|state, deferred| {
            // its place is gone, and must not be given back again
            if entry.evicted.load(Relaxed) {
                return;
            }
            permit.be_silent(state);
            permit.place.on_idle(entry);
            let leg = entry.legs[0].load(Relaxed);
            let parked = IdleConnection::Client { entry: Arc::clone(entry), leg };
            let handle = state.register.insert(clock::now(), Pool::Client(entry.id), parked);
            state.parked.insert(entry.id, handle);
            state.rest(&[leg]);
            state.serve(deferred);
        });
    }

    /// Ends the parking of a client; `false` when it was evicted.
    pub(crate) fn resume(&self, entry: &ConnectionEntry, permit: &AdmissionPermit) -> bool {
        let state = &mut *locked(&self.state);
        state.unpark(entry.id);
        if entry.evicted.load(Relaxed) {
            return false;
        }
        permit.be_silent(state);
        state.rouse(&[entry.legs[0].load(Relaxed)]);
        true
    }

    /// Pools a connection for the next request. Where the pool is full, the oldest of the source that keeps the most
    /// leaves it.
    pub(crate) fn put_idle(self: &Arc<Self>, origin: IdleOrigin, key: PoolKey) {
        self.change(|state, deferred| {
            let rest = self.put(state, deferred, origin, key);
            deferred.dropped.extend(rest);
            state.serve(deferred);
        });
    }

    /// Returns the connection when it cannot be pooled.
    fn put(
        self: &Arc<Self>,
        state: &mut State,
        deferred: &mut Deferred,
        origin: IdleOrigin,
        key: PoolKey,
    ) -> Option<IdleOrigin> {
        let limits = state.settings.pool;
        let of_key = state.pooled.get(&key).copied().unwrap_or(0);
        let left = origin.left(limits.idle);
        if left.as_nanos() == 0 || of_key >= limits.per_destination || limits.connections == 0 {
            return Some(origin);
        }
        state.level();
        // nothing is evicted for a pooled connection
        let to = state.legs.get(origin.managed.id).and_then(|leg| leg.to);
        if state.pressure.low() || (to.is_some() && to == state.crowded) {
            return Some(origin);
        }
        while state.watchers.len() as u64 >= u64::from(limits.connections) {
            let Some((_, number)) = state.keepers.leaves() else { break };
            let Some(gone) = state.take_out(number, deferred) else { break };
            deferred.dropped.push(gone);
        }
        let watched = Arc::new(WatchedStream(Mutex::new(Some(origin.stream().clone()))));
        let leg = origin.managed.id;
        let number = state.number();
        state.keepers.on_kept(origin.keeper, number);
        let parked = IdleConnection::Origin { origin, number };
        let handle = state.register.insert(clock::now(), Pool::Server(key.clone()), parked);
        *state.pooled.entry(key).or_default() += 1;
        let (resources, stream) = (Arc::downgrade(self), Arc::clone(&watched));
        let task = tokio::spawn(async move {
            // unrequested bytes make it useless, as its end does
            let ended = poll_fn(|cx| stream.poll(cx));
            let _ = tokio::time::timeout(left.into(), ended).await;
            stream.leave();
            if let Some(resources) = resources.upgrade() {
                resources.expire(number);
            }
        });
        let task = task.abort_handle();
        state.watchers.insert(number, PoolWatcher { handle, watched, task });
        state.rest(&[leg]);
        None
    }

    /// Takes the most recently idle connection of this key.
    pub(crate) fn take_idle(self: &Arc<Self>, key: PoolKey) -> Option<IdleOrigin> {
        self.change(|state, deferred| {
            let idle = state.register.reuse(&Pool::Server(key))?;
            // clients have other keys
            let IdleConnection::Origin { origin, number } = idle.payload else { return None };
            state.unpool(&idle.key, &origin, number, deferred);
            state.counts.reused += 1;
            state.rouse(&[origin.managed.id]);
            Some(origin)
        })
    }

    /// Removes a pooled connection that expired or that the other side closed.
    fn expire(self: &Arc<Self>, number: u64) {
        self.change(|state, deferred| {
            let Some(origin) = state.take_out(number, deferred) else { return };
            state.counts.expired += 1;
            deferred.dropped.push(origin);
            // this is the watcher's own task, which ends by itself
            deferred.watchers.clear();
            state.serve(deferred);
        });
    }
}

impl TunnelActivity for Resources {
    fn on_tunnel_moved(&self, entry: &ConnectionEntry) {
        let state = &mut *locked(&self.state);
        if entry.silent.swap(false, Relaxed) && state.unpark(entry.id) {
            state.rouse(&entry.leg_numbers());
        }
    }

    fn on_bulk(&self, entry: &ConnectionEntry) {
        entry.leg_numbers().into_iter().filter(|id| *id != 0).for_each(|id| self.settle(id));
    }
}

/// Waits until bytes can be read, or the other side has ended. Reads nothing.
pub(crate) async fn watch(stream: &End) {
    poll_fn(|cx| poll_watch(stream, cx)).await;
}

fn poll_watch(stream: &End, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        // an earlier read may have left it "readable"
        if ready!(stream.poll_read_ready(cx)).is_err() || !stream.would_block() {
            return Poll::Ready(());
        }
    }
}

impl State {
    /// Evicts `wanted` connections for the scarcest resource, the longest idle first; returns how
    /// many.
    pub(super) fn evict(&mut self, wanted: u64, deferred: &mut Deferred) -> u64 {
        let cause = self.pressure.shortage().map_or(Resource::Connections, |short| short.resource);
        self.evict_for(cause, wanted, deferred)
    }

    /// The same, for a given resource.
    pub(super) fn evict_for(
        &mut self,
        cause: Resource,
        wanted: u64,
        deferred: &mut Deferred,
    ) -> u64 {
        let mut closed = 0;
        while closed < wanted {
            let Some(idle) = self.register.evict() else { break };
            let gone = match idle.payload {
                IdleConnection::Client { entry, .. } => {
                    self.parked.remove(&entry.id);
                    self.close(&entry, Shutdown::Both, deferred)
                }
                IdleConnection::Tunnel { entry, legs } => {
                    self.parked.remove(&entry.id);
                    entry.silent.store(false, Relaxed);
                    // bytes within the relay still go out before the end
                    let gone = self.close(&entry, Shutdown::Read, deferred);
                    if !gone {
                        self.rouse(&legs);
                    }
                    gone
                }
                IdleConnection::Origin { origin, number } => {
                    self.unpool(&idle.key, &origin, number, deferred);
                    deferred.dropped.push(origin);
                    true
                }
            };
            if gone {
                closed += 1;
                self.counts.evicted[cause as usize] += 1;
            } else {
                self.counts.spoke += 1;
            }
        }
        closed
    }

    /// While the ports towards an address are low, keeps no idle connection to it.
    pub(super) fn free_ports(&mut self, fullest: Option<SocketAddr>, deferred: &mut Deferred) {
        let short = self.pressure.shortage_of(Resource::Ports);
        self.crowded = fullest.filter(|_| short.is_some());
        if let (Some(to), Some(short)) = (self.crowded, short)
            && self.settings.evicts()
        {
            self.evict_towards(to, short.excess, deferred);
        }
    }

    /// Evicts `wanted` pooled connections to this address, the longest idle first.
    fn evict_towards(&mut self, to: SocketAddr, wanted: u64, deferred: &mut Deferred) {
        let number = |parked: &IdleConnection| match parked {
            IdleConnection::Origin { origin, number } => {
                let leg = self.legs.get(origin.managed.id)?;
                (leg.to == Some(to)).then_some(*number)
            }
            IdleConnection::Client { .. } | IdleConnection::Tunnel { .. } => None,
        };
        let numbers = self.register.iter().filter_map(|(_, parked, _)| number(parked));
        let most = usize::try_from(wanted).unwrap_or(usize::MAX);
        let numbers: Vec<_> = numbers.take(most).collect();
        for number in numbers {
            if let Some(origin) = self.take_out(number, deferred) {
                deferred.dropped.push(origin);
                self.counts.evicted[Resource::Ports as usize] += 1;
            }
        }
    }

    /// Closes a client's connection, unless bytes have just arrived.
    fn close(&mut self, entry: &ConnectionEntry, how: Shutdown, deferred: &mut Deferred) -> bool {
        deferred.sessions.extend(entry.sessions());
        if !entry.is_open() || entry.has_spoken() {
            return false;
        }
        // set before the shutdown wakes it, so that later bytes are not taken for a request
        entry.evicted.store(true, Relaxed);
        self.clients -= 1;
        entry.place().and_then(|id| self.sources.on_close(id));
        entry.shut(how);
        true
    }

    pub(super) fn empty_pool(&mut self, deferred: &mut Deferred) {
        for (_, watcher) in std::mem::take(&mut self.watchers) {
            let idle = self.register.remove(watcher.handle);
            deferred.watchers.push(watcher);
            if let Some(IdleConnection::Origin { origin, .. }) = idle.map(|idle| idle.payload) {
                deferred.dropped.push(origin);
            }
        }
        self.pooled.clear();
        self.keepers.clear();
    }

    pub(super) fn park_tunnel(&mut self, now: Time, entry: Arc<ConnectionEntry>) {
        let (id, legs) = (entry.id, entry.leg_numbers());
        // a flow of a tunnel has no buffers to manage, and no number
        let open = legs.iter().all(|leg| *leg == 0 || self.legs.contains(*leg));
        if !open || self.parked.contains_key(&id) || entry.evicted.load(Relaxed) {
            return;
        }
        entry.silent.store(true, Relaxed);
        let parked = IdleConnection::Tunnel { entry, legs };
        let handle = self.register.insert(now, Pool::Client(id), parked);
        self.parked.insert(id, handle);
        self.rest(&legs);
    }

    pub(super) fn unpark(&mut self, id: u64) -> bool {
        let handle = self.parked.remove(&id);
        handle.is_some_and(|handle| self.register.remove(handle).is_some())
    }

    /// The connection of this number leaves the pool.
    fn take_out(&mut self, number: u64, deferred: &mut Deferred) -> Option<IdleOrigin> {
        let handle = self.watchers.get(&number)?.handle;
        let idle = self.register.remove(handle)?;
        // clients have other numbers
        let IdleConnection::Origin { origin, .. } = idle.payload else { return None };
        self.unpool(&idle.key, &origin, number, deferred);
        Some(origin)
    }

    fn unpool(
        &mut self,
        key: &Pool<u64, PoolKey>,
        origin: &Origin,
        number: u64,
        deferred: &mut Deferred,
    ) {
        deferred.watchers.extend(self.watchers.remove(&number));
        self.keepers.on_gone(origin.keeper, number);
        if let Pool::Server(key) = key
            && let Some(n) = self.pooled.get_mut(key)
        {
            *n -= 1;
            if *n == 0 {
                self.pooled.remove(key);
            }
        }
    }

    fn rest(&mut self, legs: &[u64]) {
        for id in legs {
            if let Some(leg) = self.legs.get_mut(*id) {
                leg.rest(&self.limits);
            }
            self.allocator.on_idle(*id);
        }
    }

    fn rouse(&mut self, legs: &[u64]) {
        for id in legs {
            if let Some(leg) = self.legs.get_mut(*id) {
                leg.idle = false;
            }
            let changes = self.allocator.on_active(clock::now(), *id);
            self.apply(changes);
        }
        // an active tunnel has a pair of legs again
        if let [one, other] = legs {
            self.allocator.on_pair(*one, *other);
        }
    }
}
