//! A rate is reached although its driver wakes late: a timer's grain, a busy processor, a thread that waits for its turn.

use super::*;
use crate::rng::Rng;
use crate::testing::*;
use alloc::collections::BTreeSet;

/// How long flows ask.
const LENGTH: Span = Span::from_secs(20);

/// Flows that always want more. A driver wakes up to `timer` after each deadline, at a whole millisecond, and what it
/// calls asks up to `call` later. All that they got.
fn late(quota: &mut Quota, flows: &[Flow], want: u64, [timer, call]: [u64; 2], seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let mut after = |now: Time, most: u64| now + Span::from_micros(rng.below(most * 1_000 + 1));
    let whole = |time: Time| Time::ZERO + Span::from_millis(time.as_nanos().div_ceil(1_000_000));
    let (mut now, mut got) = (Time::ZERO, 0);
    let mut asks: BTreeSet<(Time, usize)> = (0..flows.len()).map(|nth| (now, nth)).collect();
    // for what the driver sleeps, and when it wakes
    let (mut armed, mut wakes) = (Time::NEVER, Time::NEVER);
    while now < Time::ZERO + LENGTH {
        if quota.deadline() < armed {
            armed = quota.deadline();
            wakes = whole(after(armed.max(now), timer));
        }
        let ask = asks.first().copied().filter(|(at, _)| *at <= wakes);
        if let Some((at, nth)) = ask {
            asks.pop_first();
            now = at;
            if let QuotaAnswer::Go(bytes) =
                quota.ask(now, flows[nth], Direction::Down, Bytes::new(want))
            {
                let bytes = bytes.min(Bytes::new(want));
                got += bytes.as_u64();
                quota.on_moved(now, flows[nth], Direction::Down, bytes);
                asks.insert((now, nth));
            }
        } else {
            now = wakes;
            quota.on_deadline(now);
            (armed, wakes) = (Time::NEVER, Time::NEVER);
        }
        while let Some((flow, _)) = quota.next_ready() {
            let nth = flows.iter().position(|one| *one == flow).unwrap();
            // one that asks by itself needs no call
            if !asks.iter().any(|(_, asking)| *asking == nth) {
                asks.insert((after(now, call), nth));
            }
        }
    }
    got
}

fn rate(kbit: u64) -> Option<Rate> {
    Some(Rate::from_bits_per_second(kbit * 1_000))
}

proptest! {
    /// Lateness below the burst is repaid in full: at an account's rate, at the relay's, at a connection's.
    #[test]
    fn late_wakes_lose_nothing_of_a_rate(
        kbit in 500_u64..200_000,
        connections in 1_usize..6,
        want in prop_oneof![20_u64..2_000, 2_000_u64..70_000],
        lateness in [0_u64..80, 0_u64..80],
        level in 0_usize..3,
        seed in any::<u64>(),
    ) {
        let limit = rate(kbit);
        let of = |here: usize| [if level == here { limit } else { None }; 2];
        let mut quota = Quota::new(Config { rates: of(0) }, Time::ZERO);
        let limits = Limits { rates: of(1), each: of(2), ..Limits::default() };
        let account = quota.join(Time::ZERO, limits);
        let count = if level == 2 { 1 } else { connections };
        let flows: Vec<_> =
            (0..count).map(|_| quota.admit(Time::ZERO, account).unwrap()).collect();
        // so many steps that a run is short
        let want = want.max(kbit / 8);
        let got = late(&mut quota, &flows, want, lateness, seed);
        let brought = kbit * 125 * 20;
        // what the last wake was too late for
        let burst = Bucket::burst(limit);
        prop_assert!(got + burst >= brought && got <= brought + 2 * burst, "{got} of {brought}");
    }
}
