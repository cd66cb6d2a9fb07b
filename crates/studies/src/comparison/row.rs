//! The tests, and one window of one of them.

use super::{Effort, busy};
use ekiden_testbed::load::generator::{Generator, Load};
use ekiden_testbed::peers::Peer;
use serde::Serialize;
use std::io;
use std::time::{Duration, Instant};

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
    /// [`Self::Bulk1`] within TLS.
    Tls1,
    /// [`Self::Bulk100`] within TLS.
    Tls100,
    /// [`Self::Connects`] within TLS, each with a whole handshake.
    TlsConnects,
}

impl Test {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Bulk1,
        Self::Bulk100,
        Self::Connects,
        Self::Idle,
        Self::Tls1,
        Self::Tls100,
        Self::TlsConnects,
    ];

    /// Its name in arguments, its unit, and what its servers do.
    const fn facts(self) -> (&'static str, &'static str, Load) {
        match self {
            Self::Bulk1 => ("bulk1", "bytes per CPU-second", Load::Bulk),
            Self::Bulk100 => ("bulk100", "bytes per CPU-second", Load::Bulk),
            Self::Connects => ("connects", "connections per second", Load::Connects),
            Self::Idle => ("idle", "bytes per idle connection", Load::Idle),
            Self::Tls1 => ("tls1", "bytes per CPU-second", Load::Bulk),
            Self::Tls100 => ("tls100", "bytes per CPU-second", Load::Bulk),
            Self::TlsConnects => ("tls-connects", "connections per second", Load::Connects),
        }
    }

    /// As in arguments.
    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    /// Of [`Row::value`].
    pub const fn unit(self) -> &'static str {
        self.facts().1
    }

    /// Whether a smaller value is the better one.
    pub fn less_is_better(self) -> bool {
        self == Self::Idle
    }

    /// Whether clients speak TLS with the relay.
    pub const fn is_secure(self) -> bool {
        matches!(self, Self::Tls1 | Self::Tls100 | Self::TlsConnects)
    }

    /// What its servers do.
    pub const fn load(self) -> Load {
        self.facts().2
    }

    /// The one of `tests` that has this name. Errors: none has; the message names them.
    pub fn of_name(tests: &[Self], name: &str) -> Result<Self, String> {
        let names = || tests.iter().map(|test| test.name()).collect::<Vec<_>>().join(", ");
        let found = tests.iter().find(|test| test.name() == name);
        found.copied().ok_or_else(|| format!("no such test; there are {}", names()))
    }
}

/// Connections at once in [`Test::Connects`] and [`Test::TlsConnects`].
pub const CONCURRENT: usize = 64;

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// [`Test::name`].
    pub test: &'static str,
    /// Who was measured.
    pub peer: &'static str,
    /// Which round, from 0.
    pub round: usize,
    /// The figure that counts, in `unit`; none of bytes per CPU-second without a relay.
    pub value: Option<f64>,
    /// [`Test::unit`].
    pub unit: &'static str,
    /// Length of the window.
    pub seconds: f64,
    /// The relay's user and system time in it.
    pub cpu_seconds: f64,
    /// How long the relay's processor was not idle in it, whoever used it.
    pub busy_seconds: f64,
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

/// Measures once. `relay`: its name, and its process where there is one; `processor` is the relay's. Errors: the relay
/// does not do what is asked, with the first failure as the message.
pub fn window(
    test: Test,
    (name, peer): (&'static str, Option<&Peer>),
    generator: &mut Generator,
    effort: Effort,
    processor: Option<usize>,
    round: usize,
) -> io::Result<Row> {
    let usage = || peer.map(Peer::usage).unwrap_or_default();
    let memory = usage().memory;
    let connections = match test {
        Test::Bulk1 | Test::Tls1 => 1,
        Test::Bulk100 | Test::Tls100 => 100,
        Test::Connects | Test::TlsConnects => CONCURRENT,
        Test::Idle => effort.idle,
    };
    generator.open(connections, Duration::from_secs(60))?;
    generator.run(Duration::from_secs_f64(effort.warm_up))?;
    let cpu = peer.map(Peer::cpu_time).unwrap_or_default();
    let (busy_before, counts, begin) =
        (busy(processor), generator.counts().clone(), Instant::now());
    if test != Test::Idle {
        generator.run(Duration::from_secs_f64(effort.seconds))?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let (busy_seconds, usage) = (busy(processor) - busy_before, usage());
    let cpu_seconds = usage.cpu.saturating_sub(cpu).as_secs_f64();
    let after = generator.counts();
    let bytes = after.bytes - counts.bytes;
    let completed = after.completed - counts.completed;
    let standing = generator.standing() as u64;
    if test.load() != Load::Connects && standing < connections as u64 {
        let first = &after.first_failure;
        let what =
            format!("{standing} of {connections} connections are open; first failure: {first:?}");
        return Err(io::Error::other(what));
    }
    let value = match test.load() {
        Load::Bulk => peer.map(|_| bytes as f64 / cpu_seconds.max(0.01)),
        Load::Connects => Some(completed as f64 / seconds),
        Load::Idle => Some(usage.memory.saturating_sub(memory) as f64 / connections as f64),
    };
    Ok(Row {
        test: test.name(),
        peer: name,
        round,
        value,
        unit: test.unit(),
        seconds,
        cpu_seconds,
        busy_seconds,
        bytes,
        connections: if test.load() == Load::Connects { completed } else { standing },
        failures: after.failures - counts.failures,
        first_failure: after.first_failure.clone(),
        memory: usage.memory,
        descriptors: usage.descriptors,
        threads: usage.threads,
    })
}
