//! Flows: bytes right, ends right, credit kept.

use super::network::{FAR, NEAR, Network, Path, pattern};
use crate::core::*;
use crate::frame::Opening;
use crate::frame::reason::Reason;
use ekiden_model::units::Span;

/// Sends so many bytes from one end to the other and reads them; how long it took.
fn transfer(network: &mut Network, from: usize, flow: FlowId, bytes: u64) -> Span {
    let (here, there) = (network.twin(flow, from), network.twin(flow, 1 - from));
    let begun = network.now;
    let (mut written, mut read) = (0, 0);
    while read < bytes {
        while written < bytes {
            let room = network.ends[from].room(here).min((bytes - written) as usize);
            if room == 0 {
                break;
            }
            network.ends[from].write(network.now, here, pattern(written, room));
            written += room as u64;
        }
        let until = network.now + Span::from_millis(20);
        network.step(until);
        let (got, state) = network.read(1 - from, there);
        assert_eq!(got, pattern(read, got.len()), "bytes are wrong from {read} on");
        read += got.len() as u64;
        assert!(matches!(state, Read::Blocked), "{state:?}");
        assert!(
            network.now.since(begun) < Span::from_secs(600),
            "{read} of {bytes} after ten minutes"
        );
    }
    network.now.since(begun)
}

fn open(network: &mut Network) -> FlowId {
    let flow = network.flow(80);
    let until = network.now + Span::from_secs(10);
    while network.accept().is_empty() {
        assert!(network.now < until, "the flow does not come in");
        network.step(until);
    }
    flow
}

fn open_both(network: &mut Network) -> (FlowId, FlowId) {
    let flow = open(network);
    (flow, network.twin(flow, FAR))
}

#[test]
fn bytes_arrive_in_both_directions_on_any_path() {
    for (loss, jitter, duplicates) in
        [(0.0, 0, false), (5.0, 0, false), (1.0, 30, false), (2.0, 5, true), (20.0, 0, false)]
    {
        let jitter = Span::from_millis(jitter);
        let mut network = Network::up(&Path { loss, jitter, ..Path::default() });
        network.duplicates = duplicates;
        let flow = open(&mut network);
        transfer(&mut network, NEAR, flow, 300_000);
        transfer(&mut network, FAR, flow, 1_000_000);
    }
}

/// Some 1,500 losses in the bytes of a round trip: more pieces than QUIC holds of one stream.
#[test]
fn a_long_fat_path_may_lose_much() {
    let rtt = Span::from_millis(600);
    let path = Path { rates: [200.0, 20.0], rtt, loss: 15.0, ..Path::default() };
    let mut network = Network::up(&path);
    let flow = open(&mut network);
    transfer(&mut network, NEAR, flow, 40_000_000);
}

#[test]
fn data_follows_the_opening_without_waiting() {
    let mut network = Network::up(&Path::default());
    let begun = network.now;
    let flow = network.flow(80);
    network.ends[NEAR].write(network.now, flow, pattern(0, 300));
    let there = network.twin(flow, FAR);
    loop {
        let until = network.now + Span::from_secs(1);
        network.step(until);
        network.accept();
        let (bytes, _) = network.read(FAR, there);
        if !bytes.is_empty() {
            assert_eq!(bytes, pattern(0, 300));
            break;
        }
    }
    // half a round trip and two packets
    assert!(network.now.since(begun) < Span::from_millis(55), "{}", network.now.since(begun));
}

/// A flow opens within a round trip, and early bytes are kept until the peer is identified.
#[test]
fn a_cold_tunnel_costs_one_round_trip() {
    for seed in 1..=60 {
        let mut network = Network::new(&Path { loss: 10.0, seed, ..Path::default() });
        let until = Time::ZERO + Span::from_secs(20);
        while !network.is_up(NEAR) {
            assert!(network.now < until, "seed {seed}");
            network.step(until);
        }
        // the hello in a packet of its own, which may be lost alone
        network.run_for(Span::from_millis(2));
        let flow = network.flow(80);
        let length = [300, 60_000][seed as usize % 2];
        network.ends[NEAR].write(network.now, flow, pattern(0, length));
        network.ends[NEAR].finish(network.now, flow, End::Fin);
        let mut got = Vec::new();
        while got.len() < length {
            assert!(network.now < until, "seed {seed}: {:?}", network.events);
            network.step(until);
            for (there, _) in network.accept() {
                assert_eq!(there.flow, flow.flow);
            }
            if network.tunnel[FAR].is_some() {
                let there = network.twin(flow, FAR);
                got.extend(network.read(FAR, there).0);
            }
        }
        assert_eq!(got, pattern(0, length), "seed {seed}");
    }
}

#[test]
fn each_direction_ends_by_itself() {
    let mut network = Network::up(&Path { loss: 3.0, ..Path::default() });
    let (flow, there) = open_both(&mut network);
    network.ends[NEAR].write(network.now, flow, pattern(0, 5_000));
    network.ends[NEAR].finish(network.now, flow, End::Fin);
    network.run_for(Span::from_secs(2));
    let (bytes, end) = network.read(FAR, there);
    assert_eq!((bytes.len(), end), (5_000, Read::End(End::Fin)));
    // the other direction goes on
    transfer(&mut network, FAR, flow, 400_000);
    network.ends[FAR].finish(network.now, there, End::Fin);
    network.run_for(Span::from_secs(2));
    assert_eq!(network.read(NEAR, flow), (Vec::new(), Read::End(End::Fin)));
    assert_eq!(network.flow_counts(), [0, 0]);
}

#[test]
fn bytes_before_a_reset_are_delivered() {
    let mut network = Network::up(&Path { loss: 3.0, ..Path::default() });
    let (flow, there) = open_both(&mut network);
    network.ends[NEAR].write(network.now, flow, pattern(0, 100_000));
    let reset = End::Reset(Reason::Closed, "reset by peer".to_owned());
    network.ends[NEAR].finish(network.now, flow, reset.clone());
    network.run_for(Span::from_secs(3));
    let (bytes, end) = network.read(FAR, there);
    assert_eq!((bytes, end), (pattern(0, 100_000).to_vec(), Read::End(reset)));
    assert_eq!(network.flow_counts(), [0, 0]);
}

#[test]
fn a_break_after_a_half_close_is_told() {
    let mut network = Network::up(&Path { loss: 3.0, ..Path::default() });
    let (flow, there) = open_both(&mut network);
    network.ends[NEAR].write(network.now, flow, pattern(0, 5_000));
    network.ends[NEAR].finish(network.now, flow, End::Fin);
    network.run_for(Span::from_secs(1));
    assert_eq!(network.read(FAR, there), (pattern(0, 5_000).to_vec(), Read::End(End::Fin)));
    let reset = End::Reset(Reason::Closed, "nobody reads any more".to_owned());
    network.ends[NEAR].finish(network.now, flow, reset.clone());
    network.run_for(Span::from_secs(1));
    assert_eq!(network.read(FAR, there), (Vec::new(), Read::End(reset)));
    network.ends.iter().for_each(Endpoint::assert_balanced);
}

#[test]
fn giving_up_tells_the_peer() {
    let mut network = Network::up(&Path::default());
    let (flow, there) = open_both(&mut network);
    network.ends[FAR].write(network.now, there, pattern(0, 200_000));
    network.ends[NEAR].abort(network.now, flow, Reason::TimedOut, "silent".to_owned());
    network.run_for(Span::from_secs(1));
    let end = End::Reset(Reason::TimedOut, "silent".to_owned());
    assert_eq!(network.read(FAR, there), (Vec::new(), Read::End(end)));
    assert_eq!(network.ends[FAR].snapshots()[0].flows, 0);
    assert_eq!(network.read(NEAR, flow).1, Read::Gone);
}

#[test]
fn a_refusal_brings_its_words() {
    let mut network = Network::up(&Path::default());
    let flow = network.flow(81);
    network.ends[NEAR].write(network.now, flow, pattern(0, 20_000));
    network.run_for(Span::from_millis(80));
    let events = std::mem::take(&mut network.events[FAR]);
    let incoming = events.iter().find_map(|event| match event {
        Event::Incoming { flow, opening, .. } => Some((*flow, opening.target.clone())),
        _ => None,
    });
    let (there, target) = incoming.unwrap();
    assert_eq!(target.port, 81);
    assert_eq!(network.ends[NEAR].answer(flow), None);
    let words = "nothing listens there".to_owned();
    network.ends[FAR].refuse(network.now, there, Reason::Refused, words.clone());
    network.run_for(Span::from_millis(200));
    assert_eq!(network.ends[NEAR].answer(flow), Some(Err((Reason::Refused, words))));
    network.ends[NEAR].abort(network.now, flow, Reason::Closed, String::new());
    network.run_for(Span::from_millis(500));
    assert_eq!(network.flow_counts(), [0, 0]);
}

/// Who takes nothing gets no more than its window, and all goes on where it takes again.
#[test]
fn a_flow_that_is_not_read_is_held_up_alone() {
    let mut network = Network::up(&Path::default());
    let (slow, quick) = (open(&mut network), open(&mut network));
    let window = 16 << 20;
    for _ in 0..200 {
        network.fill(NEAR, slow, 0);
        network.run_for(Span::from_millis(10));
    }
    let held = network.ends[FAR].snapshots()[0].held;
    assert!(held > 100_000 && held <= window, "{held}");
    let seen = network.ends[NEAR].flow_status(slow).unwrap();
    assert!(seen.full && !seen.all_full && seen.queued > 0 && seen.answered, "{seen:?}");
    let there = network.twin(slow, FAR);
    assert_eq!(network.ends[FAR].flow_status(there).unwrap().held, held);
    network.run_for(Span::from_secs(5));
    assert!(network.ends[FAR].snapshots()[0].held <= window);
    transfer(&mut network, NEAR, quick, 1_000_000);
}

/// Who sends more than it may is wrong, and memory stays bounded.
#[test]
fn a_peer_that_ignores_credit_is_sent_away() {
    let mut network = Network::up(&Path { rates: [400.0, 20.0], ..Path::default() });
    let flow = open(&mut network);
    let tunnel = network.tunnel[NEAR].unwrap();
    for _ in 0..400 {
        network.ends[NEAR].tunnels.get_mut(&tunnel).unwrap().forget_credit();
        network.fill(NEAR, flow, 0);
        network.run_for(Span::from_millis(10));
        if let Some(seen) = network.ends[FAR].snapshots().first() {
            assert!(seen.held <= 128 << 20);
        } else {
            let why = "the peer sent bytes of a flow beyond its credit";
            return assert_eq!(network.down(FAR), Some(why));
        }
    }
    panic!("it was let");
}

#[test]
fn a_thousand_flows_at_once() {
    let mut network = Network::up(&Path { loss: 1.0, ..Path::default() });
    let flows: Vec<FlowId> = (0..1_000).map(|nth| network.flow(1 + nth)).collect();
    for (nth, flow) in flows.iter().enumerate() {
        network.ends[NEAR].write(network.now, *flow, pattern(nth as u64, 700));
        network.ends[NEAR].finish(network.now, *flow, End::Fin);
    }
    let mut accepted = 0;
    for _ in 0..60 {
        network.run_for(Span::from_millis(50));
        for (flow, target) in network.accept() {
            accepted += 1;
            assert_eq!(flow.flow, flows[usize::from(target.port) - 1].flow);
        }
    }
    assert_eq!(accepted, 1_000);
    for (nth, flow) in flows.iter().enumerate() {
        let there = network.twin(*flow, FAR);
        let read = network.read(FAR, there);
        assert_eq!(read, (pattern(nth as u64, 700).to_vec(), Read::End(End::Fin)));
        network.ends[FAR].write(network.now, there, pattern(7, 50));
        network.ends[FAR].finish(network.now, there, End::Fin);
    }
    network.run_for(Span::from_secs(3));
    for flow in flows {
        assert_eq!(network.read(NEAR, flow), (pattern(7, 50).to_vec(), Read::End(End::Fin)));
    }
    for end in [NEAR, FAR] {
        let seen = &network.ends[end].snapshots()[0];
        assert_eq!((seen.flows, seen.waiting, seen.held, seen.in_flight), (0, 0, 0, 0), "{seen:?}");
    }
}

/// Both ends count the same, however flows end: no credit is lost for ever.
#[test]
fn credit_returns_however_flows_end() {
    let mut network = Network::up(&Path { loss: 2.0, rates: [100.0, 100.0], ..Path::default() });
    for nth in 0..150 {
        let flow = network.flow(80);
        network.ends[NEAR].write(network.now, flow, pattern(0, 250_000));
        if nth % 3 == 0 {
            network.ends[NEAR].finish(network.now, flow, End::Fin);
        }
        network.run_for(Span::from_millis(70 + nth % 50));
        network.accept();
        let there = network.twin(flow, FAR);
        if nth % 2 == 0 {
            network.read(FAR, there);
        }
        match nth % 5 {
            0 | 1 => network.ends[NEAR].abort(network.now, flow, Reason::Closed, String::new()),
            2 => network.ends[FAR].abort(network.now, there, Reason::Closed, String::new()),
            _ => {
                network.ends[NEAR].abort(network.now, flow, Reason::Closed, String::new());
                network.ends[FAR].abort(network.now, there, Reason::Closed, String::new());
            }
        }
    }
    network.run_for(Span::from_secs(3));
    // who is told of an end takes it
    for nth in 0..150 {
        for end in [NEAR, FAR] {
            let flow = FlowId { tunnel: network.tunnel[end].unwrap(), flow: 2 + 2 * nth };
            network.read(end, flow);
        }
    }
    network.run_for(Span::from_secs(1));
    network.ends.iter().for_each(Endpoint::assert_balanced);
    let [near, far] =
        [NEAR, FAR].map(|end| network.ends[end].tunnels[&network.tunnel[end].unwrap()].counted());
    assert_eq!(((near.0, near.1), near.0 > 10_000_000), ((far.1, far.0), true));
    let flow = open(&mut network);
    transfer(&mut network, NEAR, flow, 1_000_000);
}

/// A client that resets its connection wants nothing sent any more, and what waits would take the line from others.
#[test]
fn discards_unsent_bytes_of_a_client_whose_connection_breaks() {
    let mut network = Network::up(&Path { rates: [1.0, 1.0], ..Path::default() });
    let (flow, there) = open_both(&mut network);
    let written = network.fill(NEAR, flow, 0);
    let words = "reset by the client".to_owned();
    network.ends[NEAR].on_broken(network.now, flow, Reason::Closed, words.clone());
    assert_eq!(network.ends[NEAR].snapshots()[0].waiting, 0);
    network.run_for(Span::from_secs(1));
    let (bytes, end) = network.read(FAR, there);
    assert_eq!(end, Read::End(End::Reset(Reason::Closed, words)));
    assert!((bytes.len() as u64) < written / 4, "{} of {written}", bytes.len());
    network.run_for(Span::from_secs(1));
    network.ends.iter().for_each(Endpoint::assert_balanced);
}

#[test]
fn delivers_before_a_break_bytes_that_a_client_ended_or_a_destination_sent() {
    for from in [NEAR, FAR] {
        let mut network = Network::up(&Path { rates: [1.0, 1.0], ..Path::default() });
        let (flow, there) = open_both(&mut network);
        let here = [flow, there][from];
        let written = network.fill(from, here, 0);
        if from == NEAR {
            network.ends[NEAR].finish(network.now, here, End::Fin);
        }
        network.ends[from].on_broken(network.now, here, Reason::Closed, String::new());
        network.run_for(Span::from_secs(5));
        let (bytes, end) = network.read(1 - from, [there, flow][from]);
        assert_eq!(bytes.len() as u64, written);
        assert_eq!(end, Read::End(End::Reset(Reason::Closed, String::new())));
    }
}

/// A tunnel with places for 100 flows at FAR.
fn few_flows() -> Network {
    let mut network = Network::new(&Path::default());
    network.ends[FAR].limits.flows = 100;
    network.set_up();
    network.run_for(Span::from_millis(500));
    network
}

fn opening(account: impl Into<String>) -> Opening {
    Opening { account: account.into().into(), ..Opening::named("example.org", 80) }
}

/// Of whichever end opens them.
#[test]
fn one_account_leaves_flows_for_others() {
    let mut network = few_flows();
    let [near, far] = network.tunnel.map(Option::unwrap);
    let now = network.now;
    let many: Vec<FlowId> =
        (0..100).map(|_| network.ends[NEAR].open(now, near, opening("1")).unwrap()).collect();
    network.settle(1_000);
    network.run_for(Span::from_millis(500));
    let refused = |flow: &&FlowId| {
        matches!(network.ends[NEAR].answer(**flow), Some(Err((Reason::Exhausted, _))))
    };
    assert_eq!(many.iter().filter(refused).count(), 20);
    let other = network.ends[NEAR].open(network.now, near, opening("2")).unwrap();
    network.settle(500);
    network.run_for(Span::from_millis(500));
    assert_eq!(network.ends[NEAR].answer(other), Some(Ok(())));
    let now = network.now;
    let mut opens = |account| network.ends[FAR].open(now, far, opening(account)).is_ok();
    assert_eq!((0..100).take_while(|_| opens("3")).count(), 16);
    assert!(opens("4"));
}

/// One relay is eight bytes of an account's text; what follows it gives another number to each flow.
#[test]
fn a_relay_leaves_flows_for_others_whatever_numbers_it_gives() {
    let mut network = few_flows();
    let near = network.tunnel[NEAR].unwrap();
    let open = |network: &mut Network, account: String| {
        network.ends[NEAR].open(network.now, near, opening(account)).unwrap()
    };
    let answers = |network: &mut Network, flows: &[FlowId]| {
        network.settle(1_000);
        network.run_for(Span::from_millis(500));
        let accepted = |flow: &&FlowId| network.ends[NEAR].answer(**flow) == Some(Ok(()));
        flows.iter().filter(accepted).count()
    };
    let many: Vec<_> = (0..100).map(|nth| open(&mut network, format!("relay-01{nth}"))).collect();
    assert_eq!(answers(&mut network, &many), 80);
    let others = ["relay-02", "relay-031", "one"].map(|of| open(&mut network, of.to_owned()));
    assert_eq!(answers(&mut network, &others), 3);
}

#[test]
fn an_owner_behind_a_relay_leaves_flows_for_others_there() {
    let mut network = few_flows();
    let (now, far) = (network.now, network.tunnel[FAR].unwrap());
    let mut opens = |account| network.ends[FAR].open(now, far, opening(account)).is_ok();
    assert_eq!((0..100).take_while(|_| opens("relay-01one")).count(), 64);
    assert_eq!((0..100).take_while(|_| opens("relay-01two")).count(), 13);
    assert!(opens("relay-01three") && opens("other"));
}
