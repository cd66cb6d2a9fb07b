//! What this side holds: bytes behind others that never come, several tunnels, and flows whose readers are slow.

use super::liar::{Liar, MEMORY, frames, open};
use super::network::{FAR, NEAR, Network, Path, pattern, slow};
use crate::core::*;
use crate::frame::{Carries, Frame};
use ekiden_model::control::rate_hold::SentBytes;
use ekiden_model::units::{self, Span};

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

/// To see it fail: do not reset its streams. QUIC keeps them until it has waited for late packets, which takes 49 s where
/// the peer says that it acknowledges after 16.
#[test]
fn bytes_that_an_ended_tunnel_has_sent_are_not_kept() {
    for end in [NEAR, FAR] {
        let mut network = Network::up(&Path::default());
        network.run_for(Span::from_millis(500));
        // NEAR acknowledges nothing of it
        network.cut[FAR] = true;
        let mut pieces = Vec::new();
        for lane in network.tunnel(FAR).lanes.iter_mut().flatten() {
            for _ in 0..10 {
                let stream = lane.open().unwrap();
                let mut piece = BytesMut::zeroed(20_000);
                lane.write(stream, piece.split());
                pieces.push(piece);
            }
        }
        network.run_for(Span::from_millis(300));
        assert!(pieces.iter_mut().all(|piece| !piece.try_reclaim(20_000)));
        let ended = network.tunnel[end].unwrap();
        network.ends[end].close(network.now, ended, "an end");
        network.run_for(Span::from_millis(60));
        assert!(network.ends[FAR].tunnels.is_empty());
        assert_eq!(network.ends[FAR].pending.len(), 2, "they are being closed");
        assert!(pieces.iter_mut().all(|piece| piece.try_reclaim(20_000)), "by {end}");
    }
}

/// FAR has four tunnels, and a thousand packets in flight in each, as if each had filled while it was alone.
#[test]
fn records_of_packets_that_ended_tunnels_have_sent_are_bounded() {
    let mut network = Network::up(&Path { memory: MEMORY, ..Path::default() });
    for session in 1..4 {
        let far = network.ends[FAR].credentials.fingerprint();
        let (now, to, key) = (network.now, network.addresses[FAR], (session, false));
        network.ends[NEAR].connect(now, to, far, Bytes::new(), slow(), key).unwrap();
    }
    network.run_for(Span::from_secs(1));
    network.cut = [true; 2];
    let (clock, mut buf) = (network.ends[FAR].instant(network.now), Vec::new());
    for tunnel in network.ends[FAR].tunnels.values_mut() {
        let lane = tunnel.lanes[1].as_mut().unwrap();
        lane.quinn.set_send_window(MEMORY.as_u64());
        let stream = lane.open().unwrap();
        lane.write(stream, BytesMut::zeroed(1_250_000));
        while let Some(polled) = lane.poll_transmit(clock, &mut buf) {
            lane.on_sent(polled, SentBytes { epoch: 0, bytes: units::Bytes::new(1_250) });
        }
        assert!(lane.keeps() > MEMORY.as_u64() / 16, "{}", lane.keeps());
    }
    let tunnels: Vec<TunnelId> = network.ends[FAR].tunnels.keys().copied().collect();
    assert_eq!(tunnels.len(), 4);
    for tunnel in tunnels {
        network.ends[FAR].close(network.now, tunnel, "an end");
        network.run_for(Span::from_millis(10));
        let pending = network.ends[FAR].pending.values();
        let kept: u64 = pending.map(|pending| pending.lane.keeps()).sum();
        assert!((1..=MEMORY.as_u64() / 8).contains(&kept), "{kept}");
    }
}

#[test]
fn connections_of_tunnels_that_have_ended_are_few() {
    let mut network = Network::up(&Path::default());
    for session in 1..9 {
        let far = network.ends[FAR].credentials.fingerprint();
        let (now, to, key) = (network.now, network.addresses[FAR], (session, false));
        network.ends[NEAR].connect(now, to, far, Bytes::new(), slow(), key).unwrap();
    }
    network.run_for(Span::from_secs(2));
    let far = &mut network.ends[FAR];
    let tunnels: Vec<TunnelId> = far.tunnels.keys().copied().collect();
    assert_eq!(tunnels.len(), 9);
    far.limits.tunnels = 4;
    tunnels.into_iter().for_each(|tunnel| far.close(network.now, tunnel, "an end"));
    assert_eq!(far.pending.len(), 8);
}

/// A tunnel with 1 MiB of memory, and so many flows.
fn small(flows: usize) -> (Network, Vec<FlowId>) {
    let mut network = Network::up(&Path { memory: units::Bytes::mib(1), ..Path::default() });
    let flows = (0..flows).map(|_| network.flow(80)).collect();
    network.settle(300);
    (network, flows)
}

/// Nine tenths wait for readers that take nothing yet. To see it fail: grant no less than an eighth at once.
#[test]
fn the_last_eighth_of_the_memory_carries_a_flow_that_is_read() {
    let (mut network, flows) = small(10);
    for flow in &flows[..9] {
        network.ends[NEAR].write(network.now, *flow, pattern(0, 102_400));
        network.run_for(Span::from_millis(100));
    }
    network.run_for(Span::from_secs(1));
    assert_eq!(network.ends[FAR].snapshots()[0].held, 9 * 102_400);
    let there = network.twin(flows[9], FAR);
    let (mut written, mut read) = (0, 0);
    for _ in 0..250 {
        written = network.fill(NEAR, flows[9], written);
        network.run_for(Span::from_millis(20));
        read += network.read(FAR, there).0.len();
    }
    assert!(read > 1 << 20, "{read} of {written}");
    assert_eq!(network.flow_counts(), [10, 10], "and none was ended for it");
}

/// Each takes a piece every 9 s, and would for an hour. To see it fail: let any piece count as progress.
#[test]
fn readers_that_hardly_read_give_their_memory_to_others() {
    let (mut network, flows) = small(3);
    let there: Vec<FlowId> = flows.iter().map(|flow| network.twin(*flow, FAR)).collect();
    for _ in 0..100 {
        for flow in &flows[..2] {
            network.fill(NEAR, *flow, 0);
        }
        network.run_for(Span::from_millis(20));
    }
    assert_eq!(network.ends[FAR].snapshots()[0].held, 1 << 20, "all of it");
    network.ends[NEAR].write(network.now, flows[2], pattern(0, 1_000));
    for _ in 0..3 {
        for flow in &there[..2] {
            let read = network.ends[FAR].read(network.now, *flow);
            assert!(matches!(read, Read::Bytes(_) | Read::Gone), "{read:?}");
        }
        network.run_for(Span::from_secs(9));
    }
    assert_eq!(network.read(FAR, there[2]).0, pattern(0, 1_000));
    let gone = (0..2).filter(|nth| network.read(FAR, there[*nth]).1 == Read::Gone).count();
    assert_eq!(gone, 1, "one was enough");
}

/// Two read 20 kB a second of downloads without end. To see it fail: grant each its whole window again.
#[test]
fn slow_readers_leave_memory_to_others() {
    let (mut network, flows) = small(2);
    let mut due = [0_usize; 2];
    for nth in 0..600 {
        for (flow, due) in flows.iter().zip(&mut due) {
            network.fill(NEAR, *flow, 0);
            let there = network.twin(*flow, FAR);
            *due += 2_000;
            while *due > 1_000
                && let Read::Bytes(bytes) = network.ends[FAR].read(network.now, there)
            {
                *due = due.saturating_sub(bytes.len());
            }
        }
        network.run_for(Span::from_millis(100));
        let held = network.ends[FAR].snapshots()[0].held;
        assert!(nth < 300 || held <= (1 << 20) / 8 * 7, "{held}");
    }
    assert_eq!(network.flow_counts(), [2, 2], "and stay");
}

/// Both hold half, and take a piece a second. To see it fail: grant nothing to a flow that holds more than its window.
#[test]
fn slow_readers_whose_window_became_smaller_grant_more_nevertheless() {
    let (mut network, flows) = small(2);
    for _ in 0..60 {
        for flow in &flows {
            network.fill(NEAR, *flow, 0);
            let there = network.twin(*flow, FAR);
            let read = network.ends[FAR].read(network.now, there);
            assert!(matches!(read, Read::Bytes(_) | Read::Blocked), "{read:?}");
        }
        network.run_for(Span::from_secs(1));
    }
    for flow in &flows {
        let sent = network.ends[NEAR].flow_status(*flow).unwrap().sent;
        assert!(sent > 512 * 1024, "{sent}");
    }
}
