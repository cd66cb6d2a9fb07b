//! The certificate that clients see.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A certificate that clients see who connect by TLS.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateStatus {
    /// The names and addresses for which it is, five at most.
    pub names: Vec<String>,
    /// How many more there are.
    pub more_names: u64,
    /// The file that it is from.
    pub file: String,
    /// The last second at which it is valid, such as `2027-03-01T00:00:00Z`.
    pub valid_until: String,
    /// Seconds until then, negative where it has ended.
    pub expires_in_seconds: f64,
    /// Seconds until it is valid; absent where that has begun.
    pub valid_in_seconds: Option<f64>,
    /// Whether it is its own issuer, so that clients have to be told to trust it.
    pub self_signed: bool,
}
