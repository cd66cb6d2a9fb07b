//! The allocator in small situations whose figures are computed by hand.

use super::*;
use crate::testing::*;

/// A look at a path of so many ms with T₀ = 4 RTT, nothing sent yet: the prior of 0.1 % loss counts.
fn path(rtt_ms: u64) -> ConnectionFacts {
    let (rtt, rto) = (ms(rtt_ms), ms(4 * rtt_ms));
    ConnectionFacts { rtt, rto, mss: 1_460, ..ConnectionFacts::default() }
}

/// γ · λ · RTT at 0.1 % loss and any RTT (algorithms/buffers A.3: λ · RTT = 39,627), γ = 4/3, in bytes.
const NEED: u64 = 52_837;
const SEND: NewConnection = NewConnection { gamma: RENO, mss: 1_460, send: true, receive: false };
const RECEIVE: NewConnection = NewConnection { send: false, receive: true, ..SEND };

fn explicit(pool: Bytes) -> Allocator {
    Allocator::new(Config { enough: Enough::Demand, ..Config::new(pool) }, Time::ZERO)
}

fn demands(allocator: &Allocator) -> Vec<u64> {
    allocator.snapshot().buffers.iter().map(|row| row.demand.as_u64()).collect()
}

fn grants(allocator: &Allocator) -> Vec<Option<u64>> {
    let rows = allocator.snapshot().buffers;
    rows.iter().map(|row| row.grant.map(Bytes::as_u64)).collect()
}

/// After the tick at this time, in ms.
fn demands_at(allocator: &mut Allocator, ms: u64) -> Vec<u64> {
    allocator.on_deadline(at(ms));
    demands(allocator)
}

fn grants_at(allocator: &mut Allocator, ms: u64) -> Vec<Option<u64>> {
    allocator.on_deadline(at(ms));
    grants(allocator)
}

/// Bytes as of a 100 ms look each, so that `rate` bytes per second come in.
fn receives(allocator: &mut Allocator, id: u64, from_ms: u64, rtt_ms: u64, rate: u64) {
    for n in 1..=10 {
        let facts = ConnectionFacts { bytes_received: rate * n / 10, ..path(rtt_ms) };
        allocator.on_facts(at(from_ms + 100 * n), id, &facts);
    }
}

#[test]
fn a_congestion_control_that_is_known_later_counts_from_the_next_tick() {
    let mut allocator = explicit(Bytes::mib(1));
    allocator.on_open(Time::ZERO, 1, SEND);
    allocator.on_facts(at(500), 1, &path(100));
    assert_eq!(demands_at(&mut allocator, 1_000), [NEED]);
    // γ = 2 in place of 4/3
    allocator.on_gamma(1, 2.0);
    let [demand] = demands_at(&mut allocator, 2_000)[..] else { panic!("one buffer") };
    assert!(demand.abs_diff(NEED * 3 / 2) <= 1, "{demand}");
}

#[test]
fn new_connection_starts_at_first_size_then_follows_the_equation() {
    let mut allocator = explicit(Bytes::mib(1));
    let opened = allocator.on_open(Time::ZERO, 1, SEND);
    let grant = Grant::Bytes(Bytes::kib(16));
    assert_eq!(opened, [Change { id: 1, side: Side::Send, grant }]);
    allocator.on_facts(at(500), 1, &path(100));
    assert_eq!(allocator.on_deadline(at(999)), []);
    // 52,837 bytes in whole KiB
    let grant = Grant::Bytes(Bytes::kib(52));
    assert_eq!(allocator.deadline(), at(1_000));
    assert_eq!(allocator.on_deadline(at(1_000)), [Change { id: 1, side: Side::Send, grant }]);
    assert_eq!((demands(&allocator), allocator.deadline()), (vec![NEED], at(2_000)));
    let words = allocator.explain(1)[0].to_string();
    let expected = "send: 52 KiB granted; 52 KiB of use: 1.33 × 3.17 Mbit/s × 100 ms, limited by its path \
                    (0.1 % lost)";
    assert_eq!(words, expected);
}

#[test]
fn miss_couples_to_the_slower_path_and_hit_does_not() {
    let mut allocator = explicit(Bytes::mib(1));
    allocator.on_open(Time::ZERO, 1, SEND);
    allocator.on_open(Time::ZERO, 2, RECEIVE);
    allocator.on_pair(1, 2);
    allocator.on_facts(at(500), 1, &path(50));
    // 100,000 B/s over 200 ms: λ is 125,000, the client's path could do 792,542
    receives(&mut allocator, 2, 0, 200, 100_000);
    assert_eq!(
        demands_at(&mut allocator, 1_000),
        [8_334, 33_334],
        "γ · 125,000 · 50 ms and · 200 ms"
    );
    let why: Vec<_> = allocator.snapshot().buffers.iter().map(|row| row.why.to_string()).collect();
    assert_eq!(
        why,
        [
            "1.33 × 1 Mbit/s × 50 ms, limited by connection 2",
            "1.33 × 1 Mbit/s × 200 ms, limited by what it received lately"
        ]
    );
    allocator.on_hit(1);
    assert_eq!(demands_at(&mut allocator, 2_000), [NEED, 33_334]);
    allocator.on_miss(1);
    assert_eq!(demands_at(&mut allocator, 3_000), [8_334, 33_334]);
    // a server faster than the client: the receive buffer is no larger than is useful
    receives(&mut allocator, 2, 3_000, 200, 20_000_000);
    assert_eq!(demands_at(&mut allocator, 4_000), [NEED, 211_345], "γ · 792,542 · 200 ms");
    assert_eq!(allocator.explain(2)[0].why.to_string().split(" by ").last(), Some("connection 1"));
    // partners no longer
    allocator.on_unpair(2);
    allocator.on_deadline(at(5_000));
    let why = allocator.explain(2)[0].why.to_string();
    assert!(why.ends_with("limited by what it received lately"), "{why}");
}

#[test]
fn a_tunnel_couples_both_directions() {
    let mut allocator = explicit(Bytes::mib(9));
    let rate = |bytes: u64| Some(Rate::from_bits_per_second(8 * bytes));
    for (id, send, receive) in [(1, 50_000, 900_000), (2, 400_000, 70_000)] {
        allocator.on_open(Time::ZERO, id, NewConnection { gamma: 1.0, ..NewConnection::default() });
        allocator.on_facts(at(500), id, &path(1_000));
        allocator.on_known(id, Side::Send, rate(send));
        allocator.on_known(id, Side::Receive, rate(receive));
    }
    assert_eq!(demands_at(&mut allocator, 1_000), [50_000, 900_000, 400_000, 70_000]);
    allocator.on_pair(1, 2);
    assert_eq!(demands_at(&mut allocator, 2_000), [50_000, 400_000, 400_000, 50_000]);
    allocator.on_close(2);
    assert_eq!(demands_at(&mut allocator, 3_000), [50_000, 900_000]);
    // estimated again, once a path is there
    allocator.on_known(1, Side::Send, None);
    assert_eq!(demands_at(&mut allocator, 4_000), [39_628, 900_000]);
}

/// Four senders with a need of 52 KiB each in a pool of 128 KiB.
fn four(config: Config) -> Allocator {
    let mut allocator = Allocator::new(config, Time::ZERO);
    for id in 1..=4 {
        allocator.on_open(Time::ZERO, id, SEND);
        allocator.on_facts(at(500), id, &path(100));
    }
    allocator.on_deadline(at(1_000));
    allocator
}

#[test]
fn shrinking_idle_buffer_frees_memory_in_the_same_tick() {
    let config = Scheme::Shrinking.buffers(Bytes::kib(128));
    let kib = |sizes: [u64; 4]| sizes.map(|size| Some(size * 1_024)).to_vec();
    let mut allocator = four(config);
    assert_eq!(grants(&allocator), kib([32; 4]));
    allocator.on_idle(4);
    assert_eq!(grants_at(&mut allocator, 2_000), kib([32; 4]), "scheme 2: as it was");
    let mut halvings = 0;
    // 41 instead of 40 is not worth a call
    let expected = [(16, 37), (8, 40), (4, 40), (2, 42), (1, 42), (1, 42)];
    for (second, (expected, others)) in (3..).zip(expected) {
        halvings += u64::from(allocator.on_shrink(4));
        let changes = allocator.on_deadline(at(second * 1_000));
        assert_eq!(grants(&allocator), kib([others, others, others, expected]));
        if expected > 1 {
            assert_eq!(changes[0].id, 4, "what shrinks comes first");
        }
    }
    assert_eq!(halvings, 4, "at the fifth it is as small as it gets");
    assert_eq!(allocator.explain(4)[0].why.to_string(), "idle, halved 5 times");
    // used again: the first size at once, as far as there is room, and its share soon after
    let raised = allocator.on_active(at(8_500), 4);
    let free = 128 - 3 * 42 - 1;
    let grant = Grant::Bytes(Bytes::kib(1 + free));
    assert_eq!(raised, [Change { id: 4, side: Side::Send, grant }]);
    assert_eq!(allocator.deadline(), at(8_510), "there was less than the first size");
    assert_eq!(
        grants_at(&mut allocator, 8_510),
        kib([32; 4]),
        "as the equation has it, whose path is known"
    );
    assert_eq!(allocator.on_active(at(8_600), 4), [], "it is not idle");
    assert!(!allocator.on_shrink(4));
}

#[test]
fn kernel_tunes_while_the_pool_suffices() {
    let mut allocator = four(Config::new(Bytes::kib(4 * 52)));
    assert_eq!(grants(&allocator), [None; 4]);
    assert_eq!(allocator.on_open(at(1_100), 5, SEND)[0].grant, Grant::Automatic);
    allocator.on_facts(at(1_200), 5, &path(100));
    let changes = allocator.on_deadline(at(2_000));
    let size = 4 * 52 * 1_024 / 5 / 1_024 * 1_024;
    assert_eq!(grants(&allocator), [Some(size); 5]);
    assert_eq!(changes.len(), 5);
    let told = allocator.snapshot();
    assert_eq!((told.short, told.shortage), (true, Bytes::kib(52)));
    assert!(told.granted <= told.budget);
    // newcomers find nothing free, and do not wait a whole period for it
    let opened = allocator.on_open(at(2_300), 6, SEND);
    assert_eq!(opened[0].grant, Grant::Bytes(Bytes::kib(4 * 52 - 5 * 41)));
    assert_eq!(allocator.deadline(), at(2_310));
    assert_eq!(grants_at(&mut allocator, 2_310)[5], Some(16 * 1_024));
    // 4 · 52 is not a tenth below the pool, 3 · 52 is
    allocator.on_close(6);
    allocator.on_close(5);
    assert_eq!(grants_at(&mut allocator, 3_000), [Some(52 * 1_024); 4]);
    allocator.on_close(4);
    let changes = allocator.on_deadline(at(4_000));
    assert_eq!(grants(&allocator), [None; 3]);
    assert!(changes.iter().all(|change| change.grant == Grant::Automatic));
    assert!(allocator.explain(1)[0].to_string().starts_with("send: tuned by the kernel"));
}

#[test]
fn fixed_buffers_are_fixed() {
    let mut allocator = four(Scheme::Conventional.buffers(Bytes::kib(32)));
    assert_eq!(grants(&allocator), [Some(16_384); 4]);
    assert_eq!(allocator.on_deadline(at(9_000)), []);
    assert_eq!(allocator.explain(1)[0].why, DemandOrigin::Fixed);
    // and are shared out once the settings say so
    allocator.set_config(at(9_100), Scheme::Buffers.buffers(Bytes::kib(32)));
    assert_eq!(allocator.deadline(), at(9_100));
    assert_eq!(allocator.on_deadline(at(9_100)).len(), 4);
    assert_eq!(grants(&allocator), [Some(8_192); 4]);
}

#[test]
fn queued_bytes_are_never_taken_away() {
    let mut allocator = four(Scheme::Buffers.buffers(Bytes::kib(128)));
    allocator.on_facts(at(1_500), 4, &ConnectionFacts { queued: 31_000, ..path(100) });
    // three more with the same need: a fair share is 18 KiB
    for id in 5..=7 {
        allocator.on_open(at(1_600), id, SEND);
        allocator.on_facts(at(1_700), id, &path(100));
    }
    allocator.on_deadline(at(2_000));
    let fourth = grants(&allocator)[3];
    assert_eq!(fourth, Some(32 * 1_024), "a KiB more than its queue is not worth a call");
    assert_eq!(grants(&allocator)[0], Some(16 * 1_024), "the others share the other 97");
    // more queued than the pool: the pool holds, and who has most queued gives most
    for (id, queued) in [(3, 100_000), (4, 50_000)] {
        allocator.on_facts(at(2_500), id, &ConnectionFacts { queued, ..path(100) });
    }
    allocator.on_deadline(at(3_000));
    let told = allocator.snapshot();
    assert!(told.granted <= told.budget);
    assert_eq!(told.overdrawn, Bytes::new(150_000 - 128 * 1_024));
}

#[test]
fn utilisation_corrects_unpaired_buffers() {
    let mut allocator = explicit(Bytes::mib(1));
    allocator.on_open(Time::ZERO, 1, SEND);
    allocator.on_open(Time::ZERO, 2, RECEIVE);
    let mut period = |n: u64| {
        for look in 1..=10 {
            let facts = ConnectionFacts { queued: 1_000, ..path(100) };
            allocator.on_facts(at(n * 1_000 + 100 * look), 1, &facts);
        }
        allocator.on_deadline(at((n + 1) * 1_000));
        demands(&allocator)[0]
    };
    assert_eq!([0, 1, 2, 3].map(&mut period), [NEED, NEED, NEED / 2, NEED / 2]);
    let why = allocator.explain(1)[0].why.to_string();
    assert!(why.ends_with("1/2 of it, since little of it was used"), "{why}");
    allocator.on_pair(1, 2);
    assert_eq!(demands_at(&mut allocator, 5_000)[0], NEED, "what pairing says is better");
    allocator.on_unpair(1);
    // busy and never stopped by its buffer: the demand is what it has
    let mut allocator = explicit(Bytes::mib(1));
    allocator.on_open(Time::ZERO, 1, SEND);
    for n in 1..=10 {
        let (busy, limited) = (ms(100 * n), Some(Span::ZERO));
        let facts = ConnectionFacts { queued: 8_000, busy, buffer_limited: limited, ..path(100) };
        allocator.on_facts(at(100 * n), 1, &facts);
    }
    assert_eq!(demands_at(&mut allocator, 1_000), [16_384]);
    let why = allocator.explain(1)[0].why.to_string();
    assert!(why.ends_with("limited by the size it has, which seldom stops it"), "{why}");
    // told not to look at use, it goes by the equation
    allocator.set_config(at(1_000), Config { by_use: false, ..Config::new(Bytes::mib(1)) });
    assert_eq!(demands_at(&mut allocator, 1_000), [NEED]);
}

#[test]
fn doubles_a_limiting_receive_buffer() {
    let mut allocator = explicit(Bytes::mib(1));
    allocator.on_open(Time::ZERO, 1, RECEIVE);
    // 150,000 B/s over 100 ms: 15,000 of 16 KiB on their way. The estimate asks for 25,000
    receives(&mut allocator, 1, 0, 100, 150_000);
    assert_eq!(demands_at(&mut allocator, 1_000), [25_000]);
    for n in 1..=10 {
        let bytes_received = 150_000 + 24_000 * n;
        let facts = ConnectionFacts { bytes_received, unread: 9_000, ..path(100) };
        allocator.on_facts(at(1_000 + 100 * n), 1, &facts);
    }
    // 9,000 unread and 15,000 coming in 25 KiB: doubled, beside what the higher rate asks
    assert_eq!(demands_at(&mut allocator, 2_000), [2 * 40_000]);
}

#[test]
fn refused_sizes_are_not_requested_again() {
    let mut allocator = explicit(Bytes::mib(64));
    allocator.on_open(at(0), 1, NewConnection { receive: false, ..NewConnection::default() });
    allocator.on_facts(at(100), 1, &path(100));
    allocator.on_deadline(at(1_000));
    let before = demands(&allocator)[0];
    assert!(before > 16_384, "{before}");
    allocator.on_limit(Side::Receive, Bytes::new(1_024));
    assert_eq!(demands_at(&mut allocator, 2_000)[0], before, "the other side's limit");
    allocator.on_limit(Side::Send, Bytes::kib(16));
    assert_eq!(grants_at(&mut allocator, 3_000), [Some(16_384)]);
}
