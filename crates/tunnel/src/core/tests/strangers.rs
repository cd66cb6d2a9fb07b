//! Who comes and does not say who it is: little memory, for little time.

use super::world::{FAR, NEAR, Path, World};
use crate::core::*;
use crate::frame::Frame;
use ekiden_model::units::Span;
use quinn_proto::{StreamId, VarInt};

/// Both lanes are there, and nobody has said hello.
fn silent() -> World {
    let mut world = World::new(&Path::default());
    let control = StreamId::from(VarInt::from_u32(2));
    // as if it had
    world.tunnel(NEAR).lanes.iter_mut().flatten().for_each(|lane| lane.control = Some(control));
    world.run_for(Span::from_millis(500));
    assert_eq!(world.ends[FAR].strangers.len(), 2);
    world
}

#[test]
fn who_says_no_hello_goes() {
    let mut world = silent();
    world.run_for(Span::from_secs(9));
    assert_eq!(world.down(NEAR), None);
    world.run_for(Span::from_secs(2));
    assert_eq!(world.down(NEAR), Some("the peer ended it: no hello came in time"));
    world.run_for(Span::from_secs(2));
    assert!(world.ends[FAR].strangers.is_empty());
}

#[test]
fn streams_without_end_are_not_kept() {
    let mut world = silent();
    for _ in 0..20 {
        if world.down(NEAR).is_some() {
            break;
        }
        for lane in world.tunnel(NEAR).lanes.iter_mut().flatten() {
            for _ in 0..100 {
                let stream = lane.open().unwrap();
                lane.write(stream, Frame::Attach(2).to_bytes());
                lane.finish(stream);
            }
        }
        world.run_for(Span::from_millis(100));
    }
    assert_eq!(world.down(NEAR), Some("the peer ended it: a hello comes first"));
}

#[test]
fn bytes_without_end_are_not_kept() {
    let mut world = silent();
    for _ in 0..30 {
        if world.down(NEAR).is_some() {
            break;
        }
        for lane in world.tunnel(NEAR).lanes.iter_mut().flatten() {
            let stream = lane.open().unwrap();
            let packet = Bytes::from(vec![0; 16_000]);
            (0..2).for_each(|_| lane.write(stream, Frame::Packet(packet.clone()).to_bytes()));
        }
        world.run_for(Span::from_millis(100));
    }
    assert_eq!(world.down(NEAR), Some("the peer ended it: a hello comes first"));
}

#[test]
fn where_many_are_another_shows_first_where_it_is() {
    let mut world = World::new(&Path::default());
    world.ends[FAR].limits.tunnels = 1;
    let mut buf = Vec::new();
    for ms in 0..20 {
        let now = world.now + Span::from_millis(ms);
        while let Some(out) = world.ends[NEAR].transmit(now, &mut buf) {
            let claimed = "100.64.0.7:7".parse().unwrap();
            world.ends[FAR].receive(now, claimed, BytesMut::from(&buf[..out.size]));
        }
    }
    assert_eq!(world.ends[FAR].strangers.len(), 1);
    assert_eq!(world.ends[FAR].replies.len(), 1, "a retry");
    // one that is there shows it
    let mut world = World::new(&Path::default());
    world.ends[FAR].limits.tunnels = 1;
    world.come_up();
    world.run_for(Span::from_secs(1));
    assert!(world.tunnel(FAR).lanes.iter().all(Option::is_some));
}

#[test]
fn one_relay_does_not_take_all_places() {
    let mut world = World::up(&Path::default());
    world.ends[FAR].limits.tunnels = 8;
    let far = world.ends[FAR].credentials.fingerprint();
    let terms = Terms::new(super::world::mbit(1.0), super::world::mbit(1.0));
    for session in 1..=2 {
        let (now, to) = (world.now, world.addresses[FAR]);
        let key = (session, false);
        world.ends[NEAR].connect(now, to, far, Bytes::new(), terms, key).unwrap();
        world.run_for(Span::from_secs(1));
    }
    assert_eq!(world.down(NEAR), Some("the peer ended it: too many tunnels of yours"));
    let up = world.ends[FAR].snapshots();
    assert_eq!(up.iter().filter(|seen| seen.up).count(), 2, "and those that are there stay");
}

#[test]
fn a_peer_without_datagrams_is_sent_away() {
    let mut world = World::odd(&Path::default(), |transport| {
        transport.datagram_receive_buffer_size(None);
    });
    world.run_for(Span::from_secs(1));
    assert_eq!(
        world.down(NEAR),
        Some("the peer ended it: QUIC's DATAGRAM frames must be enabled (RFC 9221)")
    );
}
