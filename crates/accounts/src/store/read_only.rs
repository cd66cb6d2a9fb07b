//! A database of SQLite on a disk that can only be read: accounts and usage are read, and changes are refused.

use super::{Store, StoreError, encoded};
use ekiden_linux::host::state_files;
use rustix::io::Errno;
use std::io;
use std::path::Path;

impl Store {
    /// The database in a file that could not be opened to be written. Errors: `why`, where more hinders than a disk that can
    /// only be read.
    pub(super) async fn to_read(path: &Path, why: io::Error) -> Result<Self, StoreError> {
        let refused = |error| StoreError::Folder { path: path.to_owned(), error };
        if why.kind() != io::ErrorKind::ReadOnlyFilesystem || state_files::find(path).is_err() {
            return Err(refused(why));
        }
        // whoever has it open, or left it in haste, has a log of changes beside it; without one SQLite needs none, and cannot
        // make it here
        let has = |log| path.with_file_name(log).try_exists().unwrap_or(true);
        let is_in_use = has("accounts.db-wal") || has("accounts.db-journal");
        let how = if is_in_use { "" } else { "&immutable=1" };
        let address = format!("sqlite://{}?mode=ro{how}", encoded(path));
        match Self::open(&address, false).await {
            Ok(store) => Ok(Self { read_only: Some(path.into()), ..store }),
            Err(error) => {
                tracing::debug!(%error, "the accounts' database cannot be read, either");
                Err(refused(why))
            }
        }
    }

    /// Whether it was opened to read alone.
    pub(crate) const fn is_to_read(&self) -> bool {
        self.read_only.is_some()
    }

    /// Errors: its file can only be read.
    pub(super) fn check_writable(&self) -> Result<(), StoreError> {
        match &self.read_only {
            None => Ok(()),
            Some(path) => {
                Err(StoreError::Folder { path: path.to_path_buf(), error: Errno::ROFS.into() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;

    #[tokio::test]
    async fn accounts_on_a_disk_that_can_only_be_read_are_listed_and_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("accounts.db");
        let writer = Store::in_folder(folder.path()).await.unwrap();
        writer.add(&Account::named("h")).await.unwrap();
        for is_in_use in [true, false] {
            if !is_in_use {
                writer.close().await;
            }
            assert_eq!(folder.path().join("accounts.db-wal").exists(), is_in_use);
            let store = Store::to_read(&path, Errno::ROFS.into()).await.unwrap();
            assert_eq!(store.account("h").await.unwrap().name, "h");
            assert_eq!(store.accounts().await.unwrap().accounts.len(), 1);
            assert_eq!(store.usage(0).await.unwrap(), []);
            for refused in [
                store.add(&Account::named("g")).await.map(drop),
                store.change("h", |_| Ok(())).await.map(drop),
                store.remove("h").await,
            ] {
                let why = refused.unwrap_err().to_string();
                assert!(why.contains("accounts.db cannot be used: Read-only file system"), "{why}");
            }
            store.close().await;
        }
        // other reasons hold
        let denied = Store::to_read(&path, Errno::ACCESS.into()).await.unwrap_err();
        assert!(denied.to_string().contains("Permission denied"), "{denied}");
        let missing = Store::to_read(&folder.path().join("other.db"), Errno::ROFS.into()).await;
        assert!(missing.unwrap_err().to_string().contains("Read-only file system"));
    }
}
