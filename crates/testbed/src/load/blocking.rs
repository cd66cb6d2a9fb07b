//! One tunnel at a time, with blocking sockets, for tests.

use super::handshake::{Destination, Handshake, Method, Next};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A test that waits longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A tunnel through `proxy` to `destination`, reads and writes limited to 30 s, and bytes that came early.
/// Errors: the kernel's, or the proxy's refusal as `handshake::Refused` inside.
pub fn tunnel(
    proxy: SocketAddr,
    method: Method,
    destination: impl Into<Destination>,
) -> io::Result<(TcpStream, Vec<u8>)> {
    let mut stream = TcpStream::connect(proxy)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let early = shake(&mut stream, Handshake::new(method, destination.into()), TcpStream::read)?;
    Ok((stream, early))
}

/// Drives a handshake by `read`; returns the bytes that came through the tunnel already.
pub(super) fn shake(
    stream: &mut TcpStream,
    mut handshake: Handshake,
    mut read: impl FnMut(&mut TcpStream, &mut [u8]) -> io::Result<usize>,
) -> io::Result<Vec<u8>> {
    let mut next = handshake.begin();
    loop {
        match next {
            Next::Done(early) => return Ok(early),
            Next::Send(bytes) => stream.write_all(&bytes)?,
            Next::Receive => {}
        }
        let mut buffer = [0; 1024];
        let n = read(stream, &mut buffer)?;
        if n == 0 {
            let what = "the proxy closed the connection during the handshake";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        next = handshake.receive(&buffer[..n]).map_err(io::Error::other)?;
    }
}
