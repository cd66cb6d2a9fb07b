//! Who wants to know what happens: nobody, a table of delays, or whoever writes every packet down.

use crate::topology::Way;
use ekiden_model::tcp::{Segment, Sender};
use ekiden_model::units::{Span, Time};

/// An application write that was delivered in order, and where its time went (seed 0; ALGORITHMS B.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Which flow.
    pub flow: u32,
    /// What the application called it.
    pub kind: u8,
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
    /// From writing to delivery in order: propagation and repeated sending included.
    pub end_to_end: Span,
    /// The segment that brought its last byte had been sent before.
    pub repeated: bool,
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
    /// Whether it carried payload.
    pub data: bool,
    /// A queue had no room; otherwise the link lost it.
    pub dropped: bool,
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
pub trait Observer {
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
