//! `ekiden status`: the status of a running daemon.

pub(crate) mod accounts;
mod acme;
pub(crate) mod alerts;
mod certificate;
mod dns;
mod gateway;
mod shares;
#[cfg(test)]
mod tests;
pub(crate) mod tunnels;
mod wireguard;

use super::{client, with_runtime};
use crate::cli;
use crate::print::{
    self, clean, count, cut, dash, percent, rate, rtt, seconds, size, table, traffic, wrap,
};

use ekiden_model::units::Rate;
use ekiden_proxy::observe::status::{
    BudgetStatus, CacheStatus, ConnectionStatus, HeldStatus, LegStatus, MemoryStatus,
    ProfileStatus, Status, UdpStatus,
};
use ekiden_proxy::settings::UpstreamProtocol;
use std::io::IsTerminal as _;

/// Asks the daemon and prints. Returns the exit code.
pub(crate) fn run(args: &cli::Status) -> u8 {
    with_runtime("status", |runtime| {
        let (status, document) = runtime.block_on(client::status(args.socket.as_deref()))?;
        if args.json {
            return Ok::<_, client::AskError>(print::out(&format!(
                "{}\n",
                String::from_utf8_lossy(&document)
            )));
        }
        let terminal = std::io::stdout().is_terminal();
        let width = if terminal { print::columns() } else { None };
        Ok(print::out(&render(&status, width)))
    })
}

/// The status as text; `width` is that of the terminal in characters, `None` for everything.
pub(crate) fn render(status: &Status, width: Option<usize>) -> String {
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
    out.push_str(&alerts::refused_reload(status));
    out.push_str(&format!(
        "{} accepted, {}, {} refused{}, {} failed; {} up, {} down\n",
        count(totals.accepted, "connection"),
        count(totals.requests, "request"),
        totals.refused,
        accounts::wrong_log_ins(status.accounts.as_ref()),
        totals.failed,
        traffic(totals.bytes_up),
        traffic(totals.bytes_down)
    ));
    if !status.budgets.is_empty() {
        let head = ["BUDGET", "USED", "PEAK", "LIMIT"].map(str::to_owned).to_vec();
        let row = |b: &BudgetStatus| {
            let number = |n| budget_figure(b, n);
            vec![clean(&b.name), number(b.used), number(b.peak), number(b.limit)]
        };
        let rows = status.budgets.iter().map(row).collect();
        out.push_str(&table(head, rows, &[false, true, true, true], width));
    }
    if let Some(MemoryStatus { resident, in_use }) = status.memory {
        out.push_str(&format!("memory: {} resident, {} in use\n", size(resident), size(in_use)));
    }
    out.push_str(&resources(status));
    out.push_str(&status.accounts.as_ref().map_or_else(String::new, accounts::database));
    if let Some(why) = &status.operators {
        out.push_str(&format!("operators: the file cannot be used: {}\n", clean(why)));
    }
    out.push_str(&status.acme.as_ref().map_or_else(String::new, acme::render));
    out.push_str(&certificate::lines(status));
    out.push_str(&alerts::lines(status));
    out.push_str(&status.gateway.as_ref().map_or_else(String::new, gateway::render));
    let door = status.wireguard.as_ref();
    out.push_str(&door.map_or_else(String::new, |door| wireguard::render(door, width)));
    out.push_str(&status.dns.as_ref().map_or_else(String::new, dns::render));
    if !status.upstreams.is_empty() {
        let head = ["UPSTREAM", "ADDRESS", "STATE", "LAST ERROR"].map(str::to_owned).to_vec();
        let row = |u: &ekiden_proxy::observe::status::UpstreamStatus| {
            let state = match u.retry_in_seconds {
                _ if u.available && u.failures == 0 => "available".to_owned(),
                _ if u.fails_at_once => "no tunnel: requests fail at once".to_owned(),
                _ if u.protocol == UpstreamProtocol::Tunnel => {
                    "no tunnel yet: requests wait".to_owned()
                }
                // the back-off is over, and no connection has succeeded since
                _ if u.available => format!("retrying, {}", count(u.failures.into(), "failure")),
                Some(wait) => {
                    format!(
                        "unreachable, backing off for {}, {}",
                        seconds(wait),
                        count(u.failures.into(), "failure")
                    )
                }
                None => {
                    format!("unreachable, backing off, {}", count(u.failures.into(), "failure"))
                }
            };
            let error = u.last_error.as_deref().map_or_else(|| "-".to_owned(), clean);
            let tls = if u.protocol == UpstreamProtocol::Https { " (TLS)" } else { "" };
            vec![clean(&u.name), format!("{}{tls}", clean(&u.address)), state, error]
        };
        let rows = status.upstreams.iter().map(row).collect();
        out.push_str(&table(head, rows, &[false; 4], width));
    }
    out.push_str(&tunnels::table_of(&status.tunnels, width));
    out.push_str(&accounts::render(status.sharing.as_ref(), width));
    out.push_str(&legs(&status.legs, width));
    let mut out = wrap(&out, width);
    if status.connections.is_empty() {
        out.push_str("\nno connections\n");
    } else {
        out.push_str(&connections(&status.connections, width));
    }
    out
}

/// The legs in use, and anomalies on their paths.
fn legs(legs: &[ProfileStatus], width: Option<usize>) -> String {
    let used = |leg: &&ProfileStatus| {
        leg.opening.openings > 0 || leg.path.usual_mtu.is_some() || leg.held.is_some()
    };
    let rows: Vec<Vec<String>> = legs.iter().filter(used).map(leg_row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let head =
        ["LEG", "CONNECTED/ATTEMPTS", "SYN-LOST", "LOSS", "RETRIES", "EXTRA-SYN", "MTU", "MIN-MTU"];
    let right = [false, true, true, true, true, true, true, true];
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
                    "leg {leg}: packets above {mtu} bytes do not reach {} (seen {ago} ago)\n",
                    trouble.address
                ),
                None => format!(
                    "leg {leg}: large packets to {} are probably dropped (seen {ago} ago); \
                     `ekiden doctor` suggests a fix\n",
                    trouble.address
                ),
            });
        }
    }
    out
}

/// The shared rate of connections with `hold`.
pub(crate) fn held_line(held: &HeldStatus) -> String {
    let rate = Rate::from_bits_per_second;
    let less = if held.rate < held.allotted {
        format!("{} of {} allotted", rate(held.rate), rate(held.allotted))
    } else {
        rate(held.allotted).to_string()
    };
    format!(
        "{less} held by {} for {}, {} of them busy, the others at {}; {} reductions, {} undone",
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
        format!("{}/{}", opening.established, opening.openings),
        opening.lost_syns.to_string(),
        opening.recent_loss.map_or_else(dash, |loss| format!("{:.1} %", loss * 100.0)),
        opening.repeated_syns.to_string(),
        opening.second_syns.to_string(),
        mtu(leg.path.usual_mtu),
        mtu(leg.path.smallest_mtu),
    ]
}

/// Buffers, idle connections and overload, one line each.
fn resources(status: &Status) -> String {
    let (buffers, idle, pressure) = (&status.buffers, &status.idle, &status.pressure);
    let mut out = String::from("\n");
    match buffers.budget {
        Some(budget) => out.push_str(&format!(
            "buffers: {} of {} granted, {} demanded, {} short; {} of {} explicit ({})\n",
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
            "  granted less than requested {}; {}\n",
            count(buffers.refused, "time"),
            clean(refusal)
        ));
    }
    out.push_str(&format!(
        "idle: {}, {} pooled, {}; {} reused\n",
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
        "overload: {}; evicted {}; {} waiting, {} waited, {} rejected with Retry-After\n",
        low(status),
        if evicted.is_empty() { "none".to_owned() } else { evicted.join(", ") },
        pressure.waiting,
        pressure.waited,
        pressure.refused
    ));
    out.push_str(&shares::line(pressure));
    if let Some(cache) = &status.cache {
        out.push_str(&cache_line(cache));
    }
    if status.udp.begun > 0 || status.udp.datagrams_up > 0 {
        out.push_str(&udp_line(&status.udp));
    }
    out
}

fn udp_line(udp: &UdpStatus) -> String {
    let gave_way = match udp.gave_way {
        0 => String::new(),
        n => format!(", {n} ended for others"),
    };
    format!(
        "udp: {} of {} at most{gave_way}; {} datagrams up, {} down; dropped: {} malformed, {} foreign, {} rejected, {} undelivered, {} over limits\n",
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
        n => format!(", {n} dropped by the disk"),
    };
    let late = match cache.disk_late {
        0 => String::new(),
        n => format!(", {} without an answer of the disk", count(n, "lookup")),
    };
    let paused = if cache.disk_paused { "; lookups leave the disk alone for a minute" } else { "" };
    format!(
        "cache: {}{} of {}{disk}; {}, {} in all; {} misses, {} bypassed; {} validated, {} stored, {} invalidated, {} evicted from memory{lost}{late}{paused}\n",
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

/// The resources in short supply, with figures.
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
    if low.is_empty() { "none".to_owned() } else { low.join(", ") }
}

/// A column: heading, whether it is a number, and the order in which narrow terminals omit it (0: never).
type Column = (&'static str, bool, u8, fn(&ConnectionStatus) -> String);

const COLUMNS: &[Column] = &[
    ("ID", true, 0, |c| c.id.to_string()),
    ("PROTOCOL", false, 4, |c| clean(&c.protocol)),
    ("STATE", false, 5, |c| clean(&c.state)),
    ("CLASS", false, 2, |c| clean(&c.class)),
    ("CLIENT", false, 6, client),
    ("DESTINATION", false, 0, destination),
    ("CLIENT-RTT", true, 3, |c| leg(c, "client").map_or_else(dash, |l| rtt(l.rtt_us))),
    ("CLIENT-LOSS", true, 7, |c| leg(c, "client").and_then(|l| l.loss).map_or_else(dash, percent)),
    ("RTT", true, 0, |c| leg(c, "upstream").map_or_else(dash, |l| rtt(l.rtt_us))),
    ("LOSS", true, 0, |c| leg(c, "upstream").and_then(|l| l.loss).map_or_else(dash, percent)),
    ("RATE", true, 0, |c| rate(c.rate_up + c.rate_down)),
    ("UP", true, 8, |c| traffic(c.bytes_up)),
    ("DOWN", true, 0, |c| traffic(c.bytes_down)),
    ("IDLE", true, 1, |c| seconds(c.idle_seconds)),
    ("AGE", true, 9, |c| seconds(c.age_seconds)),
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

/// A leg by its side, `client` or `upstream`.
pub(crate) fn leg<'a>(connection: &'a ConnectionStatus, side: &str) -> Option<&'a LegStatus> {
    connection.legs.iter().find(|leg| leg.side == side)
}

/// Where a connection came from, and its account.
fn client(connection: &ConnectionStatus) -> String {
    let from = came_from(connection);
    match &connection.account {
        Some(account) => format!("{from} ({})", clean(account)),
        None => from,
    }
}

/// The client's address; of one that came out of a tunnel the peer, which does not say whose it is.
pub(crate) fn came_from(connection: &ConnectionStatus) -> String {
    match connection.peer() {
        Some(peer) => format!("peer {}", clean(peer)),
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

/// What is used of a budget, or its limit: memory has a unit.
pub(crate) fn budget_figure(budget: &BudgetStatus, n: u64) -> String {
    match budget.name.as_str() {
        "memory" | "sessions" => size(n),
        _ => n.to_string(),
    }
}
