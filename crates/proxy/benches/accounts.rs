//! What accounts get through real sockets: how exactly a rate holds in each protocol, with one connection and
//! with fifty, copied and spliced; and how the relay's own rate is shared.
//!
//! `cargo bench -p ekiden-proxy --bench accounts [SECONDS]`: about 25 × (SECONDS + 2); 6 unless said.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Row, TunnelProtocol, connect, read_head};
use ekiden_model::units::Rate;
use ekiden_proxy::settings::{Account, CopyMode, Limits, Settings, UpstreamProtocol};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Until rates are what they stay.
const WARM: Duration = Duration::from_secs(2);

fn rate(mbit: u64) -> Option<Rate> {
    Some(Rate::from_bits_per_second(mbit * 1_000_000))
}

/// The account of an address of this machine.
fn account(nth: u8, limits: Limits) -> Account {
    Account {
        name: format!("home-{nth}"),
        addresses: vec![format!("127.0.0.{nth}/32").parse().unwrap()],
        peers: Vec::new(),
        limits,
    }
}

/// Sends without end to whoever comes, after a head where one is wanted.
fn source() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let mut first = [0; 4];
                stream.read_exact(&mut first).unwrap();
                if &first == b"GET " {
                    let head = "HTTP/1.1 200 OK\r\nContent-Length: 1099511627776\r\n\r\n";
                    let _ = stream.write_all(head.as_bytes());
                }
                let bytes = [0; 65_536];
                while stream.write_all(&bytes).is_ok() {}
            });
        }
    });
    address
}

/// A download from an address of this machine, by one door.
fn download(
    protocol: Option<TunnelProtocol>,
    from: u8,
    relay: SocketAddr,
    to: SocketAddr,
) -> TcpStream {
    let bound = |nth: u8| {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let own = SocketAddr::new(IpAddr::from([127, 0, 0, nth]), 0);
        socket.bind(&own.into()).unwrap();
        socket.connect(&relay.into()).unwrap();
        common::patient(TcpStream::from(socket))
    };
    match protocol {
        // every door is the same address' but HTTP's and CONNECT's, which can be spoken by hand
        Some(protocol @ (TunnelProtocol::Socks5 | TunnelProtocol::Socks4a)) if from == 1 => {
            let mut stream = protocol.open(relay, to);
            stream.write_all(b"now!").unwrap();
            stream
        }
        Some(_) => {
            let mut stream = bound(from);
            write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
            assert!(read_head(&mut stream).starts_with("HTTP/1.1 200"));
            stream.write_all(b"now!").unwrap();
            stream
        }
        None => {
            let mut stream = if from == 1 { connect(relay) } else { bound(from) };
            write!(stream, "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
            assert!(read_head(&mut stream).starts_with("HTTP/1.1 200"));
            stream
        }
    }
}

/// Mbit/s that each group of connections receives.
fn measure(groups: Vec<Vec<TcpStream>>, seconds: u64) -> Vec<f64> {
    let over = Arc::new(AtomicBool::new(false));
    let counts: Vec<Arc<AtomicU64>> = groups.iter().map(|_| Arc::default()).collect();
    let mut readers = Vec::new();
    for (group, count) in groups.into_iter().zip(&counts) {
        for mut stream in group {
            let (over, count) = (Arc::clone(&over), Arc::clone(count));
            readers.push(std::thread::spawn(move || {
                let mut bytes = [0; 65_536];
                while !over.load(Relaxed) {
                    let n = stream.read(&mut bytes).unwrap();
                    count.fetch_add(n as u64, Relaxed);
                }
            }));
        }
    }
    let look = || -> Vec<u64> { counts.iter().map(|count| count.load(Relaxed)).collect() };
    std::thread::sleep(WARM);
    let (before, begun) = (look(), Instant::now());
    std::thread::sleep(Duration::from_secs(seconds));
    let (after, elapsed) = (look(), begun.elapsed().as_secs_f64());
    over.store(true, Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    let mbit = |(after, before)| (after - before) as f64 * 8.0 / elapsed / 1e6;
    after.into_iter().zip(before).map(mbit).collect()
}

fn limited(to: SocketAddr, seconds: u64) {
    let limits = Limits { rates: [None, rate(5)], ..Limits::default() };
    println!("an account of 5 Mbit/s: Mbit/s received in {seconds} s\n");
    println!("{:<12}{:<10}{:>6}{:>12}{:>10}", "door", "movement", "conns", "Mbit/s", "off by");
    let protocols = [
        ("http", None),
        ("connect", Some(TunnelProtocol::Connect)),
        ("socks5", Some(TunnelProtocol::Socks5)),
    ];
    let ways = protocols.map(|(name, protocol)| (name, protocol, 1)).into_iter();
    for (name, protocol, relays) in ways.chain([("tunnel", Some(TunnelProtocol::Connect), 2)]) {
        for (moved, movement) in [("copy", CopyMode::Copy), ("splice", CopyMode::Splice)] {
            for connections in [1, 50] {
                let mut settings: Settings = common::settings(movement);
                settings.sharing.list = vec![account(1, limits)];
                let row = match relays {
                    1 => Row::single(settings),
                    n => Row::start(n, UpstreamProtocol::Tunnel, &settings),
                };
                let open = |_| download(protocol, 1, row.front(), to);
                let got = measure(vec![(0..connections).map(open).collect()], seconds)[0];
                let off = (got / 5.0 - 1.0) * 100.0;
                println!("{name:<12}{moved:<10}{connections:>6}{got:>12.3}{off:>8.2} %");
            }
        }
    }
}

fn shared(to: SocketAddr, seconds: u64) {
    println!("\n20 Mbit/s of the relay's own: Mbit/s received by two accounts in {seconds} s\n");
    println!("{:<12}{:>10}{:>10}{:>10}{:>10}", "conns", "weights", "first", "second", "first's");
    for (connections, weights) in
        [([10, 1], [1, 1]), ([50, 5], [1, 1]), ([1, 10], [3, 1]), ([10, 1], [3, 1])]
    {
        let mut settings: Settings = common::settings(CopyMode::Auto);
        settings.sharing.downlink = rate(20);
        let limits = |weight| Limits { weight, ..Limits::default() };
        settings.sharing.list =
            vec![account(2, limits(weights[0])), account(3, limits(weights[1]))];
        let row = Row::single(settings);
        let open = |nth: u8, n: u32| -> Vec<TcpStream> {
            (0..n).map(|_| download(Some(TunnelProtocol::Connect), nth, row.front(), to)).collect()
        };
        let got = measure(vec![open(2, connections[0]), open(3, connections[1])], seconds);
        let share = got[0] * 100.0 / (got[0] + got[1]);
        let [conns, weights] = [connections, weights].map(|[a, b]| format!("{a}:{b}"));
        println!("{conns:<12}{weights:>10}{:>10.3}{:>10.3}{share:>8.2} %", got[0], got[1]);
    }
}

fn main() {
    let seconds = std::env::args().filter_map(|text| text.parse().ok()).next().unwrap_or(6);
    let to = source();
    limited(to, seconds);
    shared(to, seconds);
}
