//! Traces of connections.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Traces that are sent to a collector.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TracesStatus {
    /// Where they are sent to.
    pub endpoint: Option<String>,
    /// Requests and tunnels that were traced since the start.
    pub begun: u64,
    /// Traces that the collector has taken.
    pub sent: u64,
    /// Traces that found no room, came too fast, or were refused.
    pub dropped: u64,
    /// Traces that wait to be sent.
    pub waiting: u64,
    /// Why the last attempt to send failed, if none has succeeded since.
    pub last_error: Option<String>,
}
