//! Axes that this study declares.

use ekiden_lab::cell::axis::{Axis, ValueKind, axis};

pub(super) static AXES: &[Axis] = &[
    axis(
        "scheme",
        "scheme",
        ValueKind::Word(&[
            "1", "2", "3", "4", "squid", "fixed 20 KiB", "fixed 64 KiB", "kernel", "E-ATBT", "E2-ATBT", "defaults",
        ]),
        "buffers of the proxy: 1 fixed, 2 E2-ATBT, 3 also closes idle connections, 4 also halves idle buffers; squid; for downloads, the method that sizes them",
    ).words(&[("1", "(1)"), ("2", "(2)"), ("3", "(3)"), ("4", "(4)")]),
    axis("clients", "clients", ValueKind::Whole, "people at browsers behind the proxy").within(("1", "10000")),
    axis(
        "knowledge",
        "paths are",
        ValueKind::Word(&["perfect", "estimated"]),
        "whether the proxy is given the loss and round trip of each path, or estimates them",
    ),
    axis(
        "patience",
        "patience",
        ValueKind::Word(&["10 s", "30 s", "never"]),
        "time after which a client that waits for a connection is rejected",
    ),
    axis("persist", "kept idle", ValueKind::Span, "how long an idle connection is kept"),
    axis("halving", "halving", ValueKind::Span, "how often scheme 4 halves idle connections' buffers"),
    axis("pool", "pool", ValueKind::BytesOr("kernel"), "all buffers of the proxy together; `kernel`: as the kernel tunes them"),
    axis("bound", "bound", ValueKind::Word(&["places", "descriptors"]), "the scarce resource of the proxy: connections, or open files"),
    axis("receive", "kernel receives", ValueKind::Bytes, "maximum of the kernel's receive buffers: the third number of tcp_rmem").within(("64 KiB", "1 GiB")),
    axis("period", "period", ValueKind::Span, "between two ticks of the proxy").within(("1 ms", "")),
    axis("web", "workload", ValueKind::Word(&["surge", "clusters"]), "what is asked for"),
];
