//! Holding an allotted rate across losses that are no congestion, and giving way where the line turns out
//! to be slower (ALGORITHMS E.4).
//!
//! ```text
//! rate()                    what the pacer is to keep
//! in_flight_cap()           bytes that may be under way
//! on_sent(now, bytes)       a packet left; keep the epoch it answers, and tell it again with
//! on_acked(now, …) / on_lost(now, …)
//! deadline() / on_deadline(now)
//! ```
//! **What is told apart.** A loss by itself means nothing. Congestion is a queue that grows (round trips
//! longer than the path's own by more than is tolerated), or more losses than the path has by itself
//! while less arrives than was sent. Then what arrives *is* the line's rate, since its queue is never
//! empty: from there on that is kept, and what is under way is capped to what the path holds and the
//! tolerated queue, so that the excess drains at the line's full rate. A reaction is a test, too: where the
//! share of losses stays what it was though less is sent, the losses were the path's own, and where the
//! round trip stays, the path has become longer; both are undone.
//!
//! **A longer path.** A queue makes round trips grow from packet to packet, by what is sent beyond what
//! arrives. One that grows by more at once is a longer path, and taken for one. Half the rate is sent until
//! what it would be otherwise, the queue of a line that stood still, has drained.
//!
//! **Finding more.** While the line is believed to be slower than the allotment, a short train at twice
//! the rate is sent from time to time, and as much less after it: it fills the queue by its own length at
//! most, and the pace at which its acknowledgements come says how fast the line is, up to twice.
//!
//! Everything is counted by *epochs*, spans of sending at one rate: what became of the packets of an epoch
//! says what that rate did, whenever the acknowledgements come.
//!
//! What it does where it is seen best, over the model's own link, is in `rate_hold/tests.rs`: 20 Mbit/s,
//! 600 ms, a queue as long as the path, and an allotment that is right or five times too high. On paths that
//! change every ten seconds by chance (5 to 40 Mbit/s, 100 to 700 ms, up to 5 % loss), unknown to it, it has
//! nine tenths and more of what they give. A change of capacity is known a round trip later, and what was sent
//! meanwhile waits: a sender that is told of each change at the earliest possible moment stands beside it.

mod arrival;
mod epoch;
mod reaction;
#[cfg(test)]
mod tests;

use crate::units::{Bytes, Rate, Share, Span, Time};
use alloc::collections::VecDeque;
use arrival::Late;
use epoch::{Epoch, Purpose};
use reaction::Reaction;

/// Whose line it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Mode {
    /// Others are on it: never above the allotment.
    Shared,
    /// The operator's own, and faster than the allotment: what the path loses may be sent in addition, up
    /// to a quarter more and to the line's rate (E.4's compensation; Hysteria's «Brutal»).
    Dedicated {
        /// The line's rate.
        line: Rate,
    },
}

/// What is agreed. Rates count bytes of IP packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// R*.
    pub allotted: Rate,
    /// No less is sent, whatever happens. 64 kbit/s by default, five packets a second: E.4's tenth of R* goes
    /// on overdriving a line that gives less than that.
    pub floor: Rate,
    /// Whose line it is.
    pub mode: Mode,
    /// Q_max: how long packets may wait in the line's queue before that is congestion.
    pub queue: Span,
    /// ℓ_nominal: losses that the path is expected to have by itself; 2 % by default.
    pub nominal_loss: Share,
    /// Bytes that may be under way, whatever the path.
    pub memory: Bytes,
}

impl Config {
    /// An allotment on a shared line; the rest by default. Q_max is 50 ms: E.4 allows up to a quarter of
    /// the round trip, which on a satellite is 150 ms, as long as a keystroke should wait in all.
    #[must_use]
    pub const fn new(allotted: Rate) -> Self {
        Self {
            allotted,
            floor: Rate::from_bits_per_second(64_000),
            mode: Mode::Shared,
            queue: Span::from_millis(50),
            nominal_loss: match Share::from_percent(2) {
                Some(share) => share,
                None => Share::NONE,
            },
            memory: Bytes::mib(64),
        }
    }
}

/// What there is to see.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// Bits a second that the pacer is to keep.
    pub rate: u64,
    /// What the line is believed to give, bits a second; `None` while it gives what is asked.
    pub line: Option<u64>,
    /// The path's own round trip.
    pub base: Span,
    /// The last epoch's shortest, beyond it.
    pub queue: Span,
    /// Losses held to be the path's own, 0 … 1.
    pub loss: f64,
    /// Bytes under way.
    pub in_flight: u64,
    /// Reactions to congestion, those undone, and trains sent.
    pub reactions: u64,
    /// See there.
    pub undone: u64,
    /// See there.
    pub trains: u64,
}

/// Acknowledged or given up for lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    /// What [`RateHold::on_sent`] answered.
    pub epoch: u64,
    /// As told there.
    pub bytes: Bytes,
}

/// Epochs that are judged together.
#[derive(Debug, Clone, Copy, Default)]
struct Lately {
    span: Span,
    packets: u64,
    lost: u64,
}

/// The controller of one direction of one tunnel.
#[derive(Debug, Clone)]
pub struct RateHold {
    config: Config,
    /// Not yet judged, in order; the last is being sent.
    epochs: VecDeque<Epoch>,
    /// The number of the first of them.
    first: u64,
    /// Bits a second; `None`: the allotment.
    line: Option<f64>,
    base: Option<Span>,
    queue: Span,
    loss: f64,
    in_flight: u64,
    /// Acknowledged bytes and when, over the last round trip.
    recent: VecDeque<(Time, u64)>,
    recent_bytes: u64,
    lately: Lately,
    reaction: Option<Reaction>,
    next_train: Time,
    /// The last packet that arrived: when it was sent, and its round trip.
    last: Option<(Time, Span)>,
    /// By how much that grew at once, when it last did.
    jumped: Span,
    /// Packets in a row that waited for longer than is tolerated.
    late: Late,
    /// Seen lately by trains: the next one comes at once.
    eager: bool,
    count: [u64; 3],
}

/// Packets that say something about time …
const FEW: u64 = 10;
/// … and about losses.
const ENOUGH: u64 = 50;
/// How much of a round trip before a train is repeated that found nothing.
const REST: u64 = 3;
/// A train's rate over the line's.
const TRAIN: f64 = 2.0;
/// What is kept of what the line gives, so that its queue empties.
const KEPT: f64 = 0.98;

impl RateHold {
    /// A path nothing is known of.
    #[must_use]
    pub fn new(config: Config, now: Time) -> Self {
        let mut hold = Self {
            config,
            epochs: VecDeque::new(),
            first: 0,
            line: None,
            base: None,
            queue: Span::ZERO,
            loss: 0.0,
            in_flight: 0,
            recent: VecDeque::new(),
            recent_bytes: 0,
            lately: Lately::default(),
            reaction: None,
            next_train: Time::NEVER,
            last: None,
            jumped: Span::ZERO,
            late: Late::default(),
            eager: false,
            count: [0; 3],
        };
        hold.begin(now, Purpose::Hold);
        hold
    }

    /// What the pacer is to keep.
    #[must_use]
    pub fn rate(&self) -> Rate {
        let purpose = self.epochs.back().map_or(Purpose::Hold, |epoch| epoch.purpose);
        let kept = match self.line {
            None if purpose == Purpose::Doubt => self.allotted() / 2.0,
            None => self.allotted(),
            Some(line) => match purpose {
                Purpose::Doubt => line / 2.0,
                Purpose::Train => (line * TRAIN).min(self.allotted()),
                Purpose::Rest => line * (2.0 - TRAIN).max(0.5),
                Purpose::Hold => line * KEPT,
            },
        };
        let floor = self.config.floor.as_bits_per_second() as f64;
        Rate::from_bits_per_second(kept.max(floor) as u64)
    }

    /// Bytes that may be under way: what the path holds at that rate, and the tolerated queue.
    #[must_use]
    pub fn in_flight_cap(&self) -> Bytes {
        let Some(base) = self.base else { return self.config.memory };
        let span = base + self.config.queue;
        let rate = self.line.unwrap_or_else(|| self.allotted());
        // what is lost is under way until that is known, a round trip and more later
        let bytes = rate / 8.0 * seconds(span) * (1.0 + 2.0 * self.loss);
        Bytes::new((bytes as u64).max(4 * 1_500)).min(self.config.memory)
    }

    /// A packet left; the number goes with it.
    pub fn on_sent(&mut self, now: Time, bytes: Bytes) -> u64 {
        self.on_deadline(now);
        self.in_flight += bytes.as_u64();
        if let Some(epoch) = self.epochs.back_mut() {
            epoch.on_sent(now, bytes);
        }
        self.first + self.epochs.len() as u64 - 1
    }

    /// A packet arrived, `rtt` after it left; `None` where that is not known.
    pub fn on_acked(&mut self, now: Time, told: Told, rtt: Option<Span>) {
        let bytes = told.bytes.as_u64();
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.recent.push_back((now, bytes));
        self.recent_bytes += bytes;
        let mut holding = false;
        if let Some(epoch) = self.epoch(told.epoch) {
            epoch.on_acked(now, told.bytes, rtt);
            holding = epoch.purpose == Purpose::Hold;
        }
        if let Some(rtt) = rtt {
            self.on_round_trip(now, rtt);
            self.base = Some(self.base.map_or(rtt, |base| base.min(rtt)));
            self.on_late(now, bytes, rtt, holding);
        }
        self.judge(now);
    }

    /// A packet is taken for lost.
    pub fn on_lost(&mut self, now: Time, told: Told) {
        self.in_flight = self.in_flight.saturating_sub(told.bytes.as_u64());
        if let Some(epoch) = self.epoch(told.epoch) {
            epoch.on_lost(told.bytes);
        }
        self.judge(now);
    }

    /// When [`RateHold::rate`] may have another answer though nothing happens.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.epochs.back().map_or(Time::NEVER, |epoch| epoch.ends)
    }

    /// The time has come, or more: what is being sent is another epoch from now on.
    pub fn on_deadline(&mut self, now: Time) {
        let Some(current) = self.epochs.back().filter(|epoch| epoch.ends <= now) else { return };
        let purpose = match current.purpose {
            Purpose::Train => Purpose::Rest,
            _ if self.line.is_some() && now >= self.next_train && self.reaction.is_none() => {
                Purpose::Train
            }
            _ => Purpose::Hold,
        };
        self.begin(now, purpose);
    }

    /// What there is to see.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            rate: self.rate().as_bits_per_second(),
            line: self.line.map(|line| line as u64),
            base: self.base.unwrap_or_default(),
            queue: self.queue,
            loss: self.loss,
            in_flight: self.in_flight,
            reactions: self.count[0],
            undone: self.count[1],
            trains: self.count[2],
        }
    }

    /// With what may be sent in addition.
    fn allotted(&self) -> f64 {
        let allotted = self.config.allotted.as_bits_per_second() as f64;
        match self.config.mode {
            Mode::Shared => allotted,
            Mode::Dedicated { line } => {
                let compensated = allotted / (1.0 - self.loss).max(0.8);
                compensated.min(line.as_bits_per_second() as f64).max(allotted)
            }
        }
    }

    fn epoch(&mut self, number: u64) -> Option<&mut Epoch> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.epochs.get_mut(at)
    }

    fn begin(&mut self, now: Time, purpose: Purpose) {
        let packet = 1_500.0 * 8.0;
        let base = seconds(self.base.unwrap_or(Span::from_millis(100)));
        let line = self.line.unwrap_or_else(|| self.allotted());
        let length = match purpose {
            // as long as the tolerated queue, were the line no faster
            Purpose::Train => {
                self.count[2] += 1;
                let length = seconds(self.config.queue) * 0.6 / (TRAIN - 1.0);
                length.max((FEW + 3) as f64 * packet / (line * TRAIN))
            }
            Purpose::Rest => 2.0 * seconds(self.config.queue) * 0.6,
            // half the rate for twice as long drains what the jump would have been of queue
            Purpose::Doubt => 2.0 * seconds(self.jumped.min(Span::from_millis(500))),
            Purpose::Hold => (base / 4.0).clamp(0.05, 0.25).max((FEW + 3) as f64 * packet / line),
        };
        let rate = self.rate().as_bits_per_second() as f64;
        let length = Span::from_nanos((length * 1e9) as u64);
        let ends = now + length;
        self.epochs.push_back(Epoch::new(now, ends, purpose, rate));
    }

    /// Judges every epoch of whose packets it is known what became of them.
    fn judge(&mut self, now: Time) {
        while self.epochs.len() > 1 && self.epochs.front().is_some_and(Epoch::is_known) {
            let Some(epoch) = self.epochs.pop_front() else { return };
            self.first += 1;
            if epoch.packets() >= FEW {
                self.on_known(now, &epoch);
            }
        }
        let span = self.base.unwrap_or(Span::from_millis(100)).max(Span::from_millis(100));
        while let Some((_, bytes)) = self.recent.pop_front_if(|(at, _)| now.since(*at) > span) {
            self.recent_bytes -= bytes;
        }
    }

    fn on_known(&mut self, now: Time, epoch: &Epoch) {
        let (Some(base), Some(shortest)) = (self.base, epoch.shortest()) else { return };
        self.queue = Span::from_nanos(shortest.as_nanos().saturating_sub(base.as_nanos()));
        let loss = epoch.loss();
        if epoch.purpose == Purpose::Train {
            self.on_train(now, epoch);
            return;
        }
        let waits = self.queue > self.config.queue;
        let drops = self.drops(epoch, base);
        if let Some(reaction) = self.reaction {
            if epoch.begun >= reaction.shows {
                self.on_shown(now, epoch, reaction, base, shortest);
            }
        } else if waits || drops.is_some() {
            let span = seconds(base.max(Span::from_millis(100)));
            let arrives = self.recent_bytes as f64 * 8.0 / span;
            self.react(now, base, arrives, drops.unwrap_or(loss));
        }
    }

    /// The share of packets that is lost, if that is more than the path's own. A round trip's epochs are
    /// judged together: a single one has few packets.
    fn drops(&mut self, epoch: &Epoch, base: Span) -> Option<f64> {
        let lately = &mut self.lately;
        if !epoch.is_full() || self.reaction.is_some() {
            *lately = Lately::default();
            return None;
        }
        lately.span = lately.span + epoch.ends.since(epoch.begun);
        lately.packets += epoch.packets();
        lately.lost += epoch.lost();
        if lately.span < base.max(Span::from_millis(100)) || lately.packets < ENOUGH {
            return None;
        }
        let loss = lately.lost as f64 / lately.packets as f64;
        *lately = Lately::default();
        let own = self.loss.max(self.config.nominal_loss.as_parts_per_billion() as f64 / 1e9);
        if loss > own + 0.05 && 1.0 - loss < 0.9 * (1.0 - own) {
            return Some(loss);
        }
        self.loss += (loss - self.loss) / 4.0;
        None
    }

    /// How fast a train came through says how fast the line is.
    fn on_train(&mut self, now: Time, epoch: &Epoch) {
        let Some(line) = self.line else { return };
        let base = self.base.unwrap_or(Span::from_millis(100)).max(Span::from_millis(200));
        let arrives = epoch.arrival_rate() / (1.0 - self.loss);
        if arrives > 1.05 * line {
            let found = arrives.min(line * TRAIN);
            self.line = (found < self.allotted()).then_some(found);
            self.eager = arrives > 1.5 * line;
        } else {
            self.eager = false;
        }
        let rest = if self.eager { Span::ZERO } else { base.saturating_mul(REST) };
        self.next_train = now + rest;
    }
}

fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}
