//! What an operator should look at, and what holds a line's rate down, in words.

use crate::guard::operators;
use ekiden_model::units::{Bytes, Rate};
use ekiden_proxy::observe::status::{AlertStatus, Status, TunnelStatus};
use serde::Serialize;

/// Alerts that are named; of accounts there may be thousands.
pub(super) const MOST_ALERTS: usize = 20;

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// What is so.
    pub(super) what: String,
    /// What to try.
    pub(super) remedy: &'static str,
}

/// What is wrong, or will be; the worst first.
pub(super) fn findings(status: &Status) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut find = |what: String, remedy: &'static str| found.push(Finding { what, remedy });
    if status.stopping {
        find("the relay is stopping".to_owned(), "live connections finish; new ones are rejected");
    }
    if status.listen.is_empty() {
        find("no address listens".to_owned(), "see `listen` in the configuration, and the log");
    }
    let alerts = status.alerts.as_ref().map(|of| of.standing.as_slice()).unwrap_or_default();
    for alert in alerts.iter().take(MOST_ALERTS) {
        find(format!("{}, for {}", alert.text, lasted(alert.for_seconds)), remedy(alert));
    }
    if alerts.len() > MOST_ALERTS {
        let more = alerts.len() - MOST_ALERTS;
        find(format!("{more} more alerts"), "`ekiden status` lists all");
    }
    let is_alert =
        |kind: &str, subject| alerts.iter().any(|one| one.alert == kind && one.subject == subject);
    for told in status.alerts.iter().flat_map(|of| &of.receivers) {
        if let Some(why) = &told.last_error {
            find(
                format!("alerts cannot be sent by {}: {why}", told.to),
                "they are tried again by themselves; `ekiden alerts test` shows what comes back",
            );
        }
    }
    if let Some(why) = status.traces.as_ref().and_then(|traces| traces.last_error.as_ref()) {
        find(
            format!("traces do not reach their collector: {why}"),
            "connections are not affected; see `endpoint` in [traces], and the collector's log",
        );
    }
    let away = status.accounts.as_ref().and_then(|accounts| accounts.away.as_ref());
    if let Some(why) = away.filter(|_| !is_alert("database-away", "accounts")) {
        find(
            format!("the accounts' database is unreachable: {why}"),
            "known accounts are served meanwhile; see `database` in [accounts]",
        );
    }
    if let Some(accounts) = status.accounts.as_ref().filter(|accounts| accounts.unreadable > 0) {
        let first = accounts.unreadable_first.as_deref().unwrap_or_default();
        find(
            format!(
                "{} accounts cannot be read and are not served, first {first}",
                accounts.unreadable
            ),
            ekiden_accounts::UnreadableAccount::REMEDY,
        );
    }
    if let Some(why) = &status.operators {
        find(format!("the file of operators cannot be used: {why}"), operators::REMEDY);
    }
    let down = status.tunnels.iter().filter(|tunnel| !tunnel.up);
    for tunnel in down.filter(|tunnel| !is_alert("line-down", &tunnel.peer)) {
        if let Some(error) = &tunnel.last_error {
            find(
                format!("no tunnel to {}: {error}", tunnel.peer),
                "run `ekiden doctor` on the relay's machine",
            );
        }
    }
    for upstream in status.upstreams.iter().filter(|upstream| !upstream.available) {
        let why = upstream.last_error.as_deref().unwrap_or("it does not answer");
        find(
            format!("upstream {} rests after {} failures: {why}", upstream.name, upstream.failures),
            "it is tried again by itself; routes use the next upstream of their list",
        );
    }
    for level in status.pressure.levels.iter().filter(|level| level.low) {
        let of = level.limit.map_or_else(String::new, |limit| format!(" of {limit}"));
        find(
            format!("{} are low: {}{of} in use", level.resource, level.used),
            "idle connections are closed to make room; raise the limit in [budgets]",
        );
    }
    if let Some(acme) = &status.acme
        && let Some(error) = &acme.last_failure
        && !is_alert("certificate-not-renewed", &acme.names.join(", "))
    {
        find(
            format!("the certificate could not be ordered: {error}"),
            "see Certificates in the book; the old one is used until it ends",
        );
    }
    if let Some(refusal) = &status.buffers.refusal {
        find(refusal.clone(), "`ekiden doctor` says which kernel setting to change");
    }
    for leg in &status.legs {
        let mut holes = leg.path.troubled.iter().filter(|trouble| trouble.state == "black hole");
        if let Some(hole) = holes.next_back() {
            find(
                format!(
                    "leg {}: large packets seem to vanish on the way to {}",
                    leg.name, hole.address
                ),
                "set `mss` for that leg, or let ICMP \"packet too big\" through",
            );
        }
    }
    found
}

/// What to try about an alert.
fn remedy(alert: &AlertStatus) -> &'static str {
    match alert.alert.as_str() {
        "line-down" => "run `ekiden doctor` on the relay's machine",
        "quota-low" | "quota-used-up" => {
            "raise the quota of that account, or wait for its next period"
        }
        "certificate-ending" => "replace the files of [tls]; the daemon reads them again",
        "certificate-not-renewed" => {
            "see Certificates in the book; the old one is used until it ends"
        }
        "database-away" => "known accounts are served meanwhile; see `database` in [accounts]",
        "disk-full" => "make room: history and usage cannot be saved on a full disk",
        _ => "make room, and let ekiden's user write in the state folder",
    }
}

/// A time in its largest unit.
fn lasted(seconds: f64) -> String {
    match seconds as u64 {
        seconds @ 172_800.. => format!("{} days", seconds / 86_400),
        seconds @ 7_200.. => format!("{} h", seconds / 3_600),
        seconds @ 120.. => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
}

/// What holds a line's rate down, or what it waits for.
pub(super) fn held_back(line: &TunnelStatus) -> String {
    if !line.up {
        return match &line.last_error {
            Some(error) => format!("no tunnel: {error}"),
            None if line.joined => "connecting".to_owned(),
            None => "the peer has not connected yet".to_owned(),
        };
    }
    let mut why = Vec::new();
    why.extend(line.restrained.clone());
    if line.over_tcp {
        why.push("TCP, which slows down at each loss, until UDP gets through".to_owned());
    }
    let agreed = rate(line.allotted);
    if let Some(gives) = line.line {
        why.push(format!("the line, which gives {} of the agreed {agreed}", rate(gives)));
    } else if line.rate < line.allotted / 20 * 19 && line.restrained.is_none() {
        let held = rate(line.rate);
        why.push(format!("losses or a queue before: it sends {held} of the agreed {agreed}"));
    }
    if line.contended {
        why.push("others' packets in the same queue, with which it takes turns".to_owned());
    }
    if line.waiting > 0 {
        let waiting = match line.waiting / 1024 {
            0 => Bytes::new(line.waiting),
            kib => Bytes::kib(kib),
        };
        let rate = if why.is_empty() { format!("the agreed {agreed}; ") } else { String::new() };
        why.push(format!("{rate}{waiting} wait for their turn"));
    }
    if why.is_empty() {
        return "nothing; less is sent than agreed".to_owned();
    }
    why.join("; ")
}

/// A rate by its first three digits.
fn rate(rate: u64) -> Rate {
    let step = 10_u64.pow(rate.max(1).ilog10().saturating_sub(2));
    Rate::from_bits_per_second((rate + step / 2) / step * step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_proxy::observe::status::{AlertReceiverStatus, AlertsStatus};

    #[test]
    fn names_each_trouble_and_a_remedy() {
        let mut status = crate::sample();
        status.tunnels = vec![TunnelStatus {
            peer: "ship".into(),
            last_error: Some("no answer for 10 s".into()),
            ..TunnelStatus::default()
        }];
        let found: Vec<_> = findings(&status).into_iter().map(|found| found.what).collect();
        insta::assert_snapshot!(found.join("\n"), @r"
        no tunnel to ship: no answer for 10 s
        upstream capital rests after 4 failures: connection refused
        connections are low: 20000 of 20000 in use
        a send buffer was cut to 416 KiB: net.core.wmem_max allows 416 KiB without CAP_NET_ADMIN
        leg sea: large packets seem to vanish on the way to 203.0.113.80
        ");
    }

    #[test]
    fn an_alert_is_found_once_and_says_for_how_long() {
        let mut status = crate::sample();
        let tunnel = TunnelStatus { peer: "ship".into(), ..TunnelStatus::default() };
        status.tunnels = vec![TunnelStatus { last_error: Some("no answer".into()), ..tunnel }];
        let alert = |alert: &str, subject: &str, for_seconds| AlertStatus {
            alert: alert.into(),
            subject: subject.into(),
            text: format!("{alert} of {subject}"),
            for_seconds,
        };
        let mut standing =
            vec![alert("line-down", "ship", 600.0), alert("quota-low", "tanaka", 5.0)];
        let receivers = vec![AlertReceiverStatus {
            to: "mail".into(),
            last_error: Some("no such user".into()),
            ..AlertReceiverStatus::default()
        }];
        status.alerts = Some(AlertsStatus { standing: standing.clone(), receivers });
        let found: Vec<_> = findings(&status).into_iter().map(|found| found.what).collect();
        let expected = [
            "line-down of ship, for 10 min",
            "quota-low of tanaka, for 5 s",
            "alerts cannot be sent by mail: no such user",
        ];
        assert_eq!(found[..3], expected);
        assert!(!found.iter().any(|what| what.contains("no tunnel to")), "{found:?}");
        // thousands of accounts do not fill the page
        standing.extend((0..5_000).map(|n| alert("quota-low", &format!("a{n}"), 5.0)));
        status.alerts = Some(AlertsStatus { standing, receivers: Vec::new() });
        let found: Vec<_> = findings(&status).into_iter().map(|found| found.what).collect();
        assert!(found.len() < 30 && found.contains(&"4982 more alerts".to_owned()), "{found:?}");
    }

    #[test]
    fn a_line_says_why_it_is_not_quicker() {
        let line =
            TunnelStatus { up: true, allotted: 20_000_000, rate: 20_000_000, ..Default::default() };
        let why = |change: fn(&mut TunnelStatus)| {
            let mut line = line.clone();
            change(&mut line);
            held_back(&line)
        };
        assert_eq!(why(|_| {}), "nothing; less is sent than agreed");
        assert_eq!(why(|line| line.up = false), "the peer has not connected yet");
        assert_eq!(
            why(|line| {
                line.line = Some(4_234_567);
                line.waiting = 3 << 20;
            }),
            "the line, which gives 4.23 Mbit/s of the agreed 20 Mbit/s; 3 MiB wait for their turn"
        );
        assert_eq!(
            why(|line| line.waiting = 700),
            "the agreed 20 Mbit/s; 700 B wait for their turn"
        );
        assert_eq!(
            why(|line| line.rate = 1_000_000),
            "losses or a queue before: it sends 1 Mbit/s of the agreed 20 Mbit/s"
        );
        assert!(why(|line| line.over_tcp = true).starts_with("TCP, which slows down"));
    }
}
