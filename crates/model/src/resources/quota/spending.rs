//! An account's use in a period, to the byte. Loans are subtracted at once and unused bytes put
//! back, so that no two loans exceed the quota. It is spent when nothing is left and no loan can
//! return.

use super::{Allowance, ExceededAction};
use crate::units::{Bytes, Rate, Span, Time};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spending {
    plan: Allowance,
    /// Used and lent.
    taken: u64,
    out: u64,
    begun: Time,
    ends: Time,
    /// Periods so far: a loan of one does not return to the next.
    epoch: u32,
    spent: bool,
    /// There may be more than the plan's owner was told yet: what is used up waits.
    more: bool,
}

impl Spending {
    /// A period that begins now.
    pub(super) fn new(plan: Allowance, now: Time) -> Self {
        let (ends, spent) = (now + plan.period, plan.bytes == Bytes::ZERO);
        Self { plan, taken: 0, out: 0, begun: now, ends, epoch: 0, spent, more: false }
    }

    /// Another quota; bytes used in this period count towards it.
    pub(super) fn set_plan(&mut self, plan: Allowance) {
        if plan.period != self.plan.period {
            self.ends = self.begun + plan.period;
        }
        self.plan = plan;
        self.spent = self.is_over();
    }

    /// Sets the rest, the period's end, and whether more may come; current loans are subtracted.
    pub(super) fn set_left(&mut self, left: Bytes, ends: Time, more: bool) {
        let used = self.plan.bytes.as_u64().saturating_sub(left.as_u64());
        self.taken = used.saturating_add(self.out);
        self.ends = ends;
        self.more = more;
        self.spent = self.is_over();
    }

    /// Bytes that may be lent: whatever is asked for once it is spent and only slower.
    pub(super) const fn available(&self) -> u64 {
        if self.spent { u64::MAX } else { self.left().as_u64() }
    }

    /// Bytes behind which nothing comes: the period's last, where no more may be granted.
    pub(super) const fn last(&self) -> u64 {
        if self.spent || self.more { 0 } else { self.left().as_u64() }
    }

    pub(super) const fn left(&self) -> Bytes {
        Bytes::new(self.plan.bytes.as_u64().saturating_sub(self.taken))
    }

    const fn is_over(&self) -> bool {
        self.left().as_u64() == 0 && self.out == 0 && !self.more
    }

    pub(super) const fn is_spent(&self) -> bool {
        self.spent
    }

    /// The rate from now on, if it is spent and slower.
    pub(super) const fn throttle_rate(&self) -> Option<Rate> {
        match self.plan.on_exceeded {
            ExceededAction::Throttle(rate) if self.spent => Some(rate),
            _ => None,
        }
    }

    pub(super) const fn is_cut(&self) -> bool {
        self.spent && matches!(self.plan.on_exceeded, ExceededAction::Cut)
    }

    pub(super) const fn ends(&self) -> Time {
        self.ends
    }

    /// Lends, and says what is to be said when it is settled.
    pub(super) const fn lend(&mut self, bytes: u64) -> Loan {
        if self.spent {
            return Loan { epoch: self.epoch, bytes: 0 };
        }
        self.taken = self.taken.saturating_add(bytes);
        self.out = self.out.saturating_add(bytes);
        Loan { epoch: self.epoch, bytes }
    }

    /// What became of a loan. Whether it is spent by that.
    pub(super) fn settle(&mut self, loan: Loan, used: u64) -> bool {
        if loan.epoch == self.epoch {
            self.out = self.out.saturating_sub(loan.bytes);
            self.taken = self.taken.saturating_sub(loan.bytes.saturating_sub(used));
        }
        let now = !self.spent && self.is_over();
        self.spent |= now;
        now
    }

    /// So many bytes were used that nobody asked for: how many of them fit, and whether it is spent by that.
    pub(super) fn charge(&mut self, bytes: u64) -> (u64, bool) {
        let fit = bytes.min(self.available());
        let loan = self.lend(fit);
        (fit, self.settle(loan, fit))
    }

    /// The next period, if this one has ended.
    pub(super) fn renew(&mut self, now: Time) {
        if now < self.ends {
            return;
        }
        let length = self.plan.period.as_nanos().max(1);
        let whole = now.since(self.ends).as_nanos() / length;
        self.begun = self.ends + Span::from_nanos(length.saturating_mul(whole));
        self.ends = self.begun + self.plan.period;
        (self.taken, self.out) = (0, 0);
        self.epoch = self.epoch.wrapping_add(1);
        self.more = false;
        self.spent = self.is_over();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Loan {
    epoch: u32,
    bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(bytes: u64) -> Allowance {
        Allowance {
            bytes: Bytes::new(bytes),
            period: Span::from_secs(10),
            on_exceeded: ExceededAction::Cut,
        }
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn spent_to_the_byte_and_not_while_something_may_come_back() {
        let mut spending = Spending::new(plan(1_000), at(0));
        let (one, two) = (spending.lend(600), spending.lend(400));
        assert_eq!((spending.available(), spending.is_spent()), (0, false));
        assert!(!spending.settle(one, 500));
        assert_eq!(spending.available(), 100);
        let three = spending.lend(100);
        assert!(!spending.settle(two, 400));
        assert!(spending.settle(three, 100) && spending.is_cut());
    }

    #[test]
    fn loan_does_not_return_to_the_next_period() {
        let mut spending = Spending::new(plan(1_000), at(0));
        let loan = spending.lend(1_000);
        spending.renew(at(25));
        assert_eq!((spending.available(), spending.ends()), (1_000, at(30)), "the third period");
        assert!(!spending.settle(loan, 0));
        assert_eq!(spending.available(), 1_000);
    }

    #[test]
    fn quota_is_not_exceeded_while_a_request_is_pending() {
        let mut spending = Spending::new(plan(1_000), at(0));
        spending.set_left(Bytes::new(100), at(9), true);
        let loan = spending.lend(100);
        assert!(!spending.settle(loan, 100));
        assert_eq!((spending.available(), spending.is_cut()), (0, false));
        spending.set_left(Bytes::new(50), at(9), true);
        assert_eq!(spending.available(), 50);
        // and there is no more
        spending.set_left(Bytes::ZERO, at(9), false);
        assert!(spending.is_cut());
    }

    #[test]
    fn new_limits_keep_the_used_count() {
        let mut spending = Spending::new(plan(1_000), at(0));
        let loan = spending.lend(900);
        spending.settle(loan, 900);
        spending.set_plan(plan(500));
        assert!(spending.is_cut());
        spending.set_plan(plan(2_000));
        assert_eq!((spending.is_cut(), spending.available()), (false, 1_100));
        spending.set_left(Bytes::new(7), at(3), false);
        assert_eq!((spending.left(), spending.ends()), (Bytes::new(7), at(3)));
    }
}
