//! Keys of UDP ASSOCIATE: `[udp]`.

use super::key::{Key, keys};
use super::keys::HOUR;
use super::kind::Kind;
use ekiden_model::units::Span;
use ekiden_proxy::settings::Udp;

/// `[udp]`.
pub(super) static UDP: &[Key<Udp>] = keys! { Udp;
    associations = associations: Kind::Number(0, 1_000_000), None,
        "The most associations at once. 0: none, and clients are told that the command is not supported.",
        "Four descriptors and the places of two connections (budgets.connections) each; a UDP port on the address that the client came to, which takes datagrams from that client alone.",
        "Sites that permit TCP alone: 0. Many clients with games, calls or QUIC: more.";
    destinations = destinations: Kind::Number(1, 65_536), None,
        "The most destinations of one association that may answer; beyond, the one spoken to longest ago is forgotten.",
        "Some 100 bytes each.", "Clients that speak to thousands at a time.";
    idle = idle: Kind::Span(Span::from_secs(1), HOUR.saturating_mul(24)), None,
        "When nothing came or went for so long the association ends; when nothing was sent to a destination for so long, it is not heard any more (RFC 4787: 2 min at least).",
        "Longer holds ports for clients that have gone without a word.", "Clients that listen for hours and say nothing: longer.";
};
