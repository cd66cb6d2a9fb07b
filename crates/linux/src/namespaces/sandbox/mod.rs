//! Namespaces that vanish with the program: no device, process or mount is left, however it ends.
//!
//! ```text
//! outer ── stays where it was, waits, passes signals on, ends as the program ends
//!  └ 1 ── first process of the new namespaces: collects orphans; killed when `outer` ends
//!     └ 2 ── where `enter` returns; when it ends, so does 1, and the kernel clears up the rest
//! ```
//! All three stay in the process group they were started in, so that a terminal's keys reach 2.

mod capabilities;
mod denied;
mod keeper;
mod user;

pub use denied::Denied;

use crate::links::netlink::Netlink;
use crate::namespaces::mounts;
use crate::namespaces::netns::Netns;
use crate::sockets::sockopt::errno;
use denied::Step;
use keeper::{Foreground, Signals};
use libc::{c_int, pid_t};
use std::fs;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// The namespaces that the program is in now.
#[derive(Debug)]
pub struct Sandbox {
    /// The network namespace it came from. Without privileges there it can be named, not entered.
    pub outer: Netns,
    /// Whether a user namespace was created, because the program had no privileges.
    pub user_namespace: bool,
    /// Whether `/proc` shows the processes of the sandbox. If not it still is the outer one.
    pub fresh_proc: bool,
}

impl Sandbox {
    /// Mounts an empty file system in memory at `at`, a folder, visible to this program and its
    /// children alone: its contents vanish with the program. Errors: no such folder, or the kernel
    /// refuses.
    pub fn memory(&self, at: &Path) -> io::Result<()> {
        mounts::memory(at, None)
    }

    /// The same, full after so many bytes, rounded up to whole pages. Errors: as [`Self::memory`].
    pub fn small_memory(&self, at: &Path, bytes: u64) -> io::Result<()> {
        mounts::memory(at, Some(bytes))
    }
}

/// Moves the rest of the program to its own mount, process and network namespace, in which it has
/// what a network needs; without privileges also to a user namespace, under its own name. The
/// network is empty except for a loopback device that is up.
///
/// Call it first of all: the calling process never returns, and ends when the program ends. Errors:
/// [`Denied`], with what to try; nothing has changed then.
pub fn enter() -> Result<Sandbox, Denied> {
    if threads() != Some(1) {
        return Err(Denied::threads());
    }
    let outer = Netns::current().map_err(|error| Denied::at(Step::Proc, &error))?;
    let plain = libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWPID;
    let with_user = plain | libc::CLONE_NEWUSER;
    let (fresh_proc, user_namespace) = if capabilities::suffice() {
        match into(plain) {
            // a container may leave us the capability and forbid its use
            Err(denied) if denied.is_refusal() => (into(with_user)?, true),
            other => (other?, false),
        }
    } else {
        (into(with_user)?, true)
    };
    Ok(Sandbox { outer, user_namespace, fresh_proc })
}

/// Returns in the new process 2 with whether `/proc` is its own, or here on failure.
fn into(flags: c_int) -> Result<bool, Denied> {
    let user = (flags & libc::CLONE_NEWUSER != 0).then(user::Ids::now);
    let pipes = Pipes::new().map_err(|error| Denied::at(Step::Pipe, &error))?;
    let foreground = Foreground::now();
    let signals = Signals::hold();
    match clone(flags) {
        Err(error) => {
            signals.release();
            Err(Denied::at(Step::Clone { user: user.is_some() }, &error))
        }
        Ok(0) => Ok(inside(user, pipes, &signals)),
        Ok(pid) => Err(outside(pid, pipes, &signals, &foreground)),
    }
}

struct Pipes {
    /// Read by the outer process: the failure, or end of file on success.
    report: (PipeReader, PipeWriter),
    /// Ends when the outer process does.
    life: (PipeReader, PipeWriter),
}

impl Pipes {
    fn new() -> io::Result<Self> {
        Ok(Self { report: io::pipe()?, life: io::pipe()? })
    }
}

/// The life of process 1, and the beginning of 2.
fn inside(user: Option<user::Ids>, pipes: Pipes, signals: &Signals) -> bool {
    let Pipes { report: (report, mut reporter), life: (life, held) } = pipes;
    drop((report, held));
    let made = prepare(user, &life).and_then(|fresh_proc| {
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            -1 => Err((Step::Fork, errno())),
            pid => Ok((pid, fresh_proc)),
        }
    });
    match made {
        Ok((0, fresh_proc)) => {
            signals.release();
            fresh_proc // and the report ends, as the writer is dropped
        }
        Ok((pid, _)) => {
            drop(reporter);
            keeper::exit(signals.keep(pid))
        }
        Err((step, errno)) => {
            let [a, b, c, d] = errno.to_ne_bytes();
            let _ = reporter.write_all(&[step.number(), a, b, c, d]); // nobody there: nobody to tell
            keeper::exit(1)
        }
    }
}

/// Outlives the program and returns its status; or why there is no sandbox.
fn outside(pid: pid_t, pipes: Pipes, signals: &Signals, foreground: &Foreground) -> Denied {
    let Pipes { report: (mut report, reporter), life: (alive, held) } = pipes;
    drop((reporter, alive));
    let mut failure = Vec::new();
    let _ = report.read_to_end(&mut failure); // interrupted reads are tried again
    if let [step, errno @ ..] = failure.as_slice()
        && let Some(errno) = errno.first_chunk()
    {
        signals.keep(pid);
        signals.release();
        let error = io::Error::from_raw_os_error(c_int::from_ne_bytes(*errno));
        return Denied::at(Step::from_number(*step), &error);
    }
    let status = signals.keep(pid);
    drop(held);
    foreground.restore();
    keeper::exit(status)
}

/// Makes the new namespaces habitable, as their first process.
fn prepare(user: Option<user::Ids>, life: &PipeReader) -> Result<bool, (Step, c_int)> {
    let at = |step: Step| move |error: io::Error| (step, error.raw_os_error().unwrap_or(libc::EIO));
    if let Some(ids) = user {
        ids.map().map_err(at(Step::Map))?;
    }
    capabilities::keep_over_exec().map_err(at(Step::Capabilities))?;
    // after the capabilities, whose change would forget it SAFETY: plain integers.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err((Step::Fork, errno()));
    }
    // the outer process may have ended before, and its number cannot be asked for from here
    if ended(life) {
        keeper::exit(1);
    }
    mounts::private().map_err(at(Step::Mounts))?;
    let fresh_proc = mounts::fresh_proc().is_ok(); // a container may hide parts of its /proc
    loopback().map_err(at(Step::Loopback))?;
    Ok(fresh_proc)
}

fn loopback() -> io::Result<()> {
    let here = Netlink::here()?;
    here.up("lo").map_err(|failure| io::Error::from_raw_os_error(failure.errno()))
}

fn ended(life: &PipeReader) -> bool {
    let mut poll = libc::pollfd { fd: life.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one entry, valid for the call, which does not wait.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}

/// As `fork`, into new namespaces. The caller has one thread, so the child may do as it likes.
fn clone(flags: c_int) -> io::Result<pid_t> {
    let flags = flags | libc::SIGCHLD;
    // SAFETY: without a stack of its own and without CLONE_VM the child goes on as after `fork`, on a
    // copy of everything. The C library does not hear of it, which matters to the thread number it
    // remembers for its own locks: process 1 uses none of those, and 2 is made by `fork`.
    let pid = unsafe {
        libc::syscall(libc::SYS_clone, flags as libc::c_ulong, 0_usize, 0_usize, 0_usize, 0_usize)
    };
    if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid as pid_t) }
}

fn threads() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Threads:"))?.trim().parse().ok()
}
