//! Both databases do the same.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot go on panics

mod common;

use common::{Postgres, account, prefix};
use ekiden_accounts::{Credential, FleetRelay, Hours, Store, StoreError, Total};

/// All there is to ask of a database that is empty.
async fn does_what_it_should(store: &Store) {
    let before = store.version().await.unwrap();
    let hash = "$argon2id$v=19$…".to_owned();
    let mut tanaka = account("tanaka", Credential::Password { user: "anna".into(), hash });
    tanaka.attributes.quota = Some("20 GB/month".parse().unwrap());
    tanaka.attributes.hours = Some("mon-fri 06:00-22:00".parse::<Hours>().unwrap());
    tanaka.id = store.add(&tanaka).await.unwrap();
    let mut sato = account("sato", prefix("100.64.1.0/24"));
    sato.id = store.add(&sato).await.unwrap();
    assert_ne!(tanaka.id, sato.id);
    let (version, accounts) = store.accounts().await.unwrap();
    assert!(version >= before + 2);
    assert_eq!(accounts, [tanaka.clone(), sato.clone()]);
    assert_eq!(store.account("tanaka").await.unwrap(), tanaka);

    // nothing of what is refused stays
    assert!(
        matches!(store.add(&tanaka).await, Err(StoreError::NameTaken(name)) if name == "tanaka")
    );
    // a prefix is the same however it is written
    let same = store.add(&account("suzuki", prefix("100.64.1.9/24"))).await;
    assert!(matches!(same, Err(StoreError::CredentialTaken { kind: "prefix", .. })), "{same:?}");
    assert!(matches!(store.account("suzuki").await, Err(StoreError::NoSuchAccount(_))));
    assert_eq!(store.accounts().await.unwrap(), (version, accounts));

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

    let relay = |seen| FleetRelay {
        id: "r1".into(),
        name: "harbour".into(),
        version: "0.1.0".into(),
        seen,
    };
    store.seen(&relay(1000)).await.unwrap();
    store.seen(&relay(1005)).await.unwrap();
    assert_eq!(store.relays().await.unwrap(), [relay(1005)]);

    store.remove("tanaka").await.unwrap();
    assert!(matches!(store.remove("tanaka").await, Err(StoreError::NoSuchAccount(_))));
    // what it used is still written down, and its number is never given again
    let usage = store.usage(0).await.unwrap();
    assert_eq!((usage[0].account, usage[0].name.as_deref()), (tanaka.id, None));
    let again = store.add(&account("tanaka", prefix("2001:db8::/48"))).await.unwrap();
    assert!(again > sato.id);
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
        store.seen(&seen(name, 10_000)).await.unwrap();
    }
    let ask = |relay: &'static str, used, now| async move {
        store.grant(relay, id, 0, (1000, 300, used), now).await.unwrap()
    };
    assert_eq!(ask("one", 0, 10_000).await, 300);
    assert_eq!(ask("two", 0, 10_000).await, 300);
    // it has enough
    assert_eq!(ask("two", 10, 10_000).await, 300);
    assert_eq!(ask("three", 0, 10_000).await, 300);
    assert_eq!(ask("three", 300, 10_000).await, 400);
    assert_eq!(ask("three", 400, 10_000).await, 400);
    // "two", which said it used 10, is not heard of for ten minutes
    store.seen(&seen("one", 20_000)).await.unwrap();
    store.seen(&seen("three", 20_000)).await.unwrap();
    assert_eq!(ask("three", 400, 20_000).await, 690);
    assert_eq!(ask("one", 300, 20_000).await, 300);
}

#[tokio::test]
async fn sqlite() {
    let folder = tempfile::tempdir().unwrap();
    // a path that has to be written otherwise in an address
    let store = Store::in_folder(&folder.path().join("a b?c%20#d")).await.unwrap();
    does_what_it_should(&store).await;
    grants_what_there_is(&store).await;
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        let path = folder.path().join("a b?c%20#d").join(name);
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("."), mode("accounts.db")), (0o700, 0o600));
}

#[tokio::test]
async fn postgresql() {
    let Some(postgres) = Postgres::begin() else { return };
    let store = Store::at(&postgres.address()).await.unwrap();
    does_what_it_should(&store).await;
    grants_what_there_is(&store).await;
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
