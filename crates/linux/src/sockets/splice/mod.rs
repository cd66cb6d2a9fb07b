//! Moving bytes from socket to socket inside the kernel: `splice` through a pipe.
//!
//! A [`Pipe`] belongs to one direction of a connection: [`Pipe::fill`] from the readable socket,
//! then [`Pipe::drain`] into the other. Bytes leave in order, so a direction may change to copying
//! once the pipe is empty.
//!
//! A pipe costs two descriptors and up to its capacity of kernel memory; [`PipePool`] bounds them.

use crate::sockets::sockopt::errno;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many idle pipes a pool keeps open for the next connection; the rest are closed.
pub const IDLE_KEPT: usize = 32;

/// Pipes within a budget. Clones share it.
#[derive(Debug, Clone)]
pub struct PipePool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: u32,
    pipe_size: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: u32,
    peak: u32,
    idle: Vec<Ends>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // plain counters and descriptors: as good after a panic as before
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PipePool {
    /// A pool of at most `limit` pipes in use (0: never splice), each of `pipe_size` bytes, rounded
    /// up to pages and a power of two. Without CAP_SYS_RESOURCE a pipe gets at most
    /// `fs.pipe-max-size`, and less beyond `fs.pipe-user-pages-soft`.
    pub fn new(limit: u32, pipe_size: usize) -> Self {
        Self { shared: Arc::new(Shared { limit, pipe_size, state: Mutex::default() }) }
    }

    /// An empty pipe; `None` when the budget or the descriptors are spent: then the caller copies.
    pub fn take(&self) -> Option<Pipe> {
        let idle = {
            let mut state = self.shared.state();
            if state.used >= self.shared.limit {
                return None;
            }
            state.used += 1;
            state.peak = state.peak.max(state.used);
            state.idle.pop()
        };
        // opened outside the lock, since it takes several system calls
        let ends = idle.or_else(|| Ends::open(self.shared.pipe_size).ok());
        if ends.is_none() {
            self.shared.state().used -= 1;
        }
        Some(Pipe { ends: Some(ends?), length: 0, pool: Arc::clone(&self.shared) })
    }

    /// Pipes in use now.
    pub fn used(&self) -> u32 {
        self.shared.state().used
    }

    /// The most that were ever in use.
    pub fn peak(&self) -> u32 {
        self.shared.state().peak
    }

    /// The most that may be in use.
    pub fn limit(&self) -> u32 {
        self.shared.limit
    }

    /// Idle pipes kept open for reuse.
    pub fn idle(&self) -> usize {
        self.shared.state().idle.len()
    }
}

struct Ends {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
}

impl fmt::Debug for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pipe of {} bytes", self.capacity)
    }
}

impl Ends {
    fn open(size: usize) -> io::Result<Self> {
        let mut fds = [0; 2];
        // SAFETY: the kernel writes two descriptors into the array on success.
        let result = unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both descriptors were just made, and nothing else knows them.
        let (read, write) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
        let wanted = libc::c_int::try_from(size).unwrap_or(libc::c_int::MAX);
        let mut granted = pipe_size(&write, libc::F_GETPIPE_SZ, 0)?;
        if granted != size {
            // refused above fs.pipe-max-size (EPERM) or the user's budget: the default size will do
            granted = pipe_size(&write, libc::F_SETPIPE_SZ, wanted).unwrap_or(granted);
        }
        Ok(Self { read, write, capacity: granted })
    }
}

fn pipe_size(fd: &OwnedFd, command: libc::c_int, size: libc::c_int) -> io::Result<usize> {
    // SAFETY: both commands take and return plain integers.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), command, size) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A pipe of a [`PipePool`]. An empty one returns on drop; one with bytes is closed, so that no
/// other connection ever sees them.
#[derive(Debug)]
pub struct Pipe {
    ends: Option<Ends>, // taken on drop only
    length: usize,
    pool: Arc<Shared>,
}

impl Pipe {
    fn ends(&self) -> &Ends {
        match &self.ends {
            Some(ends) => ends,
            None => unreachable!("a pipe has its ends until it is dropped"),
        }
    }

    /// Moves up to `max` bytes from a socket into the pipe, without waiting. `Ok(0)`: the peer
    /// ended its direction (or `max` was 0). Only `max` bounds the bytes: see [`Pipe::capacity`].
    ///
    /// Errors: `WouldBlock` means "nothing to read" or "pipe full". When [`Pipe::is_empty`] it is
    /// the socket, so wait for it. Otherwise drain first and do not wait for the socket: many small
    /// pieces fill a pipe, since each takes a slot. All else is the socket's error.
    pub fn fill(&mut self, from: BorrowedFd<'_>, max: usize) -> io::Result<usize> {
        if max == 0 {
            return Ok(0);
        }
        let moved = splice(from, self.ends().write.as_fd(), max, false)?;
        self.length += moved;
        Ok(moved)
    }

    /// Moves the pipe's contents into a socket, as much as it accepts without waiting; `Ok(0)`
    /// without a system call when empty. With `more`, the last segment may wait for further bytes
    /// (at most 200 ms): set it only when more are known to come. Errors: `WouldBlock` when the
    /// socket accepts nothing now, else the socket's, as `BrokenPipe` (Rust programs ignore
    /// SIGPIPE).
    pub fn drain(&mut self, to: BorrowedFd<'_>, more: bool) -> io::Result<usize> {
        if self.length == 0 {
            return Ok(0);
        }
        let moved = splice(self.ends().read.as_fd(), to, self.length, more)?;
        self.length -= moved;
        Ok(moved)
    }

    /// Bytes in the pipe.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing is in the pipe.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The granted capacity, bytes: a slot for each page. A slot takes one piece of a received
    /// segment, 1 byte to 32 KiB, so a pipe may be full with fewer bytes, or hold several times
    /// more.
    pub fn capacity(&self) -> usize {
        self.ends().capacity
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        let ends = self.ends.take();
        let mut state = self.pool.state();
        state.used -= 1;
        if self.length == 0 && state.idle.len() < IDLE_KEPT.min(self.pool.limit as usize) {
            state.idle.extend(ends);
        } else {
            drop(state); // close outside the lock
            drop(ends);
        }
    }
}

/// `splice`, repeated when a signal comes between.
fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, max: usize, more: bool) -> io::Result<usize> {
    let more = if more { libc::SPLICE_F_MORE } else { 0 };
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | more;
    loop {
        // SAFETY: both descriptors are open for the call, and no offsets are passed.
        let moved = unsafe {
            libc::splice(
                from.as_raw_fd(),
                std::ptr::null_mut(),
                to.as_raw_fd(),
                std::ptr::null_mut(),
                max,
                flags,
            )
        };
        if let Ok(moved) = usize::try_from(moved) {
            return Ok(moved);
        }
        let error = errno();
        if error != libc::EINTR {
            return Err(io::Error::from_raw_os_error(error));
        }
    }
}

#[cfg(test)]
mod tests;
