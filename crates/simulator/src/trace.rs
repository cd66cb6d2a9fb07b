//! What a run writes of each packet: rows in columns that pandas, DuckDB and polars read, and captures
//! that tshark reads. Both are written as the run goes and never held whole.

pub mod capture;
pub mod columns;

use columns::{Cell, Column};
use ekiden_model::units::Time;

/// Something that happened to an application's write, or to a segment that carries a part of it:
/// [`Event`] says what, and what the delays mean then.
///
/// The four delays follow what an observer at the client would ask: how long the data waited at the
/// server, at the router, and at the client for what comes before it in the stream. `None` is «it did
/// not come to that», which a delay of 0 is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketRow {
    /// When it happened.
    pub time: Time,
    /// What happened.
    pub event: Event,
    /// The flow's number.
    pub flow: u32,
    /// What the data is.
    pub kind: Kind,
    /// Which way it went.
    pub direction: Direction,
    /// The offset of its first byte in the stream.
    pub sequence: u64,
    /// How many bytes of payload.
    pub bytes: u32,
    /// Why it was sent again, if it was; of a write, why that segment was which brought its last byte.
    pub retransmission: Reason,
    /// From the application's write to the first transmission of its last byte, and the time in the
    /// host's own queue and link; the latter alone of a segment. In nanoseconds, as all delays.
    pub server_ns: Option<u64>,
    /// From entering routers' queues to having left them.
    pub router_ns: Option<u64>,
    /// From the arrival of its last byte to delivery in order.
    pub client_ns: Option<u64>,
    /// From write to delivery; of a segment, from leaving its host's TCP to its arrival.
    pub end_to_end_ns: Option<u64>,
    /// The sender's congestion window, in thousandths of a segment; as the three estimates below, as
    /// last seen when a segment left or an acknowledgement came.
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
    /// A segment will not arrive; `time` is when it came to the link that lost or dropped it, which may
    /// be later than the rows behind it.
    Lost,
    /// A write was delivered in order, with all four delays. What the last is beyond the other three is
    /// propagation and, where its last byte was sent again, the time until that.
    Delivered,
}

/// What an application's data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// An answer somebody waits for.
    Interactive,
    /// A transfer.
    Bulk,
    /// Neither is said.
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

impl Kind {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Bulk => "bulk",
            Self::Other => "other",
        }
    }
}

impl Event {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Arrived => "arrived",
            Self::Lost => "lost",
            Self::Delivered => "delivered",
        }
    }
}

impl Direction {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ToServer => "to server",
            Self::ToClient => "to client",
        }
    }

    /// The other one.
    #[must_use]
    pub const fn back(self) -> Self {
        match self {
            Self::ToServer => Self::ToClient,
            Self::ToClient => Self::ToServer,
        }
    }
}

impl Reason {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fast => "fast",
            Self::Partial => "partial",
            Self::Sack => "sack",
            Self::Timeout => "timeout",
            Self::TailProbe => "tail probe",
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
