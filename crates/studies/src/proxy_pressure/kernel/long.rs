//! One stream over a path that wants more than the kernel's tuning gives: relays with default settings, and the
//! buffers they report.
//!
//! The third number of `tcp_rmem`, the cell's `receive`, bounds the window at the handshake: 32 MiB since Linux
//! 6.16, 6 MiB before. A client or server at an end of the long leg has wide limits; with a relay at each end
//! nobody has.

use super::sockets;
use crate::download::network::{self, Network};
use crate::kernel::BUFFERS_OF_LINUX;
use crate::kernel::hosts::{host, place};
use crate::kernel::verdict::{self, Processors};
use ekiden_emulator::topology::Topology;
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{During, EngineError, Outcome};
use ekiden_model::units::{Bytes, Span};
use ekiden_testbed::load::documents::Documents;
use ekiden_testbed::load::fetch::fetch;
use ekiden_testbed::peers::{Peer, Start, ekiden};
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

pub(super) fn run(cell: &Cell, seed: u64, binary: &Path) -> Result<Outcome, EngineError> {
    let duration: Span = cell.value("duration")?;
    let network = network(cell, seed)?;
    const NETWORK: &str = "the network";
    let topology = Topology::build(&network.plan).during(NETWORK)?;
    let server = SocketAddr::from((host(&topology, "server")?.address(), 80));
    let serve = || Documents::serve(&[server]);
    let servers = host(&topology, "server")?.run(serve).during(NETWORK)?.during(NETWORK)?;
    let mut relays: Vec<Peer> = Vec::new();
    for name in network.hosts.iter().filter(|name| name.starts_with("relay")).rev() {
        let place = Some(place(host(&topology, name)?).during(NETWORK)?);
        let start =
            Start { place, upstream: relays.first().map(|next| next.address), ..Start::default() };
        relays.insert(0, ekiden::start_asked(&start, binary, "")?);
    }
    let first = relays.first().map_or(server, |relay| relay.address);
    let begin = Instant::now();
    let end = begin + Duration::from(duration);
    let counted = Arc::new(AtomicU64::new(0));
    let shared = Arc::clone(&counted);
    let download = move || -> std::io::Result<_> {
        let mut stream = TcpStream::connect(first)?;
        fetch(&mut stream, (server, WHOLE), end, &shared)
    };
    let client = host(&topology, "client")?;
    // a thread of its own in the client's namespace, so that this one can look
    let begun = client.run(|| thread::Builder::new().spawn(download));
    let download = begun.during(NETWORK)?.during(NETWORK)?;

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
    let mut outcome = Outcome::of(value);
    outcome.add_figures([
        ("counted_s", seconds),
        ("send_buffer_mib", buffers[0] as f64 / f64::from(1 << 20)),
        ("receive_buffer_mib", buffers[1] as f64 / f64::from(1 << 20)),
        ("sizes_refused", refused as f64),
        ("machine_busy", busy.unwrap_or(0.0)),
    ]);
    refusal.into_iter().for_each(|refusal| outcome.add_fact("refused", refusal));
    let rate = |pair: &[(f64, u64)]| match pair {
        [(t0, b0), (t1, b1)] => Some([*t1, (b1 - b0) as f64 * 8.0 / 1e6 / (t1 - t0)]),
        _ => None,
    };
    let over_time = series.windows(2).filter_map(rate).collect();
    outcome.series.insert("goodput, Mbit/s".to_owned(), over_time);
    drop(relays);
    drop(servers);
    let links = topology.finish().during("the links")?;
    (outcome.fidelity, outcome.reasons) = verdict::judge(&links, busy);
    Ok(outcome)
}
