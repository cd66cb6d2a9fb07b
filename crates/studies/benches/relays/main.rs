//! Ekiden beside squid, dante, HAProxy, nginx and microsocks: same run, same processor.
//!
//! `cargo bench -p ekiden-studies --bench relays -- --help`
//!
//! Rounds are interleaved and their order rotates, so that a machine that slows down for a minute slows
//! everybody down. What it prints are medians over rounds, their spread, and ratios.

mod comparison;
mod namespace;
mod table;

use clap::Parser;
use comparison::{CONCURRENT, Contestant, Effort, Row, Test, measure};
use ekiden_lab::machine::Machine;
use ekiden_testbed::limits;
use ekiden_testbed::load::generator::Servers;
use ekiden_testbed::peers::{Peer, Start, ekiden};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Parser)]
#[command(about = "Ekiden beside its peers: same run, same processor")]
struct Arguments {
    /// Short windows, two rounds, 1,000 idle connections: to see that it works
    #[arg(long)]
    quick: bool,
    /// Which tests: bulk1, bulk100, connects, idle
    #[arg(long, value_delimiter = ',', value_parser = test)]
    only: Vec<Test>,
    /// Which relays; a beginning is enough: squid, dante, haproxy, nginx, microsocks, tinyproxy,
    /// sing-box, ekiden
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Length of each measured window
    #[arg(long)]
    seconds: Option<f64>,
    /// Rounds
    #[arg(long)]
    repeats: Option<usize>,
    /// Idle connections; at most half the descriptors a process may have
    #[arg(long)]
    idle: Option<usize>,
    /// The binary; otherwise EKIDEN_BIN, otherwise the newest in target
    #[arg(long)]
    ekiden: Option<PathBuf>,
    /// Raw rows, machine, versions and command go here
    #[arg(long)]
    json: Option<PathBuf>,
    /// Run in a network namespace whose default congestion control is this one, e.g. cubic: bbr,
    /// where a machine defaults to it, paces every socket by timers. Needs root
    #[arg(long)]
    congestion: Option<String>,
    #[arg(long, hide = true)]
    bench: bool, // cargo adds it
}

fn test(text: &str) -> Result<Test, String> {
    Test::ALL
        .into_iter()
        .find(|t| t.name() == text)
        .ok_or_else(|| format!("no such test; there are {}", Test::ALL.map(Test::name).join(", ")))
}

/// The command as somebody else would type it: without the folders of this machine.
fn command() -> Vec<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/");
    let root = root.strip_suffix("crates/studies/").unwrap_or(root);
    std::env::args().map(|word| word.replace(root, "")).collect()
}

/// What is kept of a run.
#[derive(Debug, Serialize)]
struct Record {
    command: Vec<String>,
    machine: Machine,
    /// Of every socket nobody asked for another.
    congestion_control: String,
    relay_cpu: Option<usize>,
    generator_cpu: Option<usize>,
    effort: Effort,
    versions: BTreeMap<&'static str, String>,
    skipped: BTreeMap<&'static str, String>,
    rows: Vec<Row>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.congestion {
        Some(name) if !namespace::is_inside() => namespace::run_inside(name),
        _ => run(&arguments).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(e) => {
            eprintln!("relays: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let contestants = contestants(&arguments.peers)?;
    let tests = if arguments.only.is_empty() { Test::ALL.to_vec() } else { arguments.only.clone() };
    let lock = lock()?;
    let descriptors = limits::raise_descriptors(65_536);
    let quick = arguments.quick;
    let wanted = arguments.idle.unwrap_or(if quick { 1_000 } else { 10_000 });
    // Two descriptors a tunnel at the relay and two here. Ekiden keeps some for its own work, and squid more.
    let idle = wanted.min(usize::try_from(descriptors.saturating_sub(2_000) / 2)?);
    if idle < wanted && tests.contains(&Test::Idle) {
        eprintln!(
            "relays: {descriptors} descriptors allowed (hard limit): {idle} idle connections, not {wanted}"
        );
    }
    let effort = Effort {
        seconds: arguments.seconds.unwrap_or(if quick { 1.0 } else { 5.0 }),
        warm_up: if quick { 0.5 } else { 1.5 },
        idle,
    };
    let repeats = arguments.repeats.unwrap_or(if quick { 2 } else { 5 }).max(1);
    let cpus = limits::cpus();
    let (generator_cpu, relay_cpu) = (cpus.first().copied(), cpus.last().copied());
    if generator_cpu == relay_cpu {
        eprintln!("relays: one processor only: relay and generator share it");
    }
    let mut record = Record {
        command: command(),
        machine: Machine::read(),
        congestion_control: arguments.congestion.clone().unwrap_or_else(namespace::default_control),
        relay_cpu,
        generator_cpu,
        effort,
        versions: BTreeMap::new(),
        skipped: BTreeMap::new(),
        rows: Vec::new(),
    };
    if let Some(cpu) = generator_cpu {
        limits::pin(cpu)?;
    }
    let binary = arguments.ekiden.clone().or_else(ekiden::binary);
    let mut stage = Stage {
        start: Start { cpu: relay_cpu, ..Start::default() },
        binary,
        repeats,
        record: &mut record,
    };
    for test in tests {
        stage.play(test, &contestants)?;
    }
    drop(lock);
    print!("{}", heading(&record));
    for test in Test::ALL {
        print!("{}", table::of(test, &record.rows));
    }
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(&record)? + "\n")?;
    }
    Ok(())
}

fn contestants(names: &[String]) -> Result<Vec<Contestant>, String> {
    if names.is_empty() {
        return Ok(Contestant::ALL.to_vec());
    }
    let named = |name: &String, one: &Contestant| one.name.starts_with(name.as_str());
    if let Some(name) = names.iter().find(|name| !Contestant::ALL.iter().any(|c| named(name, c))) {
        let all = Contestant::ALL.map(|contestant| contestant.name).join(", ");
        return Err(format!("no peer {name}; there are {all}"));
    }
    let chosen = |one: &Contestant| names.iter().any(|name| named(name, one));
    Ok(Contestant::ALL.into_iter().filter(chosen).collect())
}

/// Two benchmarks at once would measure each other.
fn lock() -> std::io::Result<File> {
    let file = File::create(std::env::temp_dir().join("ekiden-bench.lock"))?;
    if file.try_lock().is_err() {
        eprintln!("relays: another benchmark runs here; waiting for its end");
        file.lock()?;
    }
    Ok(file)
}

fn heading(record: &Record) -> String {
    let machine = &record.machine;
    let mut text = format!(
        "{} · {} cores · Linux {} · load {:.1} before · congestion control {}\nrelay on CPU {:?}, generator on CPU {:?}; one worker each; windows of {} s; connects: {CONCURRENT} at a time, client closes with RST\n",
        machine.cpu,
        machine.cores,
        machine.kernel,
        machine.load,
        record.congestion_control,
        record.relay_cpu.unwrap_or(0),
        record.generator_cpu.unwrap_or(0),
        record.effort.seconds,
    );
    for (peer, version) in &record.versions {
        text += &format!("  {peer}: {version}\n");
    }
    for (peer, why) in &record.skipped {
        text += &format!("  SKIPPED {peer}: {why}\n");
    }
    text
}

struct Stage<'a> {
    start: Start,
    binary: Option<PathBuf>,
    repeats: usize,
    record: &'a mut Record,
}

impl Stage<'_> {
    fn play(&mut self, test: Test, contestants: &[Contestant]) -> std::io::Result<()> {
        let mut servers = Servers::new(test.load())?;
        // Memory is not noisy, and each round of it takes a fresh process.
        let rounds = if test == Test::Idle { self.repeats.min(2) } else { self.repeats };
        let mut running: Vec<(Contestant, Peer)> = Vec::new();
        if test != Test::Idle {
            for contestant in contestants {
                running.extend(self.begin(*contestant, &servers).map(|p| (*contestant, p)));
            }
        }
        let bar = ProgressBar::new((rounds * contestants.len()) as u64);
        let style = ProgressStyle::with_template("{msg:32} {wide_bar} {pos}/{len} {eta}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        for round in 0..rounds {
            for n in 0..contestants.len() {
                let contestant = contestants[(n + round) % contestants.len()];
                bar.set_message(format!("{} {}", test.name(), contestant.name));
                bar.inc(1);
                let fresh;
                let peer = if test == Test::Idle {
                    fresh = self.begin(contestant, &servers);
                    fresh.as_ref()
                } else {
                    running.iter().find(|(c, _)| c.name == contestant.name).map(|(_, p)| p)
                };
                let Some(peer) = peer else { continue };
                let effort = self.record.effort;
                let (back, row) = measure(test, contestant, peer, servers, effort, round);
                servers = match back {
                    Some(servers) => servers,
                    None => Servers::new(test.load())?,
                };
                match row {
                    Ok(row) => self.record.rows.push(row),
                    Err(e) => self.failed(test, contestant, &e),
                }
                // Let the relay see its connections reset before the next one is measured.
                std::thread::sleep(Duration::from_millis(300));
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn begin(&mut self, contestant: Contestant, servers: &Servers) -> Option<Peer> {
        match contestant.start(&self.start, servers, self.binary.as_deref()) {
            Ok(peer) => {
                self.record.versions.insert(contestant.name, peer.version.clone());
                Some(peer)
            }
            Err(e) => {
                if !self.record.skipped.contains_key(contestant.name) {
                    eprintln!("relays: SKIPPED {}: {e}", contestant.name);
                }
                self.record.skipped.insert(contestant.name, e.to_string());
                None
            }
        }
    }

    fn failed(&mut self, test: Test, contestant: Contestant, error: &std::io::Error) {
        let (test, name) = (test.name(), contestant.name);
        eprintln!("relays: FAILED {test} {name}: {error}");
        let before = self.record.skipped.entry(name).or_default();
        if !before.contains(test) {
            *before += &format!("{test} failed: {error}. ");
        }
    }
}
