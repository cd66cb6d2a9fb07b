//! Flows of packets: whole or not at all, beside everything else.

use super::world::{FAR, NEAR, Path, World, pattern};
use crate::core::*;
use crate::frame::Carries;
use ekiden_model::units::Span;

fn all(world: &mut World, end: usize, flow: FlowId) -> Vec<Bytes> {
    std::iter::from_fn(|| world.ends[end].packet(flow)).collect()
}

fn open(world: &mut World) -> (FlowId, FlowId) {
    world.carries = Carries::Packets;
    let here = world.flow(53);
    world.carries = Carries::Stream;
    (here, world.twin(here, FAR))
}

#[test]
fn packets_come_whole_before_the_answer_and_after() {
    let mut world = World::up(&Path::default());
    let (here, there) = open(&mut world);
    // without bytes, small, as large as fits, too large for a datagram
    let lengths = [0, 1, 1_200, 5_000, 16_000];
    for length in lengths {
        assert!(world.ends[NEAR].send_packet(world.now, here, pattern(9, length)));
    }
    assert!(!world.ends[NEAR].send_packet(world.now, here, pattern(9, 17_000)));
    world.run_for(Span::from_millis(300));
    let mut came: Vec<usize> = all(&mut world, FAR, there).iter().map(Bytes::len).collect();
    came.sort_unstable();
    assert_eq!(came, lengths);
    assert_eq!(world.ends[NEAR].answer(here), None);
    world.accept();
    assert!(world.ends[FAR].send_packet(world.now, there, pattern(5, 700)));
    world.run_for(Span::from_millis(300));
    assert_eq!(world.ends[NEAR].answer(here), Some(Ok(())));
    assert_eq!(all(&mut world, NEAR, here), [pattern(5, 700)]);
    world.ends[NEAR].finish(world.now, here, End::Fin);
    world.run_for(Span::from_millis(300));
    assert_eq!(world.ends[FAR].read(world.now, there), Read::End(End::Fin));
    world.ends[FAR].finish(world.now, there, End::Fin);
    world.run_for(Span::from_millis(300));
    assert_eq!(world.ends[NEAR].read(world.now, here), Read::End(End::Fin));
    world.run_for(Span::from_millis(300));
    world.ends.iter().for_each(Endpoint::assert_balanced);
}

#[test]
fn what_is_lost_is_not_sent_again_and_nobody_waits_for_it() {
    let mut world = World::up(&Path { loss: 10.0, ..Path::default() });
    let (here, there) = open(&mut world);
    let mut came = Vec::new();
    for nth in 0..500_u32 {
        world.ends[NEAR].send_packet(world.now, here, Bytes::copy_from_slice(&nth.to_be_bytes()));
        world.run_for(Span::from_millis(20));
        let now = all(&mut world, FAR, there);
        came.extend(now.iter().map(|b| u32::from_be_bytes(b[..].try_into().unwrap())));
    }
    assert!((400..490).contains(&came.len()), "{}", came.len());
    assert!(came.is_sorted(), "each as soon as it comes");
}

#[test]
fn a_call_does_not_wait_behind_a_download() {
    let path = Path { rates: [2.0, 20.0], rtt: Span::from_millis(100), ..Path::default() };
    let mut world = World::up(&path);
    let (here, there) = open(&mut world);
    let bulk = world.flow(80);
    let bulk_there = world.twin(bulk, FAR);
    world.run_for(Span::from_millis(300));
    world.accept();
    let (mut sent, mut delays) = (0, Vec::new());
    for _ in 0..200 {
        let left = world.now;
        // a voice's 50 packets a second
        assert!(world.ends[FAR].send_packet(left, there, pattern(0, 160)));
        let until = left + Span::from_millis(20);
        while world.now < until {
            let room = world.ends[FAR].room(bulk_there);
            world.ends[FAR].write(world.now, bulk_there, pattern(sent, room));
            sent += room as u64;
            world.read(NEAR, bulk);
            if !all(&mut world, NEAR, here).is_empty() {
                delays.push(world.now);
            }
            world.step(until);
        }
    }
    assert!(delays.len() >= 190, "{}", delays.len());
    assert!(world.ends[FAR].snapshots()[0].sent > 6_000_000);
    // evenly: none later than the one before by more than a few packets' time
    let gaps: Vec<Span> = delays.windows(2).map(|two| two[1].since(two[0])).collect();
    assert!(gaps.iter().all(|gap| *gap < Span::from_millis(25)), "{gaps:?}");
}

#[test]
fn packets_without_end_do_not_stop_others() {
    let mut world = World::up(&Path { rates: [4.0, 4.0], ..Path::default() });
    let (here, _) = open(&mut world);
    let echo = world.flow(22);
    let there = world.twin(echo, FAR);
    world.run_for(Span::from_millis(300));
    world.accept();
    for _ in 0..1_000 {
        while world.ends[NEAR].send_packet(world.now, here, pattern(0, 1_000)) {}
        world.run_for(Span::from_millis(5));
    }
    world.ends[NEAR].write(world.now, echo, pattern(0, 64));
    world.run_for(Span::from_millis(100));
    assert_eq!(world.read(FAR, there).0.len(), 64);
}

/// Each packet needs a dozen turns, and nobody's is whole before all have had theirs.
#[test]
fn thousands_of_long_packets_take_turns() {
    let mut world = World::up(&Path { rates: [400.0, 400.0], ..Path::default() });
    let flows: Vec<FlowId> = (0..3_000).map(|_| open(&mut world).0).collect();
    world.run_for(Span::from_millis(500));
    for flow in &flows {
        assert!(world.ends[NEAR].send_packet(world.now, *flow, pattern(0, 16_376)));
    }
    world.run_for(Span::from_millis(200));
    assert!(world.is_up(NEAR) && world.is_up(FAR));
    let there = flows.iter().map(|flow| world.twin(*flow, FAR)).collect::<Vec<_>>();
    let came = there.iter().filter_map(|flow| world.ends[FAR].packet(*flow)).count();
    assert!(came > 0);
}
