//! Ekiden beside squid, dante, HAProxy, nginx, microsocks, tinyproxy and sing-box: same run, same processor.
//!
//! `cargo bench -p ekiden-studies --bench relays -- --help`
//!
//! Rounds are interleaved and their order rotates, so that a machine that slows down for a minute slows
//! everybody down. What it prints are medians over rounds, their spread, and ratios.

mod comparison;
mod namespace;

use clap::Parser;
use comparison::{Contestant, Needs};
use ekiden_studies::comparison::{
    CONCURRENT, Effort, Record, Reference, Test, bar, chosen, default_control, lock, rounds, table,
};
use ekiden_testbed::certificate::Certificate;
use ekiden_testbed::limits;
use ekiden_testbed::load::generator::Servers;
use ekiden_testbed::peers::{Peer, Start, ekiden};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Parser)]
#[command(about = "Ekiden beside its peers: same run, same processor")]
struct Arguments {
    /// Short windows, two rounds, 1,000 idle connections: to see that it works
    #[arg(long)]
    quick: bool,
    /// Which tests: bulk1, bulk100, connects, idle, tls1, tls100, tls-connects
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
    Test::of_name(&Test::ALL, text)
}

/// The columns of ratios.
const REFERENCES: [Reference; 2] = [
    Reference { heading: "/best", has: |name| !name.starts_with("ekiden") },
    Reference { heading: "/squid", has: |name| name == "squid" },
];

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
    let contestants = chosen(&arguments.peers, &Contestant::ALL, |one| one.name)?;
    let tests = if arguments.only.is_empty() { Test::ALL.to_vec() } else { arguments.only.clone() };
    let lock = lock("relays")?;
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
    let control = arguments.congestion.clone().unwrap_or_else(default_control);
    let mut record = Record::new("relays", control, &cpus, effort);
    if let Some(cpu) = record.generator_cpu {
        limits::pin(cpu)?;
    }
    let binary = arguments.ekiden.clone().or_else(ekiden::binary);
    let mut stage = Stage {
        start: Start { cpu: record.relay_cpu, ..Start::default() },
        needs: Needs { binary, certificate: Certificate::new()? },
        repeats,
        record: &mut record,
    };
    for test in tests {
        stage.play(test, &contestants)?;
    }
    drop(lock);
    let how = format!("connects: {CONCURRENT} at a time, client closes with RST");
    print!("{}", record.heading(&how));
    for test in Test::ALL {
        print!("{}", table(test, &record.rows, &REFERENCES));
    }
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(&record)? + "\n")?;
    }
    Ok(())
}

struct Stage<'a> {
    start: Start,
    needs: Needs,
    repeats: usize,
    record: &'a mut Record,
}

impl Stage<'_> {
    fn play(&mut self, test: Test, contestants: &[Contestant]) -> std::io::Result<()> {
        let mut servers = Servers::new(test.load())?;
        let contestants: Vec<Contestant> =
            contestants.iter().filter(|one| one.is_in(test)).copied().collect();
        // Memory is not noisy, and each round of it takes a fresh process.
        let repeats = if test == Test::Idle { self.repeats.min(2) } else { self.repeats };
        let mut running: Vec<(Contestant, Peer)> = Vec::new();
        if test != Test::Idle {
            for contestant in &contestants {
                running.extend(self.begin(*contestant, &servers).map(|p| (*contestant, p)));
            }
        }
        let bar = bar(repeats * contestants.len());
        for (round, contestant) in rounds(repeats, &contestants) {
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
            let (back, row) = self.measure(test, contestant, peer, servers, round);
            servers = match back {
                Some(servers) => servers,
                None => Servers::new(test.load())?,
            };
            match row {
                Ok(row) => self.record.rows.push(row),
                Err(e) => self.record.fail(test.name(), contestant.name, &e),
            }
            // Let the relay see its connections reset before the next one is measured.
            std::thread::sleep(Duration::from_millis(300));
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn begin(&mut self, contestant: Contestant, servers: &Servers) -> Option<Peer> {
        match contestant.start(&self.start, servers, &self.needs) {
            Ok(peer) => {
                self.record.versions.insert(contestant.name, peer.version.clone());
                Some(peer)
            }
            Err(e) => {
                self.record.skip(contestant.name, &e);
                None
            }
        }
    }
}
