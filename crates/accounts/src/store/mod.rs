//! The accounts' database: SQLite in a file of this machine, or PostgreSQL, by one schema and one
//! set of statements; all SQL is in this folder.

mod grants;
mod identity;
pub(crate) mod in_time;
mod read_only;
mod relays;
mod rows;
#[cfg(feature = "postgres")]
mod secured;
mod sql;
mod table;
mod taken;
mod unreadable;

pub use grants::{Grant, GrantRequest};
pub use relays::{FleetRelay, SeenBefore};
pub use table::AccountTable;
pub use unreadable::UnreadableAccount;

use crate::account::{Account, AccountId, BadName, Credential};
use crate::journal::Total;
use ekiden_linux::host::state_files;
use jiff::Timestamp;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::error::BoxDynError;
use sqlx::migrate::{MigrateError, Migration, MigrationSource, MigrationType, Migrator};
use sqlx::{
    Any, AnyPool, AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Row as _,
    SqlStr, Transaction,
};
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;
use taken::{is_taken, refuse_similar, taken};

/// Connections to the database at once; nothing that is served waits for one.
const CONNECTIONS: u32 = 4;
/// Totals of a journal that are read at once.
const TOTALS: i64 = 1_000;
/// A database that does not take a connection for so long is away.
const PATIENCE: Duration = Duration::from_secs(3);
/// Why the database could not do something.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum StoreError {
    #[error("{path} cannot be used: {error}")]
    Folder { path: PathBuf, error: io::Error },
    #[error("invalid database address: {0}; write it like postgres://user@host/name")]
    Address(String),
    /// It does not answer, or answers with an error.
    #[error("the database failed: {0}")]
    Database(#[from] sqlx::Error),
    /// Its server cannot be connected to, or has no connection left: a host with its port, or a socket's folder.
    #[error(
        "the database failed: no connection to {server}, which `database` in [accounts] names: {why}; check the name, and that the server runs"
    )]
    Unreached { server: String, why: String },
    /// Seconds.
    #[error("the database did not answer within {0} s")]
    Late(u64),
    #[error(
        "cannot prepare the database's tables: {0}; another version of ekiden may have created them"
    )]
    Schema(#[from] MigrateError),
    #[error(
        "something holds a lock on the database's tables, perhaps another ekiden that prepares them; \
         try again when it has ended (`SELECT * FROM pg_stat_activity` shows it)"
    )]
    Locked,
    /// A state folder's usage and grants belong to other accounts than this database's.
    #[error(
        "{folder} counted for another database: move usage.journal, usage.opened, grants.json, relay.id, accounts.json and database.id out of it; if this is the same database, remove database.id alone, or an accounts.db that was never used; then restart"
    )]
    OtherDatabase { folder: PathBuf },
    #[error("no account \"{0}\"; `ekiden account list` lists all")]
    NoSuchAccount(String),
    #[error("account \"{0}\" exists already; `ekiden account set` changes it")]
    NameTaken(String),
    #[error(
        "account \"{there}\" exists already, and \"{asked}\" differs from it by case alone; use another name"
    )]
    NameSimilar { there: String, asked: String },
    #[error(
        "the {} \"{identity}\" already belongs to a device; each may belong to one",
        identified_by(kind)
    )]
    CredentialTaken {
        /// `password`, `prefix`, `peer` or `wireguard`.
        kind: &'static str,
        identity: String,
    },
    #[error("the account has two devices \"{0}\"")]
    DuplicateDevice(String),
    #[error("{0}")]
    Name(#[from] BadName),
    #[error("{0}; {remedy}", remedy = UnreadableAccount::REMEDY)]
    Unreadable(UnreadableAccount),
    #[error("{0}")]
    Refused(String),
}

/// What the identity of a credential is called.
fn identified_by(kind: &str) -> &str {
    match kind {
        "password" => "user name",
        "wireguard" => "WireGuard key",
        kind => kind,
    }
}

/// What an account used in a period, on all relays together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Its number.
    pub account: AccountId,
    /// Its name; `None` once it is removed.
    pub name: Option<String>,
    /// When the period began, seconds since 1970.
    pub begun: i64,
    /// Bytes towards it.
    pub down: u64,
    /// Bytes from it.
    pub up: u64,
}

/// A database of accounts.
#[derive(Debug, Clone)]
pub struct Store {
    pool: AnyPool,
    shared: bool,
    /// The file, where it can only be read.
    read_only: Option<Arc<Path>>,
}

impl Store {
    /// SQLite in `accounts.db` of a folder, which is made if missing. On a disk that can only be read, changes are refused.
    pub async fn in_folder(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join("accounts.db");
        state_files::make_folder(folder)
            .map_err(|error| StoreError::Folder { path: folder.to_owned(), error })?;
        // hashes of passwords are for this user alone
        if let Err(error) = state_files::open(&path) {
            return Self::to_read(&path, error).await;
        }
        // it is there; a link that takes its place meanwhile makes no file elsewhere
        Self::open(&format!("sqlite://{}?mode=rw", encoded(&path)), false).await
    }

    /// PostgreSQL at an address such as `postgres://user@host/name`. A server on another machine has to show a certificate
    /// for its name, unless `?sslmode=` or `PGSSLMODE` asks for less.
    pub async fn at(address: &str) -> Result<Self, StoreError> {
        if !address.starts_with("postgres://") && !address.starts_with("postgresql://") {
            return Err(StoreError::Address("it does not begin with postgres://".to_owned()));
        }
        #[cfg(feature = "postgres")]
        {
            let said = std::env::var_os("PGSSLMODE").is_some();
            let opened = Self::open(&secured::address(address, said)?, true).await;
            opened.map_err(|error| secured::named(error, address))
        }
        #[cfg(not(feature = "postgres"))]
        {
            let why = "this program was built without the feature `postgres`";
            Err(StoreError::Address(why.to_owned()))
        }
    }

    async fn open(address: &str, shared: bool) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let options = AnyConnectOptions::from_str(address);
        let options = options.map_err(|error| StoreError::Address(error.to_string()))?;
        // statements hold nothing secret, and nobody reads thousands of them
        let options = options.disable_statement_logging();
        let settings = if shared { sql::POSTGRESQL } else { sql::SQLITE };
        let pool = AnyPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(PATIENCE)
            .after_connect(move |connection, _| {
                Box::pin(async move {
                    connection.execute(settings).await?;
                    Ok(())
                })
            })
            .after_release(move |connection, _| {
                Box::pin(async move {
                    if !shared {
                        return Ok(true);
                    }
                    // the library asks without a limit, and meanwhile it takes a place
                    let answer = tokio::time::timeout(PATIENCE, connection.ping()).await;
                    Ok(matches!(answer, Ok(Ok(()))))
                })
            })
            .connect_with(options)
            .await?;
        Migrator::new(Schema).await?.run(&pool).await.map_err(unprepared)?;
        let store = Self { pool, shared, read_only: None };
        store.identify().await?;
        Ok(store)
    }

    /// Whether other relays may use it too: PostgreSQL.
    pub const fn is_shared(&self) -> bool {
        self.shared
    }

    /// Ends its connections; one that does not come back within 5 s is given up.
    pub async fn close(&self) {
        let _late = tokio::time::timeout(in_time::PATIENCE, self.pool.close()).await;
    }

    /// Its version, which grows with every change to an account.
    pub async fn version(&self) -> Result<i64, StoreError> {
        Ok(sqlx::query(sql::VERSION).fetch_one(&self.pool).await?.try_get(0)?)
    }

    /// What the database's clock shows; `None` where that is this machine's clock.
    pub async fn clock(&self) -> Result<Option<Timestamp>, StoreError> {
        if !self.shared {
            return Ok(None);
        }
        let second: i64 = sqlx::query(sql::CLOCK).fetch_one(&self.pool).await?.try_get(0)?;
        Ok(Timestamp::from_second(second).ok())
    }

    /// One account by its name. Errors: [`StoreError::NoSuchAccount`].
    pub async fn account(&self, name: &str) -> Result<Account, StoreError> {
        let mut transaction = self.pool.begin().await?;
        find(&mut transaction, name).await
    }

    /// Adds an account and returns its number, whatever it was. Errors: its name, or a device's, is taken.
    pub async fn add(&self, account: &Account) -> Result<AccountId, StoreError> {
        check(account)?;
        self.check_writable()?;
        let attributes = rows::attributes(account)?;
        let mut transaction = self.pool.begin().await?;
        sqlx::query(sql::CHANGED).execute(&mut *transaction).await?;
        let row = sqlx::query(sql::NEXT_ACCOUNT).fetch_one(&mut *transaction).await?;
        let id: i64 = row.try_get(0)?;
        let added = sqlx::query(sql::ADD_ACCOUNT).bind(id).bind(&account.name).bind(attributes);
        let added = added.execute(&mut *transaction).await;
        added.map_err(|error| taken(error, &account.name))?;
        refuse_similar(&mut transaction, id, &account.name).await?;
        add_devices(&mut transaction, id, account).await?;
        transaction.commit().await?;
        Ok(AccountId(id))
    }

    /// Changes an account, all at once or not at all; returns the result. Fails as [`add`](Self::add) and `change` do.
    pub async fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut Account) -> Result<(), StoreError> + Send,
    ) -> Result<Account, StoreError> {
        self.check_writable()?;
        let mut transaction = self.pool.begin().await?;
        sqlx::query(sql::CHANGED).execute(&mut *transaction).await?;
        let mut account = find(&mut transaction, name).await?;
        let (id, before) = (account.id, account.name.clone());
        change(&mut account)?;
        account.id = id;
        check(&account)?;
        let attributes = rows::attributes(&account)?;
        let changed = sqlx::query(sql::SET_ACCOUNT).bind(id.0).bind(&account.name).bind(attributes);
        let changed = changed.execute(&mut *transaction).await;
        changed.map_err(|error| taken(error, &account.name))?;
        // an earlier version may have taken both
        if account.name != before {
            refuse_similar(&mut transaction, id.0, &account.name).await?;
        }
        sqlx::query(sql::REMOVE_DEVICES).bind(id.0).execute(&mut *transaction).await?;
        add_devices(&mut transaction, id.0, &account).await?;
        transaction.commit().await?;
        Ok(account)
    }

    /// Removes an account; its usage stays. Errors: [`StoreError::NoSuchAccount`].
    pub async fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.check_writable()?;
        let mut transaction = self.pool.begin().await?;
        sqlx::query(sql::CHANGED).execute(&mut *transaction).await?;
        let removed = sqlx::query(sql::REMOVE_ACCOUNT).bind(name);
        if removed.execute(&mut *transaction).await?.rows_affected() == 0 {
            return Err(StoreError::NoSuchAccount(name.to_owned()));
        }
        Ok(transaction.commit().await?)
    }

    /// Puts totals of a journal into the database by one statement: all or none. Each account and
    /// period may be among them once; some thousands are the most. Repeat it when its outcome is
    /// unknown.
    pub async fn settle(&self, journal: &str, totals: &[Total]) -> Result<(), StoreError> {
        if totals.is_empty() {
            return Ok(());
        }
        let statement = AssertSqlSafe(sql::settle(totals.len()));
        // connections remember few statements, and sizes are many
        let mut settle = sqlx::query(statement).persistent(false).bind(journal);
        for total in totals {
            let used = [total.down, total.up].map(rows::number);
            settle = settle.bind(total.account.0).bind(total.begun).bind(used[0]).bind(used[1]);
        }
        settle.execute(&self.pool).await?;
        Ok(())
    }

    /// What a journal settled in periods that began at `since` (seconds since 1970) or later, and in those that never end: the
    /// next behind an account and its period, in their order; none behind the last.
    pub(crate) async fn settled(
        &self,
        journal: &str,
        since: i64,
        (account, begun): (AccountId, i64),
    ) -> Result<Vec<Total>, StoreError> {
        let found = sqlx::query(sql::SETTLED).bind(journal).bind(since);
        let found = found.bind(account.0).bind(begun).bind(TOTALS).fetch_all(&self.pool).await?;
        found.iter().map(rows::total).collect()
    }

    /// The usage of all accounts in periods that began at `since` (seconds since 1970) or later.
    pub async fn usage(&self, since: i64) -> Result<Vec<Usage>, StoreError> {
        let found = sqlx::query(sql::USAGE).bind(since).fetch_all(&self.pool).await?;
        found.iter().map(rows::usage).collect()
    }

    /// What accounts used, on all relays together, in the periods that began at `begun` (seconds since 1970), and in no
    /// other.
    pub async fn used_in(&self, begun: i64) -> Result<Vec<Total>, StoreError> {
        let found = sqlx::query(sql::USED_IN).bind(begun).fetch_all(&self.pool).await?;
        found.iter().map(rows::total).collect()
    }
}

#[derive(Debug)]
struct Schema;

type Resolved = Result<Vec<Migration>, BoxDynError>;

impl MigrationSource<'static> for Schema {
    fn resolve(self) -> Pin<Box<dyn Future<Output = Resolved> + Send + 'static>> {
        let migration = |(number, name, text): (i64, &'static str, &'static str)| {
            let text = SqlStr::from_static(text);
            Migration::new(number, name.into(), MigrationType::Simple, text, false)
        };
        Box::pin(async move { Ok(sql::MIGRATIONS.map(migration).into()) })
    }
}

/// Why the tables could not be prepared: of a lock that was not to be had, PostgreSQL tells nothing but that.
fn unprepared(error: MigrateError) -> StoreError {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)
            if in_time::is_late(&error) =>
        {
            StoreError::Locked
        }
        error => error.into(),
    }
}

fn encoded(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt as _;
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' => {
                text.push(char::from(*byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

fn check(account: &Account) -> Result<(), StoreError> {
    Account::check_name(&account.name)?;
    for (index, device) in account.devices.iter().enumerate() {
        Account::check_name(&device.name)?;
        if let Credential::Password { user, .. } = &device.credential {
            Account::check_user(user)?;
        }
        if account.devices[..index].iter().any(|before| before.name == device.name) {
            return Err(StoreError::DuplicateDevice(device.name.clone()));
        }
    }
    Ok(())
}

async fn find(transaction: &mut Transaction<'_, Any>, name: &str) -> Result<Account, StoreError> {
    let found = sqlx::query(sql::ACCOUNT).bind(name).fetch_optional(&mut **transaction).await?;
    let row = found.ok_or_else(|| StoreError::NoSuchAccount(name.to_owned()))?;
    let id: i64 = row.try_get("id")?;
    let devices = sqlx::query(sql::ITS_DEVICES).bind(id).fetch_all(&mut **transaction).await?;
    let account = rows::accounts(&[row], &devices).pop();
    let account = account.ok_or_else(|| StoreError::NoSuchAccount(name.to_owned()))?;
    account.map_err(StoreError::Unreadable)
}

async fn add_devices(
    transaction: &mut Transaction<'_, Any>,
    id: i64,
    account: &Account,
) -> Result<(), StoreError> {
    for device in &account.devices {
        let (kind, identity) = device.credential.identity();
        let hash = match &device.credential {
            Credential::Password { hash, .. } => Some(hash.clone()),
            Credential::Wireguard { v6, key, .. } => Some(format!("{v6} {key}")),
            Credential::Prefix(_) | Credential::Peer(_) => None,
        };
        let added = sqlx::query(sql::ADD_DEVICE)
            .bind(id)
            .bind(&device.name)
            .bind(kind)
            .bind(&identity)
            .bind(hash)
            .execute(&mut **transaction)
            .await;
        added.map_err(|error| match is_taken(&error) {
            true => StoreError::CredentialTaken { kind, identity },
            false => error.into(),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_that_does_not_come_back_does_not_hold_up_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::in_folder(folder.path()).await.unwrap();
        let held = store.pool.acquire().await.unwrap();
        tokio::time::pause();
        let closed = tokio::time::timeout(Duration::from_secs(60), store.close()).await;
        assert!(closed.is_ok() && store.pool.is_closed());
        drop(held);
    }
}
