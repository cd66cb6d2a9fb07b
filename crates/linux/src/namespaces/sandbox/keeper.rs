//! Waiting for a child as if one were it: its signals, its status, the terminal's foreground.

use libc::{c_int, pid_t, sigset_t};
use std::mem::MaybeUninit;
use std::ptr;

const PASSED_ON: [c_int; 4] = [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT];

pub(super) struct Signals {
    held: sigset_t,
    before: sigset_t,
}

impl Signals {
    pub(super) fn hold() -> Self {
        let mut held = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initialises `held`, then valid signals are added; `sigprocmask`
        // initialises `before`, and fails only for a wrong first argument. SIGCHLD is set to its
        // default, as a parent that ignores it would have the kernel throw our child's status away.
        let (held, before) = unsafe {
            libc::sigemptyset(held.as_mut_ptr());
            for signal in PASSED_ON.into_iter().chain([libc::SIGCHLD]) {
                libc::sigaddset(held.as_mut_ptr(), signal);
            }
            libc::signal(libc::SIGCHLD, libc::SIG_DFL);
            libc::sigprocmask(libc::SIG_BLOCK, held.as_ptr(), before.as_mut_ptr());
            (held.assume_init(), before.assume_init())
        };
        Self { held, before }
    }

    pub(super) fn release(&self) {
        // SAFETY: the set is initialised; the old one is not asked for.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut()) };
    }

    /// Waits until `child` has ended, collecting all other children; its status as a shell has it.
    pub(super) fn keep(&self, child: pid_t) -> c_int {
        loop {
            if let Some(status) = collect(child) {
                return status;
            }
            let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
            // SAFETY: both point to memory of the right type; zeroes are a valid `siginfo_t`.
            let (signal, info) = unsafe {
                let signal = libc::sigwaitinfo(&raw const self.held, info.as_mut_ptr());
                (signal, info.assume_init())
            };
            // the terminal signals the whole group, so the child has the signal already
            if PASSED_ON.contains(&signal) && info.si_code <= 0 {
                // SAFETY: plain integers. The child is ours and not collected yet, so the number is its.
                unsafe { libc::kill(child, signal) };
            }
        }
    }
}

/// Reaps ended children; returns the status when `child` is among them, or is gone.
fn collect(child: pid_t) -> Option<c_int> {
    loop {
        let mut status = 0;
        // SAFETY: the status is valid for the call.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        match pid {
            0 => return None,
            pid if pid == child && libc::WIFSIGNALED(status) => {
                return Some(128 + libc::WTERMSIG(status));
            }
            pid if pid == child => return Some(libc::WEXITSTATUS(status)),
            pid if pid > 0 => {}
            _ => return Some(1), // no child: somebody else has collected it
        }
    }
}

/// Ends this process, and runs nothing of the program it is a copy of.
pub(super) fn exit(status: c_int) -> ! {
    // SAFETY: a plain integer; nothing is run.
    unsafe { libc::_exit(status) }
}

/// Whether our group has the terminal's keyboard.
pub(super) struct Foreground(bool);

impl Foreground {
    pub(super) fn now() -> Self {
        // SAFETY: plain integers; when standard input is no terminal of ours the answer is -1.
        Self(unsafe { libc::tcgetpgrp(0) == libc::getpgrp() })
    }

    /// Gives the terminal back to our group, if it had it: a shell inside has taken it, and cannot
    /// name our group, which is of another process namespace.
    pub(super) fn restore(&self) {
        if !self.0 {
            return;
        }
        // SAFETY: plain integers; ignoring SIGTTOU, which else would stop us for this, concerns a
        // process that is about to end.
        unsafe {
            libc::signal(libc::SIGTTOU, libc::SIG_IGN);
            libc::tcsetpgrp(0, libc::getpgrp());
        }
    }
}
