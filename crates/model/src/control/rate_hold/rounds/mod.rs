//! Holding a rate round by round, in integers: what a program inside the kernel's TCP can do
//! (algorithms/satellite E.4).
//!
//! The kernel's TCP gives a congestion control sums at each ACK and takes a pace and a window,
//! without floating point. So this is E.4 as written: once a round trip it judges whether the sent
//! data arrived, and how late. It differs for [`RateHold`](super::RateHold)'s reasons (decision 8):
//!
//! - *arrivals are compared with the current sending rate*, not with the allotment;
//! - *losses count beyond chance only*, and *a reaction is a test*: where half as many and more are
//!   lost though less is sent, they are the path's own;
//! - *the arrival rate over a standing queue is the line's*: 0.98 of it is kept, 0.9 while the
//!   queue drains, and data in flight is capped to it and the tolerated queue. Six rounds later more is
//!   tried, by a 64th, then by up to a quarter a round while arrivals reach a new maximum;
//! - *a dedicated line's floor* is 64 kbit/s, not a tenth.
//!
//! `crates/linux/bpf/hold.h` is this in C, line by line; `linux/tests/programs.rs` compares both on
//! random rounds. Units: bytes of IP packets, bytes a second, microseconds, parts per million.

const MILLION: u64 = 1_000_000;
const PACKET: u64 = 1_500;
/// E.4: once a round trip, and at least this.
const ROUND_LEAST: u64 = 100_000;
/// E.4: rounds without growth after a reaction to losses.
const HOLD_ROUNDS: u64 = 10;
/// The same after a queue, and between two attempts to find the line faster: it says within two whether it drains.
const CALM_ROUNDS: u64 = 6;
/// Rounds of sending less than the line takes, where what waited was more than is tolerated.
const DRAIN_ROUNDS: u64 = 2;
/// What was sent before a reaction has been answered for by then.
const TEST_ROUNDS: u64 = 4;
/// E.4: losses beyond the path's own that are congestion, where less arrives than was sent.
const LOSS_MARGIN: u64 = 50_000;
/// A share counts beyond six deviations (√n) of n lost packets: three where losses come in fours.
const CHANCE: u64 = 36;
/// Beyond it losses are never taken for the path's own: the circuit breaker's share (E.4).
const NOMINAL_MOST: u64 = 200_000;
/// The path's own losses where nothing is said (E.4).
const NOMINAL: u32 = 20_000;
/// 64 kbit/s (decision 8).
const LEAST_RATE: u64 = 8_000;
/// Packets under way at least (E.4).
const WINDOW_LEAST: u64 = 4;
/// Packets that say something of losses (E.4: n_min).
const ENOUGH: u64 = 50;
/// E.4: five slots of a second.
const SLOT: u64 = 1_000_000;
const SLOTS: u64 = 5;
/// Losses that are put up with in what the line takes, beyond those when it was calm; thousandths of a thousandth.
const CALM_MARGIN: u64 = 10_000;
/// Less than this share of what was sent arrives: the line is no faster.
const ARRIVES: u64 = 97;
/// Growth of a round at first, a 64th, doubles every second round this often: to a quarter.
const STEPS: u32 = 8;
/// Beyond all lines: 8.8 Tbit/s; products stay below 2^64.
const RATE_MOST: u64 = 1 << 40;
/// Beyond all round trips.
const SPAN_MOST: u64 = 8 * MILLION;

/// What was agreed to for a group of connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Bytes a second of IP packets; 0: none.
    pub rate: u64,
    /// The line's own rate, up to which losses are made up for; up to `rate`: they are not.
    pub line: u64,
    /// Tolerated delay in the queue, µs; 0: a quarter of the least round trip, 50 to 250 ms.
    pub queue: u32,
    /// Window over rate × round trip, in hundredths; 0: 200, or 125 on a dedicated line.
    pub gain: u32,
    /// The path's own losses, parts of a million; 0: 2 %.
    pub nominal: u32,
    /// Whether the line is the operator's own.
    pub dedicated: bool,
}

/// What became of what was sent, over one round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Round {
    /// When it ended, µs.
    pub now: u64,
    /// How long it was, µs.
    pub span: u64,
    /// Bytes that arrived.
    pub delivered: u64,
    /// Bytes taken for lost.
    pub lost: u64,
    /// Of `delivered`, those that waited longer than is tolerated.
    pub late: u64,
    /// Of `delivered`, those of connections all of whose packets waited longer than a quarter of that lately.
    pub stood: u64,
    /// Of `delivered`, those of connections that had more to send.
    pub pressed: u64,
    /// The longest smoothed round trip among the connections, µs.
    pub rtt: u64,
}

/// What is kept between rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rounds {
    /// The rate that `current` was derived from.
    pub agreed: u64,
    /// What all connections together may send.
    pub current: u64,
    /// What that was before the last reaction.
    pub before: u64,
    /// No growth and no other reaction before then.
    pub until: u64,
    /// When the last reaction to losses is judged; 0: none is to be.
    pub test: u64,
    /// Bytes that arrived in the last seconds.
    pub acked: u64,
    /// Bytes lost meanwhile.
    pub lost: u64,
    /// Until when those were forgotten.
    pub slot: u64,
    /// What the line takes, as seen by what arrived; 0: nothing says that it takes less than was agreed.
    pub line: u64,
    /// What all together could send in the round before.
    pub last: u64,
    /// Until when a queue is let drain.
    pub drained: u64,
    /// The path's own losses as far as known.
    pub nominal: u32,
    /// The share of losses that was last reacted to.
    pub losses: u32,
    /// How often less was sent.
    pub reactions: u32,
    /// How often that was taken back.
    pub undone: u32,
    /// The share of losses when what was sent was less than the line takes.
    pub calm: u32,
    /// Rounds of growth so far.
    pub step: u32,
}

impl Agreement {
    /// What may wait in the queue, µs, given the least round trip (E.4: Q_max).
    pub fn queue(&self, base: u64) -> u64 {
        match self.queue {
            0 => (base / 4).clamp(50_000, 250_000),
            queue => u64::from(queue).min(SPAN_MOST),
        }
    }

    fn floor(&self) -> u64 {
        let least = if self.dedicated { LEAST_RATE } else { self.rate / 10 };
        least.max(LEAST_RATE.min(self.rate))
    }
}

impl Rounds {
    /// Another agreement begins at its own rate; what is known of the path's losses stays.
    pub fn agree(&mut self, agreement: &Agreement) {
        let rate = agreement.rate.min(RATE_MOST);
        let nominal = if agreement.nominal == 0 { NOMINAL } else { agreement.nominal };
        self.nominal = self.nominal.max(nominal);
        if self.agreed != rate {
            (self.agreed, self.current, self.until, self.test) = (rate, rate, 0, 0);
            (self.line, self.last, self.drained, self.step) = (0, 0, 0, 0);
        }
    }

    /// A round has ended.
    pub fn judge(&mut self, agreement: &Agreement, round: &Round) {
        self.agree(agreement);
        self.count(round);
        let (delivered, lost) = (round.delivered.min(RATE_MOST), round.lost.min(RATE_MOST));
        let (sent, rtt) = (delivered + lost, round.rtt.clamp(ROUND_LEAST, SPAN_MOST));
        let (span, floor) = (round.span.max(1), agreement.floor().min(self.agreed));
        let arrived = delivered * MILLION / span;
        // what arrives now was sent a round trip ago
        let paced = self.last;
        self.last = self.current;
        // a burst is no share: losses are judged over seconds, and of enough packets
        let counted = self.acked + self.lost;
        let share = (self.lost * MILLION).checked_div(counted).unwrap_or(0);
        let enough = counted >= ENOUGH * PACKET;
        if sent < 10 * PACKET {
            // nobody sends, or the rate is too low for a round to say anything
            if paced < 20 * PACKET * MILLION / rtt && round.now >= self.until {
                self.line = self.line.max(self.current * u64::from(self.line != 0));
                self.grow();
            }
            return;
        }
        if self.test != 0 && round.now >= self.test && enough {
            self.test = 0;
            if share * 2 >= u64::from(self.losses) {
                let own = share.min(NOMINAL_MOST) as u32;
                self.nominal = self.nominal.max(own);
                self.current = self.current.max(self.before);
                self.line = if self.before < self.agreed { self.line.max(self.before) } else { 0 };
                self.until = 0;
                self.undone += 1;
            }
            self.calm = share.min(NOMINAL_MOST) as u32;
        }
        // what the line took: with what the path loses behind it
        let own = delivered / 1_000 * (u64::from(self.calm) + CALM_MARGIN) / 1_000;
        let taken = ((delivered + lost.min(own)) * MILLION / span).min(self.agreed);
        let busy = round.pressed * 4 > delivered;
        let late = round.late * 2 > delivered && busy;
        let stood = round.stood * 2 > delivered && busy && self.line != 0;
        if round.now < self.until {
            let slower = late && self.line != 0 && taken < self.line / 4 * 3;
            if !slower {
                return self.keep(round.now, taken, floor);
            }
        }
        let lossy = self.beyond(u64::from(self.nominal) + LOSS_MARGIN)
            && round.pressed * 2 > delivered
            && arrived < self.expected();
        if !late && !stood && !lossy {
            return self.seek(round, rtt, taken, paced);
        }
        self.before = self.current;
        self.losses = share as u32;
        self.reactions += 1;
        self.step = 0;
        if late || stood {
            // a queue that stands though what is sent arrives is an old one, or others', or a longer path
            if self.line == 0 || taken < paced / 100 * 99 {
                self.line = taken.max(floor);
            }
            let rounds = if late { DRAIN_ROUNDS } else { 1 };
            self.drained = round.now + rounds * rtt;
            self.until = round.now + CALM_ROUNDS * rtt;
            self.test = 0;
            self.keep(round.now, 0, floor);
        } else {
            self.line = (arrived / 100 * 85).max(floor);
            self.current = self.line.min(self.current);
            self.until = round.now + HOLD_ROUNDS * rtt;
            self.test = round.now + TEST_ROUNDS * rtt;
            // it is less than the line takes, if that is full at all
            self.step = STEPS - 2;
        }
        // what was sent before says nothing of what is sent from now on
        (self.acked, self.lost, self.slot) = (0, 0, round.now + rtt * 3 / 2);
    }

    /// A little less than the line takes, and less than that while a queue is to drain. A test goes on as it began.
    fn keep(&mut self, now: u64, taken: u64, floor: u64) {
        if self.test != 0 || self.line == 0 {
            return;
        }
        self.line = self.line.max(taken);
        let kept = self.line / 100 * if now < self.drained { 90 } else { 98 };
        self.current = kept.max(floor).min(self.agreed);
    }

    /// No queue, no losses to speak of: is the line faster?
    fn seek(&mut self, round: &Round, rtt: u64, taken: u64, paced: u64) {
        if self.line == 0 {
            return;
        }
        let counted = self.acked + self.lost;
        if self.step == 0 {
            let share = (self.lost * MILLION).checked_div(counted).unwrap_or(0);
            self.calm = share.min(NOMINAL_MOST) as u32;
        }
        // our own window may keep back what the pace would send: more than ever came is enough
        let faster = taken > self.line / 64 * 65;
        self.line = self.line.max(taken);
        let left = (round.delivered.min(RATE_MOST) + round.lost.min(RATE_MOST)) * MILLION
            / round.span.max(1);
        let arrives = left >= paced / 100 * ARRIVES && self.line >= paced / 16 * 15;
        let own = u64::from(self.calm.max(self.nominal));
        if faster || arrives && !self.beyond(own + LOSS_MARGIN) {
            if paced >= self.agreed {
                self.line = 0;
            }
            self.grow();
        } else if self.step != 0 && round.pressed * 4 > round.delivered {
            // what was sent in addition waits, or is lost
            self.step = 0;
            self.until = round.now + CALM_ROUNDS * rtt;
            self.current = (self.line / 100 * 98).min(self.current);
        }
    }

    /// Whether packets were lost of late beyond a share and chance.
    fn beyond(&self, share: u64) -> bool {
        let counted = self.acked + self.lost;
        let usual = counted / PACKET * share / MILLION;
        let beyond = (self.lost / PACKET).saturating_sub(usual);
        counted >= ENOUGH * PACKET && beyond * beyond > CHANCE * usual
    }

    /// More than before, gently at first; half as much again as ever arrived at most.
    fn grow(&mut self) {
        if self.line == 0 {
            self.current = self.agreed;
            self.step = 0;
            return;
        }
        let more = (self.current << (self.step.min(STEPS) / 2)) / 64;
        let most = (self.line + self.line / 2).max(self.current).min(self.agreed);
        self.current = (self.current + more).min(most);
        self.step = (self.step + 1).min(STEPS);
    }

    /// Bytes a second for all together, with what makes up for losses where the line has it.
    pub fn rate(&self, agreement: &Agreement) -> u64 {
        let rate = if self.agreed == 0 { agreement.rate } else { self.current }.min(RATE_MOST);
        let sent = self.acked + self.lost;
        if agreement.line <= agreement.rate || sent < ENOUGH * PACKET {
            return rate;
        }
        // E.4: a_min
        let arrives = (self.acked * 1_000 / sent).max(800);
        (rate * 1_000 / arrives).min(agreement.line)
    }

    /// Of a connection's part of the rate what may be under way: not what the line is not known to take.
    pub fn known(&self, share: u64) -> u64 {
        if self.line == 0 || self.line >= self.current {
            return share;
        }
        share.min(RATE_MOST) / 1_000 * (self.line * 1_000 / self.current)
    }

    /// E.4: 0.9 of what would arrive by the path's own losses.
    fn expected(&self) -> u64 {
        let (most, arrives) = (self.current / 10 * 9, MILLION - u64::from(self.nominal));
        most / MILLION * arrives + most % MILLION * arrives / MILLION
    }

    /// Losses of the last seconds: a fifth is forgotten each second. None before `slot`.
    fn count(&mut self, round: &Round) {
        if round.now < self.slot {
            return;
        }
        match round.now.saturating_sub(self.slot) / SLOT {
            0 => {}
            slots if slots < SLOTS => {
                self.acked -= self.acked / SLOTS * slots;
                self.lost -= self.lost / SLOTS * slots;
                self.slot += slots * SLOT;
            }
            _ => (self.acked, self.lost, self.slot) = (0, 0, round.now),
        }
        self.acked = (self.acked + round.delivered.min(RATE_MOST)).min(RATE_MOST);
        self.lost = (self.lost + round.lost.min(RATE_MOST)).min(RATE_MOST);
    }
}

/// A connection's part of `rate`: by weight, of what those with little to send (`light` bytes/s)
/// leave.
pub fn share(rate: u64, light: u64, weights: u64, weight: u64) -> u64 {
    let left = rate.saturating_sub(light).max(rate / 16);
    if weights <= weight {
        return left;
    }
    left / weights * weight + left % weights * weight / weights
}

/// What an interactive connection (`model::scheduler`) may send at once, beside `others` of its
/// lane with more than a packet waiting: all but a sixteenth. The next round trip's rest pays for
/// it.
pub fn first(rate: u64, others: u64) -> u64 {
    (rate - rate / 16) / (others.min(MILLION) + 1)
}

/// Packets in flight: gain × rate × round trip, at most what path and tolerated queue hold (E.4).
/// `smoothed` and `base` in µs, `packet` in bytes.
pub fn window(agreement: &Agreement, share: u64, smoothed: u64, base: u64, packet: u64) -> u64 {
    let gain = match (agreement.gain, agreement.dedicated) {
        (0, true) => 125,
        (0, false) => 200,
        (gain, _) => u64::from(gain),
    };
    let span = (smoothed.min(SPAN_MOST) * gain / 100)
        .min(base.min(SPAN_MOST) + agreement.queue(base))
        .min(SPAN_MOST);
    let packet = if packet == 0 { PACKET } else { packet };
    // a packet's part is a packet: sixty with four and a bit each are not to have four
    (share.min(RATE_MOST) * span / MILLION).div_ceil(packet).max(WINDOW_LEAST)
}

#[cfg(test)]
mod tests;
