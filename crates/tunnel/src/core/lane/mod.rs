//! One QUIC connection of a tunnel: its frames in and out, and its packets in flight.

mod inbound;
mod outbound;

use crate::core::ack_tap::{AckTap, InFlight, PacketOutcome, eliciting};
use crate::frame::{self, BadFrame, Frame};
use bytes::{Bytes, BytesMut};
use ekiden_model::control::rate_hold::SentBytes;
use inbound::{Inbound, InboundBytes};
use quinn_proto::{
    Connection, ConnectionError, ConnectionEvent, ConnectionHandle, Dir, Event, ReadError,
    StreamEvent, StreamId, VarInt,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// QUIC's overhead on a packet: flags, identifier, number, tag, and a STREAM frame's header.
const QUIC_OVERHEAD: usize = 1 + 8 + 4 + 16 + 15;

/// Bytes, and streams, before a peer is identified: 512 KiB of DATA before HELLO's answer, and
/// headers.
pub(super) const EARLY_BYTES: usize = 640 * 1024;
const EARLY_STREAMS: usize = 1_024;
const EARLY_DATAGRAMS: usize = 64 * 1024;
/// Bytes of incomplete frames on all streams together. Senders put each frame into one packet, so few frames are cut.
pub(super) const INCOMPLETE: usize = 8 << 20;

/// A frame is part of the datagram that brought it only where none on its connection was longer than this: else a peer
/// could fill datagrams up, and a frame would keep many times its bytes.
const SHARED: usize = 2_048;

/// Memory of a packet in flight: QUIC's record of it, in a tree that is half full, and ours.
const PACKET: u64 = 320;

/// Sent to a peer whose QUIC lacks datagrams.
pub(super) const NO_DATAGRAMS: &str = "QUIC's DATAGRAM frames must be enabled (RFC 9221)";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamOwner {
    /// No frame has arrived yet.
    Unknown,
    Control,
    /// `shared`: DATA came on it, so more is not alone there, and its sender does not repair it.
    Flow {
        flow: u64,
        shared: bool,
    },
}

impl StreamOwner {
    /// In a datagram each frame is alone.
    pub(super) const fn alone(self) -> Self {
        match self {
            Self::Flow { flow, .. } => Self::Flow { flow, shared: false },
            other => other,
        }
    }
}

/// A frame or datagram that arrived on a lane, in order for each stream.
#[derive(Debug)]
pub(super) enum LaneEvent {
    Frame(StreamId, Frame),
    Datagram(Vec<Frame>),
}

#[derive(Debug)]
pub(super) struct Lane {
    pub(super) handle: ConnectionHandle,
    pub(super) quinn: Connection,
    in_flight: InFlight,
    last: Option<Instant>,
    /// Frames sent that want an acknowledgement, and probes for the MTU, as of the last packet.
    sent: (u64, u64),
    /// PINGs to send, each in a packet of its own.
    probes: u8,
    /// Authenticated frames received, as of the last look.
    frames: u64,
    /// It may have something to send.
    pub(super) busy: bool,
    pub(super) connected: bool,
    pub(super) lost: Option<ConnectionError>,
    pub(super) drained: bool,
    /// The stream on which we speak about the tunnel.
    pub(super) control: Option<StreamId>,
    /// The lane belongs to a tunnel: frames are handled at once.
    pub(super) known: bool,
    /// A datagram longer than [`SHARED`] came.
    has_long: bool,
    /// Received before that: bytes on streams, and streams.
    early: (usize, usize),
    early_datagrams: usize,
    inbound: BTreeMap<StreamId, Inbound>,
    held: InboundBytes,
    /// Bytes that quinn has not accepted yet, and whether the stream ends with them.
    outbound: BTreeMap<StreamId, (BytesMut, bool)>,
    pub(super) waiting: usize,
    readable: BTreeSet<StreamId>,
    /// Streams that ended. Their owners are still needed until the next poll.
    over: Vec<StreamId>,
    /// Streams of ours of which QUIC keeps bytes.
    ours: BTreeSet<StreamId>,
    /// Streams of ours that the peer acknowledged as a whole.
    finished: Vec<StreamId>,
    datagrams: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Polled {
    pub(super) to: SocketAddr,
    pub(super) from: Option<IpAddr>,
    pub(super) size: usize,
    /// It elicits an acknowledgement, and its outcome says something about the path.
    pub(super) counts: bool,
    pub(super) at: Instant,
}

impl Lane {
    pub(super) fn new(handle: ConnectionHandle, quinn: Connection, ear: AckTap) -> Self {
        Self {
            handle,
            quinn,
            in_flight: InFlight::new(ear),
            last: None,
            sent: (0, 0),
            probes: 0,
            frames: 0,
            busy: true,
            connected: false,
            lost: None,
            drained: false,
            control: None,
            known: false,
            has_long: false,
            early: (0, 0),
            early_datagrams: 0,
            inbound: BTreeMap::new(),
            held: InboundBytes::default(),
            outbound: BTreeMap::new(),
            waiting: 0,
            readable: BTreeSet::new(),
            over: Vec::new(),
            ours: BTreeSet::new(),
            finished: Vec::new(),
            datagrams: false,
        }
    }

    /// Takes what a datagram of so many bytes brought.
    pub(super) fn receive(&mut self, event: ConnectionEvent, length: usize) {
        self.has_long |= length > SHARED;
        self.quinn.handle_event(event);
        self.busy = true;
    }

    pub(super) fn poll_events(&mut self) {
        while let Some(event) = self.quinn.poll() {
            match event {
                Event::Connected => self.connected = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason),
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    while let Some(id) = self.quinn.streams().accept(Dir::Uni) {
                        self.inbound.insert(id, Inbound::new());
                        self.early.1 += usize::from(!self.known);
                        self.readable.insert(id);
                    }
                }
                Event::Stream(StreamEvent::Readable { id }) => {
                    self.readable.insert(id);
                }
                Event::Stream(StreamEvent::Writable { id }) => self.flush(id),
                Event::DatagramReceived => self.datagrams = true,
                Event::Stream(StreamEvent::Finished { id }) => self.on_finished(id),
                Event::Stream(StreamEvent::Stopped { id, .. }) => self.on_stopped(id),
                Event::Stream(StreamEvent::Opened { .. } | StreamEvent::Available { .. })
                | Event::HandshakeDataReady
                | Event::DatagramsUnblocked => {}
            }
        }
    }

    /// Frames that arrived, or why one is malformed.
    pub(super) fn poll_frames(&mut self) -> Result<Vec<LaneEvent>, BadFrame> {
        let mut heard = Vec::new();
        let shares = self.known && !self.has_long;
        // frames that arrived before the peer was identified come first
        if self.known {
            for id in std::mem::take(&mut self.over) {
                self.inbound.remove(&id);
            }
        }
        for id in std::mem::take(&mut self.readable) {
            let Some(inbound) = self.inbound.get_mut(&id) else { continue };
            let (mut over, mut came) = (false, 0);
            self.held.subtract(inbound);
            {
                let mut stream = self.quinn.recv_stream(id);
                let Ok(mut chunks) = stream.read(false) else {
                    self.inbound.remove(&id);
                    continue;
                };
                loop {
                    match chunks.next(usize::MAX) {
                        Ok(Some(chunk)) => {
                            came += chunk.bytes.len();
                            let hear = |frame| heard.push(LaneEvent::Frame(id, frame));
                            inbound.take(chunk.offset, chunk.bytes, shares, hear)?;
                        }
                        Err(ReadError::Blocked) => break,
                        Ok(None) | Err(ReadError::Reset(_)) => {
                            over = true;
                            break;
                        }
                    }
                }
                // credit for bytes that were read leaves with the next packet
                self.busy |= chunks.finalize().should_transmit();
            }
            if !self.known {
                self.early.0 += came;
            }
            if over {
                inbound.end();
                self.over.push(id);
            }
            self.held.add(inbound);
            if self.held.incomplete > INCOMPLETE {
                return Err(BadFrame::Incomplete);
            }
        }
        if std::mem::take(&mut self.datagrams) {
            while let Some(datagram) = self.quinn.datagrams().recv() {
                if !self.known {
                    self.early_datagrams += datagram.len();
                    if self.early_datagrams > EARLY_DATAGRAMS {
                        // a copy, or a packet that may be lost
                        continue;
                    }
                }
                let bytes = if shares { datagram } else { Bytes::copy_from_slice(&datagram) };
                heard.push(LaneEvent::Datagram(frame::read_all(bytes)?));
            }
        }
        Ok(heard)
    }

    /// Whether an unidentified peer exceeded its limits.
    pub(super) const fn said_too_much(&self) -> bool {
        self.early.0 > EARLY_BYTES || self.early.1 > EARLY_STREAMS
    }

    /// Memory that QUIC keeps of packets in flight also while it closes.
    pub(super) fn keeps(&self) -> u64 {
        PACKET * self.in_flight.count() as u64
    }

    /// Memory of what came and is of no use yet.
    pub(super) const fn holds(&self) -> u64 {
        self.held.memory()
    }

    #[cfg(test)]
    pub(super) const fn incomplete(&self) -> usize {
        self.held.incomplete
    }

    /// The connection is closed: nothing that came or waits is wanted any more.
    pub(super) fn forget(&mut self) {
        self.discard_streams();
        (self.inbound, self.outbound) = (BTreeMap::new(), BTreeMap::new());
        (self.readable, self.over) = (BTreeSet::new(), Vec::new());
        (self.waiting, self.held) = (0, InboundBytes::default());
    }

    /// A stream's owner; the handler of its first frame sets it.
    pub(super) fn about(&mut self, id: StreamId) -> Option<&mut StreamOwner> {
        self.inbound.get_mut(&id).map(|inbound| &mut inbound.about)
    }

    /// It is connected, and the peer takes no datagrams.
    pub(super) fn lacks_datagrams(&mut self) -> bool {
        self.connected && self.quinn.datagrams().max_size().is_none()
    }

    pub(super) fn fits(&mut self, length: usize) -> bool {
        length <= self.datagram_room()
    }

    /// Bytes of the largest datagram.
    pub(super) fn datagram_room(&mut self) -> usize {
        self.quinn.datagrams().max_size().unwrap_or(0)
    }

    /// Sends a copy, if it fits into a packet.
    pub(super) fn send_datagram(&mut self, bytes: Bytes) -> bool {
        let sent = self.quinn.datagrams().send(bytes, true).is_ok();
        self.busy |= sent;
        sent
    }

    /// Bytes of a flow that fit into one packet.
    pub(super) fn room(&self, offset: u64) -> usize {
        let taken = QUIC_OVERHEAD + frame::data_overhead(offset.max(1 << 14));
        usize::from(self.quinn.current_mtu()).saturating_sub(taken).max(64)
    }

    /// The next datagram, into `buf`; `None` when there is nothing to send.
    pub(super) fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Polled> {
        // no two packets leave at one instant, because the send time identifies a packet
        let at = self.last.map_or(now, |last| now.max(last + Duration::from_nanos(1)));
        buf.clear();
        if self.probes > 0 && self.connected {
            self.probes -= 1;
            self.quinn.ping();
        }
        let Some(transmit) = self.quinn.poll_transmit(at, 1, buf) else {
            self.busy = false;
            return None;
        };
        self.last = Some(at);
        let (eliciting, probes) = self.counters();
        let before = std::mem::replace(&mut self.sent, (eliciting, probes));
        // a lost MTU probe means that packets are too large, nothing else
        let counts = self.connected && eliciting > before.0 && probes == before.1;
        let (to, from) = (transmit.destination, transmit.src_ip);
        Some(Polled { to, from, size: transmit.size, counts, at })
    }

    /// Frames sent that want an acknowledgement, and probes for the MTU.
    fn counters(&self) -> (u64, u64) {
        let stats = self.quinn.stats();
        (eliciting(&stats.frame_tx), stats.path.sent_plpmtud_probes)
    }

    /// Sends so many packets that are acknowledged, whatever QUIC's own probe waits for.
    pub(super) const fn probe(&mut self, probes: u8) {
        self.probes = probes;
        self.busy = true;
    }

    /// When the last packet was sent, where one before it has no outcome yet.
    pub(super) fn last_in_flight(&self) -> Option<Instant> {
        self.in_flight.last_sent()
    }

    /// Whether authenticated frames arrived since the last call.
    pub(super) fn has_heard(&mut self) -> bool {
        let seen = self.quinn.stats().frame_rx;
        let frames = seen.acks + seen.ping + seen.stream + seen.datagram + seen.crypto;
        std::mem::replace(&mut self.frames, frames) != frames
    }

    pub(super) fn on_sent(&mut self, polled: Polled, told: SentBytes) {
        self.in_flight.on_sent(polled.at, told);
    }

    pub(super) fn outcomes(&mut self, now: Instant) -> Vec<PacketOutcome> {
        let patience = self.quinn.rtt() * 4 + Duration::from_secs(1);
        self.in_flight.outcomes(now, patience)
    }

    pub(super) fn close(&mut self, now: Instant, code: u32, words: &str) {
        self.quinn.close(now, VarInt::from_u32(code), Bytes::copy_from_slice(words.as_bytes()));
        self.busy = true;
    }
}
