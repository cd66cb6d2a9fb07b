//! The sizes of socket buffers: which leg is managed, when they are decided, and what the kernel gave.

use super::{Resources, State, leg};
use crate::registry::locked;
use crate::settings::Leg as Profile;
use ekiden_linux::clock;
use ekiden_model::buffers::{Change, Enough, Scheme};
use ekiden_model::pressure::Resource;
use ekiden_model::units::{Bytes, Span, Time};
use leg::Leg;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::net::TcpStream;

/// How soon the allocator wants to decide again when a newcomer found the budget given out.
const HURRY: Span = Span::from_millis(10);

/// Deciding takes about half a microsecond a leg; so much a leg between two decisions made for newcomers
/// keeps a crowd of them to a twentieth of a processor.
const APART: Span = Span::from_micros(10);

/// A leg whose buffers are shared out as long as this is there.
#[derive(Debug)]
pub(crate) struct Managed {
    pub(crate) id: u64,
    resources: Arc<Resources>,
}

impl Resources {
    /// Begins to share out a leg's buffers; `to` where it leads, `None` of a client's.
    pub(crate) fn manage(
        self: &Arc<Self>,
        stream: &Arc<TcpStream>,
        profile: &Profile,
        to: Option<SocketAddr>,
    ) -> Managed {
        let id = self.next.fetch_add(1, Relaxed) + 1;
        let open = leg::open(stream, profile);
        leg::spread(stream, profile);
        let leg = Leg::new(stream, to, &open);
        let now = clock::now();
        let state = &mut *locked(&self.state);
        state.legs.insert(id, leg);
        state.choose_mode(now);
        let changes = state.allocator.on_open(now, id, open);
        state.apply(changes);
        state.hurry(now);
        Managed { id, resources: Arc::clone(self) }
    }

    /// What one of the two legs receives the other sends, from now on.
    pub(crate) fn pair(&self, one: u64, other: u64) {
        locked(&self.state).allocator.on_pair(one, other);
    }
}

impl State {
    /// While the kernel's tuning cannot take more than the budget, it is left to it; otherwise sizes are
    /// explicit. A tenth less before it is left to it again.
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

    /// A newcomer that found the budget given out has next to nothing. It is not to wait for the tick; but
    /// of a crowd only the first is so lucky.
    pub(super) fn hurry(&mut self, now: Time) {
        let due = self.allocator.deadline();
        let apart = APART.saturating_mul(self.legs.len() as u64);
        if due <= now + HURRY && now >= self.hurried + apart {
            self.hurried = now;
            let changes = self.allocator.on_deadline(due);
            self.apply(changes);
        }
    }

    /// Lets a leg's buffers grow where only the kernel's limit stands in the way.
    pub(super) fn widen(&mut self, now: Time, id: u64, seen: &leg::Seen) {
        let buffers = self.settings.buffers;
        // sizes that were decided here are not widened, and with a budget the equation rules
        if buffers.scheme == Scheme::Conventional || buffers.budget.is_some() {
            return;
        }
        let memory = self.pressure.snapshot()[Resource::SocketMemory as usize];
        let Some(leg) = self.legs.get_mut(&id) else { return };
        let ceiling = buffers.ceiling.as_u64();
        let refused = leg.widen(now, seen, &self.limits, ceiling, |_| !memory.low);
        self.note(refused);
    }

    /// Applies sizes in their order, and remembers what the kernel did not give.
    pub(super) fn apply(&mut self, changes: Vec<Change>) {
        for change in changes {
            let leg = self.legs.get_mut(&change.id);
            let refused = leg.and_then(|leg| leg.apply(change, &self.limits));
            self.note(refused);
        }
    }

    pub(super) fn note(&mut self, refused: Option<leg::Refused>) {
        let Some(refused) = refused else { return };
        self.counts.refused += 1;
        self.counts.last_refused = Some(refused);
        let given = leg::payload(Bytes::new(refused.given.into()));
        self.allocator.on_limit(refused.side, given);
    }
}

impl Managed {
    /// The leg's profile is another one now.
    pub(crate) fn become_other(&self, stream: &TcpStream, profile: &Profile) {
        let (now, open) = (clock::now(), leg::open(stream, profile));
        leg::spread(stream, profile);
        let state = &mut *locked(&self.resources.state);
        if let Some(leg) = state.legs.get_mut(&self.id) {
            leg.become_other(&open);
        }
        let changes = state.allocator.on_open(now, self.id, open);
        state.apply(changes);
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        let state = &mut *locked(&self.resources.state);
        state.legs.remove(&self.id);
        state.allocator.on_close(self.id);
    }
}
