//! Relays of one PostgreSQL: its connections, its quotas, and journals that were moved or brought back.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot go on panics

mod common;

use common::{
    LONG, Postgres, account, add_with_quota, end, execute, knows, life, prefix, sync, tables,
    wait_for,
};
use ekiden_accounts::{AccountId, AccountSync, GrantRequest, Store, StoreError, Total};
use std::path::Path;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn statements_that_wait_for_a_lock_end_by_themselves_and_keep_no_connection() {
    let Some((_postgres, address, store)) = tables().await else { return };
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

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_on_the_tables_is_no_other_version_of_ekiden() {
    let Some((_postgres, address, store)) = tables().await else { return };
    // this one has prepared them
    store.close().await;
    let pool = sqlx::AnyPool::connect(&address).await.unwrap();
    let mut holder = pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE _sqlx_migrations").execute(&mut *holder).await.unwrap();
    let error = Store::at(&address).await.unwrap_err();
    assert!(matches!(error, StoreError::Locked), "{error}");
    holder.rollback().await.unwrap();
    Store::at(&address).await.unwrap().close().await;
}

const MIB: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn relays_that_an_account_does_not_use_keep_none_of_its_quota() {
    const QUOTA: u64 = 16 * MIB;
    let Some((_postgres, address, store)) = tables().await else { return };
    let id = add_with_quota(&store, "16 MiB/month").await;
    store.close().await;
    let folders: Vec<_> = (0..10).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut relays = Vec::new();
    for folder in &folders {
        let relay = sync(folder.path(), Some(&address)).await;
        assert_eq!(knows(&relay, "100.64.0.7"), Some(id));
        relays.push(relay);
    }
    // a slice is 1 MiB
    wait_for("the end of the quota", || {
        // each relay is asked what the account may, as it is each second
        let parts: Vec<_> = relays.iter().map(|relay| relay.part(id).unwrap()).collect();
        assert!(parts[1..].iter().all(|part| part.used == 0 && part.may == MIB));
        relays[0].used(id, parts[0].may - parts[0].used, 0);
        parts[0].may >= QUOTA - MIB
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_is_seen_before_it_is_granted_anything() {
    let Some((_postgres, address, store)) = tables().await else { return };
    let id = add_with_quota(&store, "16 MiB/month").await;
    store.close().await;
    let statements = [
        "CREATE TABLE unseen (relay TEXT)",
        "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         INSERT INTO unseen SELECT NEW.relay WHERE NOT EXISTS (SELECT 1 FROM relay WHERE id = NEW.relay); \
         RETURN NULL; END $$",
        "CREATE TRIGGER look AFTER INSERT ON lease FOR EACH ROW EXECUTE FUNCTION look()",
    ];
    execute(&address, &statements).await;
    let folder = tempfile::tempdir().unwrap();
    let relay = sync(folder.path(), Some(&address)).await;
    relay.used(id, MIB, 0);
    wait_for("a grant", || relay.part(id).unwrap().may > 2 * MIB).await;
    let pool = sqlx::AnyPool::connect(&address).await.unwrap();
    let unseen: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM unseen").fetch_one(&pool).await.unwrap();
    assert_eq!(unseen, 0);
}

#[tokio::test]
async fn a_grant_that_says_the_same_again_writes_nothing() {
    let Some((_postgres, address, store)) = tables().await else { return };
    let id = store.add(&account("h", prefix("100.64.0.0/24"))).await.unwrap();
    let pool = sqlx::AnyPool::connect(&address).await.unwrap();
    let mut written = Vec::new();
    for used in [100, 100, 101] {
        let asked = [GrantRequest { account: id, begun: 0, quota: 100, slice: 10, used }];
        store.grant("r", &asked, 0).await.unwrap();
        // the transaction that wrote the row
        let row = "SELECT CAST(xmin AS TEXT) FROM lease";
        let by: String = sqlx::query_scalar(row).fetch_one(&pool).await.unwrap();
        written.push(by);
    }
    assert!(written[0] == written[1] && written[1] != written[2], "{written:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_moves_with_its_journal_counts_no_byte_twice() {
    let Some((_postgres, address, store)) = tables().await else { return };
    let id = add_with_quota(&store, "100 MiB/month").await;
    let [old, new] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let relay = life(old.path(), &address).await;
    relay.0.used(id, 60 * MIB, 0);
    wait_for("a grant", || relay.0.part(id).unwrap().may > 62 * MIB).await;
    end(relay).await;
    for name in ["usage.journal", "grants.json"] {
        std::fs::copy(old.path().join(name), new.path().join(name)).unwrap();
    }
    let relay = life(new.path(), &address).await;
    // with the old grant as another relay's, 38 MiB were left
    relay.0.used(id, 10 * MIB, 0);
    wait_for("a grant", || relay.0.part(id).unwrap().may > 72 * MIB).await;
    assert_eq!(store.relays().await.unwrap().len(), 1);
    end(relay).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_of_a_copied_folder_part_and_both_are_counted() {
    const QUOTA: u64 = 100 * MIB;
    let Some((_postgres, address, store)) = tables().await else { return };
    let id = add_with_quota(&store, "100 MiB/month").await;
    let [one, two] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let relay = life(one.path(), &address).await;
    relay.0.used(id, 60 * MIB, 0);
    wait_for("a grant", || relay.0.part(id).unwrap().may > 62 * MIB).await;
    end(relay).await;
    for name in ["usage.journal", "grants.json", "relay.id"] {
        std::fs::copy(one.path().join(name), two.path().join(name)).unwrap();
    }
    let relays = [life(one.path(), &address).await, life(two.path(), &address).await];
    wait_for("parting", || relays.iter().any(|relay| relay.0.status().relays.len() > 1)).await;
    relays.iter().for_each(|relay| relay.0.used(id, 10 * MIB, 0));
    let is_settled = || relays.iter().all(|relay| relay.0.status().unsettled == 0);
    wait_for("settling", is_settled).await;
    assert_eq!(store.usage(0).await.unwrap()[0].down, 80 * MIB);
    // and a slice ahead each
    let may: u64 = relays.iter().map(|relay| relay.0.part(id).unwrap().may).sum();
    assert!(may <= QUOTA + 2 * (QUOTA / 64), "{may}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_was_brought_back_gets_usage_and_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let relay = sync(folder.path(), None).await;
    let store = Store::in_folder(folder.path()).await.unwrap();
    let id = store.add(&account("h", prefix("100.64.0.0/24"))).await.unwrap();
    wait_for("the account", || knows(&relay, "100.64.0.7") == Some(id)).await;
    relay.used(id, 1000, 10);
    wait_for("settling", || relay.status().unsettled == 0).await;
    // another version with the same number, and usage of before
    let address = format!("sqlite://{}/accounts.db", folder.path().display());
    let pool = sqlx::AnyPool::connect(&address).await.unwrap();
    let mut all = pool.begin().await.unwrap();
    for statement in [
        "DELETE FROM traffic",
        "UPDATE relay SET seen = seen - 1000",
        r#"UPDATE account SET attributes = '{"weight":7}'"#,
    ] {
        sqlx::query(statement).execute(&mut *all).await.unwrap();
    }
    all.commit().await.unwrap();
    wait_for("reading", || relay.directory().get(id).unwrap().attributes.weight == 7).await;
    wait_for("settling", || relay.status().unsettled == 0).await;
    let usage = store.usage(0).await.unwrap();
    assert_eq!((usage[0].down, usage[0].up), (1000, 10));
}

#[tokio::test]
async fn usage_of_one_database_is_not_settled_into_another() {
    let [one, two] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let mut ids = Vec::new();
    for (folder, name) in [(&one, "tanaka"), (&two, "sato")] {
        let store = Store::in_folder(folder.path()).await.unwrap();
        ids.push(store.add(&account(name, prefix("100.64.0.0/24"))).await.unwrap());
        store.close().await;
    }
    assert_eq!(ids[0], ids[1], "each database numbers its accounts by itself");
    let relay = AccountSync::open(one.path(), None, "r").await.unwrap();
    relay.used(ids[0], 60 * MIB, 0);
    relay.close().await;
    drop(relay);
    for name in ["accounts.db", "accounts.db-wal", "accounts.db-shm"] {
        let [from, to] = [&two, &one].map(|folder| folder.path().join(name));
        // only the first is there for sure
        let _missing = std::fs::remove_file(&to);
        let _missing = std::fs::rename(&from, &to);
    }
    let refused = AccountSync::open(one.path(), None, "r").await.unwrap_err();
    assert!(refused.to_string().contains("counted for another database"), "{refused}");
    let store = Store::in_folder(one.path()).await.unwrap();
    assert_eq!(store.accounts().await.unwrap().accounts[0].name, "sato");
    assert!(store.usage(0).await.unwrap().is_empty());
    // without what was counted, the folder takes it
    for name in ["usage.journal", "relay.id", "database.id"] {
        std::fs::remove_file(one.path().join(name)).unwrap();
    }
    let relay = AccountSync::open(one.path(), None, "r").await.unwrap();
    relay.used(ids[1], 7, 0);
    relay.close().await;
    assert_eq!(store.usage(0).await.unwrap()[0].down, 7);
}

#[tokio::test]
async fn usage_that_an_earlier_version_counted_for_sqlite_is_not_settled_into_postgresql() {
    let Some(postgres) = Postgres::begin() else { return };
    let (address, folder) = (postgres.address(), tempfile::tempdir().unwrap());
    let relay = AccountSync::open(folder.path(), None, "r").await.unwrap();
    relay.used(AccountId(1), 1000, 10);
    relay.close().await;
    drop(relay);
    std::fs::remove_file(folder.path().join("database.id")).unwrap();
    let open = || AccountSync::open(folder.path(), Some(&address), "r");
    let refused = open().await.unwrap_err();
    assert!(refused.to_string().contains("counted for another database"), "{refused}");
    let store = Store::at(&address).await.unwrap();
    assert!(store.usage(0).await.unwrap().is_empty());
    // one that came to PostgreSQL since then
    std::fs::write(folder.path().join("accounts.json"), "{}").unwrap();
    open().await.unwrap().close().await;
    assert_eq!(store.usage(0).await.unwrap()[0].down, 1000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_relay_settles_nothing_into_a_database_that_took_the_place_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_folder(folder.path()).await.unwrap();
    let id = store.add(&account("h", prefix("100.64.0.0/24"))).await.unwrap();
    let relay = sync(folder.path(), None).await;
    let address = format!("sqlite://{}/accounts.db", folder.path().display());
    let other = "UPDATE counter SET value = value + 1 WHERE name = 'identity'";
    execute(&address, &[other]).await;
    let is_seen = || relay.status().away.is_some_and(|why| why.contains("another database"));
    wait_for("noticing the other database", is_seen).await;
    relay.used(id, 1000, 10);
    relay.close().await;
    assert!(store.usage(0).await.unwrap().is_empty());
    let own = "UPDATE counter SET value = value - 1 WHERE name = 'identity'";
    execute(&address, &[own]).await;
    wait_for("settling", || relay.status().unsettled == 0).await;
    assert_eq!(store.usage(0).await.unwrap()[0].down, 1000);
}

#[tokio::test]
async fn saved_accounts_of_one_postgresql_are_not_served_in_place_of_another_s() {
    let Some(postgres) = Postgres::begin() else { return };
    let (address, folder) = (postgres.address(), tempfile::tempdir().unwrap());
    let open = || AccountSync::open(folder.path(), Some(&address), "r");
    for _ in 0..2 {
        open().await.unwrap().close().await;
    }
    assert!(folder.path().join("accounts.json").exists());
    let other = "UPDATE counter SET value = value + 1 WHERE name = 'identity'";
    execute(&address, &[other]).await;
    let refused = open().await.unwrap_err();
    assert!(refused.to_string().contains("counted for another database"), "{refused}");
}

/// The journal is put back as it was before its last bytes were settled.
async fn counts_on_from_the_database(folder: &Path, address: Option<&str>, store: &Store) {
    let id = add_with_quota(store, "1 MB/month").await;
    let [journal, older] = ["usage.journal", "older"].map(|name| folder.join(name));
    for (down, total) in [(300, 300), (700, 1_000), (100, 1_100), (0, 1_100), (50, 1_150)] {
        if total == 1_000 {
            std::fs::copy(&journal, &older).unwrap();
        }
        if down == 100 {
            std::fs::copy(&older, &journal).unwrap();
        }
        let relay = AccountSync::open(folder, address, "r").await.unwrap();
        relay.used(id, down, 0);
        relay.close().await;
        let usage = store.usage(0).await.unwrap();
        assert_eq!((usage[0].down, relay.part(id).unwrap().used), (total, total));
    }
}

#[tokio::test]
async fn a_journal_that_is_older_than_its_sqlite_swallows_no_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_folder(folder.path()).await.unwrap();
    counts_on_from_the_database(folder.path(), None, &store).await;
}

#[tokio::test]
async fn a_journal_that_is_older_than_its_postgresql_swallows_no_bytes() {
    let Some((_postgres, address, store)) = tables().await else { return };
    let folder = tempfile::tempdir().unwrap();
    counts_on_from_the_database(folder.path(), Some(&address), &store).await;
}

#[tokio::test]
async fn starts_without_the_database_swallow_no_bytes_of_an_older_journal() {
    let Some((mut postgres, address, store)) = tables().await else { return };
    let folder = tempfile::tempdir().unwrap();
    let id = store.add(&account("h", prefix("100.64.0.0/24"))).await.unwrap();
    store.close().await;
    let [journal, older] = ["usage.journal", "older"].map(|name| folder.path().join(name));
    for (life, down) in [300, 700, 60, 40, 1].into_iter().enumerate() {
        match life {
            1 => {
                std::fs::copy(&journal, &older).unwrap();
            }
            2 => {
                std::fs::copy(&older, &journal).unwrap();
                postgres.stop();
            }
            4 => {
                postgres.start();
                let until = Instant::now() + LONG;
                while let Err(error) = Store::at(&address).await {
                    assert!(Instant::now() < until, "{error}");
                }
            }
            _ => {}
        }
        let relay = AccountSync::open(folder.path(), Some(&address), "r").await.unwrap();
        relay.used(id, down, 0);
        relay.close().await;
    }
    let usage = Store::at(&address).await.unwrap().usage(0).await.unwrap();
    assert_eq!(usage[0].down, 1_101);
}
