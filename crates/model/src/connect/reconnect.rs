//! Pauses between attempts to connect to a peer, over and over.

use crate::units::{Span, Time};

/// The first pause; it doubles up to [`LONGEST`].
const FIRST: Span = Span::from_millis(500);
const LONGEST: Span = Span::from_secs(30);
/// A tunnel that was up for longer than this was no failure: pauses begin anew.
const LASTING: Span = Span::from_secs(10);

/// The pause before the next attempt. What an attempt takes until the tunnel is up says nothing about the tunnel, so
/// only the time from then on counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reconnect {
    next: Span,
    /// When the tunnel of this attempt came up.
    up: Option<Time>,
}

/// The end of an attempt, or of its tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptEnd {
    /// Pause before the next attempt, 0.5 to 30 s.
    pub pause: Span,
    /// The tunnel was up for more than 10 s.
    pub lasted: bool,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self { next: FIRST, up: None }
    }
}

impl Reconnect {
    /// The tunnel of the attempt is up.
    pub const fn on_up(&mut self, now: Time) {
        self.up = Some(now);
    }

    /// The attempt failed, or its tunnel ended.
    pub fn on_end(&mut self, now: Time) -> AttemptEnd {
        let lasted = self.up.take().is_some_and(|up| now.since(up) > LASTING);
        let pause = if lasted { FIRST } else { self.next };
        self.next = pause.saturating_mul(2).min(LONGEST);
        AttemptEnd { pause, lasted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Attempts that each take `attempt` until they fail, or until a tunnel is up that ends `up` later.
    fn pauses<const N: usize>(attempt: Span, up: Option<Span>) -> [u64; N] {
        let (mut reconnect, mut now) = (Reconnect::default(), Time::ZERO);
        core::array::from_fn(|_| {
            now += attempt;
            if let Some(up) = up {
                reconnect.on_up(now);
                now += up;
            }
            let end = reconnect.on_end(now);
            now += end.pause;
            end.pause.as_millis()
        })
    }

    #[test]
    fn attempts_that_take_long_do_not_shorten_the_pauses() {
        let doubled = [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000];
        for seconds in [0, 7, 13, 60] {
            assert_eq!(pauses(Span::from_secs(seconds), None), doubled);
        }
        // it comes up late, and is lost at once
        assert_eq!(pauses(Span::from_secs(13), Some(Span::from_secs(2))), doubled);
    }

    #[test]
    fn a_tunnel_that_lasted_is_followed_by_the_first_pause() {
        let up = Span::from_secs(11);
        assert_eq!(pauses(Span::from_secs(1), Some(up)), [500; 4]);
        let (mut reconnect, at) = (Reconnect::default(), |s| Time::ZERO + Span::from_secs(s));
        (1..9).for_each(|s| assert!(!reconnect.on_end(at(s)).lasted));
        reconnect.on_up(at(20));
        assert_eq!(reconnect.on_end(at(31)), AttemptEnd { pause: FIRST, lasted: true });
        // that it was up counts once
        assert!(!reconnect.on_end(at(90)).lasted);
    }
}
