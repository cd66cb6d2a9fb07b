//! One tunnel at a time, with blocking sockets, for tests.

use super::handshake::{Destination, Handshake, Method, Next};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A test that waits longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A tunnel through `proxy` to `destination`, as a socket, reads and writes limited to 30 s. Bytes
/// that came with the handshake's answer are handed out beside it.
///
/// # Errors
/// The kernel's, or the proxy's refusal as [`super::handshake::Refused`] inside.
pub fn tunnel(
    proxy: SocketAddr,
    method: Method,
    destination: impl Into<Destination>,
) -> io::Result<(TcpStream, Vec<u8>)> {
    let mut stream = TcpStream::connect(proxy)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut handshake = Handshake::new(method, destination.into());
    let mut next = handshake.begin();
    loop {
        match next {
            Next::Done(early) => return Ok((stream, early)),
            Next::Send(bytes) => stream.write_all(&bytes)?,
            Next::Receive => {}
        }
        let mut buffer = [0; 1024];
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        next = handshake.receive(&buffer[..n]).map_err(io::Error::other)?;
    }
}
