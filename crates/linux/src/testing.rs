//! Shared by this crate's tests.
#![allow(clippy::unwrap_used)] // a test may fail loudly

use std::net::{TcpListener, TcpStream};

/// The two ends of a TCP connection on loopback.
pub(crate) fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}
