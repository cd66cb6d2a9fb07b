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

/// Whether SQLite found that it may only read (<https://sqlite.org/rescode.html#readonly>).
fn is_read_only(error: &StoreError) -> bool {
    const READONLY: u32 = 8;
    let StoreError::Database(error) = error else { return false };
    let code = error.as_database_error().and_then(|error| error.code());
    let code = code.and_then(|code| code.parse::<u32>().ok());
    // its lowest byte is the kind, the others say more
    code.is_some_and(|code| code & 0xff == READONLY)
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

    /// A connection that SQLite opened while its file could only be read goes on so. After such an error all are opened
    /// anew, and after any error those that were opened to read alone: what they read may have changed since.
    pub(super) async fn leave_read_only(&self, error: &StoreError) {
        let is_to_read = || locked(&self.store).as_ref().is_some_and(Store::is_to_read);
        if self.address.is_none() && (is_read_only(error) || is_to_read()) {
            let store = locked(&self.store).take();
            if let Some(store) = store {
                store.close().await;
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::ConnectOptions as _;
    use sqlx::sqlite::SqliteConnectOptions;

    #[tokio::test]
    async fn a_file_that_may_only_be_read_is_told_from_other_errors() {
        let folder = tempfile::tempdir().unwrap();
        Store::in_folder(folder.path()).await.unwrap().close().await;
        let file = folder.path().join("accounts.db");
        let failed = async |sql: &'static str| {
            let options = SqliteConnectOptions::new().filename(&file).read_only(true);
            let mut connection = options.connect().await.unwrap();
            StoreError::from(sqlx::query(sql).execute(&mut connection).await.unwrap_err())
        };
        assert!(is_read_only(&failed("CREATE TABLE other (number INTEGER)").await));
        assert!(!is_read_only(&failed("SELECT * FROM other").await));
        assert!(!is_read_only(&StoreError::Late(5)));
    }
}
