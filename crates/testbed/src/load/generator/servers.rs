//! The server side of a generator: raw, or a web server.

use super::wire::{received, send_all};
use super::{Generator, Load, MESSAGE, SERVER, token};
use crate::load::sockets;
use crate::peers::ports;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::Socket;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

const SERVERS: u8 = 8;
/// The longest request that a web server reads.
const REQUEST: usize = 8 * 1024;
/// The length of a document without end: no relay has read so much before its window is over.
const ENDLESS: u64 = 1 << 50;

/// Servers, listening before the relay starts, since forwarders are configured with their targets.
#[derive(Debug)]
pub struct Servers {
    pub(super) load: Load,
    pub(super) listeners: Vec<Socket>,
    pub(super) addresses: Vec<SocketAddr>,
    /// Whether they wait for a GET before they do what the load says.
    pub(super) are_web: bool,
}

impl Servers {
    /// Listens on eight loopback addresses.
    pub fn new(load: Load) -> io::Result<Self> {
        let address = |n| ports::free_on(Ipv4Addr::new(127, 0, 1, n));
        let addresses = (1..=SERVERS).map(address).collect::<io::Result<Vec<_>>>()?;
        Self::listen(load, addresses, false)
    }

    /// Web servers on these addresses of the calling thread's network namespace, which answer every GET with a
    /// document: of 64 bytes and then the end for [`Load::Connects`], otherwise one without end. Errors: an address
    /// is taken or not there.
    pub fn web(load: Load, addresses: Vec<SocketAddr>) -> io::Result<Self> {
        Self::listen(load, addresses, true)
    }

    fn listen(load: Load, addresses: Vec<SocketAddr>, are_web: bool) -> io::Result<Self> {
        let listeners = addresses.iter().map(|a| sockets::listen(*a)).collect::<io::Result<_>>()?;
        Ok(Self { load, listeners, addresses, are_web })
    }

    /// Where they listen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

/// A connection of a server.
#[derive(Debug)]
pub(super) struct Accepted {
    socket: Socket,
    /// What has come of a request that is still to be answered.
    request: Option<Vec<u8>>,
}

impl Accepted {
    /// Reads a request; when it is whole, begins the answer and says so. Errors: the connection is over, also since
    /// all is answered.
    fn answer(&mut self, load: Load, body: &[u8]) -> io::Result<bool> {
        let Some(request) = &mut self.request else { return Ok(true) };
        let mut buffer = [0; 2048];
        let Some(n) = received(recv(&self.socket, &mut buffer, RecvFlags::empty()))? else {
            return Ok(false);
        };
        request.extend_from_slice(buffer.get(..n).unwrap_or_default());
        if !request.ends_with(b"\r\n\r\n") {
            let too_long = request.len() > REQUEST;
            return if too_long { Err(io::ErrorKind::InvalidData.into()) } else { Ok(false) };
        }
        self.request = None;
        let length = if load == Load::Connects { MESSAGE as u64 } else { ENDLESS };
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n"
        )
        .into_bytes();
        if load == Load::Connects {
            answer.extend_from_slice(body.get(..MESSAGE).unwrap_or_default());
            send_all(&self.socket, &answer)?;
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        send_all(&self.socket, &answer)?;
        Ok(true)
    }
}

impl Generator {
    pub(super) fn accept(&mut self, listener: usize) -> io::Result<()> {
        let is_web = self.servers.are_web;
        let flags = match self.servers.load {
            Load::Bulk if !is_web => EventFlags::OUT,
            _ => EventFlags::IN,
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
            let slot = self.accepted.put(Accepted { socket, request: is_web.then(Vec::new) });
            if let Some(accepted) = self.accepted.get(slot) {
                epoll::add(&self.epoll, &accepted.socket, token(SERVER, slot), flags)?;
            }
        }
    }

    /// Something happened on an accepted socket.
    pub(super) fn serve(&mut self, slot: (usize, u32)) {
        let load = self.servers.load;
        let Some(accepted) = self.accepted.get(slot) else { return };
        let going = if accepted.request.is_some() {
            accepted.answer(load, &self.source).and_then(|begun| match (begun, load) {
                (true, Load::Bulk) => {
                    let flags = EventFlags::OUT;
                    Ok(epoll::modify(&self.epoll, &accepted.socket, token(SERVER, slot), flags)?)
                }
                _ => Ok(()),
            })
        } else {
            match load {
                Load::Bulk => match send(&accepted.socket, &self.source, SendFlags::NOSIGNAL) {
                    Ok(_) | Err(Errno::AGAIN) => Ok(()),
                    Err(e) => Err(io::Error::from(e)),
                },
                Load::Connects | Load::Idle => {
                    let mut buffer = [0; 4 * MESSAGE];
                    let socket = &accepted.socket;
                    received(recv(socket, &mut buffer, RecvFlags::empty()))
                        .and_then(|n| n.map_or(Ok(()), |n| send_all(socket, &buffer[..n])))
                }
            }
        };
        // The proxy closed: it is the client who has a say in whether that is a failure.
        if going.is_err() {
            self.accepted.remove(slot.0);
        }
    }
}
