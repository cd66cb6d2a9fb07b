//! The packets of a run as a capture at the hosts of one side.

use super::{Flows, at, direction};
use crate::network::flow::FlowConfig;
use crate::observer::{Body, Observer, Passing};
use crate::trace::capture::{Capture, SegmentView};
use ekiden_model::network::tcp::{MOST_BLOCKS, Sampling};
use ekiden_model::units::Time;
use std::io::{self, Write};

/// One of a connection's two sides; a capture at both would show each packet twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Who opened it.
    Opener,
    /// Who answered.
    Acceptor,
}

/// Writes what leaves and reaches the hosts of one side. Directions are simulated apart: a data
/// segment's acknowledgement and window, and an acknowledgement's sequence number, are the last
/// that passed there. Streams have no end, so there is no FIN.
#[derive(Debug)]
pub struct Packets<W> {
    capture: Capture<W>,
    interface: u32,
    side: Side,
    server: Side,
    flows: Flows,
    seen: Vec<FlowState>,
    written: u64,
    error: Option<io::Error>,
}

/// What has passed of a connection; from the one who opened it, and to it.
#[derive(Debug, Clone, Copy, Default)]
struct FlowState {
    /// One past the last byte of the flow.
    next: [u64; 2],
    /// The flow's acknowledgement and window.
    acknowledged: [u64; 2],
    window: [Option<u64>; 2],
    /// The timestamp of the last packet that went this way.
    stamp: [u32; 2],
}

impl<W: Write> Packets<W> {
    /// Begins a capture of these flows' connections at the hosts of `side`. `server` is the side
    /// that serves, with the lower port; `comment` tells what produced it. Errors are the writer's.
    pub fn new(to: W, side: Side, server: Side, flows: Flows, comment: &str) -> io::Result<Self> {
        let mut capture = Capture::new(to, comment)?;
        let interface = capture.interface(match side {
            Side::Opener => "opener",
            Side::Acceptor => "acceptor",
        })?;
        Ok(Self {
            capture,
            interface,
            side,
            server,
            flows,
            seen: Vec::new(),
            written: 0,
            error: None,
        })
    }

    /// The writer, and how many packets were written; or the writer's first error.
    pub fn finish(self) -> io::Result<(W, u64)> {
        let mut to = self.capture.into_inner();
        match self.error {
            Some(error) => Err(error),
            None => to.flush().map(|()| (to, self.written)),
        }
    }
}

impl<W: Write> Observer for Packets<W> {
    const PACKETS: bool = true;

    fn passed(&mut self, passing: &Passing<'_>) {
        let here =
            if passing.from_opener != passing.arrives { Side::Opener } else { Side::Acceptor };
        let wanted = passing.flows.iter().flatten().any(|(flow, _)| self.flows.has(*flow));
        if here != self.side || !wanted || self.error.is_some() {
            return;
        }
        let Some(seen) = at(&mut self.seen, passing.connection) else { return };
        let mut blocks = [(0, 0); MOST_BLOCKS];
        let count = seen.note(passing, &mut blocks);
        let view = seen.view(passing, self.server, blocks.get(..count).unwrap_or_default());
        match self.capture.packet(passing.at, self.interface, &view) {
            Ok(()) => self.written += 1,
            Err(error) => self.error = Some(error),
        }
    }
}

impl FlowState {
    /// Takes note of a packet; how many selective acknowledgements it has, which are put into `blocks`.
    fn note(&mut self, passing: &Passing<'_>, blocks: &mut [(u64, u64)]) -> usize {
        let own = usize::from(!passing.from_opener);
        match passing.body {
            Body::Data(segment) => self.next[own] = self.next[own].max(segment.end()),
            Body::Ack(ack) => {
                // it answers the flow that goes the other way
                self.acknowledged[1 - own] = self.acknowledged[1 - own].max(ack.ack);
                self.window[1 - own] = Some(ack.window);
                let all = ack.blocks.as_slice();
                let pairs = all.iter().map(|block| (block.start, block.end));
                blocks.iter_mut().zip(pairs).for_each(|(to, pair)| *to = pair);
                return all.len();
            }
            Body::Syn | Body::SynAck | Body::Established | Body::Plain => {}
        }
        0
    }

    fn view<'a>(
        &mut self,
        passing: &Passing<'_>,
        server: Side,
        sack: &'a [(u64, u64)],
    ) -> SegmentView<'a> {
        let own = usize::from(!passing.from_opener);
        let [from, to] = if passing.from_opener { [0, 1] } else { [1, 0] };
        // who sends this packet receives the other flow, if there is one
        let receives = passing.flows[1 - own].or(passing.flows[own]).map(|(_, config)| config);
        let first = receives.map_or(0, FlowConfig::first_window);
        let opens = matches!(passing.body, Body::Syn | Body::SynAck);
        let stamped = receives.is_some_and(|it| it.sender.sampling == Sampling::Timestamps);
        let echo = match passing.body {
            Body::Ack(ack) => ack.echo.map_or(self.stamp[1 - own], milliseconds),
            _ => self.stamp[1 - own],
        };
        self.stamp[own] = milliseconds(passing.sent);
        let view = SegmentView {
            from: passing.ends[from].0,
            to: passing.ends[to].0,
            flow: passing.connection,
            direction: direction(passing.from_opener, server),
            sequence: self.next[own],
            acknowledged: Some(self.acknowledged[1 - own]),
            window: self.window[1 - own].unwrap_or(first),
            scale: receives.map(|config| config.receiver.scale),
            timestamps: stamped.then_some((self.stamp[own], echo)),
            sack,
            ..SegmentView::default()
        };
        match passing.body {
            Body::Data(segment) => {
                SegmentView { sequence: segment.start, payload: segment.len, ..view }
            }
            Body::Ack(ack) => {
                SegmentView { acknowledged: Some(ack.ack), window: ack.window, ..view }
            }
            Body::Plain => view,
            Body::Established => SegmentView { sequence: 0, acknowledged: Some(0), ..view },
            Body::Syn | Body::SynAck => SegmentView {
                syn: opens,
                sequence: 0,
                acknowledged: matches!(passing.body, Body::SynAck).then_some(0),
                mss: receives.and_then(|config| u16::try_from(config.receiver.mss).ok()),
                sack_permitted: receives.is_some_and(|config| config.receiver.selective),
                ..view
            },
        }
    }
}

/// A clock of timestamps, which counts milliseconds as Linux's does.
fn milliseconds(at: Time) -> u32 {
    (at.as_nanos() / 1_000_000) as u32
}
