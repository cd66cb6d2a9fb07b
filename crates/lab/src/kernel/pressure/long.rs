//! One stream over a path that wants more than the kernel's tuning gives (issue 6): relays with their
//! default settings, and what they said of their buffers.
//!
//! How wide a window can become is settled in the handshake by the third number of `tcp_rmem`, the cell's
//! `receive`: 32 MiB since Linux 6.16, 6 MiB before.
//!
//! Where the long leg ends at a client or server, that one's own limits are set wide, as by somebody who
//! knows such paths; with a relay at each end nobody's are.

use super::cost::{self, Processors};
use super::{BUFFERS_OF_LINUX, sockets};
use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use crate::kernel::network::{self, Network};
use crate::kernel::set_up::place;
use crate::load::documents::Documents;
use crate::load::fetch::fetch;
use crate::peers::{Peer, Start, ekiden};
use ekiden_emulator::topology::Topology;
use ekiden_model::units::{Bytes, Span};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What is looked at: after the stream has found its rate, for half a minute.
const FROM: Duration = Duration::from_secs(15);
/// Longer than any run could take.
const WHOLE: u64 = 1 << 50;
const APART: Duration = Duration::from_secs(1);
/// Buffers of an end that was set by hand, bytes: four times 200 Mbit/s × 600 ms.
const WIDE: u64 = 64 << 20;

/// The network of a cell.
///
/// # Errors
/// The cell lacks a value or has one that makes no network.
pub(super) fn network(cell: &Cell, seed: u64) -> Result<Network, EngineError> {
    let mut network = network::of(cell, seed, None)?;
    let relays: usize = cell.value("relays")?;
    let receive = cell.value::<Bytes>("receive")?.as_u64();
    for host in &mut network.plan.hosts {
        let own = BUFFERS_OF_LINUX.map(|(key, value)| (key.to_owned(), value.to_owned()));
        host.sysctls.extend(own);
        host.sysctls.insert("net.ipv4.tcp_rmem".to_owned(), format!("4096 131072 {receive}"));
        if relays < 2 && !host.name.starts_with("relay") {
            for (key, first) in [("net.ipv4.tcp_rmem", 131_072), ("net.ipv4.tcp_wmem", 16_384)] {
                host.sysctls.insert(key.to_owned(), format!("4096 {first} {WIDE}"));
            }
        }
    }
    Ok(network)
}

/// A cell's run.
///
/// # Errors
/// The cell lacks a value, something did not start, or nothing came.
pub(super) fn run(cell: &Cell, seed: u64, binary: &Path) -> Result<Outcome, EngineError> {
    let duration: Span = cell.value("duration")?;
    let network = network(cell, seed)?;
    let built = |error: &dyn std::fmt::Display| EngineError(format!("the network: {error}"));
    let topology = Topology::build(&network.plan).map_err(|error| built(&error))?;
    let host = |name: &str| {
        topology.host(name).ok_or_else(|| EngineError(format!("the host {name} is not there")))
    };
    let server = SocketAddr::from((host("server")?.address(), 80));
    let serve = || Documents::serve(&[server]);
    let started = host("server")?.run(serve).map_err(|error| built(&error))?;
    let servers = started.map_err(|error| built(&error))?;
    let mut relays: Vec<Peer> = Vec::new();
    for name in network.hosts.iter().filter(|name| name.starts_with("relay")).rev() {
        let place = Some(place(host(name)?).map_err(|error| built(&error))?);
        let start = Start { cpu: None, place, upstream: relays.first().map(|next| next.address) };
        relays.insert(0, ekiden::start_asked(&start, binary, "")?);
    }
    let first = relays.first().map_or(server, |relay| relay.address);
    let begin = Instant::now();
    let end = begin + Duration::from_nanos(duration.as_nanos());
    let counted = Arc::new(AtomicU64::new(0));
    let shared = Arc::clone(&counted);
    let download = move || -> std::io::Result<_> {
        let mut stream = TcpStream::connect(first)?;
        fetch(&mut stream, (server, WHOLE), end, &shared)
    };
    let client = topology.host("client");
    let client = client.ok_or_else(|| EngineError("the client is not there".to_owned()))?;
    // a thread of its own in the client's namespace, so that this one can look
    let begun = client.run(|| thread::Builder::new().spawn(download));
    let download = begun.map_err(|error| built(&error))?.map_err(|error| built(&error))?;

    let mut series = Vec::new();
    let mut buffers = [0_u64; 2];
    let (mut refused, mut refusal, mut middle) = (0, None, None);
    while Instant::now() + APART < end {
        thread::sleep(APART);
        if middle.is_none() && begin.elapsed() >= FROM {
            middle = Some((Instant::now(), counted.load(Ordering::Relaxed), Processors::look()));
        }
        series.push((begin.elapsed().as_secs_f64(), counted.load(Ordering::Relaxed)));
        for (number, relay) in relays.iter().enumerate() {
            let host = topology.host(&format!("relay{}", number + 1));
            let Some(host) = host else { continue };
            for memory in sockets::memory(host)?.values() {
                buffers = [buffers[0].max(memory.tb), buffers[1].max(memory.rb)];
            }
            let Ok(status) = ekiden::control(relay).status() else { continue };
            refused = refused.max(status["buffers"]["refused"].as_u64().unwrap_or(0));
            refusal = status["buffers"]["refusal"].as_str().map(str::to_owned).or(refusal);
        }
    }
    let (since, before, then) = middle.ok_or_else(|| {
        EngineError(format!("a run of {duration} ends before {FROM:?} have passed"))
    })?;
    let (seconds, after) = (since.elapsed().as_secs_f64(), counted.load(Ordering::Relaxed));
    let busy = then.zip(Processors::look()).map(|(then, now)| now.busy_since(then));
    let ended = download.join();
    if after == before {
        return Err(EngineError(format!("nothing came: {ended:?}")));
    }
    let value = (after - before) as f64 * 8.0 / 1e6 / seconds;
    let mut outcome = Outcome { value, ..Outcome::default() };
    for (name, value) in [
        ("counted_s", seconds),
        ("send_buffer_mib", buffers[0] as f64 / f64::from(1 << 20)),
        ("receive_buffer_mib", buffers[1] as f64 / f64::from(1 << 20)),
        ("sizes_refused", refused as f64),
        ("machine_busy", busy.unwrap_or(0.0)),
    ] {
        outcome.figures.insert(name.to_owned(), value);
    }
    if let Some(refusal) = refusal {
        outcome.facts.insert("refused".to_owned(), refusal);
    }
    let rate = |pair: &[(f64, u64)]| match pair {
        [(t0, b0), (t1, b1)] => Some([*t1, (b1 - b0) as f64 * 8.0 / 1e6 / (t1 - t0)]),
        _ => None,
    };
    let over_time = series.windows(2).filter_map(rate).collect();
    outcome.series.insert("goodput, Mbit/s".to_owned(), over_time);
    drop(relays);
    drop(servers);
    let links = topology.finish().map_err(|error| EngineError(format!("the links: {error}")))?;
    (outcome.fidelity, outcome.reasons) = cost::judge(&links, busy);
    Ok(outcome)
}
