//! Attempts to log in, from their address to the verdict.

use super::*;
use crate::account::{Account, Attributes, Device};

fn account(password: &str) -> Directory {
    let hash = password::hash(password).unwrap();
    let credential = Credential::Password { user: "anna".into(), hash };
    let device = Device { name: "phone".into(), credential };
    Directory::new(
        1,
        vec![Account {
            id: AccountId(7),
            name: "tanaka".into(),
            devices: vec![device],
            attributes: Attributes::default(),
        }],
    )
}

fn from(last: u8) -> IpAddr {
    IpAddr::from([100, 64, 0, last])
}

/// The hash of anna's password.
fn stored(directory: &Directory) -> &str {
    match directory.by_user("anna") {
        Some((_, Credential::Password { hash, .. })) => hash,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn caches_a_verdict_until_the_password_changes() {
    let (attempts, before) = (LoginAttempts::new().unwrap(), account("old password"));
    let known = LoginVerdict::Known(AccountId(7));
    assert_eq!(attempts.verify_login(&before, "anna", "old password", from(1)).await, known);
    // with nobody left to work anything out, only what is kept is known
    attempts.hasher.end();
    assert_eq!(attempts.verify_login(&before, "anna", "old password", from(1)).await, known);
    let after = account("new password");
    let asked = attempts.verify_login(&after, "anna", "old password", from(1)).await;
    assert_eq!(asked, LoginVerdict::Busy);
}

#[tokio::test]
async fn guessing_backs_off_and_known_users_do_not_wait() {
    let (attempts, directory) = (LoginAttempts::new().unwrap(), account("right password"));
    let known = attempts.verify_login(&directory, "anna", "right password", from(1)).await;
    assert_eq!(known, LoginVerdict::Known(AccountId(7)));
    let mut verdicts = Vec::new();
    for guess in 0..8 {
        let guess = format!("guess number {guess}");
        verdicts.push(attempts.verify_login(&directory, "anna", &guess, from(1)).await);
    }
    assert_eq!(verdicts[..6], [LoginVerdict::Wrong; 6]);
    assert!(matches!(verdicts[6], LoginVerdict::Wait(_)), "{verdicts:?}");
    // a neighbour behind the same address
    let other = attempts.verify_login(&directory, "otto", "a wrong password", from(1)).await;
    assert_eq!(other, LoginVerdict::Wrong);
    // the same address, the same user
    let known = attempts.verify_login(&directory, "anna", "right password", from(1)).await;
    assert_eq!(known, LoginVerdict::Known(AccountId(7)));
}

#[tokio::test]
async fn a_device_that_repeats_an_old_password_keeps_no_other_out() {
    let (attempts, directory) = (LoginAttempts::new().unwrap(), account("right password"));
    let ask = |password| attempts.verify_login(&directory, "anna", password, from(1));
    assert_eq!(ask("old password").await, LoginVerdict::Wrong);
    for _ in 0..20 {
        assert_eq!(ask("old password").await, LoginVerdict::WrongAgain);
    }
    assert_eq!(ask("right password").await, LoginVerdict::Known(AccountId(7)));
    // while others guess there it waits as they do, so that it tells them nothing
    for _ in 0..20 {
        attempts.hasher.on_wrong(&attempts.who(from(1), "anna", stored(&directory)));
    }
    for guess in ["another guess", "old password"] {
        assert!(matches!(ask(guess).await, LoginVerdict::Wait(_)), "{guess}");
    }
}

#[tokio::test]
async fn a_password_in_use_elsewhere_is_guessed_at_no_faster() {
    let (attempts, directory) = (LoginAttempts::new().unwrap(), account("right password"));
    let known = LoginVerdict::Known(AccountId(7));
    let right = |last| attempts.verify_login(&directory, "anna", "right password", from(last));
    assert_eq!(right(1).await, known);
    // her telephone moves
    assert_eq!(right(2).await, known);
    // others guess at her, from everywhere and at one address
    for address in 20..40 {
        attempts.hasher.on_wrong(&attempts.who(from(address), "anna", stored(&directory)));
    }
    for guess in 0..60 {
        attempts.hasher.on_wrong(&attempts.who(from(5), &format!("name {guess}"), nobody()));
    }
    for address in [3, 5] {
        let found = right(address).await;
        assert!(matches!(found, LoginVerdict::Wait(_)), "{address}: {found:?}");
    }
    // where she is known she goes on
    for address in [1, 2] {
        assert_eq!(right(address).await, known, "{address}");
    }
    // what finds no place in the queue tells nothing, either
    let (attempts, directory) = (LoginAttempts::new().unwrap(), account("right password"));
    let right = |last| attempts.verify_login(&directory, "anna", "right password", from(last));
    assert_eq!(right(1).await, known);
    attempts.hasher.end();
    assert_eq!(right(6).await, LoginVerdict::Busy);
}

#[tokio::test]
async fn a_repeated_guess_costs_no_hash_whether_its_name_exists_or_not() {
    let (attempts, directory) = (LoginAttempts::new().unwrap(), account("right password"));
    let ask = |user, last| attempts.verify_login(&directory, user, "old password", from(last));
    for user in ["anna", "otto"] {
        assert_eq!(ask(user, 1).await, LoginVerdict::Wrong, "{user}");
    }
    // nobody is left to hash
    attempts.hasher.end();
    for user in ["anna", "otto"] {
        assert_eq!(ask(user, 1).await, LoginVerdict::WrongAgain, "{user}");
        assert_eq!(ask(user, 2).await, LoginVerdict::Busy, "{user}");
    }
}

#[tokio::test]
async fn a_password_that_was_wrong_is_right_once_it_is_the_users() {
    let (attempts, before) = (LoginAttempts::new().unwrap(), account("old password"));
    for verdict in [LoginVerdict::Wrong, LoginVerdict::WrongAgain] {
        let asked = attempts.verify_login(&before, "anna", "new password", from(1)).await;
        assert_eq!(asked, verdict);
    }
    let after = account("new password");
    let asked = attempts.verify_login(&after, "anna", "new password", from(1)).await;
    assert_eq!(asked, LoginVerdict::Known(AccountId(7)));
}

#[tokio::test]
async fn distributed_guessing_backs_off_one_user_only() {
    let (attempts, directory) = (LoginAttempts::new().unwrap(), account("right password"));
    let mut last = LoginVerdict::Wrong;
    for address in 0..=11 {
        last = attempts.verify_login(&directory, "anna", "a wrong password", from(address)).await;
    }
    assert!(matches!(last, LoginVerdict::Wait(_)), "{last:?}");
    // for longer than a busy machine takes to hash
    for address in 20..30 {
        attempts.hasher.on_wrong(&attempts.who(from(address), "anna", stored(&directory)));
    }
    let other = attempts.verify_login(&directory, "otto", "a wrong password", from(99)).await;
    assert_eq!(other, LoginVerdict::Wrong);
    // clients that have to wait do not hold up those that may try
    attempts.hasher.end();
    let waits = attempts.verify_login(&directory, "anna", "a wrong password", from(100)).await;
    assert!(matches!(waits, LoginVerdict::Wait(_)), "{waits:?}");
}

#[tokio::test]
async fn a_new_password_ends_the_waits_for_its_name_and_none_of_an_address() {
    let (attempts, before) = (LoginAttempts::new().unwrap(), account("old password"));
    for address in 0..20 {
        for _ in 0..20 {
            attempts.hasher.on_wrong(&attempts.who(from(address), "anna", stored(&before)));
        }
    }
    for user in 0..60 {
        attempts.hasher.on_wrong(&attempts.who(from(2), &format!("name {user}"), nobody()));
    }
    for address in [1, 2, 99] {
        let waits = attempts.verify_login(&before, "anna", "old password", from(address)).await;
        assert!(matches!(waits, LoginVerdict::Wait(_)), "{address}: {waits:?}");
    }
    let after = account("new password");
    let waits = attempts.verify_login(&after, "anna", "new password", from(2)).await;
    assert!(matches!(waits, LoginVerdict::Wait(_)), "{waits:?}");
    // where it was guessed at, too
    let known = attempts.verify_login(&after, "anna", "new password", from(1)).await;
    assert_eq!(known, LoginVerdict::Known(AccountId(7)));
}

/// What takes the time is done for both: a hash with the same parameters.
#[tokio::test]
async fn an_unknown_user_costs_a_hash_as_a_wrong_password_does() {
    let parameters = |hash: &str| hash.split('$').take(4).collect::<Vec<_>>().join("$");
    assert_eq!(parameters(nobody()), parameters(&password::hash("right password").unwrap()));
    let (attempts, directory) = (LoginAttempts::new().unwrap(), account("right password"));
    // nobody is left to hash
    attempts.hasher.end();
    for user in ["anna", "otto"] {
        let asked = attempts.verify_login(&directory, user, "a wrong password", from(1)).await;
        assert_eq!(asked, LoginVerdict::Busy, "{user}");
    }
}

#[tokio::test]
async fn unknown_users_and_wrong_passwords_get_the_same_answer() {
    let (attempts, directory) = (LoginAttempts::new().unwrap(), account("right password"));
    for (last, user) in [(2, "anna"), (3, "otto"), (4, "")] {
        let asked =
            attempts.verify_login(&directory, user, "nobody has this one", from(last)).await;
        assert_eq!(asked, LoginVerdict::Wrong, "{user}");
    }
}

#[test]
fn some_names_that_nobody_has_are_treated_as_known_ones() {
    let attempts = LoginAttempts::new().unwrap();
    let decoys = (0..1_600).filter(|n| attempts.is_decoy(&format!("name {n}"))).count();
    // 100 are expected
    assert!((30..=200).contains(&decoys), "{decoys}");
    let other = LoginAttempts::new().unwrap();
    let differs = |n: &i32| {
        let name = format!("name {n}");
        attempts.is_decoy(&name) != other.is_decoy(&name)
    };
    assert!((0..1_600).any(|n| differs(&n)), "each process has its own");
}
