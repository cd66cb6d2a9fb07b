//! CUBIC (RFC 9438).

#[cfg(test)]
mod tests;

use super::window::{Window, by_window};
use super::{Ack, Config, Control, Snapshot, seconds};
use crate::units::{Span, Time};
use alloc::string::String;

/// CUBIC's constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CubicConfig {
    /// How steep the curve is, in segments/s³; above 0. RFC 9438 §5.1: 0.4.
    pub c: f64,
    /// What is left of the window after a loss; between 0 and 1. RFC 9438 §4.6: 0.7.
    pub beta: f64,
    /// Windows that shrink from loss to loss give way to newer connections (RFC 9438 §4.7).
    pub fast_convergence: bool,
    /// The window is at least what Reno's would be (RFC 9438 §4.3).
    pub friendly: bool,
}

impl Default for CubicConfig {
    fn default() -> Self {
        Self { c: 0.4, beta: 0.7, fast_convergence: true, friendly: true }
    }
}

impl CubicConfig {
    pub(super) fn check(&self) -> Result<(), String> {
        if !self.c.is_finite() || self.c <= 0.0 {
            return Err(alloc::format!("CUBIC's C is {}; it is above 0 (RFC 9438: 0.4)", self.c));
        }
        if self.beta.is_nan() || self.beta <= 0.0 || self.beta >= 1.0 {
            return Err(alloc::format!(
                "CUBIC's β is {}; it is between 0 and 1 (RFC 9438: 0.7)",
                self.beta
            ));
        }
        Ok(())
    }

    /// RFC 9438 §4.3: Reno's growth in segments per RTT that makes AIMD with this β as fast as Reno.
    fn alpha(&self) -> f64 {
        3.0 * (1.0 - self.beta) / (1.0 + self.beta)
    }
}

/// The most by which one RTT's target exceeds the window (RFC 9438 §4.2).
const MOST_GROWTH: f64 = 1.5;

/// A window that grows with time and not with the number of round trips.
#[derive(Debug, Clone, PartialEq)]
pub struct Cubic {
    config: CubicConfig,
    window: Window,
    curve: Curve,
    /// The curve before the last reduction (RFC 9438 §4.9.2).
    before: Curve,
    /// The last ACK's time, and whether it left nothing outstanding.
    last: Time,
    emptied: bool,
}

/// What the window follows in avoidance.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Curve {
    /// The plateau, segments. Before the first loss and after a time-out: where avoidance begins
    /// (RFC 9438 §4.8, §4.10).
    w_max: Option<f64>,
    /// The window when the threshold was set last, in segments.
    prior: Option<f64>,
    /// From the first ACK in avoidance to the next loss.
    epoch: Option<Epoch>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Epoch {
    /// When it began, moved by the time in which the sender had nothing to send.
    began: Time,
    w_max: f64,
    k: f64,
    /// Reno's window as it would be.
    w_est: f64,
}

impl Epoch {
    /// RFC 9438 equation 1, in segments, `t` seconds after the beginning.
    fn window(&self, c: f64, t: f64) -> f64 {
        let from_flat = t - self.k;
        c * from_flat * from_flat * from_flat + self.w_max
    }
}

impl Cubic {
    /// A connection that has sent nothing.
    pub fn new(config: &Config, cubic: CubicConfig, now: Time) -> Self {
        let curve = Curve { w_max: None, prior: None, epoch: None };
        let window = Window::new(config);
        Self { config: cubic, window, curve, before: curve, last: now, emptied: true }
    }

    /// RFC 9438 §4.2, equation 2.
    fn begin(&mut self, now: Time) -> Epoch {
        let size = self.window.size();
        self.curve.prior.get_or_insert(size);
        // without a window to come back to, or above it, the curve begins where it is flat
        let w_max = self.curve.w_max.unwrap_or(size).max(size);
        self.curve.w_max = Some(w_max);
        let k = libm::cbrt((w_max - size) / self.config.c);
        Epoch { began: now, w_max, k, w_est: size }
    }

    /// RFC 9438 §4.2–4.5: one ACK in avoidance, `acked` segments of which count for it.
    fn avoid(&mut self, ack: &Ack, acked: f64) {
        let mut epoch = match self.curve.epoch {
            Some(epoch) => epoch,
            None => self.begin(ack.now),
        };
        let size = self.window.size();
        let reached = self.curve.prior.is_some_and(|prior| epoch.w_est >= prior);
        let alpha = if reached { 1.0 } else { self.config.alpha() };
        epoch.w_est += alpha * acked / size;
        self.curve.epoch = Some(epoch);
        let t = seconds(ack.now.since(epoch.began));
        if self.config.friendly && epoch.window(self.config.c, t) < epoch.w_est {
            self.window.grow_to(epoch.w_est);
            return;
        }
        let ahead = epoch.window(self.config.c, t + seconds(ack.smoothed));
        let target = ahead.clamp(size, size * MOST_GROWTH);
        let grown = size + self.window.steps(acked) * (target - size) / size;
        self.window.grow_to(grown.min(target));
    }

    /// RFC 9438 §5.8: application-limited time is no part of t, nor what exceeds a round trip after
    /// an ACK that left nothing outstanding.
    fn leave_out_idle(&mut self, ack: &Ack, growing: bool) {
        let gap = ack.now.since(self.last);
        let idle = match (growing, self.emptied) {
            (false, _) => gap,
            (true, true) => {
                Span::from_nanos(gap.as_nanos().saturating_sub(ack.smoothed.as_nanos()))
            }
            (true, false) => Span::ZERO,
        };
        if let Some(epoch) = &mut self.curve.epoch {
            epoch.began += idle;
        }
        self.last = ack.now;
        self.emptied = ack.in_flight <= ack.acked;
    }
}

impl Control for Cubic {
    fn on_ack(&mut self, ack: &Ack) {
        let growing = self.window.may_grow(ack);
        self.leave_out_idle(ack, growing);
        if growing {
            let left = self.window.slow_start(ack);
            if left > 0.0 {
                self.avoid(ack, left);
            }
        }
    }
    /// RFC 9438 §4.6 and §4.7. A mark reduces to two segments at least, as a loss does.
    fn on_loss(&mut self, _: Time, basis: f64) {
        self.before = self.curve;
        let size = self.window.size();
        let shrinking = self.curve.w_max.is_some_and(|w_max| size < w_max);
        let w_max = match shrinking && self.config.fast_convergence {
            true => size * (1.0 + self.config.beta) / 2.0,
            false => size,
        };
        self.curve = Curve { w_max: Some(w_max), prior: Some(size), epoch: None };
        self.window.reduce(basis * self.config.beta);
    }
    /// RFC 9438 §4.8.
    fn on_timeout(&mut self, _: Time, basis: f64, again: bool) {
        if !again {
            self.before = self.curve;
            self.curve.prior = Some(self.window.size());
        }
        self.curve.w_max = None;
        self.curve.epoch = None;
        self.window.collapse(basis * self.config.beta, again);
    }
    fn on_restart(&mut self, _: Time) {
        self.curve.epoch = None;
        self.window.restart();
    }
    fn undo(&mut self, _: Time) {
        if self.window.undo() {
            self.curve = self.before;
        }
    }
    by_window!();
    fn snapshot(&self) -> Snapshot {
        let epoch = self.curve.epoch;
        Snapshot {
            w_max: self.curve.w_max,
            k: epoch.map(|epoch| epoch.k),
            w_est: epoch.map(|epoch| epoch.w_est),
            ..self.window.snapshot()
        }
    }
}
