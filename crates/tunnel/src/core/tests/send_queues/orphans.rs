//! Flows whose owners have left while bytes wait: they end, sent or reset.

use super::super::liar::{Liar, frames, open};
use super::super::network::{FAR, NEAR, Network, Path, pattern};
use crate::core::*;
use crate::frame::reason::Reason;
use crate::frame::{Carries, Frame};
use ekiden_model::resources::orphan::PATIENCE;
use ekiden_model::units::{self, Span};

/// What a flow of the tests leaves behind beside what the peer takes.
const REST: usize = 200_000;

/// A fast path, and a peer whose window is the smallest.
fn network() -> Network {
    let mut network = Network::new(&Path::default());
    network.ends[FAR].limits.memory = units::Bytes::kib(512);
    network.set_up();
    network.run_for(Span::from_millis(500));
    network
}

/// A flow of NEAR, accepted, with the peer's window full and [`REST`] bytes waiting, and the bytes written.
fn stalled(network: &mut Network) -> (FlowId, usize) {
    let flow = network.flow(80);
    network.settle(500);
    network.run_for(Span::from_millis(500));
    let mut written = 0;
    while network.ends[NEAR].flow_status(flow).unwrap().queued < REST as u64 {
        let bytes = pattern(written as u64, 20_000);
        network.ends[NEAR].write(network.now, flow, bytes);
        written += 20_000;
        network.run_for(Span::from_millis(200));
    }
    (flow, written)
}

/// Its owner ends both directions and goes.
fn leave(network: &mut Network, flow: FlowId, end: End) {
    let there = network.twin(flow, FAR);
    network.ends[FAR].finish(network.now, there, End::Fin);
    network.run_for(Span::from_secs(1));
    assert_eq!(network.read(NEAR, flow).1, Read::End(End::Fin));
    network.ends[NEAR].finish(network.now, flow, end);
    network.ends[NEAR].leave(network.now, flow);
}

fn orphans(network: &Network) -> (usize, u64) {
    let seen = &network.ends[NEAR].snapshots()[0];
    (seen.orphans, seen.orphans_reset)
}

fn resets(network: &Network) -> u64 {
    let of = |event: &Event| match event {
        Event::OrphansReset { flows, .. } => *flows,
        _ => 0,
    };
    network.events[NEAR].iter().map(of).sum()
}

#[test]
fn a_flow_without_an_owner_of_which_the_peer_takes_nothing_ends() {
    for end in [End::Fin, End::Reset(Reason::Closed, "broke".to_owned())] {
        let mut network = network();
        let (flow, written) = stalled(&mut network);
        leave(&mut network, flow, end);
        network.run_for(Span::from_secs(PATIENCE.as_secs() - 1));
        assert_eq!((orphans(&network), network.flow_counts()[NEAR]), ((1, 0), 1));
        network.run_for(Span::from_secs(7));
        assert_eq!((orphans(&network), network.flow_counts()[NEAR]), ((0, 1), 0));
        assert_eq!((network.ends[NEAR].snapshots()[0].waiting, resets(&network)), (0, 1));
        // what had come is read, and then the reason
        let there = network.twin(flow, FAR);
        let (bytes, end) = network.read(FAR, there);
        assert!(!bytes.is_empty() && bytes.len() < written, "{}", bytes.len());
        assert!(matches!(end, Read::End(End::Reset(Reason::Stalled, _))), "{end:?}");
        network.run_for(Span::from_secs(1));
        network.ends.iter().for_each(Endpoint::assert_balanced);
    }
}

/// 400 bytes a second: of 64 KiB it would grant more once 16 are left, but a flow without progress does not last so long.
#[test]
fn a_flow_without_an_owner_whose_peer_reads_slowly_is_sent_whole() {
    let mut network = network();
    let (flow, written) = stalled(&mut network);
    leave(&mut network, flow, End::Fin);
    let there = network.twin(flow, FAR);
    let (begun, mut read) = (network.now, Vec::new());
    while read.len() < written {
        let state = network.ends[FAR].read(network.now, there);
        let Read::Bytes(bytes) = state else { panic!("{state:?} after {}", read.len()) };
        network.run_for(Span::from_millis(bytes.len() as u64 * 10 / 4));
        read.extend_from_slice(&bytes);
    }
    assert!(network.now.since(begun) > PATIENCE + PATIENCE);
    assert_eq!((&read[..], orphans(&network)), (&pattern(0, written)[..], (0, 0)));
    network.run_for(Span::from_secs(1));
    assert_eq!(network.read(FAR, there).1, Read::End(End::Fin));
    network.run_for(Span::from_secs(1));
    network.ends.iter().for_each(Endpoint::assert_balanced);
}

/// A line of 100 kbit/s and 300 flows: the last waits longer for its turn than one without progress lasts.
#[test]
fn a_flow_without_an_owner_that_waits_for_its_turn_is_sent_whole() {
    let mut network = Network::up(&Path { rates: [0.1, 0.1], ..Path::default() });
    network.run_for(Span::from_secs(1));
    let flows: Vec<FlowId> = (1..=300).map(|port| network.flow(port)).collect();
    network.settle(20_000);
    network.run_for(Span::from_secs(10));
    for flow in &flows {
        let there = network.twin(*flow, FAR);
        network.ends[FAR].finish(network.now, there, End::Fin);
        network.ends[NEAR].write(network.now, *flow, pattern(0, 6_000));
        network.ends[NEAR].finish(network.now, *flow, End::Fin);
    }
    network.run_for(Span::from_secs(10));
    for flow in &flows {
        assert_eq!(network.read(NEAR, *flow).1, Read::End(End::Fin));
        network.ends[NEAR].leave(network.now, *flow);
    }
    assert!(orphans(&network).0 > 290);
    let mut read = vec![0; flows.len()];
    for _ in 0..400 {
        network.run_for(Span::from_secs(1));
        for (flow, read) in flows.iter().zip(&mut read) {
            let there = network.twin(*flow, FAR);
            *read += network.read(FAR, there).0.len();
        }
    }
    let whole = read.iter().filter(|read| **read == 6_000).count();
    assert_eq!((whole, orphans(&network)), (300, (0, 0)));
}

/// It acknowledges all, and grants a byte of the flow, or of all flows together, every 5 s.
#[test]
fn a_peer_that_grants_single_bytes_keeps_no_flow() {
    // the credit of one flow is used up, or that of all by eight others, for which four wait
    for flows in [&[2][..], &[2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24]] {
        let mut liar = Liar::new();
        liar.again_with(6, units::Bytes::kib(512));
        let (near, far) = (NEAR, FAR);
        let last = FlowId { tunnel: liar.lying[far], flow: *flows.last().unwrap() };
        for flow in flows {
            liar.stream(frames(&[open(*flow, Carries::Stream), Frame::Fin(0)])).unwrap();
            liar.arrives();
            let (now, id) = (liar.network.now, FlowId { flow: *flow, ..last });
            let end = &mut liar.network.ends[far];
            end.accept(now, id);
            end.write(now, id, pattern(0, 100_000));
            assert_eq!(end.read(now, id), Read::End(End::Fin));
            liar.network.run_for(Span::from_secs(2));
        }
        let now = liar.network.now;
        liar.network.ends[far].finish(now, last, End::Fin);
        liar.network.ends[far].leave(now, last);
        let seen = liar.network.ends[far].flow_status(last).unwrap();
        assert_eq!((seen.full, seen.all_full), (flows.len() == 1, flows.len() > 1), "{seen:?}");
        let all = liar.network.ends[far].tunnels[&liar.lying[far]].counted().0;
        for nth in 1..PATIENCE.as_secs() / 5 {
            let limit = seen.sent + nth;
            let more = match flows.len() {
                1 => Frame::Credit { flow: last.flow, limit },
                _ => Frame::Total(all + nth),
            };
            liar.control(frames(&[more]));
            liar.network.run_for(Span::from_secs(5));
        }
        let after = liar.network.ends[far].tunnels[&liar.lying[far]].counted().0;
        assert!(after >= all + 10, "{after}");
        assert!(liar.network.ends[far].flow_status(last).is_some());
        liar.network.run_for(Span::from_secs(12));
        assert_eq!(liar.network.ends[far].flow_status(last), None);
        assert!(liar.is_up() && liar.network.down(near).is_none());
        liar.assert_others_go_on();
    }
}
