//! When an alert fires, is repeated and resolves, and when a message about it is sent.
//!
//! ```text
//! facts ─▶ Alerts: on_look(now) ─▶ Notice ─▶ Outbox, one for each receiver: on_notice(now)
//!                                              on_deadline(now) ─▶ a message of several notices
//!                                              on_delivered(now) or on_failed(now)
//! ```
//! `Alerts` waits before it believes that something is wrong or well again. `Outbox` merges what happens
//! while a message may not be sent. Each has a `deadline()` at which the caller asks it again.

mod outbox;
mod watch;

pub use outbox::{Outbox, OutboxConfig, OutboxSnapshot};
pub use watch::{Alerts, Config, Fact, Firing, Seen};

use alloc::string::String;

/// What is wrong with what: `A` is the kind of trouble.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key<A> {
    /// A peer, an account, a folder.
    pub subject: String,
    /// The kind of trouble.
    pub alert: A,
}

/// Whether an alert stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It stands.
    Firing,
    /// It is over.
    Resolved,
}

/// Something to tell a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice<A> {
    /// What it is about.
    pub key: Key<A>,
    /// Whether it stands.
    pub state: State,
    /// Since when it was wrong, seconds since 1970.
    pub since: u64,
    /// When it was seen to be well again, seconds since 1970.
    pub until: Option<u64>,
    /// In words.
    pub text: String,
}

#[cfg(test)]
mod laws;
