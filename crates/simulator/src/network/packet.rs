//! Packets on their way: an arena of them, so that an event needs a number only.

use ekiden_model::network::tcp::{Acknowledgement, Segment};
use ekiden_model::units::{Span, Time};

/// What a packet is.
#[derive(Debug, Clone, Copy)]
pub enum Body {
    /// The first packet of a connection.
    Syn,
    /// Its answer.
    SynAck,
    /// The answer's answer.
    Established,
    /// Payload.
    Data(Segment),
    /// An acknowledgement.
    Ack(Acknowledgement),
    /// Cross traffic, of no connection.
    Plain,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) body: Body,
    /// A flow for payload and acknowledgements, a connection for handshakes.
    pub(crate) owner: u32,
    /// Of which owner of that number: what comes for one that is closed is nobody's.
    pub(crate) epoch: u32,
    pub(crate) bytes: u32,
    /// Packets on the wire that it stands for: more than 1 for a super-packet.
    pub(crate) segments: u16,
    /// Where in the table of routes the link stands that it takes next.
    pub(crate) next: u32,
    /// Priority: 0 first.
    pub(crate) class: u8,
    pub(crate) ecn_capable: bool,
    pub(crate) marked: bool,
    pub(crate) sent: Time,
    /// How long it waited and was sent in hosts …
    pub(crate) host: Span,
    /// … and in routers.
    pub(crate) router: Span,
}

impl Packet {
    /// One packet on the wire, of priority 0, that leaves its host now.
    pub(crate) fn new(
        body: Body,
        owner: u32,
        epoch: u32,
        bytes: u32,
        next: u32,
        now: Time,
    ) -> Self {
        let (segments, class, ecn_capable, marked) = (1, 0, false, false);
        let (sent, host, router) = (now, Span::ZERO, Span::ZERO);
        Self {
            body,
            owner,
            epoch,
            bytes,
            segments,
            next,
            class,
            ecn_capable,
            marked,
            sent,
            host,
            router,
        }
    }

    /// It has passed its next link, at which it waited and was sent for so long.
    pub(crate) fn spend(&mut self, span: Span, in_router: bool) {
        self.next += 1;
        let part = if in_router { &mut self.router } else { &mut self.host };
        *part += span;
    }
}

/// Packets by number; numbers are used again.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    packets: Vec<Packet>,
    free: Vec<u32>,
}

impl Arena {
    pub(crate) fn insert(&mut self, packet: Packet) -> u32 {
        if let Some(number) = self.free.pop()
            && let Some(slot) = self.packets.get_mut(number as usize)
        {
            *slot = packet;
            return number;
        }
        self.packets.push(packet);
        self.packets.len() as u32 - 1
    }

    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Packet> {
        self.packets.get_mut(number as usize)
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Packet> {
        let packet = *self.packets.get(number as usize)?;
        self.free.push(number);
        Some(packet)
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len() - self.free.len()
    }
}
