//! Web servers whose documents are as long as their names say: `/4711` is 4,711 bytes. One thread a connection.

use super::fetch::read_head;
use rustix::net::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// A write takes at most so much.
const PIECE: usize = 64 << 10;
/// A thread has a buffer and little else.
pub(super) const STACK: usize = 256 << 10;

/// Servers that run until this is dropped.
#[derive(Debug)]
pub struct Documents {
    listeners: Vec<TcpListener>,
    threads: Vec<JoinHandle<()>>,
    open: Arc<Open>,
}

/// Connections that are open, so that they can be ended.
#[derive(Debug, Default)]
struct Open {
    next: AtomicU64,
    streams: Mutex<BTreeMap<u64, TcpStream>>,
}

impl Documents {
    /// A server on each of these addresses, in the network namespace of the thread that calls. Errors: the
    /// kernel's: an address is taken or not here, or there can be no thread.
    pub fn serve(addresses: &[SocketAddr]) -> io::Result<Self> {
        let open = Arc::new(Open::default());
        let mut this = Self { listeners: Vec::new(), threads: Vec::new(), open };
        for address in addresses {
            let listener = TcpListener::bind(address)?;
            let (own, open) = (listener.try_clone()?, Arc::clone(&this.open));
            this.listeners.push(listener);
            let accept = move || accept(&own, &open);
            this.threads.push(thread::Builder::new().stack_size(STACK).spawn(accept)?);
        }
        Ok(this)
    }
}

impl Drop for Documents {
    fn drop(&mut self) {
        for listener in &self.listeners {
            // Linux ends a waiting accept by this; others would go on
            let _ended = shutdown(listener, Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _panicked = thread.join();
        }
        for stream in self.open.streams().values() {
            let _gone = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Open {
    fn streams(&self) -> MutexGuard<'_, BTreeMap<u64, TcpStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listener: &TcpListener, open: &Arc<Open>) {
    each_accepted(listener, |stream| {
        let Ok(handle) = stream.try_clone() else { return };
        let number = open.next.fetch_add(1, Ordering::Relaxed);
        open.streams().insert(number, handle);
        let all = Arc::clone(open);
        let serve = move || {
            // the client went away, or sent another request
            let _gone = answer_all(stream);
            all.streams().remove(&number);
        };
        if thread::Builder::new().stack_size(STACK).spawn(serve).is_err() {
            open.streams().remove(&number);
        }
    });
}

/// Until the listener is shut down, or out of descriptors: then clients are refused, and say so.
pub(super) fn each_accepted(listener: &TcpListener, mut take: impl FnMut(TcpStream)) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => take(stream),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => return,
        }
    }
}

fn answer_all(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let piece = vec![b'.'; PIECE];
    let mut rest = Vec::new();
    while let Some(head) = read_head(&mut stream, &mut rest)? {
        let length = head.asked_length();
        let (status, mut left) = length.map_or(("404 Not Found", 0), |length| ("200 OK", length));
        let end = if head.says("connection", "close") { "Connection: close\r\n" } else { "" };
        let head_of_answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nContent-Length: {left}\r\n\
             Cache-Control: no-store\r\n{end}\r\n"
        );
        // in one segment with what follows: two writes would be two packets
        let first = left.min(PIECE as u64) as usize;
        let mut bytes = head_of_answer.into_bytes();
        bytes.extend_from_slice(piece.get(..first).unwrap_or_default());
        stream.write_all(&bytes)?;
        left -= first as u64;
        while left > 0 {
            let some = left.min(PIECE as u64) as usize;
            stream.write_all(piece.get(..some).unwrap_or_default())?;
            left -= some as u64;
        }
        if !end.is_empty() {
            return Ok(());
        }
    }
    Ok(())
}
