//! Peers that are known and do what they must not: the tunnel ends, and memory stays bounded.

use super::liar::hello;
use super::network::{FAR, NEAR, Network, Path, mbit, pattern, slow};
use crate::core::lane::{Lane, LaneEvent};
use crate::core::*;
use crate::frame::reason::Reason;
use crate::frame::{Carries, Frame, Hello, MOST, Open, Opening, VERSION};
use ekiden_model::units::{self, Span};
use quinn_proto::{StreamId, TransportConfig, VarInt};

fn opening(carries: Carries) -> Opening {
    Opening { carries, ..Opening::named("example.org", 80) }
}

/// FAR hears all of this, and says what is wrong with it.
fn wrong(carries: Carries, said: impl IntoIterator<Item = Frame>) -> Option<String> {
    let mut network = Network::up(&Path::default());
    let open = Frame::Open(Open { flow: 2, opening: opening(carries) });
    for frame in said {
        network.poll_frames(FAR, vec![open.clone(), frame]);
    }
    network.tunnel(FAR).broken.take()
}

fn data(offset: u64, length: usize) -> Frame {
    Frame::Data { offset, bytes: pattern(offset, length) }
}

#[test]
fn rejects_an_end_before_received_bytes() {
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
fn checks_frames_of_abandoned_flows() {
    for (carries, offset, good) in [
        (Carries::Stream, MOST, false),
        (Carries::Stream, 100_000, true),
        (Carries::Packets, 1, false),
        (Carries::Packets, 0, true),
    ] {
        let mut network = Network::up(&Path::default());
        network.poll_frames(FAR, vec![Frame::Open(Open { flow: 2, opening: opening(carries) })]);
        let flow = FlowId { tunnel: network.tunnel[FAR].unwrap(), flow: 2 };
        network.ends[FAR].abort(network.now, flow, Reason::Closed, String::new());
        let words = String::new();
        let reset = Frame::Reset { offset, reason: Reason::Closed, words };
        network.poll_frames(FAR, vec![Frame::Attach(2), reset]);
        let tunnel = network.tunnel(FAR);
        assert_eq!(tunnel.broken.is_none(), good, "{carries:?} {offset}");
        assert_eq!(tunnel.counted().1, if good { offset } else { 0 });
    }
}

#[test]
fn flows_that_were_given_up_are_not_kept_for_ever() {
    let mut network = Network::up(&Path::default());
    // both lanes have streams for them
    network.run_for(Span::from_millis(500));
    let tunnel = network.tunnel[FAR].unwrap();
    let opening = opening(Carries::Stream);
    for flow in (2..).step_by(2).take(8_193) {
        assert_eq!(network.tunnel(FAR).broken, None);
        network.poll_frames(FAR, vec![Frame::Open(Open { flow, opening: opening.clone() })]);
        let flow = FlowId { tunnel, flow };
        network.ends[FAR].abort(network.now, flow, Reason::Closed, String::new());
    }
    let why = network.tunnel(FAR).broken.clone().unwrap();
    assert_eq!(why, "the peer did not report the bytes sent on reset flows");
}

#[test]
fn streams_that_the_peer_stops_are_given_up() {
    let mut network = Network::up(&Path::default());
    network.settle(300);
    for _ in 0..40 {
        let flow = network.flow(80);
        network.fill(NEAR, flow, 0);
        network.run_for(Span::from_millis(300));
        network.tunnel(FAR).lanes.iter_mut().flatten().for_each(Lane::stop_streams);
        network.run_for(Span::from_millis(300));
        network.ends[NEAR].abort(network.now, flow, Reason::Closed, String::new());
    }
    network.run_for(Span::from_secs(2));
    let kept = network.tunnel(NEAR).lanes.iter_mut().flatten().map(Lane::streams_in_flight);
    // the control streams, and what the last flow sent
    let kept: usize = kept.sum();
    assert!(kept <= 6, "{kept} streams are kept");
}

/// Each flow within its window, all of them beyond the memory.
#[test]
fn all_flows_together_keep_to_the_total() {
    let memory = units::Bytes::mib(1);
    let mut network = Network::up(&Path { memory, ..Path::default() });
    // each begins with 64 KiB
    let flows: Vec<FlowId> = (0..20).map(|_| network.flow(80)).collect();
    network.settle(300);
    for _ in 0..150 {
        let Some(tunnel) = network.ends[NEAR].tunnels.get_mut(&network.tunnel[NEAR].unwrap())
        else {
            break;
        };
        tunnel.forget_total();
        for flow in &flows {
            network.fill(NEAR, *flow, 0);
        }
        network.run_for(Span::from_millis(20));
    }
    assert_eq!(network.down(FAR), Some("the peer exceeded the credit of all flows together"));
}

/// What fills the memory is given up where nothing comes any more that would ask for it; what only waits is not. 16 flows
/// have 64 KiB each, of which four are a quarter of the memory, and five are more.
#[test]
fn memory_that_nobody_takes_comes_back_in_silence() {
    let memory = units::Bytes::mib(1);
    let mut network = Network::up(&Path { memory, ..Path::default() });
    let flows: Vec<FlowId> = (0..18).map(|_| network.flow(80)).collect();
    network.settle(300);
    let there: Vec<FlowId> = flows.iter().map(|flow| network.twin(*flow, FAR)).collect();
    for _ in 0..100 {
        for flow in &flows[..16] {
            network.fill(NEAR, *flow, 0);
        }
        network.run_for(Span::from_millis(20));
    }
    network.ends[NEAR].write(network.now, flows[16], pattern(0, 1_000));
    network.run_for(Span::from_secs(1));
    assert_eq!(network.ends[FAR].snapshots()[0].held, 1 << 20, "all of it");
    assert_eq!(network.read(FAR, there[16]), (Vec::new(), Read::Blocked));
    network.run_for(Span::from_secs(14));
    assert_eq!(network.read(FAR, there[16]).0, pattern(0, 1_000));
    assert_eq!(network.read(FAR, there[17]).1, Read::Blocked, "it holds nothing");
    let gone = (0..16).filter(|nth| network.read(FAR, there[*nth]).1 == Read::Gone).count();
    assert_eq!(gone, 5, "no more than needed");
}

/// Up, with NEAR's QUIC told something else than it should be.
fn odd(change: impl Fn(&mut TransportConfig)) -> Network {
    let mut network = Network::odd(&Path::default(), change);
    network.set_up();
    network
}

/// NEAR's QUIC takes a hundredth of what FAR may send.
fn narrow() -> Network {
    let mut network = odd(|transport| {
        transport.receive_window(VarInt::from_u32(4_000));
    });
    network.run_for(Span::from_millis(500));
    network
}

#[test]
fn data_stays_queued_while_quic_is_blocked() {
    let mut network = narrow();
    let flow = network.flow(80);
    network.settle(300);
    let there = network.twin(flow, FAR);
    let (mut written, mut read) = (0, 0);
    for _ in 0..150 {
        written = network.fill(FAR, there, written);
        network.run_for(Span::from_millis(20));
        let waiting = network.tunnel(FAR).lanes.iter().flatten().map(|lane| lane.waiting);
        assert!(waiting.sum::<usize>() < 10_000);
        let (bytes, _) = network.read(NEAR, flow);
        assert_eq!(bytes, pattern(read, bytes.len()));
        read += bytes.len() as u64;
    }
    assert!(read > 50_000, "{read}");
}

#[test]
fn bounds_data_waiting_for_quic() {
    let mut network = narrow();
    for lane in network.tunnel(FAR).lanes.iter_mut().flatten() {
        let control = lane.control.unwrap();
        // limits that were said before
        (0..200_000).for_each(|_| lane.write(control, Frame::Total(1).to_bytes()));
    }
    network.run_for(Span::from_millis(10));
    assert_eq!(network.down(FAR), Some("the peer's QUIC accepts no data on the control stream"));
}

#[test]
fn unsendable_frames_end_the_tunnel() {
    // the control stream and one more, on each lane
    let mut network = odd(|transport| {
        transport.max_concurrent_uni_streams(VarInt::from_u32(2));
    });
    for _ in 0..5 {
        network.flow(80);
    }
    network.settle(300);
    network.run_for(Span::from_millis(300));
    assert_eq!(network.down(FAR), Some("the peer permits no control stream"));
}

/// Nothing can be copied into datagrams so small; the data is not cut to fit into them all the same.
#[test]
fn small_datagrams_do_not_cut_what_is_sent() {
    let mut network = odd(|transport| {
        transport.datagram_receive_buffer_size(Some(60));
    });
    network.run_for(Span::from_millis(500));
    let (now, tunnel) = (network.now, network.tunnel[FAR].unwrap());
    let flow = network.ends[FAR].open(now, tunnel, opening(Carries::Stream)).unwrap();
    let before = network.ends[FAR].snapshots()[0].packets;
    network.ends[FAR].write(now, flow, pattern(0, 2_000));
    network.run_for(Span::from_secs(1));
    let sent = network.ends[FAR].snapshots()[0].packets - before;
    assert!(sent < 40, "{sent} packets");
}

#[test]
fn a_flow_that_could_not_be_opened_is_not_opened_by_its_copy() {
    // the control stream alone
    let mut network = odd(|transport| {
        transport.max_concurrent_uni_streams(VarInt::from_u32(1));
    });
    network.run_for(Span::from_millis(500));
    let (now, tunnel) = (network.now, network.tunnel[FAR].unwrap());
    let opened = network.ends[FAR].open(now, tunnel, opening(Carries::Stream));
    assert_eq!(opened, Err(Reason::Exhausted));
    network.run_for(Span::from_secs(1));
    let incoming = |event: &Event| matches!(event, Event::Incoming { .. });
    assert!(!network.events[NEAR].iter().any(incoming));
}

/// What was said is not known to have come, and streams become few: not for those that are there.
#[test]
fn flows_that_come_and_go_leave_streams_for_others() {
    let mut network = Network::up(&Path::default());
    network.run_for(Span::from_millis(500));
    let stay: Vec<FlowId> = (0..100).map(|_| network.flow(80)).collect();
    let (now, tunnel) = (network.now, network.tunnel[NEAR].unwrap());
    let mut gone = 0;
    while let Ok(flow) = network.ends[NEAR].open(now, tunnel, opening(Carries::Stream)) {
        network.ends[NEAR].abort(now, flow, Reason::Closed, String::new());
        gone += 1;
    }
    for flow in stay {
        network.ends[NEAR].finish(now, flow, End::Fin);
    }
    assert_eq!(network.tunnel(NEAR).broken, None);
    assert!(gone > 2_500, "{gone}");
}

#[test]
fn a_flow_that_comes_before_the_hello_is_told_after_it() {
    let mut network = Network::up(&Path::default());
    let peer = network.ends[NEAR].credentials.fingerprint();
    let (now, far) = (network.now, &mut network.ends[FAR]);
    let (id, terms, at) = (far.new_id(), slow(), ([100, 64, 0, 1], 1).into());
    let mut tunnel = far.new_tunnel(now, (id, peer, 5, false), terms, at);
    let opening = opening(Carries::Stream);
    let open = Frame::Open(Open { flow: 2, opening: opening.clone() });
    tunnel.on_lane_event(now, 0, LaneEvent::Datagram(vec![open]));
    assert!(tunnel.events.is_empty());
    let hello = Hello {
        version: VERSION,
        lane: 0,
        session: 5,
        receive: terms.receive,
        window: 1 << 20,
        total: 1 << 20,
        secret: Bytes::new(),
        repairs: true,
        coded: true,
    };
    let stream = StreamId::from(VarInt::from_u32(2));
    tunnel.on_lane_event(now, 0, LaneEvent::Frame(stream, Frame::Hello(hello)));
    let flow = FlowId { tunnel: id, flow: 2 };
    let up = Event::Up { tunnel: id, peer };
    assert_eq!(Vec::from(tunnel.events), [up, Event::Incoming { flow, peer, opening }]);
}

/// A hello that is said again with more credit is believed, also for flows that are there. At 1 Mbit/s it is 0.3 MB, and at
/// 200 Mbit/s the 4 MiB that a flow begins with at most.
#[test]
fn a_hello_that_grants_more_is_kept_to() {
    const FIRST: u64 = 4 << 20;
    for (receive, end, good) in
        [(1.0, 1_000_000, false), (200.0, FIRST, true), (200.0, FIRST + 1, false)]
    {
        let mut network = Network::up(&Path { told: Some([1.0, 20.0]), ..Path::default() });
        let open = Frame::Open(Open { flow: 2, opening: opening(Carries::Stream) });
        network.poll_frames(FAR, vec![open]);
        let fingerprint = network.ends[NEAR].credentials.fingerprint();
        let [send, receive] = [20.0, receive].map(mbit);
        let peer = AdmittedPeer { fingerprint, terms: Terms::new(send, receive) };
        network.ends[FAR].admit(network.now, &[peer], &[]);
        network.poll_frames(FAR, vec![Frame::Attach(2), data(end - 100, 100)]);
        assert_eq!(network.tunnel(FAR).broken.is_none(), good, "{:?}", network.tunnel(FAR).broken);
    }
}

/// FAR, with flows that NEAR opened.
fn with_flows(flows: usize) -> Network {
    let mut network = Network::up(&Path::default());
    for flow in (2..).step_by(2).take(flows) {
        let open = Frame::Open(Open { flow, opening: opening(Carries::Stream) });
        network.poll_frames(FAR, vec![open]);
    }
    network
}

/// The receive rate, the window and the total of a HELLO.
type Said = (u64, u64, u64);

/// NEAR says hello again on its control stream, and perhaps with news.
fn again(network: &mut Network, lane: u8, terms: Said) {
    let (now, stream) = (network.now, StreamId::from(VarInt::from_u32(2)));
    let heard = LaneEvent::Frame(stream, hello(77, lane, terms));
    network.tunnel(FAR).on_lane_event(now, usize::from(lane), heard);
}

const RATE: u64 = 20_000_000;

/// To see it fail: walk the flows for each.
#[test]
fn hellos_without_news_walk_no_flows() {
    let mut network = with_flows(500);
    let before = network.tunnel(FAR).walked();
    (0..10_000).for_each(|nth| again(&mut network, 0, (RATE, nth % 3, nth % 2)));
    let tunnel = network.tunnel(FAR);
    assert_eq!((tunnel.walked(), tunnel.broken.as_deref()), (before, None));
}

/// To see it fail: allow any number.
#[test]
fn hellos_with_news_end_the_tunnel_where_they_are_many() {
    const NEWS: [fn(u64) -> Said; 3] = [
        |nth| (RATE, (1 << 40) + nth, 0),
        |nth| (RATE + nth, 0, 0),
        |nth| (RATE, 0, (1 << 40) + nth),
    ];
    for news in NEWS {
        let mut network = with_flows(500);
        (1..=10_000).for_each(|nth| again(&mut network, 0, news(nth)));
        let tunnel = network.tunnel(FAR);
        let why = "the peer changed its terms by HELLO too often";
        assert_eq!(tunnel.broken.as_deref(), Some(why));
        assert!(tunnel.walked() <= 64 * 500, "{}", tunnel.walked());
    }
}

#[test]
fn a_peer_may_change_its_terms_each_second() {
    let mut network = with_flows(10);
    for nth in 1..=600 {
        network.now += Span::from_secs(1);
        (0..2).for_each(|lane| again(&mut network, lane, (RATE + nth, (1 << 40) + nth, 0)));
    }
    assert_eq!(network.tunnel(FAR).broken, None);
}

/// FAR, which takes four flows, is told of others until `most`, so many each millisecond. NEAR answers what is refused.
fn opens_beyond_the_limit(most: u64, each_millisecond: u64) -> Network {
    let mut network = Network::new(&Path::default());
    network.ends[FAR].limits.flows = 4;
    network.set_up();
    for (nth, flow) in (2..).step_by(2).take(most as usize).enumerate() {
        if (nth as u64).is_multiple_of(each_millisecond) {
            network.now += Span::from_millis(1);
        }
        let (offset, reason, words) = (0, Reason::Closed, String::new());
        network.poll_frames(
            FAR,
            vec![
                Frame::Open(Open { flow, opening: opening(Carries::Stream) }),
                Frame::Reset { offset, reason, words },
            ],
        );
    }
    network
}

/// To see it fail: allow any number.
#[test]
fn flows_without_end_beyond_the_limit_end_the_tunnel() {
    let mut network = opens_beyond_the_limit(10_000, 1_000);
    let why = "the peer opened too many flows beyond its limit";
    assert_eq!(network.tunnel(FAR).broken.as_deref(), Some(why));
    // all that it had, and as many as time has brought
    for (most, each_millisecond) in [(4_100, 5_000), (6_000, 1)] {
        let mut network = opens_beyond_the_limit(most, each_millisecond);
        assert_eq!(network.tunnel(FAR).broken, None);
    }
}

/// The reader grants nothing before it has read most of the larger window that it once promised.
#[test]
fn a_flow_that_begins_after_the_receive_rate_fell_goes_on() {
    let mut network = Network::up(&Path { told: Some([200.0, 20.0]), ..Path::default() });
    network.run_for(Span::from_millis(500));
    let fingerprint = network.ends[NEAR].credentials.fingerprint();
    let peer = AdmittedPeer { fingerprint, terms: slow() };
    network.ends[FAR].admit(network.now, &[peer], &[]);
    network.run_for(Span::from_millis(500));
    let flow = network.flow(80);
    network.settle(300);
    let there = network.twin(flow, FAR);
    let (mut written, mut read) = (0, 0);
    for _ in 0..50 {
        written = network.fill(NEAR, flow, written);
        network.run_for(Span::from_millis(100));
        read += network.read(FAR, there).0.len();
    }
    assert!(read > 400_000, "{read}");
}
