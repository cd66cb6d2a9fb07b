//! Households: who may use the relay, by which device they are known, what they may do, and what they
//! have used.
//!
//! A [`Store`] is a database: SQLite in a folder, or PostgreSQL that several relays share. A [`Keeper`]
//! watches it and keeps a [`Directory`] in memory, which is all that a connection ever asks; so the
//! database may be slow or away, and those who were known stay known. What is used goes into a
//! [`Journal`] on this machine first and is settled into the database afterwards.
//!
//! It never listens, relays or limits anything: doors and limits are `proxy`'s. It knows nothing of
//! routes or configuration files; destinations are patterns as text here.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))] // a test may fail loudly

mod account;
mod attempts;
mod backoff;
mod directory;
mod hashing;
mod hours;
mod journal;
mod keeper;
mod lease;
mod password;
mod period;
mod store;

pub use account::{Account, AccountId, Attributes, BadName, Barred, Credential, Device, WhenSpent};
pub use attempts::{Attempts, Verdict};
pub use backoff::{Backoff, Patience};
pub use directory::Directory;
pub use hours::{BadHours, Hours};
pub use journal::{Journal, JournalError, Total};
pub use keeper::{Keeper, KeeperError, Part, Standing};
pub use lease::{Lease, share_out};
pub use password::{BadPassword, hash, matches};
pub use period::{BadPeriod, Calendar, Period, Quota};
pub use store::{Relay, Store, StoreError, Usage};
