//! Socket buffer sizes: which legs are managed, when sizes are decided, and what the kernel granted.

use super::reading::LegReading;
use super::{Resources, State, TICK, TICKS_PER_LOOK, leg};
use crate::observe::registry::ConnectionEntry;
use crate::settings::Leg as Profile;
use crate::transfer::end::End;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::buffers::{Change, Enough, Scheme};
use ekiden_model::resources::overload::Resource;
use ekiden_model::units::{Bytes, Span, Time};
use leg::Leg;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The time from one turn of a leg to the next.
const BETWEEN_LOOKS: Span = TICK.saturating_mul(TICKS_PER_LOOK);

/// The allocator wants another decision this soon when a new leg finds the budget used up.
const HURRY: Span = Span::from_millis(10);

/// At about 0.5 µs a leg, early decisions this far apart for each leg cost at most a twentieth of a
/// processor.
const APART: Span = Span::from_micros(10);

/// A leg whose buffers are managed until its drop. A flow of a tunnel has none, and the number 0.
#[derive(Debug)]
pub(crate) struct ManagedLeg {
    pub(crate) id: u64,
    resources: Arc<Resources>,
}

impl Resources {
    pub(crate) fn manage(
        self: &Arc<Self>,
        end: &End,
        profile: &Profile,
        to: Option<SocketAddr>,
    ) -> ManagedLeg {
        let Some(stream) = end.socket() else {
            return ManagedLeg { id: 0, resources: Arc::clone(self) };
        };
        let id = self.next.fetch_add(1, Relaxed) + 1;
        let open = leg::open(profile);
        let leg = Leg::new(stream, to, &open, leg::paces(profile));
        let now = clock::now();
        let state = &mut *locked(&self.state);
        state.legs.insert(id, leg);
        state.choose_mode(now);
        let changes = state.allocator.on_open(now, id, open);
        state.apply(changes);
        state.hurry(now);
        ManagedLeg { id, resources: Arc::clone(self) }
    }

    /// Looks at the congestion control of a leg and paces it, unless that was done: a short connection is over before.
    pub(super) fn settle(&self, id: u64) {
        let unsettled = locked(&self.state).legs.get_mut(id).and_then(|leg| leg.take_unsettled());
        let Some((stream, paces)) = unsettled else { return };
        // the kernel is queried without the lock
        let gamma = leg::settle(&stream, paces);
        locked(&self.state).allocator.on_gamma(id, gamma);
    }

    /// From now on the upstream's leg carries this connection's bytes, and each of its two legs sends what the other
    /// receives.
    pub(crate) fn pair(&self, entry: &Arc<ConnectionEntry>) {
        let [client, upstream] = entry.leg_numbers();
        let state = &mut *locked(&self.state);
        if let Some(leg) = state.legs.get_mut(upstream) {
            leg.set_owner(entry);
        }
        if client != 0 && upstream != 0 {
            state.allocator.on_pair(client, upstream);
        }
    }
}

impl State {
    /// Leaves sizes to the kernel while its tuning cannot exceed the budget, by a tenth of margin
    /// against oscillation.
    pub(super) fn is_automatic(&self, now_automatic: bool) -> bool {
        let Some(budget) = self.settings.buffers.budget else { return true };
        let both = self.limits[0].tuned.saturating_add(self.limits[1].tuned);
        let worst = (self.legs.len() as u64).saturating_mul(both);
        let budget = budget.as_u64();
        worst <= if now_automatic { budget } else { budget - budget / 10 }
    }

    pub(super) fn choose_mode(&mut self, now: Time) {
        if self.settings.buffers.budget.is_none() {
            return;
        }
        let before = self.allocator.config().enough == Enough::Automatic;
        let automatic = self.is_automatic(before);
        if automatic == before {
            return;
        }
        self.allocator.set_config(now, self.settings.allocator(automatic));
        let changes = self.allocator.on_deadline(now);
        self.apply(changes);
    }

    /// Decides early for a new leg that found the budget used up. In a burst, only the first leg gets this.
    pub(super) fn hurry(&mut self, now: Time) {
        let due = self.allocator.deadline();
        let apart = APART.saturating_mul(self.legs.len() as u64);
        if due <= now + HURRY && now >= self.hurried + apart {
            self.hurried = now;
            let changes = self.allocator.on_deadline(due);
            self.apply(changes);
        }
    }

    /// What was found at some legs.
    pub(super) fn on_readings(&mut self, now: Time, seen: &[LegReading]) {
        // one at rest that moved has not moved in its turn before
        let since = Time::from_nanos(now.as_nanos().saturating_sub(BETWEEN_LOOKS.as_nanos()));
        for seen in seen {
            if self.legs.get(seen.id).is_some_and(Leg::is_at_rest) {
                self.allocator.on_awake(since, seen.id);
            }
            self.allocator.on_facts(now, seen.id, &seen.facts());
            self.widen(now, seen);
            let Some(leg) = self.legs.get_mut(seen.id) else { continue };
            leg.note(now, seen);
            if leg.is_at_rest() {
                self.allocator.on_rest(seen.id);
            }
        }
    }

    /// Lets a leg's buffers grow where only the kernel's tuning limit throttles them.
    fn widen(&mut self, now: Time, seen: &LegReading) {
        let buffers = self.settings.buffers;
        // explicit sizes are not widened, and with a budget the allocator decides
        if buffers.scheme == Scheme::Conventional || buffers.budget.is_some() {
            return;
        }
        let memory = self.pressure.snapshot()[Resource::SocketMemory as usize];
        let Some(leg) = self.legs.get_mut(seen.id) else { return };
        let ceiling = buffers.ceiling.as_u64();
        let refused = leg.widen(now, seen, &self.limits, ceiling, |_| !memory.low);
        self.note(refused);
    }

    /// Applies sizes in order, and records sizes that the kernel did not grant.
    pub(super) fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            let leg = self.legs.get_mut(change.id);
            let refused = leg.and_then(|leg| leg.apply(change, &self.limits));
            self.note(refused);
        }
    }

    pub(super) fn note(&mut self, refused: Option<leg::SizeRefusal>) {
        let Some(refused) = refused else { return };
        self.counts.refused += 1;
        self.counts.last_refused = Some(refused);
        let given = leg::payload(Bytes::new(refused.given.into()));
        self.allocator.on_limit(refused.side, given);
    }
}

impl ManagedLeg {
    pub(crate) fn set_profile(&self, end: &End, profile: &Profile) {
        if end.socket().is_none() {
            return;
        }
        let (now, open) = (clock::now(), leg::open(profile));
        let state = &mut *locked(&self.resources.state);
        if let Some(leg) = state.legs.get_mut(self.id) {
            leg.set_profile(&open, leg::paces(profile));
        }
        let changes = state.allocator.on_open(now, self.id, open);
        state.apply(changes);
    }

    /// Settles it now, because it is no short connection.
    pub(crate) fn settle(&self) {
        self.resources.settle(self.id);
    }
}

impl Drop for ManagedLeg {
    fn drop(&mut self) {
        if self.id == 0 {
            return;
        }
        let state = &mut *locked(&self.resources.state);
        state.legs.remove(self.id);
        state.allocator.on_close(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::leg_stats::{LegStats, TlsLeg};
    use crate::observe::named_leg::NamedLeg;
    use crate::observe::registry::{Nobody, Registry};
    use crate::settings::Settings;
    use std::future::pending;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::{Mutex, Weak, mpsc};
    use std::time::Duration;
    use tokio::net::{TcpListener, TcpStream};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// TLS to an upstream. Its task drops it as soon as it is looked at.
    #[derive(Debug)]
    struct Leaving {
        _managed: ManagedLeg,
        entry: Arc<ConnectionEntry>,
        /// What its task has of it.
        held: Mutex<Option<Arc<Self>>>,
    }

    impl Leaving {
        fn leave(&self) {
            let held = locked(&self.held).take();
            drop(held);
        }
    }

    impl TlsLeg for Leaving {
        fn has_spoken(&self) -> bool {
            self.leave();
            false
        }

        fn shut(&self) {}

        fn abort(&self, _: &str) {
            self.leave();
        }
    }

    impl Drop for Leaving {
        fn drop(&mut self) {
            // a lock within the state's, which its leg takes next
            let _ = self.entry.account();
        }
    }

    /// Resources that manage a leg, and the silent tunnel through such TLS that has it.
    async fn leaving() -> (Arc<Resources>, Arc<ConnectionEntry>) {
        let resources = Resources::new(&Settings::default(), false).0;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let profile = Profile::default();
        let managed = resources.manage(&End::from(stream), &profile, None);
        let registry = Arc::new(Registry::new(Arc::new(Nobody)));
        let registration = registry.enter((HERE, 5_000).into());
        let entry = Arc::clone(&registration.entry);
        let leaving = Arc::new(Leaving {
            _managed: managed,
            entry: Arc::clone(&entry),
            held: Mutex::new(None),
        });
        *locked(&leaving.held) = Some(Arc::clone(&leaving));
        let session: Arc<dyn TlsLeg> = leaving;
        let named = Arc::new(NamedLeg::new("direct", &profile, None));
        let stats = LegStats::new(Weak::new(), HERE, named, None);
        let stats = stats.within_tls(&Weak::new(), Some(Arc::downgrade(&session)));
        registration.set_upstream_leg(Arc::default(), Some(stats));
        // its drop would wait for a lock that is never free again
        std::mem::forget(registration);
        (resources, entry)
    }

    /// Whether it returns. One that waits for itself never does, and has a thread of its own.
    fn returns(work: impl FnOnce() + Send + 'static) -> bool {
        let (done, returned) = mpsc::channel();
        std::thread::spawn(move || {
            work();
            let _ = done.send(());
        });
        returned.recv_timeout(Duration::from_secs(20)).is_ok()
    }

    #[tokio::test]
    async fn a_tunnel_may_end_while_it_is_evicted() {
        let (resources, entry) = leaving().await;
        {
            let state = &mut *locked(&resources.state);
            let _place = state.take_place(clock::now(), HERE.into());
            state.park_tunnel(clock::now(), entry);
        }
        let evicting = Arc::clone(&resources);
        assert!(returns(move || evicting.evict_for_descriptor()));
        let state = locked(&resources.state);
        assert_eq!((state.legs.len(), state.clients), (0, 0));
    }

    #[tokio::test]
    async fn a_connection_may_end_while_it_is_reset() {
        let (resources, entry) = leaving().await;
        entry.set_task(tokio::spawn(pending::<()>()).abort_handle());
        assert!(returns(move || entry.end()));
        assert_eq!(locked(&resources.state).legs.len(), 0);
    }
}
