//! Thousands of connections through a proxy in one thread: client side, server side, one epoll.
//!
//! ```no_run
//! # use ekiden_lab::load::{generator::{Generator, Load, Servers}, handshake::Method};
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
//! What it does to be fair and cheap: clients come from 64 addresses in 127.0.2.0/24, servers stand on
//! eight in 127.0.1.0/24, so that neither the generator nor a proxy runs out of ports; clients close
//! with RST, so that nothing stays in TIME_WAIT on this side. The receiving end takes bytes with
//! `MSG_TRUNC`, which does not copy them; the sending end writes from one buffer of 256 KiB.

use super::handshake::{Destination, Handshake, Method, Next};
use super::sockets;
use crate::peers::ports;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::Socket;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

const CHUNK: usize = 256 * 1024;
const SERVERS: u8 = 8;
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
    /// What the first of them said.
    pub first_failure: Option<String>,
}

/// The server side: listening before the proxy starts, since forwarders are told their targets.
#[derive(Debug)]
pub struct Servers {
    load: Load,
    listeners: Vec<Socket>,
    addresses: Vec<SocketAddr>,
}

impl Servers {
    /// Listens on eight loopback addresses.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(load: Load) -> io::Result<Self> {
        let address = |n| ports::free_on(Ipv4Addr::new(127, 0, 1, n));
        let addresses = (1..=SERVERS).map(address).collect::<io::Result<Vec<_>>>()?;
        let listeners = addresses.iter().map(|a| sockets::listen(*a)).collect::<io::Result<_>>()?;
        Ok(Self { load, listeners, addresses })
    }

    /// Where they listen.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

#[derive(Debug)]
enum Phase {
    Connecting,
    Handshaking,
    Open { answered: usize },
}

#[derive(Debug)]
struct Client {
    socket: Socket,
    phase: Phase,
    handshake: Handshake,
}

/// One slot of a table: the generation tells a late event of a closed connection from the next one's.
#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    entry: Option<T>,
}

/// Clients, servers and the loop that drives both. Connections are reset when it is dropped.
pub struct Generator {
    servers: Servers,
    proxy: SocketAddr,
    method: Method,
    epoll: OwnedFd,
    clients: Vec<Slot<Client>>,
    accepted: Vec<Slot<Socket>>,
    vacant: Vec<usize>,
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

fn token(kind: u64, generation: u32, index: usize) -> EventData {
    EventData::new_u64(kind << 62 | (u64::from(generation) & 0x3fff_ffff) << 32 | index as u64)
}

impl Generator {
    /// No connection yet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(servers: Servers, proxy: SocketAddr, method: Method) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (n, listener) in servers.listeners.iter().enumerate() {
            epoll::add(&epoll, listener, token(LISTENER, 0, n), EventFlags::IN)?;
        }
        Ok(Self {
            servers,
            proxy,
            method,
            epoll,
            clients: Vec::new(),
            accepted: Vec::new(),
            vacant: Vec::new(),
            open: 0,
            started: 0,
            counts: Counts::default(),
            failures_in_a_row: 0,
            source: vec![0x5a; CHUNK],
            sink: vec![0; 4 * CHUNK],
            events: Vec::with_capacity(1024),
        })
    }

    /// What happened since the beginning.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Tunnels that stand now.
    #[must_use]
    pub fn standing(&self) -> usize {
        self.open
    }

    /// Takes the server side back, all connections reset: the next generator may use it.
    #[must_use]
    pub fn into_servers(self) -> Servers {
        self.servers
    }

    /// Opens `number` connections; for [`Load::Bulk`] and [`Load::Idle`], returns when all stand.
    ///
    /// # Errors
    /// When they do not within `patience`, or too many fail; the message has the first failure.
    pub fn open(&mut self, number: usize, patience: Duration) -> io::Result<()> {
        let end = Instant::now() + patience;
        if self.servers.load == Load::Connects {
            return (0..number).try_for_each(|_| self.start_client(None));
        }
        while self.open < number {
            let opening = self.clients.iter().filter(|s| s.entry.is_some()).count() - self.open;
            for _ in opening..OPENING.min(number - self.open) {
                self.start_client(None)?;
            }
            if Instant::now() > end {
                let (open, first) = (self.open, &self.counts.first_failure);
                let why = format!("{open} of {number} stand after {patience:?}; {first:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            self.turn(Duration::from_millis(100))?;
        }
        Ok(())
    }

    /// Lets it go on for `time`.
    ///
    /// # Errors
    /// When too many connections fail in a row; the message has the first failure.
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
            let (generation, index) = ((data >> 32) as u32 & 0x3fff_ffff, data as u32 as usize);
            match data >> 62 {
                LISTENER => self.accept(index)?,
                CLIENT if generation_of(&self.clients, index) == Some(generation) => {
                    if let Err(e) = self.client(index) {
                        self.failed(index, &e)?;
                    }
                }
                SERVER if generation_of(&self.accepted, index) == Some(generation) => {
                    self.serve(index);
                }
                _ => {}
            }
        }
        self.events = events;
        Ok(())
    }

    fn start_client(&mut self, slot: Option<usize>) -> io::Result<()> {
        let addresses = &self.servers.addresses;
        let to = addresses[self.started % addresses.len()];
        let socket = sockets::connect(self.started, self.proxy)?;
        self.started += 1;
        let handshake = Handshake::new(self.method, Destination::Address(to));
        let client = Client { socket, phase: Phase::Connecting, handshake };
        let slot = slot.or_else(|| self.clients.iter().position(|s| s.entry.is_none()));
        let slot = slot.unwrap_or_else(|| {
            self.clients.push(Slot { generation: 0, entry: None });
            self.clients.len() - 1
        });
        let place = &mut self.clients[slot];
        place.generation = (place.generation + 1) & 0x3fff_ffff;
        let data = token(CLIENT, place.generation, slot);
        epoll::add(&self.epoll, &client.socket, data, EventFlags::OUT)?;
        place.entry = Some(client);
        Ok(())
    }

    /// Something happened on a client's socket.
    fn client(&mut self, index: usize) -> io::Result<()> {
        let Some(Slot { generation, entry: Some(client) }) = self.clients.get_mut(index) else {
            return Ok(());
        };
        let data = token(CLIENT, *generation, index);
        match client.phase {
            Phase::Connecting => {
                if let Some(e) = client.socket.take_error()? {
                    return Err(e);
                }
                epoll::modify(&self.epoll, &client.socket, data, EventFlags::IN)?;
                client.phase = Phase::Handshaking;
                let next = client.handshake.begin();
                self.next(index, next)
            }
            Phase::Handshaking => {
                let mut buffer = [0; 1024];
                let Some(n) = received(recv(&client.socket, &mut buffer, RecvFlags::empty()))?
                else {
                    return Ok(());
                };
                let next = client.handshake.receive(&buffer[..n]).map_err(io::Error::other)?;
                self.next(index, next)
            }
            Phase::Open { answered } => {
                let answer = recv(&client.socket, &mut self.sink[..], RecvFlags::TRUNC);
                let Some(n) = received(answer.map(|(_, n)| ((), n)))? else { return Ok(()) };
                self.counts.bytes += n as u64;
                if self.servers.load != Load::Connects {
                    return Ok(());
                }
                if answered + n < MESSAGE {
                    client.phase = Phase::Open { answered: answered + n };
                    return Ok(());
                }
                self.counts.completed += 1;
                self.failures_in_a_row = 0;
                self.open -= 1;
                self.clients[index].entry = None;
                self.start_client(Some(index))
            }
        }
    }

    fn next(&mut self, index: usize, next: Next) -> io::Result<()> {
        let Some(Slot { entry: Some(client), .. }) = self.clients.get_mut(index) else {
            return Ok(());
        };
        match next {
            Next::Receive => Ok(()),
            Next::Send(bytes) => send_all(&client.socket, &bytes),
            Next::Done(early) => {
                client.phase = Phase::Open { answered: early.len() };
                self.counts.bytes += early.len() as u64;
                self.open += 1;
                self.failures_in_a_row = 0;
                match self.servers.load {
                    Load::Connects => send_all(&client.socket, &self.source[..MESSAGE]),
                    Load::Bulk | Load::Idle => Ok(()),
                }
            }
        }
    }

    fn failed(&mut self, index: usize, error: &io::Error) -> io::Result<()> {
        let failed = self.clients[index].entry.take();
        let phase = failed.map(|c| c.phase);
        if matches!(phase, Some(Phase::Open { .. })) {
            self.open -= 1;
        }
        self.counts.failures += 1;
        self.failures_in_a_row += 1;
        let first = &mut self.counts.first_failure;
        let first = first.get_or_insert_with(|| format!("{phase:?}: {error}")).clone();
        if self.failures_in_a_row > FAILURES {
            return Err(io::Error::other(format!("too many failures; the first: {first}")));
        }
        if self.servers.load == Load::Connects { self.start_client(Some(index)) } else { Ok(()) }
    }

    fn accept(&mut self, listener: usize) -> io::Result<()> {
        let flags = match self.servers.load {
            Load::Bulk => EventFlags::OUT,
            Load::Connects | Load::Idle => EventFlags::IN,
        };
        loop {
            let socket = match self.servers.listeners[listener].accept() {
                Ok((socket, _)) => socket,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(e) => return Err(e),
            };
            socket.set_nonblocking(true)?;
            socket.set_tcp_nodelay(true)?;
            let index = self.vacant.pop().unwrap_or_else(|| {
                self.accepted.push(Slot { generation: 0, entry: None });
                self.accepted.len() - 1
            });
            let slot = &mut self.accepted[index];
            slot.generation = (slot.generation + 1) & 0x3fff_ffff;
            epoll::add(&self.epoll, &socket, token(SERVER, slot.generation, index), flags)?;
            slot.entry = Some(socket);
        }
    }

    /// Something happened on an accepted socket.
    fn serve(&mut self, index: usize) {
        let Some(Slot { entry: Some(socket), .. }) = self.accepted.get(index) else { return };
        let going = match self.servers.load {
            Load::Bulk => match send(socket, &self.source, SendFlags::NOSIGNAL) {
                Ok(_) | Err(Errno::AGAIN) => Ok(()),
                Err(e) => Err(io::Error::from(e)),
            },
            Load::Connects | Load::Idle => {
                let mut buffer = [0; 4 * MESSAGE];
                received(recv(socket, &mut buffer, RecvFlags::empty()))
                    .and_then(|n| n.map_or(Ok(()), |n| send_all(socket, &buffer[..n])))
            }
        };
        // The proxy closed: it is the client who has a say in whether that is a failure.
        if going.is_err() {
            self.accepted[index].entry = None;
            self.vacant.push(index);
        }
    }
}

fn generation_of<T>(slots: &[Slot<T>], index: usize) -> Option<u32> {
    slots.get(index).filter(|s| s.entry.is_some()).map(|s| s.generation)
}

/// How many bytes came; `None` for none yet; the end of the stream is an error here.
fn received<T>(result: rustix::io::Result<(T, usize)>) -> io::Result<Option<usize>> {
    match result {
        Ok((_, 0)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok((_, n)) => Ok(Some(n)),
        Err(Errno::AGAIN) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// A few bytes into an empty send buffer: anything short is a failure.
fn send_all(socket: &Socket, bytes: &[u8]) -> io::Result<()> {
    let sent = send(socket, bytes, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}
