//! What the sending of alerts and the status know of each other.

use crate::observe::status::{AlertReceiverStatus, AlertStatus, AlertsStatus};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Alerts that stand, who is told of them, and what could not be saved.
#[derive(Debug, Default)]
pub struct AlertState {
    report: Mutex<Option<AlertReport>>,
    unsaved: Mutex<BTreeMap<&'static str, String>>,
    operators: Mutex<Option<String>>,
}

/// An alert that stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandingAlert {
    /// The kind, such as `line-down`.
    pub alert: &'static str,
    /// A peer, an account, a folder.
    pub subject: String,
    /// In words.
    pub text: String,
    /// Since when, seconds since 1970.
    pub since: u64,
}

/// The alerts, as they are looked at.
#[derive(Debug, Clone, Default)]
pub struct AlertReport {
    /// Those that stand.
    pub standing: Vec<StandingAlert>,
    /// Who is told of them.
    pub receivers: Vec<AlertReceiverStatus>,
}

impl AlertState {
    /// The alerts from now on; `None` while nobody looks.
    pub fn report(&self, report: Option<AlertReport>) {
        *locked(&self.report) = report;
    }

    /// Whether `what`, such as `history`, could be saved just now; an error in words.
    pub fn on_saved(&self, what: &'static str, saved: Result<(), String>) {
        let mut unsaved = locked(&self.unsaved);
        match saved {
            Ok(()) => drop(unsaved.remove(what)),
            Err(why) => drop(unsaved.insert(what, why)),
        }
    }

    /// What could not be saved, and why.
    pub fn unsaved(&self) -> Vec<(&'static str, String)> {
        locked(&self.unsaved).iter().map(|(what, why)| (*what, why.clone())).collect()
    }

    /// Whether the file of operators can be used; an error in words.
    pub fn on_operators_read(&self, read: Result<(), String>) {
        *locked(&self.operators) = read.err();
    }

    pub(crate) fn operators(&self) -> Option<String> {
        locked(&self.operators).clone()
    }

    pub(crate) fn status(&self) -> Option<AlertsStatus> {
        let AlertReport { standing, receivers } = locked(&self.report).clone()?;
        let now = clock::wall() / 1_000_000_000;
        let status = |standing: StandingAlert| AlertStatus {
            alert: standing.alert.to_owned(),
            subject: standing.subject,
            text: standing.text,
            for_seconds: now.saturating_sub(standing.since) as f64,
        };
        let standing = standing.into_iter().map(status).collect();
        Some(AlertsStatus { standing, receivers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_save_that_succeeds_ends_the_trouble() {
        let state = AlertState::default();
        assert!(state.status().is_none());
        state.on_saved("history", Err("no space".to_owned()));
        state.on_saved("usage", Ok(()));
        assert_eq!(state.unsaved(), [("history", "no space".to_owned())]);
        state.on_saved("history", Ok(()));
        assert_eq!(state.unsaved(), []);
        let since = clock::wall() / 1_000_000_000 - 60;
        let (alert, subject, text) = ("line-down", "ship".to_owned(), String::new());
        let standing = vec![StandingAlert { alert, subject, text, since }];
        state.report(Some(AlertReport { standing, receivers: Vec::new() }));
        assert!(state.status().unwrap().standing[0].for_seconds >= 60.0);
    }
}
