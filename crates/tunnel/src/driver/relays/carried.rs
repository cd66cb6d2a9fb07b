//! The ends of carriers: connections of TLS on TCP that are listened for beside UDP, and made where it does
//! not get through.

use crate::carrier;
use crate::core::{Fingerprint, Limits};
use crate::driver::locked;
use crate::trust::{Credentials, tls};
use ekiden_linux::answer::Stage;
use ekiden_linux::options::SocketOptions;
use ekiden_model::units::Bytes;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsStream;

/// How long connecting, and the handshake of TLS, may each take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two connections of one carrier.
const PAUSE: Duration = Duration::from_millis(300);
/// Of what is written so much may wait in the kernel beyond its window: more would hold up keystrokes.
const UNSENT: Bytes = Bytes::kib(32);

/// Which carriers are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carrier {
    /// UDP, and TLS on TCP where that does not get through.
    #[default]
    Auto,
    /// UDP alone.
    Udp,
    /// Connects over TLS on TCP alone.
    Tcp,
}

/// Addresses on loopback that are carriers' ends, and where the connection really leads.
pub(super) type Carried = Arc<Mutex<BTreeMap<SocketAddr, SocketAddr>>>;

/// A carrier to a relay; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Outgoing {
    task: JoinHandle<()>,
    carried: Carried,
    /// Where the relay is, for the tunnel's own socket.
    pub(super) end: SocketAddr,
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.task.abort();
        locked(&self.carried).remove(&self.end);
    }
}

/// What the kernel is asked for each connection: BBR where it is, since losses are what carriers are for.
fn options() -> SocketOptions {
    SocketOptions {
        congestion: vec!["bbr".to_owned(), "cubic".to_owned()],
        unsent_low_water: Some(UNSENT),
        no_delay: Some(true),
        ..SocketOptions::default()
    }
}

fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} took longer than {PATIENCE:?}"))
}

/// Connects to the relay with this certificate, for the tunnel's socket at `inside`; again when the connection
/// breaks, as long as the carrier is there. QUIC takes that for a change of address.
///
/// # Errors
/// The first connection is not made.
pub(super) async fn connect(
    credentials: &Credentials,
    peer: Fingerprint,
    to: SocketAddr,
    inside: SocketAddr,
    carried: Carried,
) -> io::Result<Outgoing> {
    let tls = credentials.carrier_client(peer).map_err(io::Error::other)?;
    let connector = tokio_rustls::TlsConnector::from(tls);
    let first = dial(&connector, to).await?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    // from nobody else
    socket.connect(inside).await?;
    let end = socket.local_addr()?;
    locked(&carried).insert(end, to);
    let task = tokio::spawn(async move {
        let mut connection = Some(first);
        loop {
            if let Some(stream) = connection.take() {
                let ended = carrier::carry(stream, &socket, carrier::SILENCE).await;
                tracing::debug!(%to, %ended, "the carrier's connection is over");
            }
            tokio::time::sleep(PAUSE).await;
            match dial(&connector, to).await {
                Ok(stream) => connection = Some(stream),
                Err(error) => tracing::debug!(%to, %error, "the carrier cannot connect"),
            }
        }
    });
    Ok(Outgoing { task, carried, end })
}

async fn dial(
    connector: &tokio_rustls::TlsConnector,
    to: SocketAddr,
) -> io::Result<TlsStream<TcpStream>> {
    let connecting = tokio::time::timeout(PATIENCE, TcpStream::connect(to));
    let stream = connecting.await.map_err(|_| late("connecting"))??;
    let _outcomes = options().apply(stream.as_fd(), Stage::Accepted);
    // names are not looked at
    let name = to.ip().into();
    let shaking = tokio::time::timeout(PATIENCE, connector.connect(name, stream));
    let shaken = shaking.await.map_err(|_| late("the handshake of TLS"))?;
    Ok(shaken.map_err(tls::in_words)?.into())
}

/// Takes carriers in for the socket that listens at `inside`; for ever.
pub(super) async fn listen(
    listener: TcpListener,
    credentials: Credentials,
    inside: SocketAddr,
    limits: Limits,
    carried: Carried,
) {
    let acceptor = match credentials.carrier_server() {
        Ok(tls) => tokio_rustls::TlsAcceptor::from(tls),
        Err(error) => return tracing::error!(%error, "no carriers are listened for"),
    };
    // each tunnel has one, and one more while it is made anew
    let room = Arc::new(Semaphore::new(2 * limits.tunnels));
    let inside = reachable(inside);
    loop {
        // who comes while there is no room waits in the kernel
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "a carrier was not taken in");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (acceptor, carried) = (acceptor.clone(), Arc::clone(&carried));
        tokio::spawn(async move {
            let ended = incoming(&acceptor, stream, from, inside, &carried).await;
            tracing::debug!(%from, ended = %ended.unwrap_or_else(|error| error), "a carrier is over");
            drop(permit);
        });
    }
}

/// One that was taken in, until it is over; why it is.
async fn incoming(
    acceptor: &tokio_rustls::TlsAcceptor,
    stream: TcpStream,
    from: SocketAddr,
    inside: SocketAddr,
    carried: &Carried,
) -> io::Result<io::Error> {
    let _outcomes = options().apply(stream.as_fd(), Stage::Accepted);
    let shaking = tokio::time::timeout(PATIENCE, acceptor.accept(stream));
    let stream = shaking.await.map_err(|_| late("the handshake of TLS"))??;
    let socket = UdpSocket::bind((inside.ip(), 0)).await?;
    socket.connect(inside).await?;
    let end = socket.local_addr()?;
    locked(carried).insert(end, from);
    // also when the task is given up
    let _registered = Registered { carried, end };
    Ok(carrier::carry(stream, &socket, carrier::SILENCE).await)
}

struct Registered<'a> {
    carried: &'a Carried,
    end: SocketAddr,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        locked(self.carried).remove(&self.end);
    }
}

/// An address at which this machine reaches the socket itself.
fn reachable(at: SocketAddr) -> SocketAddr {
    let ip = match at.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, at.port())
}
