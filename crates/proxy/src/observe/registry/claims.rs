//! Which live connections each account has.

use super::ConnectionEntry;
use ekiden_linux::host::sync::locked;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Accounts are asked about several times a second; connections without one cost nothing then.
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_account: Mutex<BTreeMap<i64, BTreeMap<u64, Arc<ConnectionEntry>>>>,
}

impl Claims {
    /// A connection leaves an account, and another claims it.
    pub(super) fn change(
        &self,
        entry: &Arc<ConnectionEntry>,
        before: Option<i64>,
        now: Option<i64>,
    ) {
        if before == now {
            return;
        }
        let by_account = &mut *locked(&self.by_account);
        if let Some(before) = before
            && let Some(connections) = by_account.get_mut(&before)
        {
            connections.remove(&entry.id);
            if connections.is_empty() {
                by_account.remove(&before);
            }
        }
        if let Some(now) = now {
            by_account.entry(now).or_default().insert(entry.id, Arc::clone(entry));
        }
    }

    /// The accounts that have connections.
    pub(super) fn accounts(&self) -> Vec<i64> {
        locked(&self.by_account).keys().copied().collect()
    }

    /// The connections of an account, each with the account's name.
    pub(super) fn of(&self, account: i64) -> Vec<(String, Arc<ConnectionEntry>)> {
        let entries: Vec<_> = {
            let by_account = locked(&self.by_account);
            by_account.get(&account).into_iter().flat_map(BTreeMap::values).cloned().collect()
        };
        // another account may have claimed it meanwhile
        let named = |entry: Arc<ConnectionEntry>| {
            let name = entry.account().filter(|known| known.id == account)?.name.clone();
            Some((name, entry))
        };
        entries.into_iter().filter_map(named).collect()
    }
}
