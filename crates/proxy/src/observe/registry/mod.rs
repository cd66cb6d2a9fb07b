//! Every live connection, for the status and for its end.

mod entry;
mod page;
mod registration;
mod report;
mod slowest;

pub(crate) use entry::ConnectionEntry;
pub(crate) use registration::Registration;
pub(crate) use slowest::{Around, Rivals, TunnelShares};

use crate::observe::status::{ConnectionStatus, TunnelStatus};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::Span;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
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

/// Hears that a silent tunnel moves bytes again, and that a connection moves more than a few packets.
pub(crate) trait TunnelActivity: Debug + Send + Sync {
    fn on_tunnel_moved(&self, entry: &ConnectionEntry);

    /// Once for each pair of legs.
    fn on_bulk(&self, entry: &ConnectionEntry);
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
    pub(crate) totals: Totals,
    activity: Arc<dyn TunnelActivity>,
}

/// A connection without progress for this long may be stuck: three time-outs take at least 1.4 s.
const STALLED: Span = Span::from_secs(1);

/// Longer than any time-out of the kernel: a stuck connection was found by then.
const SILENT: Span = Span::from_secs(120);

impl Registry {
    pub(crate) fn new(activity: Arc<dyn TunnelActivity>) -> Self {
        let (next, live) = (AtomicU64::new(0), Mutex::default());
        let (most, totals) = (AtomicUsize::new(0), Totals::default());
        Self { next, live, most, totals, activity }
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
        let entry = Arc::new(ConnectionEntry::new(id, client));
        let mut live = locked(&self.live);
        live.insert(entry.id, Arc::clone(&entry));
        self.most.fetch_max(live.len(), Relaxed);
        drop(live);
        if let Some(outer) = &outer {
            outer.inner.fetch_add(1, Relaxed);
        }
        Registration { entry, outer, registry: Arc::clone(self) }
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

    /// Ends the connections of accounts that `may_stay` refuses.
    pub(crate) fn end_refused(&self, may_stay: impl Fn(i64) -> Result<(), String>) {
        let live: Vec<_> = locked(&self.live).values().cloned().collect();
        let mut asked = BTreeMap::new();
        for entry in live {
            let Some(account) = entry.account() else { continue };
            let stays = *asked.entry(account.id).or_insert_with(|| match may_stay(account.id) {
                Ok(()) => true,
                Err(why) => {
                    tracing::info!(account = %account.name, "connections ended: {why}");
                    false
                }
            });
            if !stays {
                entry.reset_on_close();
                entry.task.get().inspect(|task| task.abort());
            }
        }
    }

    /// Checks the paths of connections that stopped a short while ago: moving ones are fine, and
    /// long silent ones were checked before.
    pub(crate) fn check_paths(&self) {
        let now = clock::now();
        let live: Vec<_> = locked(&self.live).values().cloned().collect();
        for entry in live {
            let mut detail = locked(&entry.detail);
            let silent = now.since(detail.last);
            if silent >= STALLED && silent <= SILENT {
                detail.check();
            }
        }
    }

    /// Tunnels without progress for `span` that are not marked silent yet.
    pub(crate) fn silent(&self, span: Span) -> Vec<Arc<ConnectionEntry>> {
        let now = clock::now();
        let live: Vec<_> = locked(&self.live).values().cloned().collect();
        let is_silent = |entry: &Arc<ConnectionEntry>| {
            entry.is_tunnel() && now.since(locked(&entry.detail).last) >= span
        };
        live.into_iter().filter(is_silent).collect()
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
