//! Ekiden's gateway beside redsocks, squid, sing-box, PEPsal and HAProxy: clients with nothing configured, whose connections
//! are diverted on their way.
//!
//! `cargo bench -p ekiden-studies --bench gateway -- --help`, as root or where namespaces may be made.
//!
//! A client, the gateway and a server have a network namespace each, made anew for every window, so that nobody finds the
//! TIME_WAIT or the connection tracking of the one before. They end with the program. One relay runs at a time, on one
//! processor; client and server are one program on the other. Rounds are interleaved and their order rotates.
//!
//! All speak HTTP/1.1 to port 80, because squid intercepts nothing else. A bulk connection is a document without end. A
//! connection of `connects` is one GET with `Connection: close` and a document of 64 bytes: the server closes, the client
//! closes when it has seen that.
//!
//! What counts is the relay's processes, user and system time. The kernel charges to them the packets that they send, up
//! to the receiver's socket, because a pair of devices hands them over in the sender's softirq; packets of the load that
//! arrive at the gateway, with nftables' work on them, are charged to the load, for every relay alike. redsocks needs a
//! SOCKS5 proxy: microsocks runs beside the server on the load's processor, and its time counts for nobody. `none` is the
//! gateway that forwards, for its bytes and connections a second: there is no process whose time would count.

mod contestant;
mod network;

use clap::Parser;
use contestant::{Contestant, Field, is_missing};
use ekiden_studies::comparison::{
    CONCURRENT, Effort, Record, Reference, Row, Test, bar, chosen, default_control, lock, rounds,
    table, window,
};
use ekiden_testbed::limits;
use ekiden_testbed::load::generator::Generator;
use ekiden_testbed::peers::ekiden;
use network::{Failure, Network};
use std::path::PathBuf;
use std::process::ExitCode;

/// Those that can be measured without a proxy's protocol.
const TESTS: [Test; 3] = [Test::Bulk1, Test::Bulk100, Test::Connects];

/// The columns of ratios. HAProxy has its own: it is a load balancer that nobody sets up as a gateway.
const REFERENCES: [Reference; 2] = [
    Reference { heading: "/gateways", has: is_gateway },
    Reference { heading: "/haproxy", has: |name| name.starts_with("haproxy") },
];

fn is_gateway(name: &str) -> bool {
    ["redsocks", "squid", "sing-box", "pepsal"].iter().any(|other| name.starts_with(other))
}

#[derive(Debug, Parser)]
#[command(about = "Ekiden's gateway beside others: same run, same processor")]
struct Arguments {
    /// Short windows and two rounds: to see that it works
    #[arg(long)]
    quick: bool,
    /// Which tests: bulk1, bulk100, connects
    #[arg(long, value_delimiter = ',', value_parser = |text: &str| Test::of_name(&TESTS, text))]
    only: Vec<Test>,
    /// Which relays; a beginning is enough: ekiden, redsocks, squid, sing-box, pepsal, haproxy,
    /// none
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Length of each measured window
    #[arg(long)]
    seconds: Option<f64>,
    /// Rounds
    #[arg(long)]
    repeats: Option<usize>,
    /// The binary; otherwise EKIDEN_BIN, otherwise the newest in target
    #[arg(long)]
    ekiden: Option<PathBuf>,
    /// Raw rows, machine, versions and command go here
    #[arg(long)]
    json: Option<PathBuf>,
    /// The congestion control of client, relay and server, e.g. cubic: bbr, where a machine defaults to
    /// it, paces every socket by timers
    #[arg(long)]
    congestion: Option<String>,
    #[arg(long, hide = true)]
    bench: bool, // cargo adds it
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let entered = lock("gateway").map_err(Failure::from).and_then(|lock| {
        // it must find one thread alone
        let sandbox = ekiden_linux::namespaces::sandbox::enter()?;
        if sandbox.fresh_proc { Ok(lock) } else { Err("a /proc of its own is refused".into()) }
    });
    match entered.and_then(|_lock| run(&arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("gateway: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let contestants = chosen(&arguments.peers, &Contestant::ALL, |one| one.name)?;
    let tests = if arguments.only.is_empty() { TESTS.to_vec() } else { arguments.only.clone() };
    let _most = limits::raise_descriptors(65_536);
    let quick = arguments.quick;
    let effort = Effort {
        seconds: arguments.seconds.unwrap_or(if quick { 1.0 } else { 5.0 }),
        warm_up: if quick { 0.5 } else { 1.5 },
        idle: 0,
    };
    let repeats = arguments.repeats.unwrap_or(if quick { 2 } else { 5 }).max(1);
    let congestion = arguments.congestion.as_deref();
    let control = congestion.map_or_else(default_control, str::to_owned);
    let mut record = Record::new("gateway", control, &limits::cpus(), effort);
    if let Some(cpu) = record.generator_cpu {
        limits::pin(cpu)?;
    }
    let binary = arguments.ekiden.clone().or_else(ekiden::binary);
    let bar = bar(tests.len() * repeats * contestants.len());
    for test in tests {
        for (round, contestant) in rounds(repeats, &contestants) {
            bar.set_message(format!("{} {}", test.name(), contestant.name));
            bar.inc(1);
            match measure(test, contestant, &mut record, (congestion, binary.as_ref()), round) {
                Ok(row) => record.rows.push(row),
                Err(e) if is_missing(&e) => record.skip(contestant.name, &e),
                Err(e) => record.fail(test.name(), contestant.name, &e),
            }
        }
    }
    bar.finish_and_clear();
    let how = format!(
        "connects: {CONCURRENT} at a time, server closes; redsocks goes through microsocks, whose time is not counted"
    );
    print!("{}", record.heading(&how));
    for test in TESTS {
        print!("{}", table(test, &record.rows, &REFERENCES));
    }
    if let Some(file) = &arguments.json {
        std::fs::write(file, serde_json::to_string_pretty(&record)? + "\n")?;
    }
    Ok(())
}

/// One window, in a network of its own.
fn measure(
    test: Test,
    contestant: Contestant,
    record: &mut Record,
    (congestion, binary): (Option<&str>, Option<&PathBuf>),
    round: usize,
) -> Result<Row, Failure> {
    let network = Network::build(congestion)?;
    let servers = network.servers(test.load())?;
    let field = Field {
        network: &network,
        relay_cpu: record.relay_cpu,
        generator_cpu: record.generator_cpu,
        binary: binary.map(PathBuf::as_path),
    };
    let relay = contestant.start(&field)?;
    if let Some(peer) = &relay.peer {
        record.versions.insert(contestant.name, peer.version.clone());
    }
    let (effort, cpu) = (record.effort, record.relay_cpu);
    let who = (contestant.name, relay.peer.as_ref());
    // clients' sockets are made within the client's namespace
    let row = network.client.run(|| {
        let mut generator = Generator::web(servers, Network::sources())?;
        window(test, who, &mut generator, effort, cpu, round)
    })??;
    Ok(row)
}
