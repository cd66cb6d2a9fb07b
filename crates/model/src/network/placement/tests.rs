use super::*;
use crate::control::formula::reno_window;
use crate::testing::*;

const GIGABIT: Rate = Rate::from_bits_per_second(1_000_000_000);

fn segment(rtt_us: u64, loss_ppm: u64) -> Segment {
    let loss = Share::from_parts_per_billion(loss_ppm * 1_000).unwrap();
    Segment { rtt: Span::from_micros(rtt_us), loss }
}

/// Mbit/s of 1, 8, 32, 128 MiB over 50 ms in 1, 2, 4, 5 equal segments of 1 Gbit/s; 0: not given.
#[test]
fn starts_cost_as_computed() {
    let table = [
        (
            10,
            Growth::Doubling,
            Bytes::mib(3),
            [[19, 31, 0, 49], [117, 199, 280, 302], [275, 498, 608, 634], [417, 799, 861, 874]],
        ),
        (
            3,
            Growth::OneAndAHalf,
            Bytes::mib(3),
            [[12, 21, 0, 38], [71, 128, 207, 234], [199, 370, 511, 550], [364, 702, 807, 830]],
        ),
        (
            10,
            Growth::Doubling,
            Bytes::kib(384),
            [[20, 32, 0, 51], [49, 92, 162, 191], [59, 115, 221, 271], [62, 123, 243, 302]],
        ),
    ];
    for (initial_window, growth, window, rows) in table {
        let sender = Sender { initial_window, growth, window, ..Sender::default() };
        for (row, mib) in rows.iter().zip([1, 8, 32, 128]) {
            for (expected, k) in
                row.iter().zip([1_usize, 2, 4, 5]).filter(|(expected, _)| **expected > 0)
            {
                let rtts = vec![Span::from_micros(50_000 / k as u64); k];
                let bytes = Bytes::mib(mib);
                let time = transfer_time(&sender, &rtts, GIGABIT, bytes).unwrap();
                let rate = Rate::of(bytes, time).unwrap();
                let mbit = (rate.as_bits_per_second() + 500_000) / 1_000_000;
                assert_eq!(mbit, *expected, "{mib} MiB in {k} from {initial_window}");
            }
        }
    }
}

#[test]
fn nothing_to_send_at_has_no_time() {
    let sender = Sender::default();
    let ms = [Span::from_millis(1)];
    assert_eq!(transfer_time(&sender, &[], GIGABIT, Bytes::mib(1)), None);
    assert_eq!(transfer_time(&sender, &ms, Rate::default(), Bytes::mib(1)), None);
    let time = transfer_time(&Sender { mss: Bytes::ZERO, ..sender }, &ms, GIGABIT, Bytes::mib(1));
    assert_eq!(time, None);
    // nothing but the way there and back, twice
    assert_eq!(transfer_time(&sender, &ms, GIGABIT, Bytes::ZERO), Some(Span::from_millis(2)));
    // without round trips the line remains: 1,448 bytes × 8 ns × 1,000
    let near = transfer_time(&sender, &[Span::ZERO], GIGABIT, Bytes::new(1_448_000));
    assert_eq!(near, Some(Span::from_nanos(11_584_000)));
}

#[test]
fn equal_loss_puts_the_relay_in_the_middle_and_uneven_loss_near_the_lossy_end() {
    let at = |left_ppm, right_ppm| {
        let candidates: Vec<_> = (1..50)
            .map(|ms| [segment(ms * 1_000, left_ppm), segment((50 - ms) * 1_000, right_ppm)])
            .collect();
        best_position(candidates.iter().map(|both| both.as_slice())).map(|at| at + 1)
    };
    assert_eq!(at(1_000, 1_000), Some(25));
    assert_eq!(at(0, 0), Some(25), "windows limit");
    // RTT · √p equal on both sides at 10 : 40 when the losses are 16 : 1
    assert_eq!(at(1_600, 100), Some(10));
    assert_eq!(at(100, 1_600), Some(40));
    assert_eq!(at(1_000, 0), Some(1));
    assert_eq!(best_position([]), None);
    let (near, none) = ([segment(1, 1)], []);
    assert_eq!(best_position([none.as_slice(), near.as_slice()]), Some(1));
}

proptest! {
    #[test]
    fn the_best_position_has_the_highest_limit(
        candidates in proptest::collection::vec([(1_u64..500_000, 1_u64..50_000), (1_u64..500_000, 1_u64..50_000)], 1..20),
    ) {
        let candidates: Vec<_> = candidates.iter().map(|both| both.map(|(rtt, loss)| segment(rtt, loss))).collect();
        let best = best_position(candidates.iter().map(|both| both.as_slice())).unwrap();
        let least = |both: &[Segment; 2]| {
            let limit = |of: &Segment| {
                let loss = of.loss.as_parts_per_billion() as f64 / 1e9;
                reno_window(1.0, loss) / of.rtt.as_secs_f64()
            };
            both.iter().map(limit).fold(f64::INFINITY, f64::min)
        };
        let highest = candidates.iter().map(least).fold(0.0, f64::max);
        prop_assert!(least(&candidates[best]) >= highest * (1.0 - 1e-12));
    }

    #[test]
    fn more_takes_longer_and_nothing_overflows(
        bytes: u64, more in 0_u64..1 << 40, rtts in proptest::collection::vec(0_u64.., 1..6), rate in 1_u64..,
        window in 1_u64.., initial_window: u32,
    ) {
        let window = Bytes::new(window);
        let sender = Sender { window, initial_window, growth: Growth::OneAndAHalf, ..Sender::default() };
        let rtts: Vec<_> = rtts.into_iter().map(Span::from_nanos).collect();
        let line = Rate::from_bits_per_second(rate);
        let time = |bytes| transfer_time(&sender, &rtts, line, Bytes::new(bytes)).unwrap();
        prop_assert!(time(bytes) <= time(bytes.saturating_add(more)));
    }
}
