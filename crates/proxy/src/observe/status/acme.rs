//! A certificate that is ordered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An order that is due for so many seconds and has not begun never will: one begins within ten minutes of its time, also
/// where the clock is set.
const OVERDUE: f64 = 1_800.0;

/// The certificate that this relay orders, and its renewal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AcmeStatus {
    /// The names that are ordered.
    pub names: Vec<String>,
    /// The authority's directory.
    pub directory: String,
    /// Seconds until the certificate in use ends, negative where it has ended; absent where there is none.
    pub expires_in_seconds: Option<f64>,
    /// Seconds until the next is ordered, negative where it is overdue; absent while an order is under way.
    pub next_order_in_seconds: Option<f64>,
    /// Failures in a row.
    pub failures: u32,
    /// Why the last order failed, if none has succeeded since.
    pub last_failure: Option<String>,
    /// Seconds since then.
    pub last_failure_seconds_ago: Option<f64>,
    /// Certificates obtained since the start.
    pub obtained: u64,
}

impl AcmeStatus {
    /// For how many seconds an order is overdue, if it will not begin any more.
    pub fn overdue(&self) -> Option<f64> {
        self.next_order_in_seconds.map(|next| -next).filter(|late| *late > OVERDUE)
    }
}
