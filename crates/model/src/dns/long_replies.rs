//! How many bytes of long replies go to addresses that nothing proves, over all of them: a rate and a burst. Each address has
//! its own rate of questions, and whoever forges those of a whole network has as many rates as it has addresses. Kept as
//! the time at which the burst is full again (the generic cell rate algorithm).

use crate::units::{Span, Time};

/// Of each byte: 1 MB a second.
const GAP: Span = Span::from_micros(1);
/// What may be sent at once, in time of the rate.
const BURST: Span = Span::from_secs(1);

/// What is left for long replies, all of it at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LongReplies {
    full_at: Time,
}

impl LongReplies {
    /// A long reply of so many bytes is to go out: whether it may. One that may not takes nothing.
    pub fn on_reply(&mut self, now: Time, bytes: usize) -> bool {
        let next = now.max(self.full_at) + GAP.saturating_mul(bytes as u64);
        let allowed = next <= now + BURST;
        if allowed {
            self.full_at = next;
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;

    proptest! {
        #[test]
        fn the_rate_and_the_burst_are_kept_and_a_second_of_silence_gives_all_back(
            replies in proptest::collection::vec((0_u64..50, 513_usize..1_233), 1..3_000),
        ) {
            let (mut long, mut now, mut sent) = (LongReplies::default(), at(0), 0);
            for (gap, bytes) in replies {
                now += ms(gap / 40);
                sent += if long.on_reply(now, bytes) { bytes } else { 0 };
                let seconds = now.since(at(0)).as_secs_f64();
                prop_assert!(sent as f64 <= (seconds + 1.0) * 1e6 + 1.0);
            }
            // it is never stuck
            now += Span::from_secs(1);
            let again = (0..).take_while(|_| long.on_reply(now, 1_000)).count();
            prop_assert_eq!(again, 1_000);
        }
    }

    #[test]
    fn a_reply_that_may_not_go_takes_nothing() {
        let mut long = LongReplies::default();
        assert!(long.on_reply(at(0), 999_400));
        assert!((0..100).all(|_| !long.on_reply(at(0), 1_232)));
        assert!(long.on_reply(at(0), 600) && !long.on_reply(at(0), 1));
        assert!(long.on_reply(at(2), 1_232));
    }
}
