//! Accounts share the memory for bytes that wait, whatever one of them does.

use super::super::liar::{Liar, MEMORY};
use super::super::network::{FAR, NEAR, Network};
use super::{LITTLE, path};
use crate::core::*;
use crate::frame::Opening;
use ekiden_model::resources::send_queue::LEAST;
use ekiden_model::units::{self, Span};

fn opening(account: &'static str, port: u16) -> Opening {
    let account = Bytes::from_static(account.as_bytes());
    Opening { account, ..Opening::named("example.org", port) }
}

/// Of an owner behind a relay, which gives it a number.
fn behind(number: u16, port: u16) -> Opening {
    let account = format!("relay-01{number}").into();
    // its bytes are bulk from the first one on
    Opening { account, dscp: Some(8), ..Opening::named("example.org", port) }
}

/// Writes while there is room worth a write; how much.
fn fill(end: &mut Endpoint, now: Time, flow: FlowId) -> u64 {
    let bytes = Bytes::from(vec![7; 1 << 20]);
    let mut written = 0;
    while end.writable(flow) > 0 {
        written += end.try_write(now, flow, bytes.clone()) as u64;
    }
    written
}

/// Flows of an account at NEAR, each with all the room that it is given.
fn flows(network: &mut Network, account: &'static str, count: u16) -> Vec<FlowId> {
    let tunnel = network.tunnel[NEAR].unwrap();
    let open = |port| network.ends[NEAR].open(network.now, tunnel, opening(account, port)).unwrap();
    (1..=count).map(open).collect()
}

/// Nothing of it is sent meanwhile.
#[test]
fn one_account_leaves_memory_for_others() {
    let mut network = Network::new(&path());
    network.set_up();
    network.run_for(Span::from_millis(500));
    let most = LITTLE.as_u64() / 2;
    let many = flows(&mut network, "many", 400);
    for flow in &many {
        fill(&mut network.ends[NEAR], network.now, *flow);
    }
    let held = network.ends[NEAR].snapshots()[0].waiting;
    assert!(held <= most * 2 / 3 + 400 * LEAST, "{held}");
    let [one] = flows(&mut network, "one", 1)[..] else { panic!() };
    let few = fill(&mut network.ends[NEAR], network.now, one);
    // what it had without shares was the least of a flow
    assert!(few > 10 * LEAST, "{few}");
    // the many have no more than the least of each
    let more = flows(&mut network, "many", 1);
    assert!(fill(&mut network.ends[NEAR], network.now, more[0]) <= LEAST);
    network.run_for(Span::from_secs(1));
    network.tunnel(NEAR).assert_bounded();
}

/// Both write all the time, and the path takes it: 60 flows of one have as much memory in the end as 30 of another, which
/// came when the memory was taken.
#[test]
fn accounts_whose_flows_are_sent_come_to_equal_parts() {
    let mut network = Network::new(&path());
    network.ends[FAR].limits.memory = units::Bytes::mib(64);
    network.set_up();
    network.run_for(Span::from_millis(500));
    let many = flows(&mut network, "many", 60);
    for flow in &many {
        fill(&mut network.ends[NEAR], network.now, *flow);
    }
    let few = flows(&mut network, "few", 30);
    for _ in 0..400 {
        network.run_for(Span::from_millis(10));
        for flow in few.iter().chain(&many) {
            fill(&mut network.ends[NEAR], network.now, *flow);
            let there = network.twin(*flow, FAR);
            network.read(FAR, there);
        }
    }
    // beside what each flow may always have
    let held = |flows: &[FlowId]| -> u64 {
        let end = &network.ends[NEAR];
        let seen = flows.iter().filter_map(|flow| end.flow_status(*flow));
        seen.map(|seen| seen.queued.saturating_sub(LEAST)).sum()
    };
    let (many, few) = (held(&many), held(&few));
    assert!(many < few / 3 * 4 && few < many / 3 * 4, "{many} {few}");
}

/// FAR writes to flows of one account in two tunnels.
#[test]
fn an_account_has_one_part_in_all_tunnels_of_a_peer() {
    let mut liar = Liar::new();
    let tunnels = liar.tunnels(FAR);
    let (now, end) = (liar.network.now, &mut liar.network.ends[FAR]);
    let mut held = [0, 0];
    for (held, tunnel) in held.iter_mut().zip(tunnels) {
        for port in 1..=30 {
            let flow = end.open(now, tunnel, opening("many", port)).unwrap();
            *held += fill(end, now, flow);
        }
    }
    let (all, most) = (held[0] + held[1], MEMORY.as_u64() / 2);
    assert!(all > most / 2 && all <= most * 2 / 3 + 60 * LEAST, "{all}");
    let other = end.open(now, tunnels[1], opening("one", 1)).unwrap();
    assert!(fill(end, now, other) > 200_000);
    // a tunnel that ends gives back what its flows held
    end.close(now, tunnels[0], "an end");
    let more = end.open(now, tunnels[1], opening("many", 31)).unwrap();
    assert!(fill(end, now, more) > 100_000);
}

/// The relay gives each flow another number.
#[test]
fn a_relay_leaves_memory_for_others_whatever_numbers_it_gives() {
    let mut network = Network::new(&path());
    network.set_up();
    network.run_for(Span::from_millis(500));
    let most = LITTLE.as_u64() / 2;
    let tunnel = network.tunnel[NEAR].unwrap();
    let numbers = |network: &mut Network, of: std::ops::Range<u16>| -> Vec<u64> {
        let end = &mut network.ends[NEAR];
        let flow = |number| end.open(network.now, tunnel, behind(number, 80)).unwrap();
        let flows: Vec<FlowId> = of.map(flow).collect();
        flows.into_iter().map(|flow| fill(end, network.now, flow)).collect()
    };
    let first = numbers(&mut network, 0..3);
    // those behind it leave some to one another, too
    assert!(first.iter().all(|held| *held > 4 * LEAST), "{first:?}");
    numbers(&mut network, 3..400);
    let held = network.ends[NEAR].snapshots()[0].waiting;
    assert!(held <= most * 2 / 3 + 400 * LEAST, "{held}");
    let [one] = flows(&mut network, "one", 1)[..] else { panic!() };
    let few = fill(&mut network.ends[NEAR], network.now, one);
    assert!(few > 10 * LEAST, "{few}");
    network.run_for(Span::from_secs(1));
    network.tunnel(NEAR).assert_bounded();
}

/// The bytes of each flow that come to NEAR, which opened it, where FAR always has more to send. FAR knows of owners by
/// the texts that came.
fn came(openings: Vec<Opening>) -> Vec<u64> {
    let mut network = Network::new(&path());
    network.ends[FAR].limits.memory = units::Bytes::mib(64);
    network.set_up();
    network.run_for(Span::from_millis(500));
    let (now, tunnel) = (network.now, network.tunnel[NEAR].unwrap());
    let open = |opening| network.ends[NEAR].open(now, tunnel, opening).unwrap();
    let flows: Vec<FlowId> = openings.into_iter().map(open).collect();
    network.settle(500);
    let mut came = vec![0; flows.len()];
    for _ in 0..500 {
        for (flow, came) in flows.iter().zip(&mut came) {
            let there = network.twin(*flow, FAR);
            fill(&mut network.ends[FAR], network.now, there);
            *came += network.read(NEAR, *flow).0.len() as u64;
        }
        network.run_for(Span::from_millis(10));
    }
    came
}

#[test]
fn a_relay_has_the_turns_of_one_account_whatever_numbers_it_gives() {
    let one = Opening { dscp: Some(8), ..opening("one", 80) };
    let openings = (0..30).map(|number| behind(number, 80)).chain([one]).collect();
    let came = came(openings);
    let (all, one) = (came[..30].iter().sum::<u64>(), came[30]);
    assert!(one > 800_000 && all < one / 3 * 4 && one < all / 3 * 4, "{all} {one}");
    // and each of those behind it has as much
    let (least, most) = (came[..30].iter().min().unwrap(), came[..30].iter().max().unwrap());
    assert!(most - least <= 3 * 1_500, "{came:?}");
}

#[test]
fn owners_behind_a_relay_take_turns() {
    let came = came((0..20).map(|port| behind(1, 80 + port)).chain([behind(2, 80)]).collect());
    let (many, one) = (came[..20].iter().sum::<u64>(), came[20]);
    assert!(one > 800_000 && many < one / 3 * 4 && one < many / 3 * 4, "{many} {one}");
}
