//! What holds of the allocator after every operation (algorithms/buffers A.6), whatever is told in which order.

use super::*;
use crate::testing::*;

#[derive(Debug, Clone, Copy)]
enum Step {
    Open { id: u64, sides: (bool, bool) },
    Close { id: u64 },
    Pair { a: u64, b: u64 },
    Unpair { id: u64 },
    Source { id: u64, hit: bool },
    Facts { id: u64, facts: ConnectionFacts },
    Known { id: u64, side: bool, rate: Option<u64> },
    Idle { id: u64 },
    Active { id: u64 },
    Shrink { id: u64 },
    Rest { id: u64 },
    Awake { id: u64 },
    Pool { kib: u64 },
    Tick { after_ms: u64 },
}

fn facts() -> impl Strategy<Value = ConnectionFacts> {
    let queue = || prop_oneof![4 => Just(0_u64), 3 => 0_u64..40_000, 1 => 0_u64..600_000];
    let counters = (0_u64..100_000, 0_u64..2_000, 0_u64..50, 0_u64..50_000_000);
    let path = (0_u64..600, 0_u32..4, proptest::option::of(0_u64..300_000), 0_u64..3_000);
    (path, counters, (queue(), queue()), (0_u64..9_000, any::<bool>())).prop_map(
        |(path, counters, (queued, unread), (busy, held_back))| ConnectionFacts {
            rtt: ms(path.0),
            rto: ms(path.3),
            backoff: path.1,
            mss: 1_460,
            send_window: path.2,
            segments_sent: counters.0,
            retransmitted: counters.1,
            spurious: counters.2,
            busy: ms(busy),
            buffer_limited: held_back.then_some(ms(busy / 3)),
            bytes_received: counters.3,
            queued,
            unread,
            held_back,
        },
    )
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = || 0_u64..8;
    let rate = proptest::option::of(0_u64..100_000_000);
    let step = prop_oneof![
        6 => (id(), any::<(bool, bool)>()).prop_map(|(id, sides)| Step::Open { id, sides }),
        2 => id().prop_map(|id| Step::Close { id }),
        3 => (id(), id()).prop_map(|(a, b)| Step::Pair { a, b }),
        1 => id().prop_map(|id| Step::Unpair { id }),
        1 => (id(), any::<bool>()).prop_map(|(id, hit)| Step::Source { id, hit }),
        9 => (id(), facts()).prop_map(|(id, facts)| Step::Facts { id, facts }),
        1 => (id(), any::<bool>(), rate).prop_map(|(id, side, rate)| Step::Known { id, side, rate }),
        3 => id().prop_map(|id| Step::Idle { id }),
        2 => id().prop_map(|id| Step::Active { id }),
        3 => id().prop_map(|id| Step::Shrink { id }),
        4 => id().prop_map(|id| Step::Rest { id }),
        2 => id().prop_map(|id| Step::Awake { id }),
        1 => (1_u64..900).prop_map(|kib| Step::Pool { kib }),
        6 => (0_u64..1_500).prop_map(|after_ms| Step::Tick { after_ms }),
    ];
    proptest::collection::vec(step, 0..150)
}

fn configs() -> impl Strategy<Value = Config> {
    let pool = prop_oneof![1_u64..40, 40_u64..900, Just(100_000)];
    (pool, any::<[bool; 3]>()).prop_map(|(kib, [automatic, equal, by_use])| Config {
        enough: if automatic { Enough::Automatic } else { Enough::Demand },
        excess: if equal { Excess::Equal } else { Excess::Proportional },
        by_use,
        ..Config::new(Bytes::kib(kib))
    })
}

/// What the driver's sockets have, kept by applying changes one by one.
#[derive(Default)]
struct Sockets(BTreeMap<(u64, Side), Option<u64>>);

impl Sockets {
    fn apply(&mut self, changes: &[Change], pool: Option<u64>) {
        for change in changes {
            let size = match change.grant {
                Grant::Automatic => None,
                Grant::Bytes(bytes) => Some(bytes.as_u64()),
            };
            self.0.insert((change.id, change.side), size);
            let sum: u64 = self.0.values().flatten().sum();
            // at every step of the way
            assert!(pool.is_none_or(|pool| sum <= pool), "{sum} of {pool:?}");
        }
    }
}

/// The snapshot after each step. `all`: each tick decides for all connections.
fn run(config: Config, steps: &[Step], all: bool) -> Vec<Snapshot> {
    let mut snapshots = Vec::new();
    let mut config = config;
    let mut allocator = Allocator::new(config, Time::ZERO);
    let mut sockets = Sockets::default();
    let mut open: BTreeMap<u64, NewConnection> = BTreeMap::new();
    let (mut now, mut lowered) = (Time::ZERO, false);
    for step in steps {
        let pool = config.pool.as_u64();
        match *step {
            Step::Open { id, sides: (send, receive) } => {
                let one = NewConnection { send, receive, ..NewConnection::default() };
                sockets.0.retain(|(other, _), _| *other != id);
                let changes = allocator.on_open(now, id, one);
                assert_eq!(changes.len(), usize::from(send) + usize::from(receive), "each is told");
                sockets.apply(&changes, (!lowered).then_some(pool));
                open.insert(id, one);
            }
            Step::Close { id } => {
                allocator.on_close(id);
                sockets.0.retain(|(other, _), _| *other != id);
                open.remove(&id);
            }
            Step::Pair { a, b } => allocator.on_pair(a, b),
            Step::Unpair { id } => allocator.on_unpair(id),
            Step::Source { id, hit: true } => allocator.on_hit(id),
            Step::Source { id, hit: false } => allocator.on_miss(id),
            Step::Facts { id, facts } => allocator.on_facts(now, id, &facts),
            Step::Known { id, side, rate } => {
                let side = if side { Side::Send } else { Side::Receive };
                allocator.on_known(id, side, rate.map(Rate::from_bits_per_second));
            }
            Step::Idle { id } => allocator.on_idle(id),
            Step::Active { id } => {
                let changes = allocator.on_active(now, id);
                sockets.apply(&changes, (!lowered).then_some(pool));
            }
            Step::Shrink { id } => {
                let before = allocator.explain(id);
                allocator.on_shrink(id);
                for (before, after) in before.iter().zip(allocator.explain(id)) {
                    assert!(after.demand <= before.demand, "shrinking never grows");
                }
            }
            Step::Rest { id } => allocator.on_rest(id),
            Step::Awake { id } => allocator.on_awake(now, id),
            Step::Pool { kib } => {
                lowered |= Bytes::kib(kib) < config.pool;
                config.pool = Bytes::kib(kib);
                allocator.set_config(now, config);
                assert_eq!(allocator.deadline(), now);
            }
            Step::Tick { after_ms } => {
                now += ms(after_ms);
                let due = allocator.deadline() <= now;
                allocator.all_due |= all;
                let changes = allocator.on_deadline(now);
                assert!(due || changes.is_empty(), "nothing between ticks");
                // a lowered pool holds once the tick is through
                sockets.apply(&changes, (!lowered).then_some(pool));
                if due {
                    lowered = false;
                    after_tick(&allocator.snapshot(), &config);
                }
                assert!(allocator.deadline() > now);
            }
        }
        let told = allocator.snapshot();
        let row = |row: &Row| ((row.id, row.side), row.grant.map(Bytes::as_u64));
        let rows: BTreeMap<_, _> = told.buffers.iter().map(row).collect();
        assert_eq!(rows, sockets.0, "whoever applies the changes has what the snapshot says");
        let sum: u64 = sockets.0.values().flatten().sum();
        assert_eq!(told.granted.as_u64(), sum);
        assert!(lowered || told.granted <= told.budget);
        let buffers = open.values().map(|one| usize::from(one.send) + usize::from(one.receive));
        assert_eq!(rows.len(), buffers.sum::<usize>());
        assert!(allocator.deadline() <= now + config.period);
        snapshots.push(told);
    }
    snapshots
}

/// What a tick leaves behind.
fn after_tick(told: &Snapshot, config: &Config) {
    let unit = |bytes: u64| bytes.div_ceil(UNIT) * UNIT;
    let held: u64 = told.buffers.iter().map(|row| unit(row.queued.as_u64())).sum();
    let wants = |row: &Row| unit(row.demand.as_u64()).max(unit(row.queued.as_u64()));
    let wanted: u64 = told.buffers.iter().map(wants).sum();
    assert!(told.granted <= told.budget);
    // of whoever is not idle the floor too, which is in the demand
    assert_eq!(told.demand.as_u64(), wanted);
    assert_eq!(told.shortage.as_u64(), wanted.saturating_sub(told.budget.as_u64()));
    assert!(told.short || wanted <= told.budget.as_u64());
    for row in &told.buffers {
        assert!(row.demand <= config.ceiling, "{row:?}");
        match row.grant {
            None => assert!(!told.short && config.enough == Enough::Automatic),
            Some(grant) => {
                let pooled = held > told.budget.as_u64();
                assert!(pooled || grant >= row.queued, "below what is queued: {row:?}");
                assert!(grant.as_u64() < UNIT || grant.as_u64() % UNIT == 0 || !told.short);
            }
        }
        assert!(!format!("{row}").is_empty());
    }
}

proptest! {
    #[test]
    fn pool_and_queues_hold_under_any_events(config in configs(), steps in steps()) {
        let first = run(config, &steps, false);
        prop_assert_eq!(first, run(config, &steps, false), "the same again");
    }

    #[test]
    fn ticks_of_those_awake_decide_as_ticks_of_all(config in configs(), steps in steps()) {
        prop_assert_eq!(run(config, &steps, false), run(config, &steps, true));
    }
}
