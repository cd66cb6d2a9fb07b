//! What a flood of wrong passwords costs somebody who is known: a relay with accounts, an account's requests with and
//! without 1,000 guesses a second in turns, and what the relay takes of a core.
//!
//! `[EKIDEN_BIN=…] cargo bench -p ekiden --bench passwords [SECONDS]`: about 4 × 5 × 2 × (SECONDS + 0.3); 2 unless said.
#![allow(clippy::unwrap_used)] // a measurement that cannot go on panics

#[path = "../tests/it/accounts/mod.rs"]
mod accounts;

use accounts::{ANNA, Accounts};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ekiden_testkit::Daemon;
use socket2::{Domain, Socket, Type};
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Guesses a second, from so many threads.
const GUESSES: u64 = 1_000;
const THREADS: u64 = 4;
/// Between two requests of the account: one on a connection that is kept, one on a new one, in turns.
const EVERY: Duration = Duration::from_millis(2);
/// How long who guesses keeps a connection open.
const PATIENCE: Duration = Duration::from_secs(1);
/// With and without, so often.
const PAIRS: usize = 5;
/// Until either is what it stays.
const WARM: Duration = Duration::from_millis(300);

/// Who guesses.
#[derive(Clone, Copy)]
struct Flood {
    name: &'static str,
    socks: bool,
    users: u64,
    addresses: u64,
}

const FLOODS: [Flood; 4] = [
    Flood { name: "HTTP, one user, one address", socks: false, users: 1, addresses: 1 },
    Flood { name: "HTTP, one user, many addresses", socks: false, users: 1, addresses: 1 << 20 },
    Flood {
        name: "HTTP, many users and addresses",
        socks: false,
        users: 1 << 40,
        addresses: 1 << 20,
    },
    Flood {
        name: "SOCKS, many users and addresses",
        socks: true,
        users: 1 << 40,
        addresses: 1 << 20,
    },
];

impl Flood {
    /// The `nth` guess, said and not waited for.
    fn guess(self, relay: SocketAddr, nth: u64) -> Option<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        // far from the account's own
        let [_, a, b, c] = u32::try_from(nth % self.addresses).unwrap().to_be_bytes();
        let from = Ipv4Addr::new(127, 64 + a, b, c);
        socket.bind(&SocketAddr::new(from.into(), 0).into()).unwrap();
        socket.connect(&relay.into()).ok()?;
        let mut stream = TcpStream::from(socket);
        let user = format!("u{}", nth % self.users);
        // another each time: one that comes again costs no hash
        let password = format!("wrong password {nth}");
        let said = match self.socks {
            true => {
                let mut said = vec![5, 1, 2, 1, user.len() as u8];
                said.extend(user.as_bytes());
                said.push(password.len() as u8);
                said.extend(password.as_bytes());
                stream.write_all(&said)
            }
            false => {
                let basic = STANDARD.encode(format!("{user}:{password}"));
                write!(
                    stream,
                    "GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {basic}\r\n\r\n"
                )
            }
        };
        said.ok()?;
        stream.set_nonblocking(true).unwrap();
        Some(stream)
    }

    /// Guesses at the rate until it is over, whether they are answered or not; how many were made, and answered
    /// within [`PATIENCE`].
    fn begin(
        self,
        relay: SocketAddr,
        over: &Arc<AtomicBool>,
        from: u64,
    ) -> Vec<JoinHandle<[u64; 2]>> {
        let thread = |own: u64| {
            let over = Arc::clone(over);
            thread::spawn(move || {
                let (begun, mut counts, mut asked) = (Instant::now(), [0; 2], VecDeque::new());
                for n in 0.. {
                    let due = begun + Duration::from_nanos(1_000_000_000 * THREADS / GUESSES * n);
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    if let Some(stream) = self.guess(relay, from + THREADS * n + own) {
                        asked.push_back((Instant::now(), stream));
                        counts[0] += 1;
                    }
                    let is_over = over.load(Relaxed);
                    while asked.front().is_some_and(|(at, _)| is_over || at.elapsed() > PATIENCE) {
                        let answer =
                            asked.pop_front().map(|(_, mut stream)| stream.read(&mut [0; 64]));
                        counts[1] += u64::from(matches!(answer, Some(Ok(1..))));
                    }
                    if is_over {
                        break;
                    }
                }
                counts
            })
        };
        (0..THREADS).map(thread).collect()
    }
}

/// Answers requests without end, on as many connections as come.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                stream.set_nodelay(true).unwrap();
                while read_head(&mut stream).is_some() {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                }
            });
        }
    });
    address
}

fn read_head(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut piece) = (Vec::<u8>::new(), [0; 1_024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let n = stream.read(&mut piece).ok().filter(|n| *n > 0)?;
        head.extend(&piece[..n]);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// One request of the account; how long it took, in microseconds.
fn request(stream: &mut TcpStream, begun: Instant, to: SocketAddr) -> f64 {
    write!(stream, "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n{ANNA}\r\n").unwrap();
    let mut answer = read_head(stream).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    while !answer.ends_with("ok") {
        let mut piece = [0; 2];
        let n = stream.read(&mut piece).unwrap();
        answer.push_str(std::str::from_utf8(&piece[..n]).unwrap());
    }
    begun.elapsed().as_secs_f64() * 1e6
}

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// The account's requests for so long: microseconds on kept connections and on new ones.
fn requests(relay: SocketAddr, to: SocketAddr, time: Duration) -> [Vec<f64>; 2] {
    let mut kept = connect(relay);
    request(&mut kept, Instant::now(), to);
    let begun = Instant::now();
    let mut took = [Vec::new(), Vec::new()];
    for n in 0_u32.. {
        let due = begun + EVERY * n;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // at least one of each kind, however long it took
        if begun.elapsed() >= time && n >= 2 {
            break;
        }
        let begun = Instant::now();
        match n % 2 {
            0 => took[0].push(request(&mut kept, begun, to)),
            _ => took[1].push(request(&mut connect(relay), begun, to)),
        }
    }
    took
}

fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}

fn median(mut values: Vec<f64>) -> f64 {
    quantile(&mut values, 0.5)
}

/// p50 and p99 of each kind, and the share of a core that the daemon took.
fn measure(daemon: &Daemon, to: SocketAddr, time: Duration) -> ([[f64; 2]; 2], f64) {
    thread::sleep(WARM);
    let (begun, before) = (Instant::now(), daemon.cpu());
    let took = requests(daemon.address, to, time);
    let share = (daemon.cpu() - before) / begun.elapsed().as_secs_f64();
    (took.map(|mut took| [0.5, 0.99].map(|share| quantile(&mut took, share))), share)
}

fn main() {
    let seconds = std::env::args().filter_map(|text| text.parse().ok()).next().unwrap_or(2);
    let (time, to, nth) = (Duration::from_secs(seconds), server(), AtomicU64::new(0));
    println!(
        "an account's requests beside {GUESSES} wrong passwords a second; medians of {PAIRS} pairs of {seconds} s"
    );
    println!(
        "{:<34}{:>14}{:>21}{:>21}{:>11}",
        "", "made, ans./s", "kept: p50, p99 µs", "new: p50, p99 µs", "of a core"
    );
    for flood in FLOODS {
        let accounts = Accounts::new();
        accounts
            .account(&["add", "home", "--user", "anna", "--password-stdin"], "right password\n");
        let daemon = accounts.serve();
        let (mut without, mut with, mut guessed) = (Vec::new(), Vec::new(), [0.0; 3]);
        for _ in 0..PAIRS {
            without.push(measure(&daemon, to, time));
            let over = Arc::new(AtomicBool::new(false));
            let first = nth.fetch_add(1 << 20, Relaxed);
            let (guessing, begun) = (flood.begin(daemon.address, &over, first), Instant::now());
            with.push(measure(&daemon, to, time));
            over.store(true, Relaxed);
            let elapsed = begun.elapsed().as_secs_f64();
            for [made, within] in guessing.into_iter().map(|thread| thread.join().unwrap()) {
                guessed[0] += made as f64;
                guessed[1] += within as f64;
            }
            guessed[2] += elapsed;
        }
        let of = |rows: &[([[f64; 2]; 2], f64)], kind: usize, which: usize| {
            median(rows.iter().map(|row| row.0[kind][which]).collect())
        };
        let line = |name: &str, rows: &[([[f64; 2]; 2], f64)], answered: String| {
            let kinds =
                [0, 1].map(|kind| format!("{:.0}, {:.0}", of(rows, kind, 0), of(rows, kind, 1)));
            let core = median(rows.iter().map(|row| row.1).collect());
            println!("{name:<34}{answered:>14}{:>21}{:>21}{core:>11.2}", kinds[0], kinds[1]);
        };
        line("without", &without, String::new());
        let [made, within] = [0, 1].map(|nth: usize| guessed[nth] / guessed[2]);
        line(flood.name, &with, format!("{made:.0}, {within:.0}"));
        let ratio = |kind: usize, which: usize| {
            median(
                with.iter()
                    .zip(&without)
                    .map(|(a, b)| a.0[kind][which] / b.0[kind][which])
                    .collect(),
            )
        };
        let kinds = [0, 1].map(|kind| format!("{:.2}, {:.2} ×", ratio(kind, 0), ratio(kind, 1)));
        println!("{:<48}{:>21}{:>21}", "  medians of each pair's ratio", kinds[0], kinds[1]);
    }
}
