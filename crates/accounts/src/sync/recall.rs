//! What the database has of this relay from before its start, asked for once.
//!
//! A journal may come back older than the database: after a power cut, a restored folder, or a kill while the disk took nothing.

use super::AccountSync;
use super::settle::{Key, Keyed};
use crate::account::AccountId;
use crate::journal::PAST;
use crate::locked;
use crate::store::StoreError;
use crate::store::in_time::in_time;

/// How far usage was recalled.
#[derive(Debug)]
pub(super) struct Recalled {
    /// The last total; none once all are recalled.
    after: Option<Key>,
}

impl Default for Recalled {
    fn default() -> Self {
        Self { after: Some((AccountId(i64::MIN), i64::MIN)) }
    }
}

impl AccountSync {
    /// Counts what the journal lacked of usage that is settled. To be done before anything is settled: later nobody can tell
    /// whose bytes a total has. Each part has its own deadline, and a part that was recalled stays so.
    pub(super) async fn recall_usage(&self) -> Result<(), StoreError> {
        loop {
            let after = locked(&self.recalled).after;
            let Some(after) = after else { return Ok(()) };
            let identity = locked(&self.journal).identity().to_owned();
            let since = self.now().as_second().saturating_sub(PAST);
            let store = self.store().await?;
            let had = in_time(store.settled(&identity, since, after)).await?;
            let lacked = {
                let mut recalled = locked(&self.recalled);
                // another one had this part meanwhile
                if recalled.after != Some(after) {
                    continue;
                }
                recalled.after = had.last().map(Keyed::key);
                let mut journal = locked(&self.journal);
                let lacked = journal.on_recalled(&had);
                if recalled.after.is_none() {
                    journal.on_all_recalled();
                }
                lacked
            };
            if lacked > 0 {
                tracing::warn!(
                    "the usage journal lacked {lacked} bytes that the database has; they count again"
                );
            }
        }
    }
}
