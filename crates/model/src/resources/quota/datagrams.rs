//! Datagrams pass at once or not at all.

use super::turns::cost;
use super::{Direction, Flow, LanePosition, Quota, Spending, Time};
use crate::units::Bytes;

/// What a datagram counts at least where a rate is kept, so that empty ones are not free: its heads (RFC 791, RFC 768).
const LEAST: u64 = 28;

/// What becomes of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatagramAnswer {
    /// It passes, and is used.
    Pass,
    /// It is dropped.
    Drop,
    /// It is dropped, because fewer bytes than it has were left of the quota. These are used up by it: they would hold up
    /// all others, and the quota would never end.
    UsesUp(Bytes),
}

impl Quota {
    /// Whether a datagram may pass now, used at once; none above the burst does. `None`: it is
    /// over.
    pub fn datagram(
        &mut self,
        now: Time,
        flow: Flow,
        direction: Direction,
        bytes: Bytes,
    ) -> Option<DatagramAnswer> {
        let (nth, bytes) = (direction as usize, bytes.as_u64());
        let paced = bytes.max(LEAST);
        let conn = self.flows.get_mut(flow.0)?;
        let at = conn.account;
        let member = self.accounts.get_mut(at).filter(|member| !member.is_over())?;
        let weight = member.limits.weight;
        let (lane, relay) = (&mut member.lanes[nth], &mut self.relay[nth]);
        let own = &mut conn.sides[nth];
        let there = [own.available(now), lane.bucket.available(now), relay.available(now)];
        // beside connections of its own account, and beside other accounts
        let in_turn = lane.place == LanePosition::Out || lane.stock >= paced;
        let ahead = self.served[nth] + cost(relay.turn(), weight);
        let in_share = self.turns[nth].is_empty() || lane.start <= ahead;
        if !in_turn || !in_share || there.iter().any(|there| *there < paced) {
            return Some(DatagramAnswer::Drop);
        }
        if member.spending.as_ref().is_some_and(|spending| spending.available() < bytes) {
            return Some(self.use_up(now, flow, direction));
        }
        let loan = self.lend(flow.0, nth, bytes)?;
        if let Some(member) = self.accounts.get_mut(at) {
            let lane = &mut member.lanes[nth];
            lane.stock = lane.stock.saturating_sub(paced);
            lane.bucket.charge(now, paced - bytes);
        }
        self.relay[nth].charge(now, paced - bytes);
        if let Some(conn) = self.flows.get_mut(flow.0) {
            conn.sides[nth].charge(now, paced - bytes);
        }
        self.settle(now, flow.0, nth, bytes, loan, bytes);
        Some(DatagramAnswer::Pass)
    }

    /// Less is left of the quota than a datagram has.
    fn use_up(&mut self, now: Time, flow: Flow, direction: Direction) -> DatagramAnswer {
        let Some(conn) = self.flows.get_mut(flow.0) else { return DatagramAnswer::Drop };
        let (at, nth) = (conn.account, direction as usize);
        let Some(member) = self.accounts.get_mut(at) else { return DatagramAnswer::Drop };
        let left = member.spending.as_ref().map_or(0, Spending::last);
        if left == 0 {
            return DatagramAnswer::Drop;
        }
        let (used, spent) = member.spending.as_mut().map_or((0, false), |s| s.charge(left));
        let lane = &mut member.lanes[nth];
        lane.bucket.charge(now, used);
        lane.used = lane.used.saturating_add(used);
        self.relay[nth].charge(now, used);
        conn.sides[nth].charge(now, used);
        if spent {
            self.on_class(now, at);
        }
        DatagramAnswer::UsesUp(Bytes::new(used))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Allowance, Config, ExceededAction, Limits, QuotaAnswer};
    use super::*;
    use crate::testing::at;
    use crate::units::{Rate, Span};
    use DatagramAnswer::{Pass, UsesUp};

    fn of(limits: Limits) -> (Quota, Flow) {
        let mut quota = Quota::new(Config::default(), at(0));
        let account = quota.join(at(0), limits);
        let flow = quota.admit(at(0), account).unwrap();
        (quota, flow)
    }

    fn quota(bytes: u64, on_exceeded: ExceededAction) -> Limits {
        let (bytes, period) = (Bytes::new(bytes), Span::from_secs(60));
        Limits { quota: Some(Allowance { bytes, period, on_exceeded }), ..Limits::default() }
    }

    #[test]
    fn the_last_bytes_of_a_quota_hold_up_nothing() {
        let up = Direction::Up;
        let size = Bytes::new(1_200);
        let (mut cut, flow) = of(quota(1_900, ExceededAction::Cut));
        assert_eq!(cut.datagram(at(0), flow, up, size), Some(Pass));
        assert_eq!(cut.datagram(at(1), flow, up, size), Some(UsesUp(Bytes::new(700))));
        assert_eq!(cut.datagram(at(2), flow, up, size), None);
        let slower = ExceededAction::Throttle(Rate::from_bits_per_second(8_000_000));
        let (mut throttled, flow) = of(quota(1_900, slower));
        assert_eq!(throttled.datagram(at(0), flow, up, size), Some(Pass));
        assert_eq!(throttled.datagram(at(1), flow, up, size), Some(UsesUp(Bytes::new(700))));
        let passes = |ms: &u64| throttled.datagram(at(*ms), flow, up, size) == Some(Pass);
        let passed = (2..1_002).filter(passes).count();
        // a megabyte, and a burst
        assert!((750..950).contains(&passed), "{passed}");
    }

    #[test]
    fn a_loan_that_is_out_may_still_return() {
        let up = Direction::Up;
        let (mut cut, flow) = of(quota(10_000, ExceededAction::Cut));
        let other = cut.admit(at(0), cut.whose(flow).unwrap()).unwrap();
        let lent = cut.ask(at(0), other, up, Bytes::new(9_500));
        assert_eq!(lent, QuotaAnswer::Go(Bytes::new(9_500)));
        assert_eq!(cut.datagram(at(0), flow, up, Bytes::new(1_200)), Some(UsesUp(Bytes::new(500))));
        cut.on_moved(at(1), other, up, Bytes::new(4_000));
        assert_eq!(cut.datagram(at(1), flow, up, Bytes::new(1_200)), Some(Pass));
    }

    #[test]
    fn empty_datagrams_have_a_rate() {
        let rates = [Some(Rate::from_bits_per_second(64_000)), None];
        for limits in
            [Limits { rates, ..Limits::default() }, Limits { each: rates, ..Limits::default() }]
        {
            let (mut quota, flow) = of(limits);
            let answers = (0..100_000).map(|step| {
                let now = Time::ZERO + Span::from_micros(100 * step);
                quota.datagram(now, flow, Direction::Up, Bytes::ZERO)
            });
            let passed = answers.filter(|answer| *answer == Some(Pass)).count();
            // 10 s at 8,000 bytes a second, and a burst
            assert!((2_800..3_800).contains(&passed), "{passed}");
        }
        let (mut free, flow) = of(Limits::default());
        assert_eq!(free.datagram(at(0), flow, Direction::Up, Bytes::ZERO), Some(Pass));
    }
}
