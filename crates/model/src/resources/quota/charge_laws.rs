//! What holds for bytes that are charged, by random operations.

use super::*;
use crate::testing::*;

proptest! {
    /// Bytes that are charged take their part of the rate: all that passes stays within it, but for what is still owed.
    #[test]
    fn charged_bytes_are_paid_out_of_the_rate(
        mbit in 1_u64..50,
        of_relay in any::<bool>(),
        charges in prop::collection::vec((1_u64..200, 0_u64..100_000), 1..50),
    ) {
        let rate = Some(Rate::from_bits_per_second(mbit * 1_000_000));
        let of = |mine| if mine { [rate; 2] } else { [None; 2] };
        let mut quota = Quota::new(Config { rates: of(of_relay) }, Time::ZERO);
        let limits = Limits { rates: of(!of_relay), ..Limits::default() };
        let account = quota.join(Time::ZERO, limits);
        let flow = quota.admit(Time::ZERO, account).unwrap();
        let burst = mbit * 125_000 / 5;
        let (mut now, mut passed) = (Time::ZERO, 0);
        for (wait, bytes) in charges {
            let until = now + ms(wait);
            passed += cases::greedy(&mut quota, &[flow], Direction::Down, 65_536, now, until)[0];
            now = until;
            let whole = mbit * 125 * now.as_nanos() / 1_000_000;
            prop_assert!(passed <= whole + burst, "{passed} of {whole}");
            let mut due = bytes;
            while due > 0 {
                let counted = quota.charge(now, account, Direction::Down, Bytes::new(due)).unwrap();
                prop_assert!(of_relay || counted.as_u64() == due, "its own rate delays what follows");
                due -= counted.as_u64();
                now += ms(u64::from(due > 0));
            }
            passed += bytes;
            // nothing passes until all is paid
            now = quota.paid_at(now, account, Direction::Down);
            prop_assert!(now < Time::NEVER);
        }
        let end = now + ms(1_000);
        passed += cases::greedy(&mut quota, &[flow], Direction::Down, 65_536, now, end)[0];
        let whole = mbit * 125 * end.as_nanos() / 1_000_000;
        prop_assert!(passed + 65_536 >= whole, "{passed} of {whole}: none is lost");
    }

    /// However many bytes of others are charged, an account gets its part of the relay's rate.
    #[test]
    fn charged_bytes_of_others_take_no_turns(
        mbit in 4_u64..50,
        chargers in 1_usize..5,
        bytes in 1_000_u64..100_000,
    ) {
        let rate = Some(Rate::from_bits_per_second(mbit * 1_000_000));
        let mut quota = Quota::new(Config { rates: [rate; 2] }, Time::ZERO);
        let flooding: Vec<_> = (0..chargers).map(|_| quota.join(Time::ZERO, Limits::default())).collect();
        let account = quota.join(Time::ZERO, Limits::default());
        let flow = quota.admit(Time::ZERO, account).unwrap();
        let mut got = 0;
        for millis in 0..10_000 {
            let now = Time::ZERO + ms(millis);
            quota.on_deadline(now);
            for other in &flooding {
                quota.charge(now, *other, Direction::Down, Bytes::new(bytes));
            }
            while let QuotaAnswer::Go(go) = quota.ask(now, flow, Direction::Down, Bytes::new(65_536)) {
                got += go.as_u64();
                quota.on_moved(now, flow, Direction::Down, go);
            }
        }
        let part = mbit * 1_250_000 / (1 + chargers as u64);
        prop_assert!(got >= part * 9 / 10, "{got} of {part}");
    }
}
