//! Holding an allotted rate across random losses, and giving way where the line is slower
//! (algorithms/satellite E.4).
//!
//! ```text
//! rate(), in_flight_cap()   the rate for the pacer; bytes that may be in flight
//! on_sent(now, bytes)       a packet left; keep the returned record for
//! on_acked(now, …) / on_lost(now, …)
//! deadline() / on_deadline(now)
//! set_connections(n)        connections inside that have data waiting; updated now and then
//! restraint()               what holds the rate below the allotment
//! set_allotted, set_mode    other terms; breaker() is handed to the next tunnel
//! ```
//! **Congestion or loss.** Congestion is a growing queue (round trips beyond the path's own by more
//! than the tolerance), or more losses than the path's own while less arrives than was sent. Then
//! the arrival rate *is* the line's rate, since its queue is never empty: it is held, and bytes in
//! flight are capped to the path and the tolerated queue, so that the excess drains. A reaction is
//! a test, too: losses that stay though less is sent were the path's own, and a round trip that
//! stays is a longer path. Both reactions are undone.
//!
//! **A longer path.** A queue makes round trips grow from packet to packet, by the excess of
//! sending over arrival; one that grows by more at once is a longer path. Half the rate is sent
//! until the queue of a line that stood still would have drained.
//!
//! **Finding more.** Below the allotment a short train at twice the rate is sent from time to time,
//! and as much less after it (`trains`). Its acknowledgements measure the line. While a queue
//! stands, arrivals measure a line that gets faster (`standing`).
//!
//! Everything is counted by *epochs*, spans of sending at one rate, whose packets' outcomes
//! evaluate that rate whenever they arrive. On paths that change at random every ten seconds (5 to
//! 40 Mbit/s, 100 to 700 ms, up to 5 % loss) it gets nine tenths and more of their capacity
//! (`rate_hold/tests`): a change is known a round trip later, and data sent meanwhile is queued.

mod arrival;
pub mod breaker;
mod config;
mod epoch;
mod idle;
mod judging;
mod reaction;
mod restraint;
mod rivals;
pub mod rounds;
mod standing;
#[cfg(test)]
mod tests;
mod trains;
mod unjudged;

pub use breaker::Breaker;
pub use config::{Config, Mode, SentBytes, Snapshot};
pub use restraint::{Restraint, RestraintWatch};

use crate::units::{Bytes, Rate, Span, Time};
use alloc::collections::VecDeque;
use arrival::{Climb, LateArrivals};
use epoch::{Epoch, EpochPurpose};
use idle::Idle;
use judging::RecentEpochs;
use reaction::Reaction;
use rivals::Rivals;
use standing::StandingQueue;
use trains::Trains;
use unjudged::Unjudged;

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
    losing: bool,
    /// Acknowledged bytes and when, over the last round trip.
    recent: VecDeque<(Time, u64)>,
    recent_bytes: u64,
    lately: RecentEpochs,
    reaction: Option<Reaction>,
    trains: Trains,
    /// The last packet that arrived: when it was sent, and its round trip.
    last: Option<(Time, Span)>,
    /// The size of the last sudden growth of the round trip.
    jumped: Span,
    climb: Climb,
    late: LateArrivals,
    standing: StandingQueue,
    /// Packets of earlier epochs left before the last reaction.
    reacted: u64,
    /// Since when packets have arrived that waited longer than is tolerated.
    waits: Option<Time>,
    idle: Idle,
    /// When the path last gave less than was sent: others may use it.
    reacted_at: Option<Time>,
    rivals: Rivals,
    unjudged: Unjudged,
    breaker: Breaker,
    /// The time of the last outcome, or when the first packet in flight left.
    heard: Time,
    silent: bool,
    count: [u64; 3],
}

/// Packets that say something about time …
const FEW: u64 = 10;
/// Epochs that wait for outcomes; the oldest is given up. Some 25 s of the shortest ones:
/// a peer that acknowledges nothing, and changes its limit all the time, must not pile them up.
const MOST_EPOCHS: usize = 512;
/// Losses for a judgement. So many bursts are more than chance: eight vary by a third, two by three
/// quarters, and a satellite's round trip has one or none.
const ENOUGH: u64 = 50;
const BURSTS: u64 = 8;
const PACKET: f64 = 1_500.0 * 8.0;
/// Share of the measured capacity that is used, so that its queue empties.
const KEPT: f64 = 0.98;
/// Silence for this long, or six round trips, is no feedback: four of QUIC's probe time-outs (E.4).
const SILENCE: Span = Span::from_secs(3);

impl RateHold {
    /// A path nothing is known of.
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
            losing: false,
            recent: VecDeque::new(),
            recent_bytes: 0,
            lately: RecentEpochs::default(),
            reaction: None,
            trains: Trains::default(),
            last: None,
            jumped: Span::ZERO,
            climb: Climb::default(),
            late: LateArrivals::default(),
            standing: StandingQueue::default(),
            reacted: 0,
            waits: None,
            idle: Idle::Busy(now),
            reacted_at: None,
            rivals: Rivals::new(),
            unjudged: Unjudged::new(now),
            breaker: Breaker::new(now),
            heard: now,
            silent: false,
            count: [0; 3],
        };
        hold.begin(now, EpochPurpose::Hold);
        hold
    }

    /// Takes a path's breaker along, from the tunnel before or for the next one.
    pub const fn breaker(&mut self) -> &mut Breaker {
        &mut self.breaker
    }

    /// Sets another allotment. The path's estimates stay.
    pub fn set_allotted(&mut self, now: Time, allotted: Rate) {
        self.config.allotted = allotted;
        let most = self.allotted();
        self.line = self.line.filter(|line| *line < most);
        self.begin(now, EpochPurpose::Hold);
    }

    /// Switches between a shared and a dedicated link.
    pub fn set_mode(&mut self, now: Time, mode: Mode) {
        self.config.mode = mode;
        self.rivals = Rivals::new();
        self.trains.calm(now, now);
        self.begin(now, EpochPurpose::Hold);
    }

    /// The rate for the pacer.
    pub fn rate(&self) -> Rate {
        self.rate_for(self.epochs.back().map_or(EpochPurpose::Hold, |epoch| epoch.purpose))
    }

    fn rate_for(&self, purpose: EpochPurpose) -> Rate {
        let allotted = self.allotted();
        let mut kept = match self.line {
            None if purpose == EpochPurpose::Doubt => allotted / 2.0,
            None => allotted,
            Some(line) => match purpose {
                EpochPurpose::Doubt => line / 2.0,
                EpochPurpose::Train => self.trains.rate(line).min(allotted),
                EpochPurpose::Rest => line * trains::REST,
                EpochPurpose::Hold => line * KEPT,
            },
        };
        if let Some((rate, _)) = self.beside() {
            kept = rate.min(allotted);
        }
        if self.rests() && purpose != EpochPurpose::Train {
            kept = kept.min(self.line.unwrap_or(allotted) / 2.0);
        }
        kept = kept.max(self.least());
        if self.silent || self.breaker.is_open() {
            kept = kept.min(allotted / breaker::CUT);
        }
        let floor = self.config.floor.as_bits_per_second() as f64;
        // an epoch whose acknowledgements came in one batch seems to have arrived at any rate
        Rate::from_bits_per_second(kept.min(allotted).max(floor) as u64)
    }

    /// Bytes that may be in flight: the path's capacity at that rate, and the tolerated queue.
    pub fn in_flight_cap(&self) -> Bytes {
        let Some(base) = self.base else { return self.config.memory };
        let span = base + self.tolerated();
        let rate = self.line.unwrap_or(f64::MAX).min(self.allotted());
        // lost packets count as in flight until detected, a round trip later; while a lower rate is
        // tested they are not compensated, or a queue of the tolerated size would stay unseen
        let lost = if self.reaction.is_some() { 0.0 } else { 2.0 * self.loss };
        let bytes = rate / 8.0 * seconds(span) * (1.0 + lost) + self.train_bytes();
        let bytes = match (self.beside(), &self.rivals.contention) {
            (Some((_, window)), _) => window,
            // others' queue is on the way, too
            (None, Some(_)) => {
                bytes * seconds(base + self.queue + self.tolerated()) / seconds(span)
            }
            (None, None) => bytes,
        };
        Bytes::new((bytes as u64).max(4 * 1_500)).min(self.config.memory)
    }

    /// A packet left; the number goes with it.
    pub fn on_sent(&mut self, now: Time, bytes: Bytes) -> u64 {
        self.on_deadline(now);
        self.unjudged.advance(now);
        if self.in_flight == 0 {
            self.heard = now;
        }
        self.in_flight += bytes.as_u64();
        if let Some(epoch) = self.epochs.back_mut() {
            epoch.on_sent(now, bytes);
        }
        self.sending()
    }

    /// A packet arrived, `rtt` after it left; `None` where that is not known.
    pub fn on_acked(&mut self, now: Time, told: SentBytes, rtt: Option<Span>) {
        let bytes = told.bytes.as_u64();
        self.hear(now, bytes);
        self.losing = false;
        self.recent.push_back((now, bytes));
        self.recent_bytes += bytes;
        let counts = self.counts(told.epoch);
        let mut holding = false;
        if let Some(epoch) = self.epoch(told.epoch) {
            epoch.on_acked(now, told.bytes, rtt);
            holding = epoch.purpose == EpochPurpose::Hold;
        }
        if let Some(rtt) = rtt {
            self.on_round_trip(now, rtt);
            self.on_arrived_beside(now, Some(rtt));
            let base = self.base.map_or(rtt, |base| base.min(rtt));
            self.base = Some(base);
            let queue = Span::from_nanos(rtt.as_nanos() - base.as_nanos());
            let waits = queue > self.tolerated();
            self.waits = self.waits.filter(|_| waits).or(waits.then_some(now));
            // what left before the queue was known of could not be spared
            let known = self.waits.is_none_or(|since| now.since(since) >= rtt);
            if counts {
                self.breaker.on_told(false, known.then_some(queue));
            }
            self.on_late(now, bytes, rtt, holding);
            self.on_standing(now, bytes, rtt);
            self.on_drained(now, told.epoch, rtt);
        } else {
            self.on_arrived_beside(now, None);
            if counts {
                self.breaker.on_told(false, None);
            }
        }
        self.judge(now);
    }

    /// A packet counts as lost.
    pub fn on_lost(&mut self, now: Time, told: SentBytes) {
        self.hear(now, told.bytes.as_u64());
        let counts = self.counts(told.epoch);
        let again = core::mem::replace(&mut self.losing, true);
        if let Some(epoch) = self.epoch(told.epoch) {
            epoch.on_lost(told.bytes, again);
        }
        self.on_lost_beside(now);
        if counts {
            self.breaker.on_told(true, None);
        }
        self.judge(now);
    }

    /// When [`RateHold::rate`] may have another answer though nothing happens.
    pub fn deadline(&self) -> Time {
        self.epochs.back().map_or(Time::NEVER, |epoch| epoch.ends)
    }

    /// At or after the deadline: packets belong to another epoch from now on.
    pub fn on_deadline(&mut self, now: Time) {
        let base = self.base.unwrap_or(Span::from_millis(100));
        self.breaker.on_deadline(now, base);
        if self.breaker.is_open() {
            // the path did not give what was sent
            self.reacted_at = Some(now);
        }
        let patience = base.saturating_mul(6).max(SILENCE);
        self.silent = self.in_flight > 0 && now.since(self.heard) > patience;
        let Some(current) = self.epochs.back().filter(|epoch| epoch.ends <= now) else { return };
        let full = self.was_pressed(current);
        self.idle.on_epoch(now, current, full, base);
        let purpose = match current.purpose {
            EpochPurpose::Train => EpochPurpose::Rest,
            _ if (full || self.trains.is_half())
                && self.may_try(now)
                && now >= self.trains.next =>
            {
                EpochPurpose::Train
            }
            _ => EpochPurpose::Hold,
        };
        self.begin(now, purpose);
    }

    /// A snapshot for the status.
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
            contended: self.rivals.contention.is_some(),
            resting: self.rests(),
            silent: self.silent,
            breaker: self.breaker.snapshot(),
        }
    }

    /// An outcome arrived.
    fn hear(&mut self, now: Time, bytes: u64) {
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.heard = now;
        self.silent = false;
        self.hasten(now);
    }

    /// After a pause, on a line that others were seen on.
    fn rests(&self) -> bool {
        let now = self.epochs.back().map_or(Time::ZERO, |epoch| epoch.begun);
        let others = self.reacted_at.is_some_and(|at| now.since(at) < idle::OTHERS);
        self.config.mode == Mode::Shared && self.idle.halves() && (others || self.is_contended())
    }

    /// With the compensation for losses.
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

    /// The number of the epoch that is being sent.
    fn sending(&self) -> u64 {
        self.first + self.epochs.len() as u64 - 1
    }

    /// Whether an outcome of an epoch counts for the breaker: packets that left before a reaction
    /// wait in the queue that it was for, and a sender that keeps to a tenth does what the breaker
    /// would ask of it.
    fn counts(&mut self, number: u64) -> bool {
        let cut = self.allotted() / breaker::CUT;
        number >= self.reacted
            && self.epoch(number).is_some_and(|epoch| {
                let sends = epoch.rate.min(epoch.sent_rate());
                epoch.purpose != EpochPurpose::Train && sends > cut
            })
    }

    fn epoch(&mut self, number: u64) -> Option<&mut Epoch> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.epochs.get_mut(at)
    }

    fn begin(&mut self, now: Time, purpose: EpochPurpose) {
        let base = seconds(self.base.unwrap_or(Span::from_millis(100)));
        let line = self.line.unwrap_or_else(|| self.allotted());
        let rate = self.rate_for(purpose).as_bits_per_second() as f64;
        let length = match purpose {
            EpochPurpose::Train => {
                self.count[2] += 1;
                self.begin_train(now, line, rate)
            }
            EpochPurpose::Rest => self.trains.rest(line, self.config.queue),
            // half the rate for twice as long drains the queue that the jump would have been
            EpochPurpose::Doubt => 2.0 * seconds(self.jumped.min(Span::from_millis(500))),
            EpochPurpose::Hold => {
                let packets = if self.rests() { 3 } else { FEW + 3 };
                (base / 4.0).clamp(0.05, 0.25).max(packets as f64 * PACKET / rate)
            }
        };
        let mut ends = now + Span::from_nanos((length * 1e9) as u64);
        if purpose == EpochPurpose::Hold && self.may_try(now) {
            // on a thin line an epoch is long
            ends = ends.min(self.trains.next.max(now + Span::from_millis(50)));
        }
        if let Some(last) = self.epochs.back_mut() {
            last.ends = last.ends.min(now);
        }
        if self.epochs.len() >= MOST_EPOCHS {
            self.epochs.pop_front();
            self.first += 1;
        }
        let mut epoch = Epoch::new(now, ends, purpose, rate);
        if purpose == EpochPurpose::Train {
            epoch.excess = (rate - line).max(0.0) * seconds(ends.since(now));
        }
        self.epochs.push_back(epoch);
    }
}

fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}
