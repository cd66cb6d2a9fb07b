//! 500 people who want 200 slots.
//!
//! ```text
//! people ── 25 links, 100 Mbit/s, 10–100 ms ── proxy ── 25 links, 100 Mbit/s, 10–200 ms ── 50 servers
//! ```
//! Delays, losses and requests are drawn as the simulator draws them (algorithms/buffers A.8). Twenty people or
//! two servers share a link, because the emulator cannot bear one for each. Nothing is cached.
//!
//! **The same limit for all.** A slot is a client with what its request opens, or a pooled connection: 200
//! slots are at most 400 sockets, besides those that wait. squid's limit is 400 descriptors more than it has
//! open at rest, of which it reserves a quarter. Where `bound` is `descriptors`, ekiden's limit is the same and
//! includes those that wait and its reserve.
//!
//! **The same memory for all.** A pool is ekiden's budget, and the sum of scheme 1's fixed buffers; on squid's
//! machine each buffer is limited to its equal part of 200 slots. Without a pool, the kernel tunes for both.

use super::star::{self, FarHost, HUB};
use super::watch::{Watch, WatchFigures};
use crate::kernel::hosts::{host, place};
use crate::kernel::verdict::{self, Processors};
use ekiden_emulator::topology::{Topology, TopologyPlan};
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{During, EngineError, Outcome};
use ekiden_lab::statistics::quantile;
use ekiden_model::network::link::Bound;
use ekiden_model::network::workload::surge::Surge;
use ekiden_model::rng::Rng;
use ekiden_model::units::{Bytes, Rate, Share, Span};
use ekiden_simulator::applications::proxy::CLASSES;
use ekiden_simulator::random::Substreams;
use ekiden_testbed::load::browsers::{self, BrowserConfig, Entries, Ledger};
use ekiden_testbed::load::documents::Documents;
use ekiden_testbed::peers::{Peer, Start, ekiden, squid};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The proxy-pressure study's limit.
const PLACES: u64 = 200;
/// On each of the links to servers: 50 servers.
const PORTS: [u16; 2] = [80, 81];
/// Links that people come by, and links to servers.
const LINKS: usize = 25;
const RATE: Rate = Rate::from_bits_per_second(100_000_000);
const CLIENT_DELAY: [Span; 2] = [Span::from_millis(10), Span::from_millis(100)];
const SERVER_DELAY: [Span; 2] = [Span::from_millis(10), Span::from_millis(200)];
/// Parts per million, each way.
const LOSSES: [u64; 5] = [100, 500, 1_000, 5_000, 10_000];
/// As in the simulator: what is lost is lost by chance.
const QUEUE: Bound = Bound::Packets(1_000);
/// Scheme 1's buffers as the kernel counts: 16 KiB of payload.
const FIXED: Bytes = Bytes::kib(32);
/// What counts as a small document, bytes (algorithms/buffers A.2).
const SMALL: u64 = 10_000;
/// After everything stands and before the first person comes.
const SETTLING: Duration = Duration::from_millis(500);

/// The network of a cell; links follow from the seed and are the same for every scheme.
pub(crate) fn network(cell: &Cell, seed: u64) -> Result<TopologyPlan, EngineError> {
    let streams = Substreams::new(seed);
    let far = |purpose: &str, name: &str, delays: [Span; 2], number: usize| {
        let mut rng: Rng = streams.of(purpose, number as u64);
        let delay = star::between(&mut rng, delays);
        let drawn = rng.below(LOSSES.len() as u64) as usize;
        let ppm = LOSSES.get(drawn).copied().unwrap_or(0);
        let loss = Share::from_parts_per_billion(ppm * 1_000).unwrap_or(Share::NONE);
        let name = format!("{name}{number}");
        FarHost { name, rate: RATE, delay, loss, queue: QUEUE, super_packets: false }
    };
    let clients = (0..LINKS).map(|n| far("client's path", "people", CLIENT_DELAY, n));
    let servers = (0..LINKS).map(|n| far("server's path", "server", SERVER_DELAY, n));
    let mut plan = star::plan(&clients.chain(servers).collect::<Vec<_>>(), seed);
    if let (Some(pool), "squid") = (pool(cell)?, cell.text("scheme")?) {
        // two sockets a place, two buffers a socket
        let part = pool.as_u64() / (4 * PLACES);
        for hub in plan.hosts.iter_mut().filter(|host| host.name == HUB) {
            for key in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
                hub.sysctls.insert(key.to_owned(), format!("4096 {part} {part}"));
            }
        }
    }
    Ok(plan)
}

/// All buffers together, if that is bounded.
fn pool(cell: &Cell) -> Result<Option<Bytes>, EngineError> {
    if cell.text("pool")? == "kernel" { Ok(None) } else { Ok(Some(cell.value("pool")?)) }
}

pub(crate) fn run(cell: &Cell, seed: u64, binary: &Path) -> Result<Outcome, EngineError> {
    let clients: u64 = cell.value("clients")?;
    let duration: Span = cell.value("duration")?;
    let topology = Topology::build(&network(cell, seed)?).during("the network")?;
    let mut servers = Vec::new();
    let mut addresses = Vec::new();
    for number in 0..LINKS {
        let host = host(&topology, &format!("server{number}"))?;
        let here = PORTS.map(|port| SocketAddr::from((host.address(), port)));
        servers.push(host.run(|| Documents::serve(&here)).during("servers")?.during("servers")?);
        addresses.extend(here);
    }
    let (proxy, descriptors) = proxy(cell, &topology, binary)?;
    std::thread::sleep(SETTLING);
    let squid = cell.text("scheme")? == "squid";
    let watch = Watch::begin(&proxy, !squid);
    let (processors, own) = (Processors::look(), proxy.cpu_time());
    let begin = Instant::now();
    let crowd = Arc::new(BrowserConfig {
        surge: Surge::published(),
        proxy: proxy.address,
        servers: addresses,
        begin,
        end: begin + Duration::from(duration),
        ledger: Ledger::default(),
    });
    // what the simulator's clients ask for with the same seed
    let streams = Substreams::new(seed);
    let mut all = Vec::new();
    for number in 0..LINKS {
        let host = host(&topology, &format!("people{number}"))?;
        let here = (number as u64..clients).step_by(LINKS).map(|n| streams.of("client", n));
        all.extend(host.run(|| browsers::begin(&crowd, here)).during("people")?.during("people")?);
    }
    for person in all {
        let _panicked = person.join();
    }
    let processors = processors.zip(Processors::look()).map(|(then, now)| now.busy_since(then));
    let own = proxy.cpu_time().saturating_sub(own);
    let seen = watch.end();
    let bytes = crowd.ledger.bytes.load(Ordering::Relaxed);
    let mut outcome = outcome(bytes, &crowd.ledger.read(), &seen)?;
    outcome.add_figures([
        ("proxy_cpu_s", own.as_secs_f64()),
        ("machine_busy", processors.unwrap_or(0.0)),
    ]);
    outcome.add_figures(descriptors.map(|descriptors| ("descriptors", descriptors as f64)));
    if squid {
        let log = std::fs::read_to_string(proxy.folder().join("squid.log")).unwrap_or_default();
        let warned = log.matches("running out of filedescriptors").count();
        outcome.add_figures([("warned", warned as f64)]);
    }
    // programs end before servers, and both before their links
    drop(proxy);
    drop(servers);
    let links = topology.finish().during("the links")?;
    (outcome.fidelity, outcome.reasons) = verdict::judge(&links, processors);
    Ok(outcome)
}

/// The proxy, and how many descriptors it may have where that is its limit.
fn proxy(
    cell: &Cell,
    topology: &Topology,
    binary: &Path,
) -> Result<(Peer, Option<u64>), EngineError> {
    let place = place(host(topology, HUB)?)?;
    let start = Start { place: Some(place), ..Start::default() };
    let bounded = cell.text("bound")? == "descriptors";
    if cell.text("scheme")? == "squid" {
        let descriptors = 2 * PLACES + squid::start(&start)?.usage().descriptors;
        let squid = squid::start_limited(&start, descriptors, cell.value("persist")?)?;
        return Ok((squid, Some(descriptors)));
    }
    let settings = settings(cell)?;
    if !bounded {
        return Ok((ekiden::start_asked(&start, binary, &settings)?, None));
    }
    let descriptors =
        2 * PLACES + ekiden::start_asked(&start, binary, &settings)?.usage().descriptors;
    Ok((ekiden::start_limited(&start, binary, &settings, descriptors)?, Some(descriptors)))
}

fn settings(cell: &Cell) -> Result<String, EngineError> {
    let scheme = match cell.text("scheme")? {
        "1" => "fixed",
        "2" => "equation",
        "3" => "evict",
        "4" => "shrink",
        other => return Err(cell.error("scheme", &format!("`{other}` is not known")).into()),
    };
    // fixed sizes ignore it
    let budget = pool(cell)?.filter(|_| scheme != "fixed");
    let budget = budget.map_or(String::new(), |pool| format!("budget = \"{pool}\"\n"));
    let (patience, persist) = (cell.text("patience")?, cell.value::<Span>("persist")?);
    // an hour is the maximum
    let patience = if patience == "never" { "1 h" } else { patience };
    let period: Span = cell.value("period")?;
    // each takes two descriptors that are needed for places; small documents are copied
    let pipes = if cell.text("bound")? == "descriptors" { "pipes = 8\n" } else { "" };
    Ok(format!(
        "[budgets]\nconnections = {PLACES}\n{pipes}\n[buffers]\nscheme = \"{scheme}\"\ninitial = \"{FIXED}\"\n\
         tick = \"{period}\"\n{budget}\n[pressure]\npatience = \"{patience}\"\n\n[pool]\nidle = \"{persist}\"\n\n\
         [timeouts]\nkeep_alive = \"{persist}\"\n"
    ))
}

fn outcome(bytes: u64, entries: &Entries, seen: &WatchFigures) -> Result<Outcome, EngineError> {
    let times = |most: u64| -> Vec<f64> {
        let small = entries.answered.iter().filter(|(bytes, _)| *bytes < most);
        small.map(|(_, took)| took.as_secs_f64()).collect()
    };
    let all = times(u64::MAX);
    if all.is_empty() {
        let why = entries.first_failure.clone().unwrap_or_default();
        return Err(EngineError(format!("nobody was answered: {entries:?} {why}")));
    }
    let mut outcome = Outcome::of(bytes as f64 / 1e6);
    let quantiles = [("p50_s", 0.5), ("p95_s", 0.95), ("p99_s", 0.99)];
    outcome.add_figures(quantiles.map(|(name, p)| (name, quantile(&all, p).unwrap_or(0.0))));
    let small = times(SMALL);
    let mean = (!small.is_empty()).then(|| small.iter().sum::<f64>() / small.len() as f64);
    outcome.add_figures(mean.map(|mean| ("small_s", mean)));
    let counted = |(name, count): (_, u64)| (name, count as f64);
    let counts = [
        ("asked", entries.asked),
        ("answered", all.len() as u64),
        ("refused", entries.refused - entries.errors),
        ("failed", entries.failed + entries.errors),
        ("outstanding", entries.outstanding),
        ("repeated", entries.repeated),
        ("opened", entries.opened),
        ("closed_idle", entries.closed_idle),
        ("not_kept", entries.not_kept),
        ("most_sockets", seen.most_sockets),
    ];
    outcome.add_figures(counts.map(counted));
    if let Some(own) = &seen.own {
        outcome.add_figures([("mean_idle", own.mean_idle)]);
        let counts = [
            ("looks", own.looks),
            ("evicted", own.evicted),
            ("waited", own.waited),
            ("reused", own.reused),
            ("most_places", own.most_places),
            ("most_granted_kib", own.most_granted >> 10),
            ("refused_beside_idle", own.refused_beside_idle),
        ];
        outcome.add_figures(counts.map(counted));
    }
    entries.first_failure.iter().for_each(|why| outcome.add_fact("first failure", why));
    let class = |bytes: u64| CLASSES.iter().rposition(|from| *from <= bytes).unwrap_or(0);
    let mut classes = vec![(0_u64, 0_u64); CLASSES.len()];
    for (bytes, took) in &entries.answered {
        if let Some((count, micros)) = classes.get_mut(class(*bytes)) {
            *count += 1;
            *micros += took.as_micros() as u64;
        }
    }
    let report = || CLASSES.iter().zip(&classes).filter(|(_, (count, _))| *count > 0);
    let counts = report().map(|(from, (count, _))| [*from, *count]).collect();
    let times = report().map(|(from, (_, micros))| [*from, *micros]).collect();
    outcome.histograms.insert("documents".to_owned(), counts);
    outcome.histograms.insert("microseconds".to_owned(), times);
    Ok(outcome)
}
