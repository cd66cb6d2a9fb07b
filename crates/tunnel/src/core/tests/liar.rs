//! A peer that has joined and lies in each frame: the tunnel ends with a reason or the frame is dropped, memory stays
//! bounded, and other tunnels go on.

use super::network::{FAR, NEAR, Network, Path, mbit, pattern};
use crate::core::lane::INCOMPLETE;
use crate::core::*;
use crate::frame::reason::Reason;
use crate::frame::{Carries, Frame, Hello, LONGEST, MOST, Open, Opening, VERSION};
use ekiden_model::units::{self, Rate, Span};
use quinn_proto::StreamId;

pub(super) const MEMORY: units::Bytes = units::Bytes::mib(4);
const FLOWS: usize = 64;

/// NEAR lies in one tunnel, and keeps to the protocol in another.
pub(super) struct Liar {
    pub(super) network: Network,
    /// The lying tunnel at either end, and the honest one.
    pub(super) lying: [TunnelId; 2],
    honest: [TunnelId; 2],
    /// What control streams and streams of flows carry.
    pub(super) streams: Vec<StreamId>,
}

/// A frame of any type and length that its body need not have.
pub(super) fn raw(kind: u64, length: u64, body: &[u8]) -> BytesMut {
    let mut bytes = BytesMut::new();
    for number in [kind, length] {
        // the longest form of QUIC's numbers (RFC 9000 §16)
        bytes.extend_from_slice(&(number & MOST | 3 << 62).to_be_bytes());
    }
    bytes.extend_from_slice(body);
    bytes
}

pub(super) fn open(flow: u64, carries: Carries) -> Frame {
    Frame::Open(Open { flow, opening: Opening { carries, ..Opening::named("example.org", 80) } })
}

pub(super) fn hello(session: u64, lane: u8, (receive, window, total): (u64, u64, u64)) -> Frame {
    let receive = Rate::from_bits_per_second(receive);
    let secret = Bytes::new();
    let (repairs, coded) = (true, true);
    let version = VERSION;
    Frame::Hello(Hello { version, lane, session, receive, window, total, secret, repairs, coded })
}

pub(super) fn frames(frames: &[Frame]) -> BytesMut {
    let mut bytes = BytesMut::new();
    frames.iter().for_each(|frame| frame.write(&mut bytes));
    bytes
}

impl Liar {
    pub(super) fn new() -> Self {
        let mut network = Network::new(&Path { memory: MEMORY, ..Path::default() });
        network.ends[FAR].limits.flows = FLOWS;
        network.set_up();
        network.run_for(Span::from_millis(500));
        let honest = network.tunnel.map(Option::unwrap);
        let mut liar = Self { network, lying: honest, honest, streams: Vec::new() };
        liar.again(5);
        assert!((0..2).all(|end| liar.lying[end] != honest[end]));
        liar
    }

    /// Lies in another tunnel from now on.
    pub(super) fn again(&mut self, session: u64) {
        // its own bound on what is not acknowledged does not keep it from lying
        self.again_with(session, units::Bytes::mib(1_024));
    }

    /// The same, by a NEAR that grants so much.
    pub(super) fn again_with(&mut self, session: u64, memory: units::Bytes) {
        let network = &mut self.network;
        network.ends[NEAR].limits.memory = memory;
        let far = network.ends[FAR].credentials.fingerprint();
        let (now, to, terms) =
            (network.now, network.addresses[FAR], Terms::new(mbit(20.0), mbit(20.0)));
        network.ends[NEAR].connect(now, to, far, Bytes::new(), terms, (session, false)).unwrap();
        network.run_for(Span::from_secs(1));
        self.lying = network.tunnel.map(Option::unwrap);
    }

    /// Both of an end.
    pub(super) const fn tunnels(&self, end: usize) -> [TunnelId; 2] {
        [self.honest[end], self.lying[end]]
    }

    pub(super) fn is_up(&self) -> bool {
        (0..2).all(|end| self.network.ends[end].tunnels.contains_key(&self.lying[end]))
    }

    pub(super) fn lane(&mut self, nth: usize) -> Option<&mut Lane> {
        let tunnel = self.network.ends[NEAR].tunnels.get_mut(&self.lying[NEAR])?;
        tunnel.lanes[nth].as_mut()
    }

    /// Sends this on a stream of its own; `None` where there are no more.
    pub(super) fn stream(&mut self, bytes: BytesMut) -> Option<StreamId> {
        let lane = self.lane(0)?;
        let stream = lane.open()?;
        lane.write(stream, bytes);
        self.streams.push(stream);
        Some(stream)
    }

    pub(super) fn on(&mut self, stream: StreamId, bytes: BytesMut) {
        if let Some(lane) = self.lane(0) {
            lane.write(stream, bytes);
        }
    }

    pub(super) fn control(&mut self, bytes: BytesMut) {
        if let Some(control) = self.lane(0).and_then(|lane| lane.control) {
            self.on(control, bytes);
        }
    }

    pub(super) fn datagram(&mut self, bytes: BytesMut) {
        if let Some(lane) = self.lane(0) {
            lane.send_datagram(bytes.freeze());
        }
    }

    /// Lets it arrive; nothing is held beyond the bounds then.
    pub(super) fn arrives(&mut self) {
        for _ in 0..10 {
            self.network.run_for(Span::from_millis(30));
            let Some(tunnel) = self.network.ends[FAR].tunnels.get(&self.lying[FAR]) else { return };
            tunnel.assert_bounded();
            let incomplete = tunnel.lanes.iter().flatten().map(Lane::incomplete);
            assert!(incomplete.max().unwrap_or(0) <= INCOMPLETE);
        }
    }

    /// Why the lying tunnel ended.
    pub(super) fn end(&self) -> Option<&str> {
        self.network.events[FAR].iter().find_map(|event| match event {
            Event::Down { tunnel, end, .. } if *tunnel == self.lying[FAR] => Some(&*end.reason),
            _ => None,
        })
    }

    /// A flow of the honest tunnel carries bytes both ways.
    pub(super) fn assert_others_go_on(&mut self) {
        let network = &mut self.network;
        let (now, opening) = (network.now, Opening::named("example.org", 80));
        let near = network.ends[NEAR].open(now, self.honest[NEAR], opening).unwrap();
        network.ends[NEAR].write(now, near, pattern(0, 1_000));
        network.run_for(Span::from_millis(500));
        let far = FlowId { tunnel: self.honest[FAR], flow: near.flow };
        network.ends[FAR].accept(network.now, far);
        assert_eq!(network.read(FAR, far).0, pattern(0, 1_000));
        network.ends[FAR].write(network.now, far, pattern(7, 1_000));
        network.run_for(Span::from_millis(500));
        assert_eq!(network.read(NEAR, near).0, pattern(7, 1_000));
    }
}

/// How FAR ends the tunnel, `None` where it goes on.
pub(super) fn ended_by(lie: impl FnOnce(&mut Liar)) -> Option<String> {
    let mut liar = Liar::new();
    lie(&mut liar);
    liar.arrives();
    let end = liar.end().map(str::to_owned);
    assert_eq!(end.is_none(), liar.is_up(), "it ends with a reason or not at all");
    liar.assert_others_go_on();
    end
}

#[test]
fn unknown_types_end_the_tunnel_or_are_skipped() {
    for (kind, why) in [
        (0, Some("the peer sent a frame of type 0x0, which must be known")),
        (0x1f, Some("the peer sent a frame of type 0x1f, which must be known")),
        (0x22, None),
        (MOST, None),
    ] {
        let end = ended_by(|liar| _ = liar.stream(raw(kind, 3, b"lie")));
        assert_eq!(end.as_deref(), why);
    }
}

#[test]
fn lengths_beyond_the_longest_end_the_tunnel() {
    for length in [LONGEST as u64 + 1, 1 << 32, MOST] {
        let end = ended_by(|liar| _ = liar.stream(raw(4, length, b"lie")));
        let why = format!("the peer sent a frame of {length} bytes, longer than the longest");
        assert_eq!(end, Some(why));
    }
}

#[test]
fn names_of_64_kib_end_the_tunnel() {
    let name = [&[2, 0, 0, 3, 0x80, 1, 0, 0][..], &[b'a'; 65_536], &[0, 80]].concat();
    let end = ended_by(|liar| _ = liar.stream(raw(2, name.len() as u64, &name)));
    assert!(end.unwrap().ends_with("longer than the longest"));
    // within a frame that is not too long
    let name = [&[2, 0, 0, 3, 0x44, 0][..], &[b'a'; 1_024], &[0, 80]].concat();
    let end = ended_by(|liar| _ = liar.stream(raw(2, name.len() as u64, &name)));
    assert_eq!(
        end.as_deref(),
        Some("the peer sent a frame of type 0x2 with a value out of its range")
    );
}

#[test]
fn flows_never_opened_are_ignored() {
    let flows = [1, 3, 2_000, 2_001, MOST];
    let end = ended_by(|liar| {
        for flow in flows {
            let data = Frame::Data { offset: 9, bytes: pattern(0, 100) };
            for frame in [data, Frame::Fin(7), Frame::Opened, Frame::Packet(pattern(0, 9))] {
                liar.stream(frames(&[Frame::Attach(flow), frame]));
            }
            let (reason, words) = (Reason::Closed, "a lie".to_owned());
            liar.stream(frames(&[Frame::Attach(flow), Frame::Refused { reason, words }]));
            liar.control(frames(&[Frame::Credit { flow, limit: MOST }]));
        }
    });
    assert_eq!(end, None);
}

#[test]
fn flow_numbers_of_this_end_and_far_ahead_end_the_tunnel() {
    let opened = |flow| ended_by(|liar| _ = liar.stream(frames(&[open(flow, Carries::Stream)])));
    let why = "the peer opened a flow with a flow number of this end";
    assert_eq!(opened(1).as_deref(), Some(why));
    assert_eq!(opened(MOST).as_deref(), Some(why));
    assert_eq!(opened(MOST - 1).as_deref(), Some("the peer skipped too many flow numbers"));
}

#[test]
fn reused_flow_numbers_and_copies_of_old_frames_are_dropped() {
    let end = ended_by(|liar| {
        let old = [open(2, Carries::Stream), Frame::Data { offset: 0, bytes: pattern(0, 100) }];
        for _ in 0..50 {
            liar.stream(frames(&old));
            liar.datagram(frames(&old));
        }
        liar.arrives();
        let far = FlowId { tunnel: liar.lying[FAR], flow: 2 };
        assert_eq!(liar.network.read(FAR, far).0, pattern(0, 100));
        let opened = |event: &&Event| matches!(event, Event::Incoming { flow, .. } if *flow == far);
        assert_eq!(liar.network.events[FAR].iter().filter(opened).count(), 1);
    });
    assert_eq!(end, None);
}

#[test]
fn limits_never_fall() {
    let mut liar = Liar::new();
    let opened = frames(&[open(2, Carries::Stream)]);
    let stream = liar.stream(opened).unwrap();
    liar.arrives();
    let far = FlowId { tunnel: liar.lying[FAR], flow: 2 };
    liar.network.ends[FAR].accept(liar.network.now, far);
    let sent = liar.network.fill(FAR, far, 0);
    liar.arrives();
    // below what was sent, and less than before
    liar.control(frames(&[Frame::Total(0), Frame::Credit { flow: 2, limit: 0 }]));
    liar.control(frames(&[hello(5, 0, (1_000_000, 0, 0))]));
    liar.on(stream, frames(&[Frame::Credit { flow: 2, limit: 0 }]));
    liar.arrives();
    assert_eq!(liar.end(), Some("the peer sent CREDIT on a stream that does not carry it"));
    assert!(sent > 0);
    liar.assert_others_go_on();
}

#[test]
fn a_receive_rate_of_nothing_stops_this_tunnel_alone() {
    for receive in [0, 1, MOST] {
        let end = ended_by(|liar| {
            liar.stream(frames(&[open(2, Carries::Stream)]));
            liar.arrives();
            let far = FlowId { tunnel: liar.lying[FAR], flow: 2 };
            liar.network.ends[FAR].accept(liar.network.now, far);
            liar.network.fill(FAR, far, 0);
            for _ in 0..100 {
                liar.control(frames(&[hello(5, 0, (receive, MOST, MOST))]));
            }
        });
        assert_eq!(end, None, "{receive}");
    }
}

#[test]
fn data_after_an_end_ends_the_tunnel() {
    let data = |offset| Frame::Data { offset, bytes: pattern(offset, 10) };
    for (after, why) in [
        (data(10), Some("the peer sent bytes of a flow beyond its end")),
        (Frame::Fin(11), Some("the peer ended a flow in two places")),
        (Frame::Fin(10), None),
        (data(0), None),
    ] {
        let said = frames(&[open(2, Carries::Stream), data(0), Frame::Fin(10), after]);
        assert_eq!(ended_by(|liar| _ = liar.stream(said)).as_deref(), why);
    }
}

#[test]
fn resets_that_nobody_reads_stay_within_the_bounds() {
    let end = ended_by(|liar| {
        for flow in (2..).step_by(2).take(2 * FLOWS) {
            let (reason, words) = (Reason::Closed, String::new());
            let reset = Frame::Reset { offset: 0, reason, words };
            liar.stream(frames(&[open(flow, Carries::Stream), reset]));
        }
    });
    assert_eq!(end, None);
}

#[test]
fn endless_opens_are_refused() {
    let end = ended_by(|liar| {
        for flow in (2..).step_by(2).take(1_000) {
            let account = Bytes::from(vec![flow as u8; 500]);
            let opening = Opening { account, ..Opening::named("example.org", 80) };
            liar.stream(frames(&[Frame::Open(Open { flow, opening })]));
            if flow % 100 == 0 {
                liar.arrives();
            }
        }
        let flows = liar.network.ends[FAR].tunnels[&liar.lying[FAR]].flows().count();
        assert_eq!(flows, FLOWS);
    });
    assert_eq!(end, None);
}

/// Two million pieces of one byte each would take 200 MB.
#[test]
fn pieces_of_one_byte_are_not_kept_without_bound() {
    let end = ended_by(|liar| {
        let stream = liar.stream(frames(&[open(2, Carries::Stream)])).unwrap();
        let mut offset = 1;
        for _ in 0..200 {
            let mut pieces = BytesMut::new();
            for _ in 0..500 {
                Frame::Data { offset, bytes: pattern(offset, 1) }.write(&mut pieces);
                offset += 2;
            }
            liar.on(stream, pieces);
            if !liar.is_up() {
                break;
            }
            liar.arrives();
        }
    });
    assert_eq!(end.as_deref(), Some("the peer sent too many pieces of flows out of order"));
}

#[test]
fn incomplete_frames_are_not_kept_without_bound() {
    let end = ended_by(|liar| {
        for nth in 0..1_000 {
            liar.stream(raw(4, LONGEST as u64, &[7; LONGEST - 1]));
            if nth % 20 == 0 {
                liar.arrives();
            }
            if !liar.is_up() {
                break;
            }
        }
    });
    assert_eq!(end.as_deref(), Some("the peer sent too many incomplete frames"));
}

#[test]
fn packets_of_many_flows_take_a_part_of_the_memory() {
    let end = ended_by(|liar| {
        for flow in (2..).step_by(2).take(FLOWS) {
            let stream = liar.stream(frames(&[open(flow, Carries::Packets)])).unwrap();
            for _ in 0..20 {
                let packet = Frame::Packet(pattern(0, 4_000));
                liar.on(stream, frames(&[packet.clone(), Frame::Unknown(0x2f)]));
            }
            liar.arrives();
        }
    });
    assert_eq!(end, None);
}
