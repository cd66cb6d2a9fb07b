//! One direction of a connection: a sender, a receiver, and the application's writes between them.

use crate::network::writes::Writes;
use ekiden_model::network::tcp::{Acknowledgement, Receiver, ReceiverConfig, Sender, SenderConfig};
use ekiden_model::units::Time;

/// What one direction of a connection is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowConfig {
    /// Who sends.
    pub sender: SenderConfig,
    /// Who receives.
    pub receiver: ReceiverConfig,
    /// Bytes of IP and TCP headers: 40, or 52 with timestamps.
    pub header: u32,
    /// Bytes of selective acknowledgements beside 8 a block: 4 on real wires (RFC 2018, padded), 0
    /// in ns-2.
    pub selective_header: u32,
    /// Whether packets may be marked instead of dropped (RFC 3168).
    pub ecn: bool,
    /// Priority of acknowledgements in routers that look at it: 0 first.
    pub ack_class: u8,
    /// What is written.
    pub source: Source,
}

impl FlowConfig {
    /// Headers of 40 bytes and wires' selective acknowledgements; without marks and priority.
    pub const fn new(sender: SenderConfig, receiver: ReceiverConfig, source: Source) -> Self {
        let (header, selective_header, ecn, ack_class) = (40, 4, false, 0);
        Self { sender, receiver, header, selective_header, ecn, ack_class, source }
    }

    /// The window that the receiver offers at first.
    pub(crate) fn first_window(&self) -> u64 {
        self.receiver.buffer.min(u64::from(u16::MAX) << u32::from(self.receiver.scale))
    }
}

/// Where a flow's bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// They never end; each segment counts as a write of its own when it is first sent.
    Endless {
        /// What the writes are called.
        kind: u8,
    },
    /// Writes at certain times, in order.
    Script(Vec<Scripted>),
    /// Whatever an application of the simulator writes.
    Application,
    /// As much as the send buffer takes, at any time.
    Filled,
}

/// A write of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scripted {
    /// When; what comes before the connection stands waits for it.
    pub at: Time,
    /// How many bytes, at least 1.
    pub bytes: u32,
    /// What it is called; also its priority in routers that look at it.
    pub kind: u8,
}

/// Without end: more than any run moves.
pub(crate) const ENDLESS: u64 = 1 << 60;

/// What each packet needs stands together, the rest of the configuration behind it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Flow {
    pub(crate) receiver: Receiver,
    pub(crate) writes: Writes,
    /// When the last packet comes that waits in the queue of events: to the receiver, to the sender.
    pub(crate) queued_until: [Time; 2],
    /// When the next events are due: a timer moved back leaves its event, which asks again.
    pub(crate) receiver_event: Time,
    pub(crate) sender_event: Time,
    /// Bytes in order that nobody has taken yet.
    pub(crate) unread: u64,
    pub(crate) data_route: u32,
    pub(crate) ack_route: u32,
    /// How many connections had its number before.
    pub(crate) epoch: u32,
    pub(crate) connection: u32,
    pub(crate) chain: Option<u32>,
    /// No other flow shares its hosts' links, and nobody but its script writes or reads.
    pub(crate) alone: bool,
    /// Payload has come.
    pub(crate) established: bool,
    pub(crate) proxied: bool,
    timestamps: bool,
    pub(crate) sender: Sender,
    pub(crate) cursor: usize,
    pub(crate) config: FlowConfig,
}

impl Flow {
    pub(crate) fn new(config: FlowConfig, now: Time, connection: u32, routes: [u32; 2]) -> Self {
        let [data_route, ack_route] = routes;
        let timestamps = config.sender.sampling == ekiden_model::network::tcp::Sampling::Timestamps;
        Self {
            connection,
            sender: Sender::new(&config.sender, now),
            receiver: Receiver::new(config.receiver),
            writes: Writes::default(),
            cursor: 0,
            data_route,
            ack_route,
            sender_event: Time::NEVER,
            receiver_event: Time::NEVER,
            chain: None,
            epoch: 0,
            proxied: false,
            unread: 0,
            established: false,
            alone: false,
            queued_until: [Time::ZERO; 2],
            timestamps,
            config,
        }
    }

    /// The timestamp that a segment sent at this time carries.
    pub(crate) fn timestamp(&self, sent: Time) -> Option<Time> {
        self.timestamps.then_some(sent)
    }

    /// When its script writes next.
    pub(crate) fn next_write(&self) -> Time {
        let Source::Script(script) = &self.config.source else { return Time::NEVER };
        script.get(self.cursor).map_or(Time::NEVER, |write| write.at)
    }

    pub(crate) fn ack_bytes(&self, ack: &Acknowledgement) -> u32 {
        let blocks = ack.blocks.as_slice().len() as u32;
        let selective = if blocks > 0 { self.config.selective_header + 8 * blocks } else { 0 };
        self.config.header + selective
    }
}
