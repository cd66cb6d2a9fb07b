//! Axes that this study declares.

use ekiden_lab::cell::axis::{Axis, MTU, ValueKind, axis};

pub(crate) static AXES: &[Axis] = &[
    axis(
        "lan-mtu",
        "MTU of the ends",
        ValueKind::Packet,
        "largest IP packet between a relay and its client or server",
    ).within(MTU),
    axis(
        "acks",
        "segments per ACK",
        ValueKind::WholeOr("study"),
        "segments that the receiver acknowledges at once; `study`: 2 at MTU 1500 and 1 at MTU 9000 in the simulator, the kernel's own choice on the kernel",
    ).within(("1", "255")),
    axis(
        "offload",
        "offload",
        ValueKind::Word(&["off", "on"]),
        "whether the kernel's hosts cut and join packets in batches",
    ),
    axis("slots", "slots", ValueKind::Whole, "packets that each queue of the thin link holds").within(("1", "1000000")),
    axis("framing", "framing", ValueKind::Whole, "bytes that the uplink counts beside each IP packet").within(("0", "1000")),
    axis(
        "up-queue",
        "uplink's queue",
        ValueKind::Word(&["droptail", "ack-first"]),
        "the order in which it sends packets",
    ).words(&[("droptail", "FIFO"), ("ack-first", "ACKs first")]),
    axis(
        "jam",
        "jam",
        ValueKind::Share,
        "share of the uplink's rate, counted with framing, that cross traffic takes",
    ),
    axis(
        "jam-shape",
        "cross traffic",
        ValueKind::Word(&["steady", "bursts"]),
        "steady, or all of it in every second 10 ms",
    ),
    axis("jam-packet", "cross traffic's packets", ValueKind::Whole, "size of each IP packet, bytes").within(("64", "9000")),
    axis("initial-rto", "first time-out", ValueKind::Span, "of a SYN").within(("1 ms", "")),
    // above 29 % the mean has no end, since waits double; above 22 %, runs not made hold over 1 % of it
    axis(
        "handshake-loss",
        "handshake loss",
        ValueKind::Share,
        "share of SYNs and of SYN-ACKs that are lost; nothing else is lost",
    ).within(("0 %", "22 %")),
];
