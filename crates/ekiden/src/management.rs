//! The management port: metrics, health and the API, over HTTP, for programs of this machine.
//!
//! It never relays a byte, and nothing of it is on the way of one. Everything is refused that is not let in:
//! `guard` looks at each request before anything else does.

mod api;
mod audit;
mod guard;
mod health;
mod look;
mod metrics;
mod problem;
mod serving;
pub(crate) mod token;

pub(crate) use look::Running;

use crate::config::{At, Draft, Loaded};
use crate::reload::Reloads;
use crate::{config, exit, state};
use audit::Audit;
use look::Look;
use problem::Problem;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use token::Token;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

/// What every request may need.
#[derive(Debug)]
struct Shared {
    settings: config::Management,
    /// Where the token and the audit log are; why not, where they cannot be.
    kept: Result<Kept, String>,
    look: Look,
    reloads: Reloads,
}

/// What the API keeps on disk.
#[derive(Debug)]
struct Kept {
    token: PathBuf,
    audit: Audit,
}

impl Shared {
    /// What the API cannot do without.
    fn kept(&self) -> Result<&Kept, Problem> {
        self.kept.as_ref().map_err(|why| {
            Problem::unavailable("no-token", why.clone())
                .hint("name a file in [management] token_file, and restart the daemon")
        })
    }
}

/// A management port that answers.
#[derive(Debug)]
pub(crate) struct Management {
    address: SocketAddr,
    running: Arc<OnceLock<Running>>,
    task: JoinHandle<()>,
}

impl Management {
    /// Listens and answers, as the configuration says: health from now on, the rest once it [`runs`](Self::runs).
    /// `None` where there is none.
    ///
    /// # Errors
    /// An exit code, where what was asked for by name cannot be had.
    pub(crate) async fn start(loaded: &Loaded, reloads: Reloads) -> Result<Option<Self>, u8> {
        let settings = loaded.reading.draft.management.clone();
        let At::Address(address) = settings.listen else {
            info!("no management port: listen = \"off\" in [management]");
            return Ok(None);
        };
        let is_named =
            |key: &str| loaded.reading.origins.contains_key(&format!("management.{key}"));
        let (listener, address) = match bind(address).await {
            Ok(bound) => bound,
            Err(why) if is_named("listen") => {
                error!(
                    "the management port cannot be had: {why}; name another in [management], or listen = \"off\""
                );
                return Err(exit::UNAVAILABLE);
            }
            Err(why) => {
                warn!(
                    "no management port, so no metrics and no API: {why}; name another with listen in [management], or \"off\""
                );
                return Ok(None);
            }
        };
        let kept = keep(&loaded.reading.draft);
        match &kept {
            Ok(kept) => info!(
                "management at http://{address}: /metrics, /healthz, /readyz; the API below /api/v1 with the token in {}",
                kept.token.display()
            ),
            Err(why) if is_named("token_file") => {
                error!("{why}");
                return Err(exit::CANNOT_CREATE);
            }
            Err(why) => warn!("management at http://{address} without the API: {why}"),
        }
        let running = Arc::new(OnceLock::new());
        let look = Look::new(Arc::clone(&running));
        let shared = Arc::new(Shared { settings, kept, look, reloads });
        let task = tokio::spawn(serving::serve(listener, router(&shared)));
        Ok(Some(Self { address, running, task }))
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The relay runs; from now on it is ready.
    pub(crate) fn runs(&self, running: Running) {
        let _once = self.running.set(running);
    }

    /// Answers no more.
    pub(crate) fn stop(self) {
        self.task.abort();
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), String> {
    let failed = |error| format!("{address}: {error}");
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Where the token is, by the configuration; `Err` in words.
pub(crate) fn token_path(draft: &Draft) -> Result<PathBuf, String> {
    match &draft.management.token_file {
        Some(path) => Ok(path.clone()),
        None => folder(draft).map(|folder| folder.join("management.token")),
    }
}

fn folder(draft: &Draft) -> Result<PathBuf, String> {
    let folder = draft.accounts.state.clone().or_else(state::directory);
    folder.ok_or_else(|| "there is no home directory; set `state` in [accounts]".to_owned())
}

fn keep(draft: &Draft) -> Result<Kept, String> {
    let (token, folder) = (token_path(draft)?, folder(draft)?);
    Token::read_or_make(&token).map_err(|error| error.to_string())?;
    let audit = Audit::open(&folder);
    let audit = audit.map_err(|error| {
        format!("the audit log cannot be written in {}: {error}", folder.display())
    })?;
    Ok(Kept { token, audit })
}

/// Everything that is answered, behind the guard.
fn router(shared: &Arc<Shared>) -> axum::Router {
    let open = axum::Router::new()
        .route("/healthz", axum::routing::get(health::alive))
        .route("/readyz", axum::routing::get(health::ready))
        .route("/metrics", axum::routing::get(metrics::answer));
    let router = open.merge(api::router()).fallback(guard::nothing_here);
    let router = router.method_not_allowed_fallback(guard::not_this_way);
    let guarded = axum::middleware::from_fn_with_state(Arc::clone(shared), guard::look_at);
    router.layer(guarded).with_state(Arc::clone(shared))
}
