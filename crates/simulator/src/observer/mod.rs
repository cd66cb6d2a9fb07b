//! Observers of a run: none, a table of delays, or a recorder of every packet.

pub mod delays;
use crate::network::flow::FlowConfig;
pub use crate::network::packet::Body;
use crate::network::topology::{LinkDirection, Node};
use ekiden_model::network::tcp::{Reason, Segment, Sender};
use ekiden_model::units::{Span, Time};

/// An application write that was delivered in order, and where its time went (the thin-client study; algorithms/thin-client B.8).
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
    /// In the send buffer until its last byte's segment first left, and in the host's queue and
    /// link.
    pub server: Span,
    /// In routers: queues, and being sent, of the copy that arrived first.
    pub router: Span,
    /// Between the arrival of its last byte and that of all before it.
    pub client: Span,
    /// From writing to delivery in order. Beyond the three parts it is propagation, and the time
    /// until the arriving copy was sent.
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
    pub way: LinkDirection,
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

/// Told of what happens, in the order of time; but a loss known ahead may have a later time than
/// the next report. Methods do nothing by default.
pub trait Observer {
    /// Whether the order of reports matters. Where it does not, a run has a tenth of the events:
    /// the reports of one end of a flow keep their order, others come in any. Of packets that come
    /// to a link in the same nanosecond another may then be the first.
    const ORDERED: bool = true;
    /// Whether [`Observer::passed`] is of interest: it is not even called otherwise, and costs nothing.
    const PACKETS: bool = false;
    /// The link whose waiting packets are counted in reports; `None` counts nothing.
    fn watched(&self) -> Option<LinkDirection> {
        None
    }
    /// A packet leaves its host or arrives; for payload after `departed`, before `delivered`.
    fn passed(&mut self, _passing: &Passing<'_>) {}
    /// A write was delivered.
    fn delivered(&mut self, _delivery: &Delivery) {}
    /// A segment leaves its host.
    fn departed(&mut self, _departure: &Departure<'_>) {}
    /// A packet was dropped or lost.
    fn lost(&mut self, _loss: &Loss) {}
    /// A sender found something missing; `kind` is that of the first outstanding write.
    fn troubled(&mut self, _at: Time, _flow: u32, _kind: u8, _trouble: Trouble, _sender: &Sender) {}
    /// An acknowledgement has been taken in.
    fn acknowledged(&mut self, _at: Time, _flow: u32, _sender: &Sender) {}
}

impl Observer for () {
    const ORDERED: bool = false;
}

/// The reports of an observer that passes them on, in order.
macro_rules! pass_on {
    ($this:ident, $($one:ident in $each:expr),+) => {
        fn passed(&mut $this, passing: &Passing<'_>) {
            $(for $one in $each { $one.passed(passing); })+
        }
        fn delivered(&mut $this, delivery: &Delivery) {
            $(for $one in $each { $one.delivered(delivery); })+
        }
        fn departed(&mut $this, departure: &Departure<'_>) {
            $(for $one in $each { $one.departed(departure); })+
        }
        fn lost(&mut $this, loss: &Loss) {
            $(for $one in $each { $one.lost(loss); })+
        }
        fn troubled(&mut $this, at: Time, flow: u32, kind: u8, trouble: Trouble, of: &Sender) {
            $(for $one in $each { $one.troubled(at, flow, kind, trouble, of); })+
        }
        fn acknowledged(&mut $this, at: Time, flow: u32, sender: &Sender) {
            $(for $one in $each { $one.acknowledged(at, flow, sender); })+
        }
    };
}

impl<O: Observer> Observer for Option<O> {
    const ORDERED: bool = O::ORDERED;
    const PACKETS: bool = O::PACKETS;

    fn watched(&self) -> Option<LinkDirection> {
        self.as_ref().and_then(O::watched)
    }

    pass_on!(self, one in self.iter_mut());
}

/// Two; the link that is watched is the first one's, if it watches any.
impl<A: Observer, B: Observer> Observer for (A, B) {
    const ORDERED: bool = A::ORDERED || B::ORDERED;
    const PACKETS: bool = A::PACKETS || B::PACKETS;

    fn watched(&self) -> Option<LinkDirection> {
        self.0.watched().or_else(|| self.1.watched())
    }

    pass_on!(self, one in [&mut self.0], other in [&mut self.1]);
}
