//! Opening connections over a link that loses just the packets it is told to, so that each remedy is seen
//! to do its work and no more. A program of its own, since it must have one thread alone when it enters
//! its namespaces. No timing is asserted: what was sent is counted.
#![allow(clippy::unwrap_used)] // a test that cannot go on panics

use ekiden_emulator::topology::{
    HostPlan, LinkPlan, MTU, Process, ProcessPlan, Topology, TopologyPlan,
};
use ekiden_model::network::link::{Config, Loss};
use ekiden_model::units::Span;
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::catch_unwind;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use std::{fs, thread};

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("the_kernels_way_is_left_alone", the_kernels_way_is_left_alone),
    (
        "a_known_destination_is_not_waited_for_a_second",
        a_known_destination_is_not_waited_for_a_second,
    ),
    ("nothing_is_repeated_where_nothing_is_lost", nothing_is_repeated_where_nothing_is_lost),
    ("a_copy_takes_the_place_of_a_connection", a_copy_takes_the_place_of_a_connection),
    ("a_second_syn_only_where_something_was_lost", a_second_syn_only_where_something_was_lost),
    ("datas_time_out_does_not_cut_an_opening", datas_time_out_does_not_cut_an_opening),
    ("an_opening_has_an_end_of_its_own", an_opening_has_an_end_of_its_own),
];

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if let Err(denied) = ekiden_linux::namespaces::sandbox::enter() {
        let in_ci = std::env::var_os("CI").is_some();
        println!("{}: tests of opening: {denied}", if in_ci { "FAILED" } else { "SKIPPED" });
        return if in_ci { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let mut failed = 0;
    for (name, test) in TESTS {
        let ok = catch_unwind(test).is_ok();
        println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
        failed += u32::from(!ok);
    }
    println!("test result: {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

const PORT: u16 = 7000;

/// A relay, 40 ms from a server that answers every connection with its end.
struct Pair {
    _relay: Process,
    folder: tempfile::TempDir,
    accepted: Arc<AtomicU64>,
    topology: Topology,
}

impl Pair {
    /// The packets of these numbers from the relay to the server are lost.
    fn new(lost: &[u64], leg: &str) -> Self {
        let host = |name: &str| HostPlan { name: name.to_owned(), ..HostPlan::default() };
        let delay = Span::from_millis(20);
        let lost: BTreeSet<u64> = lost.iter().copied().collect();
        let topology = Topology::build(&TopologyPlan {
            hosts: vec![host("relay"), host("server")],
            links: vec![LinkPlan {
                name: "link".to_owned(),
                between: ["relay".to_owned(), "server".to_owned()],
                mtu: MTU,
                super_packets: false,
                one_by_one: true,
                forward: Config { delay, loss: Loss::Listed(Arc::new(lost)), ..Config::default() },
                backward: Config { delay, ..Config::default() },
            }],
            processes: Vec::new(),
        })
        .unwrap();
        let server = topology.host("server").unwrap();
        let listener = server.run(|| TcpListener::bind(("0.0.0.0", PORT))).unwrap().unwrap();
        let accepted = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&accepted);
        thread::spawn(move || {
            // kept: the relay's side ends each, in a number of packets that is always the same
            let kept: Vec<_> = listener
                .incoming()
                .inspect(|_| {
                    counter.fetch_add(1, Relaxed);
                })
                .collect();
            drop(kept);
        });
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config.toml");
        let keys = format!(
            "control = \"{}\"\n[management]\nlisten = \"off\"\n[access]\nallow_destinations = [\"100.64.0.0/10\"]\n[leg.direct]\n{leg}",
            folder.path().join("socket").display()
        );
        fs::write(&file, keys).unwrap();
        let binary = env!("CARGO_BIN_EXE_ekiden");
        let plan = ProcessPlan {
            host: "relay".to_owned(),
            command: format!("exec {binary} serve --config {} 2>/dev/null", file.display()),
            ready: Some(3128),
        };
        let relay = Process::start(topology.host("relay").unwrap(), &plan, Duration::from_secs(30))
            .unwrap();
        Self { _relay: relay, folder, accepted, topology }
    }

    /// Opens a tunnel to `to`, here the server if not said: the answer's status, and the connection.
    fn open(&self, to: Option<SocketAddr>) -> (String, TcpStream) {
        let server = SocketAddr::new(self.topology.address("server").unwrap(), PORT);
        let to = to.unwrap_or(server);
        let relay = SocketAddr::from(([127, 0, 0, 1], 3128));
        let host = self.topology.host("relay").unwrap();
        let mut stream = host.run(|| TcpStream::connect(relay)).unwrap().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        (String::from_utf8_lossy(&answer[9..]).into_owned(), stream)
    }

    fn status(&self) -> serde_json::Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ekiden"));
        command.args(["status", "--json", "--socket"]).arg(self.folder.path().join("socket"));
        serde_json::from_slice(&command.output().unwrap().stdout).unwrap()
    }

    /// What the relay says of its leg's openings.
    fn opening(&self, name: &str) -> u64 {
        let status = self.status();
        let legs = status["legs"].as_array().unwrap();
        let leg = legs.iter().find(|leg| leg["name"] == "direct").unwrap();
        leg["opening"][name].as_u64().unwrap()
    }

    /// SYNs that the relay's kernel repeated.
    fn kernel_repeats(&self) -> u64 {
        let read = || fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
        let text = self.topology.host("relay").unwrap().run(read).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let at = |pair: &[&str]| {
            let place = pair[0].split_whitespace().position(|word| word == "TCPSynRetrans")?;
            pair[1].split_whitespace().nth(place)?.parse().ok()
        };
        lines.chunks_exact(2).find_map(at).unwrap()
    }

    /// Opens `n` tunnels one after the other and keeps them, so that nothing but handshakes is sent: two
    /// packets each, the SYN and the ACK, from packet 0 on.
    fn open_kept(&self, n: usize) -> Vec<TcpStream> {
        (0..n)
            .map(|_| {
                let (status, stream) = self.open(None);
                assert_eq!(status, "200");
                stream
            })
            .collect()
    }
}

fn the_kernels_way_is_left_alone() {
    let pair = Pair::new(&[2], "initial_rto = \"kernel\"\n");
    let _kept = pair.open_kept(2);
    assert_eq!((pair.kernel_repeats(), pair.opening("repeated_syns")), (1, 0));
    assert_eq!((pair.opening("established"), pair.opening("lost_syns")), (2, 1));
}

fn a_known_destination_is_not_waited_for_a_second() {
    // the first opening's SYN (0) is lost, which the kernel repeats (1), so that losses are known of; the
    // third's (5) and its repetition (6) are, too, and the third (7) is answered
    let pair = Pair::new(&[0, 5, 6], "");
    let _kept = pair.open_kept(4);
    assert_eq!((pair.kernel_repeats(), pair.opening("repeated_syns")), (1, 2));
    assert_eq!((pair.opening("openings"), pair.opening("established")), (4, 4));
    assert_eq!((pair.opening("lost_syns"), pair.opening("known_destinations")), (2, 1));
    assert_eq!(pair.accepted.load(Relaxed), 4, "the server never hears of the others");
}

fn nothing_is_repeated_where_nothing_is_lost() {
    // the second opening's SYN (2) and its repetition (3) are the first that are lost: more than one a second
    // is left to the kernel (4)
    let pair = Pair::new(&[2, 3], "");
    let _kept = pair.open_kept(3);
    assert_eq!((pair.kernel_repeats(), pair.opening("repeated_syns")), (1, 1));
    assert_eq!((pair.opening("established"), pair.opening("lost_syns")), (3, 1));
}

fn a_copy_takes_the_place_of_a_connection() {
    // as above; then two at once, whose SYNs (5, 6) are lost, and room for one more connection: one has its
    // copy (7), which is lost, too, and another in its place; the other waits for the kernel
    let pair = Pair::new(&[0, 5, 6, 7], "[budgets]\nconnections = 5\n");
    let _kept = pair.open_kept(2);
    thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| pair.open(None)));
        let both = both.map(|opening| opening.join().unwrap());
        assert!(both.iter().all(|(status, _)| status == "200"));
    });
    assert_eq!((pair.kernel_repeats(), pair.opening("repeated_syns")), (2, 2));
    // and gives it back
    let level = |pair: &Pair| {
        let status = pair.status();
        let levels = status["pressure"]["levels"].as_array().unwrap();
        levels.iter().find(|level| level["resource"] == "connections").unwrap()["used"].clone()
    };
    assert!(level(&pair).as_u64().unwrap() <= 4, "{}", level(&pair));
}

fn a_second_syn_only_where_something_was_lost() {
    let clean = Pair::new(&[], "second_syn = true\n");
    let _kept = clean.open_kept(20);
    assert_eq!(clean.opening("second_syns"), 0);
    // the first opening is lost once; the next ones follow within a second
    let lossy = Pair::new(&[0], "second_syn = true\ninitial_rto = \"kernel\"\n");
    let begun = std::time::Instant::now();
    let _more = lossy.open_kept(10);
    let most = begun.elapsed().as_secs() + 1;
    let seconds = lossy.opening("second_syns");
    assert!((1..=most).contains(&seconds), "{seconds} in {most} s");
    assert_eq!(lossy.opening("established"), 10);
}

/// Where nobody is: the link's far end has no such address, and does not say so.
const NOBODY: &str = "100.127.0.2:7001";

fn datas_time_out_does_not_cut_an_opening() {
    // every SYN to it is lost: the server's machine would refuse
    let all: Vec<u64> = (0..100).collect();
    let to = Some(NOBODY.parse().unwrap());
    let cut = Pair::new(&all, "user_timeout = \"500 ms\"\nconnect_timeout = \"4 s\"\n");
    assert_eq!(cut.open(to).0, "504");
    assert_eq!(cut.kernel_repeats(), 1, "Linux ends the handshake with it");
    let apart = Pair::new(
        &all,
        "user_timeout = \"500 ms\"\nconnect_timeout = \"10 s\"\nestablish_timeout = \"3500 ms\"\n",
    );
    assert_eq!(apart.open(to).0, "504");
    assert!(apart.kernel_repeats() >= 3, "{}", apart.kernel_repeats());
}

fn an_opening_has_an_end_of_its_own() {
    let all: Vec<u64> = (0..100).collect();
    let pair = Pair::new(&all, "connect_timeout = \"10 min\"\nestablish_timeout = \"1500 ms\"\n");
    // without an end of its own this would take as long as the test's patience
    assert_eq!(pair.open(None).0, "504");
    assert_eq!((pair.kernel_repeats(), pair.opening("established")), (1, 0));
    // and it has the option all the same, once it stands
    let options = "user_timeout = \"7 s\"\nestablish_timeout = \"5 s\"\n";
    let pair = Pair::new(&[], options);
    let _kept = pair.open_kept(1);
    let status = pair.status();
    let options = status["connections"][0]["legs"][1]["options"].as_array().unwrap();
    let option = options.iter().find(|option| option["option"] == "user_timeout").unwrap();
    assert_eq!((&option["granted"], &option["refused"]), (&"7 s".into(), &serde_json::Value::Null));
}
