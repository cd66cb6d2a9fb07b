//! What there is to see of households.

use super::{Home, Households, STRANGERS, State};
use crate::registry::locked;
use crate::settings::Then;
use crate::status::{HouseholdStatus, HouseholdsStatus};
use ekiden_linux::clock;
use ekiden_model::units::Time;

impl Households {
    /// One look; `None` where there is neither a household nor a rate.
    pub(crate) fn status(&self) -> Option<HouseholdsStatus> {
        let state = locked(&self.state);
        if !state.is_wanted() {
            return None;
        }
        let [uplink, downlink] =
            state.config.rates.map(|rate| rate.map(|r| r.as_bits_per_second()));
        let [waiting_up, waiting_down] = state.quota.snapshot().waiting.map(|n| n as u64);
        let households =
            state.homes.iter().filter_map(|(name, home)| state.household(name, home)).collect();
        Some(HouseholdsStatus {
            uplink,
            downlink,
            waiting_up,
            waiting_down,
            refused: state.refused,
            households,
        })
    }
}

impl State {
    fn household(&self, name: &str, home: &Home) -> Option<HouseholdStatus> {
        let seen = self.quota.household(home.household?)?;
        let ([up, down], [limit_up, limit_down]) = (home.used.get(), seen.rates);
        let then = home.limits.quota.map(|plan| plan.then);
        let state = match then {
            Some(Then::Cut) if seen.spent => "cut",
            _ if seen.spent => "slower",
            _ if name == STRANGERS => "strangers",
            _ => "fine",
        };
        let ends = (seen.ends != Time::NEVER).then(|| seen.ends.since(clock::now()));
        Some(HouseholdStatus {
            name: name.to_owned(),
            state: state.to_owned(),
            connections: seen.connections.into(),
            connections_limit: home.limits.connections.map(u64::from),
            weight: home.limits.weight.max(1).into(),
            limit_up,
            limit_down,
            rate_up: home.lately[0].saturating_mul(8),
            rate_down: home.lately[1].saturating_mul(8),
            bytes_up: up,
            bytes_down: down,
            waiting_up: seen.waiting[0].into(),
            waiting_down: seen.waiting[1].into(),
            quota: home.limits.quota.map(|plan| plan.bytes.as_u64()),
            quota_left: seen.left.map(|left| left.as_u64()),
            period_ends_in_seconds: ends.map(|span| span.as_millis() as f64 / 1e3),
        })
    }
}
