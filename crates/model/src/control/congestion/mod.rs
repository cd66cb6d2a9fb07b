//! Congestion control: how much a sender may have outstanding.
//!
//! A sender asks [`Control::window`] before it sends, and reports:
//!
//! ```text
//! on_ack(ack)                    new data was acknowledged
//! on_loss(now, basis)            a loss or a congestion mark was seen; once per window
//! on_timeout(now, basis, again)  the retransmission timer fired
//! on_restart(now)                sending begins again after an idle time
//! undo(now)                      the last loss or time-out was spurious
//! ```
//! Loss detection, retransmission, and window inflation (RFC 6582) are the sender's. Windows are in
//! segments. A control begins when the handshake is done.
//!
//! | [`Algorithm`] | grows, in avoidance | after a loss | source |
//! |---|---|---|---|
//! | Reno | one segment per RTT | half | RFC 5681 |
//! | CUBIC | along a cubic curve, at least as Reno does | β = 0.7 | RFC 9438 |
//! | Westwood+ | as Reno | ACK rate × minimum RTT | Grieco and Mascolo 2004 |
//! | fixed | never | never | |
//!
//! Laws of every control (`congestion/laws.rs`): the window is finite and at least 1, does not grow
//! during recovery, and is never raised by a loss; undo restores it.

mod cubic;
mod fixed;
#[cfg(test)]
mod laws;
mod reno;
#[cfg(test)]
mod response;
mod slow_start;
mod westwood;
mod window;

pub use cubic::{Cubic, CubicConfig};
pub use fixed::Fixed;
pub use reno::Reno;
pub use westwood::WestwoodPlus;

use crate::units::{Span, Time};
use alloc::string::String;

/// An acknowledgement of new data.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ack {
    /// When it arrived.
    pub now: Time,
    /// Newly acknowledged, in segments; a part of one counts as that part.
    pub acked: f64,
    /// Outstanding before this ACK, in segments.
    pub in_flight: f64,
    /// A valid RTT sample (Karn's algorithm), if this ACK gave one.
    pub rtt: Option<Span>,
    /// The smoothed RTT, [`Span::ZERO`] before the first sample.
    pub smoothed: Span,
    /// The window, and not the application or the receiver, kept the sender from sending more.
    pub limited: bool,
    /// First byte that is not acknowledged, this ACK counted.
    pub una: u64,
    /// Next byte to be sent, before anything that this ACK permits: marks the rounds of slow start.
    pub next: u64,
    /// Loss recovery is going on: the window must not grow. Westwood+ still estimates.
    pub recovering: bool,
}

/// A congestion control.
pub trait Control {
    /// New data was acknowledged.
    fn on_ack(&mut self, ack: &Ack);
    /// A loss by duplicate or selective ACKs, or a congestion mark; once per window. `basis`,
    /// segments: the amount outstanding (RFC 5681 equation 4), or min(cwnd, receiver's window) as
    /// in ns-2.
    fn on_loss(&mut self, now: Time, basis: f64);
    /// The timer fired; `again` for the same segment, which keeps the threshold (RFC 5681 §3.1).
    fn on_timeout(&mut self, now: Time, basis: f64, again: bool);
    /// Sending begins again after an idle time longer than the RTO, and restarts slowly (RFC 5681 §4.1).
    fn on_restart(&mut self, now: Time);
    /// The last loss or time-out (the first of several for one segment) was spurious, by F-RTO,
    /// Eifel or DSACK. Restores all, unless the window has grown beyond it (RFC 9438 §4.9); only
    /// the first call counts.
    fn undo(&mut self, now: Time);
    /// The window is at most this from now on, never below 1: after a partial acknowledgement or
    /// recovery (RFC 6582), or a lost SYN (RFC 5681 §3.1).
    fn cap(&mut self, most: f64);
    /// Segments that may be outstanding; at least 1, not always whole.
    fn window(&self) -> f64;
    /// Below this window slow start goes on, in segments; [`f64::INFINITY`] at first, unless configured.
    fn threshold(&self) -> f64;
    /// Its numbers.
    fn snapshot(&self) -> Snapshot;
}

/// Which control.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Algorithm {
    /// RFC 5681. Reno and New Reno (RFC 6582) differ in loss recovery, which is the sender's.
    Reno,
    /// RFC 9438.
    Cubic(CubicConfig),
    /// Reno whose decrease follows an estimate of the bandwidth.
    WestwoodPlus,
    /// A constant window.
    Fixed(f64),
}

/// The weight of an ACK.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Counting {
    /// One, however much it acknowledges: ns-2, and RFC 5681 at its slowest.
    PerAck,
    /// The bytes acknowledged (RFC 3465), in slow start at most `limit` segments: 2 (RFC 3465
    /// §2.2), 8 unpaced (RFC 9406 §4.3), [`f64::INFINITY`] paced; 1 after a time-out (RFC 3465
    /// §2.3).
    Bytes {
        /// In segments, at least 1.
        limit: f64,
    },
}

/// When slow start ends without a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlowStart {
    /// At the threshold alone.
    Standard,
    /// When the delay has grown, after rounds of slower growth (RFC 9406); first slow start only.
    HyStartPlusPlus,
    /// When the delay has grown, or an ACK train lasts half the least RTT (Ha and Rhee 2011), with
    /// Linux's constants.
    HyStart,
}

/// Which reductions are cut to whole segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Nothing: the window becomes the threshold.
    Neither,
    /// The threshold, and not the window (ns-2 since 2006: `precisionReduce_`).
    Threshold,
    /// Both (ns-2 before).
    Both,
}

/// A control's parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Which control.
    pub algorithm: Algorithm,
    /// The window at first, in segments: 10 in RFC 6928, 2 in ns-2. Also after an idle time.
    pub initial_window: f64,
    /// The threshold at first, in segments; [`f64::INFINITY`] for "as high as can be" (RFC 5681 §3.1).
    pub initial_threshold: f64,
    /// The weight of an ACK.
    pub counting: Counting,
    /// What of a reduction is cut to whole segments.
    pub cut: Cut,
    /// When slow start ends without a loss.
    pub slow_start: SlowStart,
    /// The window grows only while it limits the sender (RFC 7661, RFC 9438 §4.2); else with every
    /// ACK.
    pub grow_only_when_limited: bool,
}

impl Default for Config {
    /// What the standards recommend to a sender that does not pace: RFC 9438, 6928, 9406.
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Cubic(CubicConfig::default()),
            initial_window: 10.0,
            initial_threshold: f64::INFINITY,
            counting: Counting::Bytes { limit: 8.0 },
            cut: Cut::Neither,
            slow_start: SlowStart::HyStartPlusPlus,
            grow_only_when_limited: true,
        }
    }
}

impl Config {
    /// Refuses impossible values: the error names the parameter and its range.
    pub fn check(&self) -> Result<(), String> {
        let window = |what: &str, window: f64| match window.is_finite() && window >= 1.0 {
            true => Ok(()),
            false => {
                Err(alloc::format!("{what} is {window}; it is at least 1 segment, and finite"))
            }
        };
        window("the initial window", self.initial_window)?;
        let threshold = self.initial_threshold;
        if threshold.is_nan() || threshold < 2.0 {
            return Err(alloc::format!(
                "the initial threshold is {threshold}; it is at least 2 segments (RFC 5681)"
            ));
        }
        match self.counting {
            Counting::Bytes { limit } if limit.is_nan() || limit < 1.0 => {
                return Err(alloc::format!(
                    "an ACK counts for {limit} segments at most; that is at least 1 (RFC 3465)"
                ));
            }
            Counting::Bytes { .. } | Counting::PerAck => {}
        }
        match self.algorithm {
            Algorithm::Fixed(segments) => window("the fixed window", segments),
            Algorithm::Cubic(cubic) => cubic.check(),
            Algorithm::Reno | Algorithm::WestwoodPlus => Ok(()),
        }
    }
}

/// The state of a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Phase {
    /// Doubling in each round trip.
    #[default]
    SlowStart,
    /// A quarter of that, to see whether the delay really has grown (RFC 9406).
    ConservativeSlowStart,
    /// Growing carefully.
    Avoidance,
    /// Nothing.
    Fixed,
}

/// A control's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// In segments.
    pub window: f64,
    /// In segments; infinite as long as there is none (JSON: null).
    pub threshold: f64,
    /// Slow start or avoidance.
    pub phase: Phase,
    /// Where CUBIC's curve is flat, in segments; none before the first loss and after a time-out.
    pub w_max: Option<f64>,
    /// Seconds from the epoch's beginning to CUBIC's plateau; `None` outside an epoch.
    pub k: Option<f64>,
    /// What CUBIC takes Reno's window to be, in segments; none outside an epoch.
    pub w_est: Option<f64>,
    /// Westwood+'s estimate, in segments per second; none before its first sample.
    pub bandwidth: Option<f64>,
    /// The least RTT that Westwood+ has seen.
    pub rtt_min: Option<Span>,
}

/// Any control, without a table of functions: one is asked for every packet of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub enum Congestion {
    /// RFC 5681.
    Reno(Reno),
    /// RFC 9438.
    Cubic(Cubic),
    /// By estimated bandwidth.
    WestwoodPlus(WestwoodPlus),
    /// Constant.
    Fixed(Fixed),
}

impl Congestion {
    /// A connection whose handshake is done. The configuration must pass [`Config::check`].
    pub fn new(config: &Config, now: Time) -> Self {
        match config.algorithm {
            Algorithm::Reno => Self::Reno(Reno::new(config)),
            Algorithm::Cubic(cubic) => Self::Cubic(Cubic::new(config, cubic, now)),
            Algorithm::WestwoodPlus => Self::WestwoodPlus(WestwoodPlus::new(config)),
            Algorithm::Fixed(segments) => Self::Fixed(Fixed::new(segments)),
        }
    }
}

macro_rules! each {
    ($congestion:ident, $control:ident => $call:expr) => {
        match $congestion {
            Self::Reno($control) => $call,
            Self::Cubic($control) => $call,
            Self::WestwoodPlus($control) => $call,
            Self::Fixed($control) => $call,
        }
    };
}

impl Control for Congestion {
    fn on_ack(&mut self, ack: &Ack) {
        each!(self, control => control.on_ack(ack));
    }
    fn on_loss(&mut self, now: Time, basis: f64) {
        each!(self, control => control.on_loss(now, basis));
    }
    fn on_timeout(&mut self, now: Time, basis: f64, again: bool) {
        each!(self, control => control.on_timeout(now, basis, again));
    }
    fn on_restart(&mut self, now: Time) {
        each!(self, control => control.on_restart(now));
    }
    fn undo(&mut self, now: Time) {
        each!(self, control => control.undo(now));
    }
    fn cap(&mut self, most: f64) {
        each!(self, control => control.cap(most));
    }
    fn window(&self) -> f64 {
        each!(self, control => control.window())
    }
    fn threshold(&self) -> f64 {
        each!(self, control => control.threshold())
    }
    fn snapshot(&self) -> Snapshot {
        each!(self, control => control.snapshot())
    }
}

fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_in_words() {
        let fine = Config::default();
        assert_eq!(fine.check(), Ok(()));
        let cubic = |c, beta| Algorithm::Cubic(CubicConfig { c, beta, ..CubicConfig::default() });
        for (config, word) in [
            (Config { initial_window: 0.5, ..fine.clone() }, "initial window"),
            (Config { initial_window: f64::NAN, ..fine.clone() }, "initial window"),
            (Config { initial_threshold: 1.0, ..fine.clone() }, "initial threshold"),
            (Config { initial_threshold: f64::NAN, ..fine.clone() }, "initial threshold"),
            (Config { counting: Counting::Bytes { limit: 0.0 }, ..fine.clone() }, "RFC 3465"),
            (Config { algorithm: Algorithm::Fixed(0.0), ..fine.clone() }, "fixed window"),
            (Config { algorithm: Algorithm::Fixed(f64::INFINITY), ..fine.clone() }, "fixed window"),
            (Config { algorithm: cubic(0.0, 0.7), ..fine.clone() }, "CUBIC's C "),
            (Config { algorithm: cubic(0.4, 1.0), ..fine.clone() }, "β"),
        ] {
            let refused = config.check().unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
    }
}
