//! Lines of the log about quotas that are used up: one for each account until it has more, and one in ten seconds.

use super::Quotas;
use super::state::{AccountState, State};
use crate::observe::log_throttle::LogThrottle;
use crate::settings::ExceededAction;
use ekiden_linux::host::sync::locked;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Accounts that the log says have used up their quota.
#[derive(Debug, Default)]
pub(super) struct UsedUp {
    said: BTreeSet<Arc<str>>,
    throttle: LogThrottle,
}

impl UsedUp {
    /// The next line, for the accounts that have used up theirs now, and whether each is cut. What is not due comes later.
    fn line(
        &mut self,
        now: &BTreeMap<Arc<str>, bool>,
        is_due: impl FnOnce(&LogThrottle) -> bool,
    ) -> Option<String> {
        self.said.retain(|name| now.contains_key(name));
        let new: Vec<_> = now.iter().filter(|(name, _)| !self.said.contains(*name)).collect();
        let (&(name, cut), others) = new.split_first()?;
        if !is_due(&self.throttle) {
            return None;
        }
        let becomes = if *cut { "is cut" } else { "goes on at a lower rate" };
        let more = match others.len() {
            0 => String::new(),
            n => format!("; so have {n} more"),
        };
        self.said.extend(new.iter().map(|(name, _)| Arc::clone(name)));
        Some(format!("account {name:?} has used up its quota and {becomes}{more}"))
    }
}

impl State {
    /// Accounts that have used up their quota, and whether each is cut.
    pub(super) fn used_up(&self) -> BTreeMap<Arc<str>, bool> {
        let used_up = |(name, found): (&Arc<str>, &AccountState)| {
            let cut = matches!(found.limits.quota?.on_exceeded, ExceededAction::Cut);
            let spent = self.quota.account(found.account?)?.spent;
            spent.then(|| (Arc::clone(name), cut))
        };
        self.accounts.iter().filter_map(used_up).collect()
    }
}

impl Quotas {
    pub(super) fn say_used_up(&self, now: &BTreeMap<Arc<str>, bool>) {
        let line = locked(&self.used_up).line(now, LogThrottle::is_due);
        if let Some(line) = line {
            tracing::info!("{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::log_throttle::counting::lines_of;
    use crate::settings::{Allowance, Limits, Sharing};
    use ekiden_model::units::{Bytes, Span};

    #[test]
    fn each_account_is_named_or_counted_once_until_it_has_more() {
        let mut used_up = UsedUp::default();
        let now = |names: &[&str]| -> BTreeMap<Arc<str>, bool> {
            names.iter().map(|name| (Arc::from(*name), *name == "cut")).collect()
        };
        let mut next = |names: &[&str], due: bool| used_up.line(&now(names), |_| due);
        assert_eq!(next(&[], true), None);
        let line = "account \"cut\" has used up its quota and is cut";
        assert_eq!(next(&["cut"], true).as_deref(), Some(line));
        assert_eq!(next(&["cut"], true), None);
        // those that come while no line is due are in the next one
        assert_eq!(next(&["cut", "ship", "z"], false), None);
        let line =
            "account \"ship\" has used up its quota and goes on at a lower rate; so have 1 more";
        assert_eq!(next(&["cut", "ship", "z"], true).as_deref(), Some(line));
        assert_eq!(next(&["ship", "z"], true), None);
        assert!(next(&["cut", "ship", "z"], true).is_some_and(|line| line.contains("\"cut\"")));
    }

    #[test]
    fn the_log_has_one_line_about_a_quota_that_is_used_up() {
        let quotas = Quotas::new(&Sharing::default());
        let (bytes, period) = (Bytes::new(1_000), Span::from_secs(3_600));
        let quota = Some(Allowance { bytes, period, on_exceeded: ExceededAction::Cut });
        quotas.set("tanaka", Limits { quota, ..Limits::default() });
        let seconds = || lines_of(|| (0..3).for_each(|_| quotas.on_second()));
        assert_eq!(seconds(), 0);
        assert!(quotas.set_until("tanaka", 0, period, false));
        assert_eq!(seconds(), 1);
    }
}
