//! What holds a rate below nine tenths of the allotment, and whether it has for long.

use super::RateHold;
use super::breaker::Trip;
use crate::units::{Span, Time};
use core::fmt;

/// What is said: shorter restraints come with every change of a line.
const LONG: Span = Span::from_secs(10);
/// Share of the allotment below which a rate is held down.
const DOWN: f64 = 0.9;

/// What holds a rate down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restraint {
    /// The circuit breaker: a tenth is sent.
    Breaker(Trip),
    /// Packets are in flight and nothing is heard of them: a tenth is sent.
    Silence,
    /// Others' packets stand in the same queue.
    Others,
    /// The line gives less than the allotment.
    Line,
}

impl fmt::Display for Restraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Breaker(trip) => write!(f, "reduced to a tenth: {trip}"),
            Self::Silence => f.write_str("reduced to a tenth: no acknowledgement arrives"),
            Self::Others => f.write_str("sharing the line: others' packets stand in its queue"),
            Self::Line => f.write_str("the line gives less than the agreed rate"),
        }
    }
}

/// Notices restraints that last for more than 10 s.
#[derive(Debug, Clone, Copy, Default)]
pub struct RestraintWatch {
    since: Option<Time>,
    long: Option<Restraint>,
}

impl RestraintWatch {
    /// What holds the rate down now; whether that has begun, changed or ended, so that it is worth a word.
    pub fn on_look(&mut self, now: Time, restraint: Option<Restraint>) -> bool {
        let was = self.long;
        self.since = restraint.map(|_| self.since.unwrap_or(now));
        self.long = restraint.filter(|_| self.since.is_some_and(|at| now.since(at) > LONG));
        let kind = |restraint: Option<Restraint>| restraint.map(|it| core::mem::discriminant(&it));
        kind(was) != kind(self.long)
    }

    /// What has held the rate down for more than 10 s.
    pub const fn long(&self) -> Option<Restraint> {
        self.long
    }
}

impl RateHold {
    /// What holds the rate down now, the strongest first.
    pub fn restraint(&self) -> Option<Restraint> {
        let line = self.line.is_some_and(|line| line < DOWN * self.allotted());
        if let Some((trip, _)) = self.breaker.snapshot().open {
            Some(Restraint::Breaker(trip))
        } else if self.silent {
            Some(Restraint::Silence)
        } else if self.is_contended() {
            Some(Restraint::Others)
        } else {
            line.then_some(Restraint::Line)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    #[test]
    fn only_a_long_restraint_is_worth_a_word() {
        let mut watch = RestraintWatch::default();
        let line = Some(Restraint::Line);
        assert!(!watch.on_look(at(0), line) && !watch.on_look(at(9_000), line));
        assert!(!watch.on_look(at(9_500), None), "it was short");
        assert!(!watch.on_look(at(10_000), line) && !watch.on_look(at(20_000), line));
        assert_eq!(watch.long(), None);
        assert!(watch.on_look(at(20_001), line), "it begins");
        assert!(!watch.on_look(at(25_000), line));
        assert!(watch.on_look(at(30_000), Some(Restraint::Silence)), "another reason");
        assert_eq!(watch.long(), Some(Restraint::Silence));
        assert!(watch.on_look(at(40_000), None) && !watch.on_look(at(50_000), None));
        assert_eq!(watch.long(), None);
    }
}
