//! The status of the accounts.

use super::state::{AccountState, State};
use super::{Quotas, UNCLAIMED};
use crate::observe::status::{AccountStatus, SharingStatus};
use crate::settings::ExceededAction;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::Time;
use std::net::IpAddr;
use std::sync::Arc;

impl Quotas {
    /// The current status; `None` where there is neither an account nor a rate.
    pub(crate) fn status(&self) -> Option<SharingStatus> {
        let state = locked(&self.state);
        if !state.is_wanted() {
            return None;
        }
        let [uplink, downlink] =
            state.config.rates.map(|rate| rate.map(|r| r.as_bits_per_second()));
        let [waiting_up, waiting_down] = state.quota.snapshot().waiting.map(|n| n as u64);
        let accounts =
            state.accounts.iter().filter_map(|(name, found)| state.account(name, found)).collect();
        Some(SharingStatus {
            uplink,
            downlink,
            waiting_up,
            waiting_down,
            refused: state.refused,
            accounts,
        })
    }

    /// The configured account that claims a client; `Some(None)`: there are such accounts, but none claims it.
    pub(crate) fn claiming(&self, address: IpAddr, peer: Option<&str>) -> Option<Option<Arc<str>>> {
        let claims = &locked(&self.state).claims;
        (!claims.is_empty()).then(|| claims.of_client(address, peer).cloned())
    }

    /// The status of one account, by its name; `None` where none of this name is limited.
    pub(crate) fn account(&self, name: &str) -> Option<AccountStatus> {
        let state = locked(&self.state);
        state.account(name, state.accounts.get(name)?)
    }
}

impl State {
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
