//! Calls on flows, routed to their tunnels.

use super::Tunnel;
use crate::core::{End, Endpoint, FlowId, FlowStatus, Read, TunnelId};
use crate::frame::Opening;
use crate::frame::reason::Reason;
use bytes::Bytes;
use ekiden_model::units::Time;

impl Endpoint {
    fn with(&mut self, flow: FlowId, act: impl FnOnce(&mut Tunnel)) {
        if let Some(tunnel) = self.tunnels.get_mut(&flow.tunnel) {
            act(tunnel);
        }
    }

    /// Opens a flow. Written bytes follow at once, without waiting for an answer. Errors: the
    /// tunnel is not up, or has too many flows.
    pub fn open(
        &mut self,
        now: Time,
        tunnel: TunnelId,
        opening: Opening,
    ) -> Result<FlowId, Reason> {
        self.tunnels.get_mut(&tunnel).ok_or(Reason::TunnelLost)?.open(now, opening)
    }

    /// Answers that the destination of an incoming flow was reached.
    pub fn accept(&mut self, now: Time, flow: FlowId) {
        self.with(flow, |tunnel| tunnel.accept(now, flow.flow));
    }

    /// Answers that it was not; the flow is over.
    pub fn refuse(&mut self, now: Time, flow: FlowId, reason: Reason, words: String) {
        self.with(flow, |tunnel| tunnel.refuse(now, flow.flow, reason, words));
    }

    /// How many bytes to write now.
    pub fn room(&self, flow: FlowId) -> usize {
        let room = self.tunnels.get(&flow.tunnel).map_or(0, |tunnel| tunnel.room(flow.flow));
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// How many bytes to write now, where so many are worth a write; else 0, and an
    /// [`Event::Flow`](crate::core::Event::Flow) comes when they are.
    pub fn writable(&mut self, flow: FlowId) -> usize {
        let tunnel = self.tunnels.get_mut(&flow.tunnel);
        let room = tunnel.map_or(0, |tunnel| tunnel.writable(flow.flow));
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// A flow as it is now; `None` once it has ended.
    pub fn flow_status(&self, flow: FlowId) -> Option<FlowStatus> {
        self.tunnels.get(&flow.tunnel)?.flow_status(flow.flow)
    }

    /// Takes as many of these bytes to be sent as there is room for; how many.
    pub fn try_write(&mut self, now: Time, flow: FlowId, bytes: Bytes) -> usize {
        let (room, length) = (self.room(flow), bytes.len());
        if room >= length {
            self.write(now, flow, bytes);
            return length;
        }
        if room == 0 {
            return 0;
        }
        // a slice would keep the rest, too
        self.write(now, flow, Bytes::copy_from_slice(&bytes[..room]));
        room
    }

    /// Takes bytes to be sent, all of them, also beyond the room: for tests and simulations.
    pub fn write(&mut self, now: Time, flow: FlowId, bytes: Bytes) {
        self.with(flow, |tunnel| tunnel.write(now, flow.flow, bytes));
    }

    /// Nothing more is written; [`End::Reset`] also ends the other direction once all before it is sent.
    pub fn finish(&mut self, now: Time, flow: FlowId, end: End) {
        self.with(flow, |tunnel| tunnel.end(now, flow.flow, end));
    }

    /// The connection at this end broke. At the end that opened the flow, bytes that wait are discarded, unless
    /// [`End::Fin`] came before; else they are sent before the reset.
    pub fn on_broken(&mut self, now: Time, flow: FlowId, reason: Reason, words: String) {
        self.with(flow, |tunnel| tunnel.on_broken(now, flow.flow, reason, words));
    }

    /// Sends a packet of a flow that carries them. `false`: it was dropped, because too many wait
    /// or it exceeds 16,376 bytes.
    pub fn send_packet(&mut self, now: Time, flow: FlowId, packet: Bytes) -> bool {
        let tunnel = self.tunnels.get_mut(&flow.tunnel);
        tunnel.is_some_and(|tunnel| tunnel.send_packet(now, flow.flow, packet))
    }

    /// Takes the next packet that has come.
    pub fn packet(&mut self, flow: FlowId) -> Option<Bytes> {
        self.tunnels.get_mut(&flow.tunnel)?.packet(flow.flow)
    }

    /// Takes received bytes.
    pub fn read(&mut self, now: Time, flow: FlowId) -> Read {
        self.tunnels.get_mut(&flow.tunnel).map_or(Read::Gone, |tunnel| tunnel.read(now, flow.flow))
    }

    /// Whether bytes or an end can be read, or the flow is gone.
    pub fn is_readable(&self, flow: FlowId) -> bool {
        self.tunnels.get(&flow.tunnel).is_none_or(|tunnel| tunnel.is_readable(flow.flow))
    }

    /// Why the flow is broken, if it is, whether or not all bytes before the break were read.
    pub fn broken(&self, flow: FlowId) -> Option<(Reason, String)> {
        match self.tunnels.get(&flow.tunnel) {
            Some(tunnel) => tunnel.broken(flow.flow),
            None => Some((Reason::TunnelLost, "the tunnel was lost".to_owned())),
        }
    }

    /// The answer to a flow that was opened here, once there is one: it was accepted, or why not.
    pub fn answer(&self, flow: FlowId) -> Option<Result<(), (Reason, String)>> {
        match self.tunnels.get(&flow.tunnel) {
            Some(tunnel) => tunnel.answer(flow.flow),
            None => Some(Err((Reason::TunnelLost, "the tunnel was lost".to_owned()))),
        }
    }

    /// Nobody here has the flow any more, whose end was written: what waits is sent. Where the peer takes too little of
    /// it for too long ([`ekiden_model::resources::orphan`]), it is reset.
    pub fn leave(&mut self, now: Time, flow: FlowId) {
        self.with(flow, |tunnel| tunnel.leave(now, flow.flow));
    }

    /// Abandons a flow at once: bytes that wait are discarded, and the peer gets the reason.
    pub fn abort(&mut self, now: Time, flow: FlowId, reason: Reason, words: String) {
        self.with(flow, |tunnel| tunnel.abort(now, flow.flow, reason, words));
    }
}
