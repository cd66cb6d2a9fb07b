//! Paths that drop packets by their mark (DSCP).

use super::super::network::{FAR, NEAR, Network, Path, pattern};
use crate::core::*;
use ekiden_model::units::Span;

/// Five minutes of echoes of 64 bytes, one after the other, from the 20th second on: a lane that is silent ends a tunnel after
/// two. Each direction drops a mark; which lanes each end unmarked.
fn echoes(drops: [Option<u8>; 2], rtt: Span) -> [Vec<u8>; 2] {
    let mut network = Network::new(&Path { rtt, ..Path::default() });
    network.drops = drops;
    network.set_up();
    network.run_for(Span::from_secs(20));
    let unmarked = [NEAR, FAR].map(|end| unmarked(&network, end));
    network.events = [Vec::new(), Vec::new()];
    let flow = network.flow(22);
    network.settle(3_000);
    let there = network.twin(flow, FAR);
    let wait = rtt + Span::from_millis(20);
    for nth in 0..300_000 / wait.as_millis() {
        network.ends[NEAR].write(network.now, flow, pattern(nth, 64));
        network.run_for(wait);
        let (bytes, _) = network.read(FAR, there);
        assert_eq!(bytes, pattern(nth, 64), "echo {nth}: {:?}", network.events);
        network.ends[FAR].write(network.now, there, bytes.into());
        network.run_for(wait);
        assert_eq!(network.read(NEAR, flow).0, pattern(nth, 64), "echo {nth}");
    }
    for end in [NEAR, FAR] {
        assert!(network.is_up(end) && network.down(end).is_none(), "{:?}", network.down(end));
        assert!(self::unmarked(&network, end).is_empty(), "no other is later");
        let shown = network.ends[end].snapshots()[0].unmarked;
        assert_eq!(unmarked[end].last().copied(), shown, "the status agrees with the events");
    }
    unmarked
}

fn unmarked(network: &Network, end: usize) -> Vec<u8> {
    let lane = |event: &Event| match event {
        Event::Unmarked { lane, .. } => Some(*lane),
        _ => None,
    };
    network.events[end].iter().filter_map(lane).collect()
}

#[test]
fn a_lane_whose_mark_is_dropped_goes_on_unmarked() {
    for rtt in [Span::from_millis(40), Span::from_millis(600)] {
        for lane in 0..2 {
            // its handshakes do not arrive
            let near = echoes([Some(lane), None], rtt);
            assert_eq!(near, [vec![lane], vec![]], "towards FAR, {rtt}");
            // its handshakes are unmarked at FAR, and NEAR has an acknowledgement or none from before FAR's HELLO
            let [_, far] = echoes([None, Some(lane)], rtt);
            assert_eq!(far, [lane], "towards NEAR, {rtt}");
            let both = echoes([Some(lane); 2], rtt);
            assert_eq!(both, [vec![lane], vec![lane]], "both ways, {rtt}");
        }
    }
}

#[test]
fn a_path_that_loses_much_keeps_its_marks() {
    let mut given_up = 0;
    for seed in 1..=40 {
        let (rtt, loss) = (Span::from_millis(600), 5.0);
        let mut network = Network::new(&Path { rtt, loss, seed, ..Path::default() });
        network.run_for(Span::from_secs(30));
        given_up += usize::from(
            network
                .ends
                .iter()
                .any(|end| end.snapshots().iter().any(|seen| seen.unmarked.is_some())),
        );
    }
    // three losses in a row of one lane's first packets, and none of the other's
    assert!(given_up <= 1, "{given_up} of 40");
}
