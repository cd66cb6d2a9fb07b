use super::*;
use crate::testing::*;

const GIGABIT: Rate = Rate::from_bits_per_second(1_000_000_000);

fn segment(rtt_us: u64, loss_ppm: u64) -> Segment {
    let loss = Share::from_parts_per_billion(loss_ppm * 1_000).unwrap();
    Segment { rtt: Span::from_micros(rtt_us), loss }
}

fn tenths(rate: Option<Rate>) -> f64 {
    (rate.unwrap().as_bits_per_second() as f64 / 1e5).round() / 10.0
}

#[test]
fn windows_limit_as_computed() {
    for (window, expected) in [
        (Bytes::new(65_535), [10.5, 21.0, 41.9, 52.4]),
        (Bytes::kib(256), [41.9, 83.9, 167.8, 209.7]),
        (Bytes::kib(512), [83.9, 167.8, 335.5, 419.4]),
        (Bytes::mib(1), [167.8, 335.5, 671.1, 838.9]),
    ] {
        let sender = Sender { window, ..Sender::default() };
        let told = [50_000, 25_000, 12_500, 10_000]
            .map(|us| tenths(sender.window_limit(Span::from_micros(us))));
        assert_eq!(told, expected, "{window}");
    }
}

#[test]
fn losses_limit_as_computed() {
    let sender = Sender::default();
    for (ppm, ms, reno, cubic) in [
        (10, 50, 89.7, 145.2),
        (10, 25, 179.5, 179.5),
        (100, 50, 28.4, 28.4),
        (100, 25, 56.7, 56.7),
        (100, 10, 141.9, 141.9),
        (1_000, 50, 9.0, 9.0),
        (1_000, 25, 17.9, 17.9),
        (1_000, 10, 44.9, 44.9),
        (4_000, 50, 4.5, 4.5),
        (4_000, 25, 9.0, 9.0),
        (4_000, 10, 22.4, 22.4),
    ] {
        let segment = segment(ms * 1_000, ppm);
        assert_eq!(tenths(sender.loss_limit(segment)), reno, "Reno, {ppm} ppm, {ms} ms");
        assert_eq!(tenths(sender.cubic_loss_limit(segment)), cubic, "CUBIC, {ppm} ppm, {ms} ms");
    }
    assert_eq!(sender.loss_limit(segment(50_000, 0)), None);
    assert_eq!(sender.cubic_loss_limit(segment(0, 10)), None);
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
                let rate = transfer_rate(&sender, &rtts, GIGABIT, Bytes::mib(mib)).unwrap();
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

#[test]
fn the_slowest_segment_sets_the_rate() {
    let sender = Sender::default();
    let path = [segment(10_000, 0), segment(40_000, 1_000), segment(50_000, 10)];
    let (rate, at) = steady_rate(&sender, &path, GIGABIT);
    assert_eq!((Some(rate), at), (sender.cubic_loss_limit(path[1]), Some(1)));
    assert_eq!(steady_rate(&sender, &path[..1], GIGABIT), (GIGABIT, None));
}

proptest! {
    #[test]
    fn the_best_position_has_the_highest_limit(
        candidates in proptest::collection::vec([(1_u64..500_000, 1_u64..50_000), (1_u64..500_000, 1_u64..50_000)], 1..20),
    ) {
        let candidates: Vec<_> = candidates.iter().map(|both| both.map(|(rtt, loss)| segment(rtt, loss))).collect();
        let best = best_position(candidates.iter().map(|both| both.as_slice())).unwrap();
        let least = |both: &[Segment; 2]| {
            let limit = |segment: &Segment| Sender::default().loss_limit(*segment).unwrap().as_bits_per_second();
            both.iter().map(limit).min().unwrap()
        };
        let highest = candidates.iter().map(least).max().unwrap();
        // rounded down, both of them
        prop_assert!(least(&candidates[best]) + highest / 1_000_000 + 8 >= highest);
    }

    #[test]
    fn more_takes_longer_and_nothing_overflows(
        bytes: u64, more in 0_u64..1 << 40, rtts in proptest::collection::vec(0_u64.., 1..6), rate in 1_u64..,
        window in 1_u64.., initial_window: u32, loss in 0_u64..=1_000_000_000,
    ) {
        let window = Bytes::new(window);
        let sender = Sender { window, initial_window, growth: Growth::OneAndAHalf, ..Sender::default() };
        let rtts: Vec<_> = rtts.into_iter().map(Span::from_nanos).collect();
        let line = Rate::from_bits_per_second(rate);
        let time = |bytes| transfer_time(&sender, &rtts, line, Bytes::new(bytes)).unwrap();
        prop_assert!(time(bytes) <= time(bytes.saturating_add(more)));
        let loss = Share::from_parts_per_billion(loss).unwrap();
        let limits = sender.limits(Segment { rtt: rtts[0], loss });
        prop_assert!(limits.cubic_loss.is_none_or(|cubic| Some(cubic) >= limits.loss));
    }
}
