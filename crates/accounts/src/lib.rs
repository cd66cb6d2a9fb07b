//! Accounts: who may use the relay, by which devices they are recognized, what they may do, and how
//! much they have used.
//!
//! A [`Store`] is a database: SQLite in a folder, or PostgreSQL that several relays share. An
//! [`AccountSync`] polls it and keeps a [`Directory`] in memory, which connections ask, so known
//! accounts stay usable while the database is unreachable. Usage goes to a local [`Journal`] first,
//! and into the database later.
//!
//! This crate never listens, relays or limits anything; the proxy does. It knows no routes and no
//! configuration file: destinations are patterns kept as text.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))] // a test may fail loudly

/// Stored as it is written, by `Display` and `FromStr`.
macro_rules! stored_as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

mod account;
mod change;
mod clock;
mod directory;
mod hours;
mod journal;
mod lease;
mod login;
mod password;
mod period;
mod store;
mod sync;
mod usage;

pub use crate::login::{Backoff, BackoffLimits, LoginAttempts, LoginVerdict};
pub use crate::sync::{AccountSync, QuotaShare, SyncError, SyncStatus};
pub use account::{
    Account, AccountId, Attributes, BadName, Barred, Credential, Device, OnQuotaExceeded,
};
pub use change::{
    LOWEST_RATE, LimitChanges, NewDevices, add_tunnel, check_rate, forget_devices, replace_password,
};
pub use directory::Directory;
pub use hours::{BadHours, Hours};
pub use journal::{Journal, JournalError, Total};
pub use lease::{Lease, share_out};
pub use password::{BadPassword, check_password, hash, is_hash, matches};
pub use period::{BadPeriod, Calendar, Period, Quota};
pub use store::{
    AccountTable, FleetRelay, Grant, GrantRequest, SeenBefore, Store, StoreError,
    UnreadableAccount, Usage,
};
pub use usage::usage_since;

/// Locks `mutex`, even after a panic while it was locked: each step leaves the state consistent.
fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
