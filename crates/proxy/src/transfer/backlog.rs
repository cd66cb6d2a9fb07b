//! Messages that wait for a slow reader of a stream, each whole or not at all.
//!
//! What the stream does not take at once waits here, within a bound that counts in the memory of bytes in transit.
//! Messages beyond it are the caller's to drop. A message whose first bytes left is never dropped.

use crate::transfer::budget::{ReservedMemory, TransferShare};
use crate::transfer::end::End;
use crate::transfer::scratch::with_scratch;
use crate::transfer::transient::is_transient;
use std::collections::VecDeque;
use std::io;

/// The most that waits for one reader, in bytes: two of the largest datagrams, or some 90 of a usual path's size.
pub(crate) const MOST: usize = 136 * 1024;

/// What a waiting message takes beside its bytes: its place in the queue, and the allocator's part.
const BESIDE: usize = 128;

/// A message of a usual path's size is tried without memory where none waits: a stream that takes it holds none.
const TRIED: usize = 2 * 1024;

#[derive(Debug)]
pub(crate) struct Backlog {
    budget: TransferShare,
    messages: VecDeque<Waiting>,
    /// Bytes of all messages that wait, with what they take beside.
    bytes: usize,
    /// The stream may hold some of what was written.
    unflushed: bool,
}

/// Room for one message.
#[derive(Debug)]
pub(crate) struct Room {
    size: usize,
    /// `None` for one message at most, of [`TRIED`] bytes.
    _memory: Option<ReservedMemory>,
}

#[derive(Debug)]
struct Waiting {
    /// What was not written yet.
    bytes: Vec<u8>,
    written: usize,
    room: Room,
}

impl Backlog {
    pub(crate) const fn new(budget: TransferShare) -> Self {
        Self { budget, messages: VecDeque::new(), bytes: 0, unflushed: false }
    }

    /// What its room is taken from.
    pub(crate) const fn budget(&self) -> &TransferShare {
        &self.budget
    }

    /// Room for a message of so many bytes, if there is any.
    pub(crate) fn room(&self, length: usize) -> Option<Room> {
        let size = length + BESIDE;
        if self.bytes + size > MOST {
            return None;
        }
        let memory = self.budget.reserve(size);
        let may_try = self.messages.is_empty() && size <= TRIED;
        (memory.is_some() || may_try).then_some(Room { size, _memory: memory })
    }

    /// Writes a message, of a head and the rest, which has `room`. What the stream does not take waits.
    pub(crate) fn send(
        &mut self,
        to: &End,
        room: Room,
        (head, rest): (&[u8], &[u8]),
    ) -> io::Result<()> {
        let mut written = 0;
        if self.messages.is_empty() {
            let length = head.len() + rest.len();
            written = with_scratch(|scratch| {
                let Some(message) = scratch.get_mut(..length) else { return Ok(0) };
                let (first, second) = message.split_at_mut(head.len());
                first.copy_from_slice(head);
                second.copy_from_slice(rest);
                write(to, message)
            })?;
            self.unflushed = true;
            if written == length {
                return Ok(());
            }
        }
        let mut bytes = Vec::with_capacity(head.len() + rest.len() - written);
        bytes.extend(head.iter().chain(rest).skip(written));
        self.bytes += room.size;
        self.messages.push_back(Waiting { bytes, written: 0, room });
        Ok(())
    }

    /// Whether something waits to be written or flushed.
    pub(crate) fn is_waiting(&self) -> bool {
        self.unflushed || !self.messages.is_empty()
    }

    /// Writes and flushes all that waits, as fast as the reader takes it.
    pub(crate) async fn drain(&mut self, to: &End) -> io::Result<()> {
        while let Some(first) = self.messages.front_mut() {
            let n = write(to, first.bytes.get(first.written..).unwrap_or_default())?;
            self.unflushed = true;
            first.written += n;
            if first.written >= first.bytes.len() {
                self.bytes -= first.room.size;
                self.messages.pop_front();
            } else {
                to.writable().await?;
            }
        }
        to.flush().await?;
        self.unflushed = false;
        self.messages.shrink_to(0);
        Ok(())
    }
}

/// Writes what the stream takes now, which may be nothing.
fn write(to: &End, bytes: &[u8]) -> io::Result<usize> {
    match to.try_write(bytes) {
        Err(error) if is_transient(&error) => Ok(0),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Budgets, CopyMode};
    use crate::transfer::budget::TransferBudget;
    use crate::transfer::pipe::Pipe;
    use ekiden_model::units::Bytes;
    use std::sync::Arc;
    use std::time::Duration;

    fn backlog(memory: Bytes) -> (Backlog, Arc<TransferBudget>) {
        let budget = TransferBudget::new(&Budgets { memory, ..Budgets::default() }, CopyMode::Auto);
        (Backlog::new(budget.unshared()), budget)
    }

    /// Messages until one has no room; how many there were.
    fn fill(backlog: &mut Backlog, to: &End, rest: &[u8]) -> usize {
        let mut sent = 0;
        while let Some(room) = backlog.room(1 + rest.len()) {
            backlog.send(to, room, (&[sent as u8], rest)).unwrap();
            sent += 1;
        }
        sent
    }

    fn used(budget: &TransferBudget) -> u64 {
        budget.status()[1].used
    }

    #[tokio::test]
    async fn a_reader_that_stops_costs_the_bound_and_reads_whole_messages() {
        let (near, far) = Pipe::pair();
        let (near, (mut backlog, budget)) = (End::Pipe(Arc::new(near)), backlog(Bytes::mib(1)));
        let rest = [7; 999];
        let sent = fill(&mut backlog, &near, &rest);
        assert!(used(&budget) <= MOST as u64 && used(&budget) > (MOST - 2_000) as u64);
        // those that the pipe took, and those that wait
        assert!(sent > MOST / 1_128, "{sent}");
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            while all.len() < sent * 1_000 {
                let mut bytes = [0; 700];
                match far.try_read(&mut bytes) {
                    Ok(n) => all.extend_from_slice(&bytes[..n]),
                    Err(error) if is_transient(&error) => {
                        tokio::time::sleep(Duration::from_millis(1)).await
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            all
        });
        backlog.drain(&near).await.unwrap();
        assert!(!backlog.is_waiting() && backlog.bytes == 0);
        assert_eq!(used(&budget), 0);
        for (nth, message) in reader.await.unwrap().chunks(1_000).enumerate() {
            assert!(message[0] == nth as u8 && message[1..] == rest, "message {nth}");
        }
    }

    #[test]
    fn there_is_no_room_without_memory() {
        let (near, _far) = Pipe::pair();
        let (near, (mut backlog, budget)) = (End::Pipe(Arc::new(near)), backlog(Bytes::kib(10)));
        let sent = fill(&mut backlog, &near, &[7; 999]);
        // a pipe of 32 KiB, and then what the budget holds
        assert!((33..50).contains(&sent), "{sent}");
        assert!(used(&budget) <= 10 * 1024);
        drop(backlog);
        assert_eq!(used(&budget), 0);
    }

    #[test]
    fn a_stream_that_takes_all_needs_no_memory() {
        let (near, far) = Pipe::pair();
        let (near, (mut backlog, budget)) = (End::Pipe(Arc::new(near)), backlog(Bytes::kib(1)));
        let rest = [7; 1_200];
        for _ in 0..100 {
            let room = backlog.room(rest.len()).unwrap();
            backlog.send(&near, room, (&[], &rest)).unwrap();
            assert_eq!(far.try_read(&mut [0; 2_000]).unwrap(), rest.len());
        }
        assert!(backlog.room(TRIED).is_none());
        // one is held at most
        assert!(fill(&mut backlog, &near, &rest) < 32);
        assert_eq!((backlog.messages.len(), used(&budget)), (1, 0));
    }

    #[test]
    fn the_largest_datagram_has_room_while_another_waits() {
        let (near, _far) = Pipe::pair();
        let (near, (mut backlog, _budget)) = (End::Pipe(Arc::new(near)), backlog(Bytes::mib(1)));
        let largest = vec![7; 65_527];
        for _ in 0..2 {
            let room = backlog.room(6 + largest.len()).unwrap();
            backlog.send(&near, room, (&[0; 6], &largest)).unwrap();
        }
        assert!(backlog.room(6 + largest.len()).is_none());
    }
}
