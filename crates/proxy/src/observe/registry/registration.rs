//! A connection's registration: counters and state while it lives.

use super::entry::STALLED;
use super::{ConnectionEntry, ConnectionState, Protocol, Registry};
use crate::error::Failure;
use crate::observe::leg_stats::LegStats;
use crate::observe::named_leg::NamedLeg;
use crate::observe::traces::{Trace, TraceEnd};
use crate::settings::KnownAccount;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::Time;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A live connection's entry in the registry. Its drop removes the entry.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) entry: Arc<ConnectionEntry>,
    pub(super) registry: Arc<Registry>,
}

/// A connection that relayed this many bytes has sent full-sized segments.
const TELLING: u64 = 64 * 1024;

impl Drop for Registration {
    fn drop(&mut self) {
        self.set_account(None);
        locked(&self.registry.live).remove(&self.entry.id);
        if let Some(outer) = self.entry.outer() {
            outer.inner.fetch_sub(1, Relaxed);
        }
    }
}

impl Registration {
    /// Registers a connection within this one.
    pub(crate) fn inner(&self) -> Self {
        self.registry.register(self.entry.client, Some(Arc::clone(&self.entry)))
    }

    /// Counts bytes that moved, on this connection and in the totals.
    pub(crate) fn moved(&self, now: Time, up: u64, down: u64, spliced: u64) {
        let (entry, totals) = (&self.entry, &self.registry.totals);
        for (counter, n) in [
            (&entry.bytes_up, up),
            (&entry.bytes_down, down),
            (&entry.bytes_spliced, spliced),
            (&totals.bytes_up, up),
            (&totals.bytes_down, down),
        ] {
            if n > 0 {
                counter.fetch_add(n, Relaxed);
            }
        }
        {
            let mut detail = locked(&entry.detail);
            detail.last = now;
            detail.left_out = None;
            detail.bursts.on_moved(now, up + down);
            for (meter, bytes) in detail.rates.iter_mut().zip([up, down]) {
                meter.on_moved(now, bytes);
            }
            detail.update_lane();
            if down > 0
                && let Some(trace) = &detail.trace
            {
                trace.on_first_byte();
            }
        }
        entry.on_moved();
        if entry.silent.load(Relaxed) {
            self.registry.activity.on_tunnel_moved(entry);
        }
    }

    pub(crate) fn begin(&self, protocol: Protocol, destination: String) {
        self.entry.protocol.store(protocol as u8, Relaxed);
        self.entry.requests.fetch_add(1, Relaxed);
        self.registry.totals.requests.fetch_add(1, Relaxed);
        self.set_state(ConnectionState::Connecting);
        let mut detail = locked(&self.entry.detail);
        detail.destination = Some(destination);
        // its head is not counted, and may be large
        detail.left_out = None;
    }

    /// The destination has a name, as it turns out.
    pub(crate) fn set_destination(&self, destination: String) {
        locked(&self.entry.detail).destination = Some(destination);
    }

    pub(crate) fn set_trace(&self, trace: Option<Arc<Trace>>) {
        locked(&self.entry.detail).trace = trace;
    }

    /// The trace of the present request or tunnel.
    pub(crate) fn trace(&self) -> Option<Arc<Trace>> {
        locked(&self.entry.detail).trace.clone()
    }

    /// Ends the trace of the present request or tunnel, and fills in what is known of it here.
    pub(crate) fn take_trace(&self, end: &mut TraceEnd) -> Option<Arc<Trace>> {
        let mut detail = locked(&self.entry.detail);
        let trace = detail.trace.take()?;
        end.connection = self.entry.id;
        end.account = detail.account.as_ref().map(|account| account.name.clone());
        end.leg = detail.upstream.as_ref().map(|upstream| upstream.leg.name.clone());
        end.route.clone_from(&detail.route);
        Some(trace)
    }

    pub(crate) fn set_account(&self, account: Option<Arc<KnownAccount>>) {
        let now = account.as_ref().map(|account| account.id);
        let before = std::mem::replace(&mut locked(&self.entry.detail).account, account);
        self.registry.claims.change(&self.entry, before.map(|account| account.id), now);
    }

    pub(crate) fn set_protocol(&self, protocol: Protocol) {
        self.entry.protocol.store(protocol as u8, Relaxed);
    }

    pub(crate) fn set_state(&self, state: ConnectionState) {
        self.entry.state.store(state as u8, Relaxed);
    }

    pub(crate) fn set_client_leg(&self, leg: LegStats) {
        let mut detail = locked(&self.entry.detail);
        detail.inherit_lane(&leg);
        detail.client = Some(leg);
        detail.left_out = None;
    }

    pub(crate) fn has_client_leg(&self, leg: &Arc<NamedLeg>) -> bool {
        locked(&self.entry.detail).client.as_ref().is_some_and(|stats| Arc::ptr_eq(&stats.leg, leg))
    }

    pub(crate) fn set_upstream_leg(&self, through: Arc<[String]>, leg: Option<LegStats>) {
        let mut detail = locked(&self.entry.detail);
        detail.through = through;
        leg.iter().for_each(|leg| detail.inherit_lane(leg));
        detail.upstream = leg;
        detail.left_out = None;
    }

    pub(crate) fn set_route(&self, why: &Arc<str>) {
        locked(&self.entry.detail).route = Some(Arc::clone(why));
    }

    pub(crate) fn count(&self, failure: &Failure) {
        if failure.is_refusal() { self.count_refused() } else { self.count_failed() }
    }

    pub(crate) fn count_refused(&self) {
        self.registry.totals.refused.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_failed(&self) {
        self.registry.totals.failed.fetch_add(1, Relaxed);
    }

    pub(crate) fn last_moved(&self) -> Time {
        locked(&self.entry.detail).last
    }

    /// Checks the paths before the sockets close, but for short connections, which show little.
    pub(crate) fn check_paths(&self) {
        let (up, down) = self.bytes();
        let lived = clock::now().since(self.entry.since);
        if up + down >= TELLING || lived >= STALLED {
            locked(&self.entry.detail).check();
        }
    }

    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.entry.bytes_up.load(Relaxed), self.entry.bytes_down.load(Relaxed))
    }
}
