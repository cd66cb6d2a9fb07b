//! Certificates that the relay orders by itself (RFC 8555) and renews, proven by TLS-ALPN-01 (RFC
//! 8737) on the relay's own port.
//!
//! ```text
//! Orders ─▶ watch ─▶ model::renewal: when?
//!             │
//!             ├▶ order ─▶ web ─▶ proxy: connections of the leg `direct`
//!             │     └───▶ proxy's AcmeState: challenges that the listener answers
//!             └▶ folder: account, key and certificate, which the listener reads again
//! ```

mod certificate;
mod folder;
mod order;
mod watch;
mod web;
mod words;

pub use folder::certificate_file;

use ekiden_proxy::Handle;
use ekiden_proxy::settings::Acme;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The ordering of one certificate and its renewals; ends with its drop.
#[derive(Debug)]
pub struct Orders {
    settings: Acme,
    asked: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Orders {
    /// Begins, on the current tokio runtime: with an order at once where there is no certificate of
    /// these names. `settings` name a state folder. Errors: in words, where TLS to the authority
    /// cannot be set up, or the folder cannot be used.
    pub fn start(settings: Acme, handle: Handle) -> Result<Self, String> {
        let asked = Arc::new(Notify::new());
        let watch = watch::Watch::new(settings.clone(), handle, Arc::clone(&asked))?;
        Ok(Self { settings, asked, task: tokio::spawn(watch.run()) })
    }

    /// Whether it orders by these settings, and still does so.
    pub fn is_for(&self, settings: &Acme) -> bool {
        self.settings == *settings && !self.task.is_finished()
    }

    /// Asks the authority now whether the certificate is to be renewed, and orders again after a
    /// failure if that was more than a minute ago.
    pub fn ask_now(&self) {
        self.asked.notify_one();
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        self.task.abort();
    }
}
