//! Every segment and every write as a row: see [`PacketRow`].

use super::packets::Side;
use super::{Flows, at, direction};
use crate::network::topology::LinkDirection;
use crate::observer::{Body, Delivery, Departure, Loss, Observer, Passing};
use crate::trace::columns::Table;
use crate::trace::{Direction, Event, PacketRow, Reason, WriteKind};
use ekiden_model::network::tcp::{self, Sender};
use ekiden_model::units::{Span, Time};
use std::io::{self, Write};

/// Writes a row when a segment is sent, arrives or is lost, and when a write is delivered; none for
/// acknowledgements and handshakes. Downloads over relays have no rows of writes.
#[derive(Debug)]
pub struct Rows<W: Write + Send> {
    table: Table<W, PacketRow>,
    flows: Flows,
    server: Side,
    watched: Option<LinkDirection>,
    kinds: &'static [WriteKind],
    known: Vec<Known>,
    waiting: u64,
    written: u64,
    error: Option<io::Error>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    direction: Direction,
    cwnd_milli: u32,
    rto_ns: u64,
    srtt_ns: Option<u64>,
    rttvar_ns: Option<u64>,
}

impl<W: Write + Send> Rows<W> {
    /// Begins a table of these flows. `server`: the side that serves; `watched`: the link whose
    /// queue stands in the rows; `kinds`: names of the writes' kinds, from 0; `comment`: what
    /// produced it.
    pub fn new(
        to: W,
        flows: Flows,
        server: Side,
        watched: Option<LinkDirection>,
        kinds: &'static [WriteKind],
        comment: &str,
    ) -> io::Result<Self> {
        Ok(Self {
            table: Table::new(to, PacketRow::COLUMNS, comment)?,
            flows,
            server,
            watched,
            kinds,
            known: Vec::new(),
            waiting: 0,
            written: 0,
            error: None,
        })
    }

    /// Writes what is left; the writer and the number of rows, or the writer's first error.
    pub fn finish(self) -> io::Result<(W, u64)> {
        match self.error {
            Some(error) => Err(error),
            None => Ok((self.table.finish()?, self.written)),
        }
    }

    fn see(&mut self, flow: u32, sender: &Sender) {
        if !self.flows.has(flow) {
            return;
        }
        let shown = sender.snapshot();
        let estimate = |span: Span| (span > Span::ZERO).then_some(span.as_nanos());
        let Some(known) = at(&mut self.known, flow) else { return };
        *known = Known {
            direction: known.direction,
            cwnd_milli: (shown.window * 1000.0).round() as u32,
            rto_ns: shown.rto.as_nanos(),
            srtt_ns: estimate(shown.smoothed),
            // the first sample says how it varies (RFC 6298 §2.2); before it there is neither
            rttvar_ns: estimate(shown.smoothed).map(|_| shown.variance.as_nanos()),
        };
    }

    /// A row of a flow with what is known of it.
    fn row(&mut self, event: Event, time: Time, flow: u32, kind: u8) -> PacketRow {
        let known = at(&mut self.known, flow).copied().unwrap_or_default();
        PacketRow {
            time,
            event,
            flow,
            kind: self.kinds.get(usize::from(kind)).copied().unwrap_or_default(),
            direction: known.direction,
            cwnd_milli: known.cwnd_milli,
            rto_ns: known.rto_ns,
            srtt_ns: known.srtt_ns,
            rttvar_ns: known.rttvar_ns,
            queue_packets: u32::try_from(self.waiting).unwrap_or(u32::MAX),
            ..PacketRow::default()
        }
    }

    fn write(&mut self, row: PacketRow) {
        if self.error.is_some() {
            return;
        }
        match self.table.row(row) {
            Ok(()) => self.written += 1,
            Err(error) => self.error = Some(error),
        }
    }
}

impl<W: Write + Send> Observer for Rows<W> {
    const PACKETS: bool = true;

    fn watched(&self) -> Option<LinkDirection> {
        self.watched
    }

    fn departed(&mut self, departure: &Departure<'_>) {
        self.see(departure.flow, departure.sender);
    }

    fn acknowledged(&mut self, _at: Time, flow: u32, sender: &Sender) {
        self.see(flow, sender);
    }

    fn passed(&mut self, passing: &Passing<'_>) {
        let Body::Data(segment) = passing.body else { return };
        let of = passing.flows[usize::from(!passing.from_opener)];
        let Some((flow, _)) = of.filter(|(flow, _)| self.flows.has(*flow)) else { return };
        self.waiting = passing.waiting;
        if let Some(known) = at(&mut self.known, flow) {
            known.direction = direction(passing.from_opener, self.server);
        }
        let event = if passing.arrives { Event::Arrived } else { Event::Sent };
        let row = self.row(event, passing.at, flow, passing.kind);
        let some = |span: Span| passing.arrives.then_some(span.as_nanos());
        self.write(PacketRow {
            sequence: segment.start,
            bytes: segment.len,
            retransmission: segment.reason.into(),
            server_ns: some(passing.host),
            router_ns: some(passing.router),
            end_to_end_ns: some(passing.at.since(passing.sent)),
            ..row
        });
    }

    fn lost(&mut self, loss: &Loss) {
        let Some(segment) = loss.segment.filter(|_| self.flows.has(loss.owner)) else { return };
        self.waiting = loss.waiting;
        let row = self.row(Event::Lost, loss.at, loss.owner, loss.kind);
        self.write(PacketRow {
            sequence: segment.start,
            bytes: segment.len,
            retransmission: segment.reason.into(),
            dropped: loss.dropped,
            ..row
        });
    }

    fn delivered(&mut self, delivery: &Delivery) {
        if !self.flows.has(delivery.flow) {
            return;
        }
        let now = delivery.written + delivery.end_to_end;
        let row = self.row(Event::Delivered, now, delivery.flow, delivery.kind);
        self.write(PacketRow {
            sequence: delivery.start,
            bytes: delivery.bytes,
            retransmission: delivery.reason.into(),
            server_ns: Some(delivery.server.as_nanos()),
            router_ns: Some(delivery.router.as_nanos()),
            client_ns: Some(delivery.client.as_nanos()),
            end_to_end_ns: Some(delivery.end_to_end.as_nanos()),
            ..row
        });
    }
}

impl From<tcp::Reason> for Reason {
    fn from(reason: tcp::Reason) -> Self {
        match reason {
            tcp::Reason::New => Self::None,
            tcp::Reason::Fast => Self::Fast,
            tcp::Reason::Partial => Self::Partial,
            tcp::Reason::Selective => Self::Sack,
            tcp::Reason::Timeout => Self::Timeout,
            tcp::Reason::Probe => Self::TailProbe,
        }
    }
}
