//! Axes that every plan has.

use super::axis::ValueKind::{Bytes, BytesOr, Packet, Rate, Share, Span, Whole, Word};
use super::axis::{Axis, LEAST_RATE, MTU, axis};

pub(super) static COMMON: &[Axis] = &[
    axis("peer", "relay", Word(&["none", "squid", "dante", "ekiden"]), "the program that relays")
        .words(&[("none", "un-split")]),
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
    .words(&[
        ("long-leg", "long leg"),
        ("near-server", "near server"),
        ("near-client", "near client"),
    ]),
    axis("unit", "loss per", Word(&["packet", "super-packet"]), "the unit that is lost at once"),
    axis(
        "congestion",
        "congestion control",
        Word(&["reno", "cubic", "bbr", "westwood"]),
        "of the senders",
    )
    .words(&[("reno", "New Reno"), ("cubic", "CUBIC"), ("bbr", "BBR")]),
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
    axis("mtu", "MTU", Packet, "largest IP packet on the thin link").within(MTU),
    axis("duration", "duration", Span, "how long a run on the kernel looks")
        .within(("1 s", "600 s")),
];
