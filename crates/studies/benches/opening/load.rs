//! Openings at a constant rate, whatever becomes of them, each timed.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any relay here waits.
const PATIENCE: Duration = Duration::from_secs(30);

/// Accepts on the calling thread's machine, and closes at once, until the program ends.
pub(crate) fn serve(port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((IpAddr::from([0, 0, 0, 0]), port))?;
    thread::spawn(move || listener.incoming().for_each(drop));
    Ok(())
}

/// `n` openings through the relay at `relay`, `rate` a second, to the destinations in turn: how long each
/// took, in milliseconds; `None` of one that failed.
pub(crate) fn open(relay: SocketAddr, to: &[SocketAddr], n: usize, rate: u32) -> Vec<Option<f64>> {
    let begun = Instant::now();
    let each = Duration::from_secs(1) / rate;
    thread::scope(|scope| {
        let openings: Vec<_> = (0..n)
            .map(|nth| {
                let due = each * u32::try_from(nth).unwrap_or(u32::MAX);
                thread::sleep(due.saturating_sub(begun.elapsed()));
                let to = to[nth % to.len()];
                scope.spawn(move || one(relay, to).ok())
            })
            .collect();
        openings.into_iter().map(|opening| opening.join().ok().flatten()).collect()
    })
}

fn one(relay: SocketAddr, to: SocketAddr) -> io::Result<f64> {
    let mut stream = TcpStream::connect(relay)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    let begun = Instant::now();
    stream.write_all(request.as_bytes())?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer)?;
    let took = begun.elapsed();
    if !answer.starts_with(b"HTTP/1.1 200") {
        return Err(io::Error::other(String::from_utf8_lossy(&answer).into_owned()));
    }
    // to 10 µs: what is below is this machine's
    Ok((took.as_secs_f64() * 1e5).round() / 1e2)
}
