//! The status of the accounts.

use super::state::{AccountState, State};
use super::{Quotas, UNCLAIMED};
use crate::observe::status::{AccountStatus, SharingStatus};
use crate::settings::ExceededAction;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::Time;
use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;

/// What an account is sorted by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountRank {
    /// Its name.
    pub account: Arc<str>,
    /// Bytes in the last full second, both directions together.
    pub rate: u64,
    /// Bytes since the start, both directions together.
    pub moved: u64,
    /// Thousandths of its quota that are used.
    pub spent: u64,
}

impl Quotas {
    /// The current status; `None` where there is neither an account nor a rate. With all accounts by name, or with so
    /// many of them that are busiest, and how many there are.
    pub(crate) fn status(&self, busiest: Option<usize>) -> Option<(SharingStatus, usize)> {
        let state = locked(&self.state);
        if !state.is_wanted() {
            return None;
        }
        let [uplink, downlink] =
            state.config.rates.map(|rate| rate.map(|r| r.as_bits_per_second()));
        let seen = state.quota.snapshot();
        let [waiting_up, waiting_down] = seen.waiting.map(|n| n as u64);
        let [lent_up, lent_down] = seen.lent;
        let (accounts, all): (Vec<_>, usize) = match busiest {
            None => {
                let accounts = state.accounts.iter();
                let accounts: Vec<_> =
                    accounts.filter_map(|(name, found)| state.account(name, found)).collect();
                let all = accounts.len();
                (accounts, all)
            }
            Some(most) => {
                let (busiest, all) = state.busiest(most);
                let status = |(name, found): (&Arc<str>, &AccountState)| state.account(name, found);
                (busiest.into_iter().filter_map(status).collect(), all)
            }
        };
        let sharing = SharingStatus {
            uplink,
            downlink,
            waiting_up,
            waiting_down,
            lent_up,
            lent_down,
            refused: state.refused,
            accounts,
        };
        Some((sharing, all))
    }

    /// What accounts are sorted by, by name.
    pub fn ranks(&self) -> Vec<AccountRank> {
        let state = locked(&self.state);
        let rank = |(name, found): (&Arc<str>, &AccountState)| {
            let seen = state.quota.account(found.account?)?;
            let quota = found.limits.quota.map(|plan| plan.bytes.as_u64());
            let spent = quota.zip(seen.left).map_or(0, |(quota, left)| {
                let used = u128::from(quota.saturating_sub(left.as_u64())) * 1_000;
                u64::try_from(used / u128::from(quota.max(1))).unwrap_or(u64::MAX)
            });
            let [rate, moved] = found.busy();
            Some(AccountRank { account: Arc::clone(name), rate, moved, spent })
        };
        state.accounts.iter().filter_map(rank).collect()
    }

    /// The configured account that claims a client; `Some(None)`: there are such accounts, but none claims it.
    pub(crate) fn claiming(&self, address: IpAddr, peer: Option<&str>) -> Option<Option<Arc<str>>> {
        let claims = &locked(&self.state).claims;
        (!claims.is_empty()).then(|| claims.of_client(address, peer).cloned())
    }

    /// The status of one account, by its name; `None` where none of this name is limited.
    pub fn account(&self, name: &str) -> Option<AccountStatus> {
        let state = locked(&self.state);
        state.account(name, state.accounts.get(name)?)
    }
}

impl AccountState {
    /// Bytes in the last full second, and since the start.
    fn busy(&self) -> [u64; 2] {
        let sum = |[up, down]: [u64; 2]| up.saturating_add(down);
        [sum(self.last_second), sum(self.used.get())]
    }
}

impl State {
    /// The accounts that move most now, and then those that moved most; and how many there are.
    fn busiest(&self, most: usize) -> (Vec<(&Arc<str>, &AccountState)>, usize) {
        let known = self.accounts.iter().filter(|(_, found)| found.account.is_some());
        let mut rows: Vec<_> = known.map(|(name, found)| (Reverse(found.busy()), name)).collect();
        let all = rows.len();
        if most < all {
            rows.select_nth_unstable(most);
            rows.truncate(most);
        }
        rows.sort_unstable();
        let found = |(_, name): (_, &Arc<str>)| self.accounts.get_key_value(name);
        (rows.into_iter().filter_map(found).collect(), all)
    }

    fn account(&self, name: &str, found: &AccountState) -> Option<AccountStatus> {
        let seen = self.quota.account(found.account?)?;
        let ([up, down], [limit_up, limit_down]) = (found.used.get(), seen.rates);
        let on_exceeded = found.limits.quota.map(|plan| plan.on_exceeded);
        let state = match on_exceeded {
            Some(ExceededAction::Cut) if seen.spent => "cut",
            _ if seen.spent => "throttle",
            _ if name == UNCLAIMED => "unclaimed",
            _ => "fine",
        };
        let ends = (seen.ends != Time::NEVER).then(|| seen.ends.since(clock::now()));
        Some(AccountStatus {
            name: name.to_owned(),
            state: state.to_owned(),
            connections: seen.connections.into(),
            connections_limit: found.limits.connections.map(u64::from),
            weight: found.limits.weight.max(1).into(),
            limit_up,
            limit_down,
            rate_up: found.last_second[0].saturating_mul(8),
            rate_down: found.last_second[1].saturating_mul(8),
            bytes_up: up,
            bytes_down: down,
            waiting_up: seen.waiting[0].into(),
            waiting_down: seen.waiting[1].into(),
            quota: found.limits.quota.map(|plan| plan.bytes.as_u64()),
            quota_left: seen.left.map(|left| left.as_u64()),
            period_ends_in_seconds: ends.map(|span| span.as_millis() as f64 / 1e3),
        })
    }
}
