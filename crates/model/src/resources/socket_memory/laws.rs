//! Laws of the kernel's memory for TCP sockets: the large give it back, and a newcomer is never held back.

use super::tests::{CONFIG, LIMIT, MIB, closed, served};
use super::*;
use crate::testing::*;

/// How the connections of a source behave once they hold what they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    Stops,
    TakesALittle,
}

fn connections() -> impl Strategy<Value = Vec<ServedConnection<u8>>> {
    let one = (0_u8..6, 0_u64..20, prop::option::weighted(0.8, 0_u64..20));
    let one = one.prop_map(|(holder, mib, since)| ServedConnection {
        account: holder > 3,
        still_since: since.map(|second| at(second * 1_000)),
        ..served(holder, mib, 0)
    });
    prop::collection::vec(one, 0..40)
}

proptest! {
    #[test]
    fn the_large_give_and_nobody_who_moves(connections in connections(), excess in 0_u64..100) {
        let chosen = closed(excess, &connections);
        let mut left = BTreeMap::<u8, u64>::new();
        for one in &connections {
            *left.entry(one.holder).or_default() += one.held;
        }
        let large = |left: &BTreeMap<u8, u64>, own: u64| {
            let others = left.values().sum::<u64>() - own;
            own >= LIMIT / 16 && left.len() > 1 && own * (left.len() as u64 - 1) >= 2 * others
        };
        let first = left.clone();
        let (mut freed, mut accounts) = (0, false);
        for at_place in &chosen {
            prop_assert!(freed < excess * MIB, "no more than is needed");
            let one = connections[*at_place];
            prop_assert!(one.still_since.is_some_and(|since| since <= at(12_000)));
            prop_assert!(one.account || !accounts, "accounts last");
            accounts = one.account;
            let own = left[&one.holder];
            prop_assert!(large(&left, own) && large(&first, first[&one.holder]));
            for (other, held) in &left {
                let gives = connections.iter().enumerate().any(|(at_other, one)| {
                    one.holder == *other
                        && one.account == accounts
                        && one.still_since.is_some_and(|since| since <= at(12_000))
                        && !chosen.contains(&at_other)
                });
                prop_assert!(*held <= own || !gives || !large(&first, first[other]), "the largest first");
            }
            *left.get_mut(&one.holder).unwrap() -= one.held;
            freed += one.held;
        }
        let once: BTreeSet<_> = chosen.iter().collect();
        prop_assert_eq!(once.len(), chosen.len());
    }

    /// Sources open as many as they are let, each second, of which each takes some memory and gives nothing back.
    #[test]
    fn a_newcomer_is_never_held_back_and_readers_that_stopped_not_kept(
        readers in prop::collection::vec(
            (prop_oneof![Just(Reader::Stops), Just(Reader::TakesALittle)], 1_u64..40, 1_u64..8),
            1..5,
        ),
        comes in 0_u64..60,
    ) {
        const NEWCOMER: u8 = 99;
        let mut memory = SocketMemory::new(CONFIG);
        let mut held = Vec::<(ServedConnection<u8>, Reader)>::new();
        let (mut low, mut low_for) = (false, 0);
        for second in 0..120 {
            let now = at(second * 1_000);
            for (source, (reader, count, mib)) in readers.iter().enumerate() {
                for _ in 0..*count {
                    let holder = source as u8;
                    if low && !memory.admits(&holder) {
                        break;
                    }
                    if low {
                        memory.on_admitted(now, holder);
                    }
                    held.push((served(holder, *mib, second), *reader));
                }
            }
            let came = second >= comes;
            if came && low {
                prop_assert!(memory.admits(&NEWCOMER), "held back at {second} s");
                memory.on_admitted(now, NEWCOMER);
            }
            for (one, reader) in &mut held {
                if *reader == Reader::TakesALittle {
                    one.still_since = Some(now);
                }
            }
            let used: u64 = held.iter().map(|(one, _)| one.held).sum();
            low = used > if low { LIMIT / 10 * 9 } else { LIMIT / 20 * 19 };
            if !low {
                memory.on_enough();
                low_for = 0;
                continue;
            }
            low_for += 1;
            let mut connections: Vec<_> = held.iter().map(|(one, _)| *one).collect();
            if came {
                connections.push(served(NEWCOMER, 0, second));
            }
            let shortage = SocketShortage { limit: LIMIT, excess: used - LIMIT / 10 * 9 };
            let mut chosen = memory.on_low(now, shortage, &connections);
            chosen.sort_unstable();
            for at_place in chosen.into_iter().rev() {
                let (_, reader) = held.remove(at_place);
                prop_assert_eq!(reader, Reader::Stops, "who moves stays");
            }
            // one source alone against the newcomer: what stands still is given back
            let alone = readers.len() == 1 && readers[0].0 == Reader::Stops;
            prop_assert!(!(alone && came && second >= comes + 10) || low_for <= 12, "kept for {low_for} s");
        }
    }
}
