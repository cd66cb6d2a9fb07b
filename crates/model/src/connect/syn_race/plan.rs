//! One opening: which SYNs are sent when, and which are no longer waited for.

use crate::units::{Span, Time};

/// Most SYNs that wait for an answer at once (algorithms/asymmetric D.6, 3).
pub const MOST_AT_ONCE: usize = 2;

/// The kernel's wait before it repeats a SYN (RFC 6298 §2.1; `TCP_TIMEOUT_INIT`).
const KERNEL: Span = Span::from_secs(1);

/// No copy is sent within this time of the kernel's own repetition of the first SYN, which comes
/// each second (since Linux 6.5 the first four times; before, after 1 and 3 s).
const APART: Span = Span::from_millis(200);

/// A SYN beside the first is closed at this age, a tenth before the kernel would repeat it.
pub const SPARE_AGE: Span = Span::from_millis(900);

/// When the second copy follows: `max(20 ms, rto0 / 8)` (algorithms/asymmetric D.6, 3); `rto0` is
/// the initial time-out, 1 s where unknown.
pub fn second_after(rto: Option<Span>) -> Span {
    let rto = rto.unwrap_or(KERNEL);
    Span::from_nanos(rto.as_nanos() / 8).max(Span::from_millis(20))
}

/// The limits of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynPlan {
    /// It is given up then; [`Span::MAX`] for never.
    pub within: Span,
    /// How long the first SYN is waited for before a copy repeats it: at `rto`, `3 · rto`, `7 ·
    /// rto`, … while each doubled wait is shorter than the kernel's second and the copy not within
    /// 200 ms of the kernel's. `None` leaves all repeating to the kernel.
    pub repeat_after: Option<Span>,
    /// When a second copy follows unless the first is answered or [`SynRace::next`] is not
    /// permitted to.
    pub second_after: Option<Span>,
}

/// Why a copy is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SynKind {
    /// The first.
    First,
    /// The one before got no answer in time.
    Repeat,
    /// In case the first is lost.
    Second,
}

/// A SYN from its own port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynAttempt {
    /// Counted from 0 within the opening.
    pub number: u8,
    /// Why.
    pub kind: SynKind,
}

/// The next action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SynStep {
    /// Connect once more.
    Start(SynAttempt),
    /// Close the copy of this number.
    Close(u8),
    /// Close everything: it took too long.
    GiveUp,
}

/// One connection attempt.
///
/// The first SYN waits to the end, and the kernel repeats it, as if there were no plan. One other
/// may wait beside it until replaced or [`SPARE_AGE`] old. So no attempt is later than the
/// kernel's own: a late answer to the first SYN still counts.
///
/// ```text
/// next(now, permitted)   the next action; call until None. `permitted`: asked before extra SYNs
/// deadline()             call next() again then; no on_deadline, because next() asks permission
/// on_failed(number)      a SYN failed, and the others are still waited for
/// ```
/// The driver stops at the first answer and closes the others.
#[derive(Debug, Clone)]
pub struct SynRace {
    plan: SynPlan,
    began: Time,
    first_waits: bool,
    /// The SYN beside the first, and since when it waits.
    spare: Option<(u8, Time)>,
    started: u8,
    repeat: Option<(Time, Span)>,
    second: Option<Time>,
    given_up: bool,
}

impl SynRace {
    /// Begins now; the first [`SynRace::next`] starts the first copy.
    pub fn new(plan: SynPlan, now: Time) -> Self {
        let repeat = plan.repeat_after.filter(|wait| *wait < KERNEL && *wait > Span::ZERO);
        Self {
            plan,
            began: now,
            first_waits: false,
            spare: None,
            started: 0,
            repeat: repeat.map(|wait| (now + wait, wait.saturating_mul(2))),
            second: plan.second_after.map(|wait| now + wait),
            given_up: false,
        }
    }

    /// The next action. Call again until `None`.
    pub fn next(
        &mut self,
        now: Time,
        mut permitted: impl FnMut(SynKind) -> bool,
    ) -> Option<SynStep> {
        if self.given_up {
            return None;
        }
        if now >= self.end() {
            self.given_up = true;
            self.first_waits = false;
            self.spare = None;
            return Some(SynStep::GiveUp);
        }
        if self.started == 0 {
            self.started = 1;
            self.first_waits = true;
            return Some(SynStep::Start(SynAttempt { number: 0, kind: SynKind::First }));
        }
        if let Some(number) = self.spare_until().filter(|(until, _)| now >= *until).map(|(_, n)| n)
        {
            self.on_failed(number);
            return Some(SynStep::Close(number));
        }
        if let Some((due, wait)) = self.repeat.filter(|(due, _)| now >= *due) {
            if let Some((number, _)) = self.spare.take() {
                return Some(SynStep::Close(number));
            }
            // a driver that wakes late does not catch up on missed SYNs
            self.repeat = (wait < KERNEL).then_some((now.max(due) + wait, wait.saturating_mul(2)));
            if !self.near_kernels(now) && permitted(SynKind::Repeat) {
                return Some(self.start(now, SynKind::Repeat));
            }
        }
        if self.second.is_some_and(|due| now >= due) {
            self.second = None;
            // after a repetition it comes too late to be of use
            if self.started == 1 && self.live() == 1 && permitted(SynKind::Second) {
                return Some(self.start(now, SynKind::Second));
            }
        }
        None
    }

    /// When [`SynRace::next`] is to be asked again; [`Time::NEVER`] once given up.
    pub fn deadline(&self) -> Time {
        if self.given_up {
            return Time::NEVER;
        }
        if self.started == 0 {
            return self.began;
        }
        let times = [
            Some(self.end()),
            self.repeat.map(|(due, _)| due),
            self.second,
            self.spare_until().map(|(until, _)| until),
        ];
        times.into_iter().flatten().min().unwrap_or(Time::NEVER)
    }

    /// A copy failed. Without the first no others follow: they would close the last one that waits.
    pub fn on_failed(&mut self, number: u8) {
        if number == 0 {
            self.first_waits = false;
            (self.repeat, self.second) = (None, None);
        }
        self.spare = self.spare.filter(|(spare, _)| *spare != number);
    }

    /// Copies that wait for an answer.
    pub fn live(&self) -> usize {
        usize::from(self.first_waits) + usize::from(self.spare.is_some())
    }

    /// Whether the kernel has just repeated the first SYN, or is about to.
    fn near_kernels(&self, now: Time) -> bool {
        let since = now.since(self.began);
        let into = Span::from_nanos(since.as_nanos() % KERNEL.as_nanos());
        into + APART > KERNEL || since >= KERNEL && into < APART
    }

    fn start(&mut self, now: Time, kind: SynKind) -> SynStep {
        let number = self.started;
        self.started = self.started.saturating_add(1);
        self.spare = Some((number, now));
        SynStep::Start(SynAttempt { number, kind })
    }

    fn spare_until(&self) -> Option<(Time, u8)> {
        let (number, since) = self.spare.filter(|_| self.first_waits)?;
        Some((since + SPARE_AGE, number))
    }

    fn end(&self) -> Time {
        self.began + self.plan.within
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use SynKind::{First, Repeat, Second};
    use SynStep::{Close, GiveUp, Start};

    /// What an opening that nobody answers does, in milliseconds.
    fn steps(plan: SynPlan, permitted: bool) -> Vec<(u64, SynStep)> {
        let start = Time::ZERO + ms(10_000);
        let mut opening = SynRace::new(plan, start);
        let (mut now, mut list) = (start, Vec::new());
        while now != Time::NEVER {
            while let Some(step) = opening.next(now, |_| permitted) {
                list.push((now.since(start).as_millis(), step));
            }
            now = opening.deadline();
        }
        list
    }

    fn start(number: u8, kind: SynKind) -> SynStep {
        Start(SynAttempt { number, kind })
    }

    const KERNELS: SynPlan =
        SynPlan { within: Span::from_secs(5), repeat_after: None, second_after: None };

    #[test]
    fn sends_one_copy_without_a_plan() {
        assert_eq!(steps(KERNELS, true), [(0, start(0, First)), (5000, GiveUp)]);
        let slow = SynPlan { repeat_after: Some(Span::from_secs(1)), ..KERNELS };
        assert_eq!(steps(slow, true), steps(KERNELS, true), "a second is the kernel's own");
        let mut opening = SynRace::new(KERNELS, Time::ZERO);
        assert!(opening.next(Time::ZERO, |_| true).is_some());
        assert_eq!(opening.deadline(), Time::ZERO + KERNELS.within, "no timer but its end");
    }

    #[test]
    fn waits_double_up_to_the_kernels() {
        let plan = SynPlan { repeat_after: Some(ms(200)), ..KERNELS };
        let expected = [
            (0, start(0, First)),
            (200, start(1, Repeat)),
            (600, Close(1)),
            (600, start(2, Repeat)),
            (1400, Close(2)),
            (1400, start(3, Repeat)),
            (2300, Close(3)),
            (5000, GiveUp),
        ];
        assert_eq!(steps(plan, true), expected);
        // not permitted, the first goes on alone
        assert_eq!(steps(plan, false), steps(KERNELS, true));
    }

    #[test]
    fn attempts_keep_clear_of_kernel_retransmissions() {
        let copies = |rto| {
            let all = steps(SynPlan { repeat_after: Some(ms(rto)), ..KERNELS }, true);
            let sent = all.into_iter().filter(|(at, step)| *at > 0 && matches!(step, Start(_)));
            sent.map(|(at, _)| at).collect::<Vec<_>>()
        };
        assert_eq!(copies(470), [470, 1410]);
        assert_eq!(copies(240), [240, 720, 1680]);
        assert_eq!(copies(300), [300], "not at 900 ms");
        assert_eq!(copies(350), [350], "not at 1050 ms");
        assert_eq!(copies(800), [800]);
        assert_eq!(copies(850), []);
    }

    #[test]
    fn sends_one_second_copy() {
        let plan = SynPlan { second_after: Some(second_after(None)), ..KERNELS };
        let expected =
            [(0, start(0, First)), (125, start(1, Second)), (1025, Close(1)), (5000, GiveUp)];
        assert_eq!(steps(plan, true), expected);
        assert_eq!(steps(plan, false), steps(KERNELS, true));
    }

    #[test]
    fn all_together() {
        let rto = Some(ms(600));
        let plan = SynPlan { repeat_after: rto, second_after: Some(second_after(rto)), ..KERNELS };
        let expected = [
            (0, start(0, First)),
            (75, start(1, Second)),
            (600, Close(1)),
            (600, start(2, Repeat)),
            (1500, Close(2)),
            (5000, GiveUp),
        ];
        assert_eq!(steps(plan, true), expected);
        assert_eq!(second_after(Some(ms(200))), ms(25));
        assert_eq!(second_after(Some(ms(80))), ms(20));
    }

    #[test]
    fn failed_copy_leaves_the_other() {
        let plan = SynPlan { second_after: Some(ms(20)), ..KERNELS };
        let mut opening = SynRace::new(plan, Time::ZERO);
        assert_eq!(opening.next(at(0), |_| true), Some(start(0, First)));
        assert_eq!(opening.next(at(20), |_| true), Some(start(1, Second)));
        opening.on_failed(1);
        assert_eq!((opening.live(), opening.deadline()), (1, at(5000)));
        opening.on_failed(0);
        assert_eq!(opening.live(), 0);
        // the other way round, the second is waited for to the end
        let mut opening = SynRace::new(plan, Time::ZERO);
        assert_eq!(opening.next(at(0), |_| true), Some(start(0, First)));
        assert_eq!(opening.next(at(20), |_| true), Some(start(1, Second)));
        opening.on_failed(0);
        assert_eq!((opening.live(), opening.deadline()), (1, at(5000)));
    }
}
