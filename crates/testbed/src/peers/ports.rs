//! Free loopback ports outside the kernel's range for outgoing connections, which a load cannot take before the
//! program binds.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

const FIRST: u16 = 10_000;
const COUNT: u16 = 22_000; // up to 32,000; the kernel's default range begins at 32,768

static TAKEN: AtomicU16 = AtomicU16::new(0);

/// A port of 127.0.0.1 that is free for TCP and UDP, never the same twice in one process. Errors: the last
/// refusal, when a whole range is taken.
pub fn free() -> io::Result<SocketAddr> {
    free_on(Ipv4Addr::LOCALHOST)
}

/// The same on another loopback address. Errors: the last refusal, when a whole range is taken.
pub fn free_on(ip: Ipv4Addr) -> io::Result<SocketAddr> {
    let mut refusal = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..COUNT {
        let address = SocketAddr::from((ip, next()));
        match TcpListener::bind(address).and_then(|_| UdpSocket::bind(address)) {
            Ok(_) => return Ok(address),
            Err(e) => refusal = e,
        }
    }
    Err(refusal)
}

/// The same on another host's address, where nobody else takes ports and none can be tried from here.
pub fn elsewhere(ip: IpAddr) -> SocketAddr {
    SocketAddr::from((ip, next()))
}

fn next() -> u16 {
    // Test programs run beside each other: each begins elsewhere.
    let start = std::process::id().wrapping_mul(977) % u32::from(COUNT);
    let next = TAKEN.fetch_add(1, Ordering::Relaxed) % COUNT;
    FIRST + ((start + u32::from(next)) % u32::from(COUNT)) as u16
}
