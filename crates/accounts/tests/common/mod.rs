//! What the tests with real databases share: accounts.
#![allow(dead_code, unreachable_pub)] // each test program uses its part
#![allow(clippy::unwrap_used, clippy::expect_used)] // a test that cannot go on panics

use ekiden_accounts::{Account, AccountId, Attributes, Credential, Device};
pub use ekiden_testkit::Postgres;

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
