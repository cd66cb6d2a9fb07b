//! Changes of a link at set times, exactly, however it is driven.

use super::Change;
use crate::units::{Span, Time};
use alloc::vec::Vec;

#[derive(Debug, Clone)]
pub(super) struct Schedule {
    entries: Vec<(Span, Change)>,
    period: Option<Span>,
    /// When the round now running began.
    round: Time,
    at: usize,
}

impl Schedule {
    /// Sorts entries by time, stably. Leaves out a period of 0 and entries after the period's end
    /// ([`super::Config::check`] refuses both).
    pub(super) fn new(entries: &[(Span, Change)], period: Option<Span>, now: Time) -> Self {
        let period = period.filter(|period| *period > Span::ZERO);
        let mut entries = entries.to_vec();
        entries.retain(|(at, _)| period.is_none_or(|period| *at < period));
        entries.sort_by_key(|(at, _)| *at);
        Self { entries, period, round: now, at: 0 }
    }

    /// When the next change is due; [`Time::NEVER`] when none is left.
    pub(super) fn next(&self) -> Time {
        self.entries.get(self.at).map_or(Time::NEVER, |(after, _)| self.round + *after)
    }

    pub(super) fn pop(&mut self) -> Option<Change> {
        let (_, change) = self.entries.get(self.at)?;
        let change = change.clone();
        self.at += 1;
        if let (true, Some(period)) = (self.at == self.entries.len(), self.period) {
            self.round += period;
            self.at = 0;
        }
        Some(change)
    }

    /// Leaves out whole rounds of an idle link, which change nothing; the last one before `now`
    /// stays.
    pub(super) fn skip_idle(&mut self, now: Time) {
        let Some(period) = self.period else { return };
        let rounds = now.since(self.round).as_nanos() / period.as_nanos();
        if rounds > 2 && !self.entries.is_empty() {
            self.round += period.saturating_mul(rounds - 1);
            self.at = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    fn delay(ms: u64) -> Change {
        Change::Delay(Span::from_millis(ms))
    }

    #[test]
    fn entries_come_by_time_and_in_the_order_written() {
        let at = Span::from_secs;
        let entries = [(at(2), delay(3)), (at(1), delay(1)), (at(1), delay(2))];
        let mut schedule = Schedule::new(&entries, None, Time::ZERO);
        let mut got = vec![];
        while schedule.next() != Time::NEVER {
            got.push((schedule.next().as_nanos() / 1_000_000_000, schedule.pop().unwrap()));
        }
        assert_eq!(got, [(1, delay(1)), (1, delay(2)), (2, delay(3))]);
        assert_eq!(schedule.pop(), None);
    }

    #[test]
    fn schedule_repeats_by_its_period() {
        let entries = [(Span::ZERO, delay(1)), (Span::from_secs(1), delay(2))];
        let mut schedule = Schedule::new(&entries, Some(Span::from_secs(3)), Time::ZERO);
        let mut times = vec![];
        for _ in 0..5 {
            times.push(schedule.next().as_nanos() / 1_000_000_000);
            schedule.pop();
        }
        assert_eq!(times, [0, 1, 3, 4, 6]);
    }

    #[test]
    fn skips_idle_rounds_in_constant_time() {
        let entries = [(Span::ZERO, delay(1)), (Span::from_millis(1), delay(2))];
        let mut schedule = Schedule::new(&entries, Some(Span::from_millis(3)), Time::ZERO);
        let now = Time::ZERO + Span::from_secs(365 * 86_400);
        schedule.skip_idle(now);
        assert!(now.since(schedule.next()) < Span::from_millis(7));
        assert_eq!(schedule.next().as_nanos() % 3_000_000, 0);
    }
}
