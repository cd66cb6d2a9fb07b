//! The monotonic clock, as `model`'s instants; the wall clock; and how exactly a thread's timers end.

use ekiden_model::units::Time;
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
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_RR | libc::SCHED_RESET_ON_FORK;
    // SAFETY: thread 0 is the calling one; the parameters are read and outlive the call.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if result == 0 { Urgency::RealTime } else { Urgency::Ordinary }
}

#[cfg(test)]
mod tests {
    use super::now;

    #[test]
    fn never_goes_back() {
        let times: Vec<_> = (0..1000).map(|_| now()).collect();
        assert!(times.is_sorted());
    }
}
