//! Signals that ask a program to end, read one by one, with their senders.

use libc::{c_int, sigset_t};
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

const HELD: [c_int; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// A signal that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub signal: c_int,
    /// Whether a terminal sent it, and so to every process of the group.
    pub from_terminal: bool,
}

/// SIGINT, SIGQUIT, SIGTERM and SIGHUP, held back from every thread started after [`Held::hold`],
/// but not from programs started with [`crate::namespaces::netns::place`].
#[derive(Debug)]
pub struct Held(sigset_t);

impl Held {
    /// From now on none of them ends this thread, or those it starts.
    pub fn hold() -> Self {
        let mut held = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises the set, then valid signals are added; `sigprocmask` reads
        // it and fails only for a wrong first argument.
        Self(unsafe {
            libc::sigemptyset(held.as_mut_ptr());
            HELD.iter().for_each(|signal| {
                libc::sigaddset(held.as_mut_ptr(), *signal);
            });
            libc::pthread_sigmask(libc::SIG_BLOCK, held.as_ptr(), ptr::null_mut());
            held.assume_init()
        })
    }

    /// The next of them; `None` when none has come for `patience`.
    pub fn next(&self, patience: Duration) -> Option<Received> {
        let timeout = libc::timespec {
            tv_sec: patience.as_secs().cast_signed(),
            tv_nsec: patience.subsec_nanos().into(),
        };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: all three point to initialised memory of the right type; zeroes are a valid
        // `siginfo_t`.
        let (signal, info) = unsafe {
            let signal =
                libc::sigtimedwait(&raw const self.0, info.as_mut_ptr(), &raw const timeout);
            (signal, info.assume_init())
        };
        // codes above 0 are the kernel's, for a terminal's signals
        (signal > 0).then_some(Received { signal, from_terminal: info.si_code > 0 })
    }

    /// Whether one of them waits to be taken.
    pub fn pending(&self) -> bool {
        let mut pending = MaybeUninit::uninit();
        // SAFETY: `sigpending` initialises the set; the signals asked for are valid.
        unsafe {
            libc::sigpending(pending.as_mut_ptr());
            let pending = pending.assume_init();
            HELD.iter().any(|signal| libc::sigismember(&raw const pending, *signal) == 1)
        }
    }
}

/// Lets every signal through to the calling thread, as a new program expects. Async-signal-safe.
pub(crate) fn release_all() {
    let mut none = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the set, which is then read; neither can fail.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}
