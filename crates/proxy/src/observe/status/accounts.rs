//! What is said of accounts. Bytes are payload, each counted once.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Accounts, and what all share.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct SharingStatus {
    /// What all clients together may send, bits per second; absent without a limit.
    pub uplink: Option<u64>,
    /// What they may receive, bits per second; absent without a limit.
    pub downlink: Option<u64>,
    /// Accounts that wait for their turn to send: the relay's rate is full.
    pub waiting_up: u64,
    /// Accounts that wait for their turn to receive.
    pub waiting_down: u64,
    /// Bytes that connections were granted to send, and that have not moved yet.
    pub lent_up: u64,
    /// The same of bytes that they receive.
    pub lent_down: u64,
    /// Connections that were not admitted: unclaimed, too many, too fast, or a quota was used up.
    pub refused: u64,
    /// Each account, by name.
    pub accounts: Vec<AccountStatus>,
}

/// An account.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct AccountStatus {
    /// Its name; `(unclaimed)` for all that no account claims.
    pub name: String,
    /// `fine`; `throttled` or `cut` after its quota was exceeded; `unclaimed`.
    pub state: String,
    /// Connections and associations now.
    pub connections: u64,
    /// The most at once; absent without a limit.
    pub connections_limit: Option<u64>,
    /// Its weight where the relay's rate is full.
    pub weight: u64,
    /// What it may send now, bits per second; absent without a limit.
    pub limit_up: Option<u64>,
    /// What it may receive now, bits per second; absent without a limit.
    pub limit_down: Option<u64>,
    /// What it sent in the last full second, bits per second.
    pub rate_up: u64,
    /// What it received in the last full second, bits per second.
    pub rate_down: u64,
    /// Bytes from it since the start.
    pub bytes_up: u64,
    /// Bytes to it since the start.
    pub bytes_down: u64,
    /// Connections whose sending waits for its turn.
    pub waiting_up: u64,
    /// Connections whose receiving waits for its turn.
    pub waiting_down: u64,
    /// Bytes that it may use in a period, both directions together; absent without a quota.
    pub quota: Option<u64>,
    /// What is left of them.
    pub quota_left: Option<u64>,
    /// Seconds until the next period; absent where none comes.
    pub period_ends_in_seconds: Option<f64>,
}
