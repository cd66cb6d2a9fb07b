//! Who wants to know what happens: nobody, a table of delays, or whoever writes every packet down.

use crate::flow::FlowConfig;
pub use crate::packet::Body;
use crate::topology::{Node, Way};
use ekiden_model::tcp::{Reason, Segment, Sender};
use ekiden_model::units::{Span, Time};

/// An application write that was delivered in order, and where its time went (seed 0; ALGORITHMS B.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Which flow.
    pub flow: u32,
    /// What the application called it.
    pub kind: u8,
    /// The offset of its first byte in the stream.
    pub start: u64,
    /// How many bytes.
    pub bytes: u32,
    /// When it was written.
    pub written: Time,
    /// In the send buffer, until the segment with its last byte first left, and that segment's time in
    /// the host's own queue and link.
    pub server: Span,
    /// In routers: queues, and being sent, of the copy that arrived first.
    pub router: Span,
    /// Between the arrival of its last byte and that of all before it.
    pub client: Span,
    /// From writing to delivery in order. What it is beyond the three parts is propagation and, if its
    /// last byte was sent again, the time until the copy was sent that arrived first.
    pub end_to_end: Span,
    /// Why the segment was sent that brought its last byte.
    pub reason: Reason,
}

/// A segment that leaves its host.
#[derive(Debug)]
pub struct Departure<'a> {
    /// Now.
    pub at: Time,
    /// Which flow.
    pub flow: u32,
    /// What of it.
    pub segment: Segment,
    /// What the application called the write of its first byte.
    pub kind: u8,
    /// Who sends it: window and estimates by [`Sender::snapshot`].
    pub sender: &'a Sender,
}

/// A packet that will not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// When it was offered to the link that dropped or lost it.
    pub at: Time,
    /// Which.
    pub way: Way,
    /// Bytes of the IP packet.
    pub bytes: u32,
    /// Flow, or connection for a handshake.
    pub owner: u32,
    /// What of the flow it carried, if payload.
    pub segment: Option<Segment>,
    /// What the application called the write of its first byte.
    pub kind: u8,
    /// A queue had no room; otherwise the link lost it.
    pub dropped: bool,
    /// Packets that waited at the link that is watched.
    pub waiting: u64,
}

/// A packet where it leaves its host, or where it comes to the one that it is for.
#[derive(Debug)]
pub struct Passing<'a> {
    /// Now.
    pub at: Time,
    /// It comes; otherwise it leaves.
    pub arrives: bool,
    /// When it left its host.
    pub sent: Time,
    /// How long it waited and was sent in hosts, so far …
    pub host: Span,
    /// … and in routers.
    pub router: Span,
    /// What it says.
    pub body: Body,
    /// What the application called the write of its first byte.
    pub kind: u8,
    /// Its way is from the one who opened the connection to the other.
    pub from_opener: bool,
    /// Which connection.
    pub connection: u32,
    /// The one who opened the connection, and the other.
    pub ends: [Node; 2],
    /// The connection's flows, with their numbers: from the one who opened it, and to it.
    pub flows: [Option<(u32, &'a FlowConfig)>; 2],
    /// Packets that wait at the link that is watched.
    pub waiting: u64,
}

/// How a sender finds that something is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// Its retransmission timer fired.
    Timeout,
    /// Duplicate or selective acknowledgements say so.
    Duplicates,
}

/// Told of what happens. All methods do nothing unless written.
///
/// Where a link's fate for a packet is known ahead, so is a loss: its time may then be later than that
/// of what is told next. All else is told in the order of time.
pub trait Observer {
    /// Whether [`Observer::passed`] is of interest: it is not even called otherwise, and costs nothing.
    const PACKETS: bool = false;
    /// The link whose waiting packets are counted for what is told; `None` counts nothing.
    fn watched(&self) -> Option<Way> {
        None
    }
    /// A packet leaves its host or comes to the other. Of payload it is told after
    /// [`Observer::departed`] and before [`Observer::delivered`].
    fn passed(&mut self, _passing: &Passing<'_>) {}
    /// A write was delivered.
    fn delivered(&mut self, _delivery: &Delivery) {}
    /// A segment leaves its host.
    fn departed(&mut self, _departure: &Departure<'_>) {}
    /// A packet was dropped or lost.
    fn lost(&mut self, _loss: &Loss) {}
    /// A sender has found something missing; `kind` is what the application called the first write that
    /// was outstanding.
    fn troubled(&mut self, _at: Time, _flow: u32, _kind: u8, _trouble: Trouble, _sender: &Sender) {}
    /// An acknowledgement has been taken in.
    fn acknowledged(&mut self, _at: Time, _flow: u32, _sender: &Sender) {}
}

/// Nobody.
impl Observer for () {}

/// Somebody, or nobody.
impl<O: Observer> Observer for Option<O> {
    const PACKETS: bool = O::PACKETS;

    fn watched(&self) -> Option<Way> {
        self.as_ref().and_then(O::watched)
    }

    fn passed(&mut self, passing: &Passing<'_>) {
        self.iter_mut().for_each(|one| one.passed(passing));
    }

    fn delivered(&mut self, delivery: &Delivery) {
        self.iter_mut().for_each(|one| one.delivered(delivery));
    }

    fn departed(&mut self, departure: &Departure<'_>) {
        self.iter_mut().for_each(|one| one.departed(departure));
    }

    fn lost(&mut self, loss: &Loss) {
        self.iter_mut().for_each(|one| one.lost(loss));
    }

    fn troubled(&mut self, at: Time, flow: u32, kind: u8, trouble: Trouble, sender: &Sender) {
        self.iter_mut().for_each(|one| one.troubled(at, flow, kind, trouble, sender));
    }

    fn acknowledged(&mut self, at: Time, flow: u32, sender: &Sender) {
        self.iter_mut().for_each(|one| one.acknowledged(at, flow, sender));
    }
}

/// Two; the link that is watched is the first one's, if it watches any.
impl<A: Observer, B: Observer> Observer for (A, B) {
    const PACKETS: bool = A::PACKETS || B::PACKETS;

    fn watched(&self) -> Option<Way> {
        self.0.watched().or_else(|| self.1.watched())
    }

    fn passed(&mut self, passing: &Passing<'_>) {
        self.0.passed(passing);
        self.1.passed(passing);
    }

    fn delivered(&mut self, delivery: &Delivery) {
        self.0.delivered(delivery);
        self.1.delivered(delivery);
    }

    fn departed(&mut self, departure: &Departure<'_>) {
        self.0.departed(departure);
        self.1.departed(departure);
    }

    fn lost(&mut self, loss: &Loss) {
        self.0.lost(loss);
        self.1.lost(loss);
    }

    fn troubled(&mut self, at: Time, flow: u32, kind: u8, trouble: Trouble, sender: &Sender) {
        self.0.troubled(at, flow, kind, trouble, sender);
        self.1.troubled(at, flow, kind, trouble, sender);
    }

    fn acknowledged(&mut self, at: Time, flow: u32, sender: &Sender) {
        self.0.acknowledged(at, flow, sender);
        self.1.acknowledged(at, flow, sender);
    }
}
