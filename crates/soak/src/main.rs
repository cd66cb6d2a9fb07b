//! Traffic through every door and leg for hours, while faults happen that a seed has drawn.
//!
//! `make soak HOURS=2 SEED=1`
//!
//! Two relays with a tunnel, clients, servers and a name server run in namespaces of their own, which vanish with the
//! program, however it ends. Every byte is compared with the one that was sent; every account's usage with what clients
//! and servers counted. A transfer may break where a fault explains it ([`laws`]). At the end relays run undisturbed by
//! kills for long enough that growth shows ([`slope`]).

#![cfg_attr(test, allow(clippy::unwrap_used))] // a test that cannot go on panics

mod books;
mod doors;
mod exchange;
mod faults;
mod inject;
mod laws;
mod ledger;
mod network;
mod origin;
mod relays;
mod run;
mod slope;
mod summary;
mod watch;

use clap::Parser;
use ekiden_model::units::{Rate, Span};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "ekiden-soak", about = "Traffic through every door and leg while faults happen")]
pub(crate) struct Arguments {
    /// How long traffic runs, in hours; 0.05 is three minutes
    #[arg(long, default_value_t = 0.05)]
    hours: f64,
    /// All faults and transfers follow from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Mean time between two faults
    #[arg(long, default_value = "13 s")]
    every: Span,
    /// What all clients together are to move, both directions
    #[arg(long, default_value = "280 Mbit/s")]
    rate: Rate,
    /// Fails below this rate: what was moved, both directions, over the whole run
    #[arg(long)]
    at_least: Option<Rate>,
    /// The daemon; otherwise EKIDEN_BIN, otherwise the newest in target
    #[arg(long)]
    ekiden: Option<PathBuf>,
    /// The summary goes here, too, as JSON
    #[arg(long)]
    json: Option<PathBuf>,
    /// Keeps the logs of both relays in this folder
    #[arg(long)]
    logs: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // first of all: it must find one thread alone
    let sandbox = match ekiden_linux::namespaces::sandbox::enter() {
        Ok(sandbox) => sandbox,
        Err(denied) => {
            eprintln!("soak: {denied}");
            return ExitCode::FAILURE;
        }
    };
    match run::run(&arguments, &sandbox) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}
