//! What the dashboard costs beside 10,000 connections of 5,000 accounts: how long each of its documents takes, what a
//! viewer takes of a core, and what is left of the throughput.
//!
//! `[EKIDEN_BIN=…] cargo bench -p ekiden --bench viewer [SECONDS]`: about a minute, and 24 × SECONDS; 5 unless said.
//! The relay needs two descriptors for each connection: where the hard limit is below 20,200, there are fewer. Clients and
//! servers are processes of their own for the same reason.
#![allow(clippy::unwrap_used)] // a measurement that cannot go on panics

#[path = "../tests/it/accounts/mod.rs"]
mod accounts;

use accounts::Accounts;
use ekiden_accounts::{Account, AccountId, Attributes, Credential, Device, Period, Quota, Store};
use ekiden_model::units::Bytes;
use ekiden_testbed::limits::raise_descriptors;
use ekiden_testkit::{Daemon, eventually};
use socket2::{Domain, Socket, Type};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

const CONNECTIONS: u64 = 10_000;
/// Descriptors of the relay for all else.
const ASIDE: u64 = 1_400;
const ACCOUNTS: usize = 5_000;
/// With and without a viewer, so often.
const PAIRS: usize = 6;
/// Each document is asked for so often.
const ASKED: usize = 15;
/// Connections that move what they can.
const BULK: usize = 4;
/// Connections a second that move a little, of each of the two processes.
const STIRRED: u64 = 250;

/// Where an account's devices are.
fn address(account: usize) -> Ipv4Addr {
    let [high, low] = [account / 250, account % 250 + 1].map(|part| u8::try_from(part).unwrap());
    Ipv4Addr::new(127, 16, high, low)
}

/// Where bulk connections are, of an account without limits.
const BUSY: Ipv4Addr = Ipv4Addr::new(127, 17, 0, 1);

fn account(name: String, at: Ipv4Addr, quota: Option<u64>) -> Account {
    let credential = Credential::Prefix(format!("{at}/32").parse().unwrap());
    let quota = quota.map(|bytes| Quota { bytes: Bytes::new(bytes), period: Period::Month });
    let attributes = Attributes { quota, ..Attributes::default() };
    let devices = vec![Device { name: "house".to_owned(), credential }];
    Account { id: AccountId(0), name, devices, attributes }
}

fn fill(folder: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::in_folder(folder).await.unwrap();
        for n in 0..ACCOUNTS {
            let name = format!("household-{n:04}");
            let quota = (n % 2 == 0).then_some(300_000_000_000);
            store.add(&account(name, address(n), quota)).await.unwrap();
        }
        store.add(&account("busy".to_owned(), BUSY, None)).await.unwrap();
        store.close().await;
    });
}

/// The part of this program that sends without an end on one port, and holds connections on the other, until its
/// standard input ends.
fn serve() {
    let _most = raise_descriptors(65_536);
    let [bulk, quiet] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    println!("{} {}", bulk.local_addr().unwrap(), quiet.local_addr().unwrap());
    thread::spawn(move || {
        for stream in bulk.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || while stream.write_all(&[7; 1 << 18]).is_ok() {});
        }
    });
    thread::spawn(move || quiet.incoming().map(Result::unwrap).collect::<Vec<_>>());
    wait_for_end();
}

/// The part that opens these connections, and moves a little on them until its standard input ends.
fn hold(relay: SocketAddr, quiet: SocketAddr, numbers: std::ops::Range<usize>) {
    let _most = raise_descriptors(65_536);
    let held: Vec<TcpStream> =
        numbers.map(|n| connect(relay, address(n % ACCOUNTS), quiet)).collect();
    println!("ready");
    thread::spawn(move || {
        let begun = Instant::now();
        for n in 0.. {
            let due = begun + Duration::from_nanos(1_000_000_000 / STIRRED * n);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let nth = usize::try_from(n * 7).unwrap() % held.len();
            if (&held[nth]).write_all(&[7; 100]).is_err() {
                return;
            }
        }
    });
    wait_for_end();
}

fn wait_for_end() {
    let _ended = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Another process of this program, and the first line that it says. It ends with its standard input.
fn part(args: &[String]) -> (Child, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (child, line.trim().to_owned())
}

fn connect(relay: SocketAddr, from: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::new(from.into(), 0).into()).unwrap();
    socket.connect(&relay.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    stream
}

/// The management port, as its page asks it.
#[derive(Clone)]
struct Port {
    at: SocketAddr,
    token: String,
}

impl Port {
    fn of(daemon: &Daemon) -> Self {
        let at = eventually("the management port", || {
            let log = daemon.log();
            let (_, rest) = log.split_once("management at http://")?;
            rest.split(": /").next()?.parse().ok()
        });
        Self { at, token: daemon.state("management.token").trim().to_owned() }
    }

    fn ask(&self, path: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.at).unwrap();
        let (at, token) = (self.at, &self.token);
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {at}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200 "), "{path}: {line}");
        reader
    }

    /// Bytes of a document.
    fn read(&self, path: &str) -> usize {
        let mut document = Vec::new();
        self.ask(path).read_to_end(&mut document).unwrap()
    }

    /// Bytes of the first event of a stream.
    fn first_event(&self, path: &str) -> usize {
        let mut reader = self.ask(path);
        let mut line = String::new();
        while !line.starts_with("data: ") {
            line.clear();
            assert!(reader.read_line(&mut line).unwrap() > 0);
        }
        line.len()
    }

    /// Looks at a page as a browser does, until it is over: its stream, and its list each 2 or 3 seconds.
    fn view(
        &self,
        list: &'static str,
        every: Duration,
        over: &Arc<AtomicBool>,
    ) -> [thread::JoinHandle<()>; 2] {
        let (port, end) = (self.clone(), Arc::clone(over));
        let stream = thread::spawn(move || {
            let mut reader = port.ask("/page/live");
            let mut line = String::new();
            while !end.load(Relaxed) && reader.read_line(&mut line).unwrap() > 0 {
                line.clear();
            }
        });
        let (port, end) = (self.clone(), Arc::clone(over));
        let lists = thread::spawn(move || {
            while !end.load(Relaxed) {
                port.read(list);
                thread::sleep(every);
            }
        });
        [stream, lists]
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Of a core, and bytes a second of the bulk connections.
fn measure(daemon: &Daemon, moved: &AtomicU64, time: Duration) -> [f64; 2] {
    let (cpu, bytes, begun) = (daemon.cpu(), moved.load(Relaxed), Instant::now());
    thread::sleep(time);
    let took = begun.elapsed().as_secs_f64();
    [(daemon.cpu() - cpu) / took, (moved.load(Relaxed) - bytes) as f64 / took]
}

/// Begins to look at the page until it is told to stop.
type View<'a> = dyn Fn(&Arc<AtomicBool>) -> [thread::JoinHandle<()>; 2] + 'a;

/// With and without a viewer in turns.
fn pairs(
    daemon: &Daemon,
    moved: &AtomicU64,
    (time, view): (Duration, &View<'_>),
) -> Vec<[[f64; 2]; 2]> {
    let pair = |_| {
        let without = measure(daemon, moved, time);
        let over = Arc::new(AtomicBool::new(false));
        let viewer = view(&over);
        let with = measure(daemon, moved, time);
        over.store(true, Relaxed);
        viewer.into_iter().for_each(|thread| thread.join().unwrap());
        [without, with]
    };
    (0..PAIRS).map(pair).collect()
}

const LISTS: [(&str, &str); 10] = [
    ("connections, quickest first", "/page/connections?order=rate&count=50"),
    ("connections, a name searched", "/page/connections?order=rate&count=50&find=household-41"),
    ("connections, the last page", "/page/connections?order=age&count=50&offset=9950"),
    ("overview's connections", "/page/connections?order=rate&count=8"),
    ("accounts, busiest first", "/page/accounts?order=rate&count=50"),
    ("accounts, most of the quota first", "/page/accounts?order=used&count=50"),
    ("accounts, a name searched", "/page/accounts?order=name&count=200&find=household-41"),
    ("accounts, the last page", "/page/accounts?order=name&count=50&offset=4950"),
    ("peers", "/page/peers"),
    ("history, a day", "/page/history?series=(total)&span=day"),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => serve(),
        ["hold", relay, quiet, from, to] => {
            let numbers = from.parse().unwrap()..to.parse().unwrap();
            hold(relay.parse().unwrap(), quiet.parse().unwrap(), numbers);
        }
        _ => measure_all(args.iter().filter_map(|text| text.parse().ok()).next().unwrap_or(5.0)),
    }
}

fn measure_all(seconds: f64) {
    let time = Duration::from_secs_f64(seconds);
    let may = raise_descriptors(65_536);
    let connections = usize::try_from(CONNECTIONS.min((may - ASIDE) / 2)).unwrap();
    let accounts = Accounts::new();
    accounts.configure(
        "[accounts]\nenabled = true\n[budgets]\nconnections = 10050\npipes = 16\n[pressure]\nwaiting = 0\n\
         [management]\nlisten = \"127.0.0.1:0\"\n",
    );
    fill(&accounts.path().join("state"));
    let daemon = accounts.serve();
    eventually("the accounts", || {
        let known = daemon.status()["accounts"]["known"].as_u64();
        (known == Some(ACCOUNTS as u64 + 1)).then_some(())
    });
    let (server, said) = part(&["serve".to_owned()]);
    let (bulk, quiet) = said.split_once(' ').unwrap();
    let bulk: SocketAddr = bulk.parse().unwrap();
    let half = connections / 2;
    let hold = |from: usize, to: usize| {
        let numbers = [from, to].map(|n| n.to_string());
        let ends = [daemon.address.to_string(), quiet.to_owned()];
        let (child, said) = part(&[&["hold".to_owned()][..], &ends, &numbers].concat());
        assert_eq!(said, "ready");
        child
    };
    let mut parts = vec![server, hold(0, half), hold(half, connections)];
    let port = Port::of(&daemon);
    println!("{connections} connections of {ACCOUNTS} accounts");
    thread::sleep(Duration::from_secs(3));

    println!("\n{:<36}{:>10}{:>10}{:>10}", "document", "median ms", "worst ms", "kB");
    let row = |name: &str, ask: &dyn Fn() -> usize| {
        let mut bytes = 0;
        let mut times: Vec<f64> = (0..ASKED)
            .map(|_| {
                // the relay is asked, and not what it said a moment ago
                thread::sleep(Duration::from_millis(300));
                let begun = Instant::now();
                bytes = ask();
                begun.elapsed().as_secs_f64() * 1e3
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let (middle, worst) = (times[ASKED / 2], times[ASKED - 1]);
        println!("{name:<36}{middle:>10.1}{worst:>10.1}{:>10.1}", bytes as f64 / 1e3);
    };
    row("what is now", &|| port.first_event("/page/live"));
    for (name, path) in LISTS {
        row(name, &|| port.read(path));
    }

    let moved = Arc::new(AtomicU64::new(0));
    let overview = "/page/connections?order=rate&count=8";
    let views: [(&str, &'static str, u64); 3] = [
        ("overview", overview, 2_000),
        ("connections", "/page/connections?order=rate&count=50", 2_000),
        ("accounts", "/page/accounts?order=rate&count=50", 3_000),
    ];
    println!("\n{:<16}{:>24}{:>10}", "one viewer of", "of a core: without", "with");
    for (name, list, every) in views {
        let every = Duration::from_millis(every);
        let rows = pairs(&daemon, &moved, (time, &|over| port.view(list, every, over)));
        let core = |with: usize| median(rows.iter().map(|row| row[with][0]).collect());
        println!("{name:<16}{:>22.2} %{:>8.2} %", core(0) * 1e2, core(1) * 1e2);
    }

    let drains: Vec<_> = (0..BULK)
        .map(|_| {
            let (mut stream, moved) = (connect(daemon.address, BUSY, bulk), Arc::clone(&moved));
            thread::spawn(move || {
                let mut piece = vec![0; 1 << 18];
                while let Ok(n @ 1..) = stream.read(&mut piece) {
                    moved.fetch_add(n as u64, Relaxed);
                }
            })
        })
        .collect();
    thread::sleep(Duration::from_secs(2));
    let every = Duration::from_secs(2);
    let rows = pairs(&daemon, &moved, (time, &|over| port.view(overview, every, over)));
    let rate = |with: usize| median(rows.iter().map(|row| row[with][1]).collect()) / 1e9;
    let ratio = median(rows.iter().map(|[a, b]| b[1] / a[1]).collect());
    let each = |[core, bytes]: [f64; 2]| bytes / core;
    let by_core = median(rows.iter().map(|[a, b]| each(*b) / each(*a)).collect());
    println!(
        "\n{BULK} downloads at once: {:.2} GB/s without a viewer, {:.2} with; medians of each pair's ratio: {ratio:.3} of the bytes, {by_core:.3} of the bytes a CPU-second",
        rate(0),
        rate(1)
    );
    drop(daemon);
    drains.into_iter().for_each(|drain| drain.join().unwrap());
    // each ends with its standard input
    parts.iter_mut().for_each(|part| drop(part.stdin.take()));
    parts.into_iter().for_each(|mut part| assert!(part.wait().unwrap().success()));
}
