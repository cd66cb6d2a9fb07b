//! Clients, a proxy with few places, servers: the cells of seed 2's study.

use crate::cell::{Cell, CellError};
use crate::engine::{EngineError, Outcome};
use crate::sim::Sights;
use ekiden_model::buffers::Scheme;
use ekiden_model::tcp::preset::Era;
use ekiden_model::units::{Bytes, Span, Time};
use ekiden_model::workload::surge::Surge;
use ekiden_simulator::downloads::{self, Buffers, DownloadsConfig};
use ekiden_simulator::observer::Observer;
use ekiden_simulator::proxy::{self, CLASSES, Knowledge, ProxyConfig, ProxyResult};
use ekiden_simulator::recorder::packets::Side;

/// How long the study looks.
const DURATION: Span = Span::from_secs(300);
/// How long many downloads are looked at.
const LONG: Span = Span::from_secs(20);
/// What counts as a small document and as a large one (ALGORITHMS A.2, A6 and A7), bytes.
const SMALL: u64 = 10_000;
const LARGE: u64 = 100_000;

/// Whether a cell is of this study.
pub(super) fn is_meant(cell: &Cell) -> bool {
    cell.values.contains_key("scheme")
}

/// A cell's run.
///
/// # Errors
/// The cell lacks a value.
pub(super) fn run(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    record(cell, seed, |_| Ok(())).map(|(outcome, ())| outcome)
}

/// The same beside an observer.
///
/// # Errors
/// As [`run`], and the observer's.
pub(super) fn record<O: Observer>(
    cell: &Cell,
    seed: u64,
    observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
) -> Result<(Outcome, O), EngineError> {
    let nothing_in_sight = Sights { watched: None, server: Side::Acceptor, flows: 0, kinds: &[] };
    if let Some(buffers) = buffers(cell.text("scheme")?) {
        // a thousand connections are looked at from outside: there is nothing to record packet by packet
        return Ok((downloads(cell, seed, buffers)?, observer(&nothing_in_sight)?));
    }
    let config = config(cell, seed)?;
    // no link of the many is the bottleneck; clients open, and answers come from the other side
    // and connections come and go: how many flows there will be is not known
    let sights = Sights { watched: None, server: Side::Acceptor, flows: u32::MAX, kinds: &[] };
    let observer = observer(&sights)?;
    let built = EngineError::during("building the network");
    let mut net = proxy::build(&config, observer).map_err(|error| built(&error))?;
    net.run(Time::ZERO + DURATION);
    let [_, fingerprint] = net.fingerprints();
    let result = net.proxy_result().unwrap_or_default();
    let mut outcome = outcome(&result, &config);
    outcome.facts.insert("fingerprint".to_owned(), format!("{fingerprint:016x}"));
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
        surge: match cell.text("web")? {
            "clusters" => Surge::clusters(),
            _ => Surge::published(),
        },
        era: era.ok_or_else(|| cell.error("era", "the simulator has no such TCP"))?,
        ..study
    })
}

fn outcome(result: &ProxyResult, config: &ProxyConfig) -> Outcome {
    let mut outcome = Outcome { value: result.bytes as f64 / 1e6, ..Outcome::default() };
    let mut tell = |name: &str, value: f64| {
        if value.is_finite() {
            outcome.figures.insert(name.to_owned(), value);
        }
    };
    let mean = |from, to| result.mean(from, to).1.unwrap_or(f64::NAN);
    tell("small_s", mean(0, SMALL));
    tell("middle_s", mean(SMALL, LARGE));
    tell("large_s", mean(LARGE, u64::MAX));
    tell("asked", result.asked as f64);
    tell("answered", result.answered as f64);
    tell("refused", result.refused as f64);
    tell("outstanding", result.outstanding as f64);
    tell("repeated", result.repeated as f64);
    tell("opened", result.opened as f64);
    tell("most_open", result.most_open as f64);
    if let Some(idle) = &result.idle {
        tell("reused", idle.reused as f64);
        tell("evicted", idle.evicted as f64);
        tell("expired", idle.expired as f64);
    }
    if let Some(admission) = &result.admission {
        tell("waited", admission.waited as f64);
    }
    let pool = config.pool.as_u64() as f64;
    tell("granted_of_pool", result.most_granted.as_u64() as f64 / pool);
    tell("demand_of_pool", result.demanded as f64 / result.ticks.max(1) as f64 / pool);
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

/// Many downloads from one machine.
fn downloads(cell: &Cell, seed: u64, buffers: Buffers) -> Result<Outcome, EngineError> {
    let memory: Bytes = cell.value("pool")?;
    let downloads = cell.value("clients")?;
    let config = DownloadsConfig { seed, downloads, memory, buffers };
    let built = EngineError::during("building the network");
    let result = downloads::run(&config, LONG).map_err(|error| built(&error))?;
    let mut outcome = Outcome { value: result.bytes as f64 / 1e6, ..Outcome::default() };
    let share = |bytes: u64| bytes as f64 / memory.as_u64() as f64;
    let goodput = result.bytes as f64 * 8.0 / 1e6 / LONG.as_secs() as f64;
    for (name, value) in [
        ("goodput_mbit", goodput),
        ("granted_of_pool", share(result.most_granted)),
        ("queued_of_pool", share(result.most_queued)),
    ] {
        outcome.figures.insert(name.to_owned(), value);
    }
    outcome.facts.insert("fingerprint".to_owned(), format!("{:016x}", result.fingerprint));
    Ok(outcome)
}
