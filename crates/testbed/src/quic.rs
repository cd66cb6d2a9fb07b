//! A stock QUIC client and server for one download at a time: quinn's protocol with CUBIC, as most servers have it.
//!
//! The client asks for a number of bytes on a stream, and the server sends them.

use bytes::{Bytes, BytesMut};
use quinn_proto::congestion::{ControllerFactory, CubicConfig};
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The most bytes in flight: 20 Mbit/s over 600 ms, four times.
const WINDOW: u32 = 6 << 20;
/// Between two looks whether the server is to stop.
const LOOK: Duration = Duration::from_millis(50);
const ALPN: &[u8] = b"download";

/// A server, until dropped.
#[derive(Debug)]
pub struct QuicServer {
    client: ClientConfig,
    at: SocketAddr,
    stop: Arc<AtomicBool>,
    task: Option<JoinHandle<()>>,
}

/// What a download showed.
#[derive(Debug, Clone, Default)]
pub struct Download {
    /// From the first packet to the handshake's end.
    pub connected: Duration,
    /// From the first packet to the last byte.
    pub whole: Duration,
    /// Packets of the client that it took for lost.
    pub lost: u64,
    /// The round trip as the client saw it at the end.
    pub rtt: Duration,
}

fn transport(controller: Arc<dyn ControllerFactory + Send + Sync>) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    let window = VarInt::from_u32(WINDOW);
    config
        .congestion_controller_factory(controller)
        .stream_receive_window(window)
        .receive_window(window)
        .send_window(WINDOW.into())
        .max_idle_timeout(Some(VarInt::from_u32(30_000).into()));
    Arc::new(config)
}

fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::other(error)
}

/// A server of this name, with a certificate of its own, and a client that trusts it alone. `controller`: the server's.
pub fn configs(
    name: &str,
    controller: Arc<dyn ControllerFactory + Send + Sync>,
) -> io::Result<(Arc<ServerConfig>, ClientConfig)> {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).map_err(other)?;
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .map_err(other)?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicServerConfig::try_from(tls).map_err(other)?;
    let mut server = ServerConfig::with_crypto(Arc::new(crypto));
    server.transport_config(transport(controller));
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate).map_err(other)?;
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).map_err(other)?));
    client.transport_config(transport(Arc::new(CubicConfig::default())));
    Ok((Arc::new(server), client))
}

impl QuicServer {
    /// Serves on a socket that is bound already, in whatever network that is, under this name.
    pub fn start(socket: UdpSocket, name: &str) -> io::Result<Self> {
        let (server, client) = configs(name, Arc::new(CubicConfig::default()))?;
        let at = socket.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let ends = Ends::new(socket, Some(server))?;
        let stopped = Arc::clone(&stop);
        let task = thread::spawn(move || serve(ends, &stopped));
        Ok(Self { client, at, stop, task: Some(task) })
    }

    /// Where it is.
    pub const fn address(&self) -> SocketAddr {
        self.at
    }

    /// Downloads so many bytes by a client on this socket, which names the server `name`, from `to`. Errors: it took longer
    /// than `patience`, the connection broke, or the kernel reported that nobody is there.
    pub fn download(
        &self,
        socket: UdpSocket,
        (to, name): (SocketAddr, &str),
        bytes: u64,
        patience: Duration,
    ) -> io::Result<Download> {
        let mut ends = Ends::new(socket, None)?;
        let begun = Instant::now();
        let (handle, connection) =
            ends.endpoint.connect(begun, self.client.clone(), to, name).map_err(other)?;
        ends.connections.insert(handle, connection);
        let mut download = Download::default();
        let mut left = bytes;
        while left > 0 {
            for (handle, event) in ends.turn(patience.saturating_sub(begun.elapsed()))? {
                let Some(connection) = ends.connections.get_mut(&handle) else { continue };
                match event {
                    Event::Connected => {
                        download.connected = begun.elapsed();
                        let id = connection.streams().open(Dir::Bi);
                        let id = id.ok_or_else(|| other("no stream"))?;
                        let mut stream = connection.send_stream(id);
                        stream.write(&bytes.to_be_bytes()).map_err(other)?;
                        stream.finish().map_err(other)?;
                    }
                    Event::ConnectionLost { reason } => return Err(other(reason)),
                    Event::Stream(StreamEvent::Readable { id }) => {
                        read(connection, id, |chunk| left -= chunk.len() as u64)?;
                    }
                    _ => {}
                }
            }
            if begun.elapsed() >= patience {
                let came = bytes - left;
                return Err(other(format!("{came} of {bytes} bytes after {patience:?}")));
            }
        }
        download.whole = begun.elapsed();
        if let Some(connection) = ends.connections.get_mut(&handle) {
            download.lost = connection.stats().path.lost_packets;
            download.rtt = connection.rtt();
            connection.close(Instant::now(), VarInt::from_u32(0), Bytes::new());
            ends.flush()?;
        }
        Ok(download)
    }
}

impl Drop for QuicServer {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(task) = self.task.take() {
            let _ = task.join();
        }
    }
}

fn serve(mut ends: Ends, stop: &AtomicBool) {
    let page = Bytes::from(vec![b'q'; 64 * 1024]);
    // what is left of each answer
    let mut answers: BTreeMap<(ConnectionHandle, StreamId), u64> = BTreeMap::new();
    let mut asked: BTreeMap<(ConnectionHandle, StreamId), Vec<u8>> = BTreeMap::new();
    while !stop.load(Relaxed) {
        let Ok(events) = ends.turn(LOOK) else { return };
        for (handle, event) in events {
            let Some(connection) = ends.connections.get_mut(&handle) else { continue };
            match event {
                Event::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                    while let Some(id) = connection.streams().accept(Dir::Bi) {
                        asked.insert((handle, id), Vec::new());
                    }
                }
                Event::ConnectionLost { .. } => {
                    answers.retain(|(of, _), _| *of != handle);
                    asked.retain(|(of, _), _| *of != handle);
                }
                _ => {}
            }
        }
        asked.retain(|(handle, id), bytes| {
            let Some(connection) = ends.connections.get_mut(handle) else { return false };
            let done = read(connection, *id, |chunk| bytes.extend_from_slice(chunk));
            if let Some(number) = bytes.first_chunk() {
                answers.insert((*handle, *id), u64::from_be_bytes(*number));
            }
            done.is_ok() && bytes.len() < 8
        });
        answers.retain(|(handle, id), left| {
            let Some(connection) = ends.connections.get_mut(handle) else { return false };
            let mut stream = connection.send_stream(*id);
            while *left > 0 {
                let part =
                    page.slice(..page.len().min(usize::try_from(*left).unwrap_or(usize::MAX)));
                match stream.write(&part) {
                    Ok(0) | Err(_) => break,
                    Ok(written) => *left -= written as u64,
                }
            }
            if *left == 0 {
                let _ = stream.finish();
            }
            *left > 0
        });
        if ends.flush().is_err() {
            return;
        }
    }
}

/// Reads what has come on a stream.
fn read(connection: &mut Connection, id: StreamId, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut stream = connection.recv_stream(id);
    // it is over, and was read
    let Ok(mut chunks) = stream.read(true) else { return Ok(()) };
    while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
        each(&chunk.bytes);
    }
    let _ = chunks.finalize();
    Ok(())
}

/// An endpoint and its socket.
struct Ends {
    socket: UdpSocket,
    endpoint: Endpoint,
    connections: BTreeMap<ConnectionHandle, Connection>,
    buffer: Vec<u8>,
}

impl Ends {
    fn new(socket: UdpSocket, server: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let config = Arc::new(EndpointConfig::default());
        let endpoint = Endpoint::new(config, server, true, None);
        Ok(Self { socket, endpoint, connections: BTreeMap::new(), buffer: vec![0; 65_536] })
    }

    /// Waits for a datagram or a timer, at most so long, and returns what happened.
    fn turn(&mut self, most: Duration) -> io::Result<Vec<(ConnectionHandle, Event)>> {
        self.flush()?;
        let due = self.connections.values_mut().filter_map(Connection::poll_timeout).min();
        let now = Instant::now();
        let wait = due.map_or(most, |due| due.saturating_duration_since(now).min(most));
        // zero would mean for ever
        self.socket.set_read_timeout(Some(wait.max(Duration::from_micros(50))))?;
        match self.socket.recv_from(&mut self.buffer) {
            Ok((length, from)) => self.take(length, from)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        // the rest of a burst, together
        self.socket.set_nonblocking(true)?;
        for _ in 0..64 {
            let Ok((length, from)) = self.socket.recv_from(&mut self.buffer) else { break };
            self.take(length, from)?;
        }
        self.socket.set_nonblocking(false)?;
        let now = Instant::now();
        for connection in self.connections.values_mut() {
            if connection.poll_timeout().is_some_and(|due| due <= now) {
                connection.handle_timeout(now);
            }
        }
        self.flush()?;
        let mut events = Vec::new();
        for (handle, connection) in &mut self.connections {
            while let Some(event) = connection.poll() {
                events.push((*handle, event));
            }
        }
        Ok(events)
    }

    fn take(&mut self, length: usize, from: SocketAddr) -> io::Result<()> {
        let data = BytesMut::from(self.buffer.get(..length).unwrap_or_default());
        let (now, mut reply) = (Instant::now(), Vec::new());
        match self.endpoint.handle(now, from, None, None, data, &mut reply) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = self.connections.get_mut(&handle) {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                if let Ok((handle, connection)) =
                    self.endpoint.accept(incoming, now, &mut reply, None)
                {
                    self.connections.insert(handle, connection);
                }
            }
            Some(DatagramEvent::Response(transmit)) => {
                let bytes = reply.get(..transmit.size).unwrap_or_default();
                self.socket.send_to(bytes, transmit.destination)?;
            }
            None => {}
        }
        Ok(())
    }

    /// Sends what is to be sent.
    fn flush(&mut self) -> io::Result<()> {
        let mut gone = Vec::new();
        for (handle, connection) in &mut self.connections {
            while let Some(event) = connection.poll_endpoint_events() {
                if event.is_drained() {
                    gone.push(*handle);
                }
                if let Some(event) = self.endpoint.handle_event(*handle, event) {
                    connection.handle_event(event);
                }
            }
            let mut out = Vec::new();
            while let Some(transmit) = connection.poll_transmit(Instant::now(), 1, &mut out) {
                match self
                    .socket
                    .send_to(out.get(..transmit.size).unwrap_or_default(), transmit.destination)
                {
                    // a probe that is longer than the device's MTU
                    Err(error)
                        if error.raw_os_error()
                            == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {}
                    sent => drop(sent?),
                }
                out.clear();
            }
        }
        gone.into_iter().for_each(|handle| drop(self.connections.remove(&handle)));
        Ok(())
    }
}
