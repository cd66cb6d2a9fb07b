//! Axes that every plan has.

use super::axis::ValueKind::{Bytes, BytesOr, Rate, Share, Span, Whole, Word};
use super::axis::{Axis, LEAST_RATE, MTU, axis, mtu};

pub(super) static COMMON: &[Axis] = &[
    axis("peer", "relay", Word(&["none", "squid", "dante", "ekiden"]), "the program that relays")
        .shown(peer),
    axis("layout", "layout", Word(&["direct", "row", "ends", "one"]), "where relays stand"),
    axis("relays", "relays in a row", Whole, "number of relays that split the path")
        .within(("0", "100")),
    axis("at", "position of the relay", Share, "share of the round trip before the relay"),
    axis("file", "file", Bytes, "size of the download").within(("1 B", "")),
    axis("rtt", "round trip", Span, "of the whole path, unloaded"),
    axis("rate", "link rate", Rate, "of each link, both directions").within(LEAST_RATE),
    axis("queue", "queue", Span, "each link's queue, as time at its rate"),
    axis("loss", "loss", Share, "of the whole path, each direction"),
    axis(
        "lossy",
        "where loss is",
        Word(&["even", "long-leg", "near-server", "near-client"]),
        "the part of the path that loses packets",
    )
    .shown(spaced),
    axis("unit", "loss per", Word(&["packet", "super-packet"]), "the unit that is lost at once"),
    axis(
        "congestion",
        "congestion control",
        Word(&["reno", "cubic", "bbr", "westwood"]),
        "of the senders",
    )
    .shown(congestion),
    // below one segment nothing is ever sent
    axis("window", "window", BytesOr("defaults"), "effective window of each connection")
        .within(("1460 B", "")),
    axis("cut", "cut", Span, "a transfer that takes longer is ended and counted by its bytes")
        .within(("1 ms", "")),
    axis(
        "era",
        "TCP of",
        Word(&["ns-2.1b9", "ns-2.28", "ns-2.35", "rfc", "linux"]),
        "behaviour of the senders",
    ),
    axis("downlink", "downlink", Rate, "of the thin link, towards the client").within(LEAST_RATE),
    axis(
        "uplink",
        "uplink",
        Rate,
        "of the thin link, from the client; left out: the smallest sufficient rate is searched",
    )
    .within(LEAST_RATE),
    axis("mtu", "MTU", Whole, "largest IP packet on the thin link").within(MTU).shown(mtu),
    axis("duration", "duration", Span, "how long a run on the kernel looks")
        .within(("1 s", "600 s")),
];

fn peer(value: &str) -> String {
    if value == "none" { "un-split".to_owned() } else { value.to_owned() }
}

fn congestion(value: &str) -> String {
    match value {
        "reno" => "New Reno".to_owned(),
        "cubic" | "bbr" => value.to_uppercase(),
        _ => value.to_owned(),
    }
}

fn spaced(value: &str) -> String {
    value.replace('-', " ")
}
