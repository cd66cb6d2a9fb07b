//! Tells people that the relay needs attention: by a webhook and by mail.
//!
//! ```text
//! status ─▶ facts ─▶ model::alerts::Alerts ─▶ model::alerts::Outbox, one for each receiver
//!                        │                          └▶ receiver: webhook, mail
//!                        └▶ the status, and a file that outlives the program
//! ```
//! What stands is looked for and shown also where nobody is told of it.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))] // a test may fail loudly

mod facts;
mod folders;
mod kept;
mod kind;
#[cfg(feature = "mail")]
mod mail;
#[cfg(not(feature = "mail"))]
#[path = "mail/absent.rs"]
mod mail;
mod message;
mod post;
mod receiver;
mod watch;
mod webhook;

pub use kind::AlertKind;
pub use message::{AlertDocument, AlertMessage};
pub use post::{PostAnswer, PostTarget};

use ekiden_config::{AlertSecrets, Alerts};
use ekiden_proxy::Handle;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Who is told of alerts, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertSettings {
    /// `[alerts]`.
    pub alerts: Alerts,
    /// The secrets of its files.
    pub secrets: AlertSecrets,
    /// The relay's name in messages.
    pub relay: String,
}

impl AlertSettings {
    /// Whether this program can tell all whom the settings name. Errors: in words.
    pub fn are_possible(alerts: &Alerts) -> Result<(), String> {
        match cfg!(feature = "mail") || alerts.mail_to.is_empty() {
            true => Ok(()),
            false => Err("this ekiden was built without mail; use `webhook` of [alerts] instead of `mail_to`, or build it with the feature `mail`".to_owned()),
        }
    }
}

/// What an account has used of a quota that several relays share. Bytes of the present period, on all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedUse {
    /// The account's name.
    pub account: String,
    /// Used.
    pub used: u64,
    /// The quota.
    pub quota: u64,
}

/// Asks the accounts' database for all that is shared; `None` while it does not answer.
pub type AskShared =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Option<Vec<SharedUse>>> + Send>> + Send + Sync>;

/// What became of a trial alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// `webhook` or `mail`.
    pub to: String,
    /// What the receiver answered.
    pub answer: Option<String>,
    /// Why it was not delivered.
    pub error: Option<String>,
}

/// The watch for trouble; ends with its drop.
#[derive(Debug)]
pub struct Alerting {
    asks: mpsc::Sender<Ask>,
    task: JoinHandle<()>,
}

/// What is asked of the watch.
#[derive(Debug)]
enum Ask {
    /// Other settings from now on.
    Follow(Box<AlertSettings>),
    /// A trial to everybody.
    Try(oneshot::Sender<Vec<Trial>>),
}

impl Alerting {
    /// Begins, on the current tokio runtime. `folder` is the state folder, where what stands is kept over a restart;
    /// without one it is forgotten. `shared` is asked where relays share quotas.
    pub fn start(
        settings: AlertSettings,
        handle: Handle,
        folder: Option<PathBuf>,
        shared: Option<AskShared>,
    ) -> Self {
        let (asks, asked) = mpsc::channel(8);
        let watch = watch::Watch::new(settings, (handle, shared), folder);
        Self { asks, task: tokio::spawn(watch.run(asked)) }
    }

    /// Other settings from now on.
    pub fn follow(&self, settings: AlertSettings) {
        if self.asks.try_send(Ask::Follow(Box::new(settings))).is_err() {
            tracing::error!("new settings of [alerts] are not in effect: reload again");
        }
    }

    /// Who may have a trial sent.
    pub fn trials(&self) -> Trials {
        Trials(self.asks.clone())
    }
}

impl Drop for Alerting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Has trial alerts sent.
#[derive(Debug, Clone)]
pub struct Trials(mpsc::Sender<Ask>);

impl Trials {
    /// Sends a trial alert to every receiver at once, and waits for what comes back: a minute at most. Empty where
    /// there is no receiver.
    pub async fn send(&self) -> Vec<Trial> {
        let (answer, answered) = oneshot::channel();
        if self.0.send(Ask::Try(answer)).await.is_err() {
            return Vec::new();
        }
        answered.await.unwrap_or_default()
    }
}
