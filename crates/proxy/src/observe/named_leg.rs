//! A leg profile with its name and its history.

use crate::observe::leg_history::LegHistory;
use crate::observe::status::{HeldStatus, ProfileStatus};
use crate::settings::Leg;
use ekiden_linux::bpf::Group;
use ekiden_model::resources::idle_timeout::Limits;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

#[derive(Debug)]
pub(crate) struct NamedLeg {
    pub(crate) name: String,
    pub(crate) leg: Leg,
    pub(crate) history: Arc<LegHistory>,
    logged: AtomicBool,
}

impl NamedLeg {
    /// A leg; one that takes the same path as `before` keeps its history.
    pub(crate) fn new(name: &str, leg: &Leg, before: Option<&Self>) -> Self {
        let path = |leg: &Leg| (leg.socket.source, leg.socket.device.clone(), leg.socket.mark);
        let same = before.filter(|other| path(&other.leg) == path(leg));
        let history = same.map(|other| Arc::clone(&other.history));
        let history = history.unwrap_or_else(|| Arc::new(LegHistory::new()));
        let logged = AtomicBool::new(false);
        Self { name: name.to_owned(), leg: leg.clone(), history, logged }
    }

    /// Logs once that the pinned program that held the leg's rate is gone.
    pub(crate) fn check_rate(&self) {
        let gone = self.leg.socket.rate.as_ref().is_some_and(|group| !group.is_current());
        if gone && !self.logged.swap(true, Relaxed) {
            tracing::warn!(
                leg = %self.name,
                "the programs that `ekiden bpf load` pinned were removed or replaced; new connections use the next \
                 congestion control of the leg's list until a reload"
            );
        }
    }

    pub(crate) fn status(&self) -> ProfileStatus {
        ProfileStatus {
            name: self.name.clone(),
            opening: self.history.opening(),
            path: self.history.path(),
            held: self.leg.socket.rate.as_ref().and_then(held),
        }
    }
}

/// The state of a rate group; `None` when the kernel does not report it, or nobody holds the rate any more.
fn held(group: &Group) -> Option<HeldStatus> {
    let seen = group.seen().ok().filter(|seen| seen.members > 0 || group.is_current())?;
    let allotted = group.terms().rate.as_bits_per_second();
    Some(HeldStatus {
        control: group.control().to_owned(),
        allotted,
        // 0: nothing was sent yet
        rate: if seen.rate == 0 { allotted } else { seen.rate },
        members: seen.members,
        busy: seen.weights,
        light: seen.light,
        delivered: seen.delivered,
        losses: seen.losses,
        reactions: seen.reactions,
        undone: seen.undone,
    })
}

/// The idle limits of a connection over two legs: the shorter of each.
pub(crate) fn limits(client: &Leg, upstream: &Leg) -> Limits {
    Limits {
        idle: client.idle_timeout.min(upstream.idle_timeout),
        half_closed: client.half_closed_timeout.min(upstream.half_closed_timeout),
    }
}
