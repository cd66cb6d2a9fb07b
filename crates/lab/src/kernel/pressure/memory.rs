//! 200 downloads that share 16 MiB of socket buffers.
//!
//! ```text
//! 8 downloads each ── 25 links, 1–20 Mbit/s, 10–600 ms, queue 50 ms ── proxy ── 1 Gbit/s, 2 ms ── server
//! ```
//! All last as long as the run does. Each second `ss -tm` on the proxy's machine is put beside what ekiden
//! says it gave: `ss`, then the word of each connection, then `ss` again, and what did not change between
//! the two is compared. Sizes can change and change back in between while newcomers come, so what differs
//! is looked at once more before it counts.

use super::cost::{self, Processors};
use super::sockets::{self, Ends, Memory};
use super::star::{self, Far, HUB, host};
use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use crate::kernel::set_up::place;
use crate::load::documents::Documents;
use crate::load::fetch::{Fetched, fetch};
use crate::peers::control::Control;
use crate::peers::{Start, ekiden};
use crate::statistics::quantile;
use ekiden_emulator::topology::{Host, Topology, TopologyPlan};
use ekiden_model::units::{Bytes, Rate, Share, Span};
use ekiden_simulator::random::Substreams;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const LINKS: usize = 25;
/// Mbit/s, drawn evenly on a logarithmic scale.
const RATES: [f64; 2] = [1.0, 20.0];
/// One way.
const DELAYS: [Span; 2] = [Span::from_millis(5), Span::from_millis(300)];
const QUEUE: Span = Span::from_millis(50);
const NEAR: (Rate, Span) = (Rate::from_bits_per_second(1_000_000_000), Span::from_millis(1));
/// Longer than any run could take.
const WHOLE: u64 = 1 << 50;
/// All have begun within so long.
const BEGINNING: Duration = Duration::from_secs(1);
/// Before goodput is counted: the longest paths have left slow start.
const WARMING: Duration = Duration::from_secs(10);
const APART: Duration = Duration::from_secs(1);
const STACK: usize = 256 << 10;

/// The network that follows from a seed: the same for every scheme.
pub(super) fn network(seed: u64) -> TopologyPlan {
    let streams = Substreams::new(seed);
    let far = |number: usize| {
        let mut rng = streams.of("download's path", number as u64);
        let share = rng.below(1 << 32) as f64 / (1_u64 << 32) as f64;
        let mbit = RATES[0] * (RATES[1] / RATES[0]).powf(share);
        let rate = Rate::from_bits_per_second((mbit * 1e6) as u64);
        let delay = star::between(&mut rng, DELAYS);
        let queue = star::queue_of(rate, QUEUE);
        let name = format!("client{number}");
        Far { name, rate, delay, loss: Share::NONE, queue, super_packets: false }
    };
    let server = Far {
        name: "server".to_owned(),
        rate: NEAR.0,
        delay: NEAR.1,
        loss: Share::NONE,
        queue: star::queue_of(NEAR.0, QUEUE),
        super_packets: true,
    };
    star::plan(&(0..LINKS).map(far).chain([server]).collect::<Vec<_>>(), seed)
}

/// A cell's run.
///
/// # Errors
/// The cell lacks a value, something did not start, or ss or ekiden did not answer.
pub(super) fn run(cell: &Cell, seed: u64, binary: &Path) -> Result<Outcome, EngineError> {
    let clients: usize = cell.value("clients")?;
    let budget: Bytes = cell.value("pool")?;
    let duration: Span = cell.value("duration")?;
    let built = |error: &dyn std::fmt::Display| EngineError(format!("the network: {error}"));
    let plan = network(seed);
    let topology = Topology::build(&plan).map_err(|error| built(&error))?;
    let server = SocketAddr::from((host(&topology, "server")?.address(), 80));
    let serve = || Documents::serve(&[server]);
    let started = host(&topology, "server")?.run(serve);
    let servers = started.map_err(|error| built(&error))?.map_err(|error| built(&error))?;
    let hub = host(&topology, HUB)?;
    let place = place(hub).map_err(|error| built(&error))?;
    let start = Start { cpu: None, place: Some(place), upstream: None };
    let proxy = ekiden::start_asked(&start, binary, &settings(cell, budget)?)?;
    let control = ekiden::control(&proxy);

    let begin = Instant::now();
    let end = begin + Duration::from_nanos(duration.as_nanos());
    let counted: Arc<Vec<AtomicU64>> = Arc::new((0..clients).map(|_| AtomicU64::new(0)).collect());
    let mut threads = Vec::new();
    for link in 0..LINKS {
        let host = host(&topology, &format!("client{link}"))?;
        let here = (link..clients).step_by(LINKS);
        let asks = Asks { proxy: proxy.address, server, begin, end, counted: Arc::clone(&counted) };
        threads.extend(asks.begin(host, here, clients)?);
    }
    let sum = || counted.iter().map(|one| one.load(Ordering::Relaxed)).collect::<Vec<u64>>();
    let mut ticks = Ticks::default();
    let mut middle: Option<(Instant, Vec<u64>, Option<Processors>, Duration)> = None;
    while Instant::now() + APART < end {
        thread::sleep(APART);
        if middle.is_none() && begin.elapsed() >= WARMING {
            middle = Some((Instant::now(), sum(), Processors::look(), proxy.cpu_time()));
        }
        ticks.look(host(&topology, HUB)?, &control)?;
    }
    let (since, before, then, own) = middle.ok_or_else(|| {
        EngineError(format!("a run of {duration} ends before {WARMING:?} have passed"))
    })?;
    let seconds = since.elapsed().as_secs_f64();
    let after = sum();
    let busy = then.zip(Processors::look()).map(|(then, now)| now.busy_since(then));
    let own = proxy.cpu_time().saturating_sub(own);
    for thread in threads {
        let _panicked = thread.join();
    }
    let rates: Vec<f64> = before
        .iter()
        .zip(&after)
        .map(|(before, after)| (after - before) as f64 * 8.0 / 1e6 / seconds)
        .collect();
    let mut outcome = Outcome { value: rates.iter().sum(), ..Outcome::default() };
    let links: u64 = plan.links.iter().take(LINKS).map(rate).sum();
    for (name, value) in [
        ("links_mbit", links as f64 / 1e6),
        ("slowest_mbit", quantile(&rates, 0.05).unwrap_or(0.0)),
        ("median_mbit", quantile(&rates, 0.5).unwrap_or(0.0)),
        ("most_of_budget", ticks.most_given as f64 / budget.as_u64() as f64),
        ("most_used_kib", ticks.most_used as f64 / 1024.0),
        ("ticks", ticks.ticks as f64),
        ("compared", ticks.compared as f64),
        ("differing", ticks.differing as f64),
        ("changing", ticks.changing as f64),
        ("most_connections", ticks.most_connections as f64),
        ("machine_busy", busy.unwrap_or(0.0)),
        ("proxy_cpu_s", own.as_secs_f64()),
    ] {
        outcome.figures.insert(name.to_owned(), value);
    }
    if let Some(first) = ticks.first_difference {
        outcome.facts.insert("first difference".to_owned(), first);
    }
    drop(proxy);
    drop(servers);
    let links = topology.finish().map_err(|error| EngineError(format!("the links: {error}")))?;
    (outcome.fidelity, outcome.reasons) = cost::judge(&links, busy);
    Ok(outcome)
}

fn rate(link: &ekiden_emulator::topology::LinkPlan) -> u64 {
    match &link.backward.serialiser {
        ekiden_model::link::Serialiser::Rate(rate) => rate.as_bits_per_second(),
        _ => 0,
    }
}

fn settings(cell: &Cell, budget: Bytes) -> Result<String, EngineError> {
    Ok(match cell.text("scheme")? {
        "kernel" => String::new(),
        "E2-ATBT" => format!("[buffers]\nbudget = \"{budget}\"\n"),
        "fixed 20 KiB" => "[buffers]\nscheme = \"fixed\"\ninitial = \"20 KiB\"\n".to_owned(),
        "fixed 64 KiB" => "[buffers]\nscheme = \"fixed\"\ninitial = \"64 KiB\"\n".to_owned(),
        other => return Err(cell.error("scheme", &format!("«{other}» is not known")).into()),
    })
}

/// Downloads that begin one after the other and last until the end.
struct Asks {
    proxy: SocketAddr,
    server: SocketAddr,
    begin: Instant,
    end: Instant,
    counted: Arc<Vec<AtomicU64>>,
}

impl Asks {
    fn begin(
        self,
        host: &Host,
        numbers: impl Iterator<Item = usize> + Send,
        all: usize,
    ) -> Result<Vec<JoinHandle<()>>, EngineError> {
        let this = Arc::new(self);
        let one = |number: usize| {
            let this = Arc::clone(&this);
            let late = BEGINNING.mul_f64(number as f64 / all as f64);
            let download = move || this.download(number, late);
            thread::Builder::new().stack_size(STACK).spawn(download)
        };
        let begun = host.run(|| numbers.map(one).collect::<std::io::Result<Vec<_>>>());
        let failed = EngineError::during("downloads");
        match begun {
            Ok(Ok(threads)) => Ok(threads),
            Ok(Err(error)) => Err(failed(&error)),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Asks, and asks anew should it break: what came counts.
    fn download(&self, number: usize, late: Duration) {
        let Some(counted) = self.counted.get(number) else { return };
        thread::sleep((self.begin + late).saturating_duration_since(Instant::now()));
        while Instant::now() < self.end {
            let left = self.end.saturating_duration_since(Instant::now());
            let connected = TcpStream::connect_timeout(&self.proxy, left.max(APART));
            let fetched = connected
                .and_then(|mut stream| fetch(&mut stream, (self.server, WHOLE), self.end, counted));
            if matches!(fetched, Ok(Fetched::Late)) {
                return;
            }
            thread::sleep(APART);
        }
    }
}

/// What was seen at all ticks.
#[derive(Debug, Default)]
struct Ticks {
    ticks: u64,
    /// Sum of all buffers' sizes on the proxy's machine by ss, the most at any tick.
    most_given: u64,
    /// Sum of what stood in them.
    most_used: u64,
    most_connections: u64,
    /// Buffers put beside ekiden's word, those that differed, and those that changed while they were
    /// looked at.
    compared: u64,
    differing: u64,
    changing: u64,
    first_difference: Option<String>,
}

/// Between the two, what ekiden said.
struct Look {
    before: BTreeMap<Ends, Memory>,
    said: Vec<Said>,
    after: BTreeMap<Ends, Memory>,
}

impl Look {
    fn take(host: &Host, control: &Control) -> Result<Self, EngineError> {
        let asked = EngineError::during("ekiden's control socket");
        let before = sockets::memory(host)?;
        let status = control.status().map_err(|error| asked(&error))?;
        let mut said = Vec::new();
        for connection in status["connections"].as_array().into_iter().flatten() {
            // one that has just ended says nothing
            if let Some(Ok(told)) = connection["id"].as_u64().map(|id| control.explain(id)) {
                said.extend(grants(&told));
            }
        }
        Ok(Self { before, said, after: sockets::memory(host)? })
    }

    /// The size that ss shows of a buffer, if it did not change meanwhile.
    fn size(&self, said: &Said) -> Option<u64> {
        let pick = |memory: &Memory| if said.sends { memory.tb } else { memory.rb };
        let sizes = self.before.get(&said.ends).map(pick).zip(self.after.get(&said.ends).map(pick));
        sizes.filter(|(before, after)| before == after).map(|(_, after)| after)
    }

    fn differing(&self) -> BTreeSet<(Ends, bool)> {
        let differs = |said: &&Said| self.size(said).is_some_and(|size| size != said.given);
        self.said.iter().filter(differs).map(|said| (said.ends, said.sends)).collect()
    }
}

impl Ticks {
    fn look(&mut self, host: &Host, control: &Control) -> Result<(), EngineError> {
        let first = Look::take(host, control)?;
        let differing = first.differing();
        let again = if differing.is_empty() {
            BTreeSet::new()
        } else {
            Look::take(host, control)?.differing()
        };
        self.add(&first, &differing.intersection(&again).copied().collect());
        Ok(())
    }

    fn add(&mut self, look: &Look, differing: &BTreeSet<(Ends, bool)>) {
        let Look { before, said, after } = look;
        self.ticks += 1;
        self.most_connections = self.most_connections.max(after.len() as u64);
        let given = |all: &BTreeMap<Ends, Memory>| all.values().map(|m| m.rb + m.tb).sum::<u64>();
        self.most_given = self.most_given.max(given(before)).max(given(after));
        let used = after.values().map(|memory| memory.r + memory.t + memory.w).sum();
        self.most_used = self.most_used.max(used);
        for said in said {
            let Some(size) = look.size(said) else {
                self.changing += 1;
                continue;
            };
            self.compared += 1;
            if differing.contains(&(said.ends, said.sends)) {
                self.differing += 1;
                let side = if said.sends { "tb" } else { "rb" };
                let what = format!("{side} is {size}, given were {}", said.given);
                self.first_difference.get_or_insert(what);
            }
        }
    }
}

/// What ekiden says that a buffer was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Said {
    ends: Ends,
    sends: bool,
    given: u64,
}

/// The explicit sizes in an answer of `explain`; what the kernel tunes has none.
fn grants(told: &Value) -> Vec<Said> {
    let ends = |side: &Value| -> Option<Ends> {
        let legs = told.pointer("/connection/legs")?.as_array()?;
        let leg = legs.iter().find(|leg| leg["side"] == *side)?;
        let address = |end: &str| leg[end].as_str()?.parse().ok();
        Some((address("local")?, address("peer")?))
    };
    let legs = told["legs"].as_array().into_iter().flatten();
    let of_leg = |leg: &Value| -> Vec<Said> {
        let Some(ends) = ends(&leg["side"]) else { return Vec::new() };
        let buffers = leg["buffers"].as_array().into_iter().flatten();
        let said = |buffer: &Value| {
            Some(Said { ends, sends: buffer["side"] == "send", given: buffer["given"].as_u64()? })
        };
        buffers.filter_map(said).collect()
    };
    legs.flat_map(of_leg).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said() -> Vec<Said> {
        grants(&json!({
            "connection": { "legs": [
                { "side": "client", "local": "100.127.0.1:1", "peer": "100.127.0.2:2" },
                { "side": "upstream", "local": null, "peer": null }
            ]},
            "legs": [
                { "side": "client", "buffers": [
                    { "side": "send", "grant": 9_000, "given": 9_216 },
                    { "side": "receive", "grant": null, "given": null }
                ]},
                { "side": "upstream", "buffers": [{ "side": "send", "given": 1 }] }
            ]
        }))
    }

    #[test]
    fn explicit_sizes_of_known_sockets_are_what_is_compared() {
        let ends = ("100.127.0.1:1".parse().unwrap(), "100.127.0.2:2".parse().unwrap());
        assert_eq!(said(), [Said { ends, sends: true, given: 9_216 }]);
    }

    #[test]
    fn a_difference_is_noticed_and_a_change_is_none() {
        let ends = said()[0].ends;
        let sized = |tb| BTreeMap::from([(ends, Memory { tb, rb: 100, r: 5, w: 6, t: 7 })]);
        let look =
            |before, after| Look { before: sized(before), said: said(), after: sized(after) };
        let mut ticks = Ticks::default();
        let mut add = |look: Look| {
            let differing = look.differing();
            ticks.add(&look, &differing);
            (ticks.compared, ticks.differing, ticks.changing)
        };
        assert_eq!(add(look(9_216, 9_216)), (1, 0, 0));
        assert_eq!(add(look(9_000, 9_216)), (1, 0, 1));
        assert_eq!(add(look(9_000, 9_000)), (2, 1, 1));
        assert!(ticks.first_difference.is_some_and(|text| text.contains("9216")));
        assert_eq!((ticks.ticks, ticks.most_given, ticks.most_used), (3, 9_316, 18));
    }
}
