//! A relay in this process, a server behind it, and the relay's own sockets.

use ekiden_model::units::Span;
use ekiden_proxy::Server;
use ekiden_proxy::observe::status::{ConnectionStatus, Status};
use ekiden_proxy::settings::{Access, Leg, Pattern, Route, Settings};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// A relay on a runtime of its own.
pub(crate) struct Relay {
    server: Option<Server>,
    runtime: tokio::runtime::Runtime,
    pub(crate) address: SocketAddr,
}

impl Relay {
    pub(crate) fn start(settings: Settings) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let server = {
            let _inside = runtime.enter();
            Server::start(Arc::new(settings)).unwrap()
        };
        let address = server.status().listen[0];
        Self { server: Some(server), runtime, address }
    }

    pub(crate) fn status(&self) -> Status {
        self.server.as_ref().unwrap().status()
    }

    pub(crate) fn reload(&self, settings: Settings) -> Result<(), ekiden_proxy::StartError> {
        let _inside = self.runtime.enter();
        self.server.as_ref().unwrap().reload(Arc::new(settings))
    }

    /// The one connection that is being relayed.
    pub(crate) fn relayed(&self) -> ConnectionStatus {
        let connections = eventually("one connection", || {
            Some(self.status().connections).filter(|list| list.len() == 1)
        });
        connections.into_iter().next().unwrap()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.stop(Span::ZERO));
        }
    }
}

/// On a free port of loopback, with loopback opened.
pub(crate) fn settings() -> Settings {
    // a relay recognises its own name in `Via`: no two are called the same
    static NTH: AtomicUsize = AtomicUsize::new(0);
    Settings {
        listen: vec![loopback(0)],
        name: format!("relay-{}", NTH.fetch_add(1, Relaxed)),
        access: Access {
            allow_destinations: ["127.0.0.0/8", "::1/128"].map(|net| net.parse().unwrap()).into(),
            ..Access::default()
        },
        ..Settings::default()
    }
}

pub(crate) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

/// Everything goes `through` these chains.
pub(crate) fn route(to: Vec<Pattern>, through: &[&[&str]]) -> Route {
    let chain = |chain: &&[&str]| chain.iter().map(ToString::to_string).collect();
    Route {
        to,
        through: through.iter().map(chain).collect(),
        leg: "direct".into(),
        client_leg: "client".into(),
    }
}

pub(crate) fn leg(socket: ekiden_linux::sockets::options::SocketOptions) -> Leg {
    Leg { socket, ..Leg::default() }
}

/// Sends back what it is sent, every connection on a thread of its own.
pub(crate) fn echo_on(listener: TcpListener) -> SocketAddr {
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(n) = stream.read(&mut buffer) {
                    if n == 0 || stream.write_all(&buffer[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

pub(crate) fn echo() -> SocketAddr {
    echo_on(TcpListener::bind(loopback(0)).unwrap())
}

/// Whether a round trip works.
pub(crate) fn echoes(stream: &mut TcpStream) -> bool {
    let mut back = [0; 5];
    stream.write_all(b"hello").is_ok() && stream.read_exact(&mut back).is_ok() && back == *b"hello"
}

fn dial(relay: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(relay).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// CONNECT: the answer's head, and the connection.
pub(crate) fn connect(relay: SocketAddr, to: impl std::fmt::Display) -> (String, TcpStream) {
    let mut stream = dial(relay);
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    (read_head(&mut stream), stream)
}

/// Reads byte by byte up to the empty line, or the end.
pub(crate) fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

/// The whole answer to a refused CONNECT: status line, head and text.
pub(crate) fn refusal(relay: SocketAddr, to: impl std::fmt::Display) -> String {
    let (mut text, mut stream) = connect(relay, to);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    text.push_str(&String::from_utf8_lossy(&rest));
    text
}

/// Asks for UDP over HTTP (RFC 9298): the answer's head, and the connection.
pub(crate) fn connect_udp(relay: SocketAddr, host: &str, port: u16) -> (String, TcpStream) {
    let (mut stream, host) = (dial(relay), host.replace(':', "%3A"));
    write!(
        stream,
        "GET /.well-known/masque/udp/{host}/{port}/ HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\nUpgrade: connect-udp\r\n\r\n"
    )
    .unwrap();
    (read_head(&mut stream), stream)
}

/// SOCKS5 with a domain name: the reply code, and the connection.
pub(crate) fn socks5(relay: SocketAddr, host: &str, port: u16) -> (u8, TcpStream) {
    let mut stream = dial(relay);
    let mut request = vec![5, 1, 0, 5, 1, 0, 3, u8::try_from(host.len()).unwrap()];
    request.extend_from_slice(host.as_bytes());
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request).unwrap();
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).unwrap();
    let rest = if answer[5] == 4 { 18 } else { 6 };
    stream.read_exact(&mut vec![0; rest]).unwrap();
    (answer[3], stream)
}

/// SOCKS4a with a domain name.
pub(crate) fn socks4a(relay: SocketAddr, host: &str, port: u16) -> (u8, TcpStream) {
    let mut stream = dial(relay);
    let mut request = vec![4, 1];
    request.extend_from_slice(&port.to_be_bytes());
    request.extend_from_slice(&[0, 0, 0, 1, 0]);
    request.extend_from_slice(host.as_bytes());
    request.push(0);
    stream.write_all(&request).unwrap();
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).unwrap();
    (answer[1], stream)
}

pub(crate) use ekiden_testkit::{eventually, wait_for};

/// Not permitted here: said loudly, and no excuse where everything must run.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var_os("CI").is_none(), "cannot be skipped here: {why}");
    eprintln!("SKIPPED: {why}");
}

/// A duplicate of the socket in this process that has these two ends; without a peer, of the one that
/// listens.
pub(crate) fn own_socket(local: SocketAddr, peer: Option<SocketAddr>) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(std::process::id()).unwrap()).unwrap();
    let this = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    all.filter_map(|entry| {
        let entry = entry.ok()?;
        let target = std::fs::read_link(entry.path()).ok()?;
        if !target.to_string_lossy().starts_with("socket:") {
            return None;
        }
        let number = entry.file_name().to_str()?.parse().ok()?;
        pidfd_getfd(&this, number, PidfdGetfdFlags::empty()).ok()
    })
    .find(|fd| {
        let socket = SockRef::from(fd);
        let end = |address: std::io::Result<socket2::SockAddr>| address.ok()?.as_socket();
        end(socket.local_addr()) == Some(local)
            && end(socket.peer_addr()) == peer
            && socket.is_listener().unwrap_or(false) == peer.is_none()
    })
}
