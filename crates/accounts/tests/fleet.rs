//! Relays of one PostgreSQL: its connections, its quotas, and journals that were moved or brought back.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot go on panics

mod common;

use common::{LONG, Postgres, sync, wait_for};
use ekiden_accounts::{AccountId, Store, StoreError, Total};

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_wait_for_a_lock_end_by_themselves_and_keep_no_connection() {
    let Some(postgres) = Postgres::begin() else { return };
    let address = postgres.address();
    let store = Store::at(&address).await.unwrap();
    let pool = sqlx::AnyPool::connect(&address).await.unwrap();
    let mut holder = pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE traffic").execute(&mut *holder).await.unwrap();
    let settle = |n| {
        let store = &store;
        async move {
            let total = [Total { account: AccountId(n), begun: 0, down: 1, up: 1 }];
            tokio::time::timeout(LONG, store.settle("journal", &total)).await
        }
    };
    // on all connections that there may be
    let settled = tokio::join!(settle(1), settle(2), settle(3), settle(4));
    for settled in [settled.0, settled.1, settled.2, settled.3] {
        let error = settled.expect("the statement waits").unwrap_err();
        let StoreError::Database(error) = error else { panic!("{error}") };
        let code = error.as_database_error().and_then(|error| error.code());
        assert_eq!(code.as_deref(), Some("55P03"), "{error}");
    }
    let waiting = "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let waiting: i64 = sqlx::query_scalar(waiting).fetch_one(&pool).await.unwrap();
    assert_eq!(waiting, 0);
    // to a relay this is a database that does not answer
    let folder = tempfile::tempdir().unwrap();
    let relay = sync(folder.path(), Some(&address)).await;
    relay.used(AccountId(1), 1, 1);
    let is_late = || relay.status().away.is_some_and(|why| why.contains("did not answer"));
    wait_for("noticing that it does not answer", is_late).await;
    holder.rollback().await.unwrap();
    wait_for("settling", || relay.status().unsettled == 0).await;
}
