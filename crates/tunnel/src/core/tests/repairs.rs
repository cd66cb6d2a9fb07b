//! What repairs gain: files, streams and keystrokes on a path of 600 ms that loses packets.

use super::liar::{ended_by, frames, open, raw};
use super::network::{FAR, NEAR, Network, Path, pattern};
use crate::core::*;
use crate::frame::{Carries, Frame, Opening};
use ekiden_model::control::repair::Window;
use ekiden_model::units::Span;

const RTT: Span = Span::from_millis(600);

fn path(loss: f64, seed: u64) -> Path {
    Path { rates: [2.0, 20.0], rtt: RTT, loss, seed, ..Path::default() }
}

/// A tunnel over which some seconds of a download went, so that the loss is known, and then a pause.
fn warmed(path: &Path, repairs: bool) -> Network {
    let mut network = Network::up(path);
    let bulk = network.flow(1);
    let there = network.twin(bulk, FAR);
    network.settle(1_000);
    if !repairs {
        for end in [NEAR, FAR] {
            network.tunnel(end).forget_repairs();
        }
    }
    let until = network.now + Span::from_secs(4);
    let mut sent = 0;
    while network.now < until {
        sent = network.fill(FAR, there, sent);
        network.read(NEAR, bulk);
        network.step(network.now + Span::from_millis(5));
    }
    let until = network.now + Span::from_secs(5);
    while network.now < until {
        network.read(NEAR, bulk);
        network.step(network.now + Span::from_millis(5));
    }
    network
}

/// Time from a request to the last byte of a file, every byte compared.
fn file(path: &Path, size: u64, repairs: bool) -> Span {
    let mut network = warmed(path, repairs);
    let begun = network.now;
    let flow = network.flow(80);
    let there = network.twin(flow, FAR);
    network.ends[NEAR].write(begun, flow, pattern(0, 300));
    let (mut sent, mut got, mut asked) = (0, 0, 0);
    while got < size {
        network.accept();
        asked += network.read(FAR, there).0.len();
        if asked >= 300 && sent < size {
            let room = (network.ends[FAR].room(there) as u64).min(size - sent);
            network.ends[FAR].write(network.now, there, pattern(sent, room as usize));
            sent += room;
        }
        let (bytes, _) = network.read(NEAR, flow);
        assert_eq!(bytes, pattern(got, bytes.len()));
        got += bytes.len() as u64;
        network.step(network.now + Span::from_millis(2));
        assert!(network.now.since(begun) < Span::from_secs(60), "{got} of {size}");
    }
    network.now.since(begun)
}

fn median(mut spans: Vec<Span>) -> Span {
    spans.sort_unstable();
    spans[spans.len() / 2]
}

#[test]
fn end_of_a_file_does_not_wait_for_retransmissions() {
    for (loss, size) in [(5.0, 100_000), (1.0, 1_000_000), (5.0, 1_000_000), (5.0, 5_000_000)] {
        let [without, with] = [false, true].map(|repairs| {
            median((1..=3).map(|seed| file(&path(loss, seed), size, repairs)).collect())
        });
        println!("{size} bytes at {loss} %: {with}, without repairs {without}");
        assert!(with < without);
    }
}

/// 1,316 bytes each 10.5 ms: the share of the time in which bytes that arrived waited for others.
fn stream(path: &Path, repairs: bool) -> (f64, f64) {
    let mut network = warmed(path, repairs);
    let flow = network.flow(554);
    let there = network.twin(flow, FAR);
    network.settle(1_000);
    let begun = network.now;
    let before = network.ends[FAR].snapshots()[0].clone();
    let (mut sent, mut got, mut blocked) = (0_u64, 0_u64, Span::ZERO);
    let mut delivered = begun;
    while network.now.since(begun) < Span::from_secs(60) {
        if network.now.since(begun).as_nanos() >= sent * 10_500_000 {
            network.ends[FAR].write(network.now, there, pattern(sent * 1_316, 1_316));
            sent += 1;
        }
        let (bytes, _) = network.read(NEAR, flow);
        if !bytes.is_empty() {
            assert_eq!(bytes, pattern(got, bytes.len()));
            got += bytes.len() as u64;
            let pause = network.now.since(delivered);
            // longer than from one message to the next
            if got > 1_316 && pause > Span::from_micros(21_000) {
                blocked += pause;
            }
            delivered = network.now;
        }
        network.step(network.now + Span::from_micros(500));
    }
    let seen = network.ends[FAR].snapshots()[0].clone();
    let overhead = (seen.repair_bytes - before.repair_bytes) as f64 / (sent * 1_316) as f64;
    (blocked.as_secs_f64() / 60.0, overhead)
}

#[test]
fn stream_is_seldom_blocked_by_a_loss() {
    let path = Path { rates: [1.0, 4.0], ..path(2.0, 7) };
    let (without, _) = stream(&path, false);
    let (with, overhead) = stream(&path, true);
    println!("blocked {with:.3} of the time, {without:.3} without repairs; overhead {overhead:.3}");
    assert!(with < 0.1 && without > 0.4 && overhead < 0.3, "{with} {without} {overhead}");
}

/// Echoes of 64 bytes each 100 ms beside a download: percentiles 99 and 99.9. `ECHOES` says for how many seconds.
fn echoes(loss: f64, seconds: u64, seeds: std::ops::Range<u64>) -> (Span, Span) {
    let mut delays = Vec::new();
    for seed in seeds {
        let mut network = warmed(&path(loss, seed), true);
        let (bulk, echo) = (network.flow(1), network.flow(22));
        let (bulk_there, echo_there) = (network.twin(bulk, FAR), network.twin(echo, FAR));
        network.settle(3_000);
        let (mut sent, mut echoed) = (0, 0);
        let (mut asked, first) = (Vec::<Time>::new(), delays.len());
        let begun = network.now;
        while network.now.since(begun) < Span::from_secs(seconds) {
            let now = network.now;
            sent = network.fill(FAR, bulk_there, sent);
            if asked.last().is_none_or(|last| now.since(*last) >= Span::from_millis(100)) {
                network.ends[NEAR].write(now, echo, pattern(0, 64));
                asked.push(now);
            }
            let (bytes, _) = network.read(FAR, echo_there);
            if !bytes.is_empty() {
                network.ends[FAR].write(now, echo_there, bytes.into());
            }
            echoed += network.read(NEAR, echo).0.len();
            while delays.len() - first < echoed / 64 {
                delays.push(now.since(asked[delays.len() - first]));
            }
            network.read(NEAR, bulk);
            network.step(now + Span::from_millis(1));
        }
    }
    delays.sort_unstable();
    let share = |part: usize| delays[delays.len() * part / 1_000];
    (share(990), share(999))
}

#[test]
fn keystrokes_do_not_wait_for_those_before() {
    for loss in [10.0, 20.0] {
        let seconds = std::env::var("ECHOES").ok().and_then(|seconds| seconds.parse().ok());
        let (most, worst) = echoes(loss, seconds.unwrap_or(30), 1..3);
        println!("{loss} %: {most}, {worst}");
        assert!(most < Span::from_millis(720) && worst < Span::from_millis(1_300), "{loss}");
    }
}

#[test]
fn nothing_is_repaired_without_losses_or_beside_bulk() {
    let mut network = warmed(&path(0.0, 1), true);
    let before = network.ends[FAR].snapshots()[0].repairs;
    let flow = network.flow(80);
    let there = network.twin(flow, FAR);
    network.settle(1_000);
    for nth in 0..50 {
        network.ends[FAR].write(network.now, there, pattern(nth * 10_000, 10_000));
        network.run_for(Span::from_millis(200));
    }
    assert_eq!(network.ends[FAR].snapshots()[0].repairs, before);
    // and a full pipe has no room for them
    let mut network = Network::up(&Path { told: Some([2.0, 20.0]), ..path(3.0, 1) });
    let bulk = network.flow(1);
    let there = network.twin(bulk, FAR);
    network.settle(1_000);
    let mut sent = 0;
    let until = network.now + Span::from_secs(10);
    while network.now < until {
        sent = network.fill(FAR, there, sent);
        network.read(NEAR, bulk);
        network.step(network.now + Span::from_millis(1));
    }
    let seen = network.ends[FAR].snapshots()[0].clone();
    assert!(seen.repairs < 5, "{}", seen.repairs);
}

/// Bytes of a download that arrive from the 5th to the 25th second, in order or not, and packets that the queue
/// dropped.
fn full(path: &Path, repairs: bool) -> (u64, u64) {
    let mut network = Network::up(path);
    let bulk = network.flow(1);
    let there = network.twin(bulk, FAR);
    network.settle(1_000);
    if !repairs {
        [NEAR, FAR].iter().for_each(|end| network.tunnel(*end).forget_repairs());
    }
    let mut sent = 0;
    let came = [5, 20].map(|seconds| {
        let until = network.now + Span::from_secs(seconds);
        while network.now < until {
            sent = network.fill(FAR, there, sent);
            network.read(NEAR, bulk);
            network.step(network.now + Span::from_millis(1));
        }
        let seen = &network.ends[NEAR].snapshots()[0];
        seen.received + seen.held
    });
    (came[1] - came[0], network.links[FAR].snapshot().dropped)
}

/// `DRAWS` looks at more losses: their median is nearer to the truth than one, which differs by 1.5 %.
#[test]
fn a_full_pipe_carries_as_much_as_without_repairs() {
    let draws = std::env::var("DRAWS").ok().and_then(|draws| draws.parse().ok()).unwrap_or(1);
    // the peer is told the link's rate, or twice as much
    for (loss, told) in [(0.0, 20.0), (1.0, 20.0), (5.0, 20.0), (0.0, 40.0)] {
        let share = |seed| {
            let path = Path { told: Some([2.0, told]), ..path(loss, seed) };
            let [(without, drops_without), (with, drops)] = [false, true].map(|on| full(&path, on));
            assert!(drops <= drops_without + drops_without / 50, "{drops} beside {drops_without}");
            with as f64 / without as f64
        };
        let mut shares: Vec<f64> = (1..=draws).map(share).collect();
        shares.sort_by(f64::total_cmp);
        let median = shares[shares.len() / 2];
        println!("{loss} %, told {told}: {median:.4} of {shares:.4?}");
        // where packets are lost, data leaves room for a repair's header, and has a stream's of its own
        let least = if loss > 0.0 && draws < 10 { 0.98 } else { 0.995 };
        assert!(median >= least, "{loss} %, told {told}: {median}");
    }
}

/// A peer whose HELLO lacks the word for repairs gets none, and no stream for each piece of data.
#[test]
fn a_peer_that_knows_no_repairs_gets_none() {
    let [old, new] = [false, true].map(|repairs| {
        let mut network = warmed(&path(5.0, 1), repairs);
        let before = network.ends[FAR].snapshots()[0].repair_bytes;
        let flow = network.flow(80);
        let there = network.twin(flow, FAR);
        network.settle(1_000);
        network.ends[FAR].write(network.now, there, pattern(0, 60_000));
        let mut got = 0;
        while got < 60_000 {
            got += network.read(NEAR, flow).0.len();
            network.step(network.now + Span::from_millis(5));
        }
        network.ends[FAR].snapshots()[0].repair_bytes - before
    });
    assert!(old == 0 && new > 0, "{old} and {new} bytes of repairs");
}

fn repair(flow: u64, window: Window) -> BytesMut {
    let symbol = Bytes::from(vec![window.nth; window.width()]);
    frames(&[Frame::Attach(flow), Frame::Repair { window, symbol }])
}

/// A greeting of two packets behind a long name: both parts are copied, since neither fills its packet to the brim.
#[test]
fn the_first_packets_of_a_flow_are_copied() {
    let mut network = warmed(&path(2.0, 1), true);
    let before = network.ends[NEAR].snapshots()[0].copied_bytes;
    let (now, tunnel) = (network.now, network.tunnel[NEAR].unwrap());
    let opening = Opening::named(&"name.".repeat(12), 443);
    let flow = network.ends[NEAR].open(now, tunnel, opening).unwrap();
    network.ends[NEAR].write(now, flow, pattern(0, 1_950));
    network.run_for(Span::from_millis(300));
    let copied = network.ends[NEAR].snapshots()[0].copied_bytes - before;
    assert!(copied > 1_950, "{copied} bytes");
}

#[test]
fn repairs_out_of_range_end_the_tunnel() {
    let window = Window { base: 0, size: 1_000, first: 0, length: 5_000, nth: 1 };
    let beyond = Window { base: 1 << 40, ..window };
    let end = ended_by(|liar| {
        liar.datagram(frames(&[open(2, Carries::Stream)]));
        liar.arrives();
        liar.datagram(repair(2, beyond));
    });
    assert_eq!(end.as_deref(), Some("the peer sent a repair of a flow beyond its credit"));
    // a size of nothing, a symbol that is too short, a window of too many symbols
    for body in [&[0, 0, 0, 5, 1, 9][..], &[0, 8, 0, 5, 1, 9], &[0, 1, 0, 0x40, 200, 1, 9]] {
        let end = ended_by(|liar| {
            liar.datagram(frames(&[open(2, Carries::Stream)]));
            let mut bytes = frames(&[Frame::Attach(2)]);
            bytes.extend_from_slice(&raw(0x20, body.len() as u64, body));
            liar.datagram(bytes);
        });
        assert!(end.is_some_and(|end| end.starts_with("the peer sent a frame of type 0x20")));
    }
}

#[test]
fn repairs_without_end_or_use_are_not_kept_without_bound() {
    let end = ended_by(|liar| {
        for flow in (2..400).step_by(2) {
            liar.datagram(frames(&[open(flow, Carries::Stream)]));
            for nth in 0..60 {
                let first = u64::from(nth % 3);
                let window = Window { base: 9, size: 1_100, first, length: 12_000, nth };
                liar.datagram(repair(flow, window));
                liar.datagram(repair(flow, window));
            }
            if flow % 40 == 0 {
                liar.arrives();
            }
        }
        // of flows that do not exist
        liar.datagram(repair(9_000, Window { base: 0, size: 9, first: 0, length: 9, nth: 0 }));
    });
    assert_eq!(end, None);
}

/// Once a path is known to lose nothing, a sender repairs nothing, and one in 256 frames is the first on its stream. What
/// was kept before that does not fill the 8 MiB that there are, as all of both downloads would.
#[test]
fn a_path_without_losses_keeps_next_to_nothing_for_repairs() {
    let mut network = warmed(&path(0.0, 1), true);
    let flow = network.flow(80);
    let there = network.twin(flow, FAR);
    let until = network.now + Span::from_secs(4);
    let (mut sent, mut got) = (0, 0);
    while network.now < until {
        network.accept();
        sent = network.fill(FAR, there, sent);
        got += network.read(NEAR, flow).0.len();
        network.step(network.now + Span::from_millis(5));
    }
    let kept = network.tunnel(NEAR).kept_for_repairs();
    assert!(got > 5_000_000 && kept < 6 << 20, "{kept} bytes kept, {got} came");
}
