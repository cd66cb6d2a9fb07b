//! One opening: which SYNs are sent when, and which are no longer waited for.

use crate::units::{Span, Time};

/// Copies that wait for an answer at once, at most (ALGORITHMS §D.6, 3).
pub const MOST_COPIES: usize = 2;

/// What the kernel waits before it repeats a SYN by itself (RFC 6298 §2.1; `TCP_TIMEOUT_INIT` in Linux).
/// A wait that long needs no copy.
const KERNEL: Span = Span::from_secs(1);

/// No copy repeats a SYN so shortly before or after the kernel repeats the first one: the shortest
/// time-out there is. The kernel does so each second (since Linux 6.5 the first four times; before, after
/// 1 and 3 s).
const APART: Span = Span::from_millis(200);

/// A copy beside the first is closed at this age: a tenth before the kernel would repeat its SYN. So the
/// first alone is ever repeated by the kernel.
pub const SPARE_AGE: Span = Span::from_millis(900);

/// When the second copy follows the first: `max(20 ms, rto0 / 8)` (ALGORITHMS §D.6, 3), where `rto0` is
/// the initial time-out, 1 s where none is known.
#[must_use]
pub fn second_after(rto: Option<Span>) -> Span {
    let rto = rto.unwrap_or(KERNEL);
    Span::from_nanos(rto.as_nanos() / 8).max(Span::from_millis(20))
}

/// What an opening may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// It is given up then; [`Span::MAX`] for never.
    pub within: Span,
    /// How long the first SYN is waited for before a copy repeats it: at `rto`, `3 · rto`, `7 · rto`, …,
    /// each wait twice the one before, as long as it is shorter than the kernel's own second; from there
    /// on the kernel alone repeats. One that would come within 200 ms of the kernel's own is left out.
    /// `None` leaves all repeating to the kernel.
    pub repeat_after: Option<Span>,
    /// When a second copy follows unless the first is answered, if [`Opening::next`] is then permitted
    /// to; `None` for never.
    pub second_after: Option<Span>,
}

/// Why a copy is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The first.
    First,
    /// The one before got no answer in time.
    Repeat,
    /// In case the first is lost.
    Second,
}

/// A SYN from a port of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// Counted from 0 within the opening.
    pub number: u8,
    /// Why.
    pub kind: Kind,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Connect once more.
    Start(Copy),
    /// Close the copy of this number.
    Close(u8),
    /// Close everything: it took too long.
    GiveUp,
}

/// One opening.
///
/// The first copy is as if there were no plan: it waits to the end, and the kernel repeats it. One other
/// may wait beside it, until the next takes its place or it is [`SPARE_AGE`] old. So an opening is never
/// later than the kernel's own, even where the round trip has grown beyond every time-out: what answers
/// the first SYN, however late, is still waited for.
///
/// ```text
/// next(now, permitted)   what to do; ask until None. `permitted` is asked before any copy but the first
/// deadline()             ask next() again then
/// on_failed(number)      a copy came to nothing, and the others are still waited for
/// ```
/// The driver stops at the first answer and closes the others.
#[derive(Debug, Clone)]
pub struct Opening {
    plan: Plan,
    began: Time,
    first_waits: bool,
    /// The copy beside the first, and since when it waits.
    spare: Option<(u8, Time)>,
    started: u8,
    /// When the next repetition is due, and the wait after it.
    repeat: Option<(Time, Span)>,
    second: Option<Time>,
    given_up: bool,
}

impl Opening {
    /// Begins now; the first [`Opening::next`] starts the first copy.
    #[must_use]
    pub fn new(plan: Plan, now: Time) -> Self {
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

    /// What to do now. Ask again until `None`.
    pub fn next(&mut self, now: Time, mut permitted: impl FnMut(Kind) -> bool) -> Option<Step> {
        if self.given_up {
            return None;
        }
        if now >= self.end() {
            self.given_up = true;
            self.first_waits = false;
            self.spare = None;
            return Some(Step::GiveUp);
        }
        if self.started == 0 {
            self.started = 1;
            self.first_waits = true;
            return Some(Step::Start(Copy { number: 0, kind: Kind::First }));
        }
        if let Some(number) = self.spare_until().filter(|(until, _)| now >= *until).map(|(_, n)| n)
        {
            self.on_failed(number);
            return Some(Step::Close(number));
        }
        if let Some((due, wait)) = self.repeat.filter(|(due, _)| now >= *due) {
            if let Some((number, _)) = self.spare.take() {
                return Some(Step::Close(number));
            }
            // a driver that wakes late does not catch up on what it missed
            self.repeat = (wait < KERNEL).then_some((now.max(due) + wait, wait.saturating_mul(2)));
            if !self.near_kernels(now) && permitted(Kind::Repeat) {
                return Some(self.start(now, Kind::Repeat));
            }
        }
        if self.second.is_some_and(|due| now >= due) {
            self.second = None;
            // after a repetition it comes too late to be of use
            if self.started == 1 && self.live() == 1 && permitted(Kind::Second) {
                return Some(self.start(now, Kind::Second));
            }
        }
        None
    }

    /// When [`Opening::next`] is to be asked again; [`Time::NEVER`] once given up.
    #[must_use]
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

    /// A copy could not be sent, or came to nothing. Without the first no others follow: they would close
    /// the last one that waits.
    pub fn on_failed(&mut self, number: u8) {
        if number == 0 {
            self.first_waits = false;
            (self.repeat, self.second) = (None, None);
        }
        self.spare = self.spare.filter(|(spare, _)| *spare != number);
    }

    /// Copies that wait for an answer.
    #[must_use]
    pub fn live(&self) -> usize {
        usize::from(self.first_waits) + usize::from(self.spare.is_some())
    }

    /// Whether the kernel has just repeated the first SYN, or is about to.
    fn near_kernels(&self, now: Time) -> bool {
        let since = now.since(self.began);
        let into = Span::from_nanos(since.as_nanos() % KERNEL.as_nanos());
        into + APART > KERNEL || since >= KERNEL && into < APART
    }

    fn start(&mut self, now: Time, kind: Kind) -> Step {
        let number = self.started;
        self.started = self.started.saturating_add(1);
        self.spare = Some((number, now));
        Step::Start(Copy { number, kind })
    }

    /// Until when the copy beside the first is waited for; alone, it is to the end.
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
    use std::vec::Vec;

    fn ms(n: u64) -> Span {
        Span::from_millis(n)
    }

    /// What an opening that nobody answers does, in milliseconds.
    fn steps(plan: Plan, permitted: bool) -> Vec<(u64, Step)> {
        let start = Time::ZERO + ms(10_000);
        let mut opening = Opening::new(plan, start);
        let (mut now, mut list) = (start, Vec::new());
        while now != Time::NEVER {
            while let Some(step) = opening.next(now, |_| permitted) {
                list.push((now.since(start).as_millis(), step));
            }
            now = opening.deadline();
        }
        list
    }

    fn start(number: u8, kind: Kind) -> Step {
        Step::Start(Copy { number, kind })
    }

    const KERNELS: Plan =
        Plan { within: Span::from_secs(5), repeat_after: None, second_after: None };

    #[test]
    fn the_kernels_way_is_one_copy() {
        assert_eq!(steps(KERNELS, true), [(0, start(0, Kind::First)), (5000, Step::GiveUp)]);
        let slow = Plan { repeat_after: Some(Span::from_secs(1)), ..KERNELS };
        assert_eq!(steps(slow, true), steps(KERNELS, true), "a second is the kernel's own");
        let mut opening = Opening::new(KERNELS, Time::ZERO);
        assert!(opening.next(Time::ZERO, |_| true).is_some());
        assert_eq!(opening.deadline(), Time::ZERO + KERNELS.within, "no timer but its end");
    }

    #[test]
    fn waits_double_up_to_the_kernels() {
        let plan = Plan { repeat_after: Some(ms(200)), ..KERNELS };
        let expected = [
            (0, start(0, Kind::First)),
            (200, start(1, Kind::Repeat)),
            (600, Step::Close(1)),
            (600, start(2, Kind::Repeat)),
            (1400, Step::Close(2)),
            (1400, start(3, Kind::Repeat)),
            (2300, Step::Close(3)),
            (5000, Step::GiveUp),
        ];
        assert_eq!(steps(plan, true), expected);
        // not permitted, the first goes on alone
        assert_eq!(steps(plan, false), steps(KERNELS, true));
    }

    #[test]
    fn what_the_kernel_repeats_by_itself_is_not_repeated_beside_it() {
        let copies = |rto| {
            let all = steps(Plan { repeat_after: Some(ms(rto)), ..KERNELS }, true);
            let sent =
                all.into_iter().filter(|(at, step)| *at > 0 && matches!(step, Step::Start(_)));
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
    fn a_second_is_sent_once_and_never_repeated() {
        let plan = Plan { second_after: Some(second_after(None)), ..KERNELS };
        let expected = [
            (0, start(0, Kind::First)),
            (125, start(1, Kind::Second)),
            (1025, Step::Close(1)),
            (5000, Step::GiveUp),
        ];
        assert_eq!(steps(plan, true), expected);
        assert_eq!(steps(plan, false), steps(KERNELS, true));
    }

    #[test]
    fn all_together() {
        let rto = Some(ms(600));
        let plan = Plan { repeat_after: rto, second_after: Some(second_after(rto)), ..KERNELS };
        let expected = [
            (0, start(0, Kind::First)),
            (75, start(1, Kind::Second)),
            (600, Step::Close(1)),
            (600, start(2, Kind::Repeat)),
            (1500, Step::Close(2)),
            (5000, Step::GiveUp),
        ];
        assert_eq!(steps(plan, true), expected);
        assert_eq!(second_after(Some(ms(200))), ms(25));
        assert_eq!(second_after(Some(ms(80))), ms(20));
    }

    #[test]
    fn a_copy_that_fails_leaves_the_other() {
        let plan = Plan { second_after: Some(ms(20)), ..KERNELS };
        let mut opening = Opening::new(plan, Time::ZERO);
        let at = |n| Time::ZERO + ms(n);
        assert_eq!(opening.next(at(0), |_| true), Some(start(0, Kind::First)));
        assert_eq!(opening.next(at(20), |_| true), Some(start(1, Kind::Second)));
        opening.on_failed(1);
        assert_eq!((opening.live(), opening.deadline()), (1, at(5000)));
        opening.on_failed(0);
        assert_eq!(opening.live(), 0);
        // the other way round, the second is waited for to the end
        let mut opening = Opening::new(plan, Time::ZERO);
        assert_eq!(opening.next(at(0), |_| true), Some(start(0, Kind::First)));
        assert_eq!(opening.next(at(20), |_| true), Some(start(1, Kind::Second)));
        opening.on_failed(0);
        assert_eq!((opening.live(), opening.deadline()), (1, at(5000)));
    }
}
