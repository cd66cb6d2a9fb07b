//! `ekiden lab`: hands the arguments to the laboratory and prints what it answers.

pub(crate) mod link;

use crate::cli::lab::{LabCommand, LabRecord, LabRun};
use crate::commands::finished;
use crate::exit;
use crate::print::out;
use ekiden_lab::classify::{self, Options};
use ekiden_lab::command::record::{self, At, Record};
use ekiden_lab::command::{self, Answer, Run};
use ekiden_lab::engine::Engine;
use ekiden_lab::engine::sim::{self, Simulated};
use ekiden_lab::plan::Choice;
use ekiden_lab::runner as batch;
use ekiden_lab::study::Study;
use ekiden_linux::namespaces::sandbox;
use ekiden_studies::kernel::{self, Kernel};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// Does what the arguments say; returns the exit code.
pub(crate) fn run(command: LabCommand) -> u8 {
    ekiden_studies::register();
    let strict = match &command {
        LabCommand::Run(arguments) => arguments.strict,
        LabCommand::Report { strict, .. } => *strict,
        _ => false,
    };
    let answer = match command {
        LabCommand::List { json } => command::list(json),
        LabCommand::Run(arguments) => experiment(*arguments),
        LabCommand::Record(arguments) => one_run(*arguments),
        LabCommand::Report { folder, plan, json, .. } => {
            command::report(&folder, plan.as_deref(), json)
        }
        LabCommand::Classify { capture, server, threshold, json } => {
            classify::command(&capture, &Options { server, threshold }, json)
        }
    };
    let code = |fine| if fine { exit::FINE } else { exit::NOT_FINE };
    finished(
        "lab",
        answer.map(|Answer { text, complete, holds }| {
            out(&text).max(code(complete && (holds || !strict)))
        }),
    )
}

fn experiment(arguments: LabRun) -> Result<Answer, String> {
    let version = command::version(env!("CARGO_PKG_VERSION")).map_err(|error| error.to_string())?;
    let asked = Run {
        experiment: arguments.name,
        engine: arguments.engine,
        options: batch::Options {
            choice: Choice {
                quick: arguments.quick,
                peers: arguments.peers,
                only: arguments.only,
                repetitions: arguments.repetitions,
                engine: None,
            },
            seed: arguments.seed,
            keep: arguments.keep,
            version,
            command: typed(),
            ..batch::Options::default()
        },
        jobs: arguments.jobs,
        out: arguments.out,
        json: arguments.json,
    };
    command::run(&asked, &engine, stop_on_signals()?)
}

fn one_run(arguments: LabRecord) -> Result<Answer, String> {
    record::record(&Record {
        experiment: arguments.name,
        only: arguments.only,
        cell: arguments.cell,
        repetition: arguments.repetition,
        seed: arguments.seed,
        packets: arguments.packets,
        pcap: arguments.pcap,
        at: if arguments.at == "receiver" { At::Receiver } else { At::Sender },
        flows: arguments.flows,
        json: arguments.json,
        command: typed(),
    })
}

/// The engine of this name for a study. Nothing has started a thread when it is made, so that the program can move
/// to namespaces of its own, where engine `kernel` makes its networks.
fn engine(name: &str, study: &'static dyn Study) -> Result<Box<dyn Engine + Send>, String> {
    if name == sim::NAME {
        return Ok(Box::new(Simulated(study))); // nothing of this machine: no namespaces
    }
    if name != kernel::NAME {
        return Err(format!("engine `{name}` is not available"));
    }
    alone()?;
    let sandbox = sandbox::enter().map_err(|denied| denied.to_string())?;
    // files to serve, and what squid leaves there: gone with the program, however it ends
    let memory = Path::new(kernel::MEMORY);
    sandbox
        .memory(memory)
        .map_err(|error| format!("a file system in {}: {error}", kernel::MEMORY))?;
    let ekiden = std::env::current_exe().map_err(|error| error.to_string())?;
    Ok(Box::new(Kernel::new(study, &ekiden).map_err(|error| error.to_string())?))
}

/// Refuses to measure beside another that measures: each would be the other's noise. The name is this
/// network namespace's, so it is gone with its holder, however that ends.
fn alone() -> Result<(), String> {
    static HELD: OnceLock<UnixListener> = OnceLock::new();
    if HELD.get().is_some() {
        return Ok(());
    }
    let address = SocketAddr::from_abstract_name("ekiden lab: engine kernel");
    match address.and_then(|address| UnixListener::bind_addr(&address)) {
        Ok(listener) => {
            HELD.get_or_init(|| listener);
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err("another `ekiden lab run` measures on this machine, and two would disturb each \
                 other; wait until it has ended"
                .to_owned())
        }
        Err(error) => Err(format!("cannot find out whether another run is measuring: {error}")),
    }
}

/// The first Ctrl-C lets the run that is being made be the last; the second ends at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>, String> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let armed = signal_hook::flag::register_conditional_default(signal, stop.clone());
        let set = armed.and_then(|_| signal_hook::flag::register(signal, stop.clone()));
        set.map_err(|error| format!("signals cannot be handled: {error}"))?;
    }
    Ok(stop)
}

/// The command as somebody else would type it: without the folders of this machine.
fn typed() -> String {
    let words = std::env::args().skip(1);
    std::iter::once("ekiden".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
