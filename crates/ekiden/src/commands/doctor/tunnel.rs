//! What measuring a tunnel showed, in words.

use ekiden_proxy::observe::status::Measured;

/// Names and values, in the order in which they are read.
pub(super) fn rows(measured: &Measured) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(tunnel) = measured.tunnel.as_ref().filter(|tunnel| tunnel.up) {
        let over = if tunnel.over_tcp { "TLS on TCP: UDP does not get through" } else { "UDP" };
        rows.push(("goes over", over.to_owned()));
        rows.push(("round-trip time", format!("{:.1} ms", tunnel.rtt_us / 1e3)));
        rows.push(("queue", format!("{:.1} ms of it, on the way there", tunnel.queue_us / 1e3)));
        rows.push(("loss", format!("{:.2} % on the way there", tunnel.path_loss * 100.0)));
        rows.push((
            "allotted",
            format!("{} there, {} back", mbit(tunnel.allotted), mbit(tunnel.receives)),
        ));
        if let Some(line) = tunnel.line {
            rows.push(("line", format!("gives {} there, less than is allotted", mbit(line))));
        }
    }
    for (name, rate) in [("carries there", measured.sent), ("carries back", measured.received)] {
        rows.extend(
            rate.map(|rate| (name, format!("{} of payload in one connection", mbit(rate)))),
        );
    }
    rows.extend(measured.error.as_ref().map(|error| ("error", error.clone())));
    rows
}

fn mbit(bits_per_second: u64) -> String {
    format!("{:.2} Mbit/s", bits_per_second as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_proxy::observe::status::TunnelStatus;

    #[test]
    fn prints_the_measurement() {
        let tunnel = TunnelStatus {
            up: true,
            rtt_us: 612_300.0,
            path_loss: 0.0123,
            allotted: 4_000_000,
            receives: 800_000,
            ..TunnelStatus::default()
        };
        let measured = Measured {
            peer: "shore".to_owned(),
            sent: Some(3_790_000),
            received: Some(760_000),
            tunnel: Some(tunnel),
            error: None,
        };
        let text: Vec<_> =
            rows(&measured).into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
        insta::assert_snapshot!(text.join("\n"));
    }
}
