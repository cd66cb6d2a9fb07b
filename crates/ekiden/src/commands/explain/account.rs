//! An account, or the clients behind a peer: its limits, and what holds each of its connections back.

use crate::commands::status::tunnels::state;
use crate::print::{clean, count, rate, seconds, traffic};
use ekiden_proxy::observe::status::{
    AccountExplanation, AccountStatus, Explanation, TunnelStatus, WireguardPeerStatus,
};

/// The explanation as text: limits first, then the connections with the same cause together.
pub(super) fn render(found: &AccountExplanation) -> String {
    let mut out = format!("{}: {}\n", clean(&found.name), count(found.connections, "connection"));
    if let Some(why) = &found.barred {
        out.push_str(&format!("not served: {}\n", clean(why)));
    }
    if let Some(account) = &found.account {
        out.push_str(&limits(account));
    }
    if let Some(tunnel) = &found.tunnel {
        out.push_str(&line_of(tunnel));
    }
    found.wireguard.iter().for_each(|device| out.push_str(&device_line(device)));
    if let Some(slow) = &found.slow_lookup {
        out.push_str(&format!("names: {} to look up, within the last minute\n", clean(slow)));
    }
    let is_cut = found.account.as_ref().is_some_and(|account| account.state == "cut");
    if found.explained.is_empty() && found.barred.is_none() && !is_cut {
        let why = match (&found.tunnel, &found.account) {
            (Some(tunnel), _) if !tunnel.up => "the tunnel, which is down",
            (_, Some(account)) if account.state == "throttle" => {
                "its quota, which is used up: a connection has no more than the rate above"
            }
            (_, Some(_)) => {
                "nothing here: it has no connection; its program or its path to this relay is slow"
            }
            (_, None) => "nothing here: no connection comes from it or goes to it",
        };
        out.push_str(&format!("held back by: {why}\n"));
    }
    for (why, of) in causes(&found.explained) {
        out.push_str(&format!("\nheld back by: {}\n", clean(why)));
        of.iter().for_each(|one| out.push_str(&line(one)));
    }
    let more = found.connections.saturating_sub(found.explained.len() as u64);
    if more > 0 {
        out.push_str(&format!("\nand {} that move less\n", count(more, "connection")));
    }
    if let Some(first) = found.explained.first() {
        let number = first.connection.id;
        out.push_str(&format!("\n`ekiden explain {number}` says more of connection {number}\n"));
    }
    out
}

/// A device that comes by WireGuard.
fn device_line(device: &WireguardPeerStatus) -> String {
    let address = device.addresses.first().map_or_else(String::new, ToString::to_string);
    let state = match (&device.barred, device.handshake_seconds_ago, device.endpoint) {
        (Some(why), ..) => format!("not served: {}", clean(why)),
        (None, Some(ago), Some(from)) => format!(
            "last handshake {} ago, from {from}; {} received, {} sent",
            seconds(ago),
            traffic(device.received),
            traffic(device.sent)
        ),
        (None, ..) => "has not come since the start".to_owned(),
    };
    format!("wireguard: {} at {address}, {state}\n", clean(&device.device))
}

/// The line to a peer.
fn line_of(tunnel: &TunnelStatus) -> String {
    let figures = match tunnel.up {
        false => String::new(),
        true => format!(
            "; sends {} of {}, receives at most {}; round trip {:.1} ms",
            rate(tunnel.rate),
            rate(tunnel.allotted),
            rate(tunnel.receives),
            tunnel.rtt_us / 1e3
        ),
    };
    format!("tunnel: {}{figures}\n", state(tunnel))
}

fn limits(account: &AccountStatus) -> String {
    let part = |name: &str, now: u64, limit: Option<u64>| match limit {
        Some(limit) => format!("{} of {} {name}", rate(now), rate(limit)),
        None => format!("{} {name} without a limit", rate(now)),
    };
    let state = match account.state.as_str() {
        "throttle" => "; its quota is used up, and it is slowed down",
        "cut" => "; its quota is used up, and it is cut",
        _ => "",
    };
    let anew = account.period_ends_in_seconds;
    let anew =
        anew.map_or_else(String::new, |ends| format!(", and begins anew in {}", seconds(ends)));
    let quota = account.quota.zip(account.quota_left).map_or_else(String::new, |(quota, left)| {
        format!("; quota: {} left of {}{anew}", traffic(left), traffic(quota))
    });
    format!(
        "rate: {}, {}{state}{quota}\n",
        part("down", account.rate_down, account.limit_down),
        part("up", account.rate_up, account.limit_up)
    )
}

/// Causes, each with its connections, in the order of the busiest. Those that differ in figures alone are one, said with
/// the busiest one's figures.
fn causes(explained: &[Explanation]) -> Vec<(&str, Vec<&Explanation>)> {
    let mut causes: Vec<(&str, Vec<&Explanation>)> = Vec::new();
    for one in explained {
        match causes.iter_mut().find(|(why, _)| words(why).eq(words(&one.slowest))) {
            Some((_, of)) => of.push(one),
            None => causes.push((&one.slowest, vec![one])),
        }
    }
    causes
}

/// The words of a cause without its figures and their units.
fn words(cause: &str) -> impl Iterator<Item = &str> {
    let mut after_figure = false;
    cause.split_whitespace().filter(move |word| {
        let is_figure = word.starts_with(|first: char| first.is_ascii_digit());
        let is_unit = std::mem::replace(&mut after_figure, is_figure)
            && word.trim_end_matches(|last: char| last.is_ascii_punctuation()).len() <= 6;
        !is_figure && !is_unit
    })
}

fn line(one: &Explanation) -> String {
    let connection = &one.connection;
    let to = connection.destination.as_deref().unwrap_or("-");
    let (down, up) = (connection.rate_down, connection.rate_up);
    format!(
        "  {} to {}, {}: {} down, {} up\n",
        connection.id,
        clean(to),
        clean(&one.class),
        rate(down),
        rate(up)
    )
}

/// An account with one connection and a quota.
#[cfg(test)]
pub(super) fn sample() -> AccountExplanation {
    let account = AccountStatus {
        name: "tanaka".to_owned(),
        state: "fine".to_owned(),
        connections: 1,
        limit_down: Some(4_000_000),
        rate_down: 3_900_000,
        quota: Some(30_000_000_000),
        quota_left: Some(12_000_000_000),
        period_ends_in_seconds: Some(700_000.0),
        ..AccountStatus::default()
    };
    AccountExplanation {
        name: "tanaka".to_owned(),
        account: Some(account),
        tunnel: None,
        wireguard: Vec::new(),
        barred: None,
        connections: 1,
        slow_lookup: Some("mirror.example took 2.4 s".to_owned()),
        explained: vec![super::sample()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_limits_and_causes() {
        insta::assert_snapshot!(render(&sample()));
    }

    #[test]
    fn connections_with_one_cause_are_together() {
        let mut found = sample();
        let mut other = found.explained[0].clone();
        other.connection.id = 8;
        found.explained.push(other.clone());
        // a figure and its unit make no other cause
        let figures = other.slowest.replace("4 KiB", "3.5 MiB");
        found.explained.push(Explanation { slowest: figures, ..other.clone() });
        other.slowest = "another".to_owned();
        found.explained.push(other);
        found.connections = 30;
        let text = render(&found);
        assert_eq!(text.matches("held back by: ").count(), 2, "{text}");
        assert!(text.contains("and 26 connections that move less"), "{text}");
    }

    #[test]
    fn one_without_connections_says_why() {
        let mut found = AccountExplanation { explained: Vec::new(), connections: 0, ..sample() };
        assert!(render(&found).contains("it has no connection"), "{}", render(&found));
        let mut slowed = found.clone();
        slowed.account.as_mut().unwrap().state = "throttle".to_owned();
        let text = render(&slowed);
        assert!(text.contains("held back by: its quota, which is used up"), "{text}");
        assert!(!text.contains("nothing here"), "{text}");
        let tunnel = TunnelStatus {
            last_error: Some("nobody listens".to_owned()),
            down_seconds: Some(20.0),
            ..TunnelStatus::default()
        };
        let down = AccountExplanation { tunnel: Some(tunnel), account: None, ..found.clone() };
        let text = render(&down);
        assert!(text.contains("tunnel: down for 20.0 s: nobody listens\n"), "{text}");
        assert!(text.contains("held back by: the tunnel, which is down\n"), "{text}");
        found.barred = Some("the account is disabled".to_owned());
        let text = render(&found);
        assert!(text.contains("not served: the account is disabled\n"), "{text}");
        assert!(!text.contains("held back by"), "{text}");
    }

    #[test]
    fn says_where_a_device_of_wireguard_is() {
        let addresses = vec!["10.77.0.2".parse().unwrap()];
        let away = WireguardPeerStatus { device: "phone".into(), addresses, ..Default::default() };
        assert_eq!(
            device_line(&away),
            "wireguard: phone at 10.77.0.2, has not come since the start\n"
        );
        let endpoint = Some("198.51.100.7:4000".parse().unwrap());
        let there = WireguardPeerStatus { endpoint, handshake_seconds_ago: Some(5.0), ..away };
        assert!(
            device_line(&there).contains("from 198.51.100.7:4000; "),
            "{}",
            device_line(&there)
        );
        let barred = WireguardPeerStatus { barred: Some("disabled".into()), ..there };
        assert!(device_line(&barred).ends_with("not served: disabled\n"));
    }
}
