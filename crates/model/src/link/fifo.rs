//! The same link without events, where it can be had: a drop-tail queue says at once when a packet
//! leaves, because nothing that comes later changes that.

use super::loss::LossState;
use super::propagation::Propagation;
use super::queue::{Room, segments};
use super::serialiser::SerialiserState;
use super::{Bound, Config, Delivered, Discipline, Packet, Serialiser, Snapshot};
use super::{on_the_wire, streams};
use crate::units::Time;
use alloc::collections::VecDeque;

/// What becomes of a packet, known when it is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The queue has no room for it.
    Dropped,
    /// It leaves then, and is lost.
    Lost {
        /// When its last bit leaves the serialiser.
        departed: Time,
    },
    /// It arrives, at `due`.
    Arrives(Delivered),
}

/// A link with a drop-tail queue and a constant or infinite rate that never changes: the same drops,
/// losses and times as [`super::Link`] of the same [`Config`], in one call a packet and no event in
/// between. Amortised O(1); no allocation once the queue has been full.
///
/// `now` never goes back from one call to the next. With `reorder`, arrivals may come out of order:
/// sort them by `due`.
#[derive(Debug, Clone)]
pub struct Fifo {
    bound: Bound,
    serialiser: SerialiserState,
    framing: u32,
    loss: LossState,
    propagation: Propagation,
    /// Those that have not started to leave: when they will, segments and bytes.
    waiting: VecDeque<(Time, u64, u64)>,
    room: Room,
    /// When the last packet has left.
    busy: Time,
    count: Snapshot,
}

impl Fifo {
    /// An empty link; `None` where events are needed ([`super::Link`] serves all): another discipline,
    /// a trace, a stopped link, a schedule.
    #[must_use]
    pub fn new(config: &Config, now: Time) -> Option<Self> {
        let Discipline::DropTail(bound) = config.discipline else { return None };
        let steady = match &config.serialiser {
            Serialiser::Infinite => true,
            Serialiser::Rate(rate) => rate.as_bits_per_second() > 0,
            Serialiser::Trace(_) => false,
        };
        if !steady || !config.schedule.is_empty() {
            return None;
        }
        let (loss, jitter) = streams(config.seed);
        let (delay, reorder) = (config.delay, config.reorder);
        Some(Self {
            bound,
            serialiser: SerialiserState::new(config.serialiser.clone(), now),
            framing: config.framing,
            loss: LossState::new(config.loss.clone(), loss),
            propagation: Propagation::new(delay, config.jitter, reorder, jitter, now),
            waiting: VecDeque::new(),
            room: Room::default(),
            busy: now,
            count: Snapshot::default(),
        })
    }

    /// Offers a packet and says what becomes of it.
    pub fn offer(&mut self, now: Time, packet: Packet) -> Verdict {
        self.start(now);
        let bytes = u64::from(packet.bytes);
        self.count.offered += 1;
        self.count.offered_bytes += bytes;
        let free = self.busy <= now;
        if !free {
            if !self.room.has(self.bound, segments(&packet), bytes) {
                self.count.dropped += 1;
                self.count.dropped_bytes += bytes;
                return Verdict::Dropped;
            }
            self.room.add(segments(&packet), bytes);
            self.waiting.push_back((self.busy, segments(&packet), bytes));
        }
        let start = if free { now } else { self.busy };
        self.busy = self.serialiser.end(start, on_the_wire(&packet, self.framing));
        let departed = self.busy;
        if departed != Time::NEVER && self.loss.takes(&packet, now) {
            self.count.lost += 1;
            self.count.lost_bytes += bytes;
            return Verdict::Lost { departed };
        }
        self.count.delivered += 1;
        self.count.delivered_bytes += bytes;
        let due = self.propagation.due(departed);
        Verdict::Arrives(Delivered { packet, offered: now, departed, due, marked: false })
    }

    /// Counters, and what waits at `now`. A packet counts as delivered or lost as soon as that is
    /// known, so none is ever in flight, and `queued` is contained in the others.
    pub fn snapshot(&mut self, now: Time) -> Snapshot {
        self.start(now);
        Snapshot { queued: self.waiting.len() as u64, queued_bytes: self.room.bytes, ..self.count }
    }

    /// Forgets those that have started to leave by `now`.
    fn start(&mut self, now: Time) {
        while let Some((_, segments, bytes)) = self.waiting.pop_front_if(|(at, ..)| *at <= now) {
            self.room.take(segments, bytes);
        }
    }
}
