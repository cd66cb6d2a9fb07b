//! A user's own new password, from the page of its account.

use ekiden_accounts::{AccountSync, Credential, StoreError, hash, replace_password};
use ekiden_admin::ChangeByCommand;
use ekiden_proxy::LogThrottle;
use ekiden_proxy::policy::accounts::PasswordChange;
use std::time::Duration;

/// The longest wait for the database.
const PATIENCE: Duration = Duration::from_secs(5);

/// Keeps the hash of `new` for a user, whose old password was checked, and writes that down in the audit log.
pub(super) async fn change(
    sync: &AccountSync,
    user: &str,
    account: &str,
    new: &str,
) -> PasswordChange {
    let (directory, text) = (sync.directory(), new.to_owned());
    let Some((_, Credential::Password { hash: old, .. })) = directory.by_user(user) else {
        return PasswordChange::Refused("this user was removed meanwhile".to_owned());
    };
    // some 20 ms of a core
    let new = match tokio::task::spawn_blocking(move || hash(&text)).await {
        Ok(Ok(new)) => new,
        Ok(Err(bad)) => return PasswordChange::Refused(bad.to_string()),
        Err(_) => return PasswordChange::Away,
    };
    let changing = async {
        let store = sync.database().await?;
        store.change(account, |account| replace_password(account, user, (old.as_str(), new))).await
    };
    let changed = match tokio::time::timeout(PATIENCE, changing).await {
        Ok(changed) => changed.map(drop),
        Err(_) => {
            static LOGGED: LogThrottle = LogThrottle::new();
            if LOGGED.is_due() {
                tracing::warn!("the accounts' database did not take a new password within 5 s");
            }
            return PasswordChange::Away;
        }
    };
    record(sync, user, account, &changed).await;
    match changed {
        Ok(()) => PasswordChange::Changed,
        Err(StoreError::Refused(why)) => PasswordChange::Refused(why),
        Err(error) => {
            static LOGGED: LogThrottle = LogThrottle::new();
            if LOGGED.is_due() {
                tracing::warn!("a user's new password cannot be kept: {error}");
            }
            PasswordChange::Away
        }
    }
}

/// A change stands if it cannot be written down; the log says so.
async fn record(sync: &AccountSync, user: &str, account: &str, changed: &Result<(), StoreError>) {
    let (folder, why) = (sync.folder().to_owned(), changed.as_ref().err().map(ToString::to_string));
    let [user, account] = [user, account].map(str::to_owned);
    let written = tokio::task::spawn_blocking(move || {
        let result = why.as_deref().map_or(Ok("its own password"), Err);
        let command = "account's page";
        let change = ChangeByCommand { user: &user, command, object: &account, result };
        ekiden_admin::record_command(&folder, &change)
    });
    static LOGGED: LogThrottle = LogThrottle::new();
    if let Ok(Err(error)) = written.await
        && LOGGED.is_due()
    {
        tracing::error!(%error, "a user's new password is not in the audit log");
    }
}
