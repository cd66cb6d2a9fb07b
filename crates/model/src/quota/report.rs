//! What there is to see, and why somebody waits.

use super::{Flow, Household, Place, Quota, Spending, State, Time};
use crate::units::{Bytes, Rate};
use core::fmt;

/// One look at all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// Households there are.
    pub households: usize,
    /// Connections there are.
    pub flows: usize,
    /// Households that wait for the relay's own rate, up and down.
    pub waiting: [usize; 2],
}

/// One look at a household.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct HouseholdSnapshot {
    /// Its connections.
    pub connections: u32,
    /// Those that wait for their turn, up and down.
    pub waiting: [u32; 2],
    /// Bytes used since it joined, up and down.
    pub used: [u64; 2],
    /// The rates that hold now: slower ones where the quota is used up.
    pub rates: [Option<u64>; 2],
    /// What is left of the quota, if there is one.
    pub left: Option<Bytes>,
    /// When its period ends; [`Time::NEVER`] where there is none.
    pub ends: Time,
    /// The quota is used up.
    pub spent: bool,
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The rate of each connection.
    Connection,
    /// The household's rate, or its turn among its own connections.
    Household,
    /// The rate it has since its quota is used up.
    Slower,
    /// What is left of its quota, which other connections of its hold.
    Quota,
    /// The relay's rate: it is the turn of other households.
    Relay,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "for the rate of each connection",
            Self::Household => "for its household's rate",
            Self::Slower => "for the slower rate, since its household's quota is used up",
            Self::Quota => "for the last of its household's quota",
            Self::Relay => "for its household's turn: the relay's own rate is full",
        })
    }
}

impl Quota {
    /// One look at all of it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            households: self.households.len(),
            flows: self.flows.len(),
            waiting: [self.turns[0].len(), self.turns[1].len()],
        }
    }

    /// One look at a household; `None` when it is gone.
    #[must_use]
    pub fn household(&self, household: Household) -> Option<HouseholdSnapshot> {
        let member = self.households.get(household.0)?;
        let [up, down] = &member.lanes;
        let spending = member.spending.as_ref();
        let rate = |rate: Option<Rate>| rate.map(Rate::as_bits_per_second);
        Some(HouseholdSnapshot {
            connections: member.connections,
            waiting: [up.waiting, down.waiting],
            used: [up.used, down.used],
            rates: [rate(up.bucket.rate()), rate(down.bucket.rate())],
            left: spending.map(Spending::left),
            ends: spending.map_or(Time::NEVER, Spending::ends),
            spent: spending.is_some_and(Spending::is_spent),
        })
    }

    /// Whose a connection is.
    #[must_use]
    pub fn whose(&self, flow: Flow) -> Option<Household> {
        self.flows.get(flow.0).map(|conn| Household(conn.household))
    }

    /// Whether nothing may go on a connection any more: [`super::Answer::Over`].
    #[must_use]
    pub fn is_over(&self, flow: Flow) -> bool {
        let conn = self.flows.get(flow.0);
        conn.and_then(|conn| self.households.get(conn.household)).is_none_or(|m| m.is_over())
    }

    /// Whether a connection's household has left.
    #[must_use]
    pub fn is_gone(&self, flow: Flow) -> bool {
        let conn = self.flows.get(flow.0);
        conn.and_then(|conn| self.households.get(conn.household)).is_none_or(|m| m.leaving)
    }

    /// What a connection waits for in a direction; `None` when it does not wait.
    #[must_use]
    pub fn why(&self, flow: Flow, direction: super::Direction) -> Option<Why> {
        let conn = self.flows.get(flow.0)?;
        match conn.sides[direction as usize].state {
            State::Idle | State::Called(..) | State::Moving(..) => None,
            State::Parked(..) => Some(Why::Connection),
            State::Ring(_) => {
                let member = self.households.get(conn.household)?;
                let spending = member.spending.as_ref();
                Some(match member.lanes[direction as usize].place {
                    Place::Turn => Why::Relay,
                    _ if spending.is_some_and(|s| s.available() == 0) => Why::Quota,
                    _ if spending.is_some_and(|s| s.slower().is_some()) => Why::Slower,
                    _ => Why::Household,
                })
            }
        }
    }
}
