//! Every live connection, for the status and for its end.

mod claims;
mod entry;
mod page;
mod registration;
mod report;
mod slowest;

pub(crate) use entry::ConnectionEntry;
pub(crate) use registration::Registration;
pub(crate) use slowest::{Around, Rivals, TunnelShares};

use crate::observe::status::{ConnectionStatus, TunnelStatus};
use claims::Claims;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Protocol {
    New,
    Http,
    Connect,
    Socks5,
    Socks4a,
    Tunnel,
    Udp,
    Tls,
    Gateway,
    Forward,
}

const PROTOCOLS: [&str; 10] =
    ["new", "http", "connect", "socks5", "socks4a", "tunnel", "udp", "tls", "gateway", "forward"];

impl Protocol {
    pub(crate) const fn name(self) -> &'static str {
        PROTOCOLS[self as usize]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ConnectionState {
    Reading,
    Connecting,
    Relaying,
    HalfClosed,
    Idle,
    Closing,
}

const STATES: [&str; 6] = ["reading", "connecting", "relaying", "half-closed", "idle", "closing"];

/// A connection's membership in its account, as the status reports it.
pub(crate) trait AccountUse: Debug + Send + Sync {
    fn account(&self) -> &str;

    /// Which limit the connection waits for, in words; `None` when it does not wait.
    fn waits(&self) -> Option<String>;
}

/// What carries the messages of connections within one, as the status reports it.
pub(crate) trait CarrierUse: Debug + Send + Sync {
    /// Why nothing more of it is read, in words; `None` while it is read.
    fn waits(&self) -> Option<String>;
}

/// Hears that a silent tunnel moves bytes again, and that a connection moves more than a few packets.
pub(crate) trait TunnelActivity: Debug + Send + Sync {
    fn on_tunnel_moved(&self, entry: &ConnectionEntry);

    /// Once for each pair of legs.
    fn on_bulk(&self, entry: &ConnectionEntry);
}

/// Hears nothing of it, for tests.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Nobody;

#[cfg(test)]
impl TunnelActivity for Nobody {
    fn on_tunnel_moved(&self, _: &ConnectionEntry) {}

    fn on_bulk(&self, _: &ConnectionEntry) {}
}

/// Sums over all connections since the start.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) accepted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) bytes_up: AtomicU64,
    pub(crate) bytes_down: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Registry {
    next: AtomicU64,
    live: Mutex<BTreeMap<u64, Arc<ConnectionEntry>>>,
    /// The most connections at once since the last query.
    most: AtomicUsize,
    /// Connections by account.
    claims: Claims,
    /// The last connection that was visited.
    visited: AtomicU64,
    pub(crate) totals: Totals,
    activity: Arc<dyn TunnelActivity>,
}

impl Registry {
    pub(crate) fn new(activity: Arc<dyn TunnelActivity>) -> Self {
        let (next, live) = (AtomicU64::new(0), Mutex::default());
        let (most, totals) = (AtomicUsize::new(0), Totals::default());
        let (claims, visited) = (Claims::default(), AtomicU64::new(0));
        Self { next, live, most, claims, visited, totals, activity }
    }

    pub(crate) fn enter(self: &Arc<Self>, client: SocketAddr) -> Registration {
        self.totals.accepted.fetch_add(1, Relaxed);
        self.register(client, None)
    }

    fn register(
        self: &Arc<Self>,
        client: SocketAddr,
        outer: Option<Arc<ConnectionEntry>>,
    ) -> Registration {
        let id = self.next.fetch_add(1, Relaxed) + 1;
        if let Some(outer) = &outer {
            outer.inner.fetch_add(1, Relaxed);
        }
        let entry = Arc::new(ConnectionEntry::new(id, client, outer));
        let mut live = locked(&self.live);
        live.insert(entry.id, Arc::clone(&entry));
        self.most.fetch_max(live.len(), Relaxed);
        drop(live);
        Registration { entry, registry: Arc::clone(self) }
    }

    /// The most connections at once since the last query.
    pub(crate) fn take_most(&self) -> usize {
        self.most.swap(0, Relaxed)
    }

    pub(crate) fn len(&self) -> usize {
        locked(&self.live).len()
    }

    /// Resets every live connection, and returns how many there were.
    pub(crate) fn cut_all(&self) -> usize {
        let live: Vec<_> = locked(&self.live).values().cloned().collect();
        live.iter().for_each(|entry| entry.end());
        live.len()
    }

    /// Resets the live connections of these addresses.
    #[cfg_attr(not(feature = "wireguard"), expect(dead_code, reason = "there are no such clients"))]
    pub(crate) fn end_of(&self, clients: &[IpAddr]) {
        let live = locked(&self.live);
        let is_of = |entry: &&Arc<ConnectionEntry>| clients.contains(&entry.client.ip());
        let of: Vec<_> = live.values().filter(is_of).cloned().collect();
        drop(live);
        of.iter().for_each(|entry| entry.end());
    }

    /// Ends the connections of accounts that `may_stay` refuses.
    pub(crate) fn end_refused(&self, may_stay: impl Fn(i64) -> Result<(), String>) {
        for account in self.claims.accounts() {
            let Err(why) = may_stay(account) else { continue };
            for (nth, (name, entry)) in self.claims.of(account).into_iter().enumerate() {
                if nth == 0 {
                    tracing::info!(account = %name, "connections ended: {why}");
                }
                entry.end();
            }
        }
    }

    /// The next connections in turn: one part of `parts` of all, so that so many visits see each.
    pub(crate) fn visit(&self, parts: usize) -> Vec<Arc<ConnectionEntry>> {
        let live = locked(&self.live);
        let after = (Bound::Excluded(self.visited.load(Relaxed)), Bound::Unbounded);
        let next: Vec<_> = live
            .range(after)
            .take(live.len().div_ceil(parts))
            .map(|(_, entry)| Arc::clone(entry))
            .collect();
        self.visited.store(next.last().map_or(0, |entry| entry.id), Relaxed);
        next
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<ConnectionEntry>> {
        locked(&self.live).get(&id).cloned()
    }

    /// Every live connection, but those that others within them stand for.
    pub(crate) fn shown(&self) -> impl Iterator<Item = Arc<ConnectionEntry>> + use<> {
        // the lock covers only the copy of pointers; the kernel is queried afterwards
        let live: Vec<_> = locked(&self.live).values().cloned().collect();
        live.into_iter().filter(|entry| entry.inner.load(Relaxed) == 0)
    }

    pub(crate) fn status(&self, tunnels: &[TunnelStatus]) -> Vec<ConnectionStatus> {
        self.shown().map(|entry| entry.status(tunnels)).collect()
    }

    /// What connections take of the tunnels that carry them.
    pub(crate) fn tunnel_shares(&self) -> TunnelShares {
        let now = clock::now();
        TunnelShares::new(
            self.shown().filter_map(|entry| Some((entry.id, entry.tunnel_share(now)?))),
        )
    }
}
