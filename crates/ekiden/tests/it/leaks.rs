//! Thousands of connections, one after the other and at once, through the real program: afterwards its
//! descriptors and its memory are where they were.
//!
//! `EKIDEN_LEAKS_SEQUENTIAL` and `EKIDEN_LEAKS_CONCURRENT` set how many (defaults 4,000 and 1,000).

use crate::daemons::daemon;
use ekiden_testkit::{Daemon, wait_for};
use socket2::{Domain, SockRef, Socket, Type};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// What the process holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    descriptors: usize,
    /// Resident, anonymous: what it allocated, without the program's file.
    anonymous: u64,
}

/// A daemon, and what its process holds.
struct Watched(Daemon);

impl Watched {
    fn held(&self) -> Held {
        let status = fs::read_to_string(self.0.proc("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        let kib: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        let descriptors = fs::read_dir(self.0.proc("fd")).unwrap().count();
        Held { descriptors, anonymous: kib << 10 }
    }

    /// Waits until `most` descriptors are left. Few bytes at a time are copied, so that no idle pipes
    /// are among them.
    fn settled(&self, most: usize) -> Held {
        let end = Instant::now() + LONG;
        loop {
            let held = self.held();
            if held.descriptors <= most {
                return held;
            }
            assert!(Instant::now() < end, "{held:?}, and there should be {most} descriptors");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until memory is at most `enough`, for 10 s: the daemon gives it back a second or two after a crowd has
    /// left, later on a busy machine. What leaks does not come back.
    fn calmed(&self, enough: u64) -> u64 {
        let end = Instant::now() + Duration::from_secs(10);
        loop {
            let anonymous = self.held().anonymous;
            if anonymous <= enough || Instant::now() > end {
                return anonymous;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A tunnel to `to` from one of many addresses, so that ports do not run out.
    fn tunnel(&self, nth: usize, to: SocketAddr) -> TcpStream {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let from = Ipv4Addr::new(127, 0, 1 + (nth / 200 % 200) as u8, 1 + (nth % 200) as u8);
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&self.0.address.into()).unwrap();
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(LONG)).unwrap();
        match nth % 2 {
            0 => {
                write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
                let mut answer = Vec::new();
                while !answer.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    answer.push(byte[0]);
                }
                assert!(answer.starts_with(b"HTTP/1.1 200"));
            }
            _ => {
                stream.write_all(&[5, 1, 0]).unwrap();
                let mut answer = [0; 10];
                stream.read_exact(&mut answer[..2]).unwrap();
                let (ip, port) = (Ipv4Addr::LOCALHOST.octets(), to.port().to_be_bytes());
                stream.write_all(&[&[5, 1, 0, 1], &ip[..], &port[..]].concat()).unwrap();
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer[..2], [5, 0]);
            }
        }
        stream
    }
}

/// Sends everything back, for each connection on its own thread, and ends by a reset, which leaves no
/// port waiting.
fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let echo = move || {
                let mut buffer = [0; 4096];
                while let Ok(n @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..n]).is_err() {
                        break;
                    }
                }
                SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
            };
            std::thread::Builder::new().stack_size(64 << 10).spawn(echo).unwrap();
        }
    });
    address
}

fn ask(stream: &mut TcpStream) {
    let question = [7; 1500];
    stream.write_all(&question).unwrap();
    let mut answer = [0; 1500];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, question);
}

/// One after the other; ends in turn by half-close and by reset.
fn sequential(daemon: &Watched, to: SocketAddr, n: usize) {
    for nth in 0..n {
        let mut stream = daemon.tunnel(nth, to);
        ask(&mut stream);
        if nth % 4 < 2 {
            stream.shutdown(Shutdown::Write).unwrap();
            // the server's reset, or its end of stream
            let _ = stream.read(&mut [0]);
        }
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// All at once.
fn concurrent(daemon: &Watched, to: SocketAddr, n: usize) {
    let mut streams: Vec<_> = (0..n).map(|nth| daemon.tunnel(nth, to)).collect();
    streams.iter_mut().for_each(ask);
    for stream in &streams {
        SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// Less than the smallest thing that a connection could leave behind.
const PER_CONNECTION: u64 = 64;
/// What one round may differ by, whatever the connections did: a few pages.
const PAGES: u64 = 64 << 10;

/// How far from its first figure memory may stay: mostly 1 MB, 5 MB seen on a busy machine, the same
/// after every round. What leaks shows in each round as well.
const SLACK: u64 = 8 << 20;

/// This process needs both ends of all connections, and the daemon inherits the limit.
fn raise_descriptors() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, all).unwrap();
}

/// At least so many; three times as many where each has grown.
const ROUNDS: usize = 5;

fn nothing_grows(kind: &str, n: usize, round: impl Fn(&Watched)) {
    raise_descriptors();
    let daemon = Watched(daemon("[access]\nallow_destinations = [\"127.0.0.0/8\"]\n"));
    let begun = daemon.held();
    let most = PAGES + n as u64 * PER_CONNECTION;
    let mut anonymous: Vec<u64> = Vec::new();
    // An allocator keeps pages of the busiest moment for each of its threads, so a round may grow by
    // chance, and a few in a row may; what leaks grows in every one.
    let least = |anonymous: &[u64]| {
        anonymous.windows(2).map(|two| two[1].saturating_sub(two[0])).min().unwrap_or(u64::MAX)
    };
    while anonymous.len() < ROUNDS || anonymous.len() < 3 * ROUNDS && least(&anonymous) > most {
        round(&daemon);
        daemon.settled(begun.descriptors);
        let enough = anonymous.last().map_or(begun.anonymous + SLACK, |before| before + most);
        anonymous.push(daemon.calmed(enough));
    }
    println!(
        "{n} connections {kind}: at first {} descriptors and {} bytes; after each round as many descriptors, and bytes {anonymous:?}",
        begun.descriptors, begun.anonymous
    );
    // The daemon gives memory back a second or two after a crowd has left. What stays: the threads'
    // own buffers, and pages that something small still stands on.
    let end = Instant::now() + LONG;
    let mut last = daemon.held().anonymous;
    while last > begun.anonymous + SLACK && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
        last = daemon.held().anonymous;
    }
    println!("and at last {last} bytes");
    assert!(last <= begun.anonymous + SLACK, "{last} bytes, {} at first", begun.anonymous);
    let least = least(&anonymous);
    assert!(least <= most, "each round of {n} connections grows by {least} bytes or more");
}

/// The most that the process has had in memory, bytes.
pub(crate) fn peak(daemon: &Daemon) -> u64 {
    let status = fs::read_to_string(daemon.proc("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// 2,000 clients that send this, as far as they are let.
fn crowd(daemon: &Watched, request: &str) -> Vec<TcpStream> {
    let client = |_| {
        let mut stream = TcpStream::connect(daemon.0.address).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        // reset or refused already where its memory went to another
        let _ = stream.write_all(request.as_bytes());
        stream
    };
    (0..2_000).map(client).collect()
}

/// Each would take 64 KiB; together they may have the budget, and the process 64 MiB for all else.
#[test]
fn unfinished_heads_stay_within_the_budget_and_64_mib() {
    const BUDGET: u64 = 16 << 20;
    raise_descriptors();
    let open = "[access]\nallow_destinations = [\"127.0.0.0/8\"]\n";
    let daemon = Watched(daemon(&format!("{open}[budgets]\nsessions = \"16 MiB\"\n")));
    let (begun, to) = (peak(&daemon.0), echo_server());
    let head = format!("GET http://a.example/ HTTP/1.1\r\nX: {}", "a".repeat(60_000));
    let unfinished = crowd(&daemon, &head);
    let (answer, _) = daemon.0.connect(to, "");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    wait_for("most were closed for others", || {
        daemon.0.status()["pressure"]["unfinished_evicted"].as_u64() > Some(1_000)
    });
    let status = daemon.0.status();
    let budgets = status["budgets"].as_array().unwrap();
    let sessions = budgets.iter().find(|budget| budget["name"] == "sessions").unwrap();
    assert!(sessions["peak"].as_u64().unwrap() <= BUDGET, "{sessions}");
    let grown = peak(&daemon.0) - begun;
    println!("2,000 heads of 60 kB: {grown} bytes");
    assert!(grown <= BUDGET + (64 << 20), "{grown} bytes");
    drop(unfinished);
}

/// Sends this to each connection, and nothing else.
fn holding_server(head: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // the relay may be gone already
            let _ = stream.write_all(head.as_bytes());
            held.push(stream);
        }
    });
    address
}

/// Trailers that do not end, paths, and heads of answers, each of 60 kB, of requests that are served for long.
#[test]
fn served_requests_stay_within_the_budget_and_64_mib() {
    const BUDGET: u64 = 16 << 20;
    raise_descriptors();
    let open = "[access]\nallow_destinations = [\"127.0.0.0/8\"]\n";
    let long = "a".repeat(60_000);
    let to = holding_server(String::new());
    let large =
        holding_server(format!("HTTP/1.1 200 OK\r\nContent-Length: 9\r\nX: {long}\r\n\r\n"));
    let chunked = "Transfer-Encoding: chunked";
    for (what, request) in [
        (
            "trailers",
            format!("POST http://{to}/ HTTP/1.1\r\nHost: {to}\r\n{chunked}\r\n\r\n0\r\nX: {long}"),
        ),
        ("paths", format!("GET http://{to}/{long} HTTP/1.1\r\nHost: {to}\r\n\r\n")),
        ("answers", format!("GET http://{large}/ HTTP/1.1\r\nHost: {large}\r\n\r\n")),
    ] {
        let daemon = Watched(daemon(&format!("{open}[budgets]\nsessions = \"16 MiB\"\n")));
        let begun = peak(&daemon.0);
        let served = crowd(&daemon, &request);
        let (answer, _) = daemon.0.connect(echo_server(), "");
        assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
        wait_for("most were refused", || {
            let pressure = &daemon.0.status()["pressure"];
            let number = |name: &str| pressure[name].as_u64().unwrap_or(0);
            number("share_refused") + number("unfinished_evicted") > 1_000
        });
        let grown = peak(&daemon.0) - begun;
        println!("2,000 {what} of 60 kB: {grown} bytes");
        assert!(grown <= BUDGET + (64 << 20), "{what}: {grown} bytes");
        drop(served);
    }
}

#[test]
fn connections_one_after_the_other_leave_nothing() {
    let n = number("EKIDEN_LEAKS_SEQUENTIAL", 4000);
    let to = echo_server();
    nothing_grows("one after the other", n, |daemon| sequential(daemon, to, n));
}

#[test]
fn connections_at_once_leave_nothing() {
    let n = number("EKIDEN_LEAKS_CONCURRENT", 1000);
    let to = echo_server();
    nothing_grows("at once", n, |daemon| concurrent(daemon, to, n));
}
