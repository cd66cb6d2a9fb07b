//! How many bytes may move now, and whose turn is next: limits of connections, accounts and the
//! relay, each direction by itself (algorithms/split-connections C.9).
//!
//! ```text
//! join(limits), admit(account)         an account; a connection, or why it is refused
//! ask(flow, direction, want)           so many bytes may move now; or it waits; or it is over
//! on_moved(flow, direction, used)      so many of them moved; before it asks again
//! rest(flow, direction)                it wants nothing for now
//! datagram(flow, direction, bytes)     whether one may pass: it cannot wait
//! charge(account, direction, bytes)    so many moved that could not wait; the next waits for it
//! next_ready(), next_cut()             flows that are to ask again; flows that are to end
//! deadline(), on_deadline(now)         when time alone makes a flow ready
//! set_limits, set_relay, set_left      from now on
//! ```
//! After each call that changes something the driver takes all of `next_ready` and `next_cut` and
//! reads `deadline` again. A flow that was called asks again, or rests: its turn is kept meanwhile,
//! for a second at most.
//!
//! **Envelope.** On each level at most rate · τ / 8 + burst bytes pass in any interval of length τ:
//! the burst is 200 ms of the rate, at least 16 KiB. A lowered rate cuts the credit.
//!
//! **Order.** When the relay's rate is full, the account goes first that has had least for its
//! weight since it became active: start-time fair queueing (Goyal, Vin and Cheng 1996). Bytes wait
//! unseen in sockets, and a served flow is away until it has moved them; a round robin as
//! [`crate::control::scheduler`]'s would take that for silence. Silence earns at most four turns.
//! Connections of an account take turns of equal size.
//!
//! **Quota.** An account may use a number of bytes, both directions together, in a period, exactly;
//! then it is throttled, or cut. Loans count until they are settled.
//!
//! **Datagrams** do not wait. While connections of their account do, they get as much as those were
//! given last: half in all, so that neither starves the other.

mod bucket;
#[cfg(test)]
mod cases;
#[cfg(test)]
mod charge_laws;
mod datagrams;
#[cfg(test)]
mod late_laws;
#[cfg(test)]
mod laws;
mod limits;
mod member;
mod report;
mod spending;
mod turns;

use crate::slab::{Handle, List, Slab};
use crate::units::{Bytes, Rate, Time};
use alloc::boxed::Box;
use alloc::collections::{BTreeSet, VecDeque};
use bucket::Bucket;
use member::{ALL, AccountState, Conn, Lane, LanePosition, Side, State, connect_rate, connects};
use spending::Spending;

pub use datagrams::DatagramAnswer;
pub use limits::{Allowance, Config, Direction, ExceededAction, Limits, Refused};
pub use report::{AccountSnapshot, QuotaWait, Snapshot};

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaAnswer {
    /// At least one byte and at most so many may be moved; then [`Quota::on_moved`].
    Go(Bytes),
    /// Not now: [`Quota::next_ready`] says when.
    Wait,
    /// Not any more: the account is gone, or its quota is used up and it is cut.
    Over,
}

/// An account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account(Handle);

/// A connection of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow(Handle);

/// Whose time comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Flow(Handle, u8),
    Lane(Handle, u8),
    Period(Handle),
}

/// Limits of all levels, and the order of turns.
#[derive(Debug, Clone)]
pub struct Quota {
    relay: [Bucket; 2],
    accounts: Slab<AccountState, 1>,
    flows: Slab<Conn, 3>,
    /// By direction: accounts that wait for the relay, by where their turns begin.
    turns: [BTreeSet<(u128, Handle)>; 2],
    /// By direction: where the turn began that was served last.
    served: [u128; 2],
    timers: BTreeSet<(Time, Due)>,
    ready: VecDeque<(Handle, u8)>,
    cut: VecDeque<Handle>,
}

impl Quota {
    /// Nobody yet.
    pub fn new(config: Config, now: Time) -> Self {
        Self {
            relay: config.rates.map(|rate| Bucket::new(rate, now)),
            accounts: Slab::with_capacity(0),
            flows: Slab::with_capacity(0),
            turns: [BTreeSet::new(), BTreeSet::new()],
            served: [0; 2],
            timers: BTreeSet::new(),
            ready: VecDeque::new(),
            cut: VecDeque::new(),
        }
    }

    /// Other limits of the relay from now on.
    pub fn set_relay(&mut self, now: Time, config: Config) {
        for (bucket, rate) in self.relay.iter_mut().zip(config.rates) {
            bucket.set_rate(now, rate);
        }
        self.serve_all(now);
    }

    /// An account comes; its quota's first period begins.
    pub fn join(&mut self, now: Time, limits: Limits) -> Account {
        let lane = |direction: Direction| Lane {
            bucket: Bucket::new(limits.rates[direction as usize], now),
            ring: List::new(direction as usize),
            place: LanePosition::Out,
            start: 0,
            stock: 0,
            used: 0,
            waiting: 0,
        };
        let member = AccountState {
            limits,
            leaving: false,
            connections: 0,
            flows: List::new(ALL),
            connects: limits.connects.map(|most| connects(most, now)),
            spending: limits.quota.map(|plan| Spending::new(plan, now)),
            lanes: Direction::ALL.map(lane),
        };
        let at = self.accounts.insert(member);
        self.on_class(now, at);
        self.set_period_timer(at, None);
        Account(at)
    }

    /// Sets other limits, also for live connections. This period's bytes count towards the new
    /// quota.
    pub fn set_limits(&mut self, now: Time, account: Account, limits: Limits) {
        let at = account.0;
        let Some(member) = self.accounts.get_mut(at) else { return };
        let before = core::mem::replace(&mut member.limits, limits);
        if before.connects != limits.connects {
            match (&mut member.connects, limits.connects) {
                (Some(bucket), Some(most)) => {
                    let (rate, burst) = connect_rate(most);
                    bucket.set(now, rate, burst);
                }
                (bucket, most) => *bucket = most.map(|most| connects(most, now)),
            }
        }
        let ended = member.spending.as_ref().map(Spending::ends);
        match (&mut member.spending, limits.quota) {
            (Some(spending), Some(plan)) => {
                spending.set_plan(plan);
                spending.renew(now);
            }
            (spending, plan) => *spending = plan.map(|plan| Spending::new(plan, now)),
        }
        self.set_period_timer(at, ended);
        if before.each != limits.each {
            self.set_each(now, at);
        }
        self.on_class(now, at);
        self.serve_all(now);
    }

    /// Sets what is left of the quota, at most all of it, and the period's end, for a driver that
    /// keeps books over restarts or by the calendar. With `more`, connections wait at the end for
    /// another call. Nothing without a quota.
    pub fn set_left(&mut self, now: Time, account: Account, left: Bytes, ends: Time, more: bool) {
        let Some(member) = self.accounts.get_mut(account.0) else { return };
        let Some(spending) = &mut member.spending else { return };
        let ended = spending.ends();
        spending.set_left(left, ends, more);
        spending.renew(now);
        self.set_period_timer(account.0, Some(ended));
        self.on_class(now, account.0);
        self.serve_all(now);
    }

    /// Removes an account. Its connections get `Over` when they ask, and must still be closed.
    pub fn leave(&mut self, now: Time, account: Account) {
        let at = account.0;
        let Some(member) = self.accounts.get_mut(at) else { return };
        member.leaving = true;
        if member.connections == 0 {
            self.strike_out(at);
        } else {
            self.call_all(now, at);
        }
    }

    /// Admits a connection of an account, or says why not.
    pub fn admit(&mut self, now: Time, account: Account) -> Result<Flow, Refused> {
        let member = self.accounts.get_mut(account.0).filter(|member| !member.leaving);
        let member = member.ok_or(Refused::Gone)?;
        if let Some(spending) = member.spending.as_ref().filter(|spending| spending.is_cut()) {
            return Err(Refused::Spent(spending.ends()));
        }
        if let Some(most) = member.limits.connections.filter(|most| member.connections >= *most) {
            return Err(Refused::Connections(most));
        }
        if let Some(bucket) = &mut member.connects {
            if bucket.available(now) == 0 {
                return Err(Refused::Connects(bucket.when(1).since(now)));
            }
            bucket.lend(1);
            bucket.settle(now, 1, 1);
        }
        member.connections += 1;
        let side = |rate: Option<Rate>| Side {
            bucket: rate.map(|rate| Box::new(Bucket::new(Some(rate), now))),
            state: State::Idle,
        };
        let sides = member.limits.each.map(side);
        let flow = self.flows.insert(Conn { account: account.0, sides });
        member.flows.push_back(&mut self.flows, flow);
        Ok(Flow(flow))
    }

    /// Removes a connection. An unsettled grant counts as used.
    pub fn close(&mut self, now: Time, flow: Flow) {
        for direction in Direction::ALL {
            if let Some(State::Moving(lent, _)) = self.state(flow, direction) {
                self.on_moved(now, flow, direction, Bytes::new(lent));
            }
            self.rest(now, flow, direction);
        }
        let Some(conn) = self.flows.get(flow.0) else { return };
        let at = conn.account;
        if let Some(member) = self.accounts.get_mut(at) {
            member.flows.unlink(&mut self.flows, flow.0);
            member.connections -= 1;
            if member.leaving && member.connections == 0 {
                self.strike_out(at);
            }
        }
        self.flows.remove(flow.0);
    }

    /// Asks to move `want` bytes. A called flow is given what it was called for, perhaps more than
    /// `want`.
    pub fn ask(&mut self, now: Time, flow: Flow, direction: Direction, want: Bytes) -> QuotaAnswer {
        let want = want.as_u64().max(1);
        let nth = direction as usize;
        if let Some(State::Moving(lent, _)) = self.state(flow, direction) {
            // it did not say what became of what it had
            self.on_moved(now, flow, direction, Bytes::new(lent));
        }
        let Some(conn) = self.flows.get_mut(flow.0) else { return QuotaAnswer::Over };
        let Some(member) = self.accounts.get(conn.account) else { return QuotaAnswer::Over };
        if member.is_over() {
            return QuotaAnswer::Over;
        }
        let side = &mut conn.sides[nth];
        match &mut side.state {
            // it may be served now if it wants less than before
            State::Ring(wanted) => *wanted = want,
            State::Parked(wanted, _) if *wanted <= want => {
                *wanted = want;
                return QuotaAnswer::Wait;
            }
            State::Parked(..) => self.rest(now, flow, direction),
            State::Called(lent, loan, until) => {
                let (lent, loan, until) = (*lent, *loan, *until);
                side.state = State::Moving(lent, loan);
                self.timers.remove(&(until, Due::Flow(flow.0, nth as u8)));
                return QuotaAnswer::Go(Bytes::new(lent));
            }
            State::Idle | State::Moving(..) => {}
        }
        if self.state(flow, direction) == Some(State::Idle) {
            self.queue(now, flow.0, nth, want);
        }
        self.serve(now, nth);
        match self.state(flow, direction) {
            Some(State::Called(lent, loan, until)) => {
                self.timers.remove(&(until, Due::Flow(flow.0, nth as u8)));
                // it is here: nobody needs to call it
                if self.ready.back() == Some(&(flow.0, nth as u8)) {
                    self.ready.pop_back();
                }
                if let Some(conn) = self.flows.get_mut(flow.0) {
                    conn.sides[nth].state = State::Moving(lent, loan);
                }
                QuotaAnswer::Go(Bytes::new(lent))
            }
            _ => QuotaAnswer::Wait,
        }
    }

    /// Of the granted bytes, this many moved.
    pub fn on_moved(&mut self, now: Time, flow: Flow, direction: Direction, used: Bytes) {
        let nth = direction as usize;
        let Some(conn) = self.flows.get_mut(flow.0) else { return };
        if let State::Moving(lent, loan) = conn.sides[nth].state {
            conn.sides[nth].state = State::Idle;
            self.settle(now, flow.0, nth, lent, loan, used.as_u64());
        }
    }

    /// It has nothing to move for now: what it waits for, or was called for, goes to others.
    pub fn rest(&mut self, now: Time, flow: Flow, direction: Direction) {
        let nth = direction as usize;
        let Some(conn) = self.flows.get_mut(flow.0) else { return };
        let at = conn.account;
        let state = conn.sides[nth].state;
        match state {
            State::Idle | State::Moving(..) => return,
            State::Parked(_, due) | State::Called(_, _, due) => {
                self.timers.remove(&(due, Due::Flow(flow.0, nth as u8)));
            }
            State::Ring(_) => self.leave_ring(at, flow.0, nth),
        }
        if let Some(conn) = self.flows.get_mut(flow.0) {
            conn.sides[nth].state = State::Idle;
        }
        match state {
            State::Called(lent, loan, _) => self.settle(now, flow.0, nth, lent, loan, 0),
            _ => self.count_waiting(at, nth, -1),
        }
    }

    /// Flows that are to ask again: their turn has come, or they are over. Repeated calls are
    /// possible.
    pub fn next_ready(&mut self) -> Option<(Flow, Direction)> {
        let (flow, nth) = self.ready.pop_front()?;
        Some((Flow(flow), Direction::ALL[usize::from(nth)]))
    }

    /// Whose quota was just used up, and whose connections are to end for it.
    pub fn next_cut(&mut self) -> Option<Account> {
        self.cut.pop_front().map(Account)
    }

    /// When to call [`Quota::on_deadline`]; [`Time::NEVER`]: time alone changes nothing.
    pub fn deadline(&self) -> Time {
        let timers = self.deadline_of_timers();
        (0..2).map(|nth| self.relay_due(nth)).fold(timers, Time::min)
    }

    fn deadline_of_timers(&self) -> Time {
        self.timers.first().map_or(Time::NEVER, |(due, _)| *due)
    }

    /// Time has passed.
    pub fn on_deadline(&mut self, now: Time) {
        while self.deadline_of_timers() <= now
            && let Some((_, whose)) = self.timers.pop_first()
        {
            match whose {
                Due::Flow(flow, nth) => self.on_flow_due(now, flow, usize::from(nth)),
                Due::Lane(at, nth) => self.on_lane_due(now, at, usize::from(nth)),
                Due::Period(at) => {
                    if let Some(spending) =
                        self.accounts.get_mut(at).and_then(|member| member.spending.as_mut())
                    {
                        spending.renew(now);
                    }
                    self.set_period_timer(at, None);
                    self.on_class(now, at);
                }
            }
        }
        self.serve_all(now);
    }

    fn state(&self, flow: Flow, direction: Direction) -> Option<State> {
        self.flows.get(flow.0).map(|conn| conn.sides[direction as usize].state)
    }
}
