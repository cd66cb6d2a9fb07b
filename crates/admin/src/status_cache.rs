//! The relay as the management port sees it. One look serves all who ask within a moment, since
//! each asks the kernel about every connection.

use super::problem::Problem;
#[cfg(feature = "dashboard")]
use super::server::Turns;
use axum::body::Bytes;
use axum::http::StatusCode;
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
use tokio::task::JoinError;

/// How old a look may be.
const FRESH: Duration = Duration::from_millis(250);
/// Looks at once that serve one caller alone: the relay is not asked faster by more of them.
#[cfg(feature = "dashboard")]
const ASKING: usize = 4;

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
    last: LastLook<Status>,
    #[cfg(feature = "dashboard")]
    asking: Turns,
}

/// What was seen last. One look is under way at a time, also where those who asked for it are gone.
#[derive(Debug)]
pub(super) struct LastLook<T> {
    last: Arc<Mutex<Option<Look<T>>>>,
    /// How old it may be.
    fresh: Duration,
}

#[derive(Debug)]
struct Look<T> {
    at: Instant,
    seen: Arc<T>,
    /// It in words, once somebody has asked for them.
    text: Option<Bytes>,
}

impl<T> Look<T> {
    fn now(look: impl FnOnce() -> T) -> Self {
        let seen = Arc::new(look());
        Self { at: Instant::now(), seen, text: None }
    }

    fn is_fresh(&self, fresh: Duration) -> bool {
        self.at.elapsed() < fresh
    }
}

impl<T: Send + Sync + 'static> LastLook<T> {
    /// Looks that serve all for so long.
    pub(super) fn new(fresh: Duration) -> Self {
        Self { last: Arc::default(), fresh }
    }

    /// What was seen a moment ago, or what `look` sees now, not on a thread that relays. Errors: `look` panicked.
    pub(super) async fn get(
        &self,
        look: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Arc<T>, JoinError> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some(last) = last.as_ref().filter(|last| last.is_fresh(self.fresh)) {
            return Ok(Arc::clone(&last.seen));
        }
        // nothing ends it before it is done, and it holds the lock until then
        let looking = tokio::task::spawn_blocking(move || {
            let looked = last.insert(Look::now(look));
            Arc::clone(&looked.seen)
        });
        looking.await
    }

    /// The same in the words of `write`, which everybody gives alike: it is asked once for each look.
    async fn text<E: Send + 'static>(
        &self,
        look: impl FnOnce() -> T + Send + 'static,
        write: impl FnOnce(Arc<T>) -> Result<String, E> + Send + 'static,
    ) -> Result<Result<Bytes, E>, JoinError> {
        let (mut last, fresh) = (Arc::clone(&self.last).lock_owned().await, self.fresh);
        let seen = last.as_ref().filter(|last| last.is_fresh(fresh));
        if let Some(text) = seen.and_then(|last| last.text.clone()) {
            return Ok(Ok(text));
        }
        let writing = tokio::task::spawn_blocking(move || -> Result<Bytes, E> {
            let seen = last.take().filter(|last| last.is_fresh(fresh));
            let look = last.insert(seen.unwrap_or_else(|| Look::now(look)));
            let text = Bytes::from(write(Arc::clone(&look.seen))?);
            look.text = Some(text.clone());
            Ok(text)
        });
        writing.await
    }
}

impl StatusCache {
    pub(super) fn new(running: Arc<OnceLock<Running>>) -> Self {
        Self {
            running,
            last: LastLook::new(FRESH),
            #[cfg(feature = "dashboard")]
            asking: Turns::new(ASKING),
        }
    }

    pub(super) fn running(&self) -> Result<&Running, Problem> {
        let starting = || Problem::unavailable("starting", "the relay is starting");
        self.running.get().ok_or_else(starting)
    }

    /// The status, as of a moment ago. Fails while the relay starts.
    pub(super) async fn status(&self) -> Result<Arc<Status>, Problem> {
        let handle = self.running()?.handle.clone();
        // thousands of sockets to ask about
        let status = self.last.get(move || handle.status()).await;
        status.map_err(|error| Problem::unavailable("status", error.to_string()))
    }

    /// The same in the words of `write`, one text of a look for all who ask. Fails as `write` does, and while the relay
    /// starts.
    pub(super) async fn text(
        &self,
        write: impl FnOnce(Arc<Status>) -> Result<String, Problem> + Send + 'static,
    ) -> Result<Bytes, Problem> {
        let handle = self.running()?.handle.clone();
        let text = self.last.text(move || handle.status(), write).await;
        text.map_err(|error| Problem::unavailable("status", error.to_string()))?
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
        let answer = self.asking.spawn_blocking(move || ask(&handle)).await;
        answer.map_err(|error| Problem::unavailable("status", error.to_string()))
    }

    /// The accounts in memory; `None` where there are none.
    #[cfg(feature = "dashboard")]
    pub(super) fn directory(&self) -> Result<Option<Arc<ekiden_accounts::Directory>>, Problem> {
        Ok(self.running()?.sync.as_ref().map(|sync| sync.directory()))
    }

    /// What was seen is not true any more.
    pub(super) async fn forget(&self) {
        *self.last.last.lock().await = None;
    }

    /// The accounts' database. Fails without accounts, while it starts, and when the database is
    /// away.
    pub(super) async fn store(&self) -> Result<Store, Problem> {
        let Some(sync) = &self.running()?.sync else {
            let none = "this relay has no accounts";
            // waiting changes nothing
            return Err(Problem::new(StatusCode::CONFLICT, "no-accounts", none)
                .hint("set enabled = true in [accounts], and restart the daemon"));
        };
        Ok(sync.database().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc::channel;

    #[tokio::test]
    async fn requests_that_are_given_up_cause_one_look_together() {
        let (last, looks) = (LastLook::new(FRESH), Arc::new(AtomicU32::new(0)));
        let (go, waits) = channel::<()>();
        let waits = Arc::new(std::sync::Mutex::new(waits));
        let look = || {
            let (looks, waits) = (Arc::clone(&looks), Arc::clone(&waits));
            move || {
                looks.fetch_add(1, SeqCst);
                let _ = waits.lock().map(|waits| waits.recv());
                7
            }
        };
        for _ in 0..20 {
            let mut asking = Box::pin(last.get(look()));
            for _ in 0..3 {
                let polled = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(asking.as_mut().poll(context).is_pending())
                });
                assert!(polled.await);
                tokio::task::yield_now().await;
            }
        }
        drop(go);
        assert_eq!(*last.get(look()).await.unwrap(), 7);
        // the last one looks again where the machine took long
        assert!(looks.load(SeqCst) <= 2, "{looks:?}");
    }

    #[tokio::test]
    async fn requests_at_once_share_one_text_of_a_look() {
        let last = LastLook::new(FRESH);
        let (looks, texts) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        // an error is no text
        let failed = last.text(|| 7, |_: Arc<u32>| Err::<String, _>("full")).await.unwrap();
        assert_eq!(failed, Err("full"));
        *last.last.lock().await = None;
        for _ in 0..20 {
            let (looked, written) = (Arc::clone(&looks), Arc::clone(&texts));
            let look = move || looked.fetch_add(1, SeqCst);
            let write = move |seen: Arc<u32>| {
                written.fetch_add(1, SeqCst);
                Ok::<_, &str>(format!("look {seen}"))
            };
            let text = last.text(look, write).await.unwrap().unwrap();
            // a machine that is slow looks again, and writes again
            let count = looks.load(SeqCst);
            assert_eq!(texts.load(SeqCst), count);
            assert_eq!(text, format!("look {}", count - 1));
        }
    }

    #[tokio::test]
    async fn a_look_that_fails_is_followed_by_another() {
        let last = LastLook::new(FRESH);
        assert!(last.get(|| -> u32 { panic!("no status") }).await.is_err());
        assert_eq!(*last.get(|| 8).await.unwrap(), 8);
    }

    #[tokio::test]
    async fn a_look_serves_for_as_long_as_it_is_said_to() {
        for (fresh, seen) in [(Duration::ZERO, 8), (Duration::MAX, 7)] {
            let last = LastLook::new(fresh);
            assert_eq!(*last.get(|| 7).await.unwrap(), 7);
            assert_eq!(*last.get(|| 8).await.unwrap(), seen);
        }
    }
}
