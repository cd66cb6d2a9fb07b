//! Clients that come by WireGuard.

use crate::print::{clean, seconds, table, traffic};
use ekiden_proxy::observe::status::{WireguardPeerStatus, WireguardStatus};

/// A line or two, and a table of the devices.
pub(crate) fn render(door: &WireguardStatus, width: Option<usize>) -> String {
    let listen: Vec<String> = door.listen.iter().map(ToString::to_string).collect();
    let state = match (&door.error, &door.public_key) {
        (Some(why), _) => format!("nobody comes in: {}", clean(why)),
        (None, Some(key)) => {
            format!("listens on {}, public key {}", listen.join(", "), clean(key))
        }
        (None, None) => "not open".to_owned(),
    };
    let mut out = format!(
        "wireguard: {state}\n  {} handshakes, {} proved their address first, {} over the limit, {} with unknown keys; {} keepalives; {} invalid, {} forged, {} unreadable, {} refused, {} undelivered\n",
        door.handshakes,
        door.cookies,
        door.limited,
        door.unknown,
        door.keepalives,
        door.invalid,
        door.forged,
        door.unreadable,
        door.refused,
        door.undelivered,
    );
    if !door.peers.is_empty() {
        let head = ["WIREGUARD", "ADDRESS", "HANDSHAKE", "FROM", "SENT", "RECEIVED", "STATE"];
        let right = [false, false, true, false, true, true, false];
        let rows = door.peers.iter().map(row).collect();
        out.push_str(&table(head.map(str::to_owned).to_vec(), rows, &right, width));
    }
    out
}

fn row(peer: &WireguardPeerStatus) -> Vec<String> {
    let address = peer.addresses.first().map_or_else(String::new, ToString::to_string);
    let ago = |ago: f64| format!("{} ago", seconds(ago));
    let handshake = peer.handshake_seconds_ago;
    let from = peer.endpoint.map_or_else(|| "-".to_owned(), |from| from.to_string());
    vec![
        format!("{} ({})", clean(&peer.account), clean(&peer.device)),
        address,
        handshake.map_or_else(|| "-".to_owned(), ago),
        from,
        traffic(peer.sent),
        traffic(peer.received),
        match (&peer.barred, handshake) {
            (Some(why), _) => clean(why),
            // a session ends after three minutes
            (None, Some(ago)) if ago < 180.0 => "there".to_owned(),
            (None, _) => "away".to_owned(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_devices_or_says_why_nobody_comes_in() {
        let peer = WireguardPeerStatus {
            account: "anna".into(),
            device: "phone".into(),
            addresses: vec!["10.77.0.2".parse().unwrap(), "fd77::2".parse().unwrap()],
            endpoint: Some("198.51.100.7:40312".parse().unwrap()),
            handshake_seconds_ago: Some(14.0),
            received: 1_200_000,
            sent: 34_000_000,
            ..WireguardPeerStatus::default()
        };
        let barred = WireguardPeerStatus {
            account: "ken".into(),
            device: "wireguard".into(),
            addresses: vec!["10.77.0.3".parse().unwrap()],
            barred: Some("this account is disabled".into()),
            ..WireguardPeerStatus::default()
        };
        let fine = WireguardStatus {
            device: "ekiden-wg".into(),
            listen: vec!["0.0.0.0:51820".parse().unwrap()],
            public_key: Some("xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg=".into()),
            peers: vec![peer, barred],
            handshakes: 3,
            forged: 1,
            ..WireguardStatus::default()
        };
        let broken = WireguardStatus {
            error: Some("there is no /dev/net/tun".into()),
            ..WireguardStatus::default()
        };
        let text = render(&fine, None);
        assert!(text.starts_with("wireguard: listens on 0.0.0.0:51820, public key xTIB"), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        let line = |name: &str| lines.iter().find(|line| line.starts_with(name)).copied().unwrap();
        let there = line("anna (phone)");
        assert!(
            there.contains("198.51.100.7:40312") && there.trim_end().ends_with("there"),
            "{text}"
        );
        assert!(line("ken (wireguard)").trim_end().ends_with("this account is disabled"), "{text}");
        let text = render(&broken, None);
        assert!(
            text.starts_with("wireguard: nobody comes in: there is no /dev/net/tun\n"),
            "{text}"
        );
    }
}
