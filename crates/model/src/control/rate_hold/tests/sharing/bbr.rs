//! BBR as first described (Cardwell et al., ACM Queue 14(5), 2016): the fastest delivery of ten
//! round trips, the shortest round trip of ten seconds, eight gains in turn. Losses mean nothing to
//! it; a retransmission counts as a new packet.

use super::{Party, SIZE};
use crate::testing::*;

#[derive(Default)]
pub(super) struct Bbr {
    back: Span,
    number: u64,
    delivered: u64,
    delivered_at: Time,
    /// Number, when it left, and what was delivered then and when.
    flight: VecDeque<(u64, Time, u64, Time)>,
    returning: VecDeque<(Time, u64)>,
    /// Delivery rates by round, bits a second.
    rates: VecDeque<(u64, f64)>,
    round: u64,
    round_ends: u64,
    shortest: Option<(Span, Time)>,
    phase: Phase,
    turns: Time,
    paced: Time,
    full: (f64, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Phase {
    #[default]
    Startup,
    Drain,
    Cycle(usize),
    /// Four packets under way for 200 ms, to see the path's own round trip.
    Shortest,
}

impl Bbr {
    pub(super) fn new(rtt: Span) -> Self {
        Self {
            back: Span::from_nanos(rtt.as_nanos() / 2),
            phase: Phase::Startup,
            turns: Time::NEVER,
            full: (0.0, 0),
            ..Self::default()
        }
    }

    fn bandwidth(&self) -> f64 {
        self.rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max)
    }

    fn gains(&self) -> (f64, f64) {
        const HIGH: f64 = 2.885;
        match self.phase {
            Phase::Startup => (HIGH, HIGH),
            Phase::Drain => (1.0 / HIGH, HIGH),
            Phase::Cycle(0) => (1.25, 2.0),
            Phase::Cycle(1) => (0.75, 2.0),
            Phase::Cycle(_) | Phase::Shortest => (1.0, 2.0),
        }
    }

    fn product(&self) -> f64 {
        let shortest = self.shortest.map_or(0.0, |(rtt, _)| rtt.as_nanos() as f64 / 1e9);
        self.bandwidth() * shortest / 8.0 / SIZE.as_u64() as f64
    }

    fn window(&self) -> usize {
        if self.phase == Phase::Shortest {
            return 4;
        }
        ((self.gains().1 * self.product()) as usize).max(10)
    }

    fn on_acked(&mut self, now: Time, sent: Time, delivered: u64, since: Time) {
        let rtt = now.since(sent);
        self.delivered += 1;
        self.delivered_at = now;
        if delivered >= self.round_ends {
            self.round += 1;
            self.round_ends = self.delivered;
            if self.phase == Phase::Startup {
                let (before, times) = self.full;
                let grown = self.bandwidth() > 1.25 * before;
                self.full = if grown { (self.bandwidth(), 0) } else { (before, times + 1) };
                if self.full.1 >= 3 {
                    self.phase = Phase::Drain;
                }
            }
        }
        let span = now.since(since).max(now.since(sent)).as_nanos() as f64 / 1e9;
        let rate = (self.delivered - delivered) as f64 * SIZE.as_u64() as f64 * 8.0 / span;
        let round = self.round;
        self.rates.retain(|(then, old)| *then + 10 > round && *old > rate);
        self.rates.push_back((round, rate));
        let stale = self.shortest.is_none_or(|(_, then)| now.since(then) > Span::from_secs(10));
        if self.shortest.is_none_or(|(old, _)| rtt <= old) {
            self.shortest = Some((rtt, now));
        } else if stale && self.phase != Phase::Shortest && self.phase != Phase::Startup {
            self.phase = Phase::Shortest;
            self.shortest = Some((rtt, now));
            self.turns = now + rtt + ms(200);
        }
        let under_way = self.flight.len();
        match self.phase {
            Phase::Drain if under_way as f64 <= self.product() => self.cycle(now, 2),
            Phase::Cycle(nth) if self.turns <= now => self.cycle(now, (nth + 1) % 8),
            Phase::Shortest if self.turns <= now => self.cycle(now, 2),
            _ => {}
        }
    }

    fn cycle(&mut self, now: Time, nth: usize) {
        self.phase = Phase::Cycle(nth);
        self.turns = now + self.shortest.map_or(ms(10), |(rtt, _)| rtt);
    }
}

impl Party for Bbr {
    fn poll(&mut self, now: Time) -> Option<u64> {
        if self.flight.len() >= self.window() || self.paced > now {
            return None;
        }
        let rate = self.gains().0 * self.bandwidth();
        if rate > 0.0 {
            let gap = SIZE.as_u64() as f64 * 8.0 / rate;
            self.paced = self.paced.max(now) + Span::from_nanos((gap * 1e9) as u64);
        }
        if self.flight.is_empty() {
            self.delivered_at = now;
        }
        self.number += 1;
        self.flight.push_back((self.number, now, self.delivered, self.delivered_at));
        Some(self.number)
    }

    fn on_arrived(&mut self, now: Time, number: u64) {
        self.returning.push_back((now + self.back, number));
    }

    fn on_deadline(&mut self, now: Time) {
        while let Some((_, id)) = self.returning.pop_front_if(|(due, _)| *due <= now) {
            while let Some((number, sent, delivered, since)) =
                self.flight.pop_front_if(|(n, ..)| *n <= id)
            {
                if number == id {
                    self.on_acked(now, sent, delivered, since);
                }
            }
        }
        // all that was under way is lost: a time-out
        if self.returning.is_empty()
            && self.flight.back().is_some_and(|(_, sent, ..)| now.since(*sent) > Span::from_secs(3))
        {
            self.flight.clear();
        }
    }

    fn deadline(&self, now: Time) -> Time {
        let come = self.returning.front().map_or(Time::NEVER, |(due, _)| *due);
        let send =
            if self.flight.len() < self.window() { self.paced.max(now) } else { Time::NEVER };
        come.min(send)
    }
}
