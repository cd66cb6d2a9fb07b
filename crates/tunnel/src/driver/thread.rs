//! The thread that keeps the schedule.

use super::{Shared, carrier, locked};
use crate::core::{Event, Way};
use crate::driver::send_batch::SendBatch;
use bytes::BytesMut;
use ekiden_linux::host::clock::{self, Urgency};
use ekiden_linux::sockets::receive_batch::ReceiveBatch;
use ekiden_model::units::{Span, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashSet;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

/// Sleeps end late: so much before a slot sleeping ends, the datagram is made ready, and the rest
/// is spun (algorithms/satellite E.4); a tenth of the time between two slots at 20 Mbit/s. Up to so
/// much more where slots are rare and a deeply resting processor wakes later.
const MARGIN: [Span; 2] = [Span::from_micros(60), Span::from_micros(200)];
const READY: Span = Span::from_micros(20);
/// Spinning may take so much of the thread's time: 1/8.
const SPIN_SHARE: u64 = 8;
/// Spinning that may be saved up.
const SAVED: Span = Span::from_millis(100);
/// Datagrams closer than this are received together, from some 50 Mbit/s on: waking for each would
/// cost more than all the rest.
const TOGETHER: Span = Span::from_micros(250);
/// A thread that sleeps less than one in so much of the time is ordinary, as long as that lasts. Who floods it with
/// datagrams would else take its processor from all others. The kernel leaves them as much, by holding such a thread
/// up for 50 ms in a second (`sched_rt_runtime_us`, sched(7)).
const OTHERS: u64 = 20;
/// After so much time awake that it has not slept for.
const LONGEST: Span = Span::from_millis(100);
/// Datagrams taken in a row before others get their turn; some more where the kernel has merged them.
const IN_A_ROW: usize = 64;

pub(super) fn run(shared: &Shared, socket: &UdpSocket, dscp: [u8; 2]) {
    clock::finest_timers();
    // a slot is short and work between two slots little; where nothing is to be sent it sleeps
    let urgency = clock::urgent();
    tracing::debug!(?urgency, "pacing thread started");
    let mut precedence = Precedence::new(urgency, clock::now());
    let mut outbox = SendBatch::new(dscp);
    let mut received = ReceiveBatch::default();
    let (mut saved, mut looked) = (SAVED.as_nanos(), clock::now());
    // the slot that was waited for
    let mut planned = Time::NEVER;
    let mut crowd = RxCoalescing { looked, until: Time::ZERO };
    let mut waking = WakeupLatency { late: Span::ZERO };
    // so much before a slot
    let (mut margin, mut slot) = (MARGIN[0], Time::NEVER);
    while !shared.stop.load(Ordering::Acquire) {
        let taken = receive_datagrams(shared, socket, &mut received);
        receive_strays(shared);
        crowd.on_taken(clock::now(), taken);
        let more = taken >= IN_A_ROW;
        send_due(shared, socket, &mut outbox, planned);
        precedence.keep(clock::now(), false);
        if more {
            planned = Time::NEVER;
            continue;
        }
        // from here on every change wakes the thread
        shared.asleep.store(true, Ordering::SeqCst);
        let now = clock::now();
        let next = {
            let mut core = locked(&shared.core);
            // a task may have done something after the last look, and not have rung
            let waits = core.has_happened()
                || shared.siblings.has_any()
                || shared.stop.load(Ordering::SeqCst);
            let next = if waits { now } else { core.deadline(now) };
            shared.until.store(next.as_nanos(), Ordering::Release);
            next
        };
        saved = (saved + now.since(looked).as_nanos() / SPIN_SHARE).min(SAVED.as_nanos());
        looked = now;
        planned = if next > now { next } else { Time::NEVER };
        let gap = next.since(now);
        if next != slot {
            (slot, margin) = (next, waking.margin(gap));
        }
        let may_spin = saved >= margin.as_nanos();
        if next <= now {
            shared.asleep.store(false, Ordering::Release);
        } else if may_spin && gap <= margin {
            shared.asleep.store(false, Ordering::Release);
            // sealing takes longer than a slot may be late: it is done before
            fill(shared, &mut outbox, next);
            let end = spin(next);
            saved = saved.saturating_sub(end.since(now).as_nanos());
            outbox.flush(shared, socket, next);
            planned = Time::NEVER;
        } else {
            let before = if may_spin { margin.as_nanos() } else { 0 };
            let until = (next != Time::NEVER).then(|| gap.as_nanos().saturating_sub(before));
            sleep(shared, socket, until, crowd.until.since(now));
            let woken = clock::now();
            precedence.keep(woken, true);
            if let Some(nanos) = until {
                waking.on_woken(now + Span::from_nanos(nanos), woken);
            }
            if woken < next {
                // woken for the rest of the way, or by something else
                planned = Time::NEVER;
            }
        }
    }
    send_final(shared, socket, &mut outbox);
}

/// How late sleeps end: a mean in which those that end later count nine times.
struct WakeupLatency {
    late: Span,
}

impl WakeupLatency {
    /// Woken; before the time that was asked for, by something else.
    fn on_woken(&mut self, asked: Time, woken: Time) {
        if woken >= asked {
            let late = woken.since(asked).as_nanos();
            let so_far = self.late.as_nanos();
            // up by an eighth of the way, down by a ninth of that
            let next = match late > so_far {
                true => so_far + (late.min(MARGIN[1].as_nanos()).saturating_sub(so_far)) / 8,
                false => so_far - (so_far - late) / 72,
            };
            self.late = Span::from_nanos(next);
        }
    }

    /// Before a slot that is so far away: more than the least only as far as it may be spun.
    fn margin(&self, gap: Span) -> Span {
        let margin = (self.late + READY).clamp(MARGIN[0], MARGIN[1]);
        if gap >= margin.saturating_mul(SPIN_SHARE) { margin } else { MARGIN[0] }
    }
}

/// Whether the thread runs before others: while it leaves them a part of the time.
struct Precedence {
    permitted: bool,
    has: bool,
    looked: Time,
    /// Nanoseconds awake that sleep has not made up for.
    owed: u64,
}

impl Precedence {
    fn new(urgency: Urgency, now: Time) -> Self {
        let permitted = urgency == Urgency::RealTime;
        Self { permitted, has: permitted, looked: now, owed: 0 }
    }

    /// The time since the last call went by awake, or asleep; whether to run before others from now on, if that changes.
    fn on_time(&mut self, now: Time, asleep: bool) -> Option<bool> {
        let passed = now.since(self.looked).as_nanos();
        self.looked = now;
        self.owed = match asleep {
            false => self.owed.saturating_add(passed).min(LONGEST.as_nanos()),
            // falling asleep is work
            true => {
                let slept = passed.saturating_sub(READY.as_nanos());
                self.owed.saturating_sub(slept.saturating_mul(OTHERS - 1))
            }
        };
        let keeps = if self.has { self.owed < LONGEST.as_nanos() } else { self.owed == 0 };
        let has = self.permitted && keeps;
        (std::mem::replace(&mut self.has, has) != has).then_some(has)
    }

    /// The same, and does it.
    fn keep(&mut self, now: Time, asleep: bool) {
        match self.on_time(now, asleep) {
            Some(true) => _ = clock::urgent(),
            Some(false) => clock::ordinary(),
            None => {}
        }
    }
}

/// When datagrams are taken in where many come, as a network card that holds its interrupts back.
struct RxCoalescing {
    looked: Time,
    /// Not before.
    until: Time,
}

impl RxCoalescing {
    fn on_taken(&mut self, now: Time, taken: usize) {
        if taken > 0 {
            let apart = now.since(self.looked).as_nanos() / taken as u64;
            self.until = if apart < TOGETHER.as_nanos() { now + TOGETHER } else { Time::ZERO };
            self.looked = now;
        }
    }
}

/// Takes datagrams in until there are none or [`IN_A_ROW`]; how many. A flow's task is woken once for all of them. Other
/// events are passed on before more is done, so that a panic in between loses none.
fn receive_datagrams(shared: &Shared, socket: &UdpSocket, batch: &mut ReceiveBatch) -> usize {
    let mut events: Vec<Event> = Vec::new();
    let mut flows = HashSet::new();
    let mut taken = 0;
    while taken < IN_A_ROW {
        match batch.receive(socket, IN_A_ROW - taken) {
            Ok(more) => {
                let mut core = locked(&shared.core);
                let now = clock::now();
                let datagrams = batch.datagrams().inspect(|_| taken += 1);
                // none that pretends to come by a carrier
                let datagrams = datagrams.filter(|datagram| !carrier::is_carrier(datagram.from));
                let datagrams = datagrams.filter_map(|datagram| {
                    let way = Way { peer: datagram.from, here: datagram.here, tcp: None };
                    // its own memory: what QUIC keeps of one must not keep all that came with it
                    let own = || (way, BytesMut::from(datagram.bytes));
                    (!shared.siblings.pass_on(way, datagram.bytes)).then(own)
                });
                core.receive_all(now, datagrams);
                while let Some(event) = core.event() {
                    match event {
                        Event::Flow(flow) if !flows.insert(flow) => {}
                        Event::Flow(_) => events.push(event),
                        other => shared.tell(vec![other]),
                    }
                }
                if !more {
                    break;
                }
            }
            // an ICMP error of an earlier datagram: QUIC detects the loss by itself
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => break,
        }
    }
    shared.tell(events);
    taken
}

/// Takes in what came to other threads of this address.
fn receive_strays(shared: &Shared) {
    if shared.siblings.has_any() {
        let events = {
            let mut core = locked(&shared.core);
            core.receive_all(clock::now(), shared.siblings.take());
            std::iter::from_fn(|| core.event()).collect()
        };
        shared.tell(events);
    }
}

fn send_due(shared: &Shared, socket: &UdpSocket, outbox: &mut SendBatch, planned: Time) {
    fill(shared, outbox, clock::now());
    outbox.flush(shared, socket, planned);
}

/// Makes the datagrams that are due at a time, which may be a little ahead of the clock.
fn fill(shared: &Shared, outbox: &mut SendBatch, now: Time) {
    let events = {
        let mut core = locked(&shared.core);
        core.on_deadline(now);
        #[cfg(test)]
        assert!(!shared.panics.swap(false, Ordering::AcqRel), "a test asked for it");
        while !outbox.is_full() && outbox.take(|buffer| core.transmit(now, buffer)) {}
        std::iter::from_fn(|| core.event()).collect()
    };
    shared.tell(events);
}

fn send_final(shared: &Shared, socket: &UdpSocket, outbox: &mut SendBatch) {
    let now = clock::now();
    {
        let mut core = locked(&shared.core);
        let tunnels: Vec<_> = core.snapshots().iter().map(|snapshot| snapshot.tunnel).collect();
        tunnels.into_iter().for_each(|tunnel| core.close(now, tunnel, "the relay stops"));
    }
    send_due(shared, socket, outbox, Time::NEVER);
    // waiting tasks find their flows gone
    shared.ring_all();
}

fn spin(next: Time) -> Time {
    loop {
        let now = clock::now();
        if now >= next {
            return now;
        }
        std::hint::spin_loop();
    }
}

/// Sleeps until a datagram arrives, a task wakes it, or `nanos` have passed; for `deaf`, datagrams
/// do not wake it.
fn sleep(shared: &Shared, socket: &UdpSocket, nanos: Option<u64>, deaf: Span) {
    let mut waited = [
        PollFd::from_borrowed_fd(shared.bell.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN),
    ];
    let timeout = |nanos: u64| Timespec {
        tv_sec: (nanos / 1_000_000_000).cast_signed(),
        tv_nsec: (nanos % 1_000_000_000).cast_signed(),
    };
    // interrupted or not, the loop looks again
    let _ = match deaf.as_nanos() {
        0 => poll(&mut waited, nanos.map(timeout).as_ref()),
        deaf => {
            let most = nanos.map_or(deaf, |nanos| nanos.min(deaf));
            poll(&mut waited[..1], Some(&timeout(most)))
        }
    };
    shared.asleep.store(false, Ordering::Release);
    if !waited[0].revents().is_empty() {
        let _ = rustix::io::read(&shared.bell, &mut [0_u8; 8]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{Endpoint, Limits};
    use crate::driver::Driver;
    use crate::driver::siblings::Siblings;
    use crate::trust::Credentials;
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    /// It has looked whether it is to end, and has no tunnel, so that it would sleep for ever.
    #[test]
    fn a_thread_that_is_awake_when_it_is_stopped_ends() {
        let credentials = Credentials::generate().unwrap();
        let core = Endpoint::new(credentials, Limits::default(), false, Instant::now(), None);
        let (driver, _events) = Driver::prepare(core, Siblings::default()).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let own = socket.try_clone().unwrap();
        socket.send_to(&[0], socket.local_addr().unwrap()).unwrap();
        let [held, shared] = [(); 2].map(|()| Arc::clone(&driver.shared));
        let core = locked(&held.core);
        let thread = std::thread::spawn(move || run(&shared, &own, [0, 0]));
        // once it has taken the datagram out, it waits for the core
        while socket.peek_from(&mut [0; 1]).is_ok() {
            std::thread::yield_now();
        }
        // datagrams closer than this would keep it from a long sleep
        std::thread::sleep(20 * Duration::from(TOGETHER));
        drop(driver);
        drop(core);
        let mut looks = 0..1_000;
        while !thread.is_finished() && looks.next().is_some() {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(thread.is_finished(), "it sleeps for ever, and keeps its socket");
    }

    #[test]
    fn a_thread_that_hardly_sleeps_does_not_run_before_others() {
        let mut now = Time::ZERO;
        let mut precedence = Precedence::new(Urgency::RealTime, now);
        let mut rounds = |awake: u64, asleep: u64, times: u64| {
            let mut told = Vec::new();
            for _ in 0..times {
                for (micros, asleep) in [(awake, false), (asleep, true)] {
                    now += Span::from_micros(micros);
                    told.extend(precedence.on_time(now, asleep));
                }
            }
            told
        };
        // a fifth of the time it sleeps, then a hundredth, and then less than a poll takes
        assert!(rounds(400, 100, 10_000).is_empty());
        assert_eq!(rounds(9_900, 100, 100), [false]);
        assert!(rounds(50, 15, 10_000).is_empty());
        assert_eq!(rounds(400, 100, 10_000), [true]);
        assert_eq!(rounds(50, 15, 10_000), [false]);
        // one that may not run before others never does
        let mut other = Precedence::new(Urgency::Ordinary, Time::ZERO);
        assert_eq!(other.on_time(Time::ZERO + Span::from_secs(9), false), None);
        assert_eq!(other.on_time(Time::ZERO + Span::from_secs(99), true), None);
    }

    #[test]
    fn late_wakeups_advance_the_timer() {
        let mut waking = WakeupLatency { late: Span::ZERO };
        let mut after = |late: &[u64], times| {
            for late in std::iter::repeat_n(late, times).flatten() {
                let asked = Time::from_nanos(1_000_000);
                waking.on_woken(asked, asked + Span::from_micros(*late));
            }
            // nobody may spin for half a slot
            assert_eq!(waking.margin(Span::from_micros(400)), MARGIN[0]);
            waking.margin(Span::from_millis(3)).as_nanos() / 1_000
        };
        assert_eq!(after(&[40], 100), 60);
        assert!((105..=125).contains(&after(&[80, 80, 110, 80, 80, 80, 80, 80, 80, 80], 100)));
        // a machine that stalls does not make the thread spin for long
        assert!(after(&[5_000], 100) <= 200);
        assert_eq!(after(&[30], 1_000), 60);
        // a wake-up for another reason says nothing about the timer
        waking.on_woken(Time::from_nanos(1_000_000), Time::ZERO);
        assert_eq!(waking.margin(Span::from_millis(3)), MARGIN[0]);
    }
}
