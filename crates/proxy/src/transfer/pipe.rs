//! A connection within this process: two ends, each with the calls of a socket.
//!
//! An HTTP/2 stream is one. Bytes in transit are kept here, [`MOST`] in each direction at most. It ends as a TCP
//! connection does: a direction by itself, by a close, which is a reset where bytes were not read, or by a reset.

use crate::observe::leg_stats::TlsLeg;
use crate::policy::quota::Framing;
use bytes::{Buf as _, BytesMut};
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::quota::Direction;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use tokio::task::coop::poll_proceed;

/// Bytes that may wait in each direction: two frames of HTTP/2 (RFC 9113 §6.5.2).
pub(crate) const MOST: usize = 32 * 1024;

/// The memory that counts for a pipe.
pub(crate) const PIPE: usize = 2 * MOST;

/// One end. One task each may read, write and wait for a break; dropping it closes it.
#[derive(Debug)]
pub(crate) struct Pipe {
    both: Arc<Mutex<[Side; 2]>>,
    nth: usize,
    /// What counts bytes that this end never read.
    framing: Option<Arc<Framing>>,
}

/// What an end has of the connection.
#[derive(Debug, Default)]
struct Side {
    /// Sent by the other end, and not read.
    came: BytesMut,
    /// Nothing more comes: the other end finished.
    ended: bool,
    /// The connection was reset; what came before can still be read.
    broken: bool,
    /// Nobody has this end any more.
    closed: bool,
    /// Ended from elsewhere, for its reader and its writer.
    shut: bool,
    /// Those who wait for bytes, for room, and for a break.
    wakers: [Option<Waker>; 3],
}

#[derive(Debug, Clone, Copy)]
enum Wanted {
    Bytes,
    Room,
    Break,
}

impl Side {
    fn wake(&mut self, wanted: Wanted) {
        self.wakers[wanted as usize].take().into_iter().for_each(Waker::wake);
    }

    fn wake_all(&mut self) {
        self.wakers.each_mut().into_iter().filter_map(Option::take).for_each(Waker::wake);
    }

    fn wait(&mut self, wanted: Wanted, cx: &Context<'_>) {
        let waker = &mut self.wakers[wanted as usize];
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    fn is_readable(&self) -> bool {
        !self.came.is_empty() || self.ended || self.broken || self.shut
    }

    fn reset(&mut self) {
        self.broken = true;
        self.wake_all();
    }
}

fn broken<T>() -> io::Result<T> {
    Err(ErrorKind::ConnectionReset.into())
}

impl Pipe {
    /// Both ends of a new one.
    pub(crate) fn pair() -> (Self, Self) {
        let both = Arc::new(Mutex::new([Side::default(), Side::default()]));
        let other = Self { both: Arc::clone(&both), nth: 1, framing: None };
        (Self { both, nth: 0, framing: None }, other)
    }

    /// What this end has not read when it is closed counts there, as from a client.
    #[must_use]
    pub(crate) fn counting(mut self, framing: &Arc<Framing>) -> Self {
        self.framing = Some(Arc::clone(framing));
        self
    }

    /// This end, and the other one.
    fn with<T>(&self, act: impl FnOnce(&mut Side, &mut Side) -> T) -> T {
        let [first, second] = &mut *locked(&self.both);
        if self.nth == 0 { act(first, second) } else { act(second, first) }
    }

    /// Reads what has come; 0 at the end. Errors: `WouldBlock`, or it was reset.
    pub(crate) fn try_read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.with(|own, other| {
            let n = Self::look(own, bytes)?;
            own.came.advance(n);
            if own.came.is_empty() {
                // an idle one keeps no memory
                own.came = BytesMut::new();
            }
            other.wake(Wanted::Room);
            Ok(n)
        })
    }

    /// The same, and leaves it there.
    pub(crate) fn try_peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        self.with(|own, _| Self::look(own, bytes))
    }

    fn look(own: &Side, bytes: &mut [u8]) -> io::Result<usize> {
        if own.shut {
            return Ok(0);
        }
        let n = own.came.len().min(bytes.len());
        bytes[..n].copy_from_slice(&own.came[..n]);
        match n {
            1.. => Ok(n),
            0 if own.broken => broken(),
            0 if own.ended || bytes.is_empty() => Ok(0),
            0 => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Writes as much as there is room for. Errors: `WouldBlock`, it was reset, or this direction is over.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|own, other| {
            if own.broken {
                return broken();
            }
            if own.shut || other.ended {
                return Err(ErrorKind::BrokenPipe.into());
            }
            if other.closed {
                own.reset();
                return broken();
            }
            let n = bytes.len().min(MOST - other.came.len());
            if n == 0 && !bytes.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
            other.came.extend_from_slice(&bytes[..n]);
            other.wake(Wanted::Bytes);
            Ok(n)
        })
    }

    /// Waits for bytes, the end, or a break.
    pub(crate) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll(cx, Wanted::Bytes, |own, _| own.is_readable())
    }

    /// Waits until writing does not block.
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll(cx, Wanted::Room, |own, other| {
            let over = own.broken || own.shut || other.ended || other.closed;
            over || other.came.len() < MOST
        })
    }

    fn poll(
        &self,
        cx: &mut Context<'_>,
        wanted: Wanted,
        ready: impl FnOnce(&Side, &Side) -> bool,
    ) -> Poll<()> {
        // other tasks get their turn between two reads, as with a socket
        let turn = std::task::ready!(poll_proceed(cx));
        self.with(|own, other| {
            if ready(own, other) {
                turn.made_progress();
                return Poll::Ready(());
            }
            own.wait(wanted, cx);
            Poll::Pending
        })
    }

    /// Waits until it is reset.
    pub(crate) async fn broken(&self) {
        poll_fn(|cx| self.poll(cx, Wanted::Break, |own, _| own.broken)).await;
    }

    /// Whether there is something to read: bytes, the end, or a break.
    pub(crate) fn is_readable(&self) -> bool {
        self.with(|own, _| own.is_readable())
    }

    /// Whether the other end is closed or the connection broken, and all that came was read.
    pub(crate) fn is_gone(&self) -> bool {
        self.with(|own, _| own.came.is_empty() && (own.ended || own.broken))
    }

    /// Nothing more is written: the other end reads the end after all bytes.
    pub(crate) fn finish(&self) {
        self.with(|_, other| {
            other.ended = true;
            other.wake(Wanted::Bytes);
        });
    }
}

impl TlsLeg for Pipe {
    fn has_spoken(&self) -> bool {
        self.with(|own, _| !own.came.is_empty())
    }

    fn shut(&self) {
        self.with(|own, _| {
            own.shut = true;
            own.wake_all();
        });
    }

    fn abort(&self, _: &str) {
        self.with(|own, other| {
            own.reset();
            other.reset();
        });
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.with(|own, other| {
            own.closed = true;
            other.ended = true;
            if !own.came.is_empty() {
                other.broken = true;
            }
            if let Some(framing) = &self.framing {
                framing.add(Direction::Up, own.came.len());
            }
            other.wake_all();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
        result.unwrap_err().kind()
    }

    #[test]
    fn ends_as_a_tcp_connection_does() {
        let mut bytes = [0; 8];
        let (a, b) = Pipe::pair();
        assert_eq!(kind(a.try_read(&mut bytes)), ErrorKind::WouldBlock);
        assert_eq!(a.try_write(b"hello").unwrap(), 5);
        a.finish();
        assert_eq!(kind(a.try_write(b"x")), ErrorKind::BrokenPipe);
        assert_eq!((b.try_peek(&mut bytes).unwrap(), b.is_gone()), (5, false));
        assert_eq!(b.try_read(&mut bytes[..2]).unwrap(), 2);
        assert_eq!(b.try_read(&mut bytes).unwrap(), 3);
        assert_eq!((b.try_read(&mut bytes).unwrap(), b.is_gone()), (0, true));
        // the other direction goes on
        assert_eq!(b.try_write(b"more").unwrap(), 4);
        drop(b);
        assert_eq!(a.try_read(&mut bytes).unwrap(), 4);
        assert_eq!(a.try_read(&mut bytes).unwrap(), 0);

        // writing to an end that is gone breaks it
        let (a, b) = Pipe::pair();
        drop(b);
        assert_eq!(a.try_read(&mut bytes).unwrap(), 0);
        assert_eq!(kind(a.try_write(b"x")), ErrorKind::ConnectionReset);
        assert_eq!(kind(a.try_read(&mut bytes)), ErrorKind::ConnectionReset);

        // bytes that nobody read make a close a reset
        let (a, b) = Pipe::pair();
        assert_eq!(a.try_write(b"unread").unwrap(), 6);
        assert_eq!(b.try_write(b"last words").unwrap(), 10);
        drop(b);
        assert_eq!(a.try_read(&mut bytes).unwrap(), 8);
        assert_eq!(a.try_read(&mut bytes).unwrap(), 2);
        assert_eq!(kind(a.try_read(&mut bytes)), ErrorKind::ConnectionReset);

        let (a, b) = Pipe::pair();
        a.shut();
        assert_eq!(a.try_read(&mut bytes).unwrap(), 0);
        assert_eq!(kind(a.try_write(b"x")), ErrorKind::BrokenPipe);
        a.abort("");
        assert_eq!(kind(b.try_write(b"x")), ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn bytes_room_and_a_break_wake_their_waiters() {
        let (a, b) = Pipe::pair();
        let reader = tokio::spawn(async move {
            let (mut all, mut bytes) = (0, vec![0; 1_000]);
            loop {
                poll_fn(|cx| b.poll_read_ready(cx)).await;
                match b.try_read(&mut bytes) {
                    Ok(0) => return all,
                    Ok(n) => all += n,
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
        });
        let mut left = 10 * MOST;
        while left > 0 {
            poll_fn(|cx| a.poll_write_ready(cx)).await;
            left -= a.try_write(&vec![7; left.min(5_000)]).unwrap_or(0);
        }
        a.finish();
        assert_eq!(reader.await.unwrap(), 10 * MOST);
        let (a, b) = Pipe::pair();
        let waits = tokio::spawn(async move { a.broken().await });
        tokio::task::yield_now().await;
        b.abort("");
        waits.await.unwrap();
    }

    proptest! {
        /// Each byte once, in its order, and never more than the bound waits.
        #[test]
        fn carries_bytes_in_order(steps in prop::collection::vec((any::<bool>(), 0_usize..50_000), 0..60)) {
            let (a, b) = Pipe::pair();
            let (mut sent, mut read) = (0_usize, 0_usize);
            for (writes, size) in steps {
                if writes {
                    let bytes: Vec<u8> = (sent..sent + size).map(|at| (at % 251) as u8).collect();
                    sent += a.try_write(&bytes).unwrap_or(0);
                } else {
                    let mut bytes = vec![0; size];
                    let n = b.try_read(&mut bytes).unwrap_or(0);
                    prop_assert!(bytes[..n].iter().zip(read..).all(|(byte, at)| *byte == (at % 251) as u8));
                    read += n;
                }
                prop_assert!(sent - read <= MOST);
            }
        }
    }
}
