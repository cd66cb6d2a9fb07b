//! What a peer makes this side hold: bytes behind others that never come, and several tunnels.

use super::liar::{Liar, MEMORY, frames, open};
use super::network::{FAR, NEAR, pattern};
use crate::core::*;
use crate::frame::{Carries, Frame};
use ekiden_model::units::Span;

const TOO_MUCH: &str = "the peer's tunnels hold more than 10 MiB here";

/// Of all tunnels at FAR.
fn held(liar: &Liar) -> u64 {
    liar.network.ends[FAR].tunnels.values().map(|tunnel| tunnel.memory_held()).sum()
}

#[test]
fn bytes_behind_others_that_never_come_are_bounded() {
    let mut liar = Liar::new();
    let (lying, mut most) = (liar.lying[NEAR], 0);
    for round in 0..100 {
        liar.network.holes(lying, round % 2, 8, 30_000);
        most = most.max(held(&liar));
        if !liar.is_up() {
            break;
        }
    }
    assert!(most > MEMORY.as_u64() && most < 11 << 20, "{most}");
    liar.network.run_for(Span::from_secs(1));
    assert_eq!(liar.end(), Some(TOO_MUCH));
    assert!(held(&liar) < 10_000);
    liar.assert_others_go_on();
}

/// Each keeps to its credit.
#[test]
fn several_tunnels_of_a_peer_hold_no_more_than_two() {
    let mut liar = Liar::new();
    for session in 6..10 {
        let stream = liar.stream(frames(&[open(2, Carries::Stream)])).unwrap();
        // nearly the credit of a flow, which is half of the memory
        let other = liar.stream(frames(&[open(4, Carries::Stream)])).unwrap();
        for at in (0..130).map(|nth| nth * 16_000) {
            let data = |from| Frame::Data { offset: from, bytes: pattern(from, 16_000) };
            liar.on(stream, frames(&[data(at)]));
            liar.on(other, frames(&[data(at)]));
        }
        liar.network.run_for(Span::from_secs(3));
        assert!(held(&liar) < 11 << 20);
        liar.again(session);
    }
    let ended = |event: &&Event| matches!(event, Event::Down { end, .. } if end.reason == TOO_MUCH);
    assert!(liar.network.events[FAR].iter().any(|event| ended(&event)));
    liar.assert_others_go_on();
}
