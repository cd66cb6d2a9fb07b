//! The operator's page: its files, its sessions, and the data that it alone asks for, below `/page`.
//!
//! What can be changed is changed by the calls of the API, which a session may use as the token may. Data below `/page`
//! is for the page of the same version, and no interface for other programs.

mod accounts;
mod alerts;
mod connections;
mod doctor;
pub(crate) mod files;
mod findings;
mod live;
pub(crate) mod log_in;
mod peers;
mod records;
mod reports;
mod session;
mod viewers;

use crate::history::History;
use crate::server::Turns;
use crate::{AdminConfig, Shared};
use axum::Router;
use axum::routing::{delete, get, post};
use live::Live;
use serde_json::Value;
use session::Sessions;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use tokio::task::JoinError;

/// Where a session begins and ends.
const SESSION: &str = "/page/session";
/// Calls at once that read or write the same files.
const READING: usize = 4;

/// What the page knows besides the status.
#[derive(Debug, Default)]
pub(crate) struct Dashboard {
    sessions: Sessions,
    live: Live,
    doctor: doctor::LastLook,
    trial: alerts::LastTrial,
    /// Peers and the audit log.
    kept: Files,
    /// Reports: their folder may be on another disk.
    reports: Files,
    /// Set once the relay runs, unless its folder cannot be used.
    pub(crate) history: OnceLock<Arc<History>>,
    /// The configuration in effect, as `ekiden config show --json` prints it.
    pub(crate) configuration: Mutex<Value>,
    /// The folder of peers and whether this relay listens for tunnels; `None` without a home directory.
    peers: Option<PathBuf>,
    listens: bool,
}

/// Turns at files whose disk may not answer.
#[derive(Debug)]
struct Files(Turns);

impl Default for Files {
    fn default() -> Self {
        Self(Turns::new(READING))
    }
}

impl Files {
    /// Reads or writes them, not on a thread that relays. Few calls do at once, also where those who asked are gone.
    /// Errors: `work` panicked.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        self.0.spawn_blocking(work).await
    }
}

impl Dashboard {
    pub(crate) fn new(config: &AdminConfig) -> Self {
        Self {
            configuration: Mutex::new(config.configuration.clone()),
            peers: config.peers.clone(),
            listens: config.listens_for_tunnels,
            ..Self::default()
        }
    }
}

/// Whether a path is that of the session, which everybody may end.
pub(crate) fn is_session(path: &str) -> bool {
    path == SESSION
}

/// Paths that need no session: the page's files, which hold no data, and the log-in.
pub(crate) fn is_open(path: &str, is_post: bool) -> bool {
    files::is_file(path) || (path == SESSION && is_post)
}

pub(crate) fn router() -> Router<Arc<Shared>> {
    files::router()
        .route(SESSION, post(log_in::open).delete(log_in::close))
        .route("/page/live", get(live::events))
        .route("/page/connections", get(connections::page))
        .route("/page/connections/{id}", get(connections::explain))
        .route("/page/accounts", get(accounts::page))
        .route("/page/alerts/trial", get(alerts::last).post(alerts::begin))
        .route("/page/peers", get(peers::list).post(peers::invite))
        .route("/page/peers/{name}", delete(peers::revoke))
        .route("/page/history", get(records::history))
        .route("/page/audit", get(records::audit))
        .route("/page/configuration", get(records::configuration))
        .route("/page/doctor", get(doctor::look))
        .route("/page/reports", get(reports::list))
        .route("/page/reports/{experiment}/{engine}", get(reports::page))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::sync::mpsc::channel;

    #[tokio::test]
    async fn readers_that_left_keep_few_threads_waiting_for_a_disk() {
        let (dashboard, begun) = (Arc::new(Dashboard::default()), Arc::new(AtomicUsize::new(0)));
        let (go, waits) = channel::<()>();
        let waits = Arc::new(Mutex::new(waits));
        for _ in 0..20 {
            let (asked, begun) = (Arc::clone(&dashboard), Arc::clone(&begun));
            let waits = Arc::clone(&waits);
            let reading = tokio::spawn(async move {
                let work = move || {
                    begun.fetch_add(1, SeqCst);
                    let _ = waits.lock().map(|waits| waits.recv());
                };
                asked.reports.with(work).await
            });
            tokio::task::yield_now().await;
            reading.abort();
        }
        assert_eq!(dashboard.kept.with(|| 7).await.unwrap(), 7, "those are other files");
        drop(go);
        assert_eq!(dashboard.reports.with(|| 8).await.unwrap(), 8);
        assert!(begun.load(SeqCst) <= READING, "{begun:?}");
    }
}
