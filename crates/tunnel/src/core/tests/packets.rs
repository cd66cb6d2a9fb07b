//! Flows of packets: whole or not at all, beside everything else.

use super::network::{FAR, NEAR, Network, Path, pattern};
use crate::core::*;
use crate::frame::Carries;
use ekiden_model::units::Span;

fn all(network: &mut Network, end: usize, flow: FlowId) -> Vec<Bytes> {
    std::iter::from_fn(|| network.ends[end].packet(flow)).collect()
}

fn open(network: &mut Network) -> (FlowId, FlowId) {
    network.carries = Carries::Packets;
    let here = network.flow(53);
    network.carries = Carries::Stream;
    (here, network.twin(here, FAR))
}

#[test]
fn packets_come_whole_before_the_answer_and_after() {
    let mut network = Network::up(&Path::default());
    let (here, there) = open(&mut network);
    // without bytes, small, as large as fits, too large for a datagram
    let lengths = [0, 1, 1_200, 5_000, 16_000];
    for length in lengths {
        assert!(network.ends[NEAR].send_packet(network.now, here, pattern(9, length)));
    }
    assert!(!network.ends[NEAR].send_packet(network.now, here, pattern(9, 17_000)));
    network.run_for(Span::from_millis(300));
    let mut came: Vec<usize> = all(&mut network, FAR, there).iter().map(Bytes::len).collect();
    came.sort_unstable();
    assert_eq!(came, lengths);
    assert_eq!(network.ends[NEAR].answer(here), None);
    network.accept();
    assert!(network.ends[FAR].send_packet(network.now, there, pattern(5, 700)));
    network.run_for(Span::from_millis(300));
    assert_eq!(network.ends[NEAR].answer(here), Some(Ok(())));
    assert_eq!(all(&mut network, NEAR, here), [pattern(5, 700)]);
    network.ends[NEAR].finish(network.now, here, End::Fin);
    network.run_for(Span::from_millis(300));
    assert_eq!(network.ends[FAR].read(network.now, there), Read::End(End::Fin));
    network.ends[FAR].finish(network.now, there, End::Fin);
    network.run_for(Span::from_millis(300));
    assert_eq!(network.ends[NEAR].read(network.now, here), Read::End(End::Fin));
    network.run_for(Span::from_millis(300));
    network.ends.iter().for_each(Endpoint::assert_balanced);
}

/// To see it fail: send one packet a turn. A turn pays for a whole datagram, and what is left of it for the next packet.
#[test]
fn a_burst_comes_whole_though_none_follows() {
    for length in [20, 700, 1_100] {
        let mut network = Network::up(&Path::default());
        let (here, there) = open(&mut network);
        for _ in 0..200 {
            assert!(network.ends[NEAR].send_packet(network.now, here, pattern(9, length)));
        }
        network.run_for(Span::from_secs(2));
        assert_eq!(all(&mut network, FAR, there).len(), 200, "of {length} bytes");
    }
}

#[test]
fn lost_packets_are_not_retransmitted_or_waited_for() {
    let mut network = Network::up(&Path { loss: 10.0, ..Path::default() });
    let (here, there) = open(&mut network);
    let mut came = Vec::new();
    for nth in 0..500_u32 {
        network.ends[NEAR].send_packet(
            network.now,
            here,
            Bytes::copy_from_slice(&nth.to_be_bytes()),
        );
        network.run_for(Span::from_millis(20));
        let now = all(&mut network, FAR, there);
        came.extend(now.iter().map(|b| u32::from_be_bytes(b[..].try_into().unwrap())));
    }
    assert!((400..490).contains(&came.len()), "{}", came.len());
    assert!(came.is_sorted(), "each as soon as it comes");
}

#[test]
fn a_call_does_not_wait_behind_a_download() {
    let path = Path { rates: [2.0, 20.0], rtt: Span::from_millis(100), ..Path::default() };
    let mut network = Network::up(&path);
    let (here, there) = open(&mut network);
    let bulk = network.flow(80);
    let bulk_there = network.twin(bulk, FAR);
    network.settle(300);
    let (mut sent, mut delays) = (0, Vec::new());
    for _ in 0..200 {
        let left = network.now;
        // a voice's 50 packets a second
        assert!(network.ends[FAR].send_packet(left, there, pattern(0, 160)));
        let until = left + Span::from_millis(20);
        while network.now < until {
            sent = network.fill(FAR, bulk_there, sent);
            network.read(NEAR, bulk);
            if !all(&mut network, NEAR, here).is_empty() {
                delays.push(network.now);
            }
            network.step(until);
        }
    }
    assert!(delays.len() >= 190, "{}", delays.len());
    assert!(network.ends[FAR].snapshots()[0].sent > 6_000_000);
    // evenly: none later than the one before by more than a few packets' time
    let gaps: Vec<Span> = delays.windows(2).map(|two| two[1].since(two[0])).collect();
    assert!(gaps.iter().all(|gap| *gap < Span::from_millis(25)), "{gaps:?}");
}

#[test]
fn packets_without_end_do_not_stop_others() {
    let mut network = Network::up(&Path { rates: [4.0, 4.0], ..Path::default() });
    let (here, _) = open(&mut network);
    let echo = network.flow(22);
    let there = network.twin(echo, FAR);
    network.settle(300);
    for _ in 0..1_000 {
        while network.ends[NEAR].send_packet(network.now, here, pattern(0, 1_000)) {}
        network.run_for(Span::from_millis(5));
    }
    network.ends[NEAR].write(network.now, echo, pattern(0, 64));
    network.run_for(Span::from_millis(100));
    assert_eq!(network.read(FAR, there).0.len(), 64);
}

/// Each packet needs a dozen turns, and nobody's is whole before all have had theirs.
#[test]
fn thousands_of_long_packets_take_turns() {
    let mut network = Network::up(&Path { rates: [400.0, 400.0], ..Path::default() });
    let flows: Vec<FlowId> = (0..3_000).map(|_| open(&mut network).0).collect();
    network.run_for(Span::from_millis(500));
    for flow in &flows {
        assert!(network.ends[NEAR].send_packet(network.now, *flow, pattern(0, 16_376)));
    }
    network.run_for(Span::from_millis(200));
    assert!(network.is_up(NEAR) && network.is_up(FAR));
    let there = flows.iter().map(|flow| network.twin(*flow, FAR)).collect::<Vec<_>>();
    let came = there.iter().filter_map(|flow| network.ends[FAR].packet(*flow)).count();
    assert!(came > 0);
}
