//! A tunnel that is given a peer's frames without QUIC between: for the fuzzer, which tries a hundred times as many
//! sequences so. It has no lanes, so nothing of it is sent.

use super::lane::StreamOwner;
use super::tunnel::Tunnel;
use super::{End, Fingerprint, FlowId, Limits, PeersMemory, Read, Terms, TunnelId};
use crate::frame::reason::Reason;
use crate::frame::{Frame, Opening};
use bytes::Bytes;
use ekiden_model::units::{Rate, Span, Time};
use quinn_proto::{Dir, Side, StreamId};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The tunnel of a peer that opened it with [`HeardTunnel::SESSION`]; flows that the peer opens are even.
#[derive(Debug)]
pub struct HeardTunnel {
    tunnel: Tunnel,
    origin: Instant,
    now: Time,
    /// What the peer's streams carry, by lane.
    owners: [BTreeMap<u64, StreamOwner>; 2],
}

impl HeardTunnel {
    /// The session that the peer's HELLO must name.
    pub const SESSION: u64 = 5;

    /// Before the peer's HELLO, on a link of 20 Mbit/s.
    pub fn new(peer: Fingerprint, limits: Limits) -> Self {
        let (rate, now) = (Rate::from_bits_per_second(20_000_000), Time::ZERO);
        let key = (TunnelId(1), peer, Self::SESSION, false);
        let memory = PeersMemory::default().tunnel(peer);
        let tunnel = Tunnel::new(now, key, Terms::new(rate, rate), (limits, memory));
        Self { tunnel, origin: Instant::now(), now, owners: Default::default() }
    }

    /// A frame on the peer's stream of that number; lane 0 or 1.
    pub fn on_stream(&mut self, lane: usize, stream: u64, frame: Frame) {
        let about = self.owners[lane].get(&stream).copied().unwrap_or(StreamOwner::Unknown);
        let id = StreamId::new(Side::Client, Dir::Uni, stream);
        let about = self.tunnel.on_frame(self.now, lane, about, frame, Some(id));
        self.owners[lane].insert(stream, about);
        self.settle();
    }

    /// A datagram's frames.
    pub fn on_datagram(&mut self, lane: usize, frames: Vec<Frame>) {
        let mut about = StreamOwner::Unknown;
        for frame in frames {
            about = self.tunnel.on_frame(self.now, lane, about, frame, None).alone();
        }
        self.settle();
    }

    /// Time passes.
    pub fn wait(&mut self, span: Span) {
        self.now += span;
        self.settle();
    }

    fn settle(&mut self) {
        let clock = self.origin + Duration::from_nanos(self.now.as_nanos());
        self.tunnel.listen(self.now, clock);
        // their reader is the caller
        self.tunnel.events.clear();
    }

    /// Why the tunnel ends, if the peer broke the protocol.
    pub fn broken(&self) -> Option<&str> {
        self.tunnel.broken.as_deref()
    }

    /// Its flows.
    pub fn flows(&self) -> Vec<u64> {
        self.tunnel.flows().map(|flow| flow.flow).collect()
    }

    /// This end opens a flow, if there is room for one.
    pub fn open(&mut self, opening: Opening) -> Option<FlowId> {
        self.tunnel.open(self.now, opening).ok()
    }

    /// As [`accept`](super::Endpoint::accept).
    pub fn accept(&mut self, flow: u64) {
        self.tunnel.accept(self.now, flow);
    }

    /// As [`refuse`](super::Endpoint::refuse).
    pub fn refuse(&mut self, flow: u64) {
        self.tunnel.refuse(self.now, flow, Reason::Refused, "no".to_owned());
    }

    /// As [`read`](super::Endpoint::read).
    pub fn read(&mut self, flow: u64) -> Read {
        self.tunnel.read(self.now, flow)
    }

    /// As [`packet`](super::Endpoint::packet).
    pub fn packet(&mut self, flow: u64) -> Option<Bytes> {
        self.tunnel.packet(flow)
    }

    /// As [`write`](super::Endpoint::write), within the room.
    pub fn write(&mut self, flow: u64, bytes: Bytes) {
        if self.tunnel.room(flow) >= bytes.len() as u64 {
            self.tunnel.write(self.now, flow, bytes);
        }
    }

    /// As [`finish`](super::Endpoint::finish).
    pub fn finish(&mut self, flow: u64) {
        self.tunnel.end(self.now, flow, End::Fin);
    }

    /// As [`abort`](super::Endpoint::abort).
    pub fn abort(&mut self, flow: u64) {
        self.tunnel.abort(self.now, flow, Reason::Closed, String::new());
    }

    /// Panics where more is held for the peer than the limits allow.
    pub fn assert_bounded(&self) {
        self.tunnel.assert_bounded();
    }
}
