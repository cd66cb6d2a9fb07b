//! What runs at the ends of a link: datagrams, sent, echoed, counted.

use clap::Subcommand;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg, sockopt};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the far end listens.
pub(crate) const PORT: u16 = 7007;
/// Shorter datagrams ask whether anybody is there.
const DATA: usize = 16;
/// After so long without a datagram, all have come.
const QUIET: Duration = Duration::from_millis(700);
/// Datagrams that one call sends at most.
const BATCH: u64 = 32;

#[derive(Debug, Subcommand)]
pub(crate) enum Probe {
    /// Sends every datagram back
    Echo,
    /// Sends datagrams to be echoed and measures each one's round trip
    Rtt { address: Ipv4Addr, count: usize, per_second: f64, file: PathBuf },
    /// Counts datagrams until no more come
    Sink { file: PathBuf },
    /// Sends datagrams, and waits until `until` is there
    Flood {
        address: Ipv4Addr,
        bytes: usize,
        per_second: f64,
        count: u64,
        file: PathBuf,
        until: PathBuf,
    },
}

/// What [`Probe::Sink`] found.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sunk {
    /// Datagrams.
    pub(crate) packets: u64,
    /// Those the socket had no room for: lost here and not by the link.
    pub(crate) overflowed: u64,
    /// Over the middle of the run: seconds between its first and last datagram.
    pub(crate) seconds: f64,
    /// Bytes of IP packets after its first datagram.
    pub(crate) bytes: u64,
}

/// What [`Probe::Flood`] did.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// Datagrams.
    pub(crate) packets: u64,
    /// How long that took.
    pub(crate) seconds: f64,
}

impl Probe {
    pub(crate) fn run(&self) -> io::Result<()> {
        match self {
            Self::Echo => echo(),
            Self::Rtt { address, count, per_second, file } => {
                write(file, &rtt(SocketAddr::from((*address, PORT)), *count, *per_second)?)
            }
            Self::Sink { file } => write(file, &sink()?),
            Self::Flood { address, bytes, per_second, count, file, until } => {
                let address = SocketAddr::from((*address, PORT));
                write(file, &flood(address, *bytes, *per_second, *count)?)?;
                wait_for(until)
            }
        }
    }
}

fn write(file: &Path, value: &impl Serialize) -> io::Result<()> {
    // under its name only when it is whole
    let part = file.with_extension("part");
    std::fs::write(&part, serde_json::to_vec(value)?)?;
    std::fs::rename(part, file)
}

fn wait_for(file: &Path) -> io::Result<()> {
    let begun = Instant::now();
    while !file.exists() {
        if begun.elapsed() > Duration::from_secs(20) {
            return Err(io::Error::other("the far end has not said what it got"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn listen() -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, PORT))?;
    // past net.core.rmem_max: a receiver that waits for a processor must not lose
    sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20)?;
    Ok(socket)
}

/// A socket to `address`, where somebody answers.
fn reach(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(address)?;
    sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20)?;
    socket.set_read_timeout(Some(Duration::from_millis(150)))?;
    for _ in 0..60 {
        let _ = socket.send(b"?");
        if socket.recv(&mut [0; 64]).is_ok() {
            // what is left of the asking goes by
            while socket.recv(&mut [0; 64]).is_ok() {}
            return Ok(socket);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(io::Error::other(format!("nobody answers at {address}")))
}

/// `ekiden link` starts the near end when something listens at the far one, and looks for TCP.
fn announce() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT))
}

fn echo() -> io::Result<()> {
    let socket = listen()?;
    let _there = announce()?;
    let mut bytes = [0; 2048];
    loop {
        let (length, from) = socket.recv_from(&mut bytes)?;
        let _ = socket.send_to(&bytes[..length], from);
    }
}

/// Nanoseconds of each round trip that came back.
fn rtt(address: SocketAddr, count: usize, per_second: f64) -> io::Result<Vec<u64>> {
    let socket = reach(address)?;
    socket.set_read_timeout(Some(QUIET))?;
    let begun = Instant::now();
    let receiver = socket.try_clone()?;
    let receiving = std::thread::spawn(move || {
        let mut times = Vec::with_capacity(count);
        let mut bytes = [0; 2048];
        while times.len() < count {
            let Ok(length) = receiver.recv(&mut bytes) else { break };
            let now = begun.elapsed().as_nanos() as u64;
            if let Some(sent) = bytes[..length].first_chunk::<8>() {
                times.push(now.saturating_sub(u64::from_ne_bytes(*sent)));
            }
        }
        times
    });
    for n in 0..count {
        let due = Duration::from_secs_f64(n as f64 / per_second);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let mut bytes = [0; 100];
        bytes[..8].copy_from_slice(&(begun.elapsed().as_nanos() as u64).to_ne_bytes());
        socket.send(&bytes)?;
    }
    receiving.join().map_err(|_| io::Error::other("the receiver panicked"))
}

fn sink() -> io::Result<Sunk> {
    let socket = listen()?;
    let _there = announce()?;
    let overflowed = overflows();
    let mut bytes = [0; 65_536];
    let mut arrivals: Vec<(Instant, u32)> = Vec::with_capacity(1 << 20);
    loop {
        match socket.recv_from(&mut bytes) {
            Ok((length, from)) if length < DATA => {
                socket.send_to(b"!", from)?;
            }
            Ok((length, _)) => {
                if arrivals.is_empty() {
                    socket.set_read_timeout(Some(QUIET))?;
                }
                // 28: IPv4's header and UDP's
                arrivals.push((Instant::now(), length as u32 + 28));
            }
            Err(_) if !arrivals.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    let (from, to) = (arrivals[0].0, arrivals[arrivals.len() - 1].0);
    let whole = to - from;
    // the queue must be full before, and the sender not yet done after
    let middle = from + whole.mul_f64(0.25)..=from + whole.mul_f64(0.85);
    let middle: Vec<_> = arrivals.iter().filter(|(at, _)| middle.contains(at)).collect();
    let seconds = match (middle.first(), middle.last()) {
        (Some((first, _)), Some((last, _))) => (*last - *first).as_secs_f64(),
        _ => 0.0,
    };
    Ok(Sunk {
        packets: arrivals.len() as u64,
        overflowed: overflows() - overflowed,
        seconds,
        bytes: middle.iter().skip(1).map(|(_, bytes)| u64::from(*bytes)).sum(),
    })
}

/// Datagrams that sockets of this namespace had no room for.
fn overflows() -> u64 {
    let text = std::fs::read_to_string("/proc/self/net/snmp").unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else { return 0 };
    let mut pairs = names.split_whitespace().zip(values.split_whitespace());
    pairs.find(|(name, _)| *name == "RcvbufErrors").and_then(|(_, n)| n.parse().ok()).unwrap_or(0)
}

fn flood(address: SocketAddr, bytes: usize, per_second: f64, count: u64) -> io::Result<Sent> {
    let socket = reach(address)?;
    let payload = vec![0; bytes];
    let vector = [IoSlice::new(&payload)];
    let begun = Instant::now();
    let mut sent = 0;
    while sent < count {
        let due = ((begun.elapsed().as_secs_f64() * per_second) as u64 + 1).min(count);
        if due <= sent {
            let next = Duration::from_secs_f64(sent as f64 / per_second);
            std::thread::sleep(
                next.saturating_sub(begun.elapsed()).max(Duration::from_micros(200)),
            );
            continue;
        }
        let mut none: Vec<_> =
            (sent..due).take(BATCH as usize).map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: Vec<_> =
            none.iter_mut().map(|none| MMsgHdr::new(&vector, none)).collect();
        sent += sendmmsg(&socket, &mut messages, SendFlags::empty())? as u64;
    }
    Ok(Sent { packets: sent, seconds: begun.elapsed().as_secs_f64() })
}
