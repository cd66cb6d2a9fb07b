//! What holds of [`Sources`] after any sequence of events.

use super::*;
use crate::testing::*;
use core::net::IpAddr;

const DAY: Span = Span::from_secs(86_400);

fn sources(strangers: u64) -> Sources<u32> {
    Sources::new(SourcesConfig { strangers, remembered: DAY, most_known: 3 })
}

const fn at_address(n: u32) -> Source {
    Source::V4(n)
}

/// Four addresses, and two peers.
const fn some_source(n: u32) -> Source {
    if n < 4 { at_address(n) } else { Source::Peer(n) }
}

#[test]
fn an_ipv4_address_and_an_ipv6_64_are_one_source_each() {
    let source = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
    assert_eq!(source("192.0.2.1"), source("::ffff:192.0.2.1"));
    assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
    assert_eq!(source("2001:db8:0:1::1"), source("2001:db8:0:1:ffff::2"));
    assert_ne!(source("2001:db8:0:1::1"), source("2001:db8:0:2::1"));
}

#[test]
fn the_largest_source_gives_its_longest_silent() {
    let (mut sources, large, small) = (sources(100), at_address(1), at_address(2));
    let ids: Vec<PlaceId> = (0..4).map(|n| sources.on_admit(at(0), large, n)).collect();
    sources.on_admit(at(0), small, 9);
    let new = at_address(3);
    assert_eq!(sources.victim(Some(new), false), Some(ids[0]));
    // it sent a request, and another has a head under way
    sources.on_busy(ids[0]);
    sources.on_silent(ids[1], false);
    assert_eq!(sources.victim(Some(new), false), Some(ids[2]));
    sources.on_silent(ids[0], true);
    assert_eq!(sources.on_close(ids[2]), Some(2));
    assert_eq!(sources.victim(Some(small), false), Some(ids[3]));
    sources.on_close(ids[3]);
    assert_eq!(sources.victim(Some(small), false), None, "2 and 1 are as even as can be");
    assert_eq!(sources.victim(Some(large), false), None);
    assert_eq!(
        sources.victim(Some(new), false),
        Some(ids[1]),
        "an address without a place gets one"
    );
}

#[test]
fn a_source_is_small_beside_one_that_holds_more_than_twice_as_much() {
    let (mut sources, large, small) = (sources(100), at_address(1), at_address(2));
    let one = sources.on_admit(at(0), small, 7);
    assert!(!sources.is_small(one), "nobody holds more");
    let others: Vec<PlaceId> = (1..4).map(|n| sources.on_admit(at(0), large, n)).collect();
    assert!(sources.is_small(one) && !sources.is_small(others[0]));
    let heaviest = |sources: &Sources<u32>| sources.heaviest(99, sources.large(), |b| (*b).into());
    assert_eq!(heaviest(&sources), [others[2], others[1], others[0]], "and not the small one's 7");
    assert_eq!(sources.held_by_silent(|bytes| (*bytes).into()), 7 + 1 + 2 + 3);
    for busy in &others {
        sources.on_busy(*busy);
    }
    assert!(sources.is_small(one), "whether they are silent is all the same");
    assert_eq!(heaviest(&sources), []);
    sources.on_close(others[0]);
    assert!(!sources.is_small(one), "2 and 1");
    sources.on_log_in(at(1), others[1]);
    assert!(sources.is_small(others[1]), "an account is no stranger");
    assert!(!sources.is_small(others[0]), "it is gone");
}

#[test]
fn of_equal_sources_the_longest_silent_gives() {
    let mut sources = sources(100);
    let first = sources.on_admit(at(0), at_address(5), 0);
    sources.on_admit(at(0), at_address(9), 1);
    let last = sources.on_admit(at(0), at_address(7), 2);
    assert_eq!(sources.victim(Some(at_address(1)), false), Some(first));
    sources.on_close(first);
    assert_ne!(sources.victim(Some(at_address(1)), false), Some(last));
}

#[test]
fn sources_of_a_log_in_are_known_for_a_day_and_the_oldest_is_forgotten() {
    let mut sources = sources(0);
    for n in 0..4 {
        let id = sources.on_admit(at(u64::from(n)), at_address(n), n);
        sources.on_log_in(at(u64::from(n)), id);
        sources.on_close(id);
    }
    let known = |sources: &Sources<u32>, now| {
        (0..5).filter(|n| sources.has_room(now, at_address(*n))).collect::<Vec<_>>()
    };
    assert_eq!(known(&sources, at(9)), [1, 2, 3]);
    assert_eq!(known(&sources, at(2) + DAY), [3]);
    sources.on_admit(at(2) + DAY, at_address(9), 9);
    assert_eq!(sources.snapshot().known, 1);
}

#[test]
fn a_source_is_written_as_its_address_or_network() {
    let written = |text: &str| Source::from(text.parse::<IpAddr>().unwrap()).to_string();
    assert_eq!(written("192.0.2.1"), "192.0.2.1");
    assert_eq!(written("2001:db8:0:1::1"), "2001:db8:0:1::/64");
}

#[test]
fn flows_of_a_peer_give_no_place_and_a_peer_that_holds_as_many_takes_none() {
    let (mut sources, address, peer) = (sources(0), at_address(1), Source::Peer(1));
    let silent = sources.on_admit(at(0), address, 1);
    let flows: Vec<PlaceId> = (0..9).map(|n| sources.on_admit(at(0), peer, n)).collect();
    assert!(sources.has_room(at(0), peer) && !sources.has_room(at(0), address));
    assert_eq!(sources.snapshot().strangers, 1, "a peer is none");
    assert_eq!(sources.snapshot().largest, Some((peer, 9)));
    assert_eq!(sources.victim(Some(peer), false), None);
    assert_eq!(sources.victim(Some(Source::Peer(2)), false), Some(silent), "it holds nothing");
    sources.on_close(silent);
    assert_eq!(sources.victim(Some(at_address(2)), false), None);
    // places of flows say nothing of who holds memory
    assert_eq!(sources.large(), 0);
    for flow in flows {
        assert!(sources.on_close(flow).is_some());
    }
    assert!(sources.may_begin(peer, 1));
    assert_eq!(sources.snapshot(), SourcesSnapshot::default());
}

/// One address asks for all it can get, each connection with others within it, as TLS has them.
#[test]
fn one_stranger_in_service_leaves_places_to_others() {
    for (strangers, places, inner) in [(1_500, 2_000, 0), (1_500, 2_000, 1), (u64::MAX, 2_000, 1)] {
        let (mut sources, greedy) = (sources(strangers), at_address(1));
        let mut served = None;
        while sources.places_held() < places && sources.has_room(at(0), greedy) {
            let id = sources.on_admit(at(0), greedy, 0);
            (0..inner).for_each(|_| sources.on_inner(id));
            if !sources.may_serve(id, places) {
                sources.on_close(id);
                break;
            }
            sources.on_busy(id);
            served = Some(id);
        }
        // nor may it have more within what it has, as HTTP/2 would
        assert!(!sources.may_hold_within(served.unwrap(), places));
        let most = strangers.min(places);
        let held = sources.held(greedy);
        assert!((most - most / 9..=most - most / 9 + 1).contains(&held), "{held} of {most}");
        let other = at_address(2);
        assert!(sources.has_room(at(0), other));
        let id = sources.on_admit(at(0), other, 0);
        assert!(sources.has_room_within(id) && sources.may_serve(id, places));
        assert!(sources.may_hold_within(id, places));
        sources.on_busy(id);
        // an account is no stranger, and what it holds is not theirs
        sources.on_log_in(at(0), id);
        assert!(!sources.may_begin(greedy, places));
        assert_eq!(sources.snapshot().strangers, held);
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Come(u32),
    Busy(usize),
    Silent(usize),
    LogIn(usize),
    Inner(usize),
    Close(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        // one source comes far more often
        6 => Just(Step::Come(1)),
        3 => (0_u32..6).prop_map(Step::Come),
        2 => any::<usize>().prop_map(Step::Busy),
        2 => any::<usize>().prop_map(Step::Silent),
        1 => any::<usize>().prop_map(Step::LogIn),
        1 => any::<usize>().prop_map(Step::Inner),
        1 => any::<usize>().prop_map(Step::Close),
    ];
    proptest::collection::vec(step, 0..200)
}

/// A connection as a plain row, to compare.
#[derive(Debug, Clone, Copy)]
struct Row {
    id: PlaceId,
    source: Source,
    places: u64,
    busy: bool,
    logged_in: bool,
    /// When it was admitted from a known source, or logged in.
    known: bool,
}

const PLACES: u64 = 12;
const KEPT: u64 = 4;

#[derive(Default)]
struct Gate {
    rows: Vec<Row>,
}

impl Gate {
    fn used(&self) -> u64 {
        self.rows.iter().map(|row| row.places).sum()
    }

    fn held(&self, source: Source) -> u64 {
        let of = self.rows.iter().filter(|row| row.source == source && !row.logged_in);
        of.map(|row| row.places).sum()
    }

    fn served(&self) -> u64 {
        self.rows.iter().filter(|row| row.busy).map(|row| row.places).sum()
    }

    fn close(&mut self, sources: &mut Sources<u32>, id: PlaceId) -> Row {
        let at = self.rows.iter().position(|row| row.id == id).unwrap();
        assert!(sources.on_close(id).is_some() && sources.on_close(id).is_none());
        self.rows.swap_remove(at)
    }
}

proptest! {
    #[test]
    fn no_source_below_its_share_is_refused_while_another_is_above(steps in steps()) {
        let (mut sources, mut gate) = (sources(PLACES - KEPT), Gate::default());
        for (now, step) in steps.into_iter().enumerate() {
            let now = at(now as u64);
            let addresses = gate.rows.iter().filter(|row| !row.source.is_invited());
            let most = addresses.map(|row| gate.held(row.source)).max().unwrap_or(0);
            prop_assert_eq!(sources.large(), most.div_ceil(2));
            let chosen = |at: usize| (!gate.rows.is_empty()).then(|| at % gate.rows.len());
            // a flow is one request until it ends
            let changes = |at: usize| chosen(at).filter(|at| !gate.rows[*at].source.is_invited());
            match step {
                Step::Come(n) => {
                    let source = some_source(n);
                    let known = sources.is_known(now, source);
                    prop_assert!(known || !source.is_invited());
                    if source.is_invited() && !sources.may_begin(source, PLACES) {
                        // it has some of what is served, and one more is free at most
                        prop_assert!(gate.held(source) > 0 && gate.served() + 1 >= PLACES);
                        continue;
                    }
                    let room = sources.has_room(now, source);
                    prop_assert!(room || !known, "a known source has room in the kept places");
                    let full = gate.used() >= PLACES;
                    if !room || full {
                        let Some(id) = sources.victim(Some(source), !room) else {
                            // all others with a silent connection hold as few
                            let held = gate.held(source);
                            for row in gate.rows.iter().filter(|row| !row.busy && !row.logged_in) {
                                let counts = room || !row.known;
                                prop_assert!(held > 0 || !counts);
                                prop_assert!(gate.held(row.source) <= held + 1 || !counts);
                            }
                            continue;
                        };
                        let before = gate.held(source);
                        let given = gate.close(&mut sources, id);
                        prop_assert!(!given.busy && !given.logged_in);
                        prop_assert!(before == 0 || gate.held(given.source) + given.places >= before + 2);
                    }
                    let id = sources.on_admit(now, source, n);
                    let busy = source.is_invited();
                    gate.rows.push(Row { id, source, places: 1, busy, logged_in: false, known });
                }
                Step::Busy(at) => if let Some(at) = changes(at) && !gate.rows[at].busy {
                    gate.rows[at].busy = true;
                    sources.on_busy(gate.rows[at].id);
                },
                Step::Silent(at) => if let Some(at) = changes(at) {
                    let busy = std::mem::take(&mut gate.rows[at].busy);
                    sources.on_silent(gate.rows[at].id, busy);
                },
                Step::LogIn(at) => if let Some(at) = changes(at) {
                    let source = gate.rows[at].source;
                    gate.rows[at].logged_in = true;
                    sources.on_log_in(now, gate.rows[at].id);
                    gate.rows.iter_mut().filter(|row| row.source == source).for_each(|row| row.known = true);
                },
                Step::Inner(at) => if let Some(at) = changes(at) {
                    let row = &mut gate.rows[at];
                    if row.places > 1 {
                        row.places -= 1;
                        sources.on_inner_closed(row.id);
                    } else if sources.snapshot().strangers < PLACES - KEPT || row.known {
                        row.places += 1;
                        sources.on_inner(row.id);
                    }
                },
                Step::Close(at) => if let Some(at) = chosen(at) {
                    gate.close(&mut sources, gate.rows[at].id);
                },
            }
            let seen = sources.snapshot();
            // log-ins always find the places kept for them
            prop_assert!(seen.strangers <= PLACES - KEPT);
            let held: u64 = (0..6).map(|n| gate.held(some_source(n))).sum();
            prop_assert_eq!(seen.logged_in + held, gate.used());
            for n in 0..6 {
                prop_assert_eq!(sources.held(some_source(n)), gate.held(some_source(n)));
            }
            let largest = (0..6).map(|n| gate.held(some_source(n))).max().filter(|held| *held > 0);
            prop_assert_eq!(seen.largest.map(|(_, held)| held), largest);
            // bounded by the places and the known
            prop_assert!(seen.sources as u64 <= gate.used() && seen.known <= 3);
        }
    }

    /// Whatever peers take and give back, an address and another peer find a free place, and one peer alone has most.
    #[test]
    fn peers_that_take_all_they_get_leave_places(
        places in 100_u64..2_000,
        steps in proptest::collection::vec((0_u32..6, any::<bool>(), 1_usize..600), 1..40),
    ) {
        let (mut sources, mut held) = (sources(0), BTreeMap::<u32, Vec<PlaceId>>::new());
        for (peer, takes, flows) in steps {
            let own = held.entry(peer).or_default();
            if !takes {
                for flow in own.drain(..flows.min(own.len())) {
                    prop_assert!(sources.on_close(flow).is_some());
                }
                continue;
            }
            for _ in 0..flows {
                if sources.may_begin(Source::Peer(peer), places) {
                    own.push(sources.on_admit(at(0), Source::Peer(peer), peer));
                }
            }
            prop_assert!(sources.places_held() < places);
            prop_assert!(sources.may_begin(Source::Peer(99), places));
            let alone = held.values().filter(|held| !held.is_empty()).count() == 1;
            let most = places - places / 9;
            prop_assert!(!alone || sources.places_held() <= most);
            prop_assert!(!alone || sources.places_held() == most || sources.may_begin(Source::Peer(peer), places));
            // none may be had back for another, not even for an account
            prop_assert_eq!(sources.victim(None, false), None);
        }
    }

    #[test]
    fn memory_comes_from_the_source_that_holds_the_most(
        held in proptest::collection::vec((0_u32..5, 0_u32..100), 0..40),
        wanted in 0_u64..3_000,
    ) {
        let mut sources = sources(u64::MAX);
        let mut left = BTreeMap::<Source, u64>::new();
        for (source, bytes) in &held {
            sources.on_admit(at(0), at_address(*source), *bytes);
            *left.entry(at_address(*source)).or_default() += u64::from(*bytes);
        }
        let all: u64 = left.values().sum();
        let mut freed = 0;
        for id in sources.heaviest(wanted, 0, |bytes| u64::from(*bytes)) {
            prop_assert!(freed < wanted, "no more than is needed");
            let (source, bytes) = (sources.source(id).unwrap(), u64::from(*sources.get(id).unwrap()));
            prop_assert_eq!(left.values().max(), left.get(&source), "the largest first");
            *left.get_mut(&source).unwrap() -= bytes;
            freed += bytes;
        }
        prop_assert!(freed >= wanted.min(all));
    }
}

proptest! {
    #[test]
    fn a_full_queue_refuses_no_source_with_fewer_than_another(
        come in proptest::collection::vec(0_u8..4, 0..60),
    ) {
        let config = AdmissionConfig { most_waiting: 5, ..AdmissionConfig::default() };
        let mut admission = Admission::by_source(config, |who| *who);
        let (mut full, mut waiting) = (Pressure::new(Watermarks::default()), Vec::<u8>::new());
        full.on_level(Resource::Connections, 1, Some(1));
        for who in come {
            let of = |waiting: &[u8], who| waiting.iter().filter(|one| **one == who).count();
            let most = |waiting: &[u8]| (0..4).map(|one| of(waiting, one)).max().unwrap();
            let was_full = waiting.len() == config.most_waiting;
            if let Some(out) = admission.displace(&who) {
                prop_assert!(was_full && of(&waiting, out) == most(&waiting));
                prop_assert!(of(&waiting, out) >= of(&waiting, who) + 2);
                let last = waiting.iter().rposition(|one| *one == out).unwrap();
                waiting.remove(last);
            }
            match admission.ask(Time::ZERO, who, &full, 0) {
                AdmissionVerdict::Wait(_) => waiting.push(who),
                verdict => {
                    let refused = matches!(verdict, AdmissionVerdict::Refuse { .. });
                    prop_assert!(refused);
                    prop_assert!(of(&waiting, who) + 1 >= most(&waiting));
                }
            }
        }
        let told = admission.snapshot();
        prop_assert_eq!(told.waited, (told.waiting as u64) + told.displaced);
    }
}
