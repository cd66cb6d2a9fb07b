//! One direction of a path: **queue → serialiser → loss → propagation**, four separate stages.
//!
//! ```text
//! offer(now, packet)   Queued, or Dropped by the full queue
//! poll(now)            the next packet that is due, with its theoretical arrival
//! next()               when to poll again; no on_deadline, because polls may bring several packets
//! set(now, change)     another rate, delay or loss from now on (or by `Config::schedule`)
//! snapshot()           counters, queue and packets in flight
//! ```
//! Departures and arrivals are computed from each other, not from the driver's calls: a sleeping
//! driver's error does not add up. `now` never decreases. A packet occupies the queue until it
//! *starts* to leave. Sizes are of IP packets; the serialiser adds `framing` bytes.
//!
//! Laws (`link/laws.rs`): a saturated link delivers its rate at every delay; an empty link delays
//! one packet by size/rate + propagation; packets in = delivered + dropped + lost + inside.

mod acknowledgement;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod draws;
mod fifo;
mod fq_codel;
#[cfg(test)]
mod laws;
mod loss;
mod propagation;
mod queue;
mod schedule;
mod serialiser;
mod text;

pub use acknowledgement::is_acknowledgement;
pub use fifo::{Fifo, Verdict};
pub use fq_codel::FqCodelConfig;
pub use loss::{GilbertElliott, Loss, LossUnit};
pub use queue::{Bound, Discipline};
pub use serialiser::{Serialiser, TRACE_OPPORTUNITY, Trace};
pub use text::{QueueKind, QueueLength, Scheduled, TextError};

use crate::rng::Rng;
use crate::units::{Bytes, Span, Time};
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use loss::LossState;
use propagation::Propagation;
use queue::Queue;
use schedule::Schedule;
use serialiser::SerialiserState;

/// The link's view of a packet. The driver keeps the bytes, by `id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// The driver's own number.
    pub id: u64,
    /// Length of the IP packet.
    pub bytes: u32,
    /// 0 goes first under strict priority.
    pub class: u8,
    /// Packets of one flow share a number, for fair queueing.
    pub flow: u64,
    /// Packets on the wire: more than 1 for a super-packet of segmentation offload.
    pub segments: u16,
    /// Whether the sender understands congestion marks (RFC 3168: ECT or CE).
    pub ecn_capable: bool,
}

impl Packet {
    /// A packet of flow 0 in the first class, whose sender knows no marks.
    pub const fn new(id: u64, bytes: u32) -> Self {
        Self { id, bytes, class: 0, flow: 0, segments: 1, ecn_capable: false }
    }
}

/// A link's parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The queue's discipline and length.
    pub discipline: Discipline,
    /// How fast packets leave.
    pub serialiser: Serialiser,
    /// Bytes of framing a packet (Ethernet: 14, with FCS 18, with preamble and gap 38).
    pub framing: u32,
    /// Loss after sending.
    pub loss: Loss,
    /// Propagation.
    pub delay: Span,
    /// Added to the delay of each packet: uniform in 0 … jitter.
    pub jitter: Span,
    /// Whether jitter may change the order of packets.
    pub reorder: bool,
    /// All randomness of this link follows from it.
    pub seed: u64,
    /// Changes, each at a time since the link began. A packet that leaves at a change's very time
    /// leaves by the old value.
    pub schedule: Vec<(Span, Change)>,
    /// The schedule's period; values that were not changed back stay.
    pub schedule_period: Option<Span>,
}

impl Default for Config {
    /// A link that does nothing: no limit, no loss, no delay.
    fn default() -> Self {
        Self {
            discipline: Discipline::DropTail(Bound::Unlimited),
            serialiser: Serialiser::Infinite,
            framing: 0,
            loss: Loss::None,
            delay: Span::ZERO,
            jitter: Span::ZERO,
            reorder: false,
            seed: 0,
            schedule: Vec::new(),
            schedule_period: None,
        }
    }
}

impl Config {
    /// Checks the schedule: a period of 0, or a change at or after the period's end, is an error.
    pub fn check(&self) -> Result<(), String> {
        let Some(period) = self.schedule_period else { return Ok(()) };
        if period == Span::ZERO {
            return Err("a schedule cannot repeat every 0 ns; write a period like `60 s`".into());
        }
        match self.schedule.iter().find(|(at, _)| *at >= period) {
            Some((at, _)) => Err(alloc::format!(
                "the change at {at} comes after the schedule begins again at {period}; \
                 make the period longer or the change earlier"
            )),
            None => Ok(()),
        }
    }
}

/// The fate of a packet that was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// It waits, or is being sent.
    Queued,
    /// The queue had no room for it.
    Dropped,
}

/// Why a packet will not come through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// A full queue or the queue's management dropped it.
    Dropped,
    /// It was lost after it was sent.
    Lost,
}

/// A packet that came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// The packet.
    pub packet: Packet,
    /// When it was offered.
    pub offered: Time,
    /// When its last bit left the serialiser.
    pub departed: Time,
    /// When it arrives: `departed` + delay + jitter.
    pub due: Time,
    /// Whether the queue marked it instead of dropping it (RFC 3168: set CE).
    pub marked: bool,
}

/// A change of a running link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Another serialiser; the rest of the packet on the wire continues at the new rate. Rate 0
    /// stops.
    Serialiser(Serialiser),
    /// Another propagation delay; packets in flight keep theirs, and order is kept.
    Delay(Span),
    /// Another loss process, begun afresh.
    Loss(Loss),
}

/// Counters and contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// Packets offered, and their bytes.
    pub offered: u64,
    /// Bytes offered.
    pub offered_bytes: u64,
    /// Packets delivered.
    pub delivered: u64,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// Packets that a full queue or the queue's management dropped.
    pub dropped: u64,
    /// Bytes of those.
    pub dropped_bytes: u64,
    /// Packets lost after they were sent.
    pub lost: u64,
    /// Bytes of those.
    pub lost_bytes: u64,
    /// Packets marked.
    pub marked: u64,
    /// Packets waiting now, without the one being sent.
    pub queued: u64,
    /// Bytes waiting now.
    pub queued_bytes: u64,
    /// Packets being sent or in flight now.
    pub in_flight: u64,
    /// Bytes of those.
    pub in_flight_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting {
    packet: Packet,
    offered: Time,
    marked: bool,
}

/// One direction of a path.
#[derive(Debug, Clone)]
pub struct Link {
    queue: Queue,
    serialiser: SerialiserState,
    framing: u32,
    sending: Option<(Waiting, Time)>,
    loss: LossState,
    propagation: Propagation,
    schedule: Schedule,
    flight: VecDeque<Delivered>,
    /// All of a snapshot but what waits.
    count: Snapshot,
    /// Packets that will not arrive and that the driver has not collected yet.
    gone: Vec<(u64, LossCause)>,
}

impl Link {
    /// An empty link.
    pub fn new(config: &Config, now: Time) -> Self {
        let (loss, jitter) = streams(config.seed);
        let (delay, reorder) = (config.delay, config.reorder);
        Self {
            queue: Queue::new(&config.discipline),
            serialiser: SerialiserState::new(config.serialiser.clone(), now),
            framing: config.framing,
            sending: None,
            loss: LossState::new(config.loss.clone(), loss),
            propagation: Propagation::new(delay, config.jitter, reorder, jitter, now),
            schedule: Schedule::new(&config.schedule, config.schedule_period, now),
            flight: VecDeque::new(),
            count: Snapshot::default(),
            gone: Vec::new(),
        }
    }

    /// Offers a packet.
    pub fn offer(&mut self, now: Time, packet: Packet) -> Offered {
        self.advance(now);
        let bytes = u64::from(packet.bytes);
        self.count.offered += 1;
        self.count.offered_bytes += bytes;
        let waiting = Waiting { packet, offered: now, marked: false };
        if self.sending.is_none() && self.queue.is_empty() {
            self.begin(waiting, now);
            return Offered::Queued;
        }
        let mut refused = false;
        let (count, gone) = (&mut self.count, &mut self.gone);
        self.queue.push(now, waiting, &mut |victim: &Waiting| {
            count.dropped += 1;
            count.dropped_bytes += u64::from(victim.packet.bytes);
            gone.push((victim.packet.id, LossCause::Dropped));
            refused |= victim.packet.id == packet.id;
        });
        if refused { Offered::Dropped } else { Offered::Queued }
    }

    /// The next packet that has arrived by `now`, in order of arrival.
    pub fn poll(&mut self, now: Time) -> Option<Delivered> {
        self.advance(now);
        if self.flight.front()?.due > now {
            return None;
        }
        let delivered = self.flight.pop_front()?;
        let bytes = u64::from(delivered.packet.bytes);
        self.count.delivered += 1;
        self.count.delivered_bytes += bytes;
        self.count.in_flight -= 1;
        self.count.in_flight_bytes -= bytes;
        Some(delivered)
    }

    /// Passes the id of each packet dropped or lost since the last call, so that the driver frees
    /// its bytes; uncollected ones take 16 bytes each.
    pub fn gone(&mut self, mut tell: impl FnMut(u64, LossCause)) {
        self.gone.drain(..).for_each(|(id, fate)| tell(id, fate));
    }

    /// When something happens next; [`Time::NEVER`] when the link is empty, or stopped for good.
    pub fn next(&self) -> Time {
        // a change matters to the packet on the wire only; the rest can wait for the next call
        let sent = self.sending.map_or(Time::NEVER, |(_, end)| end.min(self.schedule.next()));
        self.flight.front().map_or(sent, |first| first.due.min(sent))
    }

    /// Changes the link from now on.
    pub fn set(&mut self, now: Time, change: Change) {
        self.advance(now);
        self.apply(now, change);
    }

    /// Counters and contents, as of the last call.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { queued: self.queue.packets(), queued_bytes: self.queue.bytes(), ..self.count }
    }

    fn apply(&mut self, now: Time, change: Change) {
        match change {
            Change::Serialiser(serialiser) => {
                let end = self.serialiser.change(serialiser, now, self.sending.is_some());
                if let (Some((_, sending)), Some(end)) = (&mut self.sending, end) {
                    *sending = end;
                }
            }
            Change::Delay(delay) => self.propagation.delay = delay,
            Change::Loss(loss) => self.loss.change(loss),
        }
    }

    fn begin(&mut self, waiting: Waiting, start: Time) {
        self.count.in_flight += 1;
        self.count.in_flight_bytes += u64::from(waiting.packet.bytes);
        let end = self.serialiser.end(start, on_the_wire(&waiting.packet, self.framing));
        self.sending = Some((waiting, end));
    }

    /// Lets everything happen that should have happened by `now`, at the time it should have.
    fn advance(&mut self, now: Time) {
        loop {
            let change = self.schedule.next();
            let done = self
                .sending
                .take_if(|(_, end)| *end <= now && *end <= change && *end != Time::NEVER);
            if let Some((waiting, end)) = done {
                self.finish(waiting, end);
                self.start_next(end);
            } else if change <= now && change != Time::NEVER {
                if self.sending.is_none() {
                    self.schedule.skip_idle(now);
                }
                let at = self.schedule.next();
                if let Some(change) = self.schedule.pop() {
                    self.apply(at, change);
                }
            } else {
                return;
            }
        }
    }

    fn start_next(&mut self, now: Time) {
        let (count, gone) = (&mut self.count, &mut self.gone);
        let next = self.queue.pop(now, &mut |victim: &Waiting| {
            count.dropped += 1;
            count.dropped_bytes += u64::from(victim.packet.bytes);
            gone.push((victim.packet.id, LossCause::Dropped));
        });
        if let Some(next) = next {
            self.count.marked += u64::from(next.marked);
            self.begin(next, now);
        }
    }

    /// A packet has left: it is lost, or it arrives later.
    fn finish(&mut self, waiting: Waiting, departed: Time) {
        let Waiting { packet, offered, marked } = waiting;
        if self.loss.takes(&packet, offered) {
            let bytes = u64::from(packet.bytes);
            self.count.lost += 1;
            self.count.lost_bytes += bytes;
            self.count.in_flight -= 1;
            self.count.in_flight_bytes -= bytes;
            self.gone.push((packet.id, LossCause::Lost));
            return;
        }
        let due = self.propagation.due(departed);
        let delivered = Delivered { packet, offered, departed, due, marked };
        // nearly always at the end
        let at = self.flight.iter().rposition(|before| before.due <= due).map_or(0, |at| at + 1);
        self.flight.insert(at, delivered);
    }
}

/// A stream of random numbers for each purpose, so that one does not shift another: loss, jitter.
fn streams(seed: u64) -> (Rng, Rng) {
    let mut seeds = Rng::new(seed);
    (Rng::new(seeds.next_u64()), Rng::new(seeds.next_u64()))
}

/// What a packet takes of the serialiser: each packet on the wire has its own framing.
fn on_the_wire(packet: &Packet, framing: u32) -> Bytes {
    Bytes::new(u64::from(packet.bytes) + u64::from(framing) * u64::from(packet.segments.max(1)))
}
