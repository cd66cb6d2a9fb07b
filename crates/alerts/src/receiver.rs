//! Who is told, and how.

use crate::AlertSettings;
use crate::mail::Mail;
use crate::message::AlertMessage;
use crate::webhook::Webhook;
use ekiden_proxy::Handle;
use std::time::Duration;

/// The longest that one delivery may take: a satellite's round trips, and a server that is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// One who is told of alerts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Receiver {
    Webhook(Webhook),
    Mail(Mail),
}

impl Receiver {
    /// All whom the settings name.
    pub(crate) fn all(settings: &AlertSettings) -> Vec<Self> {
        let webhook = Webhook::of(settings).map(Self::Webhook);
        webhook.into_iter().chain(Mail::of(settings).map(Self::Mail)).collect()
    }

    /// Its name in the status and in metrics.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Mail(_) => "mail",
        }
    }

    /// Delivers a message. Returns what the receiver answered. Errors: in words, which name the server.
    pub(crate) async fn deliver(
        &self,
        handle: &Handle,
        message: &AlertMessage,
    ) -> Result<String, String> {
        let delivering = async {
            match self {
                Self::Webhook(webhook) => webhook.post(handle, message).await,
                Self::Mail(mail) => mail.send(message).await,
            }
        };
        let late = |_| Err(format!("not delivered within {} s", PATIENCE.as_secs()));
        tokio::time::timeout(PATIENCE, delivering).await.unwrap_or_else(late)
    }
}
