//! The command `ekiden`: arguments, configuration, wiring, printing. Decisions belong to the other crates; this one
//! never relays a byte.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))] // a test may fail loudly

mod cli;
mod commands;
mod daemon;
mod exit;
mod print;
mod setup;
#[cfg(test)]
mod testing;

use clap::Parser as _;
use cli::{Cli, Command, ConfigCommand, Rest};
use print::{out, warn};
use std::process::ExitCode;

/// Runs the command that the arguments name.
pub fn run() -> ExitCode {
    if let Some(code) = retired() {
        return ExitCode::from(code);
    }
    let code = match Cli::parse().command {
        Command::Serve(args) => daemon::start::run(&args),
        Command::Init(args) => commands::init::run(*args),
        Command::Check(args) => commands::config::check(&args),
        Command::Config(ConfigCommand::Show { config, defaults, json }) => {
            commands::config::show(&config, defaults, json)
        }
        Command::Config(ConfigCommand::Example) => out(&ekiden_config::example()),
        Command::Doctor(args) => commands::doctor::command(args),
        Command::Status(args) => commands::status::run(&args),
        Command::Alerts(command) => commands::status::alerts::run(&command),
        #[cfg(feature = "tui")]
        Command::Top(args) => commands::top::run(&args),
        #[cfg(not(feature = "tui"))]
        Command::Top(_) => without("top", "tui"),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Peer(command) => commands::peer::run(command),
        Command::Bpf(command) => commands::kernel::bpf::run(&command),
        Command::Gateway(command) => commands::kernel::gateway::run(&command),
        Command::Account(command) => commands::account::run(command),
        Command::Token(command) => commands::management::token::run(&command),
        Command::Operator(command) => commands::management::operator::run(&command),
        #[cfg(feature = "lab")]
        Command::Link(args) => commands::lab::link::run(&args),
        #[cfg(feature = "lab")]
        Command::Lab(command) => commands::lab::run(command),
        #[cfg(not(feature = "lab"))]
        Command::Link(_) => without("link", "lab"),
        #[cfg(not(feature = "lab"))]
        Command::Lab(_) => without("lab", "lab"),
        Command::Completions { shell } => commands::man::completions(shell),
        Command::Man => commands::man::man(),
    };
    ExitCode::from(code)
}

/// A command whose feature was left out of this program.
#[cfg(not(all(feature = "lab", feature = "tui")))]
fn without(command: &str, feature: &str) -> u8 {
    warn(&format!(
        "ekiden {command}: this program was built without the feature `{feature}`; build it with \
         --features {feature}\n"
    ));
    exit::USAGE
}

/// Refuses a command that has a new name. Clap does not know the old ones, or it would suggest them.
fn retired() -> Option<u8> {
    let mut words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let old = words.next()?;
    let new = match old.as_str() {
        "user" => "account",
        "relay" => "peer",
        _ => return None,
    };
    Some(renamed(&old, new, &Rest { rest: words.collect() }))
}

fn renamed(old: &str, new: &str, rest: &Rest) -> u8 {
    warn(&format!(
        "ekiden {old}: this command is now `ekiden {new}`; try: {}\n",
        rest.renamed(new)
    ));
    exit::USAGE
}
