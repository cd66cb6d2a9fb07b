//! The relay as the management port sees it. One look serves all who ask within a moment, since
//! each asks the kernel about every connection.

use super::problem::Problem;
use ekiden_accounts::{AccountSync, Store};
use ekiden_proxy::Handle;
use ekiden_proxy::observe::status::Status;
#[cfg(feature = "dashboard")]
use ekiden_proxy::observe::status::Summary;
use serde::Serialize;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How old a look may be.
const FRESH: Duration = Duration::from_millis(250);

/// A relay that runs.
pub struct Running {
    /// Asks it.
    pub handle: Handle,
    /// Its accounts, where there are any.
    pub sync: Option<Arc<AccountSync>>,
    /// Looks at this machine.
    pub doctor: Doctor,
    /// Sends a trial alert.
    pub trials: TrialAlerts,
}

/// What became of a trial alert at one receiver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TrialOutcome {
    /// `webhook` or `mail`.
    pub to: String,
    /// What the receiver answered.
    pub answer: Option<String>,
    /// Why it was not delivered.
    pub error: Option<String>,
}

/// What receivers answer, once they have.
pub type TrialOutcomes = Pin<Box<dyn Future<Output = Vec<TrialOutcome>> + Send>>;

/// Sends a trial alert to every receiver, and returns what came back; it may take a minute.
#[derive(Clone)]
pub struct TrialAlerts(pub Arc<dyn Fn() -> TrialOutcomes + Send + Sync>);

impl TrialAlerts {
    #[cfg_attr(not(feature = "dashboard"), allow(dead_code))] // the page alone asks
    pub(super) async fn send(&self) -> Vec<TrialOutcome> {
        (self.0)().await
    }
}

/// What `ekiden doctor --json` finds, given the status without connections: `{"findings": […]}`. It may take a second.
#[derive(Clone)]
pub struct Doctor(pub Arc<dyn Fn(&Status) -> serde_json::Value + Send + Sync>);

impl Doctor {
    #[cfg_attr(not(feature = "dashboard"), allow(dead_code))] // the page alone asks
    pub(super) fn look(&self, status: &Status) -> serde_json::Value {
        (self.0)(status)
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct StatusCache {
    running: Arc<OnceLock<Running>>,
    last: Mutex<Option<(Instant, Arc<Status>)>>,
}

impl StatusCache {
    pub(super) fn new(running: Arc<OnceLock<Running>>) -> Self {
        Self { running, last: Mutex::default() }
    }

    pub(super) fn running(&self) -> Result<&Running, Problem> {
        let starting = || Problem::unavailable("starting", "the relay is starting");
        self.running.get().ok_or_else(starting)
    }

    /// The status, as of a moment ago. Fails while the relay starts.
    pub(super) async fn status(&self) -> Result<Arc<Status>, Problem> {
        let running = self.running()?;
        let mut last = self.last.lock().await;
        if let Some((at, status)) = &*last
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(status));
        }
        let handle = running.handle.clone();
        // thousands of sockets to ask about: not on a thread that relays
        let status = tokio::task::spawn_blocking(move || handle.status()).await;
        let status =
            Arc::new(status.map_err(|error| Problem::unavailable("status", error.to_string()))?);
        *last = Some((Instant::now(), Arc::clone(&status)));
        Ok(status)
    }

    /// The status without connections, as of now, with the busiest accounts alone.
    #[cfg(feature = "dashboard")]
    pub(super) async fn summary(&self, busiest: usize) -> Result<Summary, Problem> {
        self.ask(move |handle| handle.summary(busiest)).await
    }

    /// Asks the relay, not on a thread that relays. Fails while it starts.
    #[cfg(feature = "dashboard")]
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Handle) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let handle = self.running()?.handle.clone();
        let answer = tokio::task::spawn_blocking(move || ask(&handle)).await;
        answer.map_err(|error| Problem::unavailable("status", error.to_string()))
    }

    /// The accounts in memory; `None` where there are none.
    #[cfg(feature = "dashboard")]
    pub(super) fn directory(&self) -> Result<Option<Arc<ekiden_accounts::Directory>>, Problem> {
        Ok(self.running()?.sync.as_ref().map(|sync| sync.directory()))
    }

    /// What was seen is not true any more.
    pub(super) async fn forget(&self) {
        *self.last.lock().await = None;
    }

    /// The accounts' database. Fails without accounts, while it starts, and when the database is
    /// away.
    pub(super) async fn store(&self) -> Result<Store, Problem> {
        let Some(sync) = &self.running()?.sync else {
            let none = "this relay has no accounts";
            return Err(Problem::unavailable("no-accounts", none)
                .hint("set enabled = true in [accounts], and restart the daemon"));
        };
        Ok(sync.database().await?)
    }
}
