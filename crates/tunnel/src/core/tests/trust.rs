//! Who is let in, and what becomes of tunnels that end.

use super::world::{FAR, NEAR, Path, SECRET, World, pattern};
use crate::core::*;
use ekiden_model::units::Span;

fn down(events: &[Event]) -> Option<&str> {
    events.iter().find_map(|event| match event {
        Event::Down { reason, .. } => Some(reason.as_str()),
        _ => None,
    })
}

#[test]
fn an_invitation_is_good_for_one_relay() {
    let mut world = World::new(&Path::default());
    world.run_for(Span::from_secs(1));
    let joined = world.events[FAR].iter().find_map(|event| match event {
        Event::Joined { peer, invitation } => Some((*peer, *invitation)),
        _ => None,
    });
    let (peer, invitation) = joined.unwrap();
    assert_eq!(invitation, crate::trust::hash(SECRET));
    // another one with the same token
    let far = world.ends[FAR].credentials.fingerprint();
    let terms = Terms::new(super::world::mbit(1.0), super::world::mbit(1.0));
    let other = Credentials::generate().unwrap();
    assert_ne!(peer, other.fingerprint());
    world.ends[NEAR] =
        Endpoint::new(other, Limits::default(), false, world.ends[NEAR].origin, None);
    let to = world.addresses[FAR];
    let secret = Bytes::from_static(SECRET);
    world.ends[NEAR].connect(world.now, to, far, secret, terms, (5, false)).unwrap();
    world.run_for(Span::from_secs(2));
    let reason = down(&world.events[NEAR]).unwrap();
    assert!(reason.contains("does not know yours"), "{reason}");
}

#[test]
fn another_certificate_is_not_taken() {
    let mut world = World::new(&Path::default());
    let terms = Terms::new(super::world::mbit(1.0), super::world::mbit(1.0));
    let other = Credentials::generate().unwrap().fingerprint();
    let to = world.addresses[FAR];
    world.ends[NEAR].connect(world.now, to, other, Bytes::new(), terms, (5, false)).unwrap();
    world.run_for(Span::from_secs(2));
    let reason = down(&world.events[NEAR]).unwrap();
    assert!(reason.contains("another certificate"), "{reason}");
}

#[test]
fn revocation_ends_a_tunnel() {
    let mut world = World::up(&Path::default());
    let flow = world.flow(80);
    world.run_for(Span::from_millis(300));
    world.ends[FAR].admit(world.now, &[], &[]);
    world.run_for(Span::from_millis(300));
    let reason = down(&world.events[NEAR]).unwrap();
    assert!(reason.contains("revoked"), "{reason}");
    assert_eq!(world.ends[NEAR].read(world.now, flow), Read::Gone);
    assert!(world.ends[NEAR].answer(flow).unwrap().is_err());
}

#[test]
fn silence_ends_a_tunnel_within_ten_seconds() {
    let mut world = World::up(&Path::default());
    let flow = world.flow(80);
    world.ends[NEAR].write(world.now, flow, pattern(0, 100_000));
    world.run_for(Span::from_secs(1));
    world.cut = [true; 2];
    let begun = world.now;
    while down(&world.events[NEAR]).is_none() || down(&world.events[FAR]).is_none() {
        let until = begun + Span::from_secs(10);
        assert!(world.now < until, "not noticed");
        world.step(until);
    }
    assert!(down(&world.events[NEAR]).unwrap().contains("nothing was heard"));
}

#[test]
fn a_relay_that_was_restarted_is_noticed_at_once() {
    let mut world = World::up(&Path::default());
    world.run_for(Span::from_secs(3));
    let credentials = world.ends[FAR].credentials.clone();
    world.ends[FAR] =
        Endpoint::new(credentials, Limits::default(), true, world.ends[FAR].origin, None);
    world.events[NEAR].clear();
    let flow = world.flow(80);
    world.ends[NEAR].write(world.now, flow, pattern(0, 100_000));
    world.run_for(Span::from_secs(1));
    assert_eq!(down(&world.events[NEAR]), Some("the peer was restarted"));
}

#[test]
fn an_address_that_changes_does_not_matter() {
    let mut world = World::up(&Path::default());
    let flow = world.flow(80);
    world.ends[NEAR].write(world.now, flow, pattern(0, 200_000));
    world.run_for(Span::from_millis(60));
    world.addresses[NEAR] = "100.64.0.9:9".parse().unwrap();
    world.run_for(Span::from_secs(2));
    world.accept();
    let there = world.twin(flow, FAR);
    assert_eq!(world.read(FAR, there).0, pattern(0, 200_000).to_vec());
    let seen = world.ends[FAR].snapshots();
    assert_eq!(seen[0].address, Some(world.addresses[NEAR]));
    world.run_for(Span::from_secs(3));
    let in_flight = world.ends[NEAR].snapshots()[0].in_flight;
    assert_eq!(in_flight, 0);
}
