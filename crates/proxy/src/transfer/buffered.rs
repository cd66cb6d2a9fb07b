//! A stream with the bytes that were read but not used yet.

use crate::policy::quota::AccountConnection;
use crate::transfer::end::End;
use crate::transfer::scratch::with_scratch;
use crate::transfer::transient::is_transient;
use ekiden_model::resources::quota::Direction;
use std::io;
use std::time::Duration;
use tokio::time::timeout;

/// A stream read message by message. Between messages it holds no memory.
#[derive(Debug)]
pub(crate) struct BufferedStream {
    pub(crate) stream: End,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were used. They go with the next read: to move the rest up for each of many small
    /// messages would cost the square of their number.
    used: usize,
    /// The other side may have ended its direction.
    pub(crate) ended: bool,
    /// Bytes read since other tasks had their turn.
    turn: usize,
}

/// Bytes after which other tasks have their turn. What is read here is parsed, at 75 MB/s where it is all framing; a
/// sender that is as fast, towards a receiver that is, would keep a thread to itself.
const TURN: usize = 64 * 1024;

/// Bytes of the first read of a message: most heads fit, and a client that sends more has its memory
/// counted first.
pub(crate) const FIRST_READ: usize = 4 * 1024;

impl BufferedStream {
    pub(crate) const fn new(stream: End, buffer: Vec<u8>) -> Self {
        Self { stream, buffer, used: 0, ended: false, turn: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.used..]
    }

    /// The memory that the bytes take.
    pub(crate) const fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Waits for more bytes and appends at most `most`; 0 at the end of the stream.
    pub(crate) async fn fill(&mut self, most: usize) -> io::Result<usize> {
        if self.turn >= TURN {
            self.turn = 0;
            tokio::task::yield_now().await;
        }
        loop {
            self.stream.readable().await?;
            let read = with_scratch(|scratch| {
                let most = most.clamp(1, scratch.len());
                let n = self.stream.try_read(&mut scratch[..most])?;
                self.drop_used();
                self.buffer.extend_from_slice(&scratch[..n]);
                Ok::<_, io::Error>(n)
            });
            match read {
                Err(error) if is_transient(&error) => {}
                Ok(0) => {
                    self.ended = true;
                    return Ok(0);
                }
                other => {
                    self.turn += other.as_ref().unwrap_or(&0);
                    return other;
                }
            }
        }
    }

    pub(crate) fn consume(&mut self, n: usize) {
        self.used = self.used.saturating_add(n);
        if self.used >= self.buffer.len() {
            self.take();
        }
    }

    pub(crate) fn take(&mut self) -> Vec<u8> {
        let messages_before = self.used > 0;
        self.drop_used();
        let mut rest = std::mem::take(&mut self.buffer);
        // a few bytes of a body must not keep the memory of a large head, which is not counted any more
        if messages_before {
            rest.shrink_to_fit();
        }
        rest
    }

    /// Frees all bytes; how many there were.
    pub(crate) fn discard(&mut self) -> usize {
        let bytes = self.bytes().len();
        (self.buffer, self.used) = (Vec::new(), 0);
        bytes
    }

    /// Takes the first `n` bytes, or all when there are fewer.
    pub(crate) fn take_first(&mut self, n: u64) -> Vec<u8> {
        if n >= self.bytes().len() as u64 {
            return self.take();
        }
        let n = n as usize;
        let first = self.bytes()[..n].to_vec();
        self.consume(n);
        first
    }

    fn drop_used(&mut self) {
        let used = std::mem::take(&mut self.used).min(self.buffer.len());
        self.buffer.drain(..used);
    }
}

pub(crate) async fn write_all(stream: &End, bytes: &[u8]) -> io::Result<()> {
    write_and_tell(stream, bytes, |_| {}).await
}

/// The same; `tell` hears of each part that the stream has taken.
pub(crate) async fn write_and_tell(
    stream: &End,
    mut bytes: &[u8],
    tell: impl Fn(usize),
) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                tell(n);
                bytes = &bytes[n..];
            }
            Err(error) if is_transient(&error) => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    stream.flush().await
}

/// After the last answer, reads and discards what the client still sends, so that a reset does not destroy the answer
/// (RFC 9112 §9.6). A client that is uploading may see it only at the end. An account pays for what is read.
pub(crate) async fn close_gently(stream: &End, mut payer: Option<&AccountConnection>) {
    const SILENCE: Duration = Duration::from_secs(2);
    const LONGEST: Duration = Duration::from_secs(30);
    stream.finish();
    let drain = async {
        while let Ok(Ok(())) = timeout(SILENCE, stream.readable()).await {
            match with_scratch(|scratch| stream.try_read(scratch)) {
                Ok(0) => return,
                Err(error) if !is_transient(&error) => return,
                Ok(n) => {
                    // one that has nothing left may still read the answer
                    if let Some(account) = payer
                        && account.pass(Direction::Up, n).await.is_err()
                    {
                        payer = None;
                    }
                }
                Err(_) => {}
            }
        }
    };
    let _ = timeout(LONGEST, drain).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::io::Write as _;
    use std::sync::Arc;

    const LENGTH: usize = 2 * TURN;

    #[tokio::test(flavor = "current_thread")]
    async fn a_sender_without_end_leaves_others_their_turn() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        receiver.set_nonblocking(true).unwrap();
        // all of it waits in the kernel before the first read
        sender.write_all(&vec![1; LENGTH]).unwrap();
        let receiver = tokio::net::TcpStream::from_std(receiver).unwrap();
        let mut stream = BufferedStream::new(End::Tcp(Arc::new(receiver)), Vec::new());
        stream.stream.readable().await.unwrap();
        let (turns, over) = (Cell::new(0), Cell::new(false));
        let reading = async {
            let mut read = 0;
            while read < LENGTH {
                read += stream.fill(16 * 1024).await.unwrap();
                stream.take();
            }
            over.set(true);
        };
        let others = async {
            while !over.get() {
                turns.set(turns.get() + 1);
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(reading, others);
        assert!(turns.get() > 0, "others had {} turns", turns.get());
    }
}
