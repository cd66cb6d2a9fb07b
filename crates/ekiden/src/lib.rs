//! The command `ekiden`: arguments, configuration, wiring, printing. Whatever can be decided without
//! it is decided in the other crates; this one never relays a byte.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))] // a test may fail loudly

pub mod cli;
pub mod client;
pub mod config;
pub mod control;
pub mod doctor;
pub mod exit;
pub mod explain;
mod households;
pub mod lab;
mod limits;
pub mod link;
pub mod logging;
mod management;
mod print;
mod programs;
mod relay;
mod reload;
pub mod serve;
mod state;
pub mod status;
mod token;
pub mod top;
mod used;
mod user;
pub mod user_args;
mod user_document;

use clap::{CommandFactory as _, Parser as _};
use cli::{Cli, Command, ConfigCommand};
use config::Overrides;
use print::{out, warn};
use status::count;
use std::process::ExitCode;

/// Runs the command that the arguments name.
#[must_use]
pub fn run() -> ExitCode {
    let code = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Check(args) => check(&args),
        Command::Config(ConfigCommand::Show { config, defaults, json }) => {
            show(&config, defaults, json)
        }
        Command::Config(ConfigCommand::Example) => out(&config::example()),
        Command::Doctor(args) => examine(args),
        Command::Status(args) => status::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Relay(command) => relay::run(command),
        Command::Bpf(command) => programs::run(&command),
        Command::User(command) => user::run(command),
        Command::Token(command) => token::run(&command),
        Command::Link(args) => link::run(&args),
        Command::Lab(command) => lab::run(command),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "ekiden", &mut script);
            out(&String::from_utf8_lossy(&script))
        }
        Command::Man => man(),
    };
    ExitCode::from(code)
}

fn examine(args: cli::Doctor) -> u8 {
    let running = match running(args.socket.as_deref()) {
        Ok(running) => running,
        Err(error) => {
            warn(&format!("ekiden doctor: {error}\n"));
            return exit::NOT_FINE;
        }
    };
    // an address has a port; a relay with a tunnel is known by its name
    let (with, relay) = match args.with {
        Some(name) if !name.contains(':') => (None, Some(name)),
        with => (with, None),
    };
    let tunnel = match relay.map(|relay| measure(args.socket.as_deref(), &relay)).transpose() {
        Ok(tunnel) => tunnel,
        Err(error) => {
            warn(&format!("ekiden doctor: {error}\n"));
            return exit::NOT_FINE;
        }
    };
    let (json, apply, persist) = (args.json, args.apply, args.persist);
    let options = doctor::DoctorOptions { json, apply, persist, with, tunnel, running };
    match doctor::run(options, &mut std::io::stdout().lock()) {
        Ok(true) => exit::FINE,
        Ok(false) => exit::NOT_FINE,
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => exit::FINE,
        Err(error) => {
            warn(&format!("ekiden doctor: {error}\n"));
            exit::NOT_FINE
        }
    }
}

/// The daemon of this machine, if one answers; where its socket was named, it must.
fn running(
    socket: Option<&std::path::Path>,
) -> Result<Option<ekiden_proxy::status::Status>, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(client::status(socket)) {
        Ok((status, _)) => Ok(Some(status)),
        Err(error) if socket.is_some() => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// Has the daemon measure its tunnel to a relay.
fn measure(
    socket: Option<&std::path::Path>,
    relay: &str,
) -> Result<ekiden_proxy::status::Measured, Box<dyn std::error::Error>> {
    if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        warn(&format!("measuring the tunnel to «{relay}», some ten seconds …\n"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(client::measure(socket, relay))?;
    measured.ok_or_else(|| "the daemon cannot measure tunnels; is it of this version?".into())
}

fn check(args: &cli::Check) -> u8 {
    let loaded = config::load(args.file.as_deref(), &Overrides::default());
    let reading = &loaded.reading;
    let code = if reading.is_usable() { exit::FINE } else { exit::NOT_FINE };
    let file = loaded.file.as_ref().map(|file| file.display().to_string());
    if args.json {
        let document = serde_json::json!({
            "file": file, "usable": reading.is_usable(), "problems": reading.problems,
        });
        return out(&format!("{document:#}\n")).max(code);
    }
    let mut text = config::render_all(&reading.problems);
    let errors = reading.problems.iter().filter(|problem| problem.is_error()).count();
    let warnings = reading.problems.len() - errors;
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(&match (&file, reading.problems.len()) {
        (None, 0) => "no configuration file: the defaults hold\n".to_owned(),
        (Some(file), 0) => format!("{file}: no problems\n"),
        (file, _) => {
            let file = file.as_deref().unwrap_or("no file");
            format!(
                "{file}: {}, {}\n",
                count(errors as u64, "error"),
                count(warnings as u64, "warning")
            )
        }
    });
    out(&text).max(code)
}

fn show(args: &cli::ConfigArgs, defaults: bool, json: bool) -> u8 {
    let loaded = if defaults {
        config::Loaded { file: None, reading: config::read("", "") }
    } else {
        config::load(args.config.as_deref(), &args.overrides())
    };
    let file = loaded.file.as_ref().map(|file| file.display().to_string());
    let reading = &loaded.reading;
    // what does not hold is not shown as if it did
    if !reading.is_usable() {
        warn(&config::render_all(&reading.problems));
        return exit::NOT_FINE;
    }
    if json {
        out(&format!("{:#}\n", config::show_json(reading, file.as_deref())))
    } else {
        out(&config::show(reading, file.as_deref()))
    }
}

fn man() -> u8 {
    let mut page = Vec::new();
    let mut command = Cli::command();
    command.build();
    let result = clap_mangen::Man::new(command.clone()).render(&mut page).and_then(|()| {
        let mut queue: Vec<clap::Command> = command.get_subcommands().cloned().collect();
        queue.reverse();
        while let Some(sub) = queue.pop() {
            if sub.get_name() == "help" {
                continue;
            }
            let name = sub.get_bin_name().unwrap_or_default().to_uppercase();
            page.extend_from_slice(format!(".SH \"{name}\"\n").as_bytes());
            let man = clap_mangen::Man::new(sub.clone());
            if let Some(about) = sub.get_about() {
                page.extend_from_slice(format!("{about}.\n").as_bytes());
            }
            let mut part = Vec::new();
            man.render_synopsis_section(&mut part)?;
            man.render_options_section(&mut part)?;
            // sections of a command within the page are subsections
            page.extend_from_slice(
                String::from_utf8_lossy(&part).replace(".SH ", ".SS ").as_bytes(),
            );
            queue.extend(sub.get_subcommands().cloned().collect::<Vec<_>>().into_iter().rev());
        }
        Ok(())
    });
    match result {
        Ok(()) => out(&String::from_utf8_lossy(&page)),
        Err(error) => {
            warn(&format!("the manual page cannot be made: {error}\n"));
            exit::NOT_FINE
        }
    }
}
