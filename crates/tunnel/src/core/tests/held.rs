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
        // nearly the credit of all flows, which is the memory; each begins with a 32nd of it
        let flows = (2..).step_by(2).take(32);
        let streams: Vec<_> = flows
            .map(|flow| liar.stream(frames(&[open(flow, Carries::Stream)])).unwrap())
            .collect();
        for offset in (0..8).map(|nth| nth * 16_000) {
            let data = frames(&[Frame::Data { offset, bytes: pattern(offset, 16_000) }]);
            streams.iter().for_each(|stream| liar.on(*stream, data.clone()));
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

/// A tunnel with so much memory, of which each flow begins with a 32nd or 64 KiB, and so many flows.
fn with_memory(mib: u64, flows: usize) -> (Network, Vec<FlowId>) {
    let mut network = Network::up(&Path { memory: units::Bytes::mib(mib), ..Path::default() });
    let flows = (0..flows).map(|_| network.flow(80)).collect();
    network.settle(300);
    (network, flows)
}

/// More than seven eighths (917,504 bytes) wait for readers that take nothing yet. To see it fail: grant no less than an
/// eighth at once.
#[test]
fn the_last_eighth_of_the_memory_carries_a_flow_that_is_read() {
    let (mut network, flows) = with_memory(1, 16);
    for flow in &flows[..15] {
        network.ends[NEAR].write(network.now, *flow, pattern(0, 62_000));
        network.run_for(Span::from_millis(100));
    }
    network.run_for(Span::from_secs(1));
    assert_eq!(network.ends[FAR].snapshots()[0].held, 15 * 62_000);
    let there = network.twin(flows[15], FAR);
    let (mut written, mut read) = (0, 0);
    for _ in 0..250 {
        written = network.fill(NEAR, flows[15], written);
        network.run_for(Span::from_millis(20));
        read += network.read(FAR, there).0.len();
    }
    assert!(read > 1 << 20, "{read} of {written}");
    assert_eq!(network.flow_counts(), [16, 16], "and none was ended for it");
}

/// 32 hold 512 KiB each, and take a piece every 9 s: less than a 64th, 8 KiB. Eight less a piece each are not quite a quarter
/// of the memory, so nine end. To see it fail: let any piece count as progress.
#[test]
fn readers_that_hardly_read_give_their_memory_to_others() {
    let (mut network, flows) = with_memory(16, 33);
    let there: Vec<FlowId> = flows.iter().map(|flow| network.twin(*flow, FAR)).collect();
    for _ in 0..450 {
        for flow in &flows[..32] {
            network.fill(NEAR, *flow, 0);
        }
        network.run_for(Span::from_millis(20));
    }
    assert_eq!(network.ends[FAR].snapshots()[0].held, 16 << 20, "all of it");
    network.ends[NEAR].write(network.now, flows[32], pattern(0, 1_000));
    for _ in 0..3 {
        for flow in &there[..32] {
            let read = network.ends[FAR].read(network.now, *flow);
            assert!(matches!(read, Read::Bytes(_) | Read::Gone), "{read:?}");
        }
        network.run_for(Span::from_secs(9));
    }
    assert_eq!(network.read(FAR, there[32]).0, pattern(0, 1_000));
    let gone = (0..32).filter(|nth| network.read(FAR, there[*nth]).1 == Read::Gone).count();
    assert_eq!(gone, 9, "no more than needed");
}

/// 13 hold 62 KiB each of 1 MiB: less than a quarter is free, and more than an eighth. With two more the peer has 94 KiB of
/// credit. Two flows less leave 218 KiB, and three 280: more than a quarter. To see it fail: ask only what is free.
#[test]
fn readers_that_take_nothing_stay_while_the_peer_has_credit() {
    let (mut network, flows) = with_memory(1, 15);
    let write = |network: &mut Network, flows: &[FlowId]| {
        for flow in flows {
            network.ends[NEAR].write(network.now, *flow, pattern(0, 62 * 1_024));
        }
    };
    write(&mut network, &flows[..13]);
    network.run_for(Span::from_secs(30));
    assert_eq!(network.flow_counts()[FAR], 15);
    write(&mut network, &flows[13..]);
    network.run_for(Span::from_secs(1));
    assert_eq!(network.flow_counts()[FAR], 15, "it may be over in a moment");
    network.run_for(Span::from_secs(8));
    assert_eq!(network.flow_counts()[FAR], 12);
}

/// Five read 4 kB a second of downloads without end. Each begins with a 32nd of 16 MiB. In two halves of the ten seconds, up
/// to 11 s, it takes no more than 50 kB. So half of what it began with, 256 KiB, is more than four times its pace. It comes to
/// that in 75 s, since of 4 kB a second half of one is granted again meanwhile. To see it fail: promise or grant each six times what the path holds, 3 MB.
#[test]
fn slow_readers_leave_memory_to_others() {
    let (mut network, flows) = with_memory(16, 5);
    let mut due = [0; 5];
    for nth in 0..1_500 {
        for (flow, due) in flows.iter().zip(&mut due) {
            network.fill(NEAR, *flow, 0);
            let there = network.twin(*flow, FAR);
            *due += 400;
            while *due > 0
                && let Read::Bytes(bytes) = network.ends[FAR].read(network.now, there)
            {
                *due -= bytes.len() as i64;
            }
        }
        network.run_for(Span::from_millis(100));
        let held = network.ends[FAR].snapshots()[0].held;
        let most = if nth < 1_300 { 5 * (16 << 20) / 32 } else { 5 * 270_000 };
        assert!(held <= most, "{held} after {nth} tenths of a second");
    }
    assert_eq!(network.flow_counts(), [5, 5], "and stay");
}

/// Each began with 64 KiB, may now have 32, and takes a piece every 5 s. To see it fail: grant nothing to a flow that holds
/// more than its window.
#[test]
fn slow_readers_whose_window_became_smaller_grant_more_nevertheless() {
    let (mut network, flows) = with_memory(1, 2);
    for _ in 0..12 {
        for flow in &flows {
            network.fill(NEAR, *flow, 0);
            let there = network.twin(*flow, FAR);
            let read = network.ends[FAR].read(network.now, there);
            assert!(matches!(read, Read::Bytes(_) | Read::Blocked), "{read:?}");
        }
        network.run_for(Span::from_secs(5));
    }
    for flow in &flows {
        let sent = network.ends[NEAR].flow_status(*flow).unwrap().sent;
        assert!(sent > 64 * 1024, "{sent}");
    }
}

/// 512 KiB of 16 MiB at first, where a round trip holds 1.5 MB. After one it may have sent five times that. So it stands still
/// once, also after a pause. To see it fail: keep the window that a flow begins with.
#[test]
fn a_fast_reader_soon_has_a_large_window() {
    let (rtt, memory) = (Span::from_millis(600), units::Bytes::mib(16));
    let mut network = Network::up(&Path { rtt, memory, ..Path::default() });
    let flow = network.flow(80);
    network.settle(1_000);
    let there = network.twin(flow, FAR);
    let mut written = 0;
    for pause in [0, 20] {
        let goes_on = network.now + Span::from_secs(pause);
        while network.now < goes_on {
            written = network.fill(NEAR, flow, written);
            network.run_for(Span::from_millis(50));
        }
        let (begun, mut read) = (network.now, 0);
        while network.now < begun + Span::from_secs(10) {
            written = network.fill(NEAR, flow, written);
            network.run_for(Span::from_millis(5));
            read += network.read(FAR, there).0.len();
            let full = network.ends[NEAR].flow_status(flow).unwrap().full;
            assert!(!full || network.now < begun + Span::from_secs(2), "{:?}", network.now);
        }
        // of 24 MB; the first window each round trip would be 9
        assert!(read > 15_000_000, "{read} of {written}");
    }
}
