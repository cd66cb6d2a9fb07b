//! What the gateway did.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

#[derive(Debug, Default)]
pub(crate) struct GatewayCounts {
    /// Connections that devices sent through, and this machine's own.
    pub(crate) diverted: AtomicU64,
    pub(crate) own: AtomicU64,
    /// Live ones.
    pub(crate) live: AtomicU64,
    /// Names seen in TLS and in HTTP, and connections without.
    pub(crate) named_tls: AtomicU64,
    pub(crate) named_http: AtomicU64,
    pub(crate) unnamed: AtomicU64,
    /// Reset because they came to the gateway's port without being diverted.
    pub(crate) stray: AtomicU64,
    /// Flows of QUIC: through tunnels, and directly; of both, those whose client named the destination.
    pub(crate) quic_tunneled: AtomicU64,
    pub(crate) quic_direct: AtomicU64,
    pub(crate) quic_named: AtomicU64,
    /// Those that were answered with "port unreachable" in place of that.
    pub(crate) quic_blocked: AtomicU64,
}

impl GatewayCounts {
    /// Counts a connection as live until the guard is dropped.
    pub(crate) fn enter(self: &Arc<Self>) -> Arc<LiveGuard> {
        self.live.fetch_add(1, Relaxed);
        Arc::new(LiveGuard(Arc::clone(self)))
    }
}

#[derive(Debug)]
pub(crate) struct LiveGuard(Arc<GatewayCounts>);

impl Drop for LiveGuard {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_live_until_its_last_guard_is_dropped() {
        let counts = Arc::new(GatewayCounts::default());
        let guard = counts.enter();
        let clone = Arc::clone(&guard);
        drop(guard);
        assert_eq!(counts.live.load(Relaxed), 1);
        drop(clone);
        assert_eq!(counts.live.load(Relaxed), 0);
    }
}
