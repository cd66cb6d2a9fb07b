//! The ends of carriers: connections of TLS on TCP that are listened for beside UDP, and made where it does
//! not get through.

use crate::carrier;
use crate::core::{Fingerprint, Limits};
use crate::driver::{Driver, locked};
use crate::trust::{Credentials, tls};
use ekiden_linux::answer::Stage;
use ekiden_linux::options::SocketOptions;
use ekiden_model::units::Bytes;
use socket2::{Domain, Protocol, Socket, Type};
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
/// How long a carrier may be there without a tunnel, from the handshakes on.
const CLAIM: Duration = Duration::from_secs(15);
/// Carriers that wait to be taken in.
const BACKLOG: i32 = 128;
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

/// Listens for carriers.
///
/// # Errors
/// The port is taken.
pub(super) fn listener(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(at), Type::STREAM, Some(Protocol::TCP))?;
    if at.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // a restart is not to wait for connections of before
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&at.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// What carriers that come lead to.
#[derive(Debug, Clone)]
pub(super) struct Inside {
    /// Where tunnels are listened for by UDP.
    pub(super) at: SocketAddr,
    pub(super) driver: Arc<Driver>,
    pub(super) carried: Carried,
}

/// Takes carriers in; for ever.
pub(super) async fn listen(
    listener: TcpListener,
    credentials: Credentials,
    inside: Inside,
    limits: Limits,
) {
    let acceptor = match credentials.carrier_server() {
        Ok(tls) => tokio_rustls::TlsAcceptor::from(tls),
        Err(error) => return tracing::error!(%error, "no carriers are listened for"),
    };
    // each tunnel has one, and one more while it is made anew
    let room = Arc::new(Semaphore::new(2 * limits.tunnels));
    let inside = Inside { at: reachable(inside.at), ..inside };
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
        let (acceptor, inside) = (acceptor.clone(), inside.clone());
        tokio::spawn(async move {
            let ended = incoming(&acceptor, stream, from, &inside, CLAIM).await;
            tracing::debug!(%from, ended = %ended.unwrap_or_else(|error| error), "a carrier is over");
            drop(permit);
        });
    }
}

/// One that was taken in, until it is over; why it is.
pub(super) async fn incoming(
    acceptor: &tokio_rustls::TlsAcceptor,
    stream: TcpStream,
    from: SocketAddr,
    inside: &Inside,
    claim: Duration,
) -> io::Result<io::Error> {
    let _outcomes = options().apply(stream.as_fd(), Stage::Accepted);
    let shaking = tokio::time::timeout(PATIENCE, acceptor.accept(stream));
    let stream = shaking.await.map_err(|_| late("the handshake of TLS"))??;
    let socket = UdpSocket::bind((inside.at.ip(), 0)).await?;
    socket.connect(inside.at).await?;
    let end = socket.local_addr()?;
    locked(&inside.carried).insert(end, from);
    // also when the task is given up
    let _registered = Registered { carried: &inside.carried, end };
    Ok(tokio::select! {
        ended = carrier::carry(stream, &socket, carrier::SILENCE) => ended,
        () = unclaimed(&inside.driver, end, claim) => {
            io::Error::new(io::ErrorKind::TimedOut, "no tunnel goes over it")
        }
    })
}

/// Until no tunnel goes through this end: anybody can connect, and what is carried is not looked at.
async fn unclaimed(driver: &Driver, end: SocketAddr, claim: Duration) {
    loop {
        tokio::time::sleep(claim).await;
        if !driver.with(|core| core.has_tunnel_at(end)) {
            return;
        }
    }
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
