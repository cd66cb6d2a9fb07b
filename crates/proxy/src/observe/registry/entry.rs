//! One live connection as the registry knows it.

use super::{AccountUse, CarrierUse, ConnectionState, Protocol};
use crate::observe::leg_stats::{LegStats, TlsLeg};
use crate::observe::rest::Rest;
use crate::observe::traces::Trace;
use crate::settings::KnownAccount;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::control::classifier::{Bursts, Class};
use ekiden_model::control::rate_meter::RateMeter;
use ekiden_model::control::scheduler::Lane;
use ekiden_model::resources::overload::PlaceId;
use ekiden_model::units::{Span, Time};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use tokio::task::AbortHandle;

/// A connection without progress for this long may be stuck: three time-outs take at least 1.4 s.
pub(super) const STALLED: Span = Span::from_secs(1);

/// Longer than any time-out of the kernel: a stuck connection was found by then.
const SILENT: Span = Span::from_secs(120);

#[derive(Debug)]
pub(crate) struct ConnectionEntry {
    pub(crate) id: u64,
    pub(crate) client: SocketAddr,
    pub(super) since: Time,
    pub(super) protocol: AtomicU8,
    pub(super) state: AtomicU8,
    pub(super) requests: AtomicU64,
    pub(super) bytes_up: AtomicU64,
    pub(super) bytes_down: AtomicU64,
    pub(super) bytes_spliced: AtomicU64,
    /// How often bytes were moved, by it or by one within it.
    moves: AtomicU64,
    pub(super) detail: Mutex<Detail>,
    /// The connection that this one is within.
    outer: Option<Arc<ConnectionEntry>>,
    /// Live connections within this one, which stand for it in the status.
    pub(super) inner: AtomicU64,
    /// Numbers of the client's and the upstream leg in the buffer management; 0 for none.
    pub(crate) legs: [AtomicU64; 2],
    /// Those of them that were last reported as moving more than a few packets.
    bulk_legs: [AtomicU64; 2],
    /// Its place was given back: to make room for another connection, or as it ended.
    pub(crate) evicted: AtomicBool,
    /// A tunnel that counts as idle.
    pub(crate) silent: AtomicBool,
    pub(super) task: OnceLock<AbortHandle>,
    /// Its client's place among the sources.
    place: OnceLock<PlaceId>,
    /// Set when the connection must end, in case its task is not known yet.
    ended: AtomicBool,
    /// It was ended to make room for another connection.
    ended_for_room: AtomicBool,
    pub(super) share: Mutex<Option<Weak<dyn AccountUse>>>,
    /// Of an HTTP/2 connection: what its streams come in.
    carrier: OnceLock<Weak<dyn CarrierUse>>,
}

#[derive(Debug)]
pub(super) struct Detail {
    pub(super) bursts: Bursts,
    /// From the client and to it.
    pub(super) rates: [RateMeter; 2],
    /// The lane of its legs within a rate that the kernel holds.
    pub(super) lane: Lane,
    pub(super) last: Time,
    pub(super) destination: Option<String>,
    pub(super) through: Arc<[String]>,
    pub(super) route: Option<Arc<str>>,
    pub(super) account: Option<Arc<KnownAccount>>,
    pub(super) client: Option<LegStats>,
    pub(super) upstream: Option<LegStats>,
    /// Its request or tunnel, where that is traced.
    pub(super) trace: Option<Arc<Trace>>,
    /// At rest where nothing was under way at the last check.
    pub(super) rest: Rest,
}

impl Detail {
    pub(super) fn check(&mut self) {
        let legs = [&mut self.client, &mut self.upstream].into_iter().flatten();
        // all of them: each check tells a leg's history
        let quiet = legs.fold(true, |quiet, leg| leg.check() & quiet);
        self.rest.on_check(quiet);
    }

    /// Checks again what may be stuck: legs with data under way, and the others now and then.
    pub(super) fn check_again(&mut self) {
        if !self.rest.leaves_out() {
            self.check();
        }
    }

    fn sessions(&self) -> impl Iterator<Item = Arc<dyn TlsLeg>> {
        [&self.client, &self.upstream].into_iter().flatten().filter_map(LegStats::session)
    }

    /// A leg that just got its profile starts in the interactive lane.
    pub(super) fn inherit_lane(&self, leg: &LegStats) {
        if self.lane == Lane::Bulk {
            leg.set_lane(Lane::Bulk);
        }
    }

    /// Moves bulk connections to the low-priority lane.
    pub(super) fn update_lane(&mut self) {
        let lane = match self.bursts.class() {
            Class::Bulk => Lane::Bulk,
            Class::Unknown | Class::Interactive => Lane::Interactive,
        };
        if std::mem::replace(&mut self.lane, lane) != lane {
            let legs = [&self.client, &self.upstream].into_iter().flatten();
            legs.for_each(|leg| leg.set_lane(lane));
        }
    }
}

impl ConnectionEntry {
    pub(crate) fn new(id: u64, client: SocketAddr, outer: Option<Arc<Self>>) -> Self {
        let now = clock::now();
        Self {
            id,
            client,
            since: now,
            protocol: AtomicU8::new(Protocol::New as u8),
            state: AtomicU8::new(ConnectionState::Reading as u8),
            requests: AtomicU64::new(0),
            bytes_up: AtomicU64::new(0),
            bytes_down: AtomicU64::new(0),
            bytes_spliced: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            outer,
            inner: AtomicU64::new(0),
            detail: Mutex::new(Detail {
                bursts: Bursts::new(now),
                rates: [RateMeter::new(now), RateMeter::new(now)],
                lane: Lane::Interactive,
                last: now,
                destination: None,
                through: Arc::new([]),
                route: None,
                account: None,
                client: None,
                upstream: None,
                trace: None,
                rest: Rest::default(),
            }),
            legs: [AtomicU64::new(0), AtomicU64::new(0)],
            bulk_legs: [AtomicU64::new(0), AtomicU64::new(0)],
            evicted: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            task: OnceLock::new(),
            place: OnceLock::new(),
            ended: AtomicBool::new(false),
            ended_for_room: AtomicBool::new(false),
            share: Mutex::default(),
            carrier: OnceLock::new(),
        }
    }

    pub(crate) fn set_share<T: AccountUse + 'static>(&self, share: Option<&Arc<T>>) {
        let weak = share.map(|share| {
            let share: Arc<dyn AccountUse> = Arc::clone(share) as _;
            Arc::downgrade(&share)
        });
        *locked(&self.share) = weak;
    }

    pub(crate) fn set_carrier<T: CarrierUse + 'static>(&self, carrier: &Arc<T>) {
        let carrier: Arc<dyn CarrierUse> = Arc::clone(carrier) as _;
        // set once, at the beginning
        let _ = self.carrier.set(Arc::downgrade(&carrier));
    }

    /// Why nothing more is read of the connection that it is, or that it is a stream of.
    pub(super) fn carrier_waits(&self) -> Option<String> {
        let entry = self.outer.as_deref().unwrap_or(self);
        entry.carrier.get()?.upgrade()?.waits()
    }

    /// Whether it is a tunnel by CONNECT or SOCKS, diverted or forwarded, that is open in both directions and not yet marked silent.
    fn is_tunnel(&self) -> bool {
        let protocol = self.protocol.load(Relaxed);
        use Protocol::{Connect, Forward, Gateway, Socks4a, Socks5};
        let tunnels = [Connect, Socks5, Socks4a, Gateway, Forward];
        self.state.load(Relaxed) == ConnectionState::Relaying as u8
            && !self.silent.load(Relaxed)
            && tunnels.iter().any(|tunnel| *tunnel as u8 == protocol)
    }

    /// Checks its paths if it stopped a short while ago: a moving one is fine, and a long silent one was checked before.
    pub(crate) fn check_paths(&self, now: Time) {
        let mut detail = locked(&self.detail);
        let silent = now.since(detail.last);
        if silent >= STALLED && silent <= SILENT {
            detail.check_again();
        }
    }

    /// Whether it is a tunnel without progress for `span` that is not marked silent yet.
    pub(crate) fn is_silent(&self, now: Time, span: Span) -> bool {
        self.is_tunnel() && now.since(locked(&self.detail).last) >= span
    }

    pub(crate) fn account(&self) -> Option<Arc<KnownAccount>> {
        locked(&self.detail).account.clone()
    }

    /// The TLS sessions of its legs, kept. Whoever asks about the legs within a lock keeps these beyond it: the last hold
    /// on a session takes locks as it is dropped.
    pub(crate) fn sessions(&self) -> Vec<Arc<dyn TlsLeg>> {
        locked(&self.detail).sessions().collect()
    }

    fn any_leg(&self, is: impl Fn(&LegStats) -> bool) -> bool {
        let detail = locked(&self.detail);
        [&detail.client, &detail.upstream].into_iter().flatten().any(is)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.any_leg(LegStats::is_open)
    }

    /// Whether unread bytes have arrived on a leg.
    pub(crate) fn has_spoken(&self) -> bool {
        self.any_leg(LegStats::has_spoken)
    }

    /// Ends its legs, in one direction or both.
    pub(crate) fn shut(&self, how: Shutdown) {
        let detail = locked(&self.detail);
        [&detail.client, &detail.upstream].into_iter().flatten().for_each(|leg| leg.shut(how));
    }

    /// Bytes were moved. They are the outer connection's, too.
    pub(crate) fn on_moved(&self) {
        let outer = self.outer.as_deref();
        [Some(self), outer].into_iter().flatten().for_each(|entry| {
            entry.moves.fetch_add(1, Relaxed);
        });
    }

    /// Whether a request or a tunnel to a destination began on it. One that asks the relay itself, or lacks a log-in, does
    /// not.
    pub(crate) fn was_served(&self) -> bool {
        self.requests.load(Relaxed) > 0
    }

    /// How often bytes were moved.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Relaxed)
    }

    /// Bytes that were taken out of its client's leg (0) or its upstream's (1). While others are within it, how often
    /// any were moved.
    pub(crate) fn taken_from(&self, leg: usize) -> u64 {
        match self.inner.load(Relaxed) {
            0 => [&self.bytes_up, &self.bytes_down][leg].load(Relaxed),
            _ => self.moves(),
        }
    }

    /// The connection that this one is within.
    pub(crate) const fn outer(&self) -> Option<&Arc<Self>> {
        self.outer.as_ref()
    }

    pub(crate) fn leg_numbers(&self) -> [u64; 2] {
        [self.legs[0].load(Relaxed), self.legs[1].load(Relaxed)]
    }

    /// Whether its legs are others than at the last call.
    pub(super) fn has_new_legs(&self) -> bool {
        let pairs = self.legs.iter().zip(&self.bulk_legs);
        pairs.fold(false, |new, (leg, known)| {
            let leg = leg.load(Relaxed);
            new | (known.load(Relaxed) != leg && known.swap(leg, Relaxed) != leg)
        })
    }

    pub(crate) fn set_place(&self, place: Option<PlaceId>) {
        // set once, at the beginning
        if let Some(place) = place {
            let _ = self.place.set(place);
        }
    }

    pub(crate) fn place(&self) -> Option<PlaceId> {
        self.place.get().copied()
    }

    pub(crate) fn set_task(&self, task: AbortHandle) {
        // set once, at the beginning
        let _ = self.task.set(task);
        if self.has_ended() {
            self.end();
        }
    }

    pub(crate) fn end(&self) {
        // later its place is given back in any case
        if !self.has_ended() {
            self.ended_for_room.store(self.evicted.load(Relaxed), Relaxed);
        }
        self.ended.store(true, SeqCst);
        if let Some(task) = self.task.get() {
            self.reset_on_close();
            task.abort();
        }
    }

    /// Whether it was ended from elsewhere. Its legs may break before its task is gone.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// Whether that was to make room for another connection.
    pub(crate) fn has_ended_for_room(&self) -> bool {
        self.ended_for_room.load(Relaxed)
    }

    /// Makes the close a reset, because neither end may take the cut for an end of stream.
    pub(super) fn reset_on_close(&self) {
        // dropped after the lock is free
        let mut kept = Vec::new();
        let detail = locked(&self.detail);
        kept.extend(detail.sessions());
        [&detail.client, &detail.upstream].into_iter().flatten().for_each(LegStats::abort);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_end_before_the_task_is_known_ends_the_task() {
        let entry = ConnectionEntry::new(1, ([192, 0, 2, 1], 5_000).into(), None);
        entry.end();
        let task = tokio::spawn(async {});
        entry.set_task(task.abort_handle());
        assert!(task.await.is_err_and(|error| error.is_cancelled()));
    }
}
