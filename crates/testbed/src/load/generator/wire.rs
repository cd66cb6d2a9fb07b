//! A client's side of a connection: a socket, or TLS on one.

use super::CHUNK;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use socket2::Socket;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Wire {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
}

impl Wire {
    /// On a socket that connects to `to`; its certificate is for that address.
    pub(super) fn new(
        socket: Socket,
        to: SocketAddr,
        tls: Option<&Arc<ClientConfig>>,
    ) -> io::Result<Self> {
        let name = ServerName::IpAddress(to.ip().into());
        let session = |config: &Arc<ClientConfig>| ClientConnection::new(Arc::clone(config), name);
        let tls = tls.map(session).transpose().map_err(io::Error::other)?;
        Ok(Self { socket, tls: tls.map(Box::new) })
    }

    pub(super) const fn socket(&self) -> &Socket {
        &self.socket
    }

    /// As [`send_all`]; TLS keeps the bytes until its handshake is over.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => {
                tls.writer().write_all(bytes)?;
                flush(&self.socket, tls)
            }
            None => send_all(&self.socket, bytes),
        }
    }

    /// Begins where nothing is to be sent: TLS says hello.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |tls| flush(&self.socket, tls))
    }

    /// What came; `None` for nothing yet. Errors: the end of the stream is one here.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.tls {
            Some(tls) => read(&self.socket, tls, buffer),
            None => received(recv(&self.socket, buffer, RecvFlags::empty())),
        }
    }

    /// The same of many bytes that nobody looks at. A socket's are not copied.
    pub(super) fn discard(&mut self, sink: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(tls) = &mut self.tls else {
            let came = recv(&self.socket, sink, RecvFlags::TRUNC);
            return received(came.map(|(_, n)| ((), n)));
        };
        // nobody is woken again for what was decrypted
        let mut all = 0;
        while all < CHUNK {
            match read(&self.socket, tls, sink) {
                Ok(Some(n)) => all += n,
                Ok(None) => break,
                Err(error) if all == 0 => return Err(error),
                Err(_) => break,
            }
        }
        while let Ok(n) = tls.reader().read(sink)
            && n > 0
        {
            all += n;
        }
        Ok(Some(all).filter(|all| *all > 0))
    }
}

fn flush(mut socket: &Socket, tls: &mut ClientConnection) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut socket)?;
    }
    Ok(())
}

fn read(
    mut socket: &Socket,
    tls: &mut ClientConnection,
    buffer: &mut [u8],
) -> io::Result<Option<usize>> {
    loop {
        match tls.reader().read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => return Ok(Some(n)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        match tls.read_tls(&mut socket) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {
                tls.process_new_packets().map_err(io::Error::other)?;
                flush(socket, tls)?;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// How many bytes came; `None` for none yet; the end of the stream is an error here.
pub(super) fn received<T>(result: rustix::io::Result<(T, usize)>) -> io::Result<Option<usize>> {
    match result {
        Ok((_, 0)) => Err(ErrorKind::UnexpectedEof.into()),
        Ok((_, n)) => Ok(Some(n)),
        Err(Errno::AGAIN) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// A few bytes into an empty send buffer: anything short is a failure.
pub(super) fn send_all(socket: &Socket, bytes: &[u8]) -> io::Result<()> {
    let sent = send(socket, bytes, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}
