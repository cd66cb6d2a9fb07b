//! The monotonic clock, as `model`'s instants; the wall clock; and how exactly a thread's timers end.

use ekiden_model::units::{Span, Time};
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Nanoseconds since this process first asked (`CLOCK_MONOTONIC`).
pub fn now() -> Time {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    let origin = ORIGIN.get_or_init(Instant::now);
    Time::from_nanos(u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// Nanoseconds since 1970 (`CLOCK_REALTIME`).
pub fn wall() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// By how much [`wall`] is ahead of [`now`], ns. Of three looks the one that was interrupted least; what is
/// left of an interruption makes it too small, never too large.
pub fn lead() -> u64 {
    /// A look without an interruption is over before.
    const PROMPT: Span = Span::from_micros(20);
    let mut best = (Span::MAX, 0);
    for _ in 0..3 {
        let before = now();
        let wall = wall();
        let after = now();
        let took = after.since(before);
        if took < best.0 {
            best = (took, wall.saturating_sub(after.as_nanos()));
        }
        if took <= PROMPT {
            break;
        }
    }
    best.1
}

/// Makes the calling thread's sleeps end as exactly as the kernel can (PR_SET_TIMERSLACK of 1 ns).
pub fn finest_timers() {
    // SAFETY: this option takes a number and touches no memory of ours. It cannot fail.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0_u64, 0_u64, 0_u64) };
}

/// How a thread was put before the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Real-time, round robin: it runs as soon as it is ready.
    RealTime,
    /// Like all others.
    Ordinary,
}

/// Runs the calling thread before others where permitted (CAP_SYS_NICE); its programs are ordinary.
pub fn urgent() -> Urgency {
    // the lowest real-time priority: above all ordinary threads, below the kernel's own
    if schedule(libc::SCHED_RR, 1) { Urgency::RealTime } else { Urgency::Ordinary }
}

/// Runs the calling thread like all others again, after [`urgent`].
pub fn ordinary() {
    // this is always permitted
    schedule(libc::SCHED_OTHER, 0);
}

/// Sets the calling thread's policy; whether that is permitted.
fn schedule(policy: libc::c_int, priority: libc::c_int) -> bool {
    // a thread without CAP_SYS_NICE may not give the flag up (sched(7))
    let policy = policy | libc::SCHED_RESET_ON_FORK;
    // the system call, whose structure is one int: musl's function of this name does nothing
    // SAFETY: thread 0 is the calling one; the priority is read and outlives the call.
    let result = unsafe {
        libc::syscall(libc::SYS_sched_setscheduler, 0_usize, policy, &raw const priority)
    };
    result == 0
}

#[cfg(test)]
mod tests {
    use super::{Urgency, lead, now, ordinary, urgent, wall};

    #[test]
    fn never_goes_back() {
        let times: Vec<_> = (0..1000).map(|_| now()).collect();
        assert!(times.is_sorted());
    }

    /// The calling thread's policy, as it is seen from outside.
    fn policy() -> String {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // behind the name, which may have spaces: the 41st field of proc_pid_stat(5), of which the state is the third
        let (_, rest) = stat.rsplit_once(')').unwrap();
        rest.split_whitespace().nth(38).unwrap().to_owned()
    }

    #[test]
    fn an_urgent_thread_can_be_ordinary_and_urgent_again() {
        if urgent() == Urgency::Ordinary {
            eprintln!("SKIPPED: real-time priority takes CAP_SYS_NICE");
            return;
        }
        assert_eq!(policy(), "2");
        ordinary();
        assert_eq!((policy(), urgent()), ("0".to_owned(), Urgency::RealTime));
        ordinary();
    }

    #[test]
    fn a_lead_never_dates_a_packet_before_it_came() {
        for _ in 0..1000 {
            let came = now();
            let stamp = wall();
            assert!(stamp - lead() >= came.as_nanos());
        }
    }
}
