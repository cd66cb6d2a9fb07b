//! What the tests of relaying share: relays in a row, the protocols that clients speak, and bytes to send through.
#![allow(dead_code, unreachable_pub)] // each test program uses its part
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot go on panics

pub mod certificate;
pub mod ends;
pub mod wire;

use ekiden_model::units::Span;
use ekiden_proxy::observe::status::BudgetStatus;
use ekiden_proxy::settings::{
    Budgets, CopyMode, Leg, Route, Settings, Tls, Upstream, UpstreamProtocol, UpstreamTls,
};
use ekiden_proxy::wire::http::head::Version;
use ekiden_proxy::wire::http::reply;
use ekiden_proxy::{Server, Stopped};
use ekiden_tunnel::core::Terms;
use ekiden_tunnel::trust::{self, PeerKind, Store, Token};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Nothing here takes so long; it keeps a failing test from hanging.
pub const LONG: Duration = Duration::from_secs(60);

/// How a client asks for its tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TunnelProtocol {
    Connect,
    Socks5,
    Socks4a,
}

pub const TUNNEL_PROTOCOLS: [TunnelProtocol; 3] =
    [TunnelProtocol::Connect, TunnelProtocol::Socks5, TunnelProtocol::Socks4a];

impl TunnelProtocol {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Socks5 => "socks5",
            Self::Socks4a => "socks4a",
        }
    }

    /// Bytes up and down that open a tunnel to `to`, an address of IPv4.
    pub fn opening(self, to: SocketAddr) -> (u64, u64) {
        match self {
            Self::Connect => {
                let asked = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
                (asked.len() as u64, reply::connected(Version::Http11).len() as u64)
            }
            Self::Socks5 => (3 + 10, 2 + 10),
            Self::Socks4a => (9 + 10, 8),
        }
    }

    /// A tunnel to `to` through the relay at `relay`.
    pub fn open(self, relay: SocketAddr, to: SocketAddr) -> TcpStream {
        let mut stream = connect(relay);
        let port = to.port().to_be_bytes();
        match self {
            Self::Connect => {
                write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
                let answer = read_head(&mut stream);
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            }
            Self::Socks5 => {
                stream.write_all(&[5, 1, 0]).unwrap();
                let mut answer = [0; 10];
                stream.read_exact(&mut answer[..2]).unwrap();
                stream.write_all(&[5, 1, 0, 1, 127, 0, 0, 1, port[0], port[1]]).unwrap();
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer[..2], [5, 0]);
            }
            Self::Socks4a => {
                stream.write_all(&[4, 1, port[0], port[1], 0, 0, 0, 1, 0]).unwrap();
                stream.write_all(b"127.0.0.1\0").unwrap();
                let mut answer = [0; 8];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer[..2], [0, 90]);
            }
        }
        stream
    }
}

/// A connection whose reads and writes give up after [`LONG`].
pub fn connect(to: SocketAddr) -> TcpStream {
    patient(TcpStream::connect(to).unwrap())
}

pub fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    stream
}

pub fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A head up to its empty line, and nothing of what follows.
pub fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// Makes the next close a reset.
pub fn reset_on_close(stream: &TcpStream) {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}

pub fn settings(movement: CopyMode) -> Settings {
    let mut settings = Settings { listen: vec![([127, 0, 0, 1], 0).into()], ..Settings::default() };
    settings.relay.copy_mode = movement;
    settings.access.allow_destinations = vec!["127.0.0.0/8".parse().unwrap()];
    settings
}

/// Lets a relay listen for tunnels, invites the one after it and joins the one before it, in a folder.
fn join(settings: &mut Settings, folder: &Path, nth: usize) {
    let store = |nth: usize| Store::new(folder.join(nth.to_string()));
    settings.tunnel.state = Some(store(nth).directory().to_owned());
    // a port that is free now, for TCP too
    let address = loop {
        let address = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        if TcpListener::bind(address).is_ok() {
            break address;
        }
    };
    settings.tunnel.listen = vec![address];
    let rate = "1 Gbit/s".parse().unwrap();
    let terms = Terms::new(rate, rate);
    let secret = trust::random().unwrap();
    let kind = PeerKind::Invited { invitation: trust::hash(&secret).into() };
    store(nth).add(trust::Peer { name: "before".to_owned(), kind, terms }).unwrap();
    let fingerprint = store(nth).credentials().unwrap().fingerprint();
    let token = Token {
        address: address.to_string(),
        fingerprint,
        secret,
        send: rate,
        receive: rate,
        made: None,
    };
    store(nth + 1).add(token.peer("next".to_owned())).unwrap();
}

/// Relays in a row, the first of which the client speaks to.
pub struct Row {
    servers: Vec<Server>,
    runtime: Option<Runtime>,
    /// Where relays with tunnels keep what they know of each other.
    _state: tempfile::TempDir,
}

impl Row {
    /// One relay.
    pub fn single(settings: Settings) -> Self {
        Self::start(1, UpstreamProtocol::Http, &settings)
    }

    /// `n` of them, asking each other by `protocol`.
    pub fn start(n: usize, protocol: UpstreamProtocol, settings: &Settings) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let entered = runtime.enter();
        let state = tempfile::tempdir().unwrap();
        let mut servers: Vec<Server> = Vec::new();
        let mut tls = UpstreamTls::default();
        let mut shown = Tls::default();
        if protocol == UpstreamProtocol::Https {
            (shown, tls.fingerprint) = certificate::own(state.path());
        }
        for nth in 0..n {
            let mut settings = Settings { name: format!("relay-{nth}"), ..settings.clone() };
            if protocol == UpstreamProtocol::Https {
                settings.tls = shown.clone();
            }
            if protocol == UpstreamProtocol::Tunnel {
                join(&mut settings, state.path(), nth);
            }
            if let Some(next) = servers.last() {
                let host = match protocol {
                    UpstreamProtocol::Tunnel => "next",
                    _ => "127.0.0.1",
                };
                let port = next.status().listen[0].port();
                let upstream = Upstream { tls: tls.clone(), ..Upstream::new(protocol, host, port) };
                settings.upstreams = [("next".to_owned(), upstream)].into();
                settings.routes = vec![Route {
                    to: Vec::new(),
                    through: vec![vec!["next".to_owned()]],
                    leg: "direct".to_owned(),
                    client_leg: "client".to_owned(),
                }];
            }
            servers.push(Server::start(Arc::new(settings)).unwrap());
        }
        drop(entered);
        Self { servers, runtime: Some(runtime), _state: state }
    }

    pub fn front(&self) -> SocketAddr {
        self.servers[self.servers.len() - 1].status().listen[0]
    }

    /// The first relay's budget of that name.
    pub fn budget(&self, name: &str) -> BudgetStatus {
        let status = self.servers[self.servers.len() - 1].status();
        status.budgets.into_iter().find(|budget| budget.name == name).unwrap()
    }

    pub fn front_server(&self) -> &Server {
        &self.servers[self.servers.len() - 1]
    }

    /// The last relay of the row.
    pub fn back_server(&self) -> &Server {
        &self.servers[0]
    }

    /// Gives the first relay other settings.
    pub fn reload_front(&self, settings: Settings) {
        let settings = Settings { name: "relay-0".to_owned(), ..settings };
        let runtime = self.runtime.as_ref().unwrap();
        let _inside = runtime.enter();
        self.front_server().reload(Arc::new(settings)).unwrap();
    }

    /// Stops the first relay gracefully, with that limit.
    pub fn stop_front(&mut self, limit: Duration) -> Stopped {
        let server = self.servers.pop().unwrap();
        let limit = Span::from_nanos(limit.as_nanos() as u64);
        self.runtime.as_ref().unwrap().block_on(server.stop(limit))
    }

    /// Waits until no relay holds a connection, a pipe or memory.
    pub fn wait_until_empty(&self) {
        for server in &self.servers {
            let left = || {
                let status = server.status();
                let used: Vec<_> = status.budgets.iter().filter(|b| b.used > 0).cloned().collect();
                (used.len() + status.connections.len() > 0)
                    .then(|| format!("{used:?} {:?}", status.connections))
            };
            wait_until(
                || left().is_none(),
                || format!("left behind: {}", left().unwrap_or_default()),
            );
        }
    }
}

impl Drop for Row {
    fn drop(&mut self) {
        self.servers.clear();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(LONG);
        }
    }
}

/// Waits for a state that must come; panics with `why` when it does not.
pub fn wait_until(mut reached: impl FnMut() -> bool, why: impl Fn() -> String) {
    ekiden_testkit::eventually_or(why, || reached().then_some(()));
}

/// Open descriptors of this process.
pub fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Bytes that tell every shift and every loss: never the same twice within 2⁶⁴ steps.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// A leg of default settings with these time-outs.
pub fn leg(idle: Duration, half_closed: Duration) -> Leg {
    let span = |d: Duration| Span::from_nanos(d.as_nanos() as u64);
    Leg { idle_timeout: span(idle), half_closed_timeout: span(half_closed), ..Leg::default() }
}

pub fn budgets(change: impl FnOnce(&mut Budgets)) -> Budgets {
    let mut budgets = Budgets::default();
    change(&mut budgets);
    budgets
}
