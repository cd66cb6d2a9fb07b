//! The same run everywhere: scenarios of all kinds against a table of their fingerprints
//! (`fingerprints.csv`), in debug and release builds and however many run side by side.
//!
//! The table has two numbers for each: of all events, and of what can be observed. A change inside
//! that leaves results alone may move the first one; renew both with `UPDATE=1 cargo test -p
//! ekiden-simulator --test fingerprints`, and say in the commit why a result moved if one did.

#![allow(clippy::unwrap_used)] // a test that cannot go on panics

use ekiden_model::control::congestion::{Algorithm, CubicConfig};
use ekiden_model::network::link::{
    Bound, Change, Config, Discipline, FqCodelConfig, GilbertElliott, Loss, LossUnit, Serialiser,
};
use ekiden_model::network::tcp::ReceiverConfig;
use ekiden_model::network::tcp::preset::{Era, Flavour};
use ekiden_model::network::workload::thin_client::{ThinClient, generate};
use ekiden_model::resources::buffers::Scheme;
use ekiden_model::units::{Bytes, Rate, Share, Span, Time};
use ekiden_simulator::applications::bulk::{self, BulkConfig};
use ekiden_simulator::applications::chain::ChainConfig;
use ekiden_simulator::applications::proxy::{self, Knowledge, ProxyConfig};
use ekiden_simulator::network::connection::ConnectionConfig;
use ekiden_simulator::network::dumbbell::{Dumbbell, DumbbellConfig};
use ekiden_simulator::network::flow::{FlowConfig, Scripted, Source};
use ekiden_simulator::network::topology::{Node, Topology};
use ekiden_simulator::random::Substreams;
use ekiden_simulator::simulator::{Direction, Simulator};
use std::sync::atomic::{AtomicUsize, Ordering};

const MSS: u32 = 1448;
const HEADER: u32 = 52;

/// A name, and what runs it to its two fingerprints.
type Scenario = (&'static str, fn() -> [u64; 2]);

const SCENARIOS: [Scenario; 11] = [
    ("bulk, Reno of ns-2.35", || bulk(Flavour::Reno, Era::Ns235)),
    ("bulk, NewReno of ns-2.35", || bulk(Flavour::NewReno, Era::Ns235)),
    ("bulk, SACK of ns-2.35", || bulk(Flavour::Sack, Era::Ns235)),
    ("bulk, SACK of the RFCs", || bulk(Flavour::Sack, Era::Rfc)),
    ("bulk, Linux", || bulk(Flavour::Sack, Era::Linux)),
    ("thin clients, priority", || thin_clients(Discipline::Priority(Bound::Packets(200)))),
    ("thin clients, FQ-CoDel", || thin_clients(Discipline::FqCodel(FqCodelConfig::default()))),
    ("island, three legs, independent loss", || island(independent())),
    ("island, three legs, bursts of loss and a changing rate", || island(in_bursts())),
    ("proxy, scheme 4, paths known", || proxy(Era::Ns21b9, Knowledge::Perfect)),
    ("proxy, scheme 4, paths estimated, Linux", || proxy(Era::Linux, Knowledge::Estimated)),
];

fn mbit(n: u64) -> Rate {
    Rate::from_bits_per_second(n * 1_000_000)
}

fn bulk(flavour: Flavour, era: Era) -> [u64; 2] {
    let config = BulkConfig { flows: 10, flavour, era, queue: 40, ..BulkConfig::default() };
    bulk::run(&config, Span::from_secs(20)).unwrap().2
}

/// Four servers that answer keys and clicks over what is too narrow for all of their bursts.
fn thin_clients(discipline: Discipline) -> [u64; 2] {
    const PAIRS: u32 = 4;
    let streams = Substreams::new(7);
    let access = (mbit(100), Span::from_millis(1));
    let mut config = DumbbellConfig::new(PAIRS, access, (mbit(1), Span::from_millis(20)), 200);
    config.bottleneck.discipline = discipline;
    let dumbbell = Dumbbell::new(&config);
    let mut simulator = Simulator::new(dumbbell.topology, ());
    let hosts = dumbbell.senders.iter().zip(&dumbbell.receivers);
    for (pair, (server, client)) in hosts.enumerate() {
        let trace = generate(&ThinClient::intranet(), &mut streams.of("trace", pair as u64));
        let writes = trace.unwrap().writes.into_iter().map(|write| Scripted {
            at: write.at,
            bytes: write.bytes,
            kind: write.kind as u8,
        });
        let mut flow = flow(Source::Script(writes.collect()), true);
        flow.sender.nagle = false;
        let connection = simulator.connect(connection(*server, *client, Time::ZERO)).unwrap();
        simulator.flow(connection, Direction::FromOpener, flow).unwrap();
    }
    simulator.run(Time::ZERO + Span::from_secs(330));
    simulator.fingerprints()
}

/// A download over two relays, the legs as given.
fn island(leg: Config) -> [u64; 2] {
    const LEGS: u64 = 3;
    let streams = Substreams::new(3);
    let mut topology = Topology::new();
    let nodes: Vec<_> = (0..=LEGS).map(|_| topology.host()).collect();
    for (number, pair) in nodes.windows(2).enumerate() {
        let [there, back] = [0, 1].map(|way| {
            let seed = streams.of("loss", 2 * number as u64 + way).next_u64();
            Config { seed, ..leg.clone() }
        });
        topology.link(pair[0], pair[1], there, back);
    }
    let mut simulator = Simulator::new(topology, ());
    let mut connections = Vec::new();
    for (number, pair) in nodes.windows(2).enumerate() {
        let start = if number == 0 { Time::ZERO } else { Time::NEVER };
        let connection = simulator.connect(connection(pair[0], pair[1], start)).unwrap();
        for direction in [Direction::FromOpener, Direction::ToOpener] {
            // a relay reads no more than it can hand on
            let at_once = number == 0 || direction == Direction::FromOpener;
            simulator.flow(connection, direction, flow(Source::Application, at_once)).unwrap();
        }
        connections.push(connection);
    }
    let config = ChainConfig { connections, request: 100, response: 8 << 20, held: 64 << 10 };
    let chain = simulator.chain(config).unwrap();
    simulator.run(Time::ZERO + Span::from_secs(120));
    assert_eq!(simulator.result(chain).unwrap().bytes, 8 << 20, "the download came to its end");
    simulator.fingerprints()
}

/// A crowd before a proxy with few places.
fn proxy(era: Era, knowledge: Knowledge) -> [u64; 2] {
    let study = ProxyConfig::study(Scheme::Shrinking, 60, 5);
    let config =
        ProxyConfig { most_connections: 40, pool: Bytes::kib(40 * 16), era, knowledge, ..study };
    let mut simulator = proxy::build(&config, ()).unwrap();
    simulator.run(Time::ZERO + Span::from_secs(30));
    let result = simulator.proxy_result().unwrap();
    assert!(result.answered > 100 && result.idle.unwrap().evicted > 10, "it is crowded");
    simulator.fingerprints()
}

fn leg(loss: Loss) -> Config {
    Config {
        discipline: Discipline::DropTail(Bound::Packets(50)),
        serialiser: Serialiser::Rate(mbit(20)),
        delay: Span::from_millis(8),
        loss,
        ..Config::default()
    }
}

fn independent() -> Config {
    leg(Loss::Independent(Share::from_parts_per_billion(3_000_000).unwrap(), LossUnit::Packet))
}

fn in_bursts() -> Config {
    let chain = GilbertElliott {
        to_bad: Share::from_parts_per_billion(500_000).unwrap(),
        to_good: Share::from_percent(20).unwrap(),
        good_loss: Share::NONE,
        bad_loss: Share::from_percent(50).unwrap(),
    };
    let rates = [(1, 5), (2, 20)];
    let to = |rate| Change::Serialiser(Serialiser::Rate(mbit(rate)));
    Config {
        jitter: Span::from_micros(300),
        schedule: rates.map(|(at, rate)| (Span::from_secs(at), to(rate))).to_vec(),
        schedule_period: Some(Span::from_secs(3)),
        ..leg(Loss::GilbertElliott(chain, LossUnit::Packet))
    }
}

fn connection(opener: Node, acceptor: Node, start: Time) -> ConnectionConfig {
    let base = ConnectionConfig::new(opener, acceptor, Era::Linux);
    ConnectionConfig { start, handshake_bytes: HEADER + 8, ..base }
}

fn flow(source: Source, read_at_once: bool) -> FlowConfig {
    let mut sender = Era::Linux.sender(Flavour::Sack, MSS, f64::INFINITY, Span::ZERO);
    sender.congestion.algorithm = Algorithm::Cubic(CubicConfig::default());
    sender.buffer = 3 << 20;
    let receiver = ReceiverConfig { read_at_once, ..ReceiverConfig::linux(MSS, 3 << 20, 7) };
    FlowConfig { header: HEADER, ..FlowConfig::new(sender, receiver, source) }
}

/// All scenarios, so many of them side by side.
fn side_by_side(threads: usize) -> Vec<[u64; 2]> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some((_, run)) = SCENARIOS.get(at) else { return done };
            done.push((at, run()));
        }
    };
    let mut done: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    done.sort_unstable();
    done.into_iter().map(|(_, prints)| prints).collect()
}

fn table(prints: &[[u64; 2]]) -> String {
    let mut table = "scenario;all events;results\n".to_owned();
    for ((name, _), [all, results]) in SCENARIOS.iter().zip(prints) {
        table += &format!("{name};{all:016x};{results:016x}\n");
    }
    table
}

#[test]
fn runs_are_as_in_the_table_on_any_number_of_threads() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fingerprints.csv");
    let known = std::fs::read_to_string(path).unwrap_or_default();
    let tables = [1, 2, 4].map(|threads| table(&side_by_side(threads)));
    assert_eq!(tables[0], tables[1], "two threads give what one gives");
    assert_eq!(tables[0], tables[2], "four threads give what one gives");
    if known != tables[0] && std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &tables[0]).unwrap();
        return;
    }
    for (was, is) in known.lines().zip(tables[0].lines()) {
        assert_eq!(
            was, is,
            "another run than in the table. Where only `all events` has moved, results are the same. \
             If the change was meant: UPDATE=1 cargo test -p ekiden-simulator --test fingerprints"
        );
    }
    assert_eq!(known, tables[0], "scenarios were added or taken away: UPDATE=1, as above");
}
