//! Clients, a proxy with few places, servers: the cells of the proxy-pressure study.

use crate::proxy_pressure::downloads::{self, Buffers, DownloadsConfig};
use ekiden_lab::cell::{Cell, CellError};
use ekiden_lab::engine::{During, EngineError, Outcome};
use ekiden_lab::study::Sights;
use ekiden_model::network::tcp::preset::Era;
use ekiden_model::network::workload::surge::Surge;
use ekiden_model::resources::buffers::Scheme;
use ekiden_model::units::{Bytes, Span, Time};
use ekiden_simulator::applications::proxy::{self, CLASSES, Knowledge, ProxyConfig, ProxyResult};
use ekiden_simulator::observer::Observer;
use ekiden_simulator::recorder::packets::Side;

/// How long the study looks.
const DURATION: Span = Span::from_secs(300);
/// How long many downloads are looked at.
const LONG: Span = Span::from_secs(20);
/// What counts as a small document and as a large one (algorithms/buffers A.2, A6 and A7), bytes.
const SMALL: u64 = 10_000;
const LARGE: u64 = 100_000;

/// A cell's run beside an observer. Errors: the cell lacks a value, or the observer's.
pub(crate) fn record<O: Observer>(
    cell: &Cell,
    seed: u64,
    observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
) -> Result<(Outcome, O), EngineError> {
    // no link is the bottleneck; clients open, answers come back, and the number of flows is not known
    let sights = Sights { watched: None, server: Side::Acceptor, flows: u32::MAX, kinds: &[] };
    if let Some(buffers) = buffers(cell.text("scheme")?) {
        // a thousand connections are looked at from outside: there is nothing to record packet by packet
        return Ok((downloads(cell, seed, buffers)?, observer(&Sights { flows: 0, ..sights })?));
    }
    let config = config(cell, seed)?;
    let mut net = proxy::build(&config, observer(&sights)?).during("building the network")?;
    net.run(Time::ZERO + DURATION);
    let [_, fingerprint] = net.fingerprints();
    let result = net.proxy_result().unwrap_or_default();
    let mut outcome = outcome(&result, &config);
    outcome.add_fact("fingerprint", format!("{fingerprint:016x}"));
    Ok((outcome, net.observer))
}

fn config(cell: &Cell, seed: u64) -> Result<ProxyConfig, CellError> {
    let number: usize = cell.value("scheme")?;
    let scheme = number.checked_sub(1).and_then(|at| Scheme::ALL.get(at).copied());
    let scheme = scheme.ok_or_else(|| cell.error("scheme", "there are 1, 2, 3 and 4"))?;
    let study = ProxyConfig::study(scheme, cell.value("clients")?, seed);
    let era = Era::named(cell.text("era")?);
    Ok(ProxyConfig {
        pool: cell.value("pool")?,
        period: cell.value("period")?,
        persist: cell.value("persist")?,
        halve_every: cell.value("halving")?,
        patience: match cell.text("patience")? {
            "never" => Span::MAX,
            _ => cell.value("patience")?,
        },
        knowledge: match cell.text("knowledge")? {
            "estimated" => Knowledge::Estimated,
            _ => Knowledge::Perfect,
        },
        surge: if cell.text("web")? == "clusters" { Surge::clusters() } else { Surge::published() },
        era: era.ok_or_else(|| cell.error("era", "the simulator has no such TCP"))?,
        ..study
    })
}

fn outcome(result: &ProxyResult, config: &ProxyConfig) -> Outcome {
    let mut outcome = Outcome::of(result.bytes as f64 / 1e6);
    let means = [("small_s", 0, SMALL), ("middle_s", SMALL, LARGE), ("large_s", LARGE, u64::MAX)];
    let mean = |(name, from, to)| Some((name, result.mean(from, to).1?));
    outcome.add_figures(means.into_iter().filter_map(mean));
    outcome.add_figures([
        ("asked", result.asked as f64),
        ("answered", result.answered as f64),
        ("refused", result.refused as f64),
        ("outstanding", result.outstanding as f64),
        ("repeated", result.repeated as f64),
        ("opened", result.opened as f64),
        ("most_open", result.most_open as f64),
    ]);
    if let Some(idle) = &result.idle {
        outcome.add_figures([
            ("reused", idle.reused as f64),
            ("evicted", idle.evicted as f64),
            ("expired", idle.expired as f64),
        ]);
    }
    outcome.add_figures(result.admission.as_ref().map(|all| ("waited", all.waited as f64)));
    let pool = config.pool.as_u64() as f64;
    let shares = [
        ("granted_of_pool", result.most_granted.as_u64() as f64 / pool),
        ("demand_of_pool", result.demanded as f64 / result.ticks.max(1) as f64 / pool),
    ];
    outcome.add_figures(shares.into_iter().filter(|(_, share)| share.is_finite()));
    let classes = || CLASSES.iter().zip(&result.classes).filter(|(_, class)| class.count > 0);
    let counts = classes().map(|(from, class)| [*from, class.count]).collect();
    let times = classes().map(|(from, class)| [*from, class.time.as_micros()]).collect();
    outcome.histograms.insert("documents".to_owned(), counts);
    outcome.histograms.insert("microseconds".to_owned(), times);
    outcome
}

/// How send buffers come about, in a cell of many downloads.
fn buffers(scheme: &str) -> Option<Buffers> {
    match scheme {
        "fixed 64 KiB" => Some(Buffers::Fixed(Bytes::kib(64))),
        "kernel" => Some(Buffers::Kernel),
        "E-ATBT" => Some(Buffers::Shared),
        _ => None,
    }
}

fn downloads(cell: &Cell, seed: u64, buffers: Buffers) -> Result<Outcome, EngineError> {
    let memory: Bytes = cell.value("pool")?;
    let downloads = cell.value("clients")?;
    let config = DownloadsConfig { seed, downloads, memory, buffers };
    let result = downloads::run(&config, LONG).during("building the network")?;
    let mut outcome = Outcome::of(result.bytes as f64 / 1e6);
    let share = |bytes: u64| bytes as f64 / memory.as_u64() as f64;
    let goodput = result.bytes as f64 * 8.0 / 1e6 / LONG.as_secs() as f64;
    outcome.add_figures([
        ("goodput_mbit", goodput),
        ("granted_of_pool", share(result.most_granted)),
        ("queued_of_pool", share(result.most_queued)),
    ]);
    outcome.add_fact("fingerprint", format!("{:016x}", result.fingerprint));
    Ok(outcome)
}
