//! How long a relayed connection may be silent before it is closed.

use crate::units::{Span, Time};

/// The two idle limits of a connection; of its two legs, the shorter ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Both directions open, nothing moved.
    pub idle: Span,
    /// One direction ended, nothing moved in the other.
    pub half_closed: Span,
}

/// Which limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expired {
    /// Nothing moved for [`Limits::idle`].
    Idle,
    /// One direction had ended, and nothing moved in the other for [`Limits::half_closed`].
    HalfClosed,
}

/// The silence of one connection. It gets every movement; the driver's one timer asks
/// [`Lifetime::on_deadline`] whether the limit was reached, else waits for [`Lifetime::deadline`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifetime {
    limits: Limits,
    last: Time,
    half_closed: bool,
}

impl Lifetime {
    /// A connection that begins now.
    pub const fn new(limits: Limits, now: Time) -> Self {
        Self { limits, last: now, half_closed: false }
    }

    /// Bytes moved, either way.
    pub const fn on_moved(&mut self, now: Time) {
        self.last = now;
    }

    /// One direction came to its end.
    pub const fn on_half_closed(&mut self, now: Time) {
        self.half_closed = true;
        self.last = now;
    }

    /// When the connection is to be closed if nothing moves.
    pub fn deadline(&self) -> Time {
        self.last + if self.half_closed { self.limits.half_closed } else { self.limits.idle }
    }

    /// Whether the limit is reached.
    pub fn on_deadline(&self, now: Time) -> Option<Expired> {
        (now >= self.deadline()).then_some(if self.half_closed {
            Expired::HalfClosed
        } else {
            Expired::Idle
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { idle: Span::from_secs(100), half_closed: Span::from_secs(10) };

    #[test]
    fn silence_ends_it_and_movement_does_not() {
        let mut life = Lifetime::new(LIMITS, Time::ZERO);
        let at = |s| Time::ZERO + Span::from_secs(s);
        assert_eq!(life.on_deadline(at(99)), None);
        life.on_moved(at(99));
        assert_eq!(life.on_deadline(at(100)), None);
        assert_eq!(life.deadline(), at(199));
        assert_eq!(life.on_deadline(at(199)), Some(Expired::Idle));
    }

    #[test]
    fn half_closed_connection_expires_sooner() {
        let mut life = Lifetime::new(LIMITS, Time::ZERO);
        life.on_half_closed(Time::ZERO);
        assert_eq!(life.on_deadline(Time::ZERO + Span::from_secs(10)), Some(Expired::HalfClosed));
    }

    #[test]
    fn limit_of_max_never_expires() {
        let limits = Limits { idle: Span::MAX, half_closed: Span::MAX };
        let life = Lifetime::new(limits, Time::from_nanos(5));
        assert_eq!(life.deadline(), Time::NEVER);
    }
}
