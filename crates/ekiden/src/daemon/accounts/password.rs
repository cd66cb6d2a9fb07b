//! A user's own new password, from the page of its account.

use ekiden_accounts::{
    AccountId, AccountSync, Backoff, BackoffLimits, Credential, StoreError, hash, replace_password,
};
use ekiden_admin::ChangeByCommand;
use ekiden_linux::host::panics::caught;
use ekiden_model::units::{Span, Time};
use ekiden_proxy::LogThrottle;
use ekiden_proxy::policy::accounts::PasswordChange;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// The longest wait for an answer, of the database and of the audit log's disk.
const PATIENCE: Duration = Duration::from_secs(5);
/// A database that has not answered by then is not waited for any more, and a place among its connections is free again.
const LONGEST: Duration = Duration::from_secs(60);
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

/// Keeps the hash of `new` for a user, whose old password was checked, and writes that down in the audit log. The turn
/// is over when the database has answered, however long it takes.
pub(super) async fn change(
    sync: &Arc<AccountSync>,
    (user, account): (&str, &str),
    new: &str,
    turn: OwnedMutexGuard<Tries>,
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
    let (of, old) = (Arc::clone(sync), old.clone());
    let (whose, name) = (user.to_owned(), account.to_owned());
    let changing = async move {
        let _turn = turn;
        let store = of.database().await?;
        let replaced =
            store.change(&name, |account| replace_password(account, &whose, (old.as_str(), new)));
        replaced.await.map(drop)
    };
    keep(sync, (user, account), changing, PATIENCE).await
}

/// Changes, and writes that down, also where its user waits no more: after `patience` the answer comes alone.
async fn keep(
    sync: &AccountSync,
    (user, account): (&str, &str),
    changing: impl Future<Output = Result<(), StoreError>> + Send + 'static,
    patience: Duration,
) -> PasswordChange {
    let folder = sync.folder().to_owned();
    let [user, account] = [user, account].map(str::to_owned);
    let kept = tokio::spawn(async move {
        let (changed, answer) = match tokio::time::timeout(LONGEST, caught(changing)).await {
            Ok(Ok(Ok(()))) => (Ok(()), PasswordChange::Changed),
            // the user's own refusal changed nothing
            Ok(Ok(Err(StoreError::Refused(why)))) => return PasswordChange::Refused(why),
            Ok(Ok(Err(error))) => (Err(error.to_string()), PasswordChange::Away),
            Ok(Err(panic)) => {
                (Err(format!("{panic}; it may have taken effect")), PasswordChange::Late)
            }
            Err(_) => {
                let seconds = LONGEST.as_secs();
                let why = format!("no answer within {seconds} s; it may have taken effect");
                (Err(why), PasswordChange::Late)
            }
        };
        record(folder, (user, account), changed.clone()).await;
        let Err(why) = changed else { return answer };
        static LOGGED: LogThrottle = LogThrottle::new();
        if LOGGED.is_due() {
            tracing::warn!("a user's new password cannot be kept: {why}");
        }
        answer
    });
    match tokio::time::timeout(patience, kept).await {
        Ok(answer) => answer.unwrap_or(PasswordChange::Late),
        Err(_) => {
            static LOGGED: LogThrottle = LogThrottle::new();
            if LOGGED.is_due() {
                tracing::warn!("a user's new password was not kept, or not on record, in time");
            }
            PasswordChange::Late
        }
    }
}

/// A change stands if it cannot be written down; the log says so.
async fn record(folder: PathBuf, (user, account): (String, String), changed: Result<(), String>) {
    let written = tokio::task::spawn_blocking(move || {
        let result = changed.as_ref().map(|_| "its own password").map_err(String::as_str);
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
        let sync = Arc::new(AccountSync::open(folder.path(), None, "r").await.unwrap());
        let turns = Arc::new(tokio::sync::Mutex::new(Tries::new()));
        let change = async |new| {
            let turn = Arc::clone(&turns).try_lock_owned().unwrap();
            change(&sync, ("anna", "tanaka"), new, turn).await
        };
        let first = change("a new password").await;
        assert_eq!(first, PasswordChange::Changed);
        let second = change("another password").await;
        assert!(matches!(second, PasswordChange::Refused(_)), "{second:?}");
        let audit = fs::read_to_string(folder.path().join("audit-changes.jsonl")).unwrap();
        assert_eq!(audit.lines().count(), 1, "{audit}");
    }

    #[tokio::test]
    async fn a_change_that_outlasts_its_answer_is_in_the_audit_log() {
        let folder = tempfile::tempdir().unwrap();
        let sync = AccountSync::open(folder.path(), None, "r").await.unwrap();
        let (go, goes_on) = tokio::sync::oneshot::channel::<()>();
        let changing = async move {
            goes_on.await.unwrap();
            Ok(())
        };
        let answer = keep(&sync, ("anna", "tanaka"), changing, Duration::ZERO).await;
        assert_eq!(answer, PasswordChange::Late);
        go.send(()).unwrap();
        let audit =
            || fs::read_to_string(folder.path().join("audit-changes.jsonl")).unwrap_or_default();
        while !audit().ends_with('\n') {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let audit = audit();
        assert!(audit.contains("\"path\":\"tanaka\"") && audit.contains("own password"), "{audit}");
    }

    async fn breaks() -> Result<(), StoreError> {
        panic!("a test asked for it")
    }

    #[tokio::test]
    async fn a_change_that_breaks_off_is_in_the_audit_log() {
        let folder = tempfile::tempdir().unwrap();
        let sync = AccountSync::open(folder.path(), None, "r").await.unwrap();
        let answer = keep(&sync, ("anna", "tanaka"), breaks(), LONGEST).await;
        assert_eq!(answer, PasswordChange::Late);
        let audit = fs::read_to_string(folder.path().join("audit-changes.jsonl")).unwrap();
        assert!(audit.contains("it may have taken effect"), "{audit}");
    }
}
