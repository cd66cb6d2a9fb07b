//! `[accounts]`.

use super::Pattern;
use std::path::PathBuf;

/// Whether accounts are enabled, where they are stored, and who needs one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accounts {
    /// Whether accounts are enabled. Default false.
    pub enabled: bool,
    /// Whether every client needs an account; otherwise the rules may admit clients without one. Default true.
    pub required: bool,
    /// Whether remote clients may send passwords in cleartext. Default false.
    pub cleartext: bool,
    /// A PostgreSQL URL; `None`: SQLite in `state`.
    pub database: Option<String>,
    /// The folder of the embedded database and the usage journal; `None`: the system's usual place.
    pub state: Option<PathBuf>,
}

impl Default for Accounts {
    fn default() -> Self {
        Self { enabled: false, required: true, cleartext: false, database: None, state: None }
    }
}

/// An account, as the access rules and the log see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownAccount {
    /// Its number, which no other account ever gets.
    pub id: i64,
    /// Its name, for logs.
    pub name: String,
    /// Allowed destinations; empty: all that the rules allow.
    pub allow: Vec<Pattern>,
    /// Denied destinations; checked before `allow`.
    pub deny: Vec<Pattern>,
}
