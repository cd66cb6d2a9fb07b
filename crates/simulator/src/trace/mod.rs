//! A run's trace of each packet: rows in columns for pandas, DuckDB and polars, and captures for
//! tshark, both written as the run goes.

pub mod capture;
pub mod columns;

use columns::{Cell, Column};
use ekiden_model::units::Time;

/// Something that happened to a write, or to a segment with a part of it: [`Event`] says what, and
/// what the delays mean. Delays are as seen at the client: waiting at the server, at the router,
/// and at the client for earlier data. `None`: it did not come to that, unlike 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketRow {
    /// When it happened.
    pub time: Time,
    /// What happened.
    pub event: Event,
    /// The flow's number.
    pub flow: u32,
    /// What the data is.
    pub kind: WriteKind,
    /// Which way it went.
    pub direction: Direction,
    /// The offset of its first byte in the stream.
    pub sequence: u64,
    /// How many bytes of payload.
    pub bytes: u32,
    /// Why it was sent again, if it was; of a write, why that segment was which brought its last byte.
    pub retransmission: Reason,
    /// From the write to its last byte's first transmission and through the host's queue and link;
    /// of a segment the latter alone. ns, as all delays.
    pub server_ns: Option<u64>,
    /// From entering routers' queues to having left them.
    pub router_ns: Option<u64>,
    /// From the arrival of its last byte to delivery in order.
    pub client_ns: Option<u64>,
    /// From write to delivery; of a segment, from leaving its host's TCP to its arrival.
    pub end_to_end_ns: Option<u64>,
    /// The congestion window, 1/1000 segment; as the estimates below, as of the last segment or
    /// ACK.
    pub cwnd_milli: u32,
    /// The sender's retransmission time-out, in nanoseconds.
    pub rto_ns: u64,
    /// Its smoothed RTT, in nanoseconds; `None` before the first sample.
    pub srtt_ns: Option<u64>,
    /// Its RTT variation, in nanoseconds; `None` before the first sample.
    pub rttvar_ns: Option<u64>,
    /// Packets that waited then at the link that is watched, the bottleneck if there is one.
    pub queue_packets: u32,
    /// Of a loss: a queue had no room for it; otherwise a link lost it on the way.
    pub dropped: bool,
}

/// What a row tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Event {
    /// A segment left its host's TCP. There are no delays yet.
    #[default]
    Sent,
    /// A segment came to the host that it is for. Server and router have its own time there.
    Arrived,
    /// A segment will not arrive; `time` is when it reached the losing link, perhaps later than
    /// rows behind.
    Lost,
    /// A write was delivered in order. Its last delay beyond the other three is propagation, and
    /// the time until its last byte was sent again.
    Delivered,
}

/// What an application's data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WriteKind {
    /// An answer somebody waits for.
    Interactive,
    /// A transfer.
    Bulk,
    /// Neither is known.
    #[default]
    Other,
}

/// Which way, of a connection's two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// From the client, which mostly is who opened the connection.
    #[default]
    ToServer,
    /// From the server.
    ToClient,
}

/// Why data was sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reason {
    /// It was not.
    #[default]
    None,
    /// Three duplicate ACKs (RFC 5681 §3.2).
    Fast,
    /// An ACK of a part of what recovery waits for (RFC 6582 §3.2).
    Partial,
    /// A hole that selective ACKs show (RFC 6675 §5).
    Sack,
    /// The retransmission timer (RFC 6298 §5.4).
    Timeout,
    /// A probe for a lost tail (RFC 8985 §7).
    TailProbe,
}

macro_rules! named {
    ($($type:ident { $($variant:ident = $name:literal),* })*) => {$(
        impl $type {
            /// As it is written.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    )*};
}
named! {
    WriteKind { Interactive = "interactive", Bulk = "bulk", Other = "other" }
    Event { Sent = "sent", Arrived = "arrived", Lost = "lost", Delivered = "delivered" }
    Direction { ToServer = "to server", ToClient = "to client" }
    Reason {
        None = "none", Fast = "fast", Partial = "partial", Sack = "sack", Timeout = "timeout",
        TailProbe = "tail probe"
    }
}

impl Direction {
    /// The other one.
    pub const fn back(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}

impl PacketRow {
    /// The columns of a table of packets, in their order; names with units.
    pub const COLUMNS: &'static [Column<Self>] = &[
        Column { name: "time_ns", cell: Cell::Long(|row| row.time.as_nanos()) },
        Column { name: "event", cell: Cell::Name(|row| row.event.name()) },
        Column { name: "flow", cell: Cell::Number(|row| row.flow) },
        Column { name: "kind", cell: Cell::Name(|row| row.kind.name()) },
        Column { name: "direction", cell: Cell::Name(|row| row.direction.name()) },
        Column { name: "sequence", cell: Cell::Long(|row| row.sequence) },
        Column { name: "bytes", cell: Cell::Number(|row| row.bytes) },
        Column { name: "retransmission", cell: Cell::Name(|row| row.retransmission.name()) },
        Column { name: "server_ns", cell: Cell::Maybe(|row| row.server_ns) },
        Column { name: "router_ns", cell: Cell::Maybe(|row| row.router_ns) },
        Column { name: "client_ns", cell: Cell::Maybe(|row| row.client_ns) },
        Column { name: "end_to_end_ns", cell: Cell::Maybe(|row| row.end_to_end_ns) },
        Column { name: "cwnd_milli", cell: Cell::Number(|row| row.cwnd_milli) },
        Column { name: "rto_ns", cell: Cell::Long(|row| row.rto_ns) },
        Column { name: "srtt_ns", cell: Cell::Maybe(|row| row.srtt_ns) },
        Column { name: "rttvar_ns", cell: Cell::Maybe(|row| row.rttvar_ns) },
        Column { name: "queue_packets", cell: Cell::Number(|row| row.queue_packets) },
        Column { name: "dropped", cell: Cell::Flag(|row| row.dropped) },
    ];
}
