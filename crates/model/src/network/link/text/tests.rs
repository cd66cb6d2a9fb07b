use super::*;
use crate::testing::*;
use alloc::sync::Arc;

fn share() -> impl Strategy<Value = Share> {
    prop_oneof![
        Just(Share::NONE),
        Just(Share::ALL),
        (0_u64..=1_000_000_000).prop_map(|n| Share::from_parts_per_billion(n).unwrap()),
    ]
}

fn unit() -> impl Strategy<Value = LossUnit> {
    prop_oneof![
        Just(LossUnit::Packet),
        Just(LossUnit::SuperPacket),
        (any::<u64>(), any::<u64>()).prop_map(|(most, gap)| LossUnit::Train {
            most: Bytes::new(most),
            gap: Span::from_nanos(gap)
        }),
    ]
}

fn loss() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::None),
        (share(), unit()).prop_map(|(share, unit)| Loss::Independent(share, unit)),
        ([share(), share(), share(), share()], unit()).prop_map(|(shares, unit)| {
            let [to_bad, to_good, good_loss, bad_loss] = shares;
            Loss::GilbertElliott(GilbertElliott { to_bad, to_good, good_loss, bad_loss }, unit)
        }),
        proptest::collection::btree_set(any::<u64>(), 0..9)
            .prop_map(|list| Loss::Listed(Arc::new(list))),
    ]
}

fn serialiser() -> impl Strategy<Value = Serialiser> {
    prop_oneof![
        Just(Serialiser::Infinite),
        any::<u64>().prop_map(|bits| Serialiser::Rate(Rate::from_bits_per_second(bits))),
        proptest::collection::vec(1_u32.., 1..9).prop_map(|mut times| {
            times.sort_unstable();
            let lines: Vec<String> = times.iter().map(ToString::to_string).collect();
            Serialiser::Trace(Trace::parse(&lines.join("\n")).unwrap())
        }),
    ]
}

fn scheduled() -> impl Strategy<Value = Scheduled> {
    let change = prop_oneof![
        serialiser().prop_map(Change::Serialiser),
        any::<u64>().prop_map(|n| Change::Delay(Span::from_nanos(n))),
        loss().prop_map(Change::Loss),
    ];
    (any::<u64>(), change).prop_map(|(at, change)| Scheduled { at: Span::from_nanos(at), change })
}

fn length() -> impl Strategy<Value = QueueLength> {
    prop_oneof![
        Just(QueueLength::Unlimited),
        any::<u64>().prop_map(QueueLength::Packets),
        any::<u64>().prop_map(|n| QueueLength::Bytes(Bytes::new(n))),
        any::<u64>().prop_map(|n| QueueLength::Time(Span::from_nanos(n))),
    ]
}

proptest! {
    #[test]
    fn printed_text_parses_back(length in length(), entry in scheduled(), unit in unit()) {
        prop_assert_eq!(length.to_string().parse(), Ok(length));
        prop_assert_eq!(unit.to_string().parse(), Ok(unit));
        prop_assert_eq!(entry.to_string().parse(), Ok(entry));
    }

    #[test]
    fn no_text_upsets_a_reader(text in "([a-z0-9.%(),: -]|per |good |bad |gilbert|packets|train|rate |loss ){0,12}") {
        let _ = (text.parse::<QueueLength>(), text.parse::<QueueKind>(), text.parse::<LossUnit>());
        if let Ok(entry) = text.parse::<Scheduled>() {
            prop_assert_eq!(entry.to_string().parse(), Ok(entry));
        }
        if let Ok(loss) = text.parse::<Loss>() {
            prop_assert_eq!(loss.to_string().parse(), Ok(loss));
        }
    }
}

#[test]
fn parses_common_spellings() {
    assert_eq!("100ms".parse(), Ok(QueueLength::Time(ms(100))));
    assert_eq!("50packets".parse(), Ok(QueueLength::Packets(50)));
    assert_eq!("1 packet".parse(), Ok(QueueLength::Packets(1)));
    assert_eq!("64KiB".parse(), Ok(QueueLength::Bytes(Bytes::kib(64))));
    assert_eq!("unlimited".parse(), Ok(QueueLength::Unlimited));
    let kinds = [QueueKind::DropTail, QueueKind::Priority, QueueKind::AckFirst, QueueKind::FqCodel];
    for kind in kinds {
        assert_eq!(kind.to_string().parse(), Ok(kind));
    }
    for (text, printed) in [
        ("0.1%", "0.1 %"),
        ("0.4% per super-packet", "0.4 % per super-packet"),
        ("gilbert(1%,10%)", "gilbert(1 %, 10 %)"),
        ("gilbert(1%, 10%, bad 80%)", "gilbert(1 %, 10 %, bad 80 %)"),
        ("packets(17,3,18)", "packets(3, 17, 18)"),
        ("1% per train(65535B, 1ms)", "1 % per train(65535 B, 1 ms)"),
    ] {
        assert_eq!(text.parse::<Loss>().map(|loss| loss.to_string()), Ok(printed.into()), "{text}");
    }
    for (text, printed) in [
        ("10s: rate 2 Mbit/s", "10 s: rate 2 Mbit/s"),
        ("30s: delay 300ms", "30 s: delay 300 ms"),
        ("40s:loss 5%", "40 s: loss 5 %"),
        ("1min: rate trace(5,10)", "60 s: rate trace(5, 10)"),
    ] {
        let read = text.parse::<Scheduled>().map(|entry| entry.to_string());
        assert_eq!(read, Ok(printed.into()), "{text}");
    }
}

#[test]
fn refuses_with_the_place_and_an_example() {
    fn refused<T: FromStr<Err = TextError>>(text: &str) -> String {
        text.parse::<T>().err().expect(text).to_string()
    }
    for (message, parts) in [
        (refused::<QueueLength>("100"), ["`100`", "50 packets"]),
        (refused::<QueueLength>("x packets"), ["`x`", "50 packets"]),
        (refused::<QueueKind>("red"), ["`red`", "fq-codel"]),
        (refused::<Loss>("5"), ["`5`", "gilbert(1 %, 10 %)"]),
        (refused::<Loss>("gilbert(1%)"), ["turning good is missing", "gilbert(1 %, 10 %)"]),
        (refused::<Loss>("gilbert(1%, 2%, worse 3%)"), ["`worse 3%`", "bad 80 %"]),
        (refused::<Loss>("packets(3,x)"), ["`x`", "packets(3, 17)"]),
        (refused::<Loss>("none per packet"), ["only a share", "0.1 %"]),
        (refused::<Loss>("1% per day"), ["`day`", "super-packet"]),
        (refused::<Scheduled>("10s rate 2 Mbit/s"), ["no `:`", "10 s: rate"]),
        (refused::<Scheduled>("10: rate 2 Mbit/s"), ["unit is missing", "10 s: rate"]),
        (refused::<Scheduled>("10s: speed 2"), ["`speed 2`", "delay 300 ms"]),
        (refused::<Serialiser>("trace(5,x)"), ["line 2", "trace(5, 10, 12)"]),
    ] {
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
}

#[test]
fn a_length_in_time_needs_a_rate() {
    let rate = |bits| Serialiser::Rate(Rate::from_bits_per_second(bits));
    let time = QueueLength::Time(ms(100));
    assert_eq!(time.bound(&rate(10_000_000)), Ok(Bound::Bytes(Bytes::new(125_000))));
    assert_eq!(QueueLength::Packets(5).bound(&Serialiser::Infinite), Ok(Bound::Packets(5)));
    for none in [Serialiser::Infinite, rate(0)] {
        assert!(time.bound(&none).unwrap_err().to_string().contains("give a rate"));
    }
    // 2 × 1,504 bytes in 10 ms
    let trace = Serialiser::Trace(Trace::parse("5\n10\n").unwrap());
    assert_eq!(time.bound(&trace), Ok(Bound::Bytes(Bytes::new(30_080))));
}
