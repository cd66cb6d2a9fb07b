//! Axes that this study declares.

use ekiden_lab::cell::axis::{Axis, ValueKind, axis};

pub(crate) static AXES: &[Axis] = &[
    axis(
        "way",
        "way",
        ValueKind::Word(&["cubic", "bbr", "ekiden", "hysteria2", "simulated", "hold", "dedicated", "simulated-held", "http3", "unrepaired", "gateway", "gateway-quic", "gateway-block", "quiche", "gateway-quiche"]),
        "path over the long link: plain TCP with this congestion control. `ekiden`: a pair of relays with a tunnel. `hysteria2`: sing-box's. `simulated`: today's TCP in the simulator. `hold`: one far relay whose kernel holds the rate. `dedicated`: a tunnel on a link of its own. `simulated-held`: a simulated relay that holds the rate. `http3`: straight over the link by QUIC of Caddy, `quiche`: of tokio-quiche. `unrepaired`: a tunnel that does not repair packets. `gateway`: as `ekiden`, but the near relay is the gateway of clients with nothing configured. `gateway-quic`: it takes their QUIC, too, `gateway-quiche`: that of tokio-quiche. `gateway-block`: it blocks their QUIC",
    )
    // a figure has no room for its digit beside a line
    .words(&[("hysteria2", "hysteria")]),
    axis(
        "load",
        "load",
        ValueKind::Word(&["download", "upload", "echo", "pace", "file", "first byte", "page", "stream", "screens", "steps", "quic", "fetch", "blocked", "names"]),
        "load on the long link; `echo` is a download with echoes beside it, `pace` a download whose packet gaps are measured, `screens` are a hundred thin clients. `steps`: of connections by HTTPS. `quic`: a download by QUIC, by CUBIC at its server. `fetch`: a browser's download. `blocked`: a page of a server of HTTP/3, with QUIC and without. `names`: a page whose hosts a resolver afar knows, or one near by",
    ),
    axis("streams", "streams", ValueKind::Whole, "bulk connections at once").within(("1", "200")),
    axis("told-down", "configured, down", ValueKind::Rate, "downstream rate that the tunnel is configured with").within(("64 kbit/s", "")),
    axis("told-up", "configured, up", ValueKind::Rate, "upstream rate that the tunnel is configured with").within(("64 kbit/s", "")),
    axis("burst", "burst", ValueKind::Whole, "mean number of packets lost in a row; 1: independent losses").within(("1", "1000")),
    axis(
        "rival",
        "beside",
        ValueKind::Word(&["none", "cubic", "bbr"]),
        "a competing TCP with this congestion control over the same link",
    ),
    axis(
        "changes",
        "changes",
        ValueKind::Word(&["none", "drawn", "fade", "drawn fade"]),
        "whether rate, delay and loss of the downlink change, at random times and to random values. `fade`: its rate falls to `faded` after 20 s, for `fading`. `drawn fade`: to what the run's seed says, for as long as it says",
    ),
    axis("faded", "rate in a fade", ValueKind::Rate, "what a fade leaves of the downlink"),
    axis("fading", "length of a fade", ValueKind::Span, "how long a fade lasts"),
    axis("tunnel", "tunnel", ValueKind::Word(&["warm", "cold"]), "whether the tunnel is up before the measurement, or starts with it"),
    axis("settle", "settle", ValueKind::Span, "start-up time that is not counted"),
    axis("video", "stream", ValueKind::Rate, "payload rate of a stream that is played").within(("20 kbit/s", "")),
];
