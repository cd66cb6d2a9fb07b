//! Acknowledgements as programs on busy machines give them: for several packets together, and some of them late.

use super::{Path, drive, mbit, satellite};
use crate::control::rate_hold::Config;
use crate::testing::*;

/// Gathers what arrives into acknowledgements.
pub(super) struct Receiver {
    every: usize,
    late: Span,
    rng: Rng,
    held: Vec<u64>,
    since: Time,
    heard: Time,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Acks {
    /// For so many packets together, or after 20 ms; 0: each by itself.
    pub(super) every: usize,
    /// One in ten by up to so much.
    pub(super) late: Span,
    pub(super) seed: u64,
}

impl Receiver {
    pub(super) fn new(acks: Acks) -> Self {
        let Acks { every, late, seed } = acks;
        let rng = Rng::new(seed);
        Self { every, late, rng, held: Vec::new(), since: Time::NEVER, heard: Time::ZERO }
    }

    /// A packet arrived, and its acknowledgement takes half a round trip.
    pub(super) fn on_arrived(
        &mut self,
        now: Time,
        id: u64,
        half: Span,
        back: &mut VecDeque<(Time, u64)>,
    ) {
        if self.held.is_empty() {
            self.since = now;
        }
        self.held.push(id);
        if self.held.len() >= self.every {
            self.send(now, half, back);
        }
    }

    pub(super) fn deadline(&self) -> Time {
        if self.held.is_empty() { Time::NEVER } else { self.since + ms(20) }
    }

    pub(super) fn send(&mut self, now: Time, half: Span, back: &mut VecDeque<(Time, u64)>) {
        let held = match self.late {
            Span::ZERO => Span::ZERO,
            late if self.rng.below(10) == 0 => Span::from_nanos(self.rng.below(late.as_nanos())),
            _ => Span::from_nanos(self.rng.below(500_000)),
        };
        // in order
        self.heard = self.heard.max(now + half + held);
        back.extend(self.held.drain(..).map(|id| (self.heard, id)));
    }
}

/// The allotment is five times too high, which has to be told from what acknowledgements say.
#[test]
fn acknowledgements_that_come_late_do_not_tell_of_another_line() {
    for late in [0, 10, 20] {
        let mut seen = Vec::new();
        for seed in 0..5 {
            let acks = Acks { every: 10, late: ms(late), seed };
            let path = Path { acks, ..satellite(1.0) };
            let (run, _) = drive(Config::new(mbit(100.0)), &path, 60, false);
            seen.push((run.goodput(10, 60) / 19.8, run.waited(10, 60)));
            assert!(run.drops(10, 60) < 1.0, "{late} ms: {}", run.drops(10, 60));
        }
        std::println!("{late} ms: {seen:.2?}");
        let middle = |of: fn(&(f64, f64)) -> f64| {
            let mut all: Vec<f64> = seen.iter().map(of).collect();
            all.sort_by(f64::total_cmp);
            all[2]
        };
        assert!(middle(|run| run.0) > 0.93 && middle(|run| run.1) < 150.0, "{late} ms: {seen:?}");
    }
}
