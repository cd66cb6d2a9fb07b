//! The same link without events: behind a drop-tail queue a packet's departure is known on arrival.

use super::loss::LossState;
use super::propagation::Propagation;
use super::queue::{Room, segments};
use super::serialiser::ConstantRate;
use super::{Bound, Config, Discipline, Loss, Packet, Serialiser, Snapshot};
use super::{on_the_wire, streams};
use crate::units::{Span, Time};
use alloc::boxed::Box;
use alloc::collections::VecDeque;

/// A packet's fate, known when it is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The queue has no room for it.
    Dropped,
    /// It leaves then, and is lost.
    Lost {
        /// When its last bit leaves the serialiser.
        departed: Time,
    },
    /// It arrives.
    Arrives {
        /// When its last bit leaves the serialiser.
        departed: Time,
        /// When it arrives: `departed` + delay + jitter.
        due: Time,
    },
}

/// A link with a drop-tail queue and a constant or infinite rate: the same drops, losses and times
/// as [`super::Link`] of the same [`Config`], in one call a packet. Amortised O(1); no allocation
/// once the queue has been full. With `reorder`, arrivals may come out of order: sort by `due`.
///
/// Many links are fast when a packet's data is close together. So all that an idle link needs stands
/// in its first cache line, its counters in the next, and rarely used parts are boxed.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub struct Fifo {
    /// When the last packet has left.
    busy: Time,
    rate: Option<ConstantRate>,
    /// Without jitter what leaves in order arrives in order.
    delay: Span,
    rare: Option<Box<Rare>>,
    offered: Tally,
    framing: u32,
    bound: Bound,
    room: Room,
    /// Those that have not started to leave: when they will, segments and bytes.
    waiting: VecDeque<(Time, u32, u32)>,
    dropped: Tally,
    lost: Tally,
}

/// Packets and their bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    packets: u64,
    bytes: u64,
}

impl Tally {
    const fn count(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }
}

#[derive(Debug, Clone)]
struct Rare {
    jitter: Propagation,
    loss: LossState,
}

impl Fifo {
    /// An empty link; `None` where [`super::Link`] is needed: another discipline, a trace, rate 0,
    /// a schedule.
    pub fn new(config: &Config, now: Time) -> Option<Self> {
        let Discipline::DropTail(bound) = config.discipline else { return None };
        let rate = match &config.serialiser {
            Serialiser::Infinite => None,
            Serialiser::Rate(rate) => Some(ConstantRate::new(*rate)?),
            Serialiser::Trace(_) => return None,
        };
        if !config.schedule.is_empty() {
            return None;
        }
        let (loss, jitter) = streams(config.seed);
        let rare = || Rare {
            jitter: Propagation::new(config.delay, config.jitter, config.reorder, jitter, now),
            loss: LossState::new(config.loss.clone(), loss),
        };
        let is_rare = config.jitter != Span::ZERO || config.loss != Loss::None;
        Some(Self {
            busy: now,
            rate,
            delay: config.delay,
            rare: is_rare.then(|| Box::new(rare())),
            offered: Tally::default(),
            framing: config.framing,
            bound,
            room: Room::default(),
            waiting: VecDeque::new(),
            dropped: Tally::default(),
            lost: Tally::default(),
        })
    }

    /// Offers a packet and returns its fate.
    #[inline(always)] // a call for each packet and link costs as much as what it does
    pub fn offer(&mut self, now: Time, packet: &Packet) -> Verdict {
        let before = self.busy;
        self.offered.count(packet.bytes.into());
        if before > now && !self.wait(now, packet) {
            return Verdict::Dropped;
        }
        let start = before.max(now);
        let departed = match &mut self.rate {
            Some(rate) => rate.end(start, start == before, on_the_wire(packet, self.framing)),
            None => start,
        };
        self.busy = departed;
        if self.rare.is_some() {
            return self.lose_or_delay(now, departed, packet);
        }
        Verdict::Arrives { departed, due: departed + self.delay }
    }

    /// Puts a packet behind those that wait; false if the queue has no room for it.
    fn wait(&mut self, now: Time, packet: &Packet) -> bool {
        let (segments, bytes) = (segments(packet), u64::from(packet.bytes));
        self.start(now);
        if !self.room.has(self.bound, segments, bytes) {
            self.dropped.count(bytes);
            return false;
        }
        self.room.add(segments, bytes);
        self.waiting.push_back((self.busy, packet.segments.max(1).into(), packet.bytes));
        true
    }

    #[cold]
    fn lose_or_delay(&mut self, now: Time, departed: Time, packet: &Packet) -> Verdict {
        let Some(rare) = &mut self.rare else {
            return Verdict::Arrives { departed, due: departed + self.delay };
        };
        if rare.loss.takes(packet, now) {
            self.lost.count(packet.bytes.into());
            return Verdict::Lost { departed };
        }
        Verdict::Arrives { departed, due: rare.jitter.due(departed) }
    }

    /// Counters and queue at `now`. Packets count as delivered or lost once that is known: none is
    /// in flight, and `queued` is contained in the others.
    pub fn snapshot(&mut self, now: Time) -> Snapshot {
        self.start(now);
        let (offered, dropped, lost) = (self.offered, self.dropped, self.lost);
        Snapshot {
            offered: offered.packets,
            offered_bytes: offered.bytes,
            delivered: offered.packets - dropped.packets - lost.packets,
            delivered_bytes: offered.bytes - dropped.bytes - lost.bytes,
            dropped: dropped.packets,
            dropped_bytes: dropped.bytes,
            lost: lost.packets,
            lost_bytes: lost.bytes,
            queued: self.waiting.len() as u64,
            queued_bytes: self.room.bytes,
            ..Snapshot::default()
        }
    }

    /// Forgets those that have started to leave by `now`.
    fn start(&mut self, now: Time) {
        while let Some((_, segments, bytes)) = self.waiting.pop_front_if(|(at, ..)| *at <= now) {
            self.room.take(segments.into(), bytes.into());
        }
    }
}
