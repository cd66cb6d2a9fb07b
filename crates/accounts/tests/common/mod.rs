//! What the tests with real databases share: accounts, and relays that keep them.
#![allow(dead_code, unreachable_pub)] // each test program uses its part
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot go on panics

use ekiden_accounts::{Account, AccountId, AccountSync, Attributes, Credential, Device, Store};
pub use ekiden_testkit::Postgres;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const LONG: Duration = Duration::from_secs(60);

/// An account with one device.
pub fn account(name: &str, credential: Credential) -> Account {
    Account {
        id: AccountId(0),
        name: name.to_owned(),
        devices: vec![Device { name: "router".to_owned(), credential }],
        attributes: Attributes::default(),
    }
}

pub fn prefix(text: &str) -> Credential {
    Credential::Prefix(text.parse().unwrap())
}

/// A PostgreSQL of the test's own, its address, and its tables; none where there is no such program.
pub async fn tables() -> Option<(Postgres, String, Store)> {
    let postgres = Postgres::begin()?;
    let address = postgres.address();
    let store = Store::at(&address).await.unwrap();
    Some((postgres, address, store))
}

/// Adds an account with a quota such as `16 MiB/month`.
pub async fn add_with_quota(store: &Store, quota: &str) -> AccountId {
    let mut account = account("h", prefix("100.64.0.0/24"));
    account.attributes.quota = Some(quota.parse().unwrap());
    store.add(&account).await.unwrap()
}

/// A sync that runs until the test ends.
pub async fn sync(folder: &Path, address: Option<&str>) -> Arc<AccountSync> {
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    let sync = Arc::new(AccountSync::open(folder, address, &name).await.unwrap());
    let running = Arc::clone(&sync);
    tokio::spawn(async move { running.run().await });
    sync
}

pub async fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !happened() {
        assert!(Instant::now() < until, "{what} does not happen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn knows(sync: &AccountSync, address: &str) -> Option<AccountId> {
    sync.directory().by_address(address.parse().unwrap()).map(|account| account.id)
}

/// What an operator does by hand.
pub async fn execute(address: &str, statements: &[&'static str]) {
    sqlx::any::install_default_drivers();
    let pool = sqlx::AnyPool::connect(address).await.unwrap();
    for statement in statements {
        sqlx::query(*statement).execute(&pool).await.unwrap();
    }
    pool.close().await;
}

/// A sync in a folder, and what lets it run.
pub async fn life(folder: &Path, address: &str) -> (Arc<AccountSync>, tokio::task::JoinHandle<()>) {
    let sync = Arc::new(AccountSync::open(folder, Some(address), "r").await.unwrap());
    let running = Arc::clone(&sync);
    (sync, tokio::spawn(async move { running.run().await }))
}

/// Ends it as a stop of the relay does.
pub async fn end((sync, task): (Arc<AccountSync>, tokio::task::JoinHandle<()>)) {
    task.abort();
    let _ = task.await;
    sync.close().await;
}
