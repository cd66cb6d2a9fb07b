//! The order of turns: entering and leaving the rings, and the grants.

use super::spending::Loan;
use super::{Account, Direction, Due, Flow, Handle, LanePosition, Quota, Spending, State, Time};
use crate::units::{Bytes, Span};

/// How long the turn of a called flow is kept. A driver asks within milliseconds, and what it has lost track of must
/// not keep its part of a rate from all others.
const KEPT: Span = Span::from_secs(1);

/// Fractions of a byte for a weight of 1: turns of heavy accounts are not rounded away.
const FRACTION: u32 = 20;

/// Turns of the relay's rate that an account may be away without losing its part, because its only
/// connection has to wake and move its bytes before it asks again. A turn is 10 ms but at extreme
/// rates.
const AWAY: u64 = 4;

/// The cost of bytes for an account of this weight.
pub(super) fn cost(bytes: u64, weight: u32) -> u128 {
    (u128::from(bytes) << FRACTION) / u128::from(weight.max(1))
}

/// Where the turn of one begins that was silent, beside others of whom the last served began there.
fn earliest(served: u128, turn: u64, weight: u32) -> u128 {
    served.saturating_sub(cost(AWAY * turn, weight))
}

impl Quota {
    /// A flow that is idle wants something.
    pub(super) fn queue(&mut self, now: Time, flow: Handle, nth: usize, want: u64) {
        let Some(conn) = self.flows.get_mut(flow) else { return };
        let at = conn.account;
        let side = &mut conn.sides[nth];
        if let Some(due) = side.due(now, want) {
            side.state = State::Parked(want, due);
            self.set_timer(due, Due::Flow(flow, nth as u8));
        } else {
            side.state = State::Ring(want);
            self.join_ring(now, at, flow, nth);
        }
        self.count_waiting(at, nth, 1);
    }

    fn join_ring(&mut self, now: Time, at: Handle, flow: Handle, nth: usize) {
        let Some(member) = self.accounts.get_mut(at) else { return };
        let lane = &mut member.lanes[nth];
        lane.ring.push_back(&mut self.flows, flow);
        if lane.place == LanePosition::Out {
            self.find_place(now, at, nth);
        }
    }

    /// Finds the place of an account with a waiting flow: among those waiting for the relay, or
    /// later where its own rate or quota says so. One that was silent begins where the others are.
    fn find_place(&mut self, now: Time, at: Handle, nth: usize) {
        let Some(member) = self.accounts.get_mut(at) else { return };
        let lane = &mut member.lanes[nth];
        let head = lane.ring.head(&self.flows).and_then(|head| self.flows.get(head));
        let Some(State::Ring(want)) = head.map(|conn| conn.sides[nth].state) else { return };
        let left = member.spending.as_ref().map_or(u64::MAX, Spending::available);
        if let Some(due) = lane.due(now, want, left) {
            lane.place = LanePosition::Later(due);
            self.set_timer(due, Due::Lane(at, nth as u8));
        } else {
            let earliest = earliest(self.served[nth], self.relay[nth].turn(), member.limits.weight);
            lane.start = lane.start.max(earliest);
            lane.place = LanePosition::Turn;
            self.turns[nth].insert((lane.start, at));
        }
    }

    /// A flow out of its ring, and its account out of its place where that was the last.
    pub(super) fn leave_ring(&mut self, at: Handle, flow: Handle, nth: usize) {
        let Some(member) = self.accounts.get_mut(at) else { return };
        let lane = &mut member.lanes[nth];
        lane.ring.unlink(&mut self.flows, flow);
        if lane.ring.is_empty() {
            self.leave_place(at, nth);
        }
    }

    fn leave_place(&mut self, at: Handle, nth: usize) {
        let Some(member) = self.accounts.get_mut(at) else { return };
        let lane = &mut member.lanes[nth];
        match lane.place {
            LanePosition::Out => {}
            LanePosition::Turn => {
                self.turns[nth].remove(&(lane.start, at));
            }
            LanePosition::Later(due) => {
                self.timers.remove(&(due, Due::Lane(at, nth as u8)));
            }
        }
        lane.place = LanePosition::Out;
    }

    pub(super) fn count_waiting(&mut self, at: Handle, nth: usize, change: i32) {
        if let Some(member) = self.accounts.get_mut(at) {
            let lane = &mut member.lanes[nth];
            lane.waiting = lane.waiting.saturating_add_signed(change);
        }
    }

    pub(super) fn serve_all(&mut self, now: Time) {
        self.serve(now, 0);
        self.serve(now, 1);
    }

    /// Serves the next flows while there is something to give.
    pub(super) fn serve(&mut self, now: Time, nth: usize) {
        while let Some((start, at)) = self.turns[nth].first().copied() {
            let relay = &mut self.relay[nth];
            let Some(member) = self.accounts.get_mut(at) else {
                self.turns[nth].pop_first();
                continue;
            };
            let lane = &mut member.lanes[nth];
            let head = lane.ring.head(&self.flows);
            let Some((head, conn)) = head.and_then(|head| Some((head, self.flows.get_mut(head)?)))
            else {
                self.leave_place(at, nth);
                continue;
            };
            let side = &mut conn.sides[nth];
            let State::Ring(want) = side.state else {
                self.leave_ring(at, head, nth);
                continue;
            };
            let of_relay = relay.available(now);
            if of_relay < relay.least(want) {
                return;
            }
            self.turns[nth].pop_first();
            lane.place = LanePosition::Out;
            let left = member.spending.as_ref().map_or(u64::MAX, Spending::available);
            if lane.due(now, want, left).is_some() {
                // its rate was lowered, or its quota lent out, while it waited
                self.find_place(now, at, nth);
                continue;
            }
            lane.ring.unlink(&mut self.flows, head);
            lane.waiting = lane.waiting.saturating_sub(1);
            let Some(conn) = self.flows.get_mut(head) else { continue };
            let side = &mut conn.sides[nth];
            if side.due(now, want).is_some() {
                // so was its own
                self.queue(now, head, nth, want);
                self.place_again(now, at, nth);
                continue;
            }
            // a turn each, also beside those that are away with theirs
            let beside = !lane.ring.is_empty() || lane.bucket.lent() > 0;
            let others = !self.turns[nth].is_empty() || relay.lent() > lane.bucket.lent();
            let turn = if beside { lane.bucket.turn() } else { u64::MAX };
            let turn = if others { turn.min(relay.turn()) } else { turn };
            let (own, of_account) = (side.available(now), lane.bucket.available(now));
            let given = [want, of_relay, of_account, left, own, turn];
            let given = given.into_iter().fold(u64::MAX, u64::min);
            lane.stock = given;
            self.served[nth] = start;
            let Some(loan) = self.lend(head, nth, given) else { continue };
            let until = now + KEPT;
            if let Some(conn) = self.flows.get_mut(head) {
                conn.sides[nth].state = State::Called(given, loan, until);
            }
            self.set_timer(until, Due::Flow(head, nth as u8));
            self.ready.push_back((head, nth as u8));
            self.place_again(now, at, nth);
        }
    }

    /// An account that was served, if somebody still waits there.
    fn place_again(&mut self, now: Time, at: Handle, nth: usize) {
        let lane = self.accounts.get(at).map(|member| &member.lanes[nth]);
        if lane.is_some_and(|lane| lane.place == LanePosition::Out && !lane.ring.is_empty()) {
            self.find_place(now, at, nth);
        }
    }

    /// Takes bytes off all levels, and lets the account's next turn begin later by them.
    pub(super) fn lend(&mut self, flow: Handle, nth: usize, bytes: u64) -> Option<Loan> {
        let conn = self.flows.get_mut(flow)?;
        let at = conn.account;
        conn.sides[nth].lend(bytes);
        self.relay[nth].lend(bytes);
        let member = self.accounts.get_mut(at)?;
        let loan = member.spending.as_mut().map_or_else(Loan::default, |s| s.lend(bytes));
        member.lanes[nth].bucket.lend(bytes);
        let later = cost(bytes, member.limits.weight);
        let earliest = earliest(self.served[nth], self.relay[nth].turn(), member.limits.weight);
        self.move_start(at, nth, |start| start.max(earliest) + later);
        Some(loan)
    }

    /// Changes where an account's next turn begins, wherever it stands.
    fn move_start(&mut self, at: Handle, nth: usize, change: impl FnOnce(u128) -> u128) {
        let Some(member) = self.accounts.get_mut(at) else { return };
        let lane = &mut member.lanes[nth];
        let before = lane.start;
        lane.start = change(before);
        if lane.place == LanePosition::Turn {
            self.turns[nth].remove(&(before, at));
            self.turns[nth].insert((lane.start, at));
        }
    }

    /// Settles a loan on all levels.
    pub(super) fn settle(
        &mut self,
        now: Time,
        flow: Handle,
        nth: usize,
        lent: u64,
        loan: Loan,
        used: u64,
    ) {
        let used = used.min(lent);
        let Some(conn) = self.flows.get_mut(flow) else { return };
        let at = conn.account;
        conn.sides[nth].settle(now, lent, used);
        self.relay[nth].settle(now, lent, used);
        let Some(member) = self.accounts.get_mut(at) else { return };
        let lane = &mut member.lanes[nth];
        lane.bucket.settle(now, lent, used);
        lane.used = lane.used.saturating_add(used);
        let back = cost(lent - used, member.limits.weight);
        let spent = member.spending.as_mut().is_some_and(|s| s.settle(loan, used));
        if back > 0 {
            self.move_start(at, nth, |start| start.saturating_sub(back));
        }
        if spent {
            self.on_class(now, at);
        }
        // what came back may be what somebody waits for
        self.reconsider(now, at, lent > used);
        self.serve_all(now);
    }

    /// Bytes of an account moved that could not wait, as the framing of its connections. They delay what follows of the
    /// account, and end a quota to the byte. Returns how many counted: fewer where it is the turn of other accounts for the
    /// relay's rate, or a quota may get more; the rest is to be charged later. `None`: nothing may pass any more.
    pub fn charge(
        &mut self,
        now: Time,
        account: Account,
        direction: Direction,
        bytes: Bytes,
    ) -> Option<Bytes> {
        let (at, nth) = (account.0, direction as usize);
        let member = self.accounts.get_mut(at).filter(|member| !member.is_over())?;
        let weight = member.limits.weight;
        let (lane, relay) = (&mut member.lanes[nth], &mut self.relay[nth]);
        let others = self.turns[nth].iter().take(2).any(|(_, other)| *other != at);
        let in_share = !others || lane.start <= self.served[nth] + cost(relay.turn(), weight);
        let of_relay = match (in_share, others) {
            (false, _) => 0,
            (true, true) => relay.available(now).min(relay.turn()),
            (true, false) => relay.available(now),
        };
        let fit = bytes.as_u64().min(of_relay);
        let (fit, spent) = member.spending.as_mut().map_or((fit, false), |s| s.charge(fit));
        lane.bucket.charge(now, fit);
        lane.used = lane.used.saturating_add(fit);
        relay.charge(now, fit);
        let later = cost(fit, weight);
        let earliest = earliest(self.served[nth], self.relay[nth].turn(), weight);
        self.move_start(at, nth, |start| start.max(earliest).saturating_add(later));
        if spent {
            self.on_class(now, at);
        }
        Some(Bytes::new(fit))
    }

    /// When an account's own rate has paid for all that it was charged; `now` or before: it has. [`Time::NEVER`]: the rate
    /// is zero.
    pub fn paid_at(&mut self, now: Time, account: Account, direction: Direction) -> Time {
        let lane =
            |member: &mut super::AccountState| member.lanes[direction as usize].bucket.paid_at(now);
        self.accounts.get_mut(account.0).map_or(now, lane)
    }

    /// An account that waits for a loan to come back, or, with `all`, for anything, is looked at again.
    fn reconsider(&mut self, now: Time, at: Handle, all: bool) {
        for nth in 0..2 {
            let place = self.accounts.get(at).map(|member| member.lanes[nth].place);
            if matches!(place, Some(LanePosition::Later(due)) if all || due == Time::NEVER) {
                self.leave_place(at, nth);
                self.find_place(now, at, nth);
            }
        }
    }

    /// Applies limits and quota to the rates; reports accounts that are cut.
    pub(super) fn on_class(&mut self, now: Time, at: Handle) {
        let Some(member) = self.accounts.get_mut(at) else { return };
        let throttle_rate = member.spending.as_ref().and_then(Spending::throttle_rate);
        for (lane, rate) in member.lanes.iter_mut().zip(member.limits.rates) {
            let rate = match (rate, throttle_rate) {
                (Some(rate), Some(throttle_rate)) => Some(rate.min(throttle_rate)),
                (rate, throttle_rate) => rate.or(throttle_rate),
            };
            if lane.bucket.rate() != rate {
                lane.bucket.set_rate(now, rate);
            }
        }
        if member.is_over() {
            if member.connections > 0 {
                self.cut.push_back(at);
            }
            self.call_all(now, at);
        } else {
            self.reconsider(now, at, true);
        }
    }

    /// All flows that wait are to ask again, and are told then that it is over.
    pub(super) fn call_all(&mut self, now: Time, at: Handle) {
        let mut next = self.accounts.get(at).and_then(|m| m.flows.head(&self.flows));
        while let Some(flow) = next {
            next = self.flows.after(super::ALL, flow);
            for direction in Direction::ALL {
                if self.state(Flow(flow), direction).is_some_and(|state| state != State::Idle) {
                    self.rest(now, Flow(flow), direction);
                    self.ready.push_back((flow, direction as u8));
                }
            }
        }
    }

    /// The rate of each connection has changed.
    pub(super) fn set_each(&mut self, now: Time, at: Handle) {
        let Some(member) = self.accounts.get(at) else { return };
        let (each, mut next) = (member.limits.each, member.flows.head(&self.flows));
        while let Some(flow) = next {
            next = self.flows.after(super::ALL, flow);
            for (nth, rate) in each.into_iter().enumerate() {
                let Some(conn) = self.flows.get_mut(flow) else { continue };
                let side = &mut conn.sides[nth];
                side.set_rate(now, rate);
                if let State::Parked(want, due) = side.state {
                    self.timers.remove(&(due, Due::Flow(flow, nth as u8)));
                    self.count_waiting(at, nth, -1);
                    self.queue(now, flow, nth, want);
                }
            }
        }
    }

    /// A flow's own rate has brought what it waits for, or it was called and did not ask.
    pub(super) fn on_flow_due(&mut self, now: Time, flow: Handle, nth: usize) {
        let Some(conn) = self.flows.get_mut(flow) else { return };
        match conn.sides[nth].state {
            State::Parked(want, _) => {
                conn.sides[nth].state = State::Ring(want);
                let at = conn.account;
                self.join_ring(now, at, flow, nth);
            }
            State::Called(..) => {
                self.rest(now, Flow(flow), Direction::ALL[nth]);
                // where it is only late, it asks for another turn
                self.ready.push_back((flow, nth as u8));
            }
            State::Idle | State::Ring(_) | State::Moving(..) => {}
        }
    }

    /// An account's has.
    pub(super) fn on_lane_due(&mut self, now: Time, at: Handle, nth: usize) {
        if let Some(member) = self.accounts.get_mut(at) {
            member.lanes[nth].place = LanePosition::Out;
            self.find_place(now, at, nth);
        }
    }

    /// When the relay has something for whom it is the turn of.
    pub(super) fn relay_due(&self, nth: usize) -> Time {
        let want = || {
            let (_, at) = self.turns[nth].first()?;
            let flow = self.accounts.get(*at)?.lanes[nth].ring.head(&self.flows)?;
            match self.flows.get(flow)?.sides[nth].state {
                State::Ring(want) => Some(want),
                _ => None,
            }
        };
        let relay = &self.relay[nth];
        want().map_or(Time::NEVER, |want| relay.when(relay.least(want)))
    }

    fn set_timer(&mut self, due: Time, whose: Due) {
        if due != Time::NEVER {
            self.timers.insert((due, whose));
        }
    }

    /// A period's end is where the quota says; `before`: where it was.
    pub(super) fn set_period_timer(&mut self, at: Handle, before: Option<Time>) {
        if let Some(before) = before {
            self.timers.remove(&(before, Due::Period(at)));
        }
        let ends = self.accounts.get(at).and_then(|m| m.spending.as_ref()).map(Spending::ends);
        if let Some(ends) = ends {
            self.set_timer(ends, Due::Period(at));
        }
    }

    /// An account without connections goes.
    pub(super) fn strike_out(&mut self, at: Handle) {
        let ends = self.accounts.get(at).and_then(|m| m.spending.as_ref()).map(Spending::ends);
        if let Some(ends) = ends {
            self.timers.remove(&(ends, Due::Period(at)));
        }
        self.accounts.remove(at);
    }
}
