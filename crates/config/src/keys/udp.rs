//! Keys of UDP ASSOCIATE and UDP over HTTP: `[udp]`.

use super::key::{Key, keys};
use crate::draft::Draft;
use crate::keys::HOUR;
use crate::value::kind::Kind;
use ekiden_model::units::Span;

pub(super) static UDP: &[Key<Draft>] = keys! { Draft, |draft| draft.udp;
    associations = associations: Kind::Number(0, 1_000_000), None,
        "Maximum number of associations: of SOCKS, requests for UDP over HTTP, clients of forwarded UDP ports, flows of diverted QUIC, and flows of peers. Where all are in use, the one that has the most above an even share loses its longest idle one to a newcomer. Clients of forwarded ports and diverted QUIC, whose addresses may be forged, have three quarters at most. 0: none; clients of SOCKS get the error \"command not supported\", HTTP does not offer UDP, and flows of peers are refused.",
        "Each takes four descriptors, counts as two connections (budgets.connections), and opens a UDP port for that client only.",
        "Sites that permit only TCP: 0. Many clients with games, calls or QUIC: more.";
    destinations = destinations: Kind::Number(1, 65_536), None,
        "Maximum number of destinations per association that may answer; beyond it, the least recently used is dropped.",
        "About 100 bytes each.", "Clients with thousands of destinations.";
    idle = idle: Kind::Span(Span::from_secs(1), HOUR.saturating_mul(24)), None,
        "Idle time after which an association ends, and after which a destination may no longer answer (RFC 4787: at least 2 min).",
        "A longer time holds ports for clients that are gone.", "Clients that listen for hours without sending: longer.";
};
