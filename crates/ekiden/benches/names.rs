//! What answers to clients' questions for names take: out of memory, questions a second of a core while a client keeps
//! some on their way, and how long one alone waits.
//!
//! `cargo bench -p ekiden --bench names [SECONDS]`: 5 rounds; 3 seconds each unless said. Nothing else should run.
#![allow(clippy::unwrap_used)] // a measurement that cannot go on panics

use ekiden_testbed::peers::ports;
use ekiden_testkit::names::{answer, question};
use ekiden_testkit::{Daemon, Home, PATIENCE};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
/// Names that are asked for in turn.
const NAMES: u16 = 2_000;
/// Questions on their way.
const AT_ONCE: usize = 64;

/// Answers everything, for an hour.
fn server() -> SocketAddr {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 1_500];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            let reply = answer(&buffer[..n], Ipv4Addr::new(192, 0, 2, 7), 3_600);
            socket.send_to(&reply, from).unwrap();
        }
    });
    at
}

fn client(at: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect(at).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn ask(socket: &UdpSocket, nth: u16) {
    socket.send(&question(nth, &format!("host{nth}.some.example"))).unwrap();
}

/// One at a time: how long each waits, in milliseconds.
fn alone(socket: &UdpSocket) -> Vec<f64> {
    let mut buffer = [0; 1_500];
    let one = |nth| {
        let begun = Instant::now();
        ask(socket, nth);
        socket.recv(&mut buffer).unwrap();
        begun.elapsed().as_secs_f64() * 1e3
    };
    (0..NAMES).map(one).collect()
}

/// Answers a second, and answers a second of the daemon's processor time.
fn many(daemon: &Daemon, socket: &UdpSocket, length: Duration) -> (f64, f64) {
    let (cpu, begun) = (daemon.cpu(), Instant::now());
    let (mut buffer, mut answered, mut nth) = ([0; 1_500], 0_u64, 0_u16);
    (0..AT_ONCE).for_each(|_| ask(socket, 0));
    while begun.elapsed() < length {
        socket.recv(&mut buffer).unwrap();
        answered += 1;
        nth = (nth + 1) % NAMES;
        ask(socket, nth);
    }
    let seconds = begun.elapsed().as_secs_f64();
    let taken = daemon.cpu() - cpu;
    for _ in 0..AT_ONCE {
        socket.recv(&mut buffer).unwrap();
    }
    (answered as f64 / seconds, answered as f64 / taken)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let seconds = std::env::args().filter_map(|text| text.parse().ok()).next().unwrap_or(3);
    let at = ports::free().unwrap();
    let config =
        format!("[dns]\nlisten = [\"{at}\"]\nservers = [\"{}\"]\nrate = 1_000_000\n", server());
    let home = Home::new(env!("CARGO_BIN_EXE_ekiden"), &config);
    let daemon = home.serve();
    let socket = client(at);
    println!(
        "{NAMES} names, {AT_ONCE} questions on their way, medians of {ROUNDS} rounds of {seconds} s"
    );
    println!("first answers, from a server on this machine: {:.3} ms", median(alone(&socket)));
    println!("answers from memory, one at a time: {:.3} ms", median(alone(&socket)));
    let round = |_| many(&daemon, &socket, Duration::from_secs(seconds));
    let (rates, of_a_core): (Vec<f64>, Vec<f64>) = (0..ROUNDS).map(round).unzip();
    println!("answers a second: {:.0}", median(rates));
    println!("answers a second of one core: {:.0}", median(of_a_core));
}
