use super::*;
use crate::testing::*;

const CLIENT: u64 = 1;
const PEER: u64 = 8;

const fn share(most: u64, of_free: u64) -> AssociationShare {
    AssociationShare { most, of_free, proven: true, known: false, kept: 0 }
}

/// Where a quarter is kept for those that are known.
const fn with_kept(most: u64, known: bool) -> AssociationShare {
    AssociationShare { known, kept: most / 4, ..share(most, CLIENT) }
}

/// A holder takes all that it gets at one time; returns how many, and what ended for that.
fn take(
    all: &mut Associations<u8, u32>,
    now: Time,
    of: AssociationShare,
    holder: u8,
) -> (u64, Vec<u32>) {
    let (mut taken, mut ended) = (0, Vec::new());
    while all.begin(now, of, holder, u32::from(holder), |who| ended.push(who)).is_ok() {
        taken += 1;
    }
    (taken, ended)
}

#[test]
fn one_holder_leaves_a_part_to_those_that_come_later() {
    let mut all = Associations::new();
    assert_eq!(take(&mut all, at(0), share(256, CLIENT), 0), (128, vec![]));
    assert_eq!(all.begin(at(0), share(256, CLIENT), 0, 0, drop), Err(NoAssociation::Share(128)));
    let mut all = Associations::new();
    assert_eq!(take(&mut all, at(0), share(900, PEER), 0), (800, vec![]));
}

#[test]
fn the_largest_above_its_share_gives_its_longest_idle_to_a_newcomer() {
    let mut all = Associations::new();
    let of = share(4, PEER);
    let ids: Vec<_> = (0..3).map(|n| all.begin(at(n), of, 0, n as u32, drop).unwrap()).collect();
    all.begin(at(4), of, 1, 10, drop).unwrap();
    all.on_moved(at(5), ids[0]);
    let mut ended = Vec::new();
    all.begin(at(6), of, 2, 20, |who| ended.push(who)).unwrap();
    assert_eq!(ended, [1], "0 moved since");
    assert_eq!(all.holder(ids[1]), None);
    // two, one and one: nobody has two more than another
    assert_eq!(all.begin(at(7), of, 1, 11, drop), Err(NoAssociation::All));
    assert_eq!(all.on_end(ids[1]), None, "it has ended before");
    assert_eq!(all.held(), 4);
}

#[test]
fn one_that_rested_ends_for_another_of_its_holder_or_of_one_that_has_none() {
    let (of, later) = (share(2, PEER), at(0) + RESTED);
    let mut all = Associations::new();
    all.begin(at(0), of, 0, 0, drop).unwrap();
    all.begin(at(1), of, 1, 1, drop).unwrap();
    assert_eq!(all.begin(at(2), of, 2, 2, drop), Err(NoAssociation::All));
    assert_eq!(all.begin(later, of, 1, 2, drop), Err(NoAssociation::All), "its own has not rested");
    let mut ended = Vec::new();
    all.begin(later, of, 2, 2, |who| ended.push(who)).unwrap();
    assert_eq!(ended, [0]);
    all.begin(later + ms(1), of, 1, 3, |who| ended.push(who)).unwrap();
    assert_eq!(ended, [0, 1]);
}

#[test]
fn those_that_may_be_forged_take_nothing_of_a_share_that_is_proven() {
    let (mut all, of) = (Associations::new(), share(256, CLIENT));
    let (forged, _) = take(&mut all, at(0), AssociationShare { proven: false, ..of }, 0);
    assert_eq!(take(&mut all, at(0), of, 0), ((256 - forged) / 2, vec![]));
    assert_eq!(all.held_by(&0), forged + (256 - forged) / 2);
}

#[test]
fn a_newcomer_that_may_be_forged_ends_none_of_the_proven_that_moves() {
    let mut all = Associations::new();
    take(&mut all, at(0), share(10, PEER), 0);
    let forged = AssociationShare { proven: false, ..share(10, PEER) };
    let mut holders = 1..;
    let mut come = |all: &mut Associations<u8, u32>, now| {
        while all.begin(now, forged, holders.next().unwrap(), 1, drop).is_ok() {}
        all.held_by(&0)
    };
    let before = all.held_by(&0);
    assert!(before >= 8);
    assert_eq!(come(&mut all, at(1)), before);
    all.begin(at(2), share(10, PEER), 200, 1, drop).unwrap();
    assert_eq!(all.held_by(&0), before - 1, "one that is proven takes its part");
}

#[test]
fn holders_that_may_be_forged_leave_a_quarter() {
    let forged = AssociationShare { proven: false, ..share(16, CLIENT) };
    let mut all = Associations::new();
    let mut refused = NoAssociation::All;
    for holder in 0..30 {
        refused = match all.begin(at(0), forged, holder, 0, drop) {
            Err(refused) => refused,
            Ok(_) => continue,
        };
    }
    assert_eq!((all.held(), refused), (12, NoAssociation::Unproven(12)));
    assert_eq!(take(&mut all, at(1), share(16, CLIENT), 100), (2, vec![]));
    take(&mut all, at(1), share(16, PEER), 101);
    assert_eq!(all.held(), 16);
    // one of theirs has rested, and ends for another of theirs
    let mut ended = Vec::new();
    let later = at(0) + RESTED;
    all.begin(later, forged, 50, 50, |who| ended.push(who)).unwrap();
    assert_eq!((all.held_by(&0), &*ended), (0, &[0][..]));
    // all are held, and nobody has two more than a newcomer
    let mut all = Associations::new();
    for holder in 0..12 {
        all.begin(at(0), forged, holder, holder, drop).unwrap();
    }
    for holder in 100..104 {
        all.begin(at(0), share(16, CLIENT), holder, 100, drop).unwrap();
    }
    let mut ended = Vec::new();
    all.begin(at(1), share(16, CLIENT), 200, 200, |who| ended.push(who)).unwrap();
    assert_eq!(ended, [0]);
    let again = all.begin(at(1), share(16, CLIENT), 200, 200, |who| ended.push(who));
    assert_eq!(again, Err(NoAssociation::All), "one each");
}

#[test]
fn two_that_may_be_forged_leave_room_in_their_part() {
    let of = AssociationShare { proven: false, ..share(1_024, CLIENT) };
    let mut all = Associations::new();
    assert_eq!(take(&mut all, at(0), of, 0), (384, vec![]));
    assert_eq!(take(&mut all, at(0), of, 1), (192, vec![]));
    // half of what is free, and then of the one above an even share
    assert_eq!(take(&mut all, at(0), of, 2), (96 + 128, vec![0; 128]));
}

#[test]
fn rested_ones_of_others_end_for_one_that_may_be_forged_only_where_it_has_none() {
    let of = AssociationShare { proven: false, ..share(4, PEER) };
    let (mut all, later) = (Associations::new(), at(0) + RESTED);
    all.begin(at(0), of, 1, 1, drop).unwrap();
    assert_eq!(take(&mut all, later, of, 2), (2, vec![]));
    assert_eq!(all.begin(later, of, 2, 2, drop), Err(NoAssociation::Unproven(3)));
    let mut ended = Vec::new();
    for holder in 3..5_u8 {
        all.begin(later, of, holder, holder.into(), |who| ended.push(who)).unwrap();
    }
    assert_eq!(ended, [1, 2], "the one that rested, then one of the largest");
    assert_eq!(all.begin(later, of, 5, 5, drop), Err(NoAssociation::Unproven(3)), "one each");
}

#[test]
fn addresses_of_their_own_however_many_leave_what_is_kept() {
    let (mut all, mut refused) = (Associations::new(), None);
    for holder in 0..200 {
        let begun = all.begin(at(0), with_kept(64, false), holder, 0, drop);
        refused = begun.err().or(refused);
    }
    assert_eq!((all.held(), refused), (48, Some(NoAssociation::Open(48))));
    assert_eq!(take(&mut all, at(1), with_kept(64, true), 250), (8, vec![]));
    assert_eq!(take(&mut all, at(1), with_kept(64, true), 251).1, [250; 2]);
}

#[test]
fn known_holders_give_to_others_only_beyond_what_is_kept() {
    let mut all = Associations::new();
    assert_eq!(take(&mut all, at(0), with_kept(64, true), 250), (32, vec![]));
    for holder in 0..200 {
        take(&mut all, at(0), with_kept(64, false), holder);
    }
    let held = all.held_by(&250);
    assert!((16..32).contains(&held), "{held}");
}

#[test]
fn holders_that_may_be_forged_shut_out_no_address_beside_what_is_kept() {
    let forged = AssociationShare { proven: false, ..with_kept(64, false) };
    let mut all = Associations::new();
    for holder in 0..100 {
        let _ = all.begin(at(0), forged, holder, 0, drop);
    }
    assert_eq!(all.held(), 48);
    let mut ended = Vec::new();
    all.begin(at(1), with_kept(64, false), 200, 200, |who| ended.push(who)).unwrap();
    assert_eq!((all.held(), &*ended), (48, &[0][..]));
}

#[test]
fn a_lower_limit_is_kept_by_the_next_that_begins() {
    let mut all = Associations::new();
    take(&mut all, at(0), share(900, PEER), 0);
    let mut ended = 0;
    all.begin(at(1), share(10, PEER), 1, 1, |_| ended += 1).unwrap();
    assert_eq!((all.held(), ended), (10, 791));
    assert_eq!(all.begin(at(1), share(0, PEER), 2, 2, drop), Err(NoAssociation::All));
    assert_eq!(all.held(), 10, "none ends for nobody");
}

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Whose, and whether it is proven.
    Begin(u8, bool),
    Move(usize),
    End(usize),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0_u8..6, any::<bool>()).prop_map(|(holder, proven)| Step::Begin(holder, proven)),
        2 => any::<usize>().prop_map(Step::Move),
        1 => any::<usize>().prop_map(Step::End),
        1 => (0_u64..90).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..200)
}

/// What is held, counted plainly: id, holder, when it moved last and in which turn, whether it is proven.
type Plain = Vec<(AssociationId, u8, Time, usize, bool)>;

fn count(plain: &Plain, holder: u8, proven: bool) -> u64 {
    plain.iter().filter(|one| (one.1, one.4) == (holder, proven)).count() as u64
}

proptest! {
    #[test]
    fn the_limit_holds_and_only_the_largest_or_the_rested_end(
        most in 0_u64..24, of_free in prop_oneof![Just(CLIENT), Just(PEER)], steps in steps(),
    ) {
        let mut all = Associations::new();
        let (mut plain, mut now) = (Plain::new(), at(0));
        for (turn, step) in steps.into_iter().enumerate() {
            match step {
                Step::Wait(seconds) => now += Span::from_secs(seconds),
                Step::Move(n) if !plain.is_empty() => {
                    let n = n % plain.len();
                    (plain[n].2, plain[n].3) = (now, turn);
                    all.on_moved(now, plain[n].0);
                }
                Step::End(n) if !plain.is_empty() => {
                    let (id, holder, ..) = plain.swap_remove(n % plain.len());
                    prop_assert_eq!(all.on_end(id), Some(u32::from(holder)));
                }
                Step::Move(_) | Step::End(_) => {}
                Step::Begin(holder, proven) => {
                    let own = count(&plain, holder, proven);
                    let free = most - plain.len() as u64;
                    let of = AssociationShare { proven, ..share(most, of_free) };
                    let unproven = plain.iter().filter(|(.., proven)| !proven).count() as u64;
                    let left = of.unproven() - unproven;
                    let is_part_held = !proven && left == 0;
                    let free_to_it = if proven { free } else { free.min(left) };
                    let largest = |proven| (0..6).map(|one| count(&plain, one, proven)).max().unwrap_or(0);
                    let most_held = if proven { largest(false).max(largest(true)) } else { largest(false) };
                    let mut ended = Vec::new();
                    let begun = all.begin(now, of, holder, holder.into(), |who| ended.push(who));
                    prop_assert!(ended.len() <= 1);
                    let many = proven && unproven > most / 4;
                    if own < of_free * free_to_it {
                        prop_assert!(begun.is_ok() && ended.is_empty());
                    } else if own == 0 && (many || most_held >= 2 && (proven || is_part_held)) {
                        prop_assert_eq!(ended.len(), 1, "a holder that has none finds room");
                    } else {
                        prop_assert_eq!(begun.is_ok(), ended.len() == 1);
                    }
                    if let [whose] = ended[..] {
                        let gone = plain.iter().position(|(id, ..)| all.holder(*id).is_none()).unwrap();
                        let (_, of, moved, turn, is_proven) = plain[gone];
                        prop_assert_eq!(u32::from(of), whose);
                        let longest_idle = |among: &dyn Fn(u8, bool) -> bool| {
                            let its = plain.iter().filter(|one| among(one.1, one.4));
                            its.map(|one| one.3).min() == Some(turn)
                        };
                        let of_holder = longest_idle(&|whose, proven| (whose, proven) == (of, is_proven));
                        let of_unproven = longest_idle(&|_, proven| !proven) && !is_proven;
                        let its = count(&plain, of, is_proven);
                        let fair = (proven || !is_proven) && its == most_held && its >= own + 2;
                        let has_rested = now.since(moved) >= RESTED;
                        let is_own = (of, is_proven) == (holder, proven);
                        let rested = has_rested && (is_own || own == 0 && !is_part_held);
                        let gives_way = own == 0 && (many && free == 0 || is_part_held && has_rested);
                        prop_assert!(of_holder && (fair || rested) || of_unproven && gives_way);
                        plain.swap_remove(gone);
                    }
                    plain.extend(begun.ok().map(|id| (id, holder, now, turn, proven)));
                }
            }
            prop_assert_eq!(all.held(), plain.len() as u64);
            prop_assert!(all.held() <= most);
            let unproven = plain.iter().filter(|(.., proven)| !proven).count() as u64;
            prop_assert!(unproven <= most - most / 4);
            for holder in 0..6 {
                let held = count(&plain, holder, false) + count(&plain, holder, true);
                prop_assert_eq!(all.held_by(&holder), held);
            }
        }
    }

    #[test]
    fn each_that_asks_on_gets_half_an_even_share_and_swaps_end(
        most in 1_u64..200, holders in 1_u8..8, of_free in prop_oneof![Just(CLIENT), Just(PEER)],
        proven in any::<bool>(),
    ) {
        let (mut all, of) = (Associations::new(), AssociationShare { proven, ..share(most, of_free) });
        // each round takes until it gets no more; the squares' sum falls with each swap
        for _ in 0..=holders {
            for holder in 0..holders {
                take(&mut all, at(0), of, holder);
            }
        }
        let part = if proven { most } else { of.unproven() };
        let even = part / u64::from(holders);
        for holder in 0..holders {
            prop_assert!(all.held_by(&holder) >= even / 2, "{} of {even}", all.held_by(&holder));
        }
        let again: Vec<_> = (0..holders).map(|holder| take(&mut all, at(0), of, holder)).collect();
        prop_assert!(again.iter().all(|(taken, ended)| *taken == 0 && ended.is_empty()), "{again:?}");
    }

    #[test]
    fn known_holders_find_what_is_kept_and_keep_it(
        most in 1_u64..60, kept in 0_u64..70,
        begins in proptest::collection::vec((0_u8..40, 0_u8..3), 1..300),
    ) {
        let mut all = Associations::new();
        let of_known = |all: &Associations<u8, u32>| (80..120).map(|holder| all.held_by(&holder)).sum::<u64>();
        for (holder, standing) in begins {
            let (proven, known) = (standing > 0, standing == 2);
            let of = AssociationShare { proven, known, kept, ..share(most, CLIENT) };
            let holder = standing * 40 + holder;
            let (before, own) = (of_known(&all), all.held_by(&holder));
            let begun = all.begin(at(0), of, holder, 0, drop).is_ok();
            prop_assert!(begun || !known || own > 0 || before >= kept.min(most));
            prop_assert!(known || of_known(&all) >= before.min(kept));
            prop_assert!(all.held() <= most && all.held() - of_known(&all) <= of.open());
        }
    }

    /// Its way is what is free of their part, or else one of the largest of them. Forged ones come so, too, until each has
    /// a sixteenth at most.
    #[test]
    fn fifteen_that_may_be_forged_do_not_shut_out_another_and_keep_a_sixteenth(
        most in 22_u64..300, of_free in prop_oneof![Just(CLIENT), Just(PEER)],
        takes in proptest::collection::vec((0_u8..15, 1_u32..300), 1..40),
    ) {
        let of = AssociationShare { proven: false, ..share(most, of_free) };
        let mut all = Associations::new();
        for (holder, wanted) in takes {
            (0..wanted).take_while(|who| all.begin(at(0), of, holder, *who, drop).is_ok()).for_each(drop);
        }
        let before: Vec<_> = (0..15).map(|holder| all.held_by(&holder)).collect();
        prop_assert!(all.begin(at(0), of, 15, 0, drop).is_ok(), "{before:?}");
        for forged in 16..=255 {
            let _ = all.begin(at(0), of, forged, 0, drop);
        }
        for (holder, before) in (0..15).zip(before) {
            let (held, kept) = (all.held_by(&holder), of.unproven() / 16);
            prop_assert!(held >= before.min(kept), "{held} of {before}");
        }
    }
}
