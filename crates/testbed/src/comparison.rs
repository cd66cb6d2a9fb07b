//! The same load on each relay: bytes per CPU-second, connections per second, memory per idle connection.
//!
//! Relay and generator have one processor each. A relay's cost is the user and system time of its process tree
//! from `/proc`; work in the sender's softirq is charged to the sender, for every relay alike.

use crate::load::generator::{Generator, Load, Servers};
use crate::load::handshake::Method;
use crate::peers::{Peer, PeerError, Start, dante, ekiden, haproxy, microsocks, nginx, squid};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contestant {
    /// Squid by CONNECT.
    Squid,
    /// Dante by SOCKS5.
    Dante,
    /// HAProxy forwarding, `option splice-auto`.
    HaproxySplice,
    /// HAProxy forwarding, copying.
    HaproxyCopy,
    /// nginx's stream module, forwarding.
    NginxStream,
    /// microsocks by SOCKS5.
    Microsocks,
    /// Ekiden by CONNECT.
    EkidenConnect,
    /// Ekiden by SOCKS5.
    EkidenSocks5,
}

impl Contestant {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Squid,
        Self::Dante,
        Self::HaproxySplice,
        Self::HaproxyCopy,
        Self::NginxStream,
        Self::Microsocks,
        Self::EkidenConnect,
        Self::EkidenSocks5,
    ];

    /// Its name in tables and arguments, and how its clients ask.
    const fn facts(self) -> (&'static str, Method) {
        match self {
            Self::Squid => ("squid", Method::Connect),
            Self::Dante => ("dante", Method::Socks5),
            Self::HaproxySplice => ("haproxy-splice", Method::None),
            Self::HaproxyCopy => ("haproxy-copy", Method::None),
            Self::NginxStream => ("nginx-stream", Method::None),
            Self::Microsocks => ("microsocks", Method::Socks5),
            Self::EkidenConnect => ("ekiden-connect", Method::Connect),
            Self::EkidenSocks5 => ("ekiden-socks5", Method::Socks5),
        }
    }

    /// As in tables and arguments.
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// Those whose name is `text` or begins with it: `ekiden` is both of them.
    pub fn named(text: &str) -> Vec<Self> {
        Self::ALL.into_iter().filter(|c| c.name().starts_with(text)).collect()
    }

    /// Whether it is ours.
    pub fn is_ekiden(self) -> bool {
        matches!(self, Self::EkidenConnect | Self::EkidenSocks5)
    }

    /// Starts it; forwarders go to `servers`, the others wherever they are asked. Errors: see [`PeerError`];
    /// without a binary, Ekiden is [`PeerError::Missing`].
    pub fn start(
        self,
        start: &Start,
        servers: &Servers,
        binary: Option<&Path>,
    ) -> Result<Peer, PeerError> {
        match self {
            Self::Squid => squid::start(start),
            Self::Dante => dante::start(start),
            Self::HaproxySplice => haproxy::start(start, servers.addresses(), true),
            Self::HaproxyCopy => haproxy::start(start, servers.addresses(), false),
            Self::NginxStream => nginx::stream(start, servers.addresses()),
            Self::Microsocks => microsocks::start(start),
            Self::EkidenConnect | Self::EkidenSocks5 => {
                let binary = binary.map_or_else(|| PathBuf::from("ekiden"), Path::to_owned);
                ekiden::start(start, &binary, "")
            }
        }
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
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
    pub const ALL: [Self; 4] = [Self::Bulk1, Self::Bulk100, Self::Connects, Self::Idle];

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
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// Of [`Row::value`].
    pub fn unit(self) -> &'static str {
        self.facts().1
    }

    /// Whether a smaller value is the better one.
    pub fn less_is_better(self) -> bool {
        self == Self::Idle
    }

    /// What its servers do.
    pub fn load(self) -> Load {
        self.facts().2
    }
}

/// How long and how many.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Effort {
    /// Length of the measured window.
    pub seconds: f64,
    /// Before it, unmeasured; also how long idle tunnels settle.
    pub warm_up: f64,
    /// Idle tunnels.
    pub idle: usize,
}

/// Connections at once in [`Test::Connects`].
pub const CONCURRENT: usize = 64;

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// [`Test::name`].
    pub test: &'static str,
    /// [`Contestant::name`].
    pub peer: &'static str,
    /// Which round, from 0.
    pub round: usize,
    /// The figure that counts, in `unit`.
    pub value: f64,
    /// [`Test::unit`].
    pub unit: &'static str,
    /// Length of the window.
    pub seconds: f64,
    /// The relay's user and system time in it.
    pub cpu_seconds: f64,
    /// Bytes clients received in it.
    pub bytes: u64,
    /// Connections standing at its end, or completed in it.
    pub connections: u64,
    /// Connections that failed in it.
    pub failures: u64,
    /// The error of the first of them.
    pub first_failure: Option<String>,
    /// The relay's memory at its end, bytes.
    pub memory: u64,
    /// The relay's descriptors at its end.
    pub descriptors: u64,
    /// The relay's threads at its end.
    pub threads: u64,
}

/// Puts `test` on `peer` once, and gives the servers back. Errors: beside the servers: the peer does not do
/// what is asked, with the first failure as the message.
pub fn measure(
    test: Test,
    contestant: Contestant,
    peer: &Peer,
    servers: Servers,
    effort: Effort,
    round: usize,
) -> (Option<Servers>, io::Result<Row>) {
    let mut generator = match Generator::new(servers, peer.address, contestant.facts().1) {
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
        peer: contestant.name(),
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
