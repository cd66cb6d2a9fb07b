//! Much data both ways at once through each pair of ends, in random pieces, while connections stall, end one direction
//! before the other, and are reset, at random bytes: what comes out is what went in, and nothing is left behind.
//!
//! `EKIDEN_SOAK_MIB` sets how much each row of relays moves, both directions of all connections together (default 128).
//! `EKIDEN_SOAK_SEED` repeats a run.
use crate::common::{
    LONG, Row, TUNNEL_PROTOCOLS, TunnelProtocol, descriptors, listener, patient, pattern,
    reset_on_close, settings, wait_until,
};
use ekiden_model::rng::Rng;
use ekiden_proxy::settings::{CopyMode, UpstreamProtocol};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Pieces from one byte to this, most of them small.
const LARGEST: u64 = 256 * 1024;
/// A stream repeats after so many bytes, a number without a common divisor with any piece's limit.
const PERIOD: usize = 1_000_003;
const CONNECTIONS: u64 = 6;

/// What one direction carries: its bytes, how many, and where its receiver stops reading for a while.
struct Direction {
    bytes: Vec<u8>,
    length: u64,
    stalls_at: u64,
    rng: Rng,
}

/// How a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Each direction by itself, the shorter one first.
    HalfClose,
    /// The client resets it after so many bytes of its own.
    Reset(u64),
}

fn piece(rng: &mut Rng) -> usize {
    let most = LARGEST >> rng.below(19);
    1 + rng.below(most.max(1)) as usize
}

impl Direction {
    fn drawn(rng: &mut Rng) -> Self {
        // from a byte to 16 MiB, as many short ones as long ones
        let shift = rng.below(20);
        let length = 1 + rng.below((16 << 20) >> shift);
        Self {
            bytes: pattern(rng.next_u64(), PERIOD),
            length,
            stalls_at: rng.below(length * 4),
            rng: Rng::new(rng.next_u64()),
        }
    }

    /// The bytes from `at` on, at most so many.
    fn from(&self, at: u64, most: usize) -> &[u8] {
        let begin = (at % PERIOD as u64) as usize;
        &self.bytes[begin..(begin + most).min(PERIOD)]
    }

    /// Sends all, or so much before a reset. How many bytes; fewer where the other end is gone.
    fn send(&self, mut stream: &TcpStream, most: u64) -> u64 {
        let mut rng = self.rng.clone();
        let mut at = 0;
        while at < most {
            let size = piece(&mut rng).min(usize::try_from(most - at).unwrap());
            match stream.write(self.from(at, size)) {
                Ok(n) => at += n as u64,
                Err(error) => {
                    let gone = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                    assert!(gone.contains(&error.kind()), "sending: {error}");
                    return at;
                }
            }
        }
        at
    }

    /// Reads to the end and compares each byte; how many, and whether it was the end of the stream.
    fn receive(&self, mut stream: &TcpStream, name: &str) -> (u64, bool) {
        let mut rng = Rng::new(self.length);
        let mut buffer = vec![0; LARGEST as usize];
        let mut at = 0;
        loop {
            let size = piece(&mut rng);
            let read = match stream.read(&mut buffer[..size]) {
                Ok(0) => return (at, true),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return (at, false),
                Err(error) => panic!("{name}: receiving after {at} bytes: {error}"),
            };
            let mut compared = 0;
            while compared < read {
                let right = self.from(at, read - compared);
                let end = compared + right.len();
                assert!(buffer[compared..end] == *right, "{name}: other bytes than sent at {at}");
                at += right.len() as u64;
                compared = end;
            }
            assert!(at <= self.length, "{name}: more than was sent");
            if (at - read as u64..at).contains(&self.stalls_at) {
                std::thread::sleep(Duration::from_millis(rng.below(400)));
            }
        }
    }
}

/// One connection from its first byte to its last; how many bytes arrived.
fn connection(protocol: TunnelProtocol, front: SocketAddr, rng: &mut Rng) -> u64 {
    let (up, down) = (Direction::drawn(rng), Direction::drawn(rng));
    let fault = match rng.below(4) {
        0 => Fault::Reset(rng.below(up.length)),
        _ => Fault::HalfClose,
    };
    let (listener, address) = listener();
    let client = Arc::new(protocol.open(front, address));
    let server = patient(listener.accept().unwrap().0);
    std::thread::scope(|scope| {
        let (sender, up) = (Arc::clone(&client), &up);
        let upward = scope.spawn(move || match fault {
            Fault::HalfClose => {
                assert_eq!(up.send(&sender, up.length), up.length);
                sender.shutdown(Shutdown::Write).unwrap();
            }
            Fault::Reset(after) => {
                up.send(&sender, after);
                // wakes the reader below, and the last close is a reset
                reset_on_close(&sender);
                sender.shutdown(Shutdown::Read).unwrap();
            }
        });
        let at_server = scope.spawn(|| up.receive(&server, "up"));
        let downward = scope.spawn(|| {
            if down.send(&server, down.length) == down.length {
                // fails where the client has reset it
                let _ = server.shutdown(Shutdown::Write);
            }
        });
        let (to_client, ended) = down.receive(&client, "down");
        upward.join().unwrap();
        if fault == Fault::HalfClose {
            assert_eq!((to_client, ended), (down.length, true), "down");
        }
        drop(client);
        downward.join().unwrap();
        let (to_server, ended) = at_server.join().unwrap();
        if fault == Fault::HalfClose {
            assert_eq!((to_server, ended), (up.length, true), "up");
        }
        to_client + to_server
    })
}

/// Several connections at once through a row of relays, until enough was moved.
fn soak(n: usize, upstream: UpstreamProtocol) {
    let _alone = crate::alone();
    let total = number("EKIDEN_SOAK_MIB", 128) << 20;
    let seed = number("EKIDEN_SOAK_SEED", 1);
    // once for what the test process itself opens and keeps
    drop(Row::single(settings(CopyMode::Auto)));
    let before = descriptors();
    let row = Row::start(n, upstream, &settings(CopyMode::Random(seed)));
    let front = row.front();
    let begun = Instant::now();
    let (moved, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (nth, protocol) in (0..CONNECTIONS).zip(TUNNEL_PROTOCOLS.into_iter().cycle()) {
            let (moved, ended) = (&moved, &ended);
            scope.spawn(move || {
                let mut rng = Rng::new(seed.wrapping_mul(100).wrapping_add(nth));
                while moved.load(Relaxed) < total {
                    moved.fetch_add(connection(protocol, front, &mut rng), Relaxed);
                    ended.fetch_add(1, Relaxed);
                }
            });
        }
    });
    println!(
        "{n} relays by {upstream:?}, seed {seed}: {} connections, {} MiB, every byte as sent, in {:.1} s; at most {} pipes and {} bytes of memory at once",
        ended.into_inner(),
        moved.into_inner() >> 20,
        begun.elapsed().as_secs_f64(),
        row.budget("pipes").peak,
        row.budget("memory").peak,
    );
    row.wait_until_empty();
    drop(row);
    let left = || descriptors().saturating_sub(before);
    wait_until(|| left() == 0, || format!("{} descriptors left within {LONG:?}", left()));
}

#[test]
fn two_sockets_carry_what_was_sent() {
    soak(1, UpstreamProtocol::Http);
}

#[test]
fn three_relays_carry_what_was_sent() {
    soak(3, UpstreamProtocol::Socks5);
}

#[test]
fn a_socket_and_a_flow_carry_what_was_sent() {
    soak(2, UpstreamProtocol::Tunnel);
}

#[test]
fn a_flow_and_a_flow_carry_what_was_sent() {
    soak(3, UpstreamProtocol::Tunnel);
}

#[test]
fn a_socket_and_a_tls_session_carry_what_was_sent() {
    soak(2, UpstreamProtocol::Https);
}

#[test]
fn a_tls_session_and_a_tls_session_carry_what_was_sent() {
    soak(3, UpstreamProtocol::Https);
}
