//! Tunnels over TLS on TCP: connections accepted beside UDP, and opened where UDP is blocked.

use super::GOODBYE;
use super::tcp_places::{Door, Place};
use crate::core::Fingerprint;
use crate::driver::tcp_framing;
use crate::driver::{Driver, locked};
use crate::trust::{Credentials, tls};
use ekiden_linux::host::clock;
use ekiden_linux::sockets::options::SocketOptions;
use ekiden_linux::sockets::outcome::Stage;
use ekiden_model::units::Bytes;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_rustls::TlsStream;

/// How long connecting, and the handshake of TLS, may each take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a carrier may be there without a tunnel, from the handshakes on.
const CLAIM: Duration = Duration::from_secs(15);
/// How often it is looked whether a tunnel goes over one.
const LOOK: Duration = Duration::from_secs(1);
/// Carriers that wait to be taken in.
const BACKLOG: i32 = 128;
/// Between two connections of one carrier.
const PAUSE: Duration = Duration::from_millis(300);
/// Unsent bytes in the kernel (`TCP_NOTSENT_LOWAT`): more would delay keystrokes.
const UNSENT: Bytes = Bytes::kib(32);

/// Which carriers are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransportMode {
    /// UDP, and TLS on TCP where that does not get through.
    #[default]
    Auto,
    /// UDP alone.
    Udp,
    /// Connects over TLS on TCP alone.
    Tcp,
}

/// Addresses that are carriers' ends, and where the connection really leads.
pub(crate) type Carried = Arc<Mutex<BTreeMap<SocketAddr, SocketAddr>>>;

/// A carrier to a relay; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Outgoing {
    task: JoinHandle<()>,
    carried: Carried,
    /// Where the relay is for the core.
    pub(crate) end: SocketAddr,
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        locked(&self.carried).remove(&self.end);
        let task = self.task.abort_handle();
        match Handle::try_current() {
            // the tunnel's last frames leave first
            Ok(runtime) => drop(runtime.spawn(async move {
                tokio::time::sleep(GOODBYE).await;
                task.abort();
            })),
            Err(_) => task.abort(),
        }
    }
}

/// Socket options of each connection: BBR where available, because the path loses packets.
fn options() -> SocketOptions {
    SocketOptions {
        congestion: vec!["bbr".to_owned(), "cubic".to_owned()],
        notsent_lowat: Some(UNSENT),
        no_delay: Some(true),
        ..SocketOptions::default()
    }
}

fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("{what} took longer than {PATIENCE:?}"))
}

/// A first connection to a relay, and what it takes to make another.
pub(crate) struct Dialled {
    connector: tokio_rustls::TlsConnector,
    to: SocketAddr,
    stream: TlsStream<TcpStream>,
}

/// Connects to the relay with this certificate. Fails where the connection is not made.
pub(crate) async fn connect(
    credentials: &Credentials,
    peer: Fingerprint,
    to: SocketAddr,
) -> io::Result<Dialled> {
    let tls = credentials.carrier_client(peer).map_err(io::Error::other)?;
    let connector = tokio_rustls::TlsConnector::from(tls);
    let stream = dial(&connector, to).await?;
    Ok(Dialled { connector, to, stream })
}

impl Dialled {
    /// Carries datagrams of the driver; over another connection when this one breaks.
    pub(crate) fn carry(self, driver: &Driver, carried: Carried) -> Outgoing {
        let Self { connector, to, stream } = self;
        let mut inside = driver.carrier(None);
        let end = inside.at();
        locked(&carried).insert(end, to);
        let task = tokio::spawn(async move {
            let mut connection = Some(stream);
            loop {
                if let Some(stream) = connection.take() {
                    let ended = tcp_framing::carry(stream, &mut inside, tcp_framing::SILENCE).await;
                    tracing::debug!(%to, %ended, "the carrier's connection is over");
                }
                tokio::time::sleep(PAUSE).await;
                match dial(&connector, to).await {
                    Ok(stream) => connection = Some(stream),
                    Err(error) => tracing::debug!(%to, %error, "the carrier cannot connect"),
                }
            }
        });
        Outgoing { task, carried, end }
    }
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
    Ok(shaken.map_err(tls::describe)?.into())
}

pub(crate) fn listener(at: SocketAddr) -> io::Result<TcpListener> {
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

#[derive(Debug, Clone)]
pub(crate) struct FallbackTarget {
    pub(crate) driver: Arc<Driver>,
    pub(crate) carried: Carried,
}

/// Takes carriers in; for ever. What `door` counts outlives a panic here.
pub(super) async fn listen(
    listener: Arc<TcpListener>,
    credentials: Credentials,
    inside: FallbackTarget,
    door: Arc<Mutex<Door>>,
) {
    let acceptor = match credentials.carrier_server() {
        Ok(tls) => tokio_rustls::TlsAcceptor::from(tls),
        Err(error) => return tracing::error!(%error, "no carriers are listened for"),
    };
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "rejected a TCP fallback connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let place = locked(&door).on_attempt(clock::now(), from.ip());
        let Some(place) = place else { continue };
        let (acceptor, inside) = (acceptor.clone(), inside.clone());
        tokio::spawn(async move {
            let ended = incoming(&acceptor, stream, from, (&inside, place), CLAIM).await;
            tracing::debug!(%from, ended = %ended.unwrap_or_else(|error| error), "TCP fallback connection ended");
        });
    }
}

/// One that was taken in, until it is over; why it is.
pub(crate) async fn incoming(
    acceptor: &tokio_rustls::TlsAcceptor,
    stream: TcpStream,
    from: SocketAddr,
    (inside, mut place): (&FallbackTarget, Place),
    claim: Duration,
) -> io::Result<io::Error> {
    let _outcomes = options().apply(stream.as_fd(), Stage::Accepted);
    let stream = tokio::select! {
        shaken = tokio::time::timeout(PATIENCE, acceptor.accept(stream)) => {
            shaken.map_err(|_| late("the handshake of TLS"))??
        }
        () = place.lost() => return Ok(gave_way()),
    };
    let mut carrier = inside.driver.carrier(Some(from.ip()));
    let end = carrier.at();
    locked(&inside.carried).insert(end, from);
    // also when the task is given up
    let _registered = Registered { carried: &inside.carried, end };
    Ok(tokio::select! {
        ended = tcp_framing::carry(stream, &mut carrier, tcp_framing::SILENCE) => ended,
        unused = unclaimed(&inside.driver, end, claim, place) => unused,
    })
}

fn gave_way() -> io::Error {
    io::Error::other("it gave way to another address, because too many came")
}

/// Waits until no tunnel uses this end, or its tunnel has newer ones: anybody can connect, and bytes are not inspected
/// here.
async fn unclaimed(
    driver: &Driver,
    end: SocketAddr,
    claim: Duration,
    mut place: Place,
) -> io::Error {
    let used_by = || driver.with(|core| core.tunnel_at(end));
    let until = Instant::now() + claim;
    let first = loop {
        if let Some(tunnel) = used_by() {
            break tunnel;
        }
        if Instant::now() >= until {
            return io::Error::new(io::ErrorKind::TimedOut, "no tunnel goes over it");
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK.min(claim)) => {}
            () = place.lost() => return gave_way(),
        }
    };
    let mut claimed = place.identified(clock::now(), first);
    loop {
        tokio::select! {
            () = tokio::time::sleep(claim) => {}
            () = claimed.lost() => return io::Error::other("its tunnel goes over newer ones"),
        }
        let Some(tunnel) = used_by() else {
            return io::Error::new(io::ErrorKind::TimedOut, "no tunnel goes over it any more");
        };
        claimed = claimed.taken_over(tunnel);
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
