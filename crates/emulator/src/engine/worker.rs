//! A thread that drives directions: it sleeps until just before something is due and spins the rest, within a
//! budget. With a step it sleeps for that instead, and hands over together what has become due.

use crate::engine::direction::{Direction, Tally};
use ekiden_linux::host::clock::{self, Urgency};
use ekiden_model::units::{Span, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sleeping ends so long before something is due, because a sleep ends up to this much late (half in the
/// median, measured).
const MARGIN: Span = Span::from_micros(80);
/// Spinning may take so much of a thread's time: 1/8. The other processor time is the programs'.
const SPIN_SHARE: u64 = 8;
/// Spinning that may be saved up: after an hour's silence there is no more than after a second.
const SAVED: Span = Span::from_millis(100);

#[derive(Debug)]
pub(crate) struct Stop {
    asked: AtomicBool,
    bell: OwnedFd,
}

impl Stop {
    pub(crate) fn new() -> std::io::Result<Arc<Self>> {
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self { asked: AtomicBool::new(false), bell }))
    }

    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        // the counter cannot be full: this is the only write
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }
}

/// Drives `directions` until asked to stop, before other threads where that is permitted. With a `step` packets come
/// up to so much late.
pub(crate) fn run(
    mut directions: Vec<Direction>,
    stop: &Stop,
    step: Option<Span>,
) -> (Urgency, Vec<Tally>) {
    clock::finest_timers();
    let urgency = clock::urgent();
    let mut looked = clock::now();
    let mut saved = SAVED.as_nanos();
    while !stop.asked.load(Ordering::Acquire) {
        let offset = clock::lead();
        let mut moved = 0;
        for direction in &mut directions {
            moved += direction.turn(offset);
        }
        if moved > 0 {
            continue;
        }
        let next = directions.iter().map(Direction::next).min().unwrap_or(Time::NEVER);
        let now = clock::now();
        if let Some(step) = step {
            // until there is something to do, and a step more, in which there is more
            let gap = (next != Time::NEVER).then(|| next.since(now).as_nanos());
            sleep(&directions, stop, gap);
            sleep(&[], stop, Some(step.as_nanos()));
            continue;
        }
        saved = (saved + now.since(looked).as_nanos() / SPIN_SHARE).min(SAVED.as_nanos());
        looked = now;
        let may_spin = saved >= MARGIN.as_nanos();
        let gap = next.since(now);
        if may_spin && gap <= MARGIN {
            let end = spin(&directions, next);
            saved = saved.saturating_sub(end.since(now).as_nanos());
        } else {
            let margin = if may_spin { MARGIN.as_nanos() } else { 0 };
            let until = (next != Time::NEVER).then(|| gap.as_nanos().saturating_sub(margin));
            sleep(&directions, stop, until);
        }
    }
    (urgency, directions.into_iter().map(Direction::finish).collect())
}

fn spin(directions: &[Direction], next: Time) -> Time {
    loop {
        let now = clock::now();
        if now >= next || directions.iter().any(|direction| direction.receiver().is_ready()) {
            return now;
        }
        std::hint::spin_loop();
    }
}

/// Until a packet comes, the bell rings, or `nanos` have passed.
fn sleep(directions: &[Direction], stop: &Stop, nanos: Option<u64>) {
    let receivers = directions.iter().map(|direction| direction.receiver().as_fd());
    let mut waited: Vec<PollFd<'_>> = receivers
        .chain([stop.bell.as_fd()])
        .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    let timeout = nanos.map(|nanos| Timespec {
        tv_sec: (nanos / 1_000_000_000).cast_signed(),
        tv_nsec: (nanos % 1_000_000_000).cast_signed(),
    });
    // interrupted or not, the loop looks again
    let _ = poll(&mut waited, timeout.as_ref());
    for (polled, direction) in waited.iter().zip(directions) {
        // a device that went down or away; looked at, the error is gone, and the next sleep is one
        if polled.revents().contains(PollFlags::ERR) {
            let _ = rustix::net::sockopt::socket_error(direction.receiver().as_fd());
        }
    }
}
