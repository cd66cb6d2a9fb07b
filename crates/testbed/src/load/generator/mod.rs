//! Thousands of connections through a proxy in one thread: client side, server side, one epoll.
//!
//! ```no_run
//! # use ekiden_testbed::load::{Method, generator::{Generator, Load, Servers}};
//! # use std::time::Duration;
//! # let proxy = ([127, 0, 0, 1], 3128).into();
//! let servers = Servers::new(Load::Bulk)?;
//! let mut generator = Generator::new(servers, proxy, Method::Connect)?;
//! generator.open(100, Duration::from_secs(10))?;      // 100 tunnels stand
//! generator.run(Duration::from_secs(5))?;             // and move bytes
//! println!("{} bytes", generator.counts().bytes);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! To be fair and cheap, clients come from 64 addresses in 127.0.2.0/24 and servers stand on eight in
//! 127.0.1.0/24, so that nobody runs out of ports; clients close with RST, which leaves no TIME_WAIT; receivers
//! do not copy bytes (`MSG_TRUNC`), senders write from one buffer of 256 KiB.
//!
//! [`Generator::web`] has clients that ask web servers themselves, in network namespaces of their own, by HTTP. Then
//! the server ends a connection of [`Load::Connects`], and the client closes when it has seen that.

mod servers;
mod table;
mod wire;

pub use servers::Servers;

use super::handshake::{Destination, Handshake, Method, Next};
use super::sockets;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustls::ClientConfig;
use servers::Accepted;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use table::Table;
use wire::Wire;

const CHUNK: usize = 256 * 1024;
/// Of the connects workload: a small request and its response.
const MESSAGE: usize = 64;
/// Tunnels opened at once, in `open`.
const OPENING: usize = 64;
/// So many failures without one success in between end a run: the proxy is broken, not busy.
const FAILURES: u64 = 1000;

/// What connections do once they stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// The server sends without end.
    Bulk,
    /// One small request, one small response, closed by the client, and again.
    Connects,
    /// Nothing.
    Idle,
}

/// What happened so far.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Bytes received by clients through established tunnels.
    pub bytes: u64,
    /// Requests answered: connections opened, used and closed.
    pub completed: u64,
    /// Connections that ended too early.
    pub failures: u64,
    /// The error of the first of them.
    pub first_failure: Option<String>,
}

#[derive(Debug)]
enum Phase {
    Connecting,
    Handshaking,
    Open { answered: usize },
}

#[derive(Debug)]
struct Client {
    wire: Wire,
    phase: Phase,
    handshake: Handshake,
}

/// Clients, servers and the loop that drives both. Connections are reset when it is dropped.
pub struct Generator {
    servers: Servers,
    /// Where clients connect to; without it, to the servers themselves.
    proxy: Option<SocketAddr>,
    method: Method,
    /// Clients speak TLS with the proxy by this.
    tls: Option<Arc<ClientConfig>>,
    /// Clients take these addresses in turn.
    sources: Vec<Ipv4Addr>,
    epoll: OwnedFd,
    clients: Table<Client>,
    accepted: Table<Accepted>,
    open: usize,
    started: usize,
    counts: Counts,
    failures_in_a_row: u64,
    source: Vec<u8>,
    sink: Vec<u8>,
    events: Vec<Event>,
}

const LISTENER: u64 = 0;
const CLIENT: u64 = 1;
const SERVER: u64 = 2;

fn token(kind: u64, (index, generation): (usize, u32)) -> EventData {
    EventData::new_u64(kind << 62 | u64::from(generation) << 32 | index as u64)
}

impl Generator {
    /// No connection yet.
    pub fn new(servers: Servers, proxy: SocketAddr, method: Method) -> io::Result<Self> {
        let sources = (1..=64).map(|n| Ipv4Addr::new(127, 0, 2, n)).collect();
        Self::with(servers, Some(proxy), method, sources)
    }

    /// Clients with these addresses, which ask [`Servers::web`] by GET. No connection yet. Open and run it in the
    /// clients' network namespace.
    pub fn web(servers: Servers, sources: Vec<Ipv4Addr>) -> io::Result<Self> {
        Self::with(servers, None, Method::Get, sources)
    }

    fn with(
        servers: Servers,
        proxy: Option<SocketAddr>,
        method: Method,
        sources: Vec<Ipv4Addr>,
    ) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (n, listener) in servers.listeners.iter().enumerate() {
            epoll::add(&epoll, listener, token(LISTENER, (n, 0)), EventFlags::IN)?;
        }
        Ok(Self {
            servers,
            proxy,
            method,
            tls: None,
            sources,
            epoll,
            clients: Table::new(),
            accepted: Table::new(),
            open: 0,
            started: 0,
            counts: Counts::default(),
            failures_in_a_row: 0,
            source: vec![0x5a; CHUNK],
            sink: vec![0; 4 * CHUNK],
            events: Vec::with_capacity(1024),
        })
    }

    /// Clients of a proxy within TLS.
    #[must_use]
    pub fn with_tls(mut self, tls: Arc<ClientConfig>) -> Self {
        self.tls = Some(tls);
        self
    }

    /// What happened since the beginning.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Tunnels that stand now.
    pub fn standing(&self) -> usize {
        self.open
    }

    /// Takes the server side back, all connections reset: the next generator may use it.
    pub fn into_servers(self) -> Servers {
        self.servers
    }

    /// Opens `number` connections; for [`Load::Bulk`] and [`Load::Idle`], returns when all stand. Errors: when
    /// they do not within `patience`, or too many fail; the message has the first failure.
    pub fn open(&mut self, number: usize, patience: Duration) -> io::Result<()> {
        let end = Instant::now() + patience;
        if self.servers.load == Load::Connects {
            return (0..number).try_for_each(|_| self.start_client());
        }
        while self.open < number {
            for _ in self.clients.len() - self.open..OPENING.min(number - self.open) {
                self.start_client()?;
            }
            if Instant::now() > end {
                let (open, first) = (self.open, &self.counts.first_failure);
                let why = format!(
                    "{open} of {number} connections are open after {patience:?}; first failure: {first:?}"
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            self.turn(Duration::from_millis(100))?;
        }
        Ok(())
    }

    /// Lets it go on for `time`. Errors: when too many connections fail in a row; the message has the first
    /// failure.
    pub fn run(&mut self, time: Duration) -> io::Result<()> {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            self.turn(left.min(Duration::from_millis(100)))?;
        }
        Ok(())
    }

    fn turn(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in &events {
            let data = event.data.u64();
            let slot = (data as u32 as usize, (data >> 32) as u32 & 0x3fff_ffff);
            match data >> 62 {
                LISTENER => self.accept(slot.0)?,
                CLIENT => {
                    if let Err(e) = self.client(slot) {
                        self.failed(slot.0, &e)?;
                    }
                }
                _ => self.serve(slot),
            }
        }
        self.events = events;
        Ok(())
    }

    fn start_client(&mut self) -> io::Result<()> {
        let addresses = &self.servers.addresses;
        let to = addresses[self.started % addresses.len()];
        let source = self.sources[self.started % self.sources.len()];
        let at_once = self.method != Method::Get;
        let at = self.proxy.unwrap_or(to);
        let wire = Wire::new(sockets::connect(source, at, at_once)?, at, self.tls.as_ref())?;
        self.started += 1;
        let handshake = Handshake::new(self.method, Destination::Address(to));
        let slot = self.clients.put(Client { wire, phase: Phase::Connecting, handshake });
        let Some(client) = self.clients.get(slot) else { return Ok(()) };
        Ok(epoll::add(&self.epoll, client.wire.socket(), token(CLIENT, slot), EventFlags::OUT)?)
    }

    /// Something happened on a client's socket.
    fn client(&mut self, slot: (usize, u32)) -> io::Result<()> {
        let ends_by_server = self.ends_by_server();
        let Some(client) = self.clients.get(slot) else { return Ok(()) };
        match client.phase {
            Phase::Connecting => {
                if let Some(e) = client.wire.socket().take_error()? {
                    return Err(e);
                }
                let socket = client.wire.socket();
                epoll::modify(&self.epoll, socket, token(CLIENT, slot), EventFlags::IN)?;
                client.phase = Phase::Handshaking;
                client.wire.begin()?;
                let next = client.handshake.begin();
                self.next(slot, next)
            }
            Phase::Handshaking => {
                let mut buffer = [0; 1024];
                let Some(n) = client.wire.receive(&mut buffer)? else { return Ok(()) };
                let next = client.handshake.receive(&buffer[..n]).map_err(io::Error::other)?;
                self.next(slot, next)
            }
            Phase::Open { answered } => {
                let came = match client.wire.discard(&mut self.sink) {
                    // the end of a web server's answer
                    Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && ends_by_server => {
                        return if answered == MESSAGE { self.complete(slot.0) } else { Err(e) };
                    }
                    came => came?,
                };
                let Some(n) = came else { return Ok(()) };
                self.counts.bytes += n as u64;
                if self.servers.load != Load::Connects {
                    return Ok(());
                }
                client.phase = Phase::Open { answered: answered + n };
                if answered + n < MESSAGE || ends_by_server {
                    return Ok(());
                }
                self.complete(slot.0)
            }
        }
    }

    /// Whether a connection of [`Load::Connects`] is over when the server has closed it.
    fn ends_by_server(&self) -> bool {
        self.method == Method::Get && self.servers.load == Load::Connects
    }

    /// A request is answered: closes, and begins the next.
    fn complete(&mut self, index: usize) -> io::Result<()> {
        self.counts.completed += 1;
        self.failures_in_a_row = 0;
        self.open -= 1;
        self.clients.remove(index);
        self.start_client()
    }

    fn next(&mut self, slot: (usize, u32), next: Next) -> io::Result<()> {
        let Some(client) = self.clients.get(slot) else { return Ok(()) };
        match next {
            Next::Receive => Ok(()),
            Next::Send(bytes) => client.wire.send(&bytes),
            Next::Done(early) => {
                client.phase = Phase::Open { answered: early.len() };
                self.counts.bytes += early.len() as u64;
                self.open += 1;
                self.failures_in_a_row = 0;
                match self.servers.load {
                    Load::Connects if self.method != Method::Get => {
                        client.wire.send(&self.source[..MESSAGE])
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    fn failed(&mut self, index: usize, error: &io::Error) -> io::Result<()> {
        let phase = self.clients.remove(index).map(|client| client.phase);
        if matches!(phase, Some(Phase::Open { .. })) {
            self.open -= 1;
        }
        self.counts.failures += 1;
        self.failures_in_a_row += 1;
        let first = &mut self.counts.first_failure;
        let first = first.get_or_insert_with(|| format!("{phase:?}: {error}")).clone();
        if self.failures_in_a_row > FAILURES {
            return Err(io::Error::other(format!(
                "more than {FAILURES} connections failed in a row; the first: {first}"
            )));
        }
        if self.servers.load == Load::Connects { self.start_client() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
