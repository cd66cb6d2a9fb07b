//! What accounts have used of quotas that several relays share.

use ekiden_accounts::{AccountId, AccountSync, StoreError, Total};
use ekiden_alerts::SharedUse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The longest wait for the database.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the database; `None` where it does not answer, which is an alert of its own. What the last seconds moved is not
/// in it yet.
pub(crate) async fn shared_use(sync: &AccountSync) -> Option<Vec<SharedUse>> {
    let (directory, now) = (sync.directory(), sync.now());
    let mut periods: BTreeMap<(AccountId, i64), SharedUse> = BTreeMap::new();
    for account in directory.accounts() {
        let (attributes, name) = (&account.attributes, account.name.clone());
        if let Some(quota) = attributes.quota_bytes() {
            let begun = attributes.calendar_here().begun(now).as_second();
            let quota = quota.as_u64();
            periods.insert((account.id, begun), SharedUse { account: name, used: 0, quota });
        }
    }
    if periods.is_empty() {
        return Some(Vec::new());
    }
    // a quota that does not begin anew began in 1970: all since then would be all there is
    let begun: BTreeSet<i64> = periods.keys().map(|(_, begun)| *begun).collect();
    let asking = async {
        let (database, mut used) = (sync.database().await?, Vec::new());
        for begun in begun {
            used.extend(database.used_in(begun).await?);
        }
        Ok::<Vec<Total>, StoreError>(used)
    };
    let Ok(Ok(used)) = tokio::time::timeout(PATIENCE, asking).await else { return None };
    for usage in used {
        if let Some(period) = periods.get_mut(&(usage.account, usage.begun)) {
            period.used = period.used.saturating_add(usage.down).saturating_add(usage.up);
        }
    }
    Some(periods.into_values().collect())
}
