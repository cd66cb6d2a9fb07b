//! The sockets of an address that others connect to: UDP, with a thread for each processor, and TCP where UDP is
//! blocked.

use super::{Settings, TransportMode, tcp_fallback};
use crate::core::{AddressThread, Endpoint, Event, Limits, MOST_THREADS, PeersMemory};
use crate::driver::Driver;
use crate::driver::siblings::Siblings;
use crate::trust::Credentials;
use ekiden_linux::sockets::{datagram, receive_batch};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Ports that are tried until one is free for UDP and TCP.
const TRIES: usize = 16;
/// Datagrams that may have come while sockets were bound; no more are looked for.
const DRAINED: usize = 10_000;

/// An address that others connect to.
pub(super) struct Listening {
    /// With the port that the kernel chose where any was asked for.
    pub(super) address: SocketAddr,
    /// Of its threads; the first has those that come by TCP.
    pub(super) drivers: Vec<(Arc<Driver>, mpsc::UnboundedReceiver<Event>)>,
    pub(super) carrier: Option<TcpListener>,
}

impl Listening {
    /// Errors: the address cannot be bound, or a thread not be started.
    pub(super) fn start(
        address: SocketAddr,
        settings: &Settings,
        credentials: &Credentials,
        (origin, memory): (Instant, &Arc<PeersMemory>),
    ) -> io::Result<Self> {
        let (first, carrier) = both(address, settings.carrier)?;
        let address = first.local_addr()?;
        let sockets = spread(first, settings.threads)?;
        let limits = limits_for_path(settings.limits, None);
        let count = sockets.len();
        let mut drivers = Vec::with_capacity(count);
        for thread in AddressThread::all(address, count, &limits, memory) {
            let siblings = match count {
                1 => Siblings::default(),
                _ => Siblings::new(credentials, &thread),
            };
            let way = (true, origin, None);
            let core = Endpoint::of_thread(credentials.clone(), limits, way, thread);
            let (driver, events) = Driver::prepare(core, siblings)?;
            drivers.push((Arc::new(driver), events));
        }
        let all: Vec<_> = drivers.iter().map(|(driver, _)| Arc::clone(&driver.shared)).collect();
        Siblings::introduce(&all);
        for ((driver, _), socket) in drivers.iter().zip(sockets) {
            driver.run(socket, settings.dscp)?;
        }
        let and_tcp = if carrier.is_some() { " and TCP" } else { "" };
        tracing::info!("listening for tunnels on UDP{and_tcp} {address}");
        Ok(Self { address, drivers, carrier })
    }
}

/// More sockets of the same address, for as many threads; the kernel gives each the datagrams of some senders. One alone
/// where it cannot.
fn spread(first: UdpSocket, threads: usize) -> io::Result<Vec<UdpSocket>> {
    let address = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..threads.clamp(1, MOST_THREADS) {
        let next = datagram::open_beside(&sockets[0], address).and_then(ready);
        match next {
            Ok(socket) => sockets.push(socket),
            Err(error) => {
                tracing::debug!(%address, %error, "one thread for all tunnels of this address");
                break;
            }
        }
    }
    // what came before goes where it would have gone now when it is sent again: both connections of a tunnel to one thread
    if sockets.len() > 1 {
        (0..DRAINED).take_while(|_| sockets[0].recv(&mut [0; 1]).is_ok()).for_each(drop);
    }
    Ok(sockets)
}

/// Lets the kernel merge datagrams, and tell to which address each went where a socket has several.
fn ready(socket: UdpSocket) -> io::Result<UdpSocket> {
    merge(&socket);
    if socket.local_addr()?.ip().is_unspecified() {
        datagram::report_destinations(&socket)?;
    }
    Ok(socket)
}

fn merge(socket: &UdpSocket) {
    if let Err(error) = receive_batch::merge(socket) {
        tracing::debug!(%error, "the kernel merges no datagrams; they are received one by one");
    }
}

/// A UDP socket on which the kernel merges what has come, if it can.
pub(super) fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = datagram::open(address)?;
    merge(&socket);
    Ok(socket)
}

/// A UDP socket and the same port of TCP; UDP alone where that is taken. For port 0, one that is
/// free for both.
pub(super) fn both(
    address: SocketAddr,
    carrier: TransportMode,
) -> io::Result<(UdpSocket, Option<TcpListener>)> {
    let mut tries = TRIES;
    loop {
        let socket = ready(datagram::open(address)?)?;
        if carrier == TransportMode::Udp {
            return Ok((socket, None));
        }
        let at = socket.local_addr()?;
        tries -= 1;
        match tcp_fallback::listener(at) {
            Ok(listener) => return Ok((socket, Some(listener))),
            Err(error) if address.port() == 0 && tries > 0 => {
                tracing::debug!(%at, %error, "the port is free for UDP but not for TCP; trying another");
            }
            Err(error) => {
                tracing::warn!(%at, %error, "cannot listen on the same TCP port; accepting tunnels over UDP only");
                return Ok((socket, None));
            }
        }
    }
}

/// At most the MTU of the way out, so that few MTU probes fail.
pub(super) fn limits_for_path(limits: Limits, to: Option<SocketAddr>) -> Limits {
    // for any peer: a common device's
    let mtu = to.map_or(1_500, |to| datagram::route_mtu(to).unwrap_or(1_500));
    let headers = if to.is_some_and(|to| to.is_ipv6()) { 48 } else { 28 };
    let most = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
    Limits { datagram: limits.datagram.min(most).max(1_200), ..limits }
}
