//! What is idle: clients between two requests, silent tunnels, connections kept for the next request; and
//! which of them is closed for somebody else.

use super::{After, Resources, State};
use crate::destination::Destination;
use crate::http::origin::Origin;
use crate::registry::{Entry, locked};
use crate::world::Route;
use ekiden_linux::clock;
use ekiden_model::idle::{Handle, Pool};
use ekiden_model::pressure::Resource;
use ekiden_model::units::Time;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// A connection that may serve another request.
pub(crate) type Kept = Box<Origin>;

/// Everything in which two connections to an origin may differ; only requests for which all of it is the
/// same share one. What a route stands for (leg profile with its source address, device and mark,
/// upstream proxies with their credentials) is one value in one configuration, so the route itself is in
/// the key: after a reload nothing kept before is used. The address it leads to was checked by the rules
/// for the client that opened it, and is checked again for the one that takes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    /// Where in memory the route is; the connection keeps it there.
    route: usize,
    /// The upstream proxies of the chain that was taken.
    through: Arc<[String]>,
    /// Host as it was asked for, and port; `None` at a proxy that is asked in absolute form.
    destination: Option<Destination>,
    /// The client it belongs to alone, by number: it has shown who it is by a scheme that counts for
    /// the connection and not for the request (NTLM, Negotiate).
    client: Option<u64>,
}

impl PoolKey {
    pub(crate) fn new(
        route: &Arc<Route>,
        through: Arc<[String]>,
        destination: Option<Destination>,
        client: Option<u64>,
    ) -> Self {
        Self { route: Arc::as_ptr(route) as usize, through, destination, client }
    }
}

/// What stands in the register.
#[derive(Debug)]
pub(super) enum Parked {
    /// A client between two requests; its leg.
    Client { entry: Arc<Entry>, leg: u64 },
    /// A tunnel on which nothing moves; both its legs.
    Tunnel { entry: Arc<Entry>, legs: [u64; 2] },
    /// A connection in the pool, by its number.
    Origin { origin: Kept, number: u64 },
}

/// Who notices that a pooled connection has ended, or its time is over.
#[derive(Debug)]
pub(super) struct Watcher {
    handle: Handle,
    task: AbortHandle,
}

impl Parked {
    pub(super) fn legs(&self) -> Vec<u64> {
        match self {
            Self::Client { leg, .. } => vec![*leg],
            Self::Tunnel { legs, .. } => legs.to_vec(),
            Self::Origin { origin, .. } => vec![origin.managed.id],
        }
    }
}

impl Resources {
    /// A client waits for its next request.
    pub(crate) fn park(self: &Arc<Self>, entry: &Arc<Entry>) {
        let mut after = After::default();
        {
            let state = &mut *locked(&self.state);
            let leg = entry.legs[0].load(Relaxed);
            let parked = Parked::Client { entry: Arc::clone(entry), leg };
            let handle = state.register.insert(clock::now(), Pool::Client(entry.id), parked);
            state.parked.insert(entry.id, handle);
            state.rest(&[leg]);
            state.serve(&mut after);
        }
        after.run(self);
    }

    /// It has spoken, or gone; `false` when it was closed to make room.
    pub(crate) fn resume(&self, entry: &Entry) -> bool {
        let state = &mut *locked(&self.state);
        state.unpark(entry.id);
        if entry.evicted.load(Relaxed) {
            return false;
        }
        state.rouse(&[entry.legs[0].load(Relaxed)]);
        true
    }

    /// Bytes move again in a tunnel that stood in the register.
    pub(crate) fn tunnel_moved(&self, entry: &Entry) {
        let state = &mut *locked(&self.state);
        if entry.silent.swap(false, Relaxed) && state.unpark(entry.id) {
            state.rouse(&entry.leg_numbers());
        }
    }

    /// Keeps a connection for the next request; closes it where there is no room for it.
    pub(crate) fn keep(self: &Arc<Self>, origin: Kept, key: PoolKey) {
        let mut after = After::default();
        {
            let state = &mut *locked(&self.state);
            if let Some(origin) = self.put(state, origin, key) {
                after.dropped.push(origin);
            }
            state.serve(&mut after);
        }
        after.run(self);
    }

    /// Answers the connection when it cannot be kept.
    fn put(self: &Arc<Self>, state: &mut State, origin: Kept, key: PoolKey) -> Option<Kept> {
        let limits = state.settings.pool;
        let of_key = state.pooled.get(&key).copied().unwrap_or(0);
        let total = state.watchers.len() as u64;
        if of_key >= limits.per_destination || total >= u64::from(limits.connections) {
            return Some(origin);
        }
        state.level();
        // nobody is closed for what is merely kept
        if state.pressure.low() {
            return Some(origin);
        }
        let (stream, leg) = (Arc::clone(origin.stream()), origin.managed.id);
        let number = state.number();
        let parked = Parked::Origin { origin, number };
        let handle = state.register.insert(clock::now(), Pool::Server(key.clone()), parked);
        *state.pooled.entry(key).or_default() += 1;
        let (resources, idle) = (Arc::downgrade(self), limits.idle);
        let task = tokio::spawn(async move {
            // what it says unasked makes it of no more use, just as its end does
            let ended = watch(&stream);
            let _ = tokio::time::timeout(idle.into(), ended).await;
            drop(stream);
            if let Some(resources) = resources.upgrade() {
                resources.expire(number);
            }
        });
        state.watchers.insert(number, Watcher { handle, task: task.abort_handle() });
        state.rest(&[leg]);
        None
    }

    /// Takes the connection of this key that became idle last.
    pub(crate) fn take(self: &Arc<Self>, key: PoolKey) -> Option<Kept> {
        let mut after = After::default();
        let found = {
            let state = &mut *locked(&self.state);
            let idle = state.register.reuse(&Pool::Server(key))?;
            match idle.payload {
                Parked::Origin { origin, number } => {
                    state.unpool(&idle.key, number, &mut after);
                    state.counts.reused += 1;
                    state.rouse(&[origin.managed.id]);
                    Some(origin)
                }
                // no client stands under the key of a server
                Parked::Client { .. } | Parked::Tunnel { .. } => None,
            }
        };
        after.run(self);
        found
    }

    /// A pooled connection's time is over, or the other side has closed it.
    fn expire(self: &Arc<Self>, number: u64) {
        let mut after = After::default();
        {
            let state = &mut *locked(&self.state);
            let Some(watcher) = state.watchers.get(&number) else { return };
            let Some(idle) = state.register.remove(watcher.handle) else { return };
            if let Parked::Origin { origin, number } = idle.payload {
                state.unpool(&idle.key, number, &mut after);
                state.counts.expired += 1;
                after.dropped.push(origin);
            }
            // it ends by itself
            after.watchers.clear();
            state.serve(&mut after);
        }
        after.run(self);
    }
}

/// Until bytes can be read, or the other side has ended. Nothing is taken out.
pub(crate) async fn watch(stream: &TcpStream) {
    loop {
        // what was read before may have left it «readable»
        if stream.readable().await.is_err() || !would_block(stream) {
            return;
        }
    }
}

fn would_block(stream: &TcpStream) -> bool {
    let mut byte = [std::mem::MaybeUninit::uninit()];
    let peek = || socket2::SockRef::from(stream).peek(&mut byte).map(|_| ());
    let peeked = stream.try_io(tokio::io::Interest::READABLE, peek);
    matches!(peeked, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}

/// Whether bytes wait to be read.
pub(super) fn has_spoken(stream: &TcpStream) -> bool {
    let mut byte = [std::mem::MaybeUninit::uninit()];
    socket2::SockRef::from(stream).peek(&mut byte).is_ok_and(|n| n > 0)
}

impl State {
    /// Closes so many idle connections for what is low, the longest idle first; how many it were.
    pub(super) fn evict(&mut self, wanted: u64, after: &mut After) -> u64 {
        let cause = self.pressure.shortage().map_or(Resource::Connections, |short| short.resource);
        self.evict_for(cause, wanted, after)
    }

    /// The same, for something that is known to be low.
    pub(super) fn evict_for(&mut self, cause: Resource, wanted: u64, after: &mut After) -> u64 {
        let mut closed = 0;
        while closed < wanted {
            let Some(idle) = self.register.evict() else { break };
            let gone = match idle.payload {
                Parked::Client { entry, .. } => {
                    self.parked.remove(&entry.id);
                    self.close(&entry, Shutdown::Both)
                }
                Parked::Tunnel { entry, legs } => {
                    self.parked.remove(&entry.id);
                    entry.silent.store(false, Relaxed);
                    // what is within the relay still goes out before the end
                    let gone = self.close(&entry, Shutdown::Read);
                    if !gone {
                        self.rouse(&legs);
                    }
                    gone
                }
                Parked::Origin { origin, number } => {
                    self.unpool(&idle.key, number, after);
                    after.dropped.push(origin);
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

    /// Ends a client's connection, unless bytes came in this very moment.
    fn close(&mut self, entry: &Entry, how: Shutdown) -> bool {
        let streams = entry.streams();
        if streams.is_empty() || streams.iter().any(|stream| has_spoken(stream)) {
            return false;
        }
        // told before it wakes, so that what comes now is not taken for a request
        entry.evicted.store(true, Relaxed);
        self.clients -= 1;
        for stream in &streams {
            // fails only when the peer is gone already
            let _ = socket2::SockRef::from(&**stream).shutdown(how);
        }
        true
    }

    /// Closes every connection of the pool.
    pub(super) fn empty_pool(&mut self, after: &mut After) {
        for (_, watcher) in std::mem::take(&mut self.watchers) {
            after.watchers.push(watcher.task);
            let idle = self.register.remove(watcher.handle);
            if let Some(Parked::Origin { origin, .. }) = idle.map(|idle| idle.payload) {
                after.dropped.push(origin);
            }
        }
        self.pooled.clear();
    }

    /// A tunnel on which nothing moves.
    pub(super) fn park_tunnel(&mut self, now: Time, entry: Arc<Entry>) {
        let (id, legs) = (entry.id, entry.leg_numbers());
        let open = legs.iter().all(|leg| self.legs.contains_key(leg));
        if !open || self.parked.contains_key(&id) || entry.evicted.load(Relaxed) {
            return;
        }
        entry.silent.store(true, Relaxed);
        let parked = Parked::Tunnel { entry, legs };
        let handle = self.register.insert(now, Pool::Client(id), parked);
        self.parked.insert(id, handle);
        self.rest(&legs);
    }

    pub(super) fn unpark(&mut self, id: u64) -> bool {
        let handle = self.parked.remove(&id);
        handle.is_some_and(|handle| self.register.remove(handle).is_some())
    }

    fn unpool(&mut self, key: &Pool<u64, PoolKey>, number: u64, after: &mut After) {
        after.watchers.extend(self.watchers.remove(&number).map(|watcher| watcher.task));
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
            if let Some(leg) = self.legs.get_mut(id) {
                leg.rest(&self.limits);
            }
            self.allocator.on_idle(*id);
        }
    }

    fn rouse(&mut self, legs: &[u64]) {
        for id in legs {
            if let Some(leg) = self.legs.get_mut(id) {
                leg.idle = false;
            }
            let changes = self.allocator.on_active(clock::now(), *id);
            self.apply(changes);
        }
        // a tunnel is two ends of one thing again
        if let [one, other] = legs {
            self.allocator.on_pair(*one, *other);
        }
    }
}
