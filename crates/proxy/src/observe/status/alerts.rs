//! Alerts, and who is told of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The alerts of this relay.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AlertsStatus {
    /// Those that stand, by subject.
    pub standing: Vec<AlertStatus>,
    /// Who is told of them; empty where nobody is.
    pub receivers: Vec<AlertReceiverStatus>,
}

/// An alert that stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AlertStatus {
    /// The kind, such as `line-down`.
    pub alert: String,
    /// A peer, an account, a folder.
    pub subject: String,
    /// In words.
    pub text: String,
    /// For how long it has been so, seconds.
    pub for_seconds: f64,
}

/// One who is told of alerts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlertReceiverStatus {
    /// `webhook` or `mail`.
    pub to: String,
    /// Messages delivered since the start.
    pub delivered: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Alerts that wait to be sent.
    pub waiting: u64,
    /// Alerts that could not be sent for a day and were given up.
    pub dropped: u64,
    /// Why the last attempt failed, if none has succeeded since.
    pub last_error: Option<String>,
}
