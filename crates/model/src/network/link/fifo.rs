//! The same link without events: behind a drop-tail queue a packet's departure is known on arrival.

use super::loss::LossState;
use super::propagation::Propagation;
use super::queue::{Room, segments};
use super::serialiser::ConstantRate;
use super::{Bound, Config, Delivered, Discipline, Loss, Packet, Serialiser, Snapshot};
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
    /// It arrives, at `due`.
    Arrives(Delivered),
}

/// A link with a drop-tail queue and a constant or infinite rate: the same drops, losses and times
/// as [`super::Link`] of the same [`Config`], in one call a packet. Amortised O(1); no allocation
/// once the queue has been full. With `reorder`, arrivals may come out of order: sort by `due`.
///
/// Rarely used parts are boxed, because many links are fast when a packet's data is close together.
#[derive(Debug, Clone)]
pub struct Fifo {
    /// When the last packet has left.
    busy: Time,
    rate: Option<ConstantRate>,
    framing: u32,
    bound: Bound,
    room: Room,
    /// Those that have not started to leave: when they will, segments and bytes.
    waiting: VecDeque<(Time, u32, u32)>,
    /// Without jitter what leaves in order arrives in order.
    delay: Span,
    jitter: Option<Box<Propagation>>,
    loss: Option<Box<LossState>>,
    /// Without what was delivered: the rest of what was offered.
    count: Snapshot,
}

impl Fifo {
    /// An empty link; `None` where [`super::Link`] is needed: another discipline, a trace, rate 0,
    /// a schedule.
    pub fn new(config: &Config, now: Time) -> Option<Self> {
        let Discipline::DropTail(bound) = config.discipline else { return None };
        let rate = match &config.serialiser {
            Serialiser::Infinite => None,
            Serialiser::Rate(rate) => Some(ConstantRate::new(*rate, now)?),
            Serialiser::Trace(_) => return None,
        };
        if !config.schedule.is_empty() {
            return None;
        }
        let (loss, jitter) = streams(config.seed);
        let propagation =
            || Propagation::new(config.delay, config.jitter, config.reorder, jitter, now);
        Some(Self {
            busy: now,
            rate,
            framing: config.framing,
            bound,
            room: Room::default(),
            waiting: VecDeque::new(),
            delay: config.delay,
            jitter: (config.jitter != Span::ZERO).then(|| Box::new(propagation())),
            loss: (config.loss != Loss::None)
                .then(|| Box::new(LossState::new(config.loss.clone(), loss))),
            count: Snapshot::default(),
        })
    }

    /// Offers a packet and returns its fate.
    #[inline]
    pub fn offer(&mut self, now: Time, packet: Packet) -> Verdict {
        let bytes = u64::from(packet.bytes);
        self.count.offered += 1;
        self.count.offered_bytes += bytes;
        let mut start = now;
        if self.busy > now {
            self.start(now);
            if !self.room.has(self.bound, segments(&packet), bytes) {
                self.count.dropped += 1;
                self.count.dropped_bytes += bytes;
                return Verdict::Dropped;
            }
            self.room.add(segments(&packet), bytes);
            self.waiting.push_back((self.busy, packet.segments.max(1).into(), packet.bytes));
            start = self.busy;
        }
        self.busy = match &mut self.rate {
            Some(rate) => rate.end(start, on_the_wire(&packet, self.framing)),
            None => start,
        };
        let departed = self.busy;
        if let Some(loss) = &mut self.loss
            && loss.takes(&packet, now)
        {
            self.count.lost += 1;
            self.count.lost_bytes += bytes;
            return Verdict::Lost { departed };
        }
        let due = match &mut self.jitter {
            Some(jitter) => jitter.due(departed),
            None => departed + self.delay,
        };
        Verdict::Arrives(Delivered { packet, offered: now, departed, due, marked: false })
    }

    /// Counters and queue at `now`. Packets count as delivered or lost once that is known: none is
    /// in flight, and `queued` is contained in the others.
    pub fn snapshot(&mut self, now: Time) -> Snapshot {
        self.start(now);
        let count = &self.count;
        Snapshot {
            delivered: count.offered - count.dropped - count.lost,
            delivered_bytes: count.offered_bytes - count.dropped_bytes - count.lost_bytes,
            queued: self.waiting.len() as u64,
            queued_bytes: self.room.bytes,
            ..*count
        }
    }

    /// Forgets those that have started to leave by `now`.
    fn start(&mut self, now: Time) {
        while let Some((_, segments, bytes)) = self.waiting.pop_front_if(|(at, ..)| *at <= now) {
            self.room.take(segments.into(), bytes.into());
        }
    }
}
