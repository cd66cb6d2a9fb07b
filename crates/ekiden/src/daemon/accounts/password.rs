//! A user's own new password, from the page of its account.

use ekiden_accounts::{
    AccountId, AccountSync, Backoff, BackoffLimits, Credential, StoreError, hash, replace_password,
};
use ekiden_admin::ChangeByCommand;
use ekiden_model::units::{Span, Time};
use ekiden_proxy::LogThrottle;
use ekiden_proxy::policy::accounts::PasswordChange;
use std::time::Duration;

/// The longest wait for the database.
const PATIENCE: Duration = Duration::from_secs(5);
/// From one try to the next.
const APART: Span = Span::from_secs(60);

/// Each account's last try. One that changes something is a line of the operators' audit log, and has every relay read
/// all accounts anew.
#[derive(Debug)]
pub(super) struct Tries(Backoff<AccountId>);

impl Tries {
    /// No account has tried yet.
    pub(super) const fn new() -> Self {
        Self(Backoff::new(BackoffLimits {
            free: 0,
            first: APART,
            most: APART,
            forget: APART,
            remembered: 16_384,
        }))
    }

    /// A try, whatever comes of it. Errors: the account has to wait for so long.
    pub(super) fn begin(&mut self, account: AccountId, now: Time) -> Result<(), Span> {
        let wait = self.0.wait(now, &account);
        if wait > Span::ZERO {
            return Err(wait);
        }
        self.0.on_failure(now, &account);
        Ok(())
    }
}

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
    // the user's own refusal changed nothing
    if !matches!(changed, Err(StoreError::Refused(_))) {
        record(sync, user, account, &changed).await;
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_accounts::{Account, Attributes, Device, Store};
    use std::fs;

    #[test]
    fn an_account_has_one_try_a_minute_and_holds_up_no_other() {
        let at = |seconds| Time::ZERO + Span::from_secs(seconds);
        let mut tries = Tries::new();
        assert_eq!(tries.begin(AccountId(1), at(5)), Ok(()));
        // one that waits does not wait longer for it
        for (second, left) in [(5, 60), (6, 59), (64, 1)] {
            assert_eq!(tries.begin(AccountId(1), at(second)), Err(Span::from_secs(left)));
        }
        assert_eq!(tries.begin(AccountId(2), at(6)), Ok(()));
        assert_eq!(tries.begin(AccountId(1), at(65)), Ok(()));
        assert_eq!(tries.begin(AccountId(1), at(66)), Err(Span::from_secs(59)));
    }

    #[tokio::test]
    async fn a_change_is_in_the_audit_log_and_a_user_s_own_refusal_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::in_folder(folder.path()).await.unwrap();
        let old = hash("the old password").unwrap();
        let credential = Credential::Password { user: "anna".to_owned(), hash: old };
        let devices = vec![Device { name: "anna".to_owned(), credential }];
        let (id, name, attributes) = (AccountId(0), "tanaka".to_owned(), Attributes::default());
        store.add(&Account { id, name, devices, attributes }).await.unwrap();
        // it never looks again, so that the second change comes too late
        let sync = AccountSync::open(folder.path(), None, "r").await.unwrap();
        let first = change(&sync, "anna", "tanaka", "a new password").await;
        assert_eq!(first, PasswordChange::Changed);
        let second = change(&sync, "anna", "tanaka", "another password").await;
        assert!(matches!(second, PasswordChange::Refused(_)), "{second:?}");
        let audit = fs::read_to_string(folder.path().join("audit-changes.jsonl")).unwrap();
        assert_eq!(audit.lines().count(), 1, "{audit}");
    }
}
