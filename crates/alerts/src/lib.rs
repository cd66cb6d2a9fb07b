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
use ekiden_linux::host::panics::restarted;
use ekiden_linux::host::sync::locked;
use ekiden_proxy::Handle;
use serde::{Deserialize, Serialize};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
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
    /// With which the watch begins anew after a panic.
    settings: Arc<Mutex<AlertSettings>>,
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
    /// without one it is forgotten. `shared` is asked where relays share quotas. A watch that panics begins anew, as with
    /// the program: what it had still to send is lost.
    pub fn start(
        settings: AlertSettings,
        handle: Handle,
        folder: Option<PathBuf>,
        shared: Option<AskShared>,
    ) -> Self {
        let (asks, asked) = mpsc::channel(8);
        let (settings, asked) =
            (Arc::new(Mutex::new(settings)), Arc::new(tokio::sync::Mutex::new(asked)));
        let latest = Arc::clone(&settings);
        let watch = move || {
            let (settings, asked) = (locked(&latest).clone(), Arc::clone(&asked));
            let (around, folder) = ((handle.clone(), shared.clone()), folder.clone());
            async move {
                let mut asked = asked.lock_owned().await;
                // it reads a file, whose disk may hang
                let watch = move || watch::Watch::new(settings, around, folder);
                match tokio::task::spawn_blocking(watch).await {
                    Ok(watch) => watch.run(&mut asked).await,
                    Err(error) => {
                        if let Ok(panic) = error.try_into_panic() {
                            resume_unwind(panic);
                        }
                    }
                }
            }
        };
        let task = tokio::spawn(restarted("the watch for alerts", watch));
        Self { asks, settings, task }
    }

    /// Other settings from now on.
    pub fn follow(&self, settings: AlertSettings) {
        match self.asks.try_send(Ask::Follow(Box::new(settings.clone()))) {
            Ok(()) => *locked(&self.settings) = settings,
            Err(_) => {
                tracing::error!("new settings of [alerts] are not in effect: reload again");
            }
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

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_proxy::Server;
    use ekiden_proxy::settings::Settings;
    use std::net::{Ipv4Addr, TcpListener};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn a_watch_that_panics_begins_anew_and_hears_what_is_asked() {
        let settings =
            Settings { listen: vec![(Ipv4Addr::LOCALHOST, 0).into()], ..Settings::default() };
        let server = Server::start(Arc::new(settings)).unwrap();
        let looked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looked);
        let shared: AskShared = Arc::new(move || {
            let nth = counted.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                assert!(nth > 0, "a test asked for it");
                None
            })
        });
        let (alerts, secrets) = (Alerts::default(), AlertSecrets::default());
        let settings = AlertSettings { alerts, secrets, relay: "h".to_owned() };
        let alerting = Alerting::start(settings.clone(), server.handle(), None, Some(shared));
        // nobody listens there any more
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
        let webhook = Some(format!("http://{address}/"));
        let alerts = Alerts { webhook, ..Alerts::default() };
        alerting.follow(AlertSettings { alerts, ..settings });
        assert_eq!(alerting.trials().send().await.len(), 1);
        assert!(looked.load(Ordering::Relaxed) > 1);
    }
}
