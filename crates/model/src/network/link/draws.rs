//! Random links, packets and changes for the laws.

use super::cases::packet;
use super::*;
use crate::testing::*;

pub(super) fn disciplines() -> impl Strategy<Value = Discipline> {
    let bound = prop_oneof![
        Just(Bound::Unlimited),
        (0_u64..20).prop_map(Bound::Packets),
        (0_u64..20_000).prop_map(|n| Bound::Bytes(Bytes::new(n))),
        (0_u64..20).prop_map(|n| Bound::Bytes(Bytes::new(500 * n))),
    ];
    prop_oneof![
        bound.clone().prop_map(Discipline::DropTail),
        bound.clone().prop_map(Discipline::Priority),
        bound.prop_map(Discipline::AckFirst),
        (1_u32..8, 1_u64..30, 1_000_u64..40_000, any::<bool>()).prop_map(
            |(flows, limit, memory, ecn)| {
                // a short target, so that CoDel drops within a case
                let (target, interval) = (Span::from_millis(1), Span::from_millis(4));
                let memory = Bytes::new(memory);
                let rfc = FqCodelConfig::default();
                Discipline::FqCodel(FqCodelConfig {
                    flows,
                    limit,
                    memory,
                    ecn,
                    target,
                    interval,
                    ..rfc
                })
            }
        ),
    ]
}

pub(super) fn losses() -> impl Strategy<Value = Loss> {
    let share = |percent| Share::from_percent(percent).unwrap();
    let unit = prop_oneof![
        Just(LossUnit::Packet),
        Just(LossUnit::SuperPacket),
        (1_500_u64..20_000, 0_u64..4_000).prop_map(|(most, gap)| LossUnit::Train {
            most: Bytes::new(most),
            gap: Span::from_micros(gap),
        }),
    ];
    let chain = GilbertElliott {
        to_bad: share(10),
        to_good: share(30),
        good_loss: share(1),
        bad_loss: share(80),
    };
    prop_oneof![
        Just(Loss::None),
        ((0_u64..=100).prop_map(share), unit.clone())
            .prop_map(|(p, unit)| Loss::Independent(p, unit)),
        unit.prop_map(move |unit| Loss::GilbertElliott(chain, unit)),
        proptest::collection::btree_set(0_u64..100, 0..20)
            .prop_map(|list: BTreeSet<u64>| Loss::Listed(alloc::sync::Arc::new(list))),
    ]
}

/// From mostly full to mostly empty; at 8 Mbit/s a byte takes a µs, so that ends and arrivals meet.
pub(super) fn rates() -> impl Strategy<Value = Serialiser> {
    let bits = prop_oneof![
        64_000_u64..1_000_000,
        1_000_000_u64..8_000_000,
        8_000_000_u64..100_000_000,
        Just(8_000_000),
    ];
    bits.prop_map(|bits| Serialiser::Rate(Rate::from_bits_per_second(bits)))
}

pub(super) fn traces() -> impl Strategy<Value = Trace> {
    proptest::collection::vec(0_u32..40, 1..20).prop_map(|mut times| {
        times.sort_unstable();
        times.push(41);
        let lines: Vec<_> = times.iter().map(|time| format!("{time}\n")).collect();
        Trace::parse(&lines.concat()).unwrap()
    })
}

pub(super) fn serialisers() -> impl Strategy<Value = Serialiser> {
    prop_oneof![
        4 => rates(),
        2 => traces().prop_map(Serialiser::Trace),
        1 => Just(Serialiser::Infinite),
        1 => Just(Serialiser::Rate(Rate::from_bits_per_second(0))),
    ]
}

type Entries = (Vec<(Span, Change)>, Option<Span>);

pub(super) fn schedules() -> impl Strategy<Value = Entries> {
    let change = prop_oneof![
        serialisers().prop_map(Change::Serialiser),
        (0_u64..50).prop_map(|ms| Change::Delay(Span::from_millis(ms))),
        losses().prop_map(Change::Loss),
    ];
    let entry = (0_u64..300_000, change).prop_map(|(us, change)| (Span::from_micros(us), change));
    let period = proptest::option::of((301_u64..900).prop_map(Span::from_millis));
    (proptest::collection::vec(entry, 0..6), period)
}

pub(super) fn configs() -> impl Strategy<Value = Config> {
    let times = (0_u64..50, prop_oneof![Just(0_u64), 0_u64..20], any::<bool>());
    let stages = (disciplines(), serialisers(), losses(), prop_oneof![Just(0_u32), 0_u32..39]);
    (stages, times, any::<u64>(), prop_oneof![Just((Vec::new(), None)), schedules()]).prop_map(
        |((discipline, serialiser, loss, framing), (delay, jitter, reorder), seed, schedule)| {
            Config {
                discipline,
                serialiser,
                framing,
                loss,
                delay: Span::from_millis(delay),
                jitter: Span::from_millis(jitter),
                reorder,
                seed,
                schedule: schedule.0,
                schedule_period: schedule.1,
            }
        },
    )
}

/// (gap since the last in µs, bytes, class, flow)
pub(super) fn arrivals() -> impl Strategy<Value = Vec<(u64, u32, u8, u64)>> {
    // some at once, some just behind one another, seldom a long silence
    let gap = prop_oneof![
        9 => Just(0_u64),
        9 => Just(500),
        18 => 0_u64..3_000,
        1 => 0_u64..4_000_000,
    ];
    let bytes = prop_oneof![Just(500_u32), 40_u32..1501];
    proptest::collection::vec((gap, bytes, 0_u8..10, 0_u64..4), 1..150)
}

pub(super) fn packets(arrivals: &[(u64, u32, u8, u64)]) -> Vec<(Time, Packet)> {
    let mut now = Time::ZERO;
    let with_time = arrivals.iter().zip(0_u64..).map(|((gap, bytes, class, flow), id)| {
        now += Span::from_micros(*gap);
        let segments = if id % 5 == 0 { 3 } else { 1 };
        let (class, flow, ecn_capable) = (*class, *flow, *flow == 0);
        (now, Packet { class, flow, segments, ecn_capable, ..packet(id, *bytes) })
    });
    with_time.collect()
}
