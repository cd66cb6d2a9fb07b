//! Limits of a relay and its accounts, and reasons for a refusal.

use crate::units::{Bytes, Rate, Span, Time};
use core::fmt;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum Direction {
    /// From the account.
    Up,
    /// To it.
    Down,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Up, Self::Down];
}

/// The relay's own limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Config {
    /// Of all accounts together, up and down; `None`: no limit.
    pub rates: [Option<Rate>; 2],
}

/// An account's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of all its connections together, up and down; `None`: no limit.
    pub rates: [Option<Rate>; 2],
    /// Of each of its connections, up and down.
    pub each: [Option<Rate>; 2],
    /// Its part where the relay's rate is full, against the weights of others; 0 counts as 1.
    pub weight: u32,
    /// Connections at once.
    pub connections: Option<u32>,
    /// Connections begun a second; five seconds' worth may come at once.
    pub connects: Option<u32>,
    /// Bytes in a period.
    pub quota: Option<Allowance>,
}

impl Default for Limits {
    fn default() -> Self {
        let none = [None; 2];
        Self { rates: none, each: none, weight: 1, connections: None, connects: None, quota: None }
    }
}

/// Bytes in a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// In both directions together.
    pub bytes: Bytes,
    /// The first begins when the allowance is given; [`Span::MAX`]: it never ends by itself.
    pub period: Span,
    /// The consequence once they are used up.
    pub on_exceeded: ExceededAction,
}

/// The consequence of an exceeded quota, until the period ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExceededAction {
    /// No more than this in each direction.
    Throttle(Rate),
    /// Connections end and none is admitted.
    Cut,
}

/// Why a connection is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There is no such account, or not any more.
    Gone,
    /// It has so many connections already.
    Connections(u32),
    /// It begins them too fast; one more is admitted after so long.
    Connects(Span),
    /// Its quota is used up; the period ends then.
    Spent(Time),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("there is no such account any more"),
            Self::Connections(1) => f.write_str("the account has 1 connection already"),
            Self::Connections(most) => write!(f, "the account has {most} connections already"),
            Self::Connects(_) => f.write_str("the account begins too many connections a second"),
            Self::Spent(_) => f.write_str("the account's quota is used up"),
        }
    }
}
