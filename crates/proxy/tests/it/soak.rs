//! Much data both ways at once, in random pieces with random pauses, splice and copy switched at
//! random: what goes out is what came in, by hash.
//!
//! `EKIDEN_SOAK_MIB` sets how much each test moves, both directions of all connections together
//! (default 256). `EKIDEN_SOAK_SEED` repeats a run.
use crate::common::{Row, TUNNEL_PROTOCOLS, TunnelProtocol, listener, patient, settings};
use ekiden_model::rng::Rng;
use ekiden_proxy::settings::{CopyMode, UpstreamProtocol};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Pieces from one byte to this, most of them small.
const LARGEST: u64 = 256 * 1024;

fn piece(rng: &mut Rng) -> usize {
    let most = LARGEST >> rng.below(19);
    1 + rng.below(most.max(1)) as usize
}

/// Seldom, and seldom for long: a pause lets the other side run dry or fill up.
fn pause(rng: &mut Rng) {
    match rng.below(2000) {
        0 => std::thread::sleep(Duration::from_millis(rng.below(20))),
        1..=20 => std::thread::yield_now(),
        _ => {}
    }
}

/// Random bytes; the piece to be sent begins anywhere in them, so that no two are alike.
fn noise(rng: &mut Rng) -> Vec<u8> {
    (0..LARGEST / 4).flat_map(|_| rng.next_u64().to_le_bytes()).collect()
}

/// Sends `length` bytes and the end of the stream; their hash.
fn send(mut stream: &TcpStream, length: u64, mut rng: Rng) -> [u8; 32] {
    let noise = noise(&mut rng);
    let mut hash = Sha256::new();
    let mut left = length;
    while left > 0 {
        let size = piece(&mut rng).min(usize::try_from(left).unwrap());
        let at = rng.below(LARGEST) as usize;
        let bytes = &noise[at..at + size];
        stream.write_all(bytes).unwrap();
        hash.update(bytes);
        left -= size as u64;
        pause(&mut rng);
    }
    stream.shutdown(Shutdown::Write).unwrap();
    hash.finalize().into()
}

/// Reads to the end; how many bytes there were, and their hash.
fn receive(mut stream: &TcpStream, mut rng: Rng) -> (u64, [u8; 32]) {
    let mut buffer = vec![0; LARGEST as usize];
    let mut hash = Sha256::new();
    let mut length = 0;
    loop {
        let size = piece(&mut rng);
        let n = stream.read(&mut buffer[..size]).unwrap();
        if n == 0 {
            return (length, hash.finalize().into());
        }
        hash.update(&buffer[..n]);
        length += n as u64;
        pause(&mut rng);
    }
}

/// `length` bytes each way over one tunnel.
fn both_ways(protocol: TunnelProtocol, front: SocketAddr, length: u64, seed: u64) {
    let (listener, address) = listener();
    let client = protocol.open(front, address);
    let server = patient(listener.accept().unwrap().0);
    let rng = |nth| Rng::new(seed.wrapping_mul(10).wrapping_add(nth));
    std::thread::scope(|scope| {
        let up = scope.spawn(|| send(&client, length, rng(0)));
        let down = scope.spawn(|| send(&server, length, rng(1)));
        let at_server = scope.spawn(|| receive(&server, rng(2)));
        let at_client = scope.spawn(|| receive(&client, rng(3)));
        assert_eq!(
            at_server.join().unwrap(),
            (length, up.join().unwrap()),
            "up, {protocol:?} {seed}"
        );
        assert_eq!(
            at_client.join().unwrap(),
            (length, down.join().unwrap()),
            "down, {protocol:?} {seed}"
        );
    });
}

/// Several tunnels at once through `n` relays; reports what was moved.
fn soak(n: usize, connections: u64) {
    let total = number("EKIDEN_SOAK_MIB", 256) << 20;
    let seed = number("EKIDEN_SOAK_SEED", 1);
    let each = total / connections / 2;
    let row = Row::start(n, UpstreamProtocol::Http, &settings(CopyMode::Random(seed)));
    let front = row.front();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for (nth, protocol) in (0..connections).zip(TUNNEL_PROTOCOLS.into_iter().cycle()) {
            scope.spawn(move || both_ways(protocol, front, each, seed.wrapping_add(nth)));
        }
    });
    let seconds = begun.elapsed().as_secs_f64();
    let totals = row.front_server().status().totals;
    let pipes = row.budget("pipes").peak;
    println!(
        "{n} relays, {connections} connections, seed {seed}: {} bytes up and {} down, every hash equal, in {seconds:.1} s; at most {pipes} pipes and {} bytes of memory at once",
        totals.bytes_up,
        totals.bytes_down,
        row.budget("memory").peak,
    );
    assert_eq!((totals.bytes_up, totals.bytes_down), (each * connections, each * connections));
    assert!(pipes > 0, "nothing was spliced");
    row.wait_until_empty();
}

#[test]
fn one_connection() {
    soak(1, 1);
}

#[test]
fn several_connections_through_three_relays() {
    soak(3, 6);
}
