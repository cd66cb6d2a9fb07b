//! Network namespaces, kept alive by a descriptor.

use crate::host::signals;
use crate::namespaces::mounts::Mounts;
use crate::sockets::sockopt::done;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

/// A network namespace. It ends when no process, socket or `Netns` holds it any more.
#[derive(Debug)]
pub struct Netns(OwnedFd);

impl Netns {
    /// The one the calling thread is in. Fails when there is no `/proc`, or no descriptor left.
    pub fn current() -> io::Result<Self> {
        // by thread: `run` and `new` move threads singly
        Ok(Self(File::open("/proc/thread-self/ns/net")?.into()))
    }

    /// A new and empty one, its loopback device down; the caller stays. Errors: `PermissionDenied`
    /// without `CAP_SYS_ADMIN`, see [`crate::namespaces::sandbox::enter`].
    pub fn new() -> io::Result<Self> {
        on_a_thread(|| {
            // SAFETY: a plain integer; the thread made for it alone is moved, and ends.
            done(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
            Self::current()
        })?
    }

    /// Runs `f` in this namespace, on a thread of its own. Sockets made there stay there;
    /// `/proc/sys/net` is the namespace's. Errors: no thread, or it may not enter; `f` was not
    /// called then.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_a_thread(|| {
            enter(self.0.as_raw_fd())?;
            Ok(f())
        })?
    }

    /// A second handle to the same namespace. Fails when no descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Makes a command start in `netns`. It ends with the sandbox or by its parent, and blocks none of
/// the signals that this program blocks. Errors: no descriptor is left.
pub fn place(command: &mut Command, netns: &Netns) -> io::Result<()> {
    place_with(command, netns, &Mounts::none())
}

/// As [`place`], with files that this command alone sees in place of others.
pub fn place_with(command: &mut Command, netns: &Netns, mounts: &Mounts) -> io::Result<()> {
    let netns = netns.try_clone()?;
    let mounts = mounts.clone();
    // SAFETY: between fork and exec only system calls are made, on memory prepared here: no lock, no
    // allocation (`last_os_error` does not allocate).
    unsafe {
        command.pre_exec(move || {
            enter(netns.0.as_raw_fd())?;
            signals::release_all();
            mounts.apply()
        });
    }
    Ok(())
}

/// Moves the calling thread. Async-signal-safe.
fn enter(netns: i32) -> io::Result<()> {
    // SAFETY: a descriptor that the caller holds open, and a plain integer; a thread's network
    // namespace is looked at by system calls only.
    done(unsafe { libc::setns(netns, libc::CLONE_NEWNET) })
}

/// Threads are moved for good, so each is made for one errand.
fn on_a_thread<T: Send>(f: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("netns".into()).spawn_scoped(scope, f)?;
        thread.join().or_else(|panic| std::panic::resume_unwind(panic))
    })
}
