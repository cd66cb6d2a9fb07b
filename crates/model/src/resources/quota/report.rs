//! Snapshots, and why a flow waits.

use super::{Account, Flow, LanePosition, Quota, Spending, State, Time};
use crate::units::{Bytes, Rate};

/// One look at all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// Accounts there are.
    pub accounts: usize,
    /// Connections there are.
    pub flows: usize,
    /// Accounts that wait for the relay's own rate, up and down.
    pub waiting: [usize; 2],
    /// Bytes that flows were granted and have not reported, up and down.
    pub lent: [u64; 2],
}

/// One look at an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct AccountSnapshot {
    /// Its connections.
    pub connections: u32,
    /// Those that wait for their turn, up and down.
    pub waiting: [u32; 2],
    /// Bytes used since it joined, up and down.
    pub used: [u64; 2],
    /// The rates that hold now: slower ones where the quota is used up.
    pub rates: [Option<u64>; 2],
    /// The rest of the quota, if there is one.
    pub left: Option<Bytes>,
    /// When its period ends; [`Time::NEVER`] where there is none.
    pub ends: Time,
    /// The quota is used up.
    pub spent: bool,
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaWait {
    /// The rate of each connection.
    Connection,
    /// The account's rate, or its turn among its own connections.
    Account,
    /// The rate it has since its quota is used up.
    Throttle,
    /// What is left of its quota, which other connections of its hold.
    Quota,
    /// The relay's rate: it is the turn of other accounts.
    Relay,
}

crate::units::named!(QuotaWait {
    Connection = "for the rate of each connection",
    Account = "for its account's rate",
    Throttle = "for the slower rate, since its account's quota is used up",
    Quota = "for the last of its account's quota",
    Relay = "for its account's turn: the relay's own rate is full",
});

impl Quota {
    /// One look at all of it.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            accounts: self.accounts.len(),
            flows: self.flows.len(),
            waiting: [self.turns[0].len(), self.turns[1].len()],
            lent: [self.relay[0].lent(), self.relay[1].lent()],
        }
    }

    /// One look at an account; `None` when it is gone.
    pub fn account(&self, account: Account) -> Option<AccountSnapshot> {
        let member = self.accounts.get(account.0)?;
        let [up, down] = &member.lanes;
        let spending = member.spending.as_ref();
        let rate = |rate: Option<Rate>| rate.map(Rate::as_bits_per_second);
        Some(AccountSnapshot {
            connections: member.connections,
            waiting: [up.waiting, down.waiting],
            used: [up.used, down.used],
            rates: [rate(up.bucket.rate()), rate(down.bucket.rate())],
            left: spending.map(Spending::left),
            ends: spending.map_or(Time::NEVER, Spending::ends),
            spent: spending.is_some_and(Spending::is_spent),
        })
    }

    /// Until when an account is cut because its quota is used up, so that it gets no connection; `None`: it is not.
    pub fn cut_until(&self, account: Account) -> Option<Time> {
        let spending = self.accounts.get(account.0)?.spending.as_ref()?;
        spending.is_cut().then(|| spending.ends())
    }

    /// Whose a connection is.
    pub fn whose(&self, flow: Flow) -> Option<Account> {
        self.flows.get(flow.0).map(|conn| Account(conn.account))
    }

    /// Whether nothing may go on a connection any more: [`super::QuotaAnswer::Over`].
    pub fn is_over(&self, flow: Flow) -> bool {
        let conn = self.flows.get(flow.0);
        conn.and_then(|conn| self.accounts.get(conn.account)).is_none_or(|m| m.is_over())
    }

    /// Whether a connection's account has left.
    pub fn is_gone(&self, flow: Flow) -> bool {
        let conn = self.flows.get(flow.0);
        conn.and_then(|conn| self.accounts.get(conn.account)).is_none_or(|m| m.leaving)
    }

    /// What a connection waits for in a direction; `None` when it does not wait.
    pub fn why(&self, flow: Flow, direction: super::Direction) -> Option<QuotaWait> {
        let conn = self.flows.get(flow.0)?;
        match conn.sides[direction as usize].state {
            State::Idle | State::Called(..) | State::Moving(..) => None,
            State::Parked(..) => Some(QuotaWait::Connection),
            State::Ring(_) => {
                let member = self.accounts.get(conn.account)?;
                let spending = member.spending.as_ref();
                Some(match member.lanes[direction as usize].place {
                    LanePosition::Turn => QuotaWait::Relay,
                    _ if spending.is_some_and(|s| s.available() == 0) => QuotaWait::Quota,
                    _ if spending.is_some_and(|s| s.throttle_rate().is_some()) => {
                        QuotaWait::Throttle
                    }
                    _ => QuotaWait::Account,
                })
            }
        }
    }
}
