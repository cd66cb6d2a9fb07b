//! How far the links are from what they were asked to be, on this machine and now.

use super::hosts::{bind_udp, host};
use ekiden_emulator::settings::Settings;
use ekiden_emulator::topology::{HostPlan, LinkPlan, MTU, Topology, TopologyPlan};
use ekiden_lab::engine::{Calibration, During, EngineError};
use ekiden_lab::study::Packets;
use ekiden_model::units::{Rate, Span};
use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

const PROBING: &str = "probing the link";
const PROBES: u32 = 200;
const BETWEEN_PROBES: Duration = Duration::from_millis(5);
/// Each way.
const DELAY: Span = Span::from_millis(25);
const RATE: Rate = Rate::from_bits_per_second(100_000_000);
/// A datagram that fills a packet: 1500 bytes of IP.
const DATAGRAM: usize = MTU as usize - 28;
const FLOOD: Duration = Duration::from_secs(2);
/// The rate is that of the median slot: what this program itself missed in one does not count.
const SLOT: Duration = Duration::from_millis(100);

/// Two hosts and a link of [`DELAY`] each way.
pub(super) fn two_hosts(
    rate: Rate,
    packets: Packets,
    sysctls: &BTreeMap<String, String>,
) -> Result<Topology, EngineError> {
    let Packets { mtu, together } = packets;
    let settings = Settings { delay: Some(DELAY), rate: Some(rate), ..Settings::default() };
    let config = settings.config(mtu, together, 1, Path::new("."))?;
    let host = |name: &str| HostPlan {
        name: name.to_owned(),
        sysctls: sysctls.clone(),
        ..HostPlan::default()
    };
    let plan = TopologyPlan {
        hosts: vec![host("near"), host("far")],
        links: vec![LinkPlan {
            name: "link".to_owned(),
            between: ["near".to_owned(), "far".to_owned()],
            mtu,
            super_packets: together,
            one_by_one: !together,
            forward: config.clone(),
            backward: config,
        }],
        processes: Vec::new(),
    };
    Ok(Topology::build(&plan)?)
}

/// Measures round trip and rate by UDP. Errors: nothing came through.
pub(super) fn links() -> Result<Calibration, EngineError> {
    let packets = Packets { mtu: MTU, together: false };
    let topology = two_hosts(RATE, packets, &BTreeMap::new())?;
    let (near, far) = (host(&topology, "near")?, host(&topology, "far")?);
    let (here, there) = (bind_udp(near)?, bind_udp(far)?);
    let connect = |socket: &UdpSocket, to: &UdpSocket| {
        socket.set_read_timeout(Some(Duration::from_millis(500)))?;
        socket.connect(to.local_addr()?)
    };
    connect(&here, &there).and_then(|()| connect(&there, &here)).during(PROBING)?;
    let mut round_trips = round_trips(&here, &there).during(PROBING)?;
    round_trips.sort_unstable();
    let share = |n: usize| round_trips.get(round_trips.len() * n / 100).copied();
    let (Some(median), Some(p99)) = (share(50), share(99)) else {
        return Err(EngineError("no probe came back over a link of 50 ms".to_owned()));
    };
    let rate = rate(&here, &there).during(PROBING)?;
    let asked = 2.0 * DELAY.as_nanos() as f64 / 1e9;
    let asked_rate = RATE.as_bits_per_second() as f64;
    let errors = [
        ("round trip, 50 ms", median.as_secs_f64() / asked - 1.0),
        ("rate, 100 Mbit/s", rate / asked_rate - 1.0),
    ];
    let figures = [
        ("round trip, median, ms", median.as_secs_f64() * 1e3),
        ("round trip, p99, ms", p99.as_secs_f64() * 1e3),
        ("rate, Mbit/s", rate / 1e6),
        ("probes that came back", round_trips.len() as f64),
    ];
    Ok(Calibration {
        errors: errors.map(|(name, value)| (name.to_owned(), value)).into(),
        figures: figures.map(|(name, value)| (name.to_owned(), value)).into(),
    })
}

/// Echoes at the far end, until nothing has come for a while.
fn round_trips(here: &UdpSocket, there: &UdpSocket) -> io::Result<Vec<Duration>> {
    let base = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut probe = [0; 64];
            while let Ok(length) = there.recv(&mut probe) {
                let _lost = there.send(&probe[..length]);
            }
        });
        let sender = scope.spawn(|| {
            for _ in 0..PROBES {
                let sent = base.elapsed().as_nanos() as u64;
                here.send(&sent.to_ne_bytes())?;
                thread::sleep(BETWEEN_PROBES);
            }
            Ok::<(), io::Error>(())
        });
        let mut took = Vec::new();
        let mut stamp = [0; 8];
        while took.len() < PROBES as usize && here.recv(&mut stamp).is_ok() {
            let sent = Duration::from_nanos(u64::from_ne_bytes(stamp));
            took.push(base.elapsed().saturating_sub(sent));
        }
        sender.join().unwrap_or_else(|_| Err(io::Error::other("the prober panicked")))?;
        Ok(took)
    })
}

/// Bits per second of IP packets that come through when more are sent.
fn rate(here: &UdpSocket, there: &UdpSocket) -> io::Result<f64> {
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut datagram = [0; DATAGRAM + 1];
            let mut arrivals = Vec::new();
            while there.recv(&mut datagram).is_ok() {
                arrivals.push(Instant::now());
            }
            arrivals
        });
        let begun = Instant::now();
        let datagram = [0; DATAGRAM];
        // a third more than the link carries, every 2 ms
        let burst = RATE.as_bits_per_second() * 4 / 3 / 500 / 8 / u64::from(MTU);
        while begun.elapsed() < FLOOD {
            for _ in 0..burst {
                let _full = here.send(&datagram);
            }
            thread::sleep(Duration::from_millis(2));
        }
        let arrivals = receiver.join().unwrap_or_default();
        median_rate(&arrivals)
            .ok_or_else(|| io::Error::other("too little of a stream of datagrams came through"))
    })
}

/// Of the median slot, by its packets and the time from the last one before it to its own last.
fn median_rate(arrivals: &[Instant]) -> Option<f64> {
    let first = *arrivals.first()?;
    let slot = |at: &Instant| at.duration_since(first).as_nanos() / SLOT.as_nanos();
    let ends: Vec<(usize, Instant)> = arrivals
        .windows(2)
        .enumerate()
        .filter(|(_, pair)| slot(&pair[0]) != slot(&pair[1]))
        .map(|(at, pair)| (at, pair[0]))
        .collect();
    let mut rates: Vec<f64> = ends
        .windows(2)
        .map(|pair| {
            let bits = (pair[1].0 - pair[0].0) as f64 * f64::from(MTU) * 8.0;
            bits / pair[1].1.duration_since(pair[0].1).as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_rate_ignores_a_gap() {
        let begun = Instant::now();
        let every = Duration::from_micros(120); // 1500 bytes at 100 Mbit/s
        let arrivals: Vec<Instant> =
            (0..10_000).filter(|n| !(3000..3400).contains(n)).map(|n| begun + every * n).collect();
        let rate = median_rate(&arrivals).unwrap();
        assert!((rate / 1e8 - 1.0).abs() < 1e-3, "{rate}");
        assert_eq!(median_rate(&arrivals[..1]), None);
        assert_eq!(median_rate(&[]), None);
    }
}
