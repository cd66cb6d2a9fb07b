//! A window that stays as it is: what a receiver's small window does, and a yardstick.

use super::{Ack, Control, Phase, Snapshot};
use crate::units::Time;

/// A constant window; losses and time-outs change nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Fixed {
    segments: f64,
}

impl Fixed {
    /// A window of `segments`.
    pub const fn new(segments: f64) -> Self {
        Self { segments }
    }
}

impl Control for Fixed {
    fn on_ack(&mut self, _: &Ack) {}
    fn on_loss(&mut self, _: Time, _: f64) {}
    fn on_timeout(&mut self, _: Time, _: f64, _: bool) {}
    fn on_restart(&mut self, _: Time) {}
    fn undo(&mut self, _: Time) {}
    fn cap(&mut self, _: f64) {}
    fn window(&self) -> f64 {
        self.segments
    }
    fn threshold(&self) -> f64 {
        f64::INFINITY
    }
    fn snapshot(&self) -> Snapshot {
        Snapshot {
            window: self.segments,
            threshold: f64::INFINITY,
            phase: Phase::Fixed,
            ..Snapshot::default()
        }
    }
}
