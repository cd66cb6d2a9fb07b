//! Accounts whose time zone the relay's system does not know.

use crate::accounts::Accounts;
use ekiden_accounts::{Account, AccountId, Attributes, Journal, Store};
use ekiden_testkit::wait_for;

#[test]
fn a_quota_in_an_unknown_time_zone_counts_what_was_used_before() {
    let accounts = Accounts::new();
    let state = accounts.path().join("state");
    // as another relay writes it, whose system knows the zone
    let (id, zone) = (AccountId(0), "Mars/Base".to_owned());
    let quota = Some("300 kB".parse().unwrap());
    let attributes = Attributes { zone, quota, ..Attributes::default() };
    let account = Account { id, name: "tanaka".to_owned(), devices: Vec::new(), attributes };
    let id = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = Store::in_folder(&state).await.unwrap();
        let id = store.add(&account).await.unwrap();
        store.close().await;
        id
    });
    let mut journal = Journal::open(&state).unwrap();
    // a quota without a period began in 1970
    journal.add(id, 0, 150_000, 50_000);
    journal.write().unwrap();
    drop(journal);
    let daemon = accounts.serve();
    let left = || {
        let status = daemon.status();
        let mut all = status["sharing"]["accounts"].as_array().into_iter().flatten();
        let own = all.find(|account| account["name"] == "tanaka");
        own.and_then(|account| account["quota_left"].as_u64())
    };
    wait_for("what was used before", || left() == Some(100_000));
    let log = daemon.log();
    assert_eq!(log.matches("\"Mars/Base\" is not a known time zone").count(), 1, "{log}");
}
