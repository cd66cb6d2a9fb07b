//! TLS on a connection, with the calls of a socket (RFC 8446).
//!
//! Bytes are decrypted into the reader's buffer and encrypted out of the writer's. What the connection does not take
//! waits in the session, one record at most, and is sent before anything else.

use crate::observe::leg_stats::TlsLeg;
use crate::policy::quota::Framing;
use crate::transfer::end::End;
use crate::transfer::records::Records;
use crate::transfer::tls::{Handshake, TlsTransport};
use crate::transfer::transient::is_transient;
use ekiden_linux::host::sync::locked;
use ekiden_linux::sockets::socket::unacknowledged;
use ekiden_model::resources::quota::Direction;
use ekiden_tunnel::driver::DRAIN_WITHOUT_PROGRESS;
use rustls::Connection;
use std::any::Any;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

/// Bytes that may wait to be sent: two records.
const UNSENT: usize = 32 * 1024;

/// The memory that counts for a session: rustls's state, a record that is not whole, and what waits to be sent.
pub(crate) const SESSION: usize = 64 * 1024;

/// Bytes of records that may come without content: tickets, new keys, alerts.
const BARE: usize = 64 * 1024;

/// A session whose handshake is over. One task may read and write it.
#[derive(Debug)]
pub(crate) struct TlsSession {
    carrier: End,
    state: Mutex<State>,
    /// Told of all that moves beside the content.
    framing: Option<Arc<Framing>>,
    /// Dropped with the session: the memory that is held for it, the management of its leg.
    _kept: Option<Box<dyn Any + Send + Sync>>,
}

#[derive(Debug)]
struct State {
    tls: Connection,
    records: Records,
    /// Bytes of records since the last content.
    bare: usize,
    /// Bytes that were sent, encrypted, and those of them that were counted as framing; and what was written.
    sent: [u64; 2],
    written: u64,
    /// Decrypted bytes that wait to be read.
    plain: usize,
    /// The other side has announced its end, behind those bytes.
    ended: bool,
    /// This direction has ended.
    finished: bool,
    aborted: bool,
    /// Ended from elsewhere.
    shut: bool,
    /// A task sends what waits.
    flushing: bool,
}

/// The carrier as rustls writes it.
struct Wire<'a>(&'a End);

/// The same as rustls reads it; bytes of records that came whole.
struct Incoming<'a>(&'a End, &'a mut Records, usize);

impl Read for Incoming<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let n = self.0.try_read(bytes)?;
        self.2 += self.1.read(&bytes[..n]);
        Ok(n)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, records: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.0.socket() {
            Some(stream) => stream.try_write_vectored(records),
            None => self.0.try_write(records.first().map_or(&[], |record| record)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl TlsSession {
    /// The session `tls`, whose handshake went over `transport`. `kept` is dropped with it. `framing` counts the
    /// handshake, too.
    pub(crate) fn new(
        transport: TlsTransport,
        tls: impl Into<Connection>,
        framing: Option<Arc<Framing>>,
        kept: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        let mut tls = tls.into();
        tls.set_buffer_limit(Some(UNSENT));
        let (carrier, early, mut handshake) = transport.into_parts();
        handshake.on_read(&early);
        let mut early = early.as_slice();
        while !early.is_empty() && tls.read_tls(&mut early).is_ok_and(|n| n > 0) {
            // what is wrong with it is found again by the first read
            let _ = tls.process_new_packets();
        }
        // what came with the end of the handshake
        let seen = tls.process_new_packets();
        let (plain, ended) = seen
            .map_or((0, false), |seen| (seen.plaintext_bytes_to_read(), seen.peer_has_closed()));
        let Handshake { records, read, written } = handshake;
        let state = State {
            tls,
            records,
            bare: 0,
            sent: [written, 0],
            written: 0,
            plain,
            ended,
            finished: false,
            aborted: false,
            shut: false,
            flushing: false,
        };
        let session = Self { carrier, state: Mutex::new(state), framing, _kept: kept };
        session.count(Direction::Up, read.saturating_sub(plain));
        session.count_sent(&mut locked(&session.state));
        session
    }

    fn count(&self, direction: Direction, bytes: usize) {
        if let Some(framing) = &self.framing {
            framing.add(direction, bytes);
        }
    }

    /// Counts what was sent beyond what was written; bytes that still wait count once they are sent.
    fn count_sent(&self, state: &mut State) {
        let [sent, counted] = state.sent;
        let beyond = sent.saturating_sub(state.written).saturating_sub(counted);
        state.sent[1] += beyond;
        self.count(Direction::Down, usize::try_from(beyond).unwrap_or(usize::MAX));
    }

    /// Outside of the session's lock.
    fn settle(&self) {
        if let Some(framing) = &self.framing {
            framing.settle();
        }
    }

    /// The connection that carries it.
    pub(crate) const fn carrier(&self) -> &End {
        &self.carrier
    }

    /// Copies the next decrypted bytes and leaves them there; 0 at the end of the stream.
    pub(crate) fn try_peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let state = &mut *locked(&self.state);
        self.fill(state)?;
        let chunk = state.tls.reader().into_first_chunk()?;
        let n = chunk.len().min(bytes.len());
        bytes[..n].copy_from_slice(&chunk[..n]);
        Ok(n)
    }

    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = locked(&self.state);
        // an end may have come with the last bytes, and nothing after it
        if state.plain > 0 || state.ended {
            return Poll::Ready(Ok(()));
        }
        drop(state);
        self.settle();
        self.carrier.poll_read_ready(cx)
    }

    /// Reads decrypted bytes; 0 at the end of the stream. Errors: `WouldBlock`, an end that the other side did not
    /// announce (`UnexpectedEof`), what is not TLS (`InvalidData`), or a broken connection.
    pub(crate) fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        let state = &mut *locked(&self.state);
        if state.shut {
            return Ok(0);
        }
        self.fill(state)?;
        let n = state.tls.reader().read(bytes)?;
        state.plain -= n;
        Ok(n)
    }

    /// Decrypts what has come, until there are bytes or the end.
    fn fill(&self, state: &mut State) -> io::Result<()> {
        while state.plain == 0 {
            match state.tls.reader().into_first_chunk() {
                Err(error) if is_transient(&error) => {}
                // the end, or how it was missed
                ended => return ended.map(|_| ()),
            }
            // the reader says what an end of the connection means
            let mut incoming = Incoming(&self.carrier, &mut state.records, 0);
            let read = state.tls.read_tls(&mut incoming);
            let records = incoming.2;
            read?;
            match state.tls.process_new_packets() {
                Ok(seen) => {
                    state.plain = seen.plaintext_bytes_to_read();
                    state.ended = seen.peer_has_closed();
                    self.count(Direction::Up, records.saturating_sub(state.plain));
                    state.bare = if state.plain > 0 { 0 } else { state.bare + records };
                    if state.bare > BARE {
                        return Err(io::Error::new(
                            ErrorKind::InvalidData,
                            "records without content",
                        ));
                    }
                }
                Err(bad) => {
                    // the alert that says why
                    let _ = self.send(state);
                    return Err(io::Error::new(ErrorKind::InvalidData, bad));
                }
            }
            // tickets and new keys are answered at once, or before the next bytes
            let _ = self.send(state);
        }
        Ok(())
    }

    /// Waits until everything written is with the connection.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.send(&mut locked(&self.state)) {
                Err(error) if is_transient(&error) => ready!(self.carrier.poll_write_ready(cx))?,
                sent => return Poll::Ready(sent),
            }
        }
    }

    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_flush(cx))?;
        self.settle();
        self.carrier.poll_write_ready(cx)
    }

    /// Encrypts and sends as much as the connection takes, and one record that may wait here. Errors: `WouldBlock`, or
    /// the connection broke.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let state = &mut *locked(&self.state);
        if state.finished || state.shut {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.send(state)?;
        let mut written = 0;
        while written < bytes.len() {
            let n = state.tls.writer().write(&bytes[written..])?;
            written += n;
            state.written += n as u64;
            match self.send(state) {
                Ok(()) => {}
                Err(error) if is_transient(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    fn send(&self, state: &mut State) -> io::Result<()> {
        let sent = loop {
            if !state.tls.wants_write() {
                break Ok(());
            }
            match state.tls.write_tls(&mut Wire(&self.carrier)) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(n) => state.sent[0] += n as u64,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.count_sent(state);
        sent
    }

    /// Ends this direction; what the connection does not take at once is sent behind the scenes.
    pub(crate) fn finish(self: &Arc<Self>) {
        let waits = self.end();
        // one such task is enough
        if waits
            && !std::mem::replace(&mut locked(&self.state).flushing, true)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let session = Arc::clone(self);
            runtime.spawn(async move {
                // an outage may last for as long as somebody else waits for it
                while !session.flushed().await && Arc::strong_count(&session) > 1 {}
            });
        }
    }

    /// Announces the end (RFC 8446 §6.1); whether it still waits here.
    pub(crate) fn end(&self) -> bool {
        let state = &mut *locked(&self.state);
        if state.aborted {
            return false;
        }
        if !std::mem::replace(&mut state.finished, true) {
            state.tls.send_close_notify();
        }
        match self.send(state) {
            Ok(()) => {
                self.carrier.finish();
                false
            }
            Err(error) => is_transient(&error),
        }
    }

    /// Sends what waits, for as long as the other side takes some of it, or of what the kernel has; whether that is over.
    pub(crate) async fn flushed(&self) -> bool {
        if locked(&self.state).aborted {
            return true;
        }
        let progress = || (locked(&self.state).sent[0], self.unacknowledged());
        let mut left = progress();
        loop {
            let sent = tokio::time::timeout(DRAIN_WITHOUT_PROGRESS, self.send_all()).await;
            let now = progress();
            match sent {
                Ok(Ok(())) if locked(&self.state).finished => {
                    self.carrier.finish();
                    return true;
                }
                Ok(_) => return true,
                Err(_) if now == left => return false,
                Err(_) => left = now,
            }
        }
    }

    /// Bytes with the kernel that the other side has not taken.
    fn unacknowledged(&self) -> u32 {
        let socket = self.bottom().socket();
        socket.and_then(|stream| unacknowledged(stream.as_fd()).ok()).unwrap_or(0)
    }

    /// As [`Self::poll_flush`], over a socket for any number of tasks. Of those that poll it, the last one alone is woken.
    async fn send_all(&self) -> io::Result<()> {
        loop {
            let sent = self.send(&mut locked(&self.state));
            match sent {
                Err(error) if is_transient(&error) => self.bottom().writable().await?,
                sent => return sent,
            }
        }
    }

    /// What carries it, and all TLS between.
    fn bottom(&self) -> &End {
        match &self.carrier {
            End::Tls(session) => session.bottom(),
            carrier => carrier,
        }
    }
}

impl TlsLeg for TlsSession {
    fn has_spoken(&self) -> bool {
        locked(&self.state).plain > 0 || self.carrier.has_spoken()
    }

    fn shut(&self) {
        locked(&self.state).shut = true;
        // wakes the reader
        self.carrier.shut_reading();
    }

    fn abort(&self, why: &str) {
        locked(&self.state).aborted = true;
        self.carrier.abort(why);
    }
}

impl Drop for TlsSession {
    fn drop(&mut self) {
        // the other side must not take a close for a cut
        self.end();
    }
}

#[cfg(test)]
mod tests;
