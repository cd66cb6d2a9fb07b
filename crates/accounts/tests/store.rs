//! Both databases do the same.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot go on panics

mod common;

use common::{Postgres, account, execute, prefix, tables};
use ekiden_accounts::{
    AccountId, Credential, FleetRelay, Grant, GrantRequest, Hours, SeenBefore, Store, StoreError,
    Total,
};
use ekiden_testkit::Authority;

/// Of "correct horse".
const HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$q4I14XWyQRyfGivI/pptkA$499imbK/6oLNazOixExjarlzYR+f+Y00k0wcgiz8fFc";

/// All there is to ask of a database that is empty.
async fn does_what_it_should(store: &Store) {
    let before = store.version().await.unwrap();
    let hash = HASH.to_owned();
    let mut tanaka = account("tanaka", Credential::Password { user: "anna".into(), hash });
    tanaka.attributes.quota = Some("20 GB/month".parse().unwrap());
    tanaka.attributes.hours = Some("mon-fri 06:00-22:00".parse::<Hours>().unwrap());
    tanaka.id = store.add(&tanaka).await.unwrap();
    let mut sato = account("sato", prefix("100.64.1.0/24"));
    sato.id = store.add(&sato).await.unwrap();
    assert_ne!(tanaka.id, sato.id);
    let table = store.accounts().await.unwrap();
    let version = table.version;
    assert!(version >= before + 2);
    assert_eq!(table.accounts, [tanaka.clone(), sato.clone()]);
    assert_eq!(table.unreadable, []);
    assert_eq!(store.account("tanaka").await.unwrap(), tanaka);

    // nothing of what is refused stays
    assert!(
        matches!(store.add(&tanaka).await, Err(StoreError::NameTaken(name)) if name == "tanaka")
    );
    let similar = store.add(&account("Tanaka", prefix("100.64.2.0/24"))).await;
    assert!(matches!(similar, Err(StoreError::NameSimilar { .. })), "{similar:?}");
    // a prefix is the same however it is written
    let same = store.add(&account("suzuki", prefix("100.64.1.9/24"))).await;
    assert!(matches!(same, Err(StoreError::CredentialTaken { kind: "prefix", .. })), "{same:?}");
    let taken = StoreError::CredentialTaken { kind: "password", identity: "anna".to_owned() };
    assert!(taken.to_string().starts_with("the user name \"anna\" already"), "{taken}");
    assert!(matches!(store.account("suzuki").await, Err(StoreError::NoSuchAccount(_))));
    assert_eq!(store.accounts().await.unwrap(), table);

    let changed = store
        .change("sato", |account| {
            account.name = "satō".into();
            account.attributes.disabled = true;
            account.devices[0].credential = Credential::Peer("ship".into());
            Ok(())
        })
        .await
        .unwrap();
    assert_eq!(changed.id, sato.id);
    assert_eq!(store.account("satō").await.unwrap(), changed);
    assert_eq!(store.version().await.unwrap(), version + 1);
    let refused = store.change("satō", |_| Err(StoreError::Refused("no".into()))).await;
    assert!(refused.is_err() && store.version().await.unwrap() == version + 1);

    // said twice, said late: it counts once
    let total = |down| Total { account: tanaka.id, begun: 100, down, up: 1 };
    store.settle("journal a", &[total(10)]).await.unwrap();
    store.settle("journal a", &[total(30)]).await.unwrap();
    store.settle("journal a", &[total(30)]).await.unwrap();
    store.settle("journal a", &[total(20)]).await.unwrap();
    store.settle("journal b", &[total(5)]).await.unwrap();
    let usage = store.usage(0).await.unwrap();
    assert_eq!(usage.len(), 1);
    assert_eq!((usage[0].down, usage[0].up, usage[0].begun), (35, 2, 100));
    assert_eq!(usage[0].name.as_deref(), Some("tanaka"));
    assert!(store.usage(101).await.unwrap().is_empty());
    // of one period alone, where others began before and after
    let other = |begun| Total { account: sato.id, begun, down: 1, up: 1 };
    store.settle("journal a", &[other(0), other(200)]).await.unwrap();
    assert_eq!(store.used_in(100).await.unwrap(), [Total { up: 2, ..total(35) }]);
    assert_eq!(store.used_in(0).await.unwrap(), [other(0)]);
    assert_eq!(store.used_in(150).await.unwrap(), []);

    let relay = |seen| FleetRelay {
        id: "r1".into(),
        name: "harbour".into(),
        version: "0.1.0".into(),
        seen,
    };
    let before = |run: &str, seen| SeenBefore { run: run.to_owned(), seen };
    assert_eq!(store.seen(&relay(1000), "a").await.unwrap(), before("", 0));
    assert_eq!(store.seen(&relay(1005), "b").await.unwrap(), before("a", 1000));
    assert_eq!(store.seen(&relay(1005), "b").await.unwrap(), before("b", 1005));
    assert_eq!(store.relays().await.unwrap(), [relay(1005)]);

    store.remove("tanaka").await.unwrap();
    assert!(matches!(store.remove("tanaka").await, Err(StoreError::NoSuchAccount(_))));
    // what it used is still written down, and its number is never given again
    let usage = store.usage(0).await.unwrap();
    assert_eq!((usage[0].account, usage[0].name.as_deref()), (tanaka.id, None));
    let again = store.add(&account("tanaka", prefix("2001:db8::/48"))).await.unwrap();
    assert!(again > sato.id);
    // nor is one that a journal knows, and the database does not since it was brought back
    let forgotten = AccountId(again.0 + 10);
    let total = Total { account: forgotten, begun: 100, down: 1, up: 1 };
    store.settle("journal a", &[total]).await.unwrap();
    assert!(store.add(&account("kato", prefix("2001:db8:1::/48"))).await.unwrap() > forgotten);
}

/// Three relays, one quota: what they are granted is the quota to the byte, and of one that is gone only what
/// it used.
async fn grants_what_there_is(store: &Store) {
    let id = store.add(&account("shared", prefix("100.64.9.0/24"))).await.unwrap();
    let seen = |name: &'static str, seen| FleetRelay {
        id: name.into(),
        name: name.into(),
        version: String::new(),
        seen,
    };
    for name in ["one", "two", "three"] {
        store.seen(&seen(name, 10_000), name).await.unwrap();
    }
    let ask = |relay: &'static str, used, now| async move {
        let asked = GrantRequest { account: id, begun: 0, quota: 1000, slice: 300, used };
        let got = store.grant(relay, &[asked], now).await.unwrap();
        let [Grant { account, begun: 0, granted }] = got[..] else { panic!("{got:?}") };
        assert_eq!(account, id);
        granted
    };
    assert_eq!(ask("one", 0, 10_000).await, 300);
    assert_eq!(ask("two", 0, 10_000).await, 300);
    // it has enough
    assert_eq!(ask("two", 10, 10_000).await, 300);
    assert_eq!(ask("three", 0, 10_000).await, 300);
    assert_eq!(ask("three", 300, 10_000).await, 400);
    assert_eq!(ask("three", 400, 10_000).await, 400);
    // "two", which said it used 10, is not heard of for ten minutes
    store.seen(&seen("one", 20_000), "one").await.unwrap();
    store.seen(&seen("three", 20_000), "three").await.unwrap();
    assert_eq!(ask("three", 400, 20_000).await, 690);
    assert_eq!(ask("one", 300, 20_000).await, 300);
    // several accounts and periods at once, as one after another; a removed one has no grant and holds up none
    let other = store.add(&account("other", prefix("100.64.10.0/24"))).await.unwrap();
    let gone = AccountId(other.0 + 1);
    let request =
        |account, begun| GrantRequest { account, begun, quota: 1000, slice: 300, used: 0 };
    let asked = [request(id, 0), request(gone, 0), request(other, 50), request(id, 70)];
    let grant = |account, begun, granted| Grant { account, begun, granted };
    let got = store.grant("one", &asked, 20_000).await.unwrap();
    assert_eq!(got, [grant(id, 0, 300), grant(other, 50, 300), grant(id, 70, 300)]);
    assert_eq!(store.grant("one", &[request(gone, 0)], 20_000).await.unwrap(), []);
    // one that starts again reads what it has of periods that are not long over
    let mut had = store.grants("one", 60).await.unwrap();
    had.sort_by_key(|grant| (grant.account, grant.begun));
    assert_eq!(had, [grant(id, 0, 300), grant(id, 70, 300)]);
    assert_eq!(store.grants("four", 0).await.unwrap(), []);
}

/// Grants and relays that nobody asks for go, and what may still count stays.
async fn forgets_what_is_long_over(store: &Store) {
    const DAY: i64 = 24 * 3600;
    let id = store.add(&account("tidy", prefix("100.64.11.0/24"))).await.unwrap();
    let now = 1_000 * DAY;
    for (name, seen) in [("gone", 599 * DAY), ("silent", 601 * DAY)] {
        let (id, version) = (name.to_owned(), String::new());
        store.seen(&FleetRelay { name: id.clone(), id, version, seen }, "run").await.unwrap();
    }
    let request = |begun| GrantRequest { account: id, begun, quota: 1000, slice: 300, used: 0 };
    let asked = [request(0), request(937 * DAY), request(939 * DAY)];
    store.grant("gone", &asked, now).await.unwrap();
    for _ in 0..2 {
        store.tidy(now).await.unwrap();
        let mut left = store.grants("gone", 1).await.unwrap();
        left.sort_by_key(|grant| grant.begun);
        let left: Vec<_> = left.iter().map(|grant| grant.begun).collect();
        assert_eq!(left, [0, 939 * DAY]);
        let relays = store.relays().await.unwrap();
        let is_there = |id: &str| relays.iter().any(|relay| relay.id == id);
        assert_eq!(["gone", "silent"].map(is_there), [false, true]);
    }
}

/// One row after another is broken by hand at `address`, and mended: its account alone cannot be read.
async fn leaves_out_unreadable_accounts(store: &Store, address: &str) {
    sqlx::any::install_default_drivers();
    let pool = sqlx::AnyPool::connect(address).await.unwrap();
    let password = Credential::Password { user: "nao".into(), hash: HASH.into() };
    let mut broken = account("broken", password);
    broken.id = store.add(&broken).await.unwrap();
    let others = store.accounts().await.unwrap().accounts.len() - 1;
    for (change, column, words) in [
        ("UPDATE account SET name = 'no name' WHERE id = $1", "account.name", "invalid name"),
        ("UPDATE account SET attributes = '' WHERE id = $1", "account.attributes", "EOF"),
        (
            r#"UPDATE account SET attributes = '{"down":"99999999999999999999 Gbit/s"}' WHERE id = $1"#,
            "account.attributes",
            "99999999999999999999 Gbit/s",
        ),
        (
            r#"UPDATE account SET attributes = '{"quota":"1 GB/fortnight"}' WHERE id = $1"#,
            "account.attributes",
            "fortnight",
        ),
        (
            r#"UPDATE account SET attributes = '{"weight":0}' WHERE id = $1"#,
            "account.attributes",
            "1 to 1000",
        ),
        (
            r#"UPDATE account SET attributes = '{"reset_day":40}' WHERE id = $1"#,
            "account.attributes",
            "day 40",
        ),
        (
            r#"UPDATE account SET attributes = '{"qouta":"1 GB/month"}' WHERE id = $1"#,
            "account.attributes",
            "\"qouta\"",
        ),
        ("UPDATE device SET hash = '$argon2id$' WHERE account = $1", "device.hash", "\"nao\""),
        ("UPDATE device SET hash = NULL WHERE account = $1", "device.hash", "\"nao\""),
        ("UPDATE device SET kind = 'card' WHERE account = $1", "device.kind", "\"card\""),
        ("UPDATE device SET kind = 'prefix' WHERE account = $1", "device.identity", "\"nao\""),
    ] {
        sqlx::query(change).bind(broken.id.0).execute(&pool).await.unwrap();
        let table = store.accounts().await.unwrap();
        assert_eq!(table.accounts.len(), others, "{change}");
        let [unreadable] = &table.unreadable[..] else { panic!("{change}: {table:?}") };
        assert_eq!((unreadable.id, unreadable.column), (Some(broken.id), column), "{change}");
        assert!(unreadable.why.contains(words), "{change}: {unreadable}");
        let barred = unreadable.barred().unwrap();
        assert!(barred.attributes.disabled, "{barred:?}");
        // its devices stay its own
        let devices = if column.starts_with("account") { 1 } else { 0 };
        assert_eq!(barred.devices.len(), devices, "{change}");
        if column != "account.name" {
            let refused = store.account("broken").await.unwrap_err();
            assert!(refused.to_string().contains("ekiden account remove"), "{refused}");
        }
        let mended = "UPDATE account SET name = 'broken', attributes = '{}' WHERE id = $1";
        sqlx::query(mended).bind(broken.id.0).execute(&pool).await.unwrap();
        let mended = "UPDATE device SET kind = 'password', hash = $2 WHERE account = $1";
        sqlx::query(mended).bind(broken.id.0).bind(HASH).execute(&pool).await.unwrap();
        assert_eq!(store.account("broken").await.unwrap(), broken);
    }
    // limits of another version that say there is none
    let none = r#"UPDATE account SET attributes = '{"a":null,"b":false,"c":[]}' WHERE id = $1"#;
    sqlx::query(none).bind(broken.id.0).execute(&pool).await.unwrap();
    assert_eq!(store.account("broken").await.unwrap(), broken);
    pool.close().await;
    store.remove("broken").await.unwrap();
}

/// More accounts than are read at once, with gaps between their numbers, and one that cannot be read among them.
async fn reads_a_long_table(store: &Store, address: &str) {
    let before = store.accounts().await.unwrap().accounts;
    sqlx::any::install_default_drivers();
    let pool = sqlx::AnyPool::connect(address).await.unwrap();
    let attributes = r#"{"weight":3}"#;
    let mut all = pool.begin().await.unwrap();
    for number in 0..2_500_i64 {
        let id = 1_000_000 + 7 * number;
        let attributes = if number == 1_234 { "" } else { attributes };
        let add = "INSERT INTO account (id, name, attributes) VALUES ($1, $2, $3)";
        let add = sqlx::query(add).bind(id).bind(format!("a{number}")).bind(attributes);
        add.execute(&mut *all).await.unwrap();
        let net = format!("10.{}.{}.0/24", number / 256, number % 256);
        let add =
            "INSERT INTO device (account, name, kind, identity) VALUES ($1, 'net', 'prefix', $2)";
        sqlx::query(add).bind(id).bind(net).execute(&mut *all).await.unwrap();
    }
    all.commit().await.unwrap();
    let table = store.accounts().await.unwrap();
    let [unreadable] = &table.unreadable[..] else { panic!("{:?}", table.unreadable) };
    assert_eq!((unreadable.name.as_str(), unreadable.devices.len()), ("a1234", 1));
    let (old, new) = table.accounts.split_at(before.len());
    assert_eq!(old, before);
    let numbers = (0..2_500).filter(|number| *number != 1_234);
    let names: Vec<_> = numbers.map(|number| format!("a{number}")).collect();
    assert!(new.iter().map(|account| &account.name).eq(&names));
    assert!(new.iter().all(|account| account.devices.len() == 1 && account.attributes.weight == 3));
    pool.close().await;
}

#[tokio::test]
async fn sqlite() {
    let folder = tempfile::tempdir().unwrap();
    // a path that has to be written otherwise in an address
    let store = Store::in_folder(&folder.path().join("a b?c%20#d")).await.unwrap();
    does_what_it_should(&store).await;
    grants_what_there_is(&store).await;
    forgets_what_is_long_over(&store).await;
    let other = tempfile::tempdir().unwrap();
    let store = Store::in_folder(other.path()).await.unwrap();
    let address = format!("sqlite://{}/accounts.db", other.path().display());
    leaves_out_unreadable_accounts(&store, &address).await;
    reads_a_long_table(&store, &address).await;
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        let path = folder.path().join("a b?c%20#d").join(name);
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("."), mode("accounts.db")), (0o700, 0o600));
}

#[tokio::test]
async fn postgresql() {
    let Some((_postgres, address, store)) = tables().await else { return };
    does_what_it_should(&store).await;
    grants_what_there_is(&store).await;
    forgets_what_is_long_over(&store).await;
    leaves_out_unreadable_accounts(&store, &address).await;
    reads_a_long_table(&store, &address).await;
}

/// Tables that a version without the index prepared get it when they are opened, as new ones do.
async fn finds_periods_by_an_index<F: Future<Output = Result<Store, StoreError>>>(
    address: &str,
    indexes: &'static str,
    open: impl Fn() -> F,
) {
    for _ in 0..2 {
        open().await.unwrap().close().await;
        let pool = sqlx::AnyPool::connect(address).await.unwrap();
        let found: i64 = sqlx::query_scalar(indexes).fetch_one(&pool).await.unwrap();
        assert_eq!(found, 1);
        pool.close().await;
        let undo = "DELETE FROM _sqlx_migrations WHERE version = 4";
        execute(address, &["DROP INDEX traffic_begun", undo]).await;
    }
}

#[tokio::test]
async fn sqlite_of_an_earlier_version_finds_periods_by_an_index() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("sqlite://{}/accounts.db", folder.path().display());
    let indexes = "SELECT COUNT(*) FROM sqlite_master WHERE name = 'traffic_begun'";
    finds_periods_by_an_index(&address, indexes, || Store::in_folder(folder.path())).await;
}

#[tokio::test]
async fn postgresql_of_an_earlier_version_finds_periods_by_an_index() {
    let Some(postgres) = Postgres::begin() else { return };
    let address = postgres.address();
    let indexes = "SELECT COUNT(*) FROM pg_indexes WHERE indexname = 'traffic_begun'";
    finds_periods_by_an_index(&address, indexes, || Store::at(&address)).await;
}

/// A server is asked for its certificate, and is not taken for another.
#[tokio::test]
async fn postgresql_within_tls() {
    let folder = tempfile::tempdir().unwrap();
    let [authority, stranger] =
        ["authority", "stranger"].map(|name| Authority::new(folder.path(), name));
    let Some(postgres) = Postgres::begin_secured(&authority) else { return };
    let to = |host: &str, trusted: &Authority| {
        let address = postgres.secured_address(host);
        let trusted = trusted.file.display();
        format!("{address}?sslmode=verify-full&sslrootcert={trusted}")
    };
    let store = Store::at(&to("localhost", &authority)).await.unwrap();
    let pool = sqlx::PgPool::connect(&to("localhost", &authority)).await.unwrap();
    let query = sqlx::query_scalar("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()");
    assert!(query.fetch_one(&pool).await.unwrap_or(false));
    store.close().await;
    for (host, trusted) in [("localhost", &stranger), ("127.0.0.1", &authority)] {
        let refused = Store::at(&to(host, trusted)).await.unwrap_err().to_string();
        assert!(refused.contains("certificate"), "{host}: {refused}");
    }
}

#[tokio::test]
async fn two_who_change_at_once_both_have_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (
        Store::in_folder(folder.path()).await.unwrap(),
        Store::in_folder(folder.path()).await.unwrap(),
    );
    one.add(&account("h", prefix("100.64.0.0/24"))).await.unwrap();
    let add = |store: Store| async move {
        for _ in 0..20 {
            let change = store.change("h", |account| {
                account.attributes.weight += 1;
                Ok(())
            });
            change.await.unwrap();
        }
    };
    tokio::join!(add(one.clone()), add(two));
    assert_eq!(one.account("h").await.unwrap().attributes.weight, 41);
}

#[tokio::test]
async fn an_address_that_is_none() {
    for address in ["mysql://x", "postgres//", "/var/lib/x"] {
        let refused = Store::at(address).await.unwrap_err();
        assert!(matches!(refused, StoreError::Address(_)), "{address}: {refused}");
    }
}

#[tokio::test]
async fn text_that_is_no_text_leaves_out_its_account_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::in_folder(folder.path()).await.unwrap();
    for (name, net) in [("one", "100.64.0.0/24"), ("two", "100.64.1.0/24")] {
        store.add(&account(name, prefix(net))).await.unwrap();
    }
    let address = format!("sqlite://{}/accounts.db", folder.path().display());
    let pool = sqlx::AnyPool::connect(&address).await.unwrap();
    for change in [
        "UPDATE account SET attributes = x'ff' WHERE name = 'one'",
        "UPDATE account SET attributes = CAST(x'ff' AS TEXT) WHERE name = 'one'",
        "UPDATE account SET attributes = '{}', name = x'ff00' WHERE name = 'one'",
    ] {
        sqlx::query(change).execute(&pool).await.unwrap();
        let table = store.accounts().await.unwrap();
        assert_eq!((table.accounts.len(), table.unreadable.len()), (1, 1), "{change}");
        assert_eq!(table.accounts[0].name, "two");
    }
    // a number that is none stands behind all numbers
    for change in [
        "DELETE FROM device WHERE account = (SELECT id FROM account WHERE name = x'ff00')",
        "UPDATE account SET id = 'x', name = 'one' WHERE name = x'ff00'",
    ] {
        sqlx::query(change).execute(&pool).await.unwrap();
    }
    let table = store.accounts().await.unwrap();
    let [unreadable] = &table.unreadable[..] else { panic!("{table:?}") };
    assert_eq!((table.accounts.len(), unreadable.id), (1, None));
}
