//! What the database has of this relay from before its start, asked for once.
//!
//! A journal may come back older than the database: after a power cut, a restored folder, or a kill while the disk took nothing.

use super::AccountSync;
use super::disk::on_disk;
use super::settle::{Key, Keyed};
use crate::account::AccountId;
use crate::journal::{PAST, remove_opened};
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
            let next = had.last().map(Keyed::key);
            if next.is_none() {
                in_time(self.forget_opened()).await?;
            }
            let lacked = {
                let mut recalled = locked(&self.recalled);
                // another one had this part meanwhile
                if recalled.after != Some(after) {
                    continue;
                }
                recalled.after = next;
                let mut journal = locked(&self.journal);
                journal.on_recalled(&had);
                if next.is_none() { journal.on_all_recalled() } else { 0 }
            };
            if lacked > 0 {
                tracing::warn!(
                    "the usage journal lacked {lacked} bytes that the database has; they count again"
                );
            }
        }
    }

    /// Before anything is settled, too: later nobody could tell what the database had when the journal was opened.
    async fn forget_opened(&self) -> Result<(), StoreError> {
        let Some(path) = locked(&self.journal).opened_file() else { return Ok(()) };
        let kept = path.clone();
        let forgotten = on_disk(move || remove_opened(&kept)).await;
        forgotten.map_err(|error| StoreError::Folder { path, error })
    }
}
