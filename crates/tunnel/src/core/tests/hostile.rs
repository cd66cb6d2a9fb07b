//! Peers that are known and do what they must not: the tunnel ends, and memory stays bounded.

use super::world::{FAR, NEAR, Path, World, pattern};
use crate::core::lane::Heard;
use crate::core::*;
use crate::frame::{Carries, Frame, Hello, Host, MOST, Open, Opening, Target, VERSION};
use crate::reason::Reason;
use ekiden_model::units::{self, Span};
use quinn_proto::{StreamId, VarInt};

fn opening(carries: Carries) -> Opening {
    let target = Target { host: Host::Name("example.org".to_owned()), port: 80 };
    Opening { account: Bytes::new(), hops: 0, target, dscp: None, carries }
}

/// FAR hears all of this, and says what is wrong with it.
fn wrong(carries: Carries, said: impl IntoIterator<Item = Frame>) -> Option<String> {
    let mut world = World::up(&Path::default());
    let open = Frame::Open(Open { flow: 2, opening: opening(carries) });
    for frame in said {
        world.hear(FAR, vec![open.clone(), frame]);
    }
    world.tunnel(FAR).broken.take()
}

fn data(offset: u64, length: usize) -> Frame {
    Frame::Data { offset, bytes: pattern(offset, length) }
}

#[test]
fn a_flow_ends_behind_what_has_come() {
    let why = wrong(Carries::Stream, [data(5_000, 100), Frame::Fin(5_099)]);
    assert_eq!(why.as_deref(), Some("the peer ended a flow in two places"));
    assert_eq!(wrong(Carries::Stream, [data(5_000, 100), Frame::Fin(5_100)]), None);
    let why = wrong(Carries::Stream, [Frame::Fin(MOST)]);
    assert_eq!(why.as_deref(), Some("the peer ended a flow beyond its credit"));
}

#[test]
fn packets_are_not_bytes() {
    let why = wrong(Carries::Packets, [data(0, 1)]);
    assert_eq!(why.as_deref(), Some("the peer sent bytes in a flow of packets"));
    let why = wrong(Carries::Packets, [Frame::Fin(1)]);
    assert_eq!(why.as_deref(), Some("the peer ended a flow beyond its credit"));
    assert_eq!(wrong(Carries::Packets, [Frame::Fin(0)]), None);
}

#[test]
fn what_is_said_of_a_flow_that_was_given_up_is_checked() {
    for (carries, offset, good) in [
        (Carries::Stream, MOST, false),
        (Carries::Stream, 100_000, true),
        (Carries::Packets, 1, false),
        (Carries::Packets, 0, true),
    ] {
        let mut world = World::up(&Path::default());
        world.hear(FAR, vec![Frame::Open(Open { flow: 2, opening: opening(carries) })]);
        let flow = FlowId { tunnel: world.tunnel[FAR].unwrap(), flow: 2 };
        world.ends[FAR].abort(world.now, flow, Reason::Closed, String::new());
        let words = String::new();
        let reset = Frame::Reset { offset, reason: Reason::Closed, words };
        world.hear(FAR, vec![Frame::Attach(2), reset]);
        let tunnel = world.tunnel(FAR);
        assert_eq!(tunnel.broken.is_none(), good, "{carries:?} {offset}");
        assert_eq!(tunnel.counted().1, if good { offset } else { 0 });
    }
}

#[test]
fn flows_that_were_given_up_are_not_kept_for_ever() {
    let mut world = World::up(&Path::default());
    // both lanes have streams for them
    world.run_for(Span::from_millis(500));
    let tunnel = world.tunnel[FAR].unwrap();
    let opening = opening(Carries::Stream);
    for flow in (2..).step_by(2).take(8_193) {
        assert_eq!(world.tunnel(FAR).broken, None);
        world.hear(FAR, vec![Frame::Open(Open { flow, opening: opening.clone() })]);
        let flow = FlowId { tunnel, flow };
        world.ends[FAR].abort(world.now, flow, Reason::Closed, String::new());
    }
    let why = world.tunnel(FAR).broken.clone().unwrap();
    assert_eq!(why, "the peer does not say how much it sent of flows that were ended");
}

/// Each flow within its window, all of them beyond the memory.
#[test]
fn all_flows_together_keep_to_the_total() {
    let memory = units::Bytes::mib(1);
    let mut world = World::up(&Path { memory, ..Path::default() });
    let flows: Vec<FlowId> = (0..4).map(|_| world.flow(80)).collect();
    world.run_for(Span::from_millis(300));
    world.accept();
    for _ in 0..150 {
        let Some(tunnel) = world.ends[NEAR].tunnels.get_mut(&world.tunnel[NEAR].unwrap()) else {
            break;
        };
        tunnel.forget_total();
        for flow in &flows {
            let room = world.ends[NEAR].room(*flow);
            world.ends[NEAR].write(world.now, *flow, pattern(0, room));
        }
        world.run_for(Span::from_millis(20));
    }
    assert_eq!(world.down(FAR), Some("the peer sent more bytes than all flows together may"));
}

/// What fills the memory is given up where nothing comes any more that would ask for it; what only waits is not.
#[test]
fn memory_that_nobody_takes_comes_back_in_silence() {
    let memory = units::Bytes::mib(1);
    let mut world = World::up(&Path { memory, ..Path::default() });
    let flows: Vec<FlowId> = (0..4).map(|_| world.flow(80)).collect();
    world.run_for(Span::from_millis(300));
    world.accept();
    let there: Vec<FlowId> = flows.iter().map(|flow| world.twin(*flow, FAR)).collect();
    for _ in 0..100 {
        for flow in &flows[..2] {
            let room = world.ends[NEAR].room(*flow);
            world.ends[NEAR].write(world.now, *flow, pattern(0, room));
        }
        world.run_for(Span::from_millis(20));
    }
    world.ends[NEAR].write(world.now, flows[2], pattern(0, 1_000));
    world.run_for(Span::from_secs(1));
    assert_eq!(world.ends[FAR].snapshots()[0].held, 1 << 20, "all of it");
    assert_eq!(world.read(FAR, there[2]), (Vec::new(), Read::Blocked));
    world.run_for(Span::from_secs(14));
    assert_eq!(world.read(FAR, there[2]).0, pattern(0, 1_000));
    assert_eq!(world.read(FAR, there[3]).1, Read::Blocked, "it holds nothing");
    let gone = (0..2).filter(|nth| world.read(FAR, there[*nth]).1 == Read::Gone).count();
    assert_eq!(gone, 1, "one was enough");
}

/// NEAR's QUIC takes a hundredth of what FAR may send.
fn narrow() -> World {
    let mut world = World::odd(&Path::default(), |transport| {
        transport.receive_window(VarInt::from_u32(4_000));
    });
    world.come_up();
    world.run_for(Span::from_millis(500));
    world
}

#[test]
fn where_quic_takes_little_the_rest_waits_where_it_is() {
    let mut world = narrow();
    let flow = world.flow(80);
    world.run_for(Span::from_millis(300));
    world.accept();
    let there = world.twin(flow, FAR);
    let (mut written, mut read) = (0, 0);
    for _ in 0..150 {
        let room = world.ends[FAR].room(there);
        world.ends[FAR].write(world.now, there, pattern(written, room));
        written += room as u64;
        world.run_for(Span::from_millis(20));
        let waiting = world.tunnel(FAR).lanes.iter().flatten().map(|lane| lane.waiting);
        assert!(waiting.sum::<usize>() < 10_000);
        let (bytes, _) = world.read(NEAR, flow);
        assert_eq!(bytes, pattern(read, bytes.len()));
        read += bytes.len() as u64;
    }
    assert!(read > 50_000, "{read}");
}

#[test]
fn what_waits_for_quic_is_bounded() {
    let mut world = narrow();
    for lane in world.tunnel(FAR).lanes.iter_mut().flatten() {
        let control = lane.control.unwrap();
        // limits that were said before
        (0..200_000).for_each(|_| lane.write(control, Frame::Total(1).to_bytes()));
    }
    world.run_for(Span::from_millis(10));
    assert_eq!(world.down(FAR), Some("the peer's QUIC takes nothing of what is said to it"));
}

#[test]
fn what_cannot_be_said_ends_the_tunnel() {
    // the control stream and one more, on each lane
    let mut world = World::odd(&Path::default(), |transport| {
        transport.max_concurrent_uni_streams(VarInt::from_u32(2));
    });
    world.come_up();
    for _ in 0..5 {
        world.flow(80);
    }
    world.run_for(Span::from_millis(300));
    world.accept();
    world.run_for(Span::from_millis(300));
    assert_eq!(world.down(FAR), Some("the peer permits no stream for what is to be said"));
}

#[test]
fn a_flow_that_could_not_be_opened_is_not_opened_by_its_copy() {
    // the control stream alone
    let mut world = World::odd(&Path::default(), |transport| {
        transport.max_concurrent_uni_streams(VarInt::from_u32(1));
    });
    world.come_up();
    world.run_for(Span::from_millis(500));
    let (now, tunnel) = (world.now, world.tunnel[FAR].unwrap());
    let opened = world.ends[FAR].open(now, tunnel, opening(Carries::Stream));
    assert_eq!(opened, Err(Reason::Exhausted));
    world.run_for(Span::from_secs(1));
    let incoming = |event: &Event| matches!(event, Event::Incoming { .. });
    assert!(!world.events[NEAR].iter().any(incoming));
}

/// What was said is not known to have come, and streams become few: not for those that are there.
#[test]
fn flows_that_come_and_go_leave_streams_for_others() {
    let mut world = World::up(&Path::default());
    world.run_for(Span::from_millis(500));
    let stay: Vec<FlowId> = (0..100).map(|_| world.flow(80)).collect();
    let (now, tunnel) = (world.now, world.tunnel[NEAR].unwrap());
    let mut gone = 0;
    while let Ok(flow) = world.ends[NEAR].open(now, tunnel, opening(Carries::Stream)) {
        world.ends[NEAR].abort(now, flow, Reason::Closed, String::new());
        gone += 1;
    }
    for flow in stay {
        world.ends[NEAR].finish(now, flow, End::Fin);
    }
    assert_eq!(world.tunnel(NEAR).broken, None);
    assert!(gone > 2_500, "{gone}");
}

#[test]
fn a_flow_that_comes_before_the_hello_is_told_after_it() {
    let mut world = World::up(&Path::default());
    let peer = world.ends[NEAR].credentials.fingerprint();
    let (now, far) = (world.now, &mut world.ends[FAR]);
    let (id, terms) = (far.new_id(), Terms::new(super::world::mbit(1.0), super::world::mbit(1.0)));
    let mut tunnel = far.new_tunnel(now, (id, peer, 5, false), terms);
    let opening = opening(Carries::Stream);
    let open = Frame::Open(Open { flow: 2, opening: opening.clone() });
    tunnel.on_heard(now, 0, Heard::Datagram(vec![open]));
    assert!(tunnel.events.is_empty());
    let hello = Hello {
        version: VERSION,
        lane: 0,
        session: 5,
        receive: terms.receive,
        window: 1 << 20,
        total: 1 << 20,
        secret: Bytes::new(),
    };
    let stream = StreamId::from(VarInt::from_u32(2));
    tunnel.on_heard(now, 0, Heard::Frame(stream, Frame::Hello(hello)));
    let flow = FlowId { tunnel: id, flow: 2 };
    let up = Event::Up { tunnel: id, peer };
    assert_eq!(Vec::from(tunnel.events), [up, Event::Incoming { flow, peer, opening }]);
}

/// A hello that is said again with more credit is believed, also for flows that are there.
#[test]
fn a_hello_that_grants_more_is_kept_to() {
    for (receive, good) in [(20.0, false), (200.0, true)] {
        let mut world = World::up(&Path::default());
        world.hear(FAR, vec![Frame::Open(Open { flow: 2, opening: opening(Carries::Stream) })]);
        let fingerprint = world.ends[NEAR].credentials.fingerprint();
        let [send, receive] = [20.0, receive].map(super::world::mbit);
        let peer = Peer { fingerprint, terms: Terms::new(send, receive) };
        world.ends[FAR].admit(world.now, &[peer], &[]);
        world.hear(FAR, vec![Frame::Attach(2), data(10_000_000, 100)]);
        assert_eq!(world.tunnel(FAR).broken.is_none(), good, "{:?}", world.tunnel(FAR).broken);
    }
}
