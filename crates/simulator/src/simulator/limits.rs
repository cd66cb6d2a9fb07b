//! Accounts at relays: what a chain's relay may read, by the limits of [`ekiden_model::resources::quota`].

use super::{Event, Simulator};
use crate::observer::Observer;
use ekiden_model::resources::quota::{
    Account, Config, Direction, Flow, Limits, Quota, QuotaAnswer, Refused,
};
use ekiden_model::units::{Bytes, Time};
use std::collections::BTreeMap;

/// The limits of the relays of a network, all of them as one.
#[derive(Debug)]
pub(crate) struct Limited {
    quota: Quota,
    /// Whose turn is whose: chain and relay of each connection.
    of: BTreeMap<Flow, (u32, usize)>,
    event: Time,
}

impl<O: Observer> Simulator<O> {
    /// From now on relays go by limits, first by those of their own.
    pub fn share(&mut self, config: Config) {
        let quota = Quota::new(config, self.events.now());
        self.limited = Some(Box::new(Limited { quota, of: BTreeMap::new(), event: Time::NEVER }));
    }

    /// An account; `None` where relays know no limits.
    pub fn account(&mut self, limits: Limits) -> Option<Account> {
        let now = self.events.now();
        self.limited.as_mut().map(|limited| limited.quota.join(now, limits))
    }

    /// Other limits of an account from now on.
    pub fn set_limits(&mut self, account: Account, limits: Limits) {
        let now = self.events.now();
        if let Some(limited) = &mut self.limited {
            limited.quota.set_limits(now, account, limits);
        }
        self.call_ready(now);
    }

    /// A chain is an account's at the relay nearest the client. Fails if the account may not have
    /// another connection, or relays know no limits.
    pub fn limit(&mut self, chain: u32, account: Account) -> Result<(), Refused> {
        let now = self.events.now();
        let limited = self.limited.as_mut().ok_or(Refused::Gone)?;
        let flow = limited.quota.admit(now, account)?;
        limited.of.insert(flow, (chain, 1));
        let seat = self.chains.get_mut(chain as usize).and_then(|chain| chain.seats.get_mut(1));
        if let Some(seat) = seat {
            *seat = Some(flow);
        }
        Ok(())
    }

    /// How many of so many bytes a relay may read now; it is called when there are more.
    pub(super) fn may_read(&mut self, now: Time, seat: Flow, want: u64) -> u64 {
        let Some(limited) = &mut self.limited else { return want };
        if want == 0 {
            limited.quota.rest(now, seat, Direction::Down);
            return 0;
        }
        match limited.quota.ask(now, seat, Direction::Down, Bytes::new(want)) {
            QuotaAnswer::Go(bytes) => {
                let bytes = bytes.as_u64().min(want);
                limited.quota.on_moved(now, seat, Direction::Down, Bytes::new(bytes));
                bytes
            }
            QuotaAnswer::Wait | QuotaAnswer::Over => 0,
        }
    }

    /// Those whose turn has come read on.
    pub(super) fn call_ready(&mut self, now: Time) {
        while let Some(limited) = &mut self.limited
            && let Some((flow, _)) = limited.quota.next_ready()
        {
            let Some((chain, at)) = limited.of.get(&flow).copied() else { continue };
            let chain = self.chains.get(chain as usize);
            if let Some(behind) = chain.and_then(|chain| chain.down.get(at)).copied() {
                self.hand_on(now, behind, at);
            }
        }
        if let Some(limited) = &mut self.limited {
            let due = limited.quota.deadline();
            if due < limited.event {
                limited.event = due.max(now);
                self.events.push(limited.event, Event::Limits(0));
            }
        }
    }

    pub(super) fn on_limits_event(&mut self, now: Time) {
        let Some(limited) = &mut self.limited else { return };
        // one that is not the last that was asked for finds nothing
        if limited.event == now {
            limited.event = Time::NEVER;
            limited.quota.on_deadline(now);
            self.call_ready(now);
        }
    }
}
