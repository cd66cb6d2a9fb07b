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
use std::thread;

/// A live connection's entry in the registry. Its drop removes the entry.
#[derive(Debug)]
pub(crate) struct Registration {
    pub(crate) entry: Arc<ConnectionEntry>,
    pub(super) registry: Arc<Registry>,
}

/// Makes the close of a connection's legs a reset where its task panics: neither end may take it for an end of stream.
/// Declared behind whoever keeps the legs open.
#[derive(Debug)]
pub(crate) struct ResetOnPanic<'a>(&'a ConnectionEntry);

impl Drop for ResetOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.reset_on_close();
        }
    }
}

/// A connection that relayed this many bytes has sent full-sized segments.
const TELLING: u64 = 64 * 1024;

/// A connection that relayed this many bytes moves more than a first window: ten segments of 1,460 bytes (RFC 6928 §2).
const BULK: u64 = 16 * 1024;

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
    pub(crate) fn reset_on_panic(&self) -> ResetOnPanic<'_> {
        ResetOnPanic(&self.entry)
    }

    /// Registers a connection within this one.
    pub(crate) fn inner(&self) -> Self {
        self.registry.register(self.entry.client, Some(Arc::clone(&self.entry)))
    }

    /// Whether another connection of the same address is an account's. Looks at all there are, so it is for rare use.
    pub(crate) fn shares_address(&self) -> bool {
        let (id, address) = (self.entry.id, self.entry.client.ip());
        let of_address =
            |other: &Arc<ConnectionEntry>| other.id != id && other.client.ip() == address;
        self.registry.shown().filter(of_address).any(|other| other.account().is_some())
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
            detail.rest.wake();
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
        let (up, down) = self.bytes();
        if up + down >= BULK {
            // the client's leg is the outer connection's where this one is within TLS
            for entry in [Some(entry), entry.outer()].into_iter().flatten() {
                if entry.has_new_legs() {
                    self.registry.activity.on_bulk(entry);
                }
            }
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
        detail.rest.wake();
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
        detail.rest.wake();
    }

    pub(crate) fn has_client_leg(&self, leg: &Arc<NamedLeg>) -> bool {
        locked(&self.entry.detail).client.as_ref().is_some_and(|stats| Arc::ptr_eq(&stats.leg, leg))
    }

    pub(crate) fn set_upstream_leg(&self, through: Arc<[String]>, leg: Option<LegStats>) {
        let mut detail = locked(&self.entry.detail);
        detail.through = through;
        leg.iter().for_each(|leg| detail.inherit_lane(leg));
        detail.upstream = leg;
        detail.rest.wake();
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

#[cfg(test)]
mod tests {
    use super::super::{CarrierUse, TunnelActivity};
    use super::*;
    use crate::policy::accounts::testing::account;
    use crate::settings::Leg;
    use std::io::ErrorKind;
    use std::sync::Mutex;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;

    /// The legs of those that move more than a few packets.
    #[derive(Debug, Default)]
    struct Bulk(Mutex<Vec<[u64; 2]>>);

    impl TunnelActivity for Bulk {
        fn on_tunnel_moved(&self, _: &ConnectionEntry) {}

        fn on_bulk(&self, entry: &ConnectionEntry) {
            locked(&self.0).push(entry.leg_numbers());
        }
    }

    #[derive(Debug)]
    struct Owes;

    impl CarrierUse for Owes {
        fn waits(&self) -> Option<String> {
            Some("it owes".to_owned())
        }
    }

    #[test]
    fn streams_say_that_their_connection_is_not_read() {
        let registry = Arc::new(Registry::new(Arc::new(Bulk::default())));
        let outer = registry.enter(([192, 0, 2, 1], 5_000).into());
        let stream = outer.inner();
        let waits = |of: &Registration| of.entry.status(&[]).waits;
        assert_eq!(waits(&stream), None);
        let owes = Arc::new(Owes);
        outer.entry.set_carrier(&owes);
        assert_eq!(waits(&stream).as_deref(), Some("it owes"));
        assert_eq!(waits(&outer).as_deref(), Some("it owes"));
        drop(owes);
        assert_eq!(waits(&stream), None);
    }

    #[test]
    fn a_refused_account_s_connections_have_ended_from_elsewhere() {
        let registry = Arc::new(Registry::new(Arc::new(Bulk::default())));
        let [refused, other] = [7, 8].map(|id| {
            let registration = registry.enter(([192, 0, 2, 1], 5_000).into());
            registration.set_account(Some(account(id, "home")));
            registration
        });
        registry.end_refused(|id| if id == 7 { Err("it is disabled".to_owned()) } else { Ok(()) });
        assert_eq!([refused, other].map(|one| one.entry.has_ended()), [true, false]);
    }

    #[tokio::test]
    async fn a_panic_resets_the_legs() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (near, from) = listener.accept().await.unwrap();
        let near = Arc::new(near);
        let registration = Arc::new(Registry::new(Arc::new(Bulk::default()))).enter(from);
        let leg = Arc::new(NamedLeg::new("direct", &Leg::default(), None));
        let stats = LegStats::new(Arc::downgrade(&near), from.ip(), leg, None);
        registration.set_upstream_leg(Arc::new([]), Some(stats));
        let (_, never) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let _near = near;
            let _resets = registration.reset_on_panic();
            never.await.expect("a test asked for it");
        });
        assert!(task.await.is_err_and(|error| error.is_panic()));
        let closed = far.read(&mut [0]).await;
        assert_eq!(closed.unwrap_err().kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn reports_each_pair_of_legs_once_when_more_than_a_first_window_has_moved() {
        let bulk = Arc::new(Bulk::default());
        let registry = Arc::new(Registry::new(Arc::clone(&bulk) as _));
        let outer = registry.enter(([192, 0, 2, 1], 5_000).into());
        outer.entry.legs[0].store(7, Relaxed);
        let inner = outer.inner();
        inner.entry.legs[1].store(8, Relaxed);
        let moved = |up, down| {
            inner.moved(clock::now(), up, down, 0);
            std::mem::take(&mut *locked(&bulk.0))
        };
        assert!(moved(8_192, 8_191).is_empty());
        assert_eq!(moved(0, 1), [[0, 8], [7, 0]]);
        assert!(moved(1 << 20, 1 << 20).is_empty());
        // the next request of a client goes elsewhere
        inner.entry.legs[1].store(9, Relaxed);
        assert_eq!(moved(1, 0), [[0, 9]]);
        assert!(moved(1, 0).is_empty());
    }
}
