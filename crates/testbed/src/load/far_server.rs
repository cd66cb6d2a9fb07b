//! One server for all requests over a long path. A connection's first line is the request:
//!
//! ```text
//! GET http://HOST/LENGTH HTTP/1.1   so many bytes, as HTTP has it; and again on the same connection
//! POUR                              bytes without end
//! POUR cubic                        the same, by a TCP of this congestion control
//! TAKE                              sends nothing, counts what comes
//! ECHO                              sends back what comes
//! PLAY 300000                       packets of 1,316 bytes at so many bits per second, each with its number
//! SCREEN 7                          what the seventh of the server's scripts writes, each at its time
//! ```
//! Bytes are those of `Pattern`; [`FarServer::wrong`] counts connections with others.

use super::documents::{STACK, each_accepted};
use super::fetch::read_head;
use super::meter::Meter;
use super::pattern::Pattern;
use crate::load::thin_clients::{Scripts, screen};
use ekiden_linux::sockets::options::SocketOptions;
use ekiden_linux::sockets::outcome::Stage;
use rustix::net::{Shutdown, shutdown};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Payload of a packet of a played stream: seven packets of an MPEG transport stream.
pub const PLAYED: usize = 1_316;
/// A write takes at most so much.
const PIECE: usize = 64 << 10;
/// No first line is longer.
const LONGEST_LINE: u64 = 1 << 10;
/// A blocked read or write looks so often whether it is all over.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// The server, until it is dropped.
#[derive(Debug)]
pub struct FarServer {
    listener: TcpListener,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    taken: Meter,
    scripts: Scripts,
    wrong: AtomicU64,
    over: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl FarServer {
    /// A server in the calling thread's network namespace, which counts by `taken` and plays `scripts`.
    pub fn serve(address: SocketAddr, taken: Meter, scripts: Scripts) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let shared = Arc::new(Shared {
            taken,
            scripts,
            wrong: AtomicU64::new(0),
            over: AtomicBool::new(false),
            threads: Mutex::default(),
        });
        let (own, all) = (listener.try_clone()?, Arc::clone(&shared));
        let thread = thread::Builder::new().stack_size(STACK).spawn(move || accept(&own, &all))?;
        Ok(Self { listener, thread: Some(thread), shared })
    }

    /// What was taken.
    pub fn taken(&self) -> &Meter {
        &self.shared.taken
    }

    /// Connections whose bytes were not those that were sent.
    pub fn wrong(&self) -> u64 {
        self.shared.wrong.load(Ordering::Relaxed)
    }
}

impl Drop for FarServer {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // Linux ends a waiting accept by this
        let _ended = shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
        let threads = std::mem::take(&mut *self.shared.threads());
        for thread in threads {
            let _panicked = thread.join();
        }
    }
}

impl Shared {
    fn threads(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn scripts(&self) -> &Scripts {
        &self.scripts
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    each_accepted(listener, |stream| {
        let all = Arc::clone(shared);
        let serve = move || {
            // the client went away
            let _gone = answer(stream, &all);
        };
        if let Ok(thread) = thread::Builder::new().stack_size(STACK).spawn(serve) {
            shared.threads().push(thread);
        }
    });
}

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(LOOK))?;
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\n") && (line.len() as u64) < LONGEST_LINE {
        match waiting(shared, || stream.read(&mut byte))? {
            Some(1..) => line.extend_from_slice(&byte),
            _ => return Ok(()),
        }
    }
    let text = String::from_utf8_lossy(&line).trim_end().to_owned();
    let words: Vec<&str> = text.split(' ').collect();
    match words.as_slice() {
        ["GET", ..] => documents(stream, line, shared),
        ["POUR", rest @ ..] => pour(stream, rest.first().copied(), shared),
        ["TAKE"] => take(stream, shared),
        ["ECHO"] => echo(stream, shared),
        ["SCREEN", number] => number.parse().map_or(Ok(()), |nth| screen(stream, nth, shared)),
        ["PLAY", rate] => rate.parse().map_or(Ok(()), |rate| play(stream, rate, shared)),
        _ => Ok(()),
    }
}

/// Does it again for as long as it has to wait and it is not all over; `None` when it is.
fn waiting<T>(shared: &Shared, mut act: impl FnMut() -> io::Result<T>) -> io::Result<Option<T>> {
    while !shared.is_over() {
        match act() {
            Err(error) if is_wait(&error) => {}
            other => return other.map(Some),
        }
    }
    Ok(None)
}

pub(crate) fn is_wait(error: &io::Error) -> bool {
    let kind = error.kind();
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Writes all of it; false when it is all over before.
pub(crate) fn write(stream: &mut TcpStream, mut bytes: &[u8], shared: &Shared) -> io::Result<bool> {
    while !bytes.is_empty() {
        match waiting(shared, || stream.write(bytes))? {
            None => return Ok(false),
            Some(0) => return Err(ErrorKind::WriteZero.into()),
            Some(count) => bytes = bytes.get(count..).unwrap_or_default(),
        }
    }
    Ok(true)
}

fn documents(mut stream: TcpStream, first: Vec<u8>, shared: &Shared) -> io::Result<()> {
    let mut rest = first;
    loop {
        let head = match read_head(&mut stream, &mut rest) {
            Ok(Some(head)) => head,
            Err(error) if is_wait(&error) && !shared.is_over() => continue,
            _ => return Ok(()),
        };
        let Some(mut left) = head.asked_length() else {
            let no = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            return write(&mut stream, no.as_bytes(), shared).map(drop);
        };
        let mut bytes = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {left}\r\n\
             Cache-Control: no-store\r\n\r\n"
        )
        .into_bytes();
        // in one segment with what follows: two writes would be two packets
        let mut pattern = Pattern::default();
        let piece = pattern.next(left.min(PIECE as u64) as usize);
        bytes.extend_from_slice(piece);
        left -= piece.len() as u64;
        let mut open = write(&mut stream, &bytes, shared)?;
        while open && left > 0 {
            let piece = pattern.next(left.min(PIECE as u64) as usize);
            left -= piece.len() as u64;
            open = write(&mut stream, piece, shared)?;
        }
        if !open {
            return Ok(());
        }
    }
}

fn pour(mut stream: TcpStream, congestion: Option<&str>, shared: &Shared) -> io::Result<()> {
    if let Some(name) = congestion {
        let options =
            SocketOptions { congestion: vec![name.to_owned()], ..SocketOptions::default() };
        // the client sees its connection end, and reports it
        if options.apply(stream.as_fd(), Stage::Accepted).any_refused() {
            return Ok(());
        }
    }
    let mut pattern = Pattern::default();
    while write(&mut stream, pattern.next(PIECE), shared)? {}
    Ok(())
}

fn take(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut pattern = Pattern::default();
    let mut piece = vec![0; PIECE];
    while let Some(count @ 1..) = waiting(shared, || stream.read(&mut piece))? {
        shared.taken.add(count as u64);
        if pattern.check(piece.get(..count).unwrap_or_default()).is_err() {
            shared.wrong.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
    }
    Ok(())
}

fn echo(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    while let Some(count @ 1..) = waiting(shared, || stream.read(&mut piece))? {
        if !write(&mut stream, piece.get(..count).unwrap_or_default(), shared)? {
            return Ok(());
        }
    }
    Ok(())
}

/// At its times, however late the one before was: a source does not wait.
fn play(mut stream: TcpStream, rate: u64, shared: &Shared) -> io::Result<()> {
    let begin = Instant::now();
    let apart = interval(rate);
    let mut pattern = Pattern::default();
    for number in 0_u64.. {
        let due = begin + apart.mul_f64(number as f64);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut packet = number.to_be_bytes().to_vec();
        while packet.len() < PLAYED {
            packet.extend_from_slice(pattern.next(PLAYED - packet.len()));
        }
        if !write(&mut stream, &packet, shared)? {
            break;
        }
    }
    Ok(())
}

/// Between two packets of a stream that is played at so many bits per second of payload.
pub fn interval(rate: u64) -> Duration {
    Duration::from_secs_f64(PLAYED as f64 * 8.0 / rate.max(1) as f64)
}
