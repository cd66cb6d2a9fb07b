//! The emulator beside rattan: precision, rate, loss and speed, in the same run.
//!
//! `cargo bench -p ekiden-studies --bench link -- --ekiden target/release/ekiden [--json FILE]`, as root.
//!
//! The two take turns, and who begins changes with each repeat; what is printed are medians. Started
//! as `… probe ROLE`, the program is what runs at the ends of a link.

mod contestant;
mod cpu;
mod probe;
mod table;
mod test;

use clap::{Parser, Subcommand};
use contestant::Contestant;
use ekiden_lab::machine::Machine;
use ekiden_studies::comparison;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use test::{Row, Test};

#[derive(Debug, Parser)]
#[command(about = "The emulator beside rattan: same machine, same run")]
struct Arguments {
    #[command(subcommand)]
    role: Option<Role>,
    /// The binary
    #[arg(long, default_value = "target/release/ekiden")]
    ekiden: PathBuf,
    /// rattan's binary, looked for in PATH
    #[arg(long, default_value = "rattan")]
    rattan: PathBuf,
    /// Repeats
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Which tests; a beginning is enough: rtt, rate, loss, tcp
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// A tenth of everything, once: to see that it works
    #[arg(long)]
    quick: bool,
    /// Every row, the machine and the command go here
    #[arg(long)]
    json: Option<PathBuf>,
    #[arg(long, hide = true)]
    bench: bool, // cargo adds it
}

#[derive(Debug, Subcommand)]
enum Role {
    /// What runs at the ends of a link
    #[command(hide = true, subcommand)]
    Probe(probe::Probe),
}

/// What is kept of a run.
#[derive(Debug, Serialize)]
struct Record {
    command: Vec<String>,
    machine: Machine,
    versions: Vec<String>,
    skipped: Vec<String>,
    rows: Vec<Row>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.role {
        Some(Role::Probe(probe)) => probe.run().map_err(Into::into),
        None => run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("link: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    if !rustix::process::geteuid().is_root() {
        return Err("rattan needs root, and the receivers' buffers do: run as root".into());
    }
    let tests: Vec<Test> = test::all()
        .into_iter()
        .filter(|test| {
            arguments.only.is_empty() || arguments.only.iter().any(|o| test.name.starts_with(o))
        })
        .collect();
    let lock = comparison::lock("link")?;
    let mut record = Record {
        command: comparison::command(),
        machine: Machine::read(),
        versions: Vec::new(),
        skipped: Vec::new(),
        rows: Vec::new(),
    };
    let mut contestants = Vec::new();
    for contestant in [Contestant::ekiden(&arguments.ekiden), Contestant::rattan(&arguments.rattan)]
    {
        match contestant.version() {
            Ok(version) => {
                record.versions.push(version);
                contestants.push(contestant);
            }
            Err(why) => {
                let skipped = format!("SKIPPED {}: {why}", contestant.name());
                eprintln!("link: {skipped}");
                record.skipped.push(skipped);
            }
        }
    }
    let repeats = if arguments.quick { 1 } else { arguments.repeats.max(1) };
    for repeat in 0..repeats {
        for test in &tests {
            contestants.reverse();
            for contestant in contestants.iter().filter(|c| c.is_ekiden() || !test.ekiden_alone) {
                eprintln!("link: {}/{repeats} {} {}", repeat + 1, test.name, contestant.name());
                match test.measure(contestant, repeat, arguments.quick) {
                    Ok(row) => record.rows.push(row),
                    Err(e) => {
                        let failed = format!("FAILED {} {}: {e}", test.name, contestant.name());
                        eprintln!("link: {failed}");
                        record.skipped.push(failed);
                    }
                }
            }
        }
    }
    drop(lock);
    print!("{}{}", heading(&record), table::of(&tests, &record.rows));
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(&record)? + "\n")?;
    }
    Ok(())
}

fn heading(record: &Record) -> String {
    let machine = &record.machine;
    let mut text = format!(
        "{} · {} cores · Linux {} · load {:.1} before\n",
        machine.cpu, machine.cores, machine.kernel, machine.load,
    );
    for line in record.versions.iter().chain(&record.skipped) {
        text += &format!("  {line}\n");
    }
    text
}
