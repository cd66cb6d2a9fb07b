//! The same load on each relay: bytes per CPU-second, connections per second, memory per idle connection.
//!
//! Relay and generator have one processor each. A relay's cost is the user and system time of its process tree
//! from `/proc`; work in the sender's softirq is charged to the sender, for every relay alike.

use ekiden_testbed::load::Method;
use ekiden_testbed::load::generator::{Generator, Load, Servers};
use ekiden_testbed::peers::{
    Peer, PeerError, Start, dante, ekiden, haproxy, nginx, ports, sing_box, squid, threaded,
};
use serde::Serialize;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Who takes part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contestant {
    /// As in tables and arguments.
    pub(crate) name: &'static str,
    /// How its clients ask.
    method: Method,
    start: Starter,
}

/// Forwarders go to the servers, the others wherever they are asked. Ekiden alone needs its binary.
type Starter = fn(&Start, &Servers, Option<&Path>) -> Result<Peer, PeerError>;

const fn contestant(name: &'static str, method: Method, start: Starter) -> Contestant {
    Contestant { name, method, start }
}

impl Contestant {
    /// All of them.
    pub(crate) const ALL: [Self; 12] = [
        contestant("squid", Method::Connect, |start, _, _| squid::start(start)),
        contestant("dante", Method::Socks5, |start, _, _| dante::start(start)),
        contestant("haproxy-splice", Method::None, |start, servers, _| {
            haproxy::start(start, servers.addresses(), true)
        }),
        contestant("haproxy-copy", Method::None, |start, servers, _| {
            haproxy::start(start, servers.addresses(), false)
        }),
        contestant("nginx-stream", Method::None, |start, servers, _| {
            nginx::stream(start, servers.addresses())
        }),
        contestant("microsocks", Method::Socks5, |start, _, _| threaded::microsocks(start)),
        contestant("tinyproxy", Method::Connect, |start, _, _| threaded::tinyproxy(start)),
        contestant("sing-box-connect", Method::Connect, |start, _, _| sing_box::proxy(start)),
        contestant("sing-box-socks5", Method::Socks5, |start, _, _| sing_box::proxy(start)),
        contestant("ekiden-connect", Method::Connect, start_ekiden),
        contestant("ekiden-socks5", Method::Socks5, start_ekiden),
        contestant("ekiden-forward", Method::None, start_forward),
    ];

    /// Whether it is ours.
    pub(crate) fn is_ekiden(self) -> bool {
        self.name.starts_with("ekiden")
    }

    /// Starts it. Errors: see [`PeerError`]; without a binary, Ekiden is [`PeerError::Missing`].
    pub(crate) fn start(
        self,
        start: &Start,
        servers: &Servers,
        binary: Option<&Path>,
    ) -> Result<Peer, PeerError> {
        (self.start)(start, servers, binary)
    }
}

fn start_ekiden(start: &Start, _: &Servers, binary: Option<&Path>) -> Result<Peer, PeerError> {
    ekiden::start(start, binary.unwrap_or(Path::new("ekiden")), "")
}

/// A forwarded port, which does what HAProxy and nginx do here: no client asks for anything. One leads to one server.
fn start_forward(
    start: &Start,
    servers: &Servers,
    binary: Option<&Path>,
) -> Result<Peer, PeerError> {
    let io = |error| PeerError::Io("ekiden".to_owned(), error);
    let none = || io(io::Error::other("there is no server"));
    let (at, to) = (ports::free().map_err(io)?, servers.addresses().first().ok_or_else(none)?);
    let forward = format!("[[forward]]\nlisten = [\"{at}\"]\nto = \"{to}\"\n");
    let mut peer = ekiden::start(start, binary.unwrap_or(Path::new("ekiden")), &forward)?;
    peer.address = at;
    Ok(peer)
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    /// Bytes per CPU-second on one connection.
    Bulk1,
    /// The same on 100.
    Bulk100,
    /// Connections opened, used for one small request and closed, per second, 64 at a time.
    Connects,
    /// Bytes of user-space memory per idle tunnel.
    Idle,
}

impl Test {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Bulk1, Self::Bulk100, Self::Connects, Self::Idle];

    /// Its name in arguments, its unit, and what its servers do.
    const fn facts(self) -> (&'static str, &'static str, Load) {
        match self {
            Self::Bulk1 => ("bulk1", "bytes per CPU-second", Load::Bulk),
            Self::Bulk100 => ("bulk100", "bytes per CPU-second", Load::Bulk),
            Self::Connects => ("connects", "connections per second", Load::Connects),
            Self::Idle => ("idle", "bytes per idle connection", Load::Idle),
        }
    }

    /// As in arguments.
    pub(crate) fn name(self) -> &'static str {
        self.facts().0
    }

    /// Of [`Row::value`].
    pub(crate) fn unit(self) -> &'static str {
        self.facts().1
    }

    /// Whether a smaller value is the better one.
    pub(crate) fn less_is_better(self) -> bool {
        self == Self::Idle
    }

    /// What its servers do.
    pub(crate) fn load(self) -> Load {
        self.facts().2
    }
}

/// How long and how many.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Effort {
    /// Length of the measured window.
    pub(crate) seconds: f64,
    /// Before it, unmeasured; also how long idle tunnels settle.
    pub(crate) warm_up: f64,
    /// Idle tunnels.
    pub(crate) idle: usize,
}

/// Connections at once in [`Test::Connects`].
pub(crate) const CONCURRENT: usize = 64;

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    /// [`Test::name`].
    pub(crate) test: &'static str,
    /// [`Contestant::name`].
    pub(crate) peer: &'static str,
    /// Which round, from 0.
    pub(crate) round: usize,
    /// The figure that counts, in `unit`.
    pub(crate) value: f64,
    /// [`Test::unit`].
    pub(crate) unit: &'static str,
    /// Length of the window.
    pub(crate) seconds: f64,
    /// The relay's user and system time in it.
    pub(crate) cpu_seconds: f64,
    /// Bytes clients received in it.
    pub(crate) bytes: u64,
    /// Connections standing at its end, or completed in it.
    pub(crate) connections: u64,
    /// Connections that failed in it.
    pub(crate) failures: u64,
    /// The error of the first of them.
    pub(crate) first_failure: Option<String>,
    /// The relay's memory at its end, bytes.
    pub(crate) memory: u64,
    /// The relay's descriptors at its end.
    pub(crate) descriptors: u64,
    /// The relay's threads at its end.
    pub(crate) threads: u64,
}

/// Puts `test` on `peer` once, and gives the servers back. Errors: beside the servers: the peer does not do
/// what is asked, with the first failure as the message.
pub(crate) fn measure(
    test: Test,
    contestant: Contestant,
    peer: &Peer,
    servers: Servers,
    effort: Effort,
    round: usize,
) -> (Option<Servers>, io::Result<Row>) {
    let mut generator = match Generator::new(servers, peer.address, contestant.method) {
        Ok(generator) => generator,
        Err(e) => return (None, Err(e)),
    };
    let row = window(test, contestant, peer, &mut generator, effort, round);
    (Some(generator.into_servers()), row)
}

fn window(
    test: Test,
    contestant: Contestant,
    peer: &Peer,
    generator: &mut Generator,
    effort: Effort,
    round: usize,
) -> io::Result<Row> {
    let memory = peer.usage().memory;
    let connections = match test {
        Test::Bulk1 => 1,
        Test::Bulk100 => 100,
        Test::Connects => CONCURRENT,
        Test::Idle => effort.idle,
    };
    generator.open(connections, Duration::from_secs(60))?;
    generator.run(Duration::from_secs_f64(effort.warm_up))?;
    let (cpu, counts, begin) = (peer.cpu_time(), generator.counts().clone(), Instant::now());
    if test != Test::Idle {
        generator.run(Duration::from_secs_f64(effort.seconds))?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let usage = peer.usage();
    let cpu_seconds = usage.cpu.saturating_sub(cpu).as_secs_f64();
    let after = generator.counts();
    let bytes = after.bytes - counts.bytes;
    let completed = after.completed - counts.completed;
    let standing = generator.standing() as u64;
    if test != Test::Connects && standing < connections as u64 {
        let first = &after.first_failure;
        let what =
            format!("{standing} of {connections} connections are open; first failure: {first:?}");
        return Err(io::Error::other(what));
    }
    let value = match test {
        Test::Bulk1 | Test::Bulk100 => bytes as f64 / cpu_seconds.max(0.01),
        Test::Connects => completed as f64 / seconds,
        Test::Idle => usage.memory.saturating_sub(memory) as f64 / connections as f64,
    };
    Ok(Row {
        test: test.name(),
        peer: contestant.name,
        round,
        value,
        unit: test.unit(),
        seconds,
        cpu_seconds,
        bytes,
        connections: if test == Test::Connects { completed } else { standing },
        failures: after.failures - counts.failures,
        first_failure: after.first_failure.clone(),
        memory: usage.memory,
        descriptors: usage.descriptors,
        threads: usage.threads,
    })
}
