//! `[accounts]`.

use std::path::PathBuf;

/// Households: whether there are any, where they are kept, and who has to be one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accounts {
    /// Whether clients are looked up. Default false.
    pub enabled: bool,
    /// Whether everybody has to be a known household; else those whom the rules admit may come in without.
    /// Default true.
    pub required: bool,
    /// Whether passwords are taken from beyond this machine over connections that others can read. Default
    /// false.
    pub cleartext: bool,
    /// An address of PostgreSQL; `None`: SQLite in `state`.
    pub database: Option<String>,
    /// The folder of the embedded database and of what was used; `None`: where this machine keeps such
    /// things.
    pub state: Option<PathBuf>,
}

impl Default for Accounts {
    fn default() -> Self {
        Self { enabled: false, required: true, cleartext: false, database: None, state: None }
    }
}
