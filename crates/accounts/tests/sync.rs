//! Relays that keep accounts: what one learns all learn, and nothing is lost while the database is away.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot go on panics

mod common;

use common::{
    LONG, Postgres, account, add_with_quota, end, execute, knows, life, prefix, sync, tables,
    wait_for,
};
use ekiden_accounts::{
    AccountId, AccountSync, Credential, LoginVerdict, QuotaShare, Store, Total, hash,
};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn running_relay_sees_changes_in_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let sync = sync(folder.path(), None).await;
    let store = Store::in_folder(folder.path()).await.unwrap();
    let id = store.add(&account("h", prefix("100.64.0.0/24"))).await.unwrap();
    wait_for("the new account", || knows(&sync, "100.64.0.7") == Some(id)).await;
    let password = hash("long enough").unwrap();
    let credential = Credential::Password { user: "anna".into(), hash: password };
    store
        .change("h", |account| {
            account.devices[0].credential = credential;
            Ok(())
        })
        .await
        .unwrap();
    wait_for("the change", || knows(&sync, "100.64.0.7").is_none()).await;
    let from = "127.0.0.1".parse().unwrap();
    assert_eq!(sync.verify_login("anna", "long enough", from).await, LoginVerdict::Known(id));
    store.remove("h").await.unwrap();
    wait_for("the removal", || sync.directory().is_empty()).await;
    assert_eq!(sync.verify_login("anna", "long enough", from).await, LoginVerdict::Wrong);
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_settled_once_after_any_kill() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_folder(folder.path()).await.unwrap();
    let id = store.add(&account("h", prefix("100.64.0.0/24"))).await.unwrap();
    for life in 1..=5_u64 {
        let sync = AccountSync::open(folder.path(), None, "r").await.unwrap();
        sync.used(id, 1000, 10);
        sync.close().await;
        // and what was not written when it was killed never was
        sync.used(id, 7, 7);
        drop(sync);
        let usage = store.usage(0).await.unwrap();
        assert_eq!((usage[0].down, usage[0].up), (1000 * life, 10 * life));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_relays_and_a_database_that_goes_away_and_comes_back() {
    let Some(mut postgres) = Postgres::begin() else { return };
    let address = postgres.address();
    let folders: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
    let mut relays = Vec::new();
    for folder in &folders {
        relays.push(sync(folder.path(), Some(&address)).await);
    }
    let store = Store::at(&address).await.unwrap();
    let quota = 100_u64 << 20;
    let id = add_with_quota(&store, &format!("{quota} B/month")).await;
    for relay in &relays {
        wait_for("the account everywhere", || knows(relay, "100.64.0.7") == Some(id)).await;
        // used for the first time, it is asked for in the database; until then a slice may be used ahead
        let slice = quota / 64;
        assert_eq!(relay.part(id), Some(QuotaShare { may: slice, used: 0, more: true }));
        relay.used(id, 1, 0);
        wait_for("a slice", || relay.part(id).unwrap().may > slice).await;
    }
    store.close().await;
    postgres.stop();
    for relay in &relays {
        relay.used(id, 1000, 1);
        wait_for("noticing that it is away", || relay.status().away.is_some()).await;
        assert_eq!(knows(relay, "100.64.0.7"), Some(id));
        // nobody waits for an answer that does not come
        assert!(!relay.part(id).unwrap().more);
    }
    // one is started again meanwhile
    let again = relays.pop().unwrap();
    again.used(id, 500, 0);
    again.close().await;
    drop(again);
    let folder = tempfile::tempdir().unwrap();
    for name in ["usage.journal", "accounts.json", "relay.id"] {
        std::fs::copy(folders[2].path().join(name), folder.path().join(name)).unwrap();
    }
    let again = sync(folder.path(), Some(&address)).await;
    assert_eq!(knows(&again, "100.64.0.7"), Some(id), "known before, known again");
    again.used(id, 0, 500);
    relays.push(again);
    postgres.start();
    for relay in &relays {
        wait_for("the database", || {
            let standing = relay.status();
            standing.away.is_none() && standing.unsettled == 0
        })
        .await;
    }
    let store = Store::at(&address).await.unwrap();
    let usage = store.usage(0).await.unwrap();
    assert_eq!((usage[0].down, usage[0].up), (3503, 503));
    assert_eq!(store.relays().await.unwrap().len(), 3);
    let granted: u64 = relays.iter().map(|relay| relay.part(id).unwrap().may).sum();
    // and a slice ahead each
    assert!(granted <= quota + 3 * (quota / 64));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_starts_without_the_database_goes_on_with_its_grants() {
    const MIB: u64 = 1 << 20;
    let Some((mut postgres, address, store)) = tables().await else { return };
    let id = add_with_quota(&store, "640 MiB/month").await;
    store.close().await;
    let folder = tempfile::tempdir().unwrap();
    let relay = life(folder.path(), &address).await;
    relay.0.used(id, 300 * MIB, 0);
    wait_for("a grant", || relay.0.part(id).unwrap().may >= 320 * MIB).await;
    let share = relay.0.part(id).unwrap();
    end(relay).await;
    postgres.stop();
    let relay = life(folder.path(), &address).await;
    assert_eq!(relay.0.part(id), Some(QuotaShare { may: share.may, used: 300 * MIB, more: false }));
    end(relay).await;
    // where the file was lost, what was used and a slice
    std::fs::remove_file(folder.path().join("grants.json")).unwrap();
    for used in [300 * MIB, 310 * MIB] {
        let relay = life(folder.path(), &address).await;
        let lost = QuotaShare { may: 310 * MIB, used, more: false };
        assert_eq!(relay.0.part(id), Some(lost));
        relay.0.used(id, 310 * MIB - used, 0);
        end(relay).await;
    }
    postgres.start();
    let relay = life(folder.path(), &address).await;
    wait_for("the grant of before", || relay.0.part(id).unwrap().may >= share.may).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_database_grants_to_many_accounts_at_once() {
    let Some((_postgres, address, store)) = tables().await else { return };
    store.close().await;
    // one after another takes three minutes
    let statements = [
        "INSERT INTO account (id, name, attributes) \
         SELECT n, 'a' || n, '{\"quota\":\"1 GB/month\"}' FROM generate_series(1, 1000) AS n",
        "UPDATE counter SET value = value + 1 WHERE name = 'version'",
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_sleep(0.2); RETURN NULL; END $$",
        "CREATE TRIGGER slow AFTER INSERT ON lease FOR EACH STATEMENT EXECUTE FUNCTION slow()",
    ];
    execute(&address, &statements).await;
    let folder = tempfile::tempdir().unwrap();
    let relay = sync(folder.path(), Some(&address)).await;
    (1..=1000).for_each(|n| relay.used(AccountId(n), 1, 0));
    let slice = 1_000_000_000 / 64;
    let granted = || {
        let parts = (1..=1000).map(|n| relay.part(AccountId(n)));
        parts.flatten().filter(|part| part.may > slice).count()
    };
    wait_for("grants", || granted() == 1000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_whose_clock_is_apart_goes_by_the_database_s() {
    let Some((_postgres, address, store)) = tables().await else { return };
    let mut account = account("h", prefix("100.64.0.0/24"));
    account.attributes.quota = Some("64 MiB/month".parse().unwrap());
    let id = store.add(&account).await.unwrap();
    store.close().await;
    // to this machine, the database's clock is 40 days ahead: statements find this `now()` first
    let statements = [
        "CREATE SCHEMA ahead",
        "CREATE FUNCTION ahead.now() RETURNS timestamptz LANGUAGE sql AS \
         $$ SELECT pg_catalog.now() + interval '40 days' $$",
        "ALTER ROLE ekiden SET search_path = public, ahead, pg_catalog",
    ];
    execute(&address, &statements).await;
    let folder = tempfile::tempdir().unwrap();
    let relay = sync(folder.path(), Some(&address)).await;
    let ahead = relay.now().duration_since(jiff::Timestamp::now()).as_secs();
    assert!((40 * 86_400 - 60..40 * 86_400 + 60).contains(&ahead), "{ahead}");
    relay.used(id, 1000, 0);
    wait_for("a grant", || relay.part(id).unwrap().may > 1 << 20).await;
    relay.close().await;
    let store = Store::at(&address).await.unwrap();
    let begun = account.attributes.calendar().unwrap().begun(relay.now()).as_second();
    assert_eq!(store.usage(0).await.unwrap()[0].begun, begun);
    let seen = store.relays().await.unwrap()[0].seen;
    assert!((relay.now().as_second() - 60..=relay.now().as_second()).contains(&seen), "{seen}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_slow_settles_all_usage_in_batches() {
    let Some((_postgres, address, store)) = tables().await else { return };
    store.close().await;
    // 10 s for all totals, where one statement has 5 s
    let statements = [
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_sleep(0.01); RETURN NEW; END $$",
        "CREATE TRIGGER slow BEFORE INSERT ON traffic FOR EACH ROW EXECUTE FUNCTION slow()",
    ];
    execute(&address, &statements).await;
    let folder = tempfile::tempdir().unwrap();
    let relay = sync(folder.path(), Some(&address)).await;
    for n in 1..=1000 {
        relay.used(AccountId(n), 10, 1);
    }
    wait_for("settling", || relay.status().unsettled == 0).await;
    let usage = Store::at(&address).await.unwrap().usage(0).await.unwrap();
    assert_eq!(usage.len(), 1000);
    assert!(usage.iter().all(|usage| (usage.down, usage.up) == (10, 1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_on_which_the_database_hangs_give_way_and_do_not_hold_up_the_end() {
    let Some((_postgres, address, store)) = tables().await else { return };
    let statements = [
        "CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_sleep(3600); RETURN NEW; END $$",
        "CREATE TRIGGER hang BEFORE INSERT ON traffic FOR EACH ROW EXECUTE FUNCTION hang()",
    ];
    execute(&address, &statements).await;
    // all connections that there may be, and more
    for n in 1..=5 {
        let total = [Total { account: AccountId(n), begun: 0, down: 1, up: 1 }];
        let settling = store.settle("journal", &total);
        let _given_up = tokio::time::timeout(Duration::from_secs(1), settling).await;
    }
    let until = Instant::now() + LONG;
    while let Err(error) = store.version().await {
        assert!(Instant::now() < until, "{error}");
    }
    assert!(tokio::time::timeout(LONG, store.close()).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_cannot_be_read_is_barred_and_the_others_change() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_folder(folder.path()).await.unwrap();
    let broken = store.add(&account("broken", prefix("100.64.0.0/24"))).await.unwrap();
    let relay = sync(folder.path(), None).await;
    assert_eq!(knows(&relay, "100.64.0.7"), Some(broken));
    let address = format!("sqlite://{}/accounts.db", folder.path().display());
    let pool = sqlx::AnyPool::connect(&address).await.unwrap();
    let change = "UPDATE account SET attributes = 'x' WHERE name = 'broken'";
    sqlx::query(change).execute(&pool).await.unwrap();
    // another account changes, and that is seen
    let other = store.add(&account("other", prefix("100.64.1.0/24"))).await.unwrap();
    wait_for("the other account", || knows(&relay, "100.64.1.7") == Some(other)).await;
    let status = relay.status();
    assert_eq!((status.accounts, status.unreadable), (1, 1));
    assert!(status.unreadable_first.unwrap().starts_with("account \"broken\": account.attributes"));
    // its addresses are not those of a stranger
    let directory = relay.directory();
    let barred = directory.by_address("100.64.0.7".parse().unwrap()).unwrap();
    assert!(barred.id == broken && barred.attributes.disabled);
    let change = "UPDATE account SET attributes = '{}' WHERE name = 'broken'";
    sqlx::query(change).execute(&pool).await.unwrap();
    store.remove("other").await.unwrap();
    wait_for("reading it again", || relay.status().unreadable == 0).await;
    let directory = relay.directory();
    assert!(!directory.get(broken).unwrap().attributes.disabled);
}

/// As on a disk that is full, or read-only.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_can_only_be_read_counts_as_away_until_it_takes_usage() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_folder(folder.path()).await.unwrap();
    let id = store.add(&account("h", prefix("100.64.0.0/24"))).await.unwrap();
    let relay = sync(folder.path(), None).await;
    wait_for("the account", || knows(&relay, "100.64.0.7") == Some(id)).await;
    let address = format!("sqlite://{}/accounts.db", folder.path().display());
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON traffic \
         BEGIN SELECT RAISE(ABORT, 'attempt to write a readonly database'); END";
    execute(&address, &[refuse]).await;
    relay.used(id, 1_000, 10);
    let away = || relay.status().away;
    wait_for("noticing", || away().is_some_and(|why| why.contains("readonly"))).await;
    // accounts are read all the while, and that ends nothing
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        assert!(away().is_some());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    store.add(&account("g", prefix("100.64.1.0/24"))).await.unwrap();
    wait_for("another account", || knows(&relay, "100.64.1.7").is_some()).await;
    execute(&address, &["DROP TRIGGER refuse"]).await;
    wait_for("the end", || away().is_none() && relay.status().unsettled == 0).await;
    let usage = store.usage(0).await.unwrap();
    assert_eq!((usage[0].down, usage[0].up), (1_000, 10));
}
