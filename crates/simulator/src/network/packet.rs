//! Packets on their way: an arena of them, so that an event needs a number only. What is selectively
//! acknowledged, which is rare and long, lies beside them.

use ekiden_model::network::tcp::{Acknowledgement, Blocks, Segment};
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

/// A packet's headers: what links need of it, and what it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    /// A flow for payload and acknowledgements, a connection for handshakes.
    pub(crate) owner: u32,
    /// Of which owner of that number: what comes for one that is closed is nobody's.
    pub(crate) epoch: u32,
    pub(crate) bytes: u32,
    /// Where in the table of routes the link stands that it takes next.
    pub(crate) next: u32,
    /// Packets on the wire that it stands for: more than 1 for a super-packet.
    pub(crate) segments: u16,
    /// Priority: 0 first.
    pub(crate) class: u8,
    pub(crate) ecn_capable: bool,
    pub(crate) marked: bool,
    pub(crate) sent: Time,
    /// How long it waited and was sent in hosts …
    pub(crate) host: Span,
    /// … and in routers.
    pub(crate) router: Span,
    pub(crate) content: Content,
}

/// A [`Body`] without blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Content {
    Syn,
    SynAck,
    Established,
    Data(Segment),
    /// `echo`: [`Time::NEVER`] for none; `selective`: the arena has its blocks.
    Ack {
        ack: u64,
        window: u64,
        echo: Time,
        marked: bool,
        selective: bool,
    },
    Plain,
}

impl Content {
    /// An acknowledgement, whose blocks the arena keeps.
    pub(crate) fn ack(ack: &Acknowledgement) -> Self {
        let Acknowledgement { ack, window, ref blocks, echo, marked } = *ack;
        let selective = !blocks.as_slice().is_empty();
        Self::Ack { ack, window, echo: echo.unwrap_or(Time::NEVER), marked, selective }
    }
}

impl Packet {
    /// One packet on the wire, of priority 0, that leaves its host now.
    pub(crate) fn new(
        content: Content,
        owner: u32,
        epoch: u32,
        bytes: u32,
        next: u32,
        now: Time,
    ) -> Self {
        let (segments, class, ecn_capable, marked) = (1, 0, false, false);
        let (sent, host, router) = (now, Span::ZERO, Span::ZERO);
        Self {
            owner,
            epoch,
            bytes,
            next,
            segments,
            class,
            ecn_capable,
            marked,
            sent,
            host,
            router,
            content,
        }
    }

    /// It has passed its next link, at which it waited and was sent for so long.
    pub(crate) fn spend(&mut self, span: Span, in_router: bool) {
        self.next += 1;
        let part = if in_router { &mut self.router } else { &mut self.host };
        *part += span;
    }

    /// What of its flow it carries, if payload.
    pub(crate) const fn segment(&self) -> Option<Segment> {
        match self.content {
            Content::Data(segment) => Some(segment),
            _ => None,
        }
    }
}

/// Packets by number; numbers are used again.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    packets: Vec<Packet>,
    /// By packet; as long as the highest number that ever had some.
    blocks: Vec<Blocks>,
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

    /// Blocks of the packet that is put in next.
    pub(crate) fn keep_blocks(&mut self, blocks: Blocks) {
        let number = self.free.last().map_or(self.packets.len(), |number| *number as usize);
        if self.blocks.len() <= number {
            self.blocks.resize(number + 1, Blocks::default());
        }
        if let Some(slot) = self.blocks.get_mut(number) {
            *slot = blocks;
        }
    }

    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Packet> {
        self.packets.get_mut(number as usize)
    }

    /// Takes out a packet.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Packet> {
        let packet = *self.packets.get(number as usize)?;
        self.free(number);
        Some(packet)
    }

    /// Makes the number of a packet that is there free.
    pub(crate) fn free(&mut self, number: u32) {
        self.free.push(number);
    }

    /// What a packet is: one that is there, or was taken out last.
    pub(crate) fn body(&self, number: u32, packet: &Packet) -> Body {
        match packet.content {
            Content::Syn => Body::Syn,
            Content::SynAck => Body::SynAck,
            Content::Established => Body::Established,
            Content::Plain => Body::Plain,
            Content::Data(segment) => Body::Data(segment),
            Content::Ack { ack, window, echo, marked, selective } => {
                let blocks = self.blocks(number, selective);
                let echo = (echo != Time::NEVER).then_some(echo);
                Body::Ack(Acknowledgement { ack, window, blocks, echo, marked })
            }
        }
    }

    fn blocks(&self, number: u32, kept: bool) -> Blocks {
        let blocks = self.blocks.get(number as usize).filter(|_| kept);
        blocks.copied().unwrap_or_default()
    }

    pub(crate) fn len(&self) -> usize {
        self.packets.len() - self.free.len()
    }
}
