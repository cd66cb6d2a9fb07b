//! The database that this folder counts for. Each numbers its accounts by itself: what was counted for one would be
//! charged to strangers in another.

use super::AccountSync;
use super::disk::on_disk;
use crate::locked;
use crate::store::in_time::in_time;
use crate::store::{Store, StoreError};
use ekiden_linux::host::state_files;
use std::path::{Path, PathBuf};
use std::{fs, io};

fn path_in(folder: &Path) -> PathBuf {
    folder.join("database.id")
}

/// The number of the database that a folder counted for; `None` where that is not known.
pub(super) fn counted_for(folder: &Path) -> Result<Option<i64>, StoreError> {
    let path = path_in(folder);
    let read = match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse::<i64>().map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    read.map_err(|error| StoreError::Folder { path, error })
}

impl AccountSync {
    /// The database, which is asked each time whether this folder counts for it: another may have come to its address.
    pub(super) async fn store(&self) -> Result<Store, StoreError> {
        let store = self.open_store().await?;
        let identity = in_time(store.identity()).await?;
        let known = *locked(&self.counts_for);
        let other = || StoreError::OtherDatabase { folder: self.folder.clone() };
        match (known, identity) {
            (Some(known), Some(identity)) if known == identity => {}
            // a folder that counted for none takes the first
            (None, Some(identity)) => {
                if in_time(self.counted_for_sqlite()).await? {
                    return Err(other());
                }
                in_time(store.keep_identity()).await?;
                in_time(self.count_for(identity)).await?;
            }
            _ => return Err(other()),
        }
        Ok(store)
    }

    async fn open_store(&self) -> Result<Store, StoreError> {
        if let Some(store) = &*locked(&self.store) {
            return Ok(store.clone());
        }
        let store = match &self.address {
            Some(address) => in_time(Store::at(address)).await?,
            None => in_time(Store::in_folder(&self.folder)).await?,
        };
        *locked(&self.store) = Some(store.clone());
        Ok(store)
    }

    /// Whether an earlier version, which kept no number, counted for SQLite here: the file is there, and accounts of a
    /// PostgreSQL were never saved.
    async fn counted_for_sqlite(&self) -> Result<bool, StoreError> {
        if self.address.is_none() || locked(&self.journal).unsettled().is_empty() {
            return Ok(false);
        }
        let folder = self.folder.clone();
        let look = move || -> io::Result<bool> {
            let is_there = |name: &str| folder.join(name).try_exists();
            let saved = is_there("accounts.json")? || is_there("accounts.json.broken")?;
            Ok(!saved && is_there("accounts.db")?)
        };
        let failed = |error| StoreError::Folder { path: self.folder.clone(), error };
        on_disk(look).await.map_err(failed)
    }

    async fn count_for(&self, identity: i64) -> Result<(), StoreError> {
        let path = path_in(&self.folder);
        let text = format!("{identity}\n");
        let kept = path.clone();
        let written = on_disk(move || state_files::replace(&kept, text.as_bytes()).map(drop)).await;
        written.map_err(|error| StoreError::Folder { path, error })?;
        *locked(&self.counts_for) = Some(identity);
        Ok(())
    }
}
