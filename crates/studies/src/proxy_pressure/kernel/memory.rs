//! 200 downloads that share 16 MiB of socket buffers.
//!
//! ```text
//! 8 downloads each ── 25 links, 1–20 Mbit/s, 10–600 ms, queue 50 ms ── proxy ── 1 Gbit/s, 2 ms ── server
//! ```
//! Each second, what `ss -tm` shows both before and after is compared with ekiden's own figures in between. A
//! difference counts if a second look shows it too, because sizes change while connections come.

use super::sockets::{self, Ends, Memory};
use super::star::{self, FarHost, HUB};
use crate::kernel::hosts::{host, place};
use crate::kernel::verdict::{self, Processors};
use ekiden_emulator::topology::{Host, Topology, TopologyPlan};
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{During, EngineError, Outcome};
use ekiden_lab::statistics::quantile;
use ekiden_model::units::{Bytes, Rate, Share, Span};
use ekiden_simulator::random::Substreams;
use ekiden_testbed::load::documents::Documents;
use ekiden_testbed::load::fetch::{Fetched, fetch};
use ekiden_testbed::peers::control::Control;
use ekiden_testbed::peers::{Start, ekiden};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const NETWORK: &str = "the network";
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
        FarHost { name, rate, delay, loss: Share::NONE, queue, super_packets: false }
    };
    let server = FarHost {
        name: "server".to_owned(),
        rate: NEAR.0,
        delay: NEAR.1,
        loss: Share::NONE,
        queue: star::queue_of(NEAR.0, QUEUE),
        super_packets: true,
    };
    star::plan(&(0..LINKS).map(far).chain([server]).collect::<Vec<_>>(), seed)
}

pub(super) fn run(cell: &Cell, seed: u64, binary: &Path) -> Result<Outcome, EngineError> {
    let clients: usize = cell.value("clients")?;
    let budget: Bytes = cell.value("pool")?;
    let duration: Span = cell.value("duration")?;
    let plan = network(seed);
    let topology = Topology::build(&plan).during(NETWORK)?;
    let server = SocketAddr::from((host(&topology, "server")?.address(), 80));
    let serve = || Documents::serve(&[server]);
    let servers = host(&topology, "server")?.run(serve).during(NETWORK)?.during(NETWORK)?;
    let hub = host(&topology, HUB)?;
    let place = place(hub).during(NETWORK)?;
    let start = Start { place: Some(place), ..Start::default() };
    let proxy = ekiden::start_asked(&start, binary, &settings(cell, budget)?)?;
    let control = ekiden::control(&proxy);

    let begin = Instant::now();
    let end = begin + Duration::from(duration);
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
    let mut outcome = Outcome::of(rates.iter().sum());
    let links: u64 = plan.links.iter().take(LINKS).map(rate).sum();
    outcome.add_figures([
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
    ]);
    ticks
        .first_difference
        .into_iter()
        .for_each(|first| outcome.add_fact("first difference", first));
    drop(proxy);
    drop(servers);
    let links = topology.finish().during("the links")?;
    (outcome.fidelity, outcome.reasons) = verdict::judge(&links, busy);
    Ok(outcome)
}

fn rate(link: &ekiden_emulator::topology::LinkPlan) -> u64 {
    match &link.backward.serialiser {
        ekiden_model::network::link::Serialiser::Rate(rate) => rate.as_bits_per_second(),
        _ => 0,
    }
}

fn settings(cell: &Cell, budget: Bytes) -> Result<String, EngineError> {
    Ok(match cell.text("scheme")? {
        "kernel" => String::new(),
        "E2-ATBT" => format!("[buffers]\nbudget = \"{budget}\"\n"),
        "fixed 20 KiB" => "[buffers]\nscheme = \"fixed\"\ninitial = \"20 KiB\"\n".to_owned(),
        "fixed 64 KiB" => "[buffers]\nscheme = \"fixed\"\ninitial = \"64 KiB\"\n".to_owned(),
        other => return Err(cell.error("scheme", &format!("`{other}` is not known")).into()),
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
        begun.during("downloads")?.during("downloads")
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
    /// Buffers compared with ekiden's figures, those that differed, and those that changed meanwhile.
    compared: u64,
    differing: u64,
    changing: u64,
    first_difference: Option<String>,
}

/// Between the two, ekiden's own figures.
struct BufferSnapshot {
    before: BTreeMap<Ends, Memory>,
    message: Vec<BufferFigures>,
    after: BTreeMap<Ends, Memory>,
}

impl BufferSnapshot {
    fn take(host: &Host, control: &Control) -> Result<Self, EngineError> {
        let before = sockets::memory(host)?;
        let status = control.status().during("ekiden's control socket")?;
        let mut message = Vec::new();
        for connection in status["connections"].as_array().into_iter().flatten() {
            // a connection that has just ended has none
            if let Some(Ok(report)) = connection["id"].as_u64().map(|id| control.explain(id)) {
                message.extend(grants(&report));
            }
        }
        Ok(Self { before, message, after: sockets::memory(host)? })
    }

    /// The size that ss shows of a buffer, if it did not change meanwhile.
    fn size(&self, message: &BufferFigures) -> Option<u64> {
        let pick = |memory: &Memory| if message.sends { memory.tb } else { memory.rb };
        let sizes =
            self.before.get(&message.ends).map(pick).zip(self.after.get(&message.ends).map(pick));
        sizes.filter(|(before, after)| before == after).map(|(_, after)| after)
    }

    fn differing(&self) -> BTreeSet<(Ends, bool)> {
        let differs =
            |message: &&BufferFigures| self.size(message).is_some_and(|size| size != message.given);
        self.message.iter().filter(differs).map(|message| (message.ends, message.sends)).collect()
    }
}

impl Ticks {
    fn look(&mut self, host: &Host, control: &Control) -> Result<(), EngineError> {
        let first = BufferSnapshot::take(host, control)?;
        let differing = first.differing();
        let again = if differing.is_empty() {
            BTreeSet::new()
        } else {
            BufferSnapshot::take(host, control)?.differing()
        };
        self.add(&first, &differing.intersection(&again).copied().collect());
        Ok(())
    }

    fn add(&mut self, look: &BufferSnapshot, differing: &BTreeSet<(Ends, bool)>) {
        let BufferSnapshot { before, message, after } = look;
        self.ticks += 1;
        self.most_connections = self.most_connections.max(after.len() as u64);
        let given = |all: &BTreeMap<Ends, Memory>| all.values().map(|m| m.rb + m.tb).sum::<u64>();
        self.most_given = self.most_given.max(given(before)).max(given(after));
        let used = after.values().map(|memory| memory.r + memory.t + memory.w).sum();
        self.most_used = self.most_used.max(used);
        for message in message {
            let Some(size) = look.size(message) else {
                self.changing += 1;
                continue;
            };
            self.compared += 1;
            if differing.contains(&(message.ends, message.sends)) {
                self.differing += 1;
                let side = if message.sends { "tb" } else { "rb" };
                let what = format!("{side} is {size}, given were {}", message.given);
                self.first_difference.get_or_insert(what);
            }
        }
    }
}

/// The size that ekiden reports for a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BufferFigures {
    ends: Ends,
    sends: bool,
    given: u64,
}

/// The explicit sizes in an answer of `explain`; what the kernel tunes has none.
fn grants(report: &Value) -> Vec<BufferFigures> {
    let ends = |side: &Value| -> Option<Ends> {
        let legs = report.pointer("/connection/legs")?.as_array()?;
        let leg = legs.iter().find(|leg| leg["side"] == *side)?;
        let address = |end: &str| leg[end].as_str()?.parse().ok();
        Some((address("local")?, address("peer")?))
    };
    let legs = report["legs"].as_array().into_iter().flatten();
    let of_leg = |leg: &Value| -> Vec<BufferFigures> {
        let Some(ends) = ends(&leg["side"]) else { return Vec::new() };
        let buffers = leg["buffers"].as_array().into_iter().flatten();
        let message = |buffer: &Value| {
            Some(BufferFigures {
                ends,
                sends: buffer["side"] == "send",
                given: buffer["given"].as_u64()?,
            })
        };
        buffers.filter_map(message).collect()
    };
    legs.flat_map(of_leg).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn message() -> Vec<BufferFigures> {
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
        assert_eq!(message(), [BufferFigures { ends, sends: true, given: 9_216 }]);
    }

    #[test]
    fn counts_differences_but_not_changes() {
        let ends = message()[0].ends;
        let sized = |tb| BTreeMap::from([(ends, Memory { tb, rb: 100, r: 5, w: 6, t: 7 })]);
        let look = |before, after| BufferSnapshot {
            before: sized(before),
            message: message(),
            after: sized(after),
        };
        let mut ticks = Ticks::default();
        let mut add = |look: BufferSnapshot| {
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
