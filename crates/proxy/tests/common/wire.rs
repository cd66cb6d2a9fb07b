//! A relay in this process, and both of its neighbours as plain sockets whose every byte is scripted.
use ekiden_model::units::Span;
use ekiden_proxy::policy::accounts::Directory;
use ekiden_proxy::settings::Settings;
use ekiden_proxy::{Server, Stopped};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

pub use super::LONG as PATIENCE;
use super::wait_until;

/// A relay that may reach loopback.
pub struct Relay {
    pub server: Option<Server>,
    pub address: SocketAddr,
    runtime: Runtime,
}

impl Relay {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(edit: impl FnOnce(&mut Settings)) -> Self {
        Self::of(None, edit)
    }

    /// One with accounts.
    pub fn of(directory: Option<Arc<dyn Directory>>, edit: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            listen: vec![([127, 0, 0, 1], 0).into()],
            name: "relay-under-test".to_owned(),
            ..Settings::default()
        };
        settings.access.allow_destinations = vec!["127.0.0.0/8".parse().unwrap()];
        edit(&mut settings);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let started = runtime.block_on(async { Server::start_with(Arc::new(settings), directory) });
        let server = started.unwrap();
        let address = server.status().listen[0];
        Self { server: Some(server), address, runtime }
    }

    pub fn client(&self) -> Wire {
        Wire::new(TcpStream::connect(self.address).unwrap())
    }

    /// A client on loopback at another address.
    pub fn client_at(&self, address: [u8; 4]) -> Wire {
        Wire::new(connect_from(address, self.address))
    }

    pub fn status(&self) -> ekiden_proxy::observe::status::Status {
        self.server.as_ref().unwrap().status()
    }

    /// Stops in a thread of its own.
    pub fn begin_stop(&mut self) -> std::thread::JoinHandle<Stopped> {
        let (server, runtime) = (self.server.take().unwrap(), self.runtime.handle().clone());
        let handle = server.handle();
        let limit = Span::from_secs(60);
        let stopping = std::thread::spawn(move || runtime.block_on(server.stop(limit)));
        wait_until(|| handle.status().stopping, || "it does not stop".to_owned());
        stopping
    }

    /// The access log in a file, with the line of all that has ended.
    pub fn logged(&self, file: &Path) -> String {
        let pending = self.server.as_ref().unwrap().handle().pending_lines();
        assert!(pending.wait(PATIENCE), "the access log lacks lines");
        std::fs::read_to_string(file).unwrap()
    }

    /// Waits until no connection is left.
    pub fn settles(&self) {
        let empty = || self.status().budgets[0].used == 0;
        wait_until(empty, || format!("a connection is left: {:?}", self.status()));
    }
}

/// A connection from an address on loopback.
pub fn connect_from(address: [u8; 4], to: SocketAddr) -> TcpStream {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.into()
}

/// A server that does what the test says.
pub struct Origin {
    listener: TcpListener,
    /// `127.0.0.1:port`
    pub name: String,
}

impl Origin {
    pub fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = listener.local_addr().unwrap().to_string();
        Self { listener, name }
    }

    pub fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    pub fn accept(&self) -> Wire {
        self.listener.set_nonblocking(true).unwrap();
        let begun = Instant::now();
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).unwrap();
                    return Wire::new(stream);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(begun.elapsed() < PATIENCE, "nobody came");
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// A connection that has come already, if one has.
    pub fn came(&self) -> Option<Wire> {
        self.listener.set_nonblocking(true).unwrap();
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(false).unwrap();
        Some(Wire::new(stream))
    }
}

/// One end of a connection.
pub struct Wire {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    pub fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 65536];
        let n = self.stream.read(&mut bytes)?;
        self.buffer.extend(&bytes[..n]);
        Ok(n)
    }

    /// Bytes up to and with `end`.
    pub fn until(&mut self, end: &str) -> String {
        let end = end.as_bytes();
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|w| w == end) {
                let rest = self.buffer.split_off(at + end.len());
                let head = std::mem::replace(&mut self.buffer, rest);
                return String::from_utf8(head).unwrap();
            }
            let n = self.fill();
            let so_far = self.buffer.escape_ascii().to_string();
            assert!(matches!(n, Ok(n) if n > 0), "{n:?} after \"{so_far}\"");
        }
    }

    /// A message's head.
    pub fn head(&mut self) -> String {
        self.until("\r\n\r\n")
    }

    /// So many bytes.
    pub fn exactly(&mut self, n: usize) -> Vec<u8> {
        while self.buffer.len() < n {
            let got = self.fill();
            assert!(matches!(got, Ok(n) if n > 0), "{got:?} at {} of {n}", self.buffer.len());
        }
        let rest = self.buffer.split_off(n);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// What was read already, at most so many bytes.
    pub fn buffered(&mut self, most: usize) -> Vec<u8> {
        let rest = self.buffer.split_off(most.min(self.buffer.len()));
        std::mem::replace(&mut self.buffer, rest)
    }

    /// All bytes up to the end, and how it ended.
    pub fn rest(&mut self) -> (Vec<u8>, io::Result<()>) {
        loop {
            match self.fill() {
                Ok(0) => return (std::mem::take(&mut self.buffer), Ok(())),
                Ok(_) => {}
                Err(error) => return (std::mem::take(&mut self.buffer), Err(error)),
            }
        }
    }

    /// What comes before an orderly end, as text.
    pub fn until_end(&mut self) -> String {
        let (bytes, how) = self.rest();
        how.unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// What comes before a reset, as text.
    pub fn until_reset(&mut self) -> String {
        let (bytes, how) = self.rest();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(how.map_err(|e| e.kind()), Err(ErrorKind::ConnectionReset), "after \"{text}\"");
        text
    }

    /// That the other side is gone, one way or the other, without another byte.
    pub fn is_gone(&mut self) {
        let (bytes, how) = self.rest();
        assert_eq!(bytes.escape_ascii().to_string(), "");
        assert!(!matches!(&how, Err(e) if e.kind() == ErrorKind::WouldBlock), "it is still there");
    }

    pub fn finish(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Ends with a reset.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// A field's value in a head.
pub fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (field, value) = line.split_once(':')?;
        field.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// A request for `path` at `origin`, with further fields, each with its CRLF.
pub fn get(origin: &Origin, path: &str, fields: &str) -> String {
    request("GET", origin, path, fields)
}

pub fn request(method: &str, origin: &Origin, path: &str, fields: &str) -> String {
    let name = &origin.name;
    format!("{method} http://{name}{path} HTTP/1.1\r\nHost: {name}\r\n{fields}\r\n")
}

/// A response with a length.
pub fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
