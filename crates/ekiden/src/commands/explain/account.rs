//! An account, or the clients behind a peer: its limits, and what holds each of its connections back.

use crate::print::{clean, count, rate, seconds, traffic};
use ekiden_proxy::observe::status::{AccountExplanation, AccountStatus, Explanation};

/// The explanation as text: limits first, then the connections with the same cause together.
pub(super) fn render(found: &AccountExplanation) -> String {
    let mut out = format!("{}: {}\n", clean(&found.name), count(found.connections, "connection"));
    if let Some(why) = &found.barred {
        out.push_str(&format!("not served: {}\n", clean(why)));
    }
    if let Some(account) = &found.account {
        out.push_str(&limits(account));
    }
    if let Some(slow) = &found.slow_lookup {
        out.push_str(&format!("names: {} to look up, within the last minute\n", clean(slow)));
    }
    let is_cut = found.account.as_ref().is_some_and(|account| account.state == "cut");
    if found.explained.is_empty() && found.barred.is_none() && !is_cut {
        let why = match &found.account {
            Some(_) => "it has no connection; its program or its path to this relay is slow",
            None => "no connection comes from it",
        };
        out.push_str(&format!("held back by: nothing here: {why}\n"));
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

/// Causes, each with its connections, in the order of the busiest.
fn causes(explained: &[Explanation]) -> Vec<(&str, Vec<&Explanation>)> {
    let mut causes: Vec<(&str, Vec<&Explanation>)> = Vec::new();
    for one in explained {
        match causes.iter_mut().find(|(why, _)| *why == one.slowest) {
            Some((_, of)) => of.push(one),
            None => causes.push((&one.slowest, vec![one])),
        }
    }
    causes
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
        other.slowest = "another".to_owned();
        found.explained.push(other);
        found.connections = 30;
        let text = render(&found);
        assert_eq!(text.matches("held back by: ").count(), 2, "{text}");
        assert!(text.contains("and 27 connections that move less"), "{text}");
    }

    #[test]
    fn one_without_connections_says_why() {
        let mut found = AccountExplanation { explained: Vec::new(), connections: 0, ..sample() };
        assert!(render(&found).contains("it has no connection"), "{}", render(&found));
        found.barred = Some("the account is disabled".to_owned());
        let text = render(&found);
        assert!(text.contains("not served: the account is disabled\n"), "{text}");
        assert!(!text.contains("held back by"), "{text}");
    }
}
