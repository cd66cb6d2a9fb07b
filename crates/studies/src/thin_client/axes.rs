//! Axes that this study declares.

use ekiden_lab::cell::axis::ValueKind::{Among, Span, Whole, Word};
use ekiden_lab::cell::axis::{Axis, axis};

pub(crate) static AXES: &[Axis] = &[
    axis(
        "scenario",
        "scenario",
        Word(&[
            "none",
            "P",
            "P+T1",
            "P+T2",
            "approach 1",
            "approach 2",
            "SACK",
            "RACK-TLP",
            "F-RTO",
            "CUBIC",
            "FQ-CoDel",
            "today",
            "held rate",
        ]),
        "the study's remedies, then today's",
    ),
    axis("traffic", "traffic", Word(&["intranet", "internet"]), "one of the study's two workloads"),
    // the mean that keeps the study's flows is known for these (algorithms/thin-client B.4)
    axis(
        "burstiness",
        "σ of the pauses",
        Among(&["1.5", "2", "2.4"]),
        "standard deviation of the logarithm of pauses between flows",
    ),
    axis("pairs", "pairs", Whole, "pairs of a server and a client, all at once")
        .within(("1", "10000")),
    axis("minimum-rto", "minimum RTO", Span, "lower bound of the retransmission time-out")
        .within(("1 ms", "")),
    // the most that a window shifted by 7 bits can say, 65,535 · 2⁷ bytes
    axis("segments", "receiver's window", Whole, "in segments of 1,460 bytes")
        .within(("1", "5745")),
    axis(
        "careful",
        "careful",
        Word(&["yes", "no"]),
        "no fast retransmission of data sent before the last loss",
    ),
    axis("clock", "clock", Word(&["exact", "10 ms"]), "granularity of round-trip measurements"),
];
