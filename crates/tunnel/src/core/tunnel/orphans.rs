//! Flows whose owners have left while bytes wait that the peer does not take: each ends in bounded time.

use super::Tunnel;
use crate::core::Event;
use crate::frame::reason::Reason;
use ekiden_model::resources::orphan::Orphan;
use ekiden_model::units::{Span, Time};
use std::collections::BTreeMap;

/// Interval of looking at them.
const LOOK: Span = Span::from_secs(5);

const NOT_TAKEN: &str = "its connection ended, and the rest of it was not taken for too long";

#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// With the bytes that each had sent at the last look. Some may have ended since.
    flows: BTreeMap<u64, (Orphan, u64)>,
    /// The last look, and the bytes that all flows had sent.
    looked: Time,
    all_sent: u64,
    /// How many were reset.
    reset: u64,
}

impl Orphans {
    /// Those that there are, and how many were reset.
    pub(super) fn counts(&self) -> (usize, u64) {
        (self.flows.len(), self.reset)
    }

    /// When to look at them next.
    pub(super) fn deadline(&self) -> Time {
        if self.flows.is_empty() { Time::NEVER } else { self.looked + LOOK }
    }
}

impl Tunnel {
    pub(in crate::core) fn leave(&mut self, now: Time, id: u64) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        flow.left = true;
        if !flow.sending.ended {
            if self.orphans.flows.is_empty() {
                (self.orphans.looked, self.orphans.all_sent) = (now, self.scheduler.sent());
            }
            let sent = flow.sending.sent;
            self.orphans.flows.entry(id).or_insert((Orphan::new(now), sent));
        } else if flow.receiving.is_reset() {
            // a break that came after the end, which nobody will read
            self.give_up(id);
        }
    }

    /// Resets flows without an owner of which the peer has taken too little for too long.
    pub(in crate::core) fn reset_orphans(&mut self, now: Time) {
        if now < self.orphans.deadline() {
            return;
        }
        let all_sent = self.scheduler.sent();
        let before = std::mem::replace(&mut self.orphans.all_sent, all_sent);
        // it is this side's line that others' bytes wait for, and not a peer that grants a byte now and then
        let line_is_busy = all_sent > before && self.peer_takes_more();
        self.orphans.looked = now;
        let mut over = Vec::new();
        let flows = &self.flows;
        self.orphans.flows.retain(|id, (orphan, sent)| {
            let Some(flow) = flows.get(id).filter(|flow| !flow.sending.ended) else { return false };
            let sending = &flow.sending;
            let taken = sending.sent - std::mem::replace(sent, sending.sent);
            // the scheduler has some of it, so it will have its turn
            if taken == 0 && sending.offered > 0 && line_is_busy {
                orphan.on_queued(now);
            } else {
                orphan.on_sent(now, taken);
            }
            let stays = !orphan.on_deadline(now);
            if !stays {
                over.push(*id);
            }
            stays
        });
        if over.is_empty() {
            return;
        }
        let (tunnel, peer, flows) = (self.id, self.peer, over.len() as u64);
        self.orphans.reset += flows;
        self.events.push_back(Event::OrphansReset { tunnel, peer, flows });
        for id in over {
            self.abort(now, id, Reason::Stalled, NOT_TAKEN.to_owned());
            self.changed(id);
        }
    }
}
