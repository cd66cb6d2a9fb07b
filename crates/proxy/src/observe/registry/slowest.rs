//! What holds a connection's bytes back, as far as this relay's figures show it.

use crate::observe::status::{ConnectionStatus, LegStatus, TunnelStatus};
use ekiden_model::units::{Bytes, Rate};

/// In words. `tunnel` is the one that carries a leg of the connection. Bytes that wait for a leg
/// show that it is slower than what feeds it; where none wait, the feeding side is the slower one.
pub(super) fn slowest(connection: &ConnectionStatus, tunnel: Option<&TunnelStatus>) -> String {
    if let Some(waits) = &connection.waits {
        return format!("its account's limit: {waits}");
    }
    match connection.state.as_str() {
        "relaying" | "half-closed" => {}
        "connecting" => return "the destination, which has not answered yet".to_owned(),
        state => return format!("nothing: it is {state}"),
    }
    let down = connection.rate_down >= connection.rate_up;
    let leg = |side: &str| connection.legs.iter().find(|leg| leg.side == side);
    let (to, from) = if down { ("client", "upstream") } else { ("upstream", "client") };
    let waiting = leg(to).filter(|leg| leg.unsent > 0);
    if let Some(leg) = waiting {
        let bytes = rounded(leg.unsent.into());
        return match (&leg.tunnel, tunnel) {
            (Some(peer), Some(tunnel)) => format!("the tunnel to \"{peer}\", {}", load(tunnel)),
            _ => format!("{}, for which {bytes} wait", far_end(to)),
        };
    }
    if connection.rate_down == 0 && connection.rate_up == 0 {
        return "nothing: neither end sends".to_owned();
    }
    match leg(from).and_then(|leg: &LegStatus| leg.tunnel.as_ref()) {
        Some(peer) => format!(
            "what comes through the tunnel from \"{peer}\"; nothing waits here, and the relay there knows more"
        ),
        None => format!("{}; nothing waits here", far_end(from)),
    }
}

fn far_end(side: &str) -> &'static str {
    match side {
        "client" => "the client, or the path between",
        _ => "the destination, or the path between",
    }
}

/// The rate of a tunnel, and who shares it.
fn load(tunnel: &TunnelStatus) -> String {
    let rate = Rate::from_bits_per_second(tunnel.rate);
    let flows = match tunnel.flows {
        1 => "1 flow sends".to_owned(),
        n => format!("{n} flows share"),
    };
    let waiting = rounded(tunnel.waiting);
    let restrained =
        tunnel.restrained.as_ref().map_or_else(String::new, |why| format!("; restrained: {why}"));
    format!("where {flows} {rate} and {waiting} wait{restrained}")
}

/// Whole KiB, if there are any.
fn rounded(bytes: u64) -> Bytes {
    match bytes / 1024 {
        0 => Bytes::new(bytes),
        kib => Bytes::kib(kib),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leg(side: &str, tunnel: Option<&str>, unsent: u32) -> LegStatus {
        let text = format!(
            r#"{{"side": "{side}", "profile": "direct", "local": null, "peer": null, "state": "ESTABLISHED",
            "congestion": "bbr", "rtt_us": 1, "rtt_var_us": 1, "min_rtt_us": 1, "retransmits": 0,
            "bytes_retransmitted": 0, "delivery_rate": 1, "pacing_rate": null, "cwnd": 10, "mss": 1448,
            "send_buffer": 1, "receive_buffer": 1, "unsent": {unsent}, "unacked": 0, "options": []}}"#
        );
        let leg: LegStatus = serde_json::from_str(&text).unwrap();
        LegStatus { tunnel: tunnel.map(str::to_owned), ..leg }
    }

    fn connection(rates: [u64; 2], legs: [LegStatus; 2]) -> ConnectionStatus {
        ConnectionStatus {
            id: 1,
            protocol: "connect".into(),
            state: "relaying".into(),
            class: "bulk".into(),
            client: ([192, 0, 2, 1], 40_000).into(),
            account: None,
            waits: None,
            destination: None,
            through: Vec::new(),
            age_seconds: 1.0,
            idle_seconds: 0.0,
            requests: 1,
            bytes_up: 0,
            bytes_down: 0,
            bytes_spliced: 0,
            rate_up: rates[0],
            rate_down: rates[1],
            legs: legs.into(),
        }
    }

    #[test]
    fn names_the_leg_for_which_bytes_wait() {
        let far = TunnelStatus {
            rate: 4_000_000,
            flows: 12,
            waiting: (3 << 20) + 77,
            ..TunnelStatus::default()
        };
        let of = |rates, client, tunnel: Option<&str>, upstream| {
            let legs = [leg("client", None, client), leg("upstream", tunnel, upstream)];
            slowest(&connection(rates, legs), tunnel.map(|_| &far))
        };
        assert_eq!(
            of([0, 9], 4096, None, 0),
            "the client, or the path between, for which 4 KiB wait"
        );
        assert_eq!(
            of([0, 9], 0, None, 0),
            "the destination, or the path between; nothing waits here"
        );
        assert_eq!(
            of([9, 0], 4096, None, 0),
            "the client, or the path between; nothing waits here"
        );
        assert_eq!(
            of([9, 0], 0, Some("far"), 1),
            "the tunnel to \"far\", where 12 flows share 4 Mbit/s and 3 MiB wait"
        );
        let comes = of([0, 9], 0, Some("far"), 1);
        assert!(comes.starts_with("what comes through the tunnel from \"far\""), "{comes}");
        assert_eq!(of([0, 0], 0, None, 0), "nothing: neither end sends");
    }

    #[test]
    fn limits_and_states_come_first() {
        let legs = || [leg("client", None, 9), leg("upstream", None, 9)];
        let waits = Some("a rate of 1 Mbit/s".to_owned());
        let limited = ConnectionStatus { waits, ..connection([0, 9], legs()) };
        assert_eq!(slowest(&limited, None), "its account's limit: a rate of 1 Mbit/s");
        let idle = ConnectionStatus { state: "idle".into(), ..connection([0, 9], legs()) };
        assert_eq!(slowest(&idle, None), "nothing: it is idle");
    }
}
