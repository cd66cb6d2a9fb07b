//! `ekiden status`: one look at a running daemon.

mod households;

use crate::{cli, client, exit, print};
use ekiden_model::units::{Bytes, Rate, Span};
use ekiden_proxy::status::{
    AccountsStatus, CacheStatus, ConnectionStatus, FleetStatus, HeldStatus, LegStatus,
    ProfileStatus, Status, TunnelStatus, UdpStatus,
};
use std::io::IsTerminal as _;

/// Asks the daemon and prints. Returns the exit code.
#[must_use]
pub fn run(args: &cli::Status) -> u8 {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print::warn(&format!("ekiden status: {error}\n"));
            return exit::SYSTEM;
        }
    };
    match runtime.block_on(client::status(args.socket.as_deref())) {
        Ok((_, document)) if args.json => {
            print::out(&format!("{}\n", String::from_utf8_lossy(&document)))
        }
        Ok((status, _)) => {
            let terminal = std::io::stdout().is_terminal();
            let width = if terminal { crossterm::terminal::size().ok() } else { None };
            print::out(&render(&status, width.map(|(columns, _)| usize::from(columns))))
        }
        Err(error) => {
            print::warn(&format!("ekiden status: {error}\n"));
            exit::NOT_FINE
        }
    }
}

/// The status for a person; `width` in characters is that of the terminal, `None` for all there is to
/// say.
#[must_use]
pub fn render(status: &Status, width: Option<usize>) -> String {
    let listen: Vec<_> = status.listen.iter().map(ToString::to_string).collect();
    let totals = &status.totals;
    let mut out = format!(
        "{} (ekiden {}, process {}){}\n",
        clean(&status.name),
        clean(&status.version),
        status.pid,
        if status.stopping { ", stopping" } else { "" }
    );
    out.push_str(&format!(
        "up {}, listening on {}, reloaded {}\n",
        seconds(status.uptime_seconds),
        listen.join(" "),
        count(status.reloads, "time")
    ));
    out.push_str(&format!(
        "{} accepted, {}, {} refused, {} failed; {} up, {} down\n",
        count(totals.accepted, "connection"),
        count(totals.requests, "request"),
        totals.refused,
        totals.failed,
        size(totals.bytes_up),
        size(totals.bytes_down)
    ));
    if !status.budgets.is_empty() {
        let head = ["BUDGET", "USED", "PEAK", "LIMIT"].map(str::to_owned).to_vec();
        let row = |b: &ekiden_proxy::status::BudgetStatus| {
            let number = |n: u64| if b.name == "memory" { size(n) } else { n.to_string() };
            vec![clean(&b.name), number(b.used), number(b.peak), number(b.limit)]
        };
        let rows = status.budgets.iter().map(row).collect();
        out.push_str(&table(head, rows, &[false, true, true, true], width));
    }
    out.push_str(&resources(status));
    if let Some(accounts) = &status.accounts {
        out.push_str(&accounts_line(accounts));
    }
    if !status.upstreams.is_empty() {
        let head = ["UPSTREAM", "ADDRESS", "STATE", "LAST ERROR"].map(str::to_owned).to_vec();
        let row = |u: &ekiden_proxy::status::UpstreamStatus| {
            let state = match u.retry_in_seconds {
                _ if u.available && u.failures == 0 => "fine".to_owned(),
                // its rest is over, and nothing has shown that it answers again
                _ if u.available => format!("to be tried, {}", count(u.failures.into(), "failure")),
                Some(wait) => {
                    format!("rests {}, {}", seconds(wait), count(u.failures.into(), "failure"))
                }
                None => format!("rests, {}", count(u.failures.into(), "failure")),
            };
            let error = u.last_error.as_deref().map_or_else(|| "-".to_owned(), clean);
            vec![clean(&u.name), clean(&u.address), state, error]
        };
        let rows = status.upstreams.iter().map(row).collect();
        out.push_str(&table(head, rows, &[false; 4], width));
    }
    out.push_str(&tunnels(&status.tunnels, width));
    out.push_str(&households::render(status.households.as_ref(), width));
    out.push_str(&legs(&status.legs, width));
    let mut out = wrap(&out, width);
    if status.connections.is_empty() {
        out.push_str("\nno connections\n");
    } else {
        out.push_str(&connections(&status.connections, width));
    }
    out
}

/// Households, and their database when it is not there.
fn accounts_line(accounts: &AccountsStatus) -> String {
    let away = match (&accounts.away, accounts.heard_seconds_ago) {
        (None, _) => String::new(),
        (Some(why), Some(ago)) => {
            format!("; the database is away, heard {} ago: {}", seconds(ago), clean(why))
        }
        (Some(why), None) => {
            format!("; the database was not heard since the start: {}", clean(why))
        }
    };
    let households = count(accounts.households, "household");
    let relays = match accounts.relays.as_slice() {
        [] | [_] => String::new(),
        relays => {
            let seen =
                |r: &FleetStatus| format!("{} {} ago", clean(&r.name), seconds(r.seen_seconds_ago));
            format!("; relays: {}", relays.iter().map(seen).collect::<Vec<_>>().join(", "))
        }
    };
    format!("accounts: {households} in {}{away}{relays}\n", clean(&accounts.database))
}

/// Tunnels to other relays. Rates and bytes are what is sent; what is received the other relay tells.
fn tunnels(tunnels: &[TunnelStatus], width: Option<usize>) -> String {
    if tunnels.is_empty() {
        return String::new();
    }
    let head = [
        "TUNNEL", "STATE", "RATE", "OF", "RTT", "QUEUE", "LOST", "WAITING", "FLOWS", "SENT",
        "RECEIVED",
    ];
    let row = |t: &TunnelStatus| {
        let state = match (t.up, &t.last_error) {
            (true, _) => {
                let over = if t.over_tcp { "up over TCP" } else { "up" };
                match &t.restrained {
                    Some(why) => format!("{over}, held to a tenth: {}", clean(why)),
                    None => over.to_owned(),
                }
            }
            (false, Some(error)) => format!("down: {}", clean(error)),
            (false, None) if t.joined => "connecting".to_owned(),
            (false, None) => "has not come yet".to_owned(),
        };
        let shown = |text: String| if t.up { text } else { "-".to_owned() };
        let lost = t.packets_lost as f64 * 100.0 / t.packets.max(1) as f64;
        vec![
            clean(&t.relay),
            state,
            shown(rate(t.rate)),
            shown(rate(t.allotted)),
            shown(format!("{:.1} ms", t.rtt_us / 1e3)),
            shown(format!("{:.1} ms", t.queue_us / 1e3)),
            shown(format!("{lost:.2} %")),
            shown(size(t.waiting)),
            shown(t.flows.to_string()),
            shown(size(t.bytes_sent)),
            shown(size(t.bytes_received)),
        ]
    };
    let right = [false, false, true, true, true, true, true, true, true, true, true];
    table(head.map(str::to_owned).to_vec(), tunnels.iter().map(row).collect(), &right, width)
}

/// The legs over which anything went, and what stands out on them.
fn legs(legs: &[ProfileStatus], width: Option<usize>) -> String {
    let used = |leg: &&ProfileStatus| {
        leg.opening.openings > 0 || leg.path.usual_mtu.is_some() || leg.held.is_some()
    };
    let rows: Vec<Vec<String>> = legs.iter().filter(used).map(leg_row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head = ["LEG", "OPENED", "OF", "LOST SYN", "LOSS", "AGAIN", "SECOND", "MTU", "LEAST"];
    let right = [false, true, true, true, true, true, true, true, true];
    let mut out = table(head.map(str::to_owned).to_vec(), rows, &right, width);
    for leg in legs {
        if let Some(held) = &leg.held {
            out.push_str(&format!("leg {}: {}\n", clean(&leg.name), held_line(held)));
        }
        for trouble in &leg.path.troubled {
            let leg = clean(&leg.name);
            let ago = seconds(trouble.seconds_ago);
            out.push_str(&match trouble.mtu {
                Some(mtu) => format!(
                    "leg {leg}: no more than {mtu} bytes pass to {} (seen {ago} ago)\n",
                    trouble.address
                ),
                None => format!(
                    "leg {leg}: large packets to {} seem to vanish on the way (seen {ago} ago): \
                     ekiden doctor says what helps\n",
                    trouble.address
                ),
            });
        }
    }
    out
}

/// A rate that connections hold together.
pub(crate) fn held_line(held: &HeldStatus) -> String {
    let rate = Rate::from_bits_per_second;
    let less = if held.rate < held.allotted {
        format!("{} of the {} allotted", rate(held.rate), rate(held.allotted))
    } else {
        rate(held.allotted).to_string()
    };
    format!(
        "{less} held by {} for {}, {} of them busy, others sending {}; {} reactions, {} undone",
        clean(&held.control),
        count(held.members, "connection"),
        held.busy,
        rate(held.light),
        held.reactions,
        held.undone,
    )
}

fn leg_row(leg: &ProfileStatus) -> Vec<String> {
    let opening = &leg.opening;
    let mtu = |mtu: Option<u32>| mtu.map_or_else(dash, |mtu| mtu.to_string());
    vec![
        clean(&leg.name),
        opening.established.to_string(),
        opening.openings.to_string(),
        opening.lost_syns.to_string(),
        opening.recent_loss.map_or_else(dash, |loss| format!("{:.1} %", loss * 100.0)),
        opening.repeated_syns.to_string(),
        opening.second_syns.to_string(),
        mtu(leg.path.usual_mtu),
        mtu(leg.path.smallest_mtu),
    ]
}

/// Buffers, idle connections and pressure, a line each; what is not there is not told.
fn resources(status: &Status) -> String {
    let (buffers, idle, pressure) = (&status.buffers, &status.idle, &status.pressure);
    let mut out = String::from("\n");
    match buffers.budget {
        Some(budget) => out.push_str(&format!(
            "buffers: {} of {} given out, {} wanted, {} short; {} of {} explicit ({})\n",
            size(buffers.granted),
            size(budget),
            size(buffers.demand),
            size(buffers.shortage),
            buffers.explicit,
            count(buffers.shared, "buffer"),
            clean(&buffers.mode),
        )),
        None => out.push_str(&format!(
            "buffers: no budget; {} explicit, {} widened\n",
            count(buffers.explicit, "buffer"),
            buffers.widened
        )),
    }
    if let Some(refusal) = &buffers.refusal {
        out.push_str(&format!(
            "  {} less than asked; {}\n",
            count(buffers.refused, "time"),
            clean(refusal)
        ));
    }
    out.push_str(&format!(
        "idle: {}, {} pooled, {}; {} used again\n",
        count(idle.clients, "client"),
        idle.pooled,
        count(idle.tunnels, "silent tunnel"),
        idle.reused
    ));
    let evicted: Vec<String> = pressure
        .evicted
        .iter()
        .map(|one| format!("{} for {}", one.count, clean(&one.resource)))
        .collect();
    out.push_str(&format!(
        "pressure: {}; {} closed to make room; {} waiting, {} waited, {} told to come again\n",
        low(status),
        if evicted.is_empty() { "none".to_owned() } else { evicted.join(", ") },
        pressure.waiting,
        pressure.waited,
        pressure.refused
    ));
    if let Some(cache) = &status.cache {
        out.push_str(&cache_line(cache));
    }
    if status.udp.begun > 0 || status.udp.datagrams_up > 0 {
        out.push_str(&udp_line(&status.udp));
    }
    out
}

fn udp_line(udp: &UdpStatus) -> String {
    format!(
        "udp: {} of {} at most; {} datagrams up, {} down; dropped: {} malformed, {} not the client's, {} refused, {} not delivered, {} over limits\n",
        count(udp.associations, "association"),
        udp.limit,
        udp.datagrams_up,
        udp.datagrams_down,
        udp.malformed,
        udp.foreign,
        udp.refused,
        udp.undelivered,
        udp.limited
    )
}

fn cache_line(cache: &CacheStatus) -> String {
    let disk =
        cache.disk_limit.map_or_else(String::new, |disk| format!(" and {} of disk", size(disk)));
    let lost = match cache.not_written {
        0 => String::new(),
        n => format!(", {n} more than the disk could take"),
    };
    format!(
        "cache: {}{} of {}{disk}; {}, {} in all; {} gone on, {} passed by; {} validated, {} stored, {} taken away, {} pushed out of memory{lost}\n",
        if cache.open { "" } else { "not open yet; " },
        size(cache.memory),
        size(cache.memory_limit),
        count(cache.hits, "hit"),
        size(cache.bytes),
        cache.misses,
        cache.bypassed,
        cache.validated,
        cache.stored,
        cache.removed,
        cache.pushed_out,
    )
}

/// What is low, with figures.
fn low(status: &Status) -> String {
    let low: Vec<String> = status
        .pressure
        .levels
        .iter()
        .filter(|level| level.low)
        .map(|level| {
            let limit = level.limit.map_or_else(dash, |limit| limit.to_string());
            format!("{} low ({} of {limit})", clean(&level.resource), level.used)
        })
        .collect();
    if low.is_empty() { "nothing low".to_owned() } else { low.join(", ") }
}

/// A column: head, whether it is a number, and how soon it is left out where there is no room (0: never).
type Column = (&'static str, bool, u8, fn(&ConnectionStatus) -> String);

const COLUMNS: &[Column] = &[
    ("ID", true, 0, |c| c.id.to_string()),
    ("PROTOCOL", false, 4, |c| clean(&c.protocol)),
    ("STATE", false, 5, |c| clean(&c.state)),
    ("CLASS", false, 2, |c| clean(&c.class)),
    ("CLIENT", false, 6, client),
    ("DESTINATION", false, 0, destination),
    ("RTT", true, 0, |c| far_leg(c).map_or_else(dash, |l| rtt(l.rtt_us))),
    ("RETR", true, 0, |c| far_leg(c).map_or_else(dash, |l| l.retransmits.to_string())),
    ("RATE", true, 0, |c| far_leg(c).map_or_else(dash, |l| rate(l.delivery_rate))),
    ("CWND", true, 3, |c| far_leg(c).map_or_else(dash, |l| l.cwnd.to_string())),
    ("UP", true, 0, |c| size(c.bytes_up)),
    ("DOWN", true, 0, |c| size(c.bytes_down)),
    ("IDLE", true, 1, |c| seconds(c.idle_seconds)),
    ("AGE", true, 0, |c| seconds(c.age_seconds)),
];

fn connections(connections: &[ConnectionStatus], width: Option<usize>) -> String {
    let mut columns: Vec<&Column> = COLUMNS.iter().collect();
    loop {
        let head = columns.iter().map(|column| column.0.to_owned()).collect();
        let rows: Vec<Vec<String>> = connections
            .iter()
            .map(|connection| columns.iter().map(|column| (column.3)(connection)).collect())
            .collect();
        let right: Vec<bool> = columns.iter().map(|column| column.1).collect();
        let text = table(head, rows, &right, None);
        let fits = width.is_none_or(|width| text.lines().all(|line| line.chars().count() <= width));
        let next = columns.iter().map(|column| column.2).filter(|rank| *rank > 0).min();
        match next {
            Some(rank) if !fits => columns.retain(|column| column.2 != rank),
            _ => return cut(&text, width),
        }
    }
}

/// The leg the figures are of: the one beyond this relay, else the client's.
#[must_use]
pub fn far_leg(connection: &ConnectionStatus) -> Option<&LegStatus> {
    connection.legs.last()
}

/// Where the client is, and the household it belongs to.
fn client(connection: &ConnectionStatus) -> String {
    match &connection.account {
        Some(account) => format!("{} ({})", connection.client, clean(account)),
        None => connection.client.to_string(),
    }
}

fn destination(connection: &ConnectionStatus) -> String {
    let mut text = connection.destination.as_deref().map_or_else(dash, clean);
    if !connection.through.is_empty() {
        text.push_str(&format!(" via {}", clean(&connection.through.join(" > "))));
    }
    text
}

fn dash() -> String {
    "-".to_owned()
}

/// A table with a blank line before it; lines are cut at `width`.
pub(crate) fn table(
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    right: &[bool],
    width: Option<usize>,
) -> String {
    let all: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let widths: Vec<usize> = (0..right.len())
        .map(|column| {
            let cells = all.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut out = String::from("\n");
    for row in &all {
        let cells = row.iter().zip(&widths).zip(right).map(|((cell, width), right)| {
            if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    cut(&out, width)
}

/// Breaks lines at spaces; what comes after is moved in by two.
fn wrap(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let mut out = String::new();
    for line in text.lines() {
        let mut used = 0;
        // the padding within a table's line, which has been cut to fit, is kept
        if line.chars().count() <= width {
            out.push_str(line);
        } else {
            for word in line.split(' ') {
                let length = word.chars().count();
                if used > 0 && used + 1 + length > width {
                    out.push_str("\n  ");
                    used = 2;
                } else if used > 0 {
                    out.push(' ');
                    used += 1;
                }
                out.push_str(word);
                used += length;
            }
        }
        out.push('\n');
    }
    out
}

fn cut(text: &str, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    // what is left off at the end of a line is padding or the end of a name
    let line = |line: &str| line.chars().take(width).chain(['\n']).collect::<String>();
    text.lines().map(line).collect()
}

/// Text that somebody else chose, without what would act on a terminal.
#[must_use]
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '·' } else { c }).collect()
}

/// So many of something: `1 failure`, `2 failures`.
#[must_use]
pub fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A size to three digits.
#[must_use]
pub fn size(bytes: u64) -> String {
    round(bytes, &[(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")])
        .unwrap_or_else(|| Bytes::new(bytes).to_string())
}

/// A rate to three digits.
#[must_use]
pub fn rate(bits: u64) -> String {
    round(bits, &[(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s")])
        .unwrap_or_else(|| Rate::from_bits_per_second(bits).to_string())
}

/// A round-trip time to three digits.
#[must_use]
pub fn rtt(micros: u32) -> String {
    // the kernel's word for «not measured yet»
    if micros == 0 {
        return dash();
    }
    let nanos = u64::from(micros) * 1_000;
    round(nanos, &[(1_000_000_000, "s"), (1_000_000, "ms")])
        .unwrap_or_else(|| Span::from_nanos(nanos).to_string())
}

fn round(value: u64, units: &[(u64, &str)]) -> Option<String> {
    let (scale, unit) = units.iter().find(|(scale, _)| value >= *scale)?;
    let value = value as f64 / *scale as f64;
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    Some(format!("{value:.decimals$} {unit}"))
}

/// A time as `4.2 s`, `3 min 5 s`, `2 h 4 min`, `3 d 2 h`.
#[must_use]
pub fn seconds(seconds: f64) -> String {
    // negative and not-a-number become 0
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{:.1} s", seconds.max(0.0)),
        60..3_600 => format!("{} min {} s", whole / 60, whole % 60),
        3_600..86_400 => format!("{} h {} min", whole / 3_600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86_400, whole / 3_600 % 24),
    }
}

#[cfg(test)]
pub(crate) fn sample() -> Status {
    let text = include_str!("../tests/status.json");
    serde_json::from_str(text).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_there_is_to_say() {
        insta::assert_snapshot!(render(&sample(), None));
    }

    #[test]
    fn on_80_columns() {
        let text = render(&sample(), Some(80));
        assert!(text.lines().all(|line| line.chars().count() <= 80));
        insta::assert_snapshot!(text);
    }

    #[test]
    fn what_a_client_chose_does_not_reach_the_terminal() {
        let mut status = sample();
        status.connections[0].destination = Some("a\u{1b}[2Jb:1".to_owned());
        assert!(!render(&status, None).contains('\u{1b}'));
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(
            [size(0), size(1_023), size(1_536), size(10 << 20), size(u64::MAX)].join(", "),
            "0 B, 1023 B, 1.50 KiB, 10.0 MiB, 16777216 TiB"
        );
        assert_eq!(
            [rate(999), rate(25_000_000), rate(999_999_999)].join(", "),
            "999 bit/s, 25.0 Mbit/s, 1000 Mbit/s"
        );
        assert_eq!(
            [rtt(0), rtt(250), rtt(52_345), rtt(1_500_000)].join(", "),
            "-, 250 us, 52.3 ms, 1.50 s"
        );
        assert_eq!(
            [
                seconds(4.23),
                seconds(185.0),
                seconds(7_500.0),
                seconds(270_000.0),
                seconds(f64::NAN)
            ]
            .join(", "),
            "4.2 s, 3 min 5 s, 2 h 5 min, 3 d 3 h, 0.0 s"
        );
    }

    /// The schema of `ekiden status --json`, as it is committed.
    fn schema() -> String {
        let schema = schemars::schema_for!(Status);
        format!("{}\n", serde_json::to_string_pretty(&schema).unwrap())
    }

    #[test]
    fn the_committed_schema_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/status.json");
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        if committed != schema() && std::env::var_os("UPDATE").is_some() {
            std::fs::create_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();
            std::fs::write(path, schema()).unwrap();
        } else {
            assert!(committed == schema(), "write it anew: UPDATE=1 cargo test -p ekiden schema");
        }
    }

    #[test]
    fn a_document_holds_to_the_schema() {
        let schema: serde_json::Value = serde_json::from_str(&schema()).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let mut document = serde_json::to_value(sample()).unwrap();
        assert!(validator.is_valid(&document));
        document["pid"] = serde_json::json!("one");
        assert!(!validator.is_valid(&document), "the schema says something");
    }
}
