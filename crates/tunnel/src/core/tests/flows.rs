//! Flows: bytes right, ends right, credit kept.

use super::world::{FAR, NEAR, Path, World, pattern};
use crate::core::*;
use crate::reason::Reason;
use ekiden_model::units::Span;

/// Sends so many bytes from one end to the other and reads them; how long it took.
fn transfer(world: &mut World, from: usize, flow: FlowId, bytes: u64) -> Span {
    let (here, there) = (world.twin(flow, from), world.twin(flow, 1 - from));
    let begun = world.now;
    let (mut written, mut read) = (0, 0);
    while read < bytes {
        while written < bytes {
            let room = world.ends[from].room(here).min((bytes - written) as usize);
            if room == 0 {
                break;
            }
            world.ends[from].write(world.now, here, pattern(written, room));
            written += room as u64;
        }
        let until = world.now + Span::from_millis(20);
        world.step(until);
        let (got, state) = world.read(1 - from, there);
        assert_eq!(got, pattern(read, got.len()), "bytes are wrong from {read} on");
        read += got.len() as u64;
        assert!(matches!(state, Read::Blocked), "{state:?}");
        assert!(
            world.now.since(begun) < Span::from_secs(600),
            "{read} of {bytes} after ten minutes"
        );
    }
    world.now.since(begun)
}

fn open(world: &mut World) -> FlowId {
    let flow = world.flow(80);
    let until = world.now + Span::from_secs(10);
    while world.accept().is_empty() {
        assert!(world.now < until, "the flow does not come in");
        world.step(until);
    }
    flow
}

#[test]
fn bytes_arrive_in_both_directions_whatever_the_path_does() {
    for (loss, jitter, duplicates) in
        [(0.0, 0, false), (5.0, 0, false), (1.0, 30, false), (2.0, 5, true), (20.0, 0, false)]
    {
        let jitter = Span::from_millis(jitter);
        let mut world = World::up(&Path { loss, jitter, ..Path::default() });
        world.duplicates = duplicates;
        let flow = open(&mut world);
        transfer(&mut world, NEAR, flow, 300_000);
        transfer(&mut world, FAR, flow, 1_000_000);
    }
}

/// Some 1,500 losses in the bytes of a round trip: more pieces than QUIC holds of one stream.
#[test]
fn a_long_fat_path_may_lose_much() {
    let rtt = Span::from_millis(600);
    let path = Path { rates: [200.0, 20.0], rtt, loss: 15.0, ..Path::default() };
    let mut world = World::up(&path);
    let flow = open(&mut world);
    transfer(&mut world, NEAR, flow, 40_000_000);
}

#[test]
fn data_follows_the_opening_without_waiting() {
    let mut world = World::up(&Path::default());
    let begun = world.now;
    let flow = world.flow(80);
    world.ends[NEAR].write(world.now, flow, pattern(0, 300));
    let there = world.twin(flow, FAR);
    loop {
        let until = world.now + Span::from_secs(1);
        world.step(until);
        world.accept();
        let (bytes, _) = world.read(FAR, there);
        if !bytes.is_empty() {
            assert_eq!(bytes, pattern(0, 300));
            break;
        }
    }
    // half a round trip and two packets
    assert!(world.now.since(begun) < Span::from_millis(55), "{}", world.now.since(begun));
}

/// A flow can be opened a round trip after a tunnel was asked for, and what is said at once is kept until
/// it is known who says it.
#[test]
fn a_cold_tunnel_costs_one_round_trip() {
    for seed in 1..=60 {
        let mut world = World::new(&Path { loss: 10.0, seed, ..Path::default() });
        let until = Time::ZERO + Span::from_secs(20);
        while !world.is_up(NEAR) {
            assert!(world.now < until, "seed {seed}");
            world.step(until);
        }
        // the hello in a packet of its own, which may be lost alone
        world.run_for(Span::from_millis(2));
        let flow = world.flow(80);
        let length = [300, 60_000][seed as usize % 2];
        world.ends[NEAR].write(world.now, flow, pattern(0, length));
        world.ends[NEAR].finish(world.now, flow, End::Fin);
        let mut got = Vec::new();
        while got.len() < length {
            assert!(world.now < until, "seed {seed}: {:?}", world.events);
            world.step(until);
            for (there, _) in world.accept() {
                assert_eq!(there.flow, flow.flow);
            }
            if world.tunnel[FAR].is_some() {
                let there = world.twin(flow, FAR);
                got.extend(world.read(FAR, there).0);
            }
        }
        assert_eq!(got, pattern(0, length), "seed {seed}");
    }
}

#[test]
fn each_direction_ends_by_itself() {
    let mut world = World::up(&Path { loss: 3.0, ..Path::default() });
    let flow = open(&mut world);
    let there = world.twin(flow, FAR);
    world.ends[NEAR].write(world.now, flow, pattern(0, 5_000));
    world.ends[NEAR].finish(world.now, flow, End::Fin);
    world.run_for(Span::from_secs(2));
    let (bytes, end) = world.read(FAR, there);
    assert_eq!((bytes.len(), end), (5_000, Read::End(End::Fin)));
    // the other direction goes on
    transfer(&mut world, FAR, flow, 400_000);
    world.ends[FAR].finish(world.now, there, End::Fin);
    world.run_for(Span::from_secs(2));
    assert_eq!(world.read(NEAR, flow), (Vec::new(), Read::End(End::Fin)));
    for end in [NEAR, FAR] {
        assert_eq!(world.ends[end].snapshots()[0].flows, 0);
    }
}

#[test]
fn what_came_before_a_reset_is_delivered() {
    let mut world = World::up(&Path { loss: 3.0, ..Path::default() });
    let flow = open(&mut world);
    let there = world.twin(flow, FAR);
    world.ends[NEAR].write(world.now, flow, pattern(0, 100_000));
    let reset = End::Reset(Reason::Closed, "reset by peer".to_owned());
    world.ends[NEAR].finish(world.now, flow, reset.clone());
    world.run_for(Span::from_secs(3));
    let (bytes, end) = world.read(FAR, there);
    assert_eq!((bytes, end), (pattern(0, 100_000).to_vec(), Read::End(reset)));
    assert_eq!(world.ends[NEAR].snapshots()[0].flows, 0);
    assert_eq!(world.ends[FAR].snapshots()[0].flows, 0);
}

#[test]
fn a_break_after_a_half_close_is_told() {
    let mut world = World::up(&Path { loss: 3.0, ..Path::default() });
    let flow = open(&mut world);
    let there = world.twin(flow, FAR);
    world.ends[NEAR].write(world.now, flow, pattern(0, 5_000));
    world.ends[NEAR].finish(world.now, flow, End::Fin);
    world.run_for(Span::from_secs(1));
    assert_eq!(world.read(FAR, there), (pattern(0, 5_000).to_vec(), Read::End(End::Fin)));
    let reset = End::Reset(Reason::Closed, "nobody reads any more".to_owned());
    world.ends[NEAR].finish(world.now, flow, reset.clone());
    world.run_for(Span::from_secs(1));
    assert_eq!(world.read(FAR, there), (Vec::new(), Read::End(reset)));
    for end in [NEAR, FAR] {
        world.ends[end].assert_balanced();
    }
}

#[test]
fn giving_up_tells_the_peer() {
    let mut world = World::up(&Path::default());
    let flow = open(&mut world);
    let there = world.twin(flow, FAR);
    world.ends[FAR].write(world.now, there, pattern(0, 200_000));
    world.ends[NEAR].abort(world.now, flow, Reason::TimedOut, "silent".to_owned());
    world.run_for(Span::from_secs(1));
    let end = End::Reset(Reason::TimedOut, "silent".to_owned());
    assert_eq!(world.read(FAR, there), (Vec::new(), Read::End(end)));
    assert_eq!(world.ends[FAR].snapshots()[0].flows, 0);
    assert_eq!(world.read(NEAR, flow).1, Read::Gone);
}

#[test]
fn a_refusal_brings_its_words() {
    let mut world = World::up(&Path::default());
    let flow = world.flow(81);
    world.ends[NEAR].write(world.now, flow, pattern(0, 20_000));
    world.run_for(Span::from_millis(80));
    let events = std::mem::take(&mut world.events[FAR]);
    let incoming = events.iter().find_map(|event| match event {
        Event::Incoming { flow, opening, .. } => Some((*flow, opening.target.clone())),
        _ => None,
    });
    let (there, target) = incoming.unwrap();
    assert_eq!(target.port, 81);
    assert_eq!(world.ends[NEAR].answer(flow), None);
    let words = "nothing listens there".to_owned();
    world.ends[FAR].refuse(world.now, there, Reason::Refused, words.clone());
    world.run_for(Span::from_millis(200));
    assert_eq!(world.ends[NEAR].answer(flow), Some(Err((Reason::Refused, words))));
    world.ends[NEAR].abort(world.now, flow, Reason::Closed, String::new());
    world.run_for(Span::from_millis(500));
    for end in [NEAR, FAR] {
        assert_eq!(world.ends[end].snapshots()[0].flows, 0);
    }
}

/// Who takes nothing gets no more than its window, and all goes on where it takes again.
#[test]
fn a_flow_that_is_not_read_is_held_up_alone() {
    let mut world = World::up(&Path::default());
    let (slow, quick) = (open(&mut world), open(&mut world));
    let window = 16 << 20;
    for _ in 0..200 {
        let room = world.ends[NEAR].room(slow);
        let written = pattern(0, room);
        world.ends[NEAR].write(world.now, slow, written);
        world.run_for(Span::from_millis(10));
    }
    let held = world.ends[FAR].snapshots()[0].held;
    assert!(held > 100_000 && held <= window, "{held}");
    world.run_for(Span::from_secs(5));
    assert!(world.ends[FAR].snapshots()[0].held <= window);
    transfer(&mut world, NEAR, quick, 1_000_000);
}

/// Who sends more than it may is wrong, and memory stays bounded.
#[test]
fn a_peer_that_ignores_credit_is_sent_away() {
    let mut world = World::up(&Path { rates: [400.0, 20.0], ..Path::default() });
    let flow = open(&mut world);
    let tunnel = world.tunnel[NEAR].unwrap();
    for _ in 0..400 {
        world.ends[NEAR].tunnels.get_mut(&tunnel).unwrap().forget_credit();
        let room = world.ends[NEAR].room(flow);
        world.ends[NEAR].write(world.now, flow, pattern(0, room));
        world.run_for(Span::from_millis(10));
        if let Some(seen) = world.ends[FAR].snapshots().first() {
            assert!(seen.held <= 128 << 20);
        } else {
            let why = world.events[FAR].iter().find_map(|event| match event {
                Event::Down { reason, .. } => Some(reason.clone()),
                _ => None,
            });
            assert_eq!(why.as_deref(), Some("the peer sent bytes of a flow beyond its credit"));
            return;
        }
    }
    panic!("it was let");
}

#[test]
fn a_thousand_flows_at_once() {
    let mut world = World::up(&Path { loss: 1.0, ..Path::default() });
    let flows: Vec<FlowId> = (0..1_000).map(|nth| world.flow(1 + nth)).collect();
    for (nth, flow) in flows.iter().enumerate() {
        world.ends[NEAR].write(world.now, *flow, pattern(nth as u64, 700));
        world.ends[NEAR].finish(world.now, *flow, End::Fin);
    }
    let mut accepted = 0;
    for _ in 0..60 {
        world.run_for(Span::from_millis(50));
        for (flow, target) in world.accept() {
            accepted += 1;
            assert_eq!(flow.flow, flows[usize::from(target.port) - 1].flow);
        }
    }
    assert_eq!(accepted, 1_000);
    for (nth, flow) in flows.iter().enumerate() {
        let there = world.twin(*flow, FAR);
        let read = world.read(FAR, there);
        assert_eq!(read, (pattern(nth as u64, 700).to_vec(), Read::End(End::Fin)));
        world.ends[FAR].write(world.now, there, pattern(7, 50));
        world.ends[FAR].finish(world.now, there, End::Fin);
    }
    world.run_for(Span::from_secs(3));
    for flow in flows {
        assert_eq!(world.read(NEAR, flow), (pattern(7, 50).to_vec(), Read::End(End::Fin)));
    }
    for end in [NEAR, FAR] {
        let seen = &world.ends[end].snapshots()[0];
        assert_eq!((seen.flows, seen.waiting, seen.held, seen.in_flight), (0, 0, 0, 0), "{seen:?}");
    }
}

/// Both ends count the same, however flows end: no credit is lost for ever.
#[test]
fn credit_comes_back_whatever_becomes_of_flows() {
    let mut world = World::up(&Path { loss: 2.0, rates: [100.0, 100.0], ..Path::default() });
    for nth in 0..150 {
        let flow = world.flow(80);
        world.ends[NEAR].write(world.now, flow, pattern(0, 250_000));
        if nth % 3 == 0 {
            world.ends[NEAR].finish(world.now, flow, End::Fin);
        }
        world.run_for(Span::from_millis(70 + nth % 50));
        world.accept();
        let there = world.twin(flow, FAR);
        if nth % 2 == 0 {
            world.read(FAR, there);
        }
        match nth % 5 {
            0 | 1 => world.ends[NEAR].abort(world.now, flow, Reason::Closed, String::new()),
            2 => world.ends[FAR].abort(world.now, there, Reason::Closed, String::new()),
            _ => {
                world.ends[NEAR].abort(world.now, flow, Reason::Closed, String::new());
                world.ends[FAR].abort(world.now, there, Reason::Closed, String::new());
            }
        }
    }
    world.run_for(Span::from_secs(3));
    // who is told of an end takes it
    for nth in 0..150 {
        for end in [NEAR, FAR] {
            let flow = FlowId { tunnel: world.tunnel[end].unwrap(), flow: 2 + 2 * nth };
            world.read(end, flow);
        }
    }
    world.run_for(Span::from_secs(1));
    world.ends[NEAR].assert_balanced();
    world.ends[FAR].assert_balanced();
    let [near, far] =
        [NEAR, FAR].map(|end| world.ends[end].tunnels[&world.tunnel[end].unwrap()].counted());
    assert_eq!(((near.0, near.1), near.0 > 10_000_000), ((far.1, far.0), true));
    let flow = open(&mut world);
    transfer(&mut world, NEAR, flow, 1_000_000);
}
