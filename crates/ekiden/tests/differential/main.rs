//! The same HTTP/1.1 bytes to Ekiden, nginx and squid, each in front of an origin that records what it receives; and the
//! same bytes from that origin. A finding is a stream that Ekiden passes on and another program frames differently:
//! such a stream must be refused.
//!
//! As a test: a few hundred cases of one seed. `make fuzz-http` runs more; `run --help` has its options.
#![allow(clippy::unwrap_used)] // a test that cannot go on panics

mod compare;
mod corpus;
mod findings;
mod programs;
mod recorder;
mod responses;
mod tricks;

use clap::Parser;
use compare::{Relation, compare};
use ekiden_testbed::peers::PeerError;
use findings::Summary;
use programs::{Doors, NAMES, Programs, Reading};
use responses::Script;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tricks::Case;

/// Sends the same HTTP/1.1 streams to Ekiden, nginx and squid, from clients and from origins, and compares what the other
/// side receives. Exits with 1 where Ekiden passed on what another program frames differently.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Options {
    /// How long, in seconds; without it, until `--cases` are done.
    #[arg(long)]
    seconds: Option<u64>,
    /// How many streams.
    #[arg(long, default_value_t = 400)]
    cases: u64,
    /// Streams follow from the seed and their number.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One stream alone, with all that the origins received.
    #[arg(long)]
    case: Option<u64>,
    /// Streams at a time.
    #[arg(long, default_value_t = 8)]
    workers: usize,
    /// One JSON object instead of a table.
    #[arg(long)]
    json: bool,
}

/// A program that says nothing for so long waits, perhaps.
const QUIET: Duration = Duration::from_millis(250);
/// Where that would be a finding, it is tried again with these: a busy machine is no finding. Among what the first
/// receives may be what came late of the reading before.
const SURELY: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(8), Duration::from_secs(30)];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        println!("what_others_frame_differently_is_refused: test");
        return ExitCode::SUCCESS;
    }
    // what `cargo test` passes to every test program is no option of this one
    let options = match arguments.split_first() {
        Some((first, rest)) if first == "run" => Options::parse_from(rest),
        _ => Options::parse_from([""; 0]),
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.unwrap();
    let _inside = runtime.enter();
    let programs = match Programs::start(options.workers.max(1)) {
        Ok(programs) => programs,
        Err(PeerError::Missing(program, package)) => {
            let in_ci = std::env::var_os("CI").is_some();
            let word = if in_ci { "FAILED" } else { "SKIPPED" };
            println!("{word}: {program} is not installed; on Debian: apt-get install {package}");
            return if in_ci { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
        Err(error) => {
            println!("FAILED: {error}");
            return ExitCode::FAILURE;
        }
    };
    if let Some(number) = options.case {
        return show(&programs, options.seed, number);
    }
    let summary = run(&programs, &options);
    if options.json {
        println!("{}", summary.json());
    } else {
        print!("{}", summary.table());
    }
    if summary.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(programs: &Programs, options: &Options) -> Summary {
    let begun = Instant::now();
    let (next, summary) =
        (AtomicU64::new(0), Mutex::new(Summary::new(options.seed, &programs.versions)));
    let over = |number| match options.seconds {
        Some(seconds) => begun.elapsed() >= Duration::from_secs(seconds),
        None => number >= options.cases,
    };
    thread::scope(|scope| {
        for doors in &programs.doors {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if over(number) {
                        return;
                    }
                    one(doors, options.seed, number, &summary);
                }
            });
        }
    });
    let mut summary = summary.into_inner().unwrap();
    summary.took = begun.elapsed();
    summary
}

/// Every second stream is an origin's.
fn stream(seed: u64, number: u64) -> (Case, Option<Script>) {
    if number.is_multiple_of(2) {
        return (tricks::case(seed, number), None);
    }
    let (case, script) = responses::case(seed, number);
    (case, Some(script))
}

fn one(doors: &Doors, seed: u64, number: u64, summary: &Mutex<Summary>) {
    let (case, script) = stream(seed, number);
    let read = |quiet| doors.read(&case.bytes, number, script.as_ref(), quiet);
    let differs = |[ekiden, nginx, squid]: &[Reading; 3]| {
        [nginx, squid].iter().any(|other| matches!(compare(ekiden, other), Relation::Differs(_)))
    };
    let mut readings = read(QUIET);
    for patience in SURELY {
        if differs(&readings) {
            readings = read(patience);
        }
    }
    summary.lock().unwrap().add(&case, script.as_ref(), &readings);
}

/// One case in full.
fn show(programs: &Programs, seed: u64, number: u64) -> ExitCode {
    let (case, script) = stream(seed, number);
    println!(
        "case {number} of seed {seed}, {}:\n{}",
        case.tricks.join(", "),
        case.bytes.escape_ascii()
    );
    if let Some(Script { bytes, closes }) = &script {
        println!(
            "and from the origin, {}:\n{}",
            if *closes { "which closes" } else { "which waits" },
            bytes.escape_ascii()
        );
    }
    let readings = programs.doors[0].read(&case.bytes, number, script.as_ref(), SURELY[1]);
    for (name, reading) in NAMES.iter().zip(&readings) {
        println!("{name}: {:?}", reading.ended);
        for request in &reading.requests {
            let body = request.body.escape_ascii();
            let whole = if request.whole { "" } else { ", and no end" };
            println!(
                "  {} {} of {}, \"{body}\"{whole}",
                request.method, request.path, request.host
            );
            if let Some(malformed) = &request.malformed {
                println!("  malformed: {malformed}");
            }
        }
    }
    for (name, other) in NAMES.iter().zip(&readings).skip(1) {
        println!("beside {name}: {:?}", compare(&readings[0], other));
    }
    ExitCode::SUCCESS
}
