//! How long opening a connection takes over a link that loses handshakes: as the kernel does it, with each
//! remedy, and with all three.
//!
//! `cargo bench -p ekiden-studies --bench opening -- --ekiden target/release/ekiden [--json FILE]`
//!
//! Everything runs in namespaces of its own: a server, and for each remedy and each load a machine with a
//! relay, all behind links of their own with the same delay and loss. All are measured at the same time, so
//! that a machine that is slow for a while is slow for all. What is timed is a CONNECT to the relay on its
//! own machine, up to the answer; the time without loss is the round trip.

mod load;
mod network;
mod remedy;
mod sent;
mod table;

use clap::Parser;
use ekiden_lab::machine::Machine;
use ekiden_model::units::{Share, Span};
use ekiden_studies::comparison::command;
use ekiden_testbed::peers::ekiden;
use network::Cell;
use serde::Serialize;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

#[derive(Debug, Parser)]
#[command(about = "Opening connections over a lossy link, with each remedy")]
struct Arguments {
    /// The binary; otherwise EKIDEN_BIN, otherwise the newest in target
    #[arg(long)]
    ekiden: Option<PathBuf>,
    /// Loss in each direction, one after the other
    #[arg(long, value_delimiter = ',', default_values = ["5%", "10%"])]
    loss: Vec<Share>,
    /// Round-trip times
    #[arg(long, value_delimiter = ',', default_values = ["50ms"])]
    rtt: Vec<Span>,
    /// Openings by each relay
    #[arg(long, default_value_t = 1000)]
    openings: usize,
    /// Openings a second by each relay
    #[arg(long, default_value_t = 20)]
    rate: u32,
    /// Destinations of those relays that have many, each in a /24 of its own; 1 to 100. Not as many as
    /// openings a second: each would be opened once in the very second in which one extra SYN is permitted
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u8).range(1..=100))]
    destinations: u8,
    /// Every row, the machine, the version and the command go here
    #[arg(long)]
    json: Option<PathBuf>,
    #[arg(long, hide = true)]
    bench: bool, // cargo adds it
}

/// What is kept of a run.
#[derive(Debug, Serialize)]
struct Record {
    command: Vec<String>,
    machine: Machine,
    version: String,
    openings: usize,
    rate: u32,
    destinations: u8,
    rows: Vec<table::Row>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // first of all: it must find one thread alone
    if let Err(denied) = ekiden_linux::namespaces::sandbox::enter() {
        eprintln!("opening: {denied}");
        return ExitCode::FAILURE;
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("opening: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let binary = arguments.ekiden.clone().or_else(ekiden::binary);
    let binary = binary.ok_or("there is no ekiden: build it, or name it with --ekiden")?;
    let binary = binary.canonicalize().map_err(|e| format!("{}: {e}", binary.display()))?;
    let version = Command::new(&binary).arg("--version").output()?;
    let mut record = Record {
        command: command(),
        machine: Machine::read(),
        version: String::from_utf8_lossy(&version.stdout).trim().to_owned(),
        openings: arguments.openings,
        rate: arguments.rate.max(1),
        destinations: arguments.destinations,
        rows: Vec::new(),
    };
    for rtt in &arguments.rtt {
        for loss in &arguments.loss {
            eprintln!(
                "opening: {rtt}, {loss}: about {} s",
                arguments.openings / record.rate as usize + 15
            );
            let cell = Cell { rtt: *rtt, loss: *loss, destinations: arguments.destinations };
            record.rows.extend(cell.measure(&binary, arguments.openings, record.rate)?);
        }
    }
    print!("{}", table::of(&record.rows));
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string(&record)? + "\n")?;
    }
    Ok(())
}
