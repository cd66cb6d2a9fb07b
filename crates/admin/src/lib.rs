//! The management port: metrics, health, the API and the operator's page over HTTP, for programs of this machine.
//!
//! It is on no data path. `guard` checks each request before anything else and rejects what is not
//! explicitly allowed.
#![cfg_attr(not(feature = "dashboard"), allow(dead_code))] // what the API and the page alone use
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used))] // a test may fail loudly

#[cfg(feature = "api")]
mod api;
mod audit;
#[cfg(feature = "dashboard")]
mod dashboard;
pub mod documents;
mod guard;
#[cfg(feature = "dashboard")]
mod history;
mod metrics;
pub mod peers;
mod problem;
pub mod reload;
mod server;
mod status_cache;
pub mod token;
pub mod wireguard;

pub use guard::operators;
pub use status_cache::{Doctor, Running, TrialAlerts, TrialOutcome, TrialOutcomes};

use audit::Audit;
pub use audit::{ChangeByCommand, quoted, record_command};
use ekiden_config::{At, Management};
use ekiden_linux::host::panics::restarted;
use operators::OperatorLogins;
use problem::Problem;
use reload::Reloads;
use server::Turns;
use server::health::Readiness;
use status_cache::StatusCache;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use token::Token;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// The disk's time at the end, as for usage.
const AT_END: Duration = Duration::from_secs(10);

/// What the port needs to start.
#[derive(Debug, Clone)]
pub struct AdminConfig {
    /// `[management]`.
    pub settings: Management,
    /// The folder of the token and the audit log; `Err` when there is no home directory.
    pub folder: Result<PathBuf, String>,
    /// `listen` is set explicitly: failing to listen there is an error and not a warning.
    pub listen_is_set: bool,
    /// `token_file` is set explicitly: failing to use it is an error and not a warning.
    pub token_file_is_set: bool,
    /// The folder of peers; `None` when there is no home directory.
    pub peers: Option<PathBuf>,
    /// Whether this relay listens for tunnels.
    pub listens_for_tunnels: bool,
    /// The configuration in effect, as `ekiden config show --json` prints it.
    pub configuration: serde_json::Value,
}

impl AdminConfig {
    /// The path of the token. Fails without a home directory or `token_file`.
    pub fn token_path(&self) -> Result<PathBuf, String> {
        match &self.settings.token_file {
            Some(path) => Ok(path.clone()),
            None => self.folder.clone().map(|folder| folder.join("management.token")),
        }
    }
}

/// Why the port could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configured address cannot be used.
    #[error(
        "cannot listen for management: {0}; set another address in [management], or listen = \"off\""
    )]
    Listen(String),
    /// The configured token file cannot be used.
    #[error("{0}")]
    Token(String),
}

#[derive(Debug)]
struct Shared {
    settings: Management,
    /// The token and the audit log, or why they cannot be used.
    kept: Result<ApiFiles, String>,
    status: StatusCache,
    reloads: Reloads,
    operators: OperatorLogins,
    readiness: Readiness,
    /// At the token, and at the file of operators: the disk of one may not answer.
    reading_token: Turns,
    reading_operators: Turns,
    /// One at a time adds up the database's usage, which may be years of it.
    usage: Turns,
    #[cfg(feature = "dashboard")]
    dashboard: dashboard::Dashboard,
}

#[derive(Debug)]
struct ApiFiles {
    token: PathBuf,
    audit: Audit,
}

impl Shared {
    /// The API's files; without them every call is rejected.
    fn kept(&self) -> Result<&ApiFiles, Problem> {
        self.kept.as_ref().map_err(|why| {
            Problem::unavailable("no-token", why.clone())
                .hint("set token_file in [management], and restart the daemon")
        })
    }
}

/// A management port that answers.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    running: Arc<OnceLock<Running>>,
    tasks: [JoinHandle<()>; 3],
    #[cfg(feature = "dashboard")]
    recording: Option<history::Recording>,
    shared: Arc<Shared>,
}

impl Admin {
    /// Listens and answers as configured: health at once, the rest after [`runs`](Self::runs).
    /// `None` when the port is off or the default address not available. Fails when a configured
    /// address or token file cannot be used.
    pub async fn start(config: &AdminConfig, reloads: Reloads) -> Result<Option<Self>, StartError> {
        let At::Address(address) = config.settings.listen else {
            info!("management port is off: listen = \"off\" in [management]");
            return Ok(None);
        };
        let (listener, address) = match bind(address).await {
            Ok(bound) => bound,
            Err(why) if config.listen_is_set => return Err(StartError::Listen(why)),
            Err(why) => {
                warn!(
                    "no management port, so no metrics and no API: {why}; set another listen in [management], or \"off\""
                );
                return Ok(None);
            }
        };
        let kept = keep(config);
        match &kept {
            Ok(_) if cfg!(not(feature = "api")) => {
                info!(
                    "management at http://{address}: /metrics, /healthz, /readyz; built without the API"
                );
            }
            Ok(kept) => info!(
                "management at http://{address}: /metrics, /healthz, /readyz; the API below /api/v1 with the token in {}",
                kept.token.display()
            ),
            Err(why) if config.token_file_is_set => return Err(StartError::Token(why.clone())),
            Err(why) => warn!("management at http://{address} without the API: {why}"),
        }
        let running = Arc::new(OnceLock::new());
        let status = StatusCache::new(Arc::clone(&running));
        let settings = config.settings.clone();
        let shared = Arc::new(Shared {
            settings,
            kept,
            status,
            reloads,
            operators: OperatorLogins::new(config.folder.as_deref().ok()),
            readiness: Readiness::default(),
            reading_token: Turns::new(guard::READING),
            reading_operators: Turns::new(guard::READING),
            usage: Turns::new(1),
            #[cfg(feature = "dashboard")]
            dashboard: dashboard::Dashboard::new(config),
        });
        let (listener, answers) = (Arc::new(listener), router(&shared));
        let [looked, read] = [(); 2].map(|()| Arc::clone(&shared));
        let serve = move || server::serve(Arc::clone(&listener), answers.clone());
        let look = move || server::health::watch(Arc::clone(&looked));
        let read = move || server::health::watch_operators(Arc::clone(&read));
        let tasks = [
            tokio::spawn(restarted("the management port", serve)),
            tokio::spawn(restarted("the look whether the relay is ready", look)),
            tokio::spawn(restarted("the look at the file of operators", read)),
        ];
        #[cfg(feature = "dashboard")]
        let recording = config.folder.as_ref().ok().and_then(|folder| {
            history::Recording::start(&folder.join("history"), Arc::clone(&shared))
        });
        Ok(Some(Self {
            address,
            running,
            tasks,
            #[cfg(feature = "dashboard")]
            recording,
            shared,
        }))
    }

    /// The address it listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The relay runs; from now on it is ready.
    pub fn runs(&self, running: Running) {
        let _once = self.running.set(running);
        self.shared.readiness.on_running();
    }

    /// The configuration that is in effect from now on, as `ekiden config show --json` prints it.
    pub fn shows(&self, configuration: serde_json::Value) {
        #[cfg(feature = "dashboard")]
        {
            *ekiden_linux::host::sync::locked(&self.shared.dashboard.configuration) = configuration;
        }
        #[cfg(not(feature = "dashboard"))]
        let _nobody = (&self.shared, configuration);
    }

    /// Stops answering, and writes down what was recorded and the last lines of the audit log. A disk that hangs is given
    /// up after 10 s.
    pub async fn stop(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        let logged = async {
            if let Ok(kept) = &self.shared.kept {
                kept.audit.end().await;
            }
        };
        #[cfg(feature = "dashboard")]
        let recorded = async {
            if let Some(recording) = &self.recording {
                recording.stop().await;
            }
        };
        #[cfg(not(feature = "dashboard"))]
        let recorded = std::future::ready(());
        tokio::join!(logged, recorded);
    }
}

async fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), String> {
    let failed = |error| format!("{address}: {error}");
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn keep(config: &AdminConfig) -> Result<ApiFiles, String> {
    let (token, folder) = (config.token_path()?, config.folder.clone()?);
    Token::read_or_make(&token).map_err(|error| error.to_string())?;
    let audit = open_audit(&folder)?;
    Ok(ApiFiles { token, audit })
}

fn open_audit(folder: &Path) -> Result<Audit, String> {
    Audit::open(folder).map_err(|error| {
        format!("the audit log cannot be written in {}: {error}", folder.display())
    })
}

fn router(shared: &Arc<Shared>) -> axum::Router {
    let open = axum::Router::new()
        .route("/healthz", axum::routing::get(server::health::alive))
        .route("/readyz", axum::routing::get(server::health::ready))
        .route("/metrics", axum::routing::get(metrics::answer));
    #[cfg(feature = "api")]
    let open = open.merge(api::router());
    #[cfg(feature = "dashboard")]
    let open = open.merge(dashboard::router());
    let router = open.fallback(guard::not_found);
    let router = router.method_not_allowed_fallback(guard::method_not_allowed);
    let guarded = axum::middleware::from_fn_with_state(Arc::clone(shared), guard::check);
    let router = router.layer(guarded);
    // 50 connections that all move have 66 KiB, a quarter of a second of a 2 Mbit/s line
    #[cfg(feature = "api")]
    let router = {
        use tower_http::compression::predicate::{DefaultPredicate, Predicate as _};
        let compressed = DefaultPredicate::new().and(metrics::may_compress);
        router.layer(tower_http::compression::CompressionLayer::new().compress_when(compressed))
    };
    #[cfg(feature = "dashboard")]
    let router = router.layer(axum::middleware::from_fn(dashboard::files::protect));
    router.with_state(Arc::clone(shared))
}

#[cfg(test)]
pub(crate) fn sample() -> ekiden_proxy::observe::status::Status {
    serde_json::from_str(include_str!("../../ekiden/tests/status.json")).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    pub(crate) fn config(folder: &Path, listen: At) -> AdminConfig {
        AdminConfig {
            settings: Management { listen, ..Management::default() },
            folder: Ok(folder.to_owned()),
            listen_is_set: true,
            token_file_is_set: false,
            peers: None,
            listens_for_tunnels: false,
            configuration: serde_json::Value::Null,
        }
    }

    #[tokio::test]
    async fn starts_where_configured_and_fails_on_a_taken_address_that_is_set() {
        let folder = tempfile::tempdir().unwrap();
        let off = config(folder.path(), At::Off);
        assert!(Admin::start(&off, Reloads::new().0).await.unwrap().is_none());
        let first = config(folder.path(), At::Address(([127, 0, 0, 1], 0).into()));
        let admin = Admin::start(&first, Reloads::new().0).await.unwrap().unwrap();
        assert!(folder.path().join("management.token").exists());
        let mut taken = config(folder.path(), At::Address(admin.address()));
        let error = Admin::start(&taken, Reloads::new().0).await.unwrap_err().to_string();
        assert!(error.contains("listen = \"off\""), "{error}");
        taken.listen_is_set = false;
        assert!(Admin::start(&taken, Reloads::new().0).await.unwrap().is_none());
        admin.stop().await;
    }

    /// Sends a request by a connection that stays.
    async fn send(stream: &mut TcpStream, path: &str, token: &str) {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
    }

    /// The answer's first line.
    async fn answer(stream: &mut TcpStream) -> String {
        let mut answer = vec![0; 4096];
        let count = stream.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
        answer.lines().next().unwrap_or_default().to_owned()
    }

    async fn ask(stream: &mut TcpStream, path: &str, token: &str) -> String {
        send(stream, path, token).await;
        answer(stream).await
    }

    #[tokio::test]
    async fn a_call_waits_for_the_token_s_disk_and_the_thread_of_the_runtime_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), At::Address(([127, 0, 0, 1], 0).into()));
        let admin = Admin::start(&config, Reloads::new().0).await.unwrap().unwrap();
        let path = folder.path().join("management.token");
        let token = std::fs::read_to_string(&path).unwrap();
        // whoever reads a pipe waits for who writes
        std::fs::remove_file(&path).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, mode).unwrap();
        let (go, goes_on) = std::sync::mpsc::channel::<()>();
        let text = token.clone();
        let disk = std::thread::spawn(move || {
            // a runtime that waits for the disk never says so
            let _late = goes_on.recv_timeout(Duration::from_secs(60));
            std::fs::write(path, text)
        });
        let connect = || async { TcpStream::connect(admin.address()).await.unwrap() };
        let (mut operator, mut probe) = (connect().await, connect().await);
        send(&mut operator, "/api/v1/none", token.trim()).await;
        for _ in 0..3 {
            assert!(ask(&mut probe, "/healthz", "").await.contains("200"));
        }
        go.send(()).unwrap();
        assert!(answer(&mut operator).await.contains("404"));
        disk.join().unwrap().unwrap();
        admin.stop().await;
    }

    #[tokio::test]
    async fn a_call_with_the_token_does_not_wait_for_the_file_of_operators() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), At::Address(([127, 0, 0, 1], 0).into()));
        let admin = Admin::start(&config, Reloads::new().0).await.unwrap().unwrap();
        let token = std::fs::read_to_string(folder.path().join("management.token")).unwrap();
        let go = operators::hang(&admin.shared);
        let mut holder = TcpStream::connect(admin.address()).await.unwrap();
        let first = ask(&mut holder, "/api/v1/none", token.trim()).await;
        assert!(first.contains("404"), "{first}");
        drop(go);
        admin.stop().await;
    }

    #[tokio::test]
    async fn slow_strangers_shut_no_operator_out() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), At::Address(([127, 0, 0, 1], 0).into()));
        let admin = Admin::start(&config, Reloads::new().0).await.unwrap().unwrap();
        let token = std::fs::read_to_string(folder.path().join("management.token")).unwrap();
        let token = token.trim();
        let connect = || async { TcpStream::connect(admin.address()).await.unwrap() };
        let mut operator = connect().await;
        let first = ask(&mut operator, "/api/v1/none", token).await;
        assert!(first.contains("404"), "{first}");
        let mut strangers = Vec::new();
        for n in 0..200 {
            let mut stranger = connect().await;
            let slow = match n % 2 {
                0 => "GET /healthz HTTP/1.1\r\nHost: local",
                _ => {
                    "POST /page/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"
                }
            };
            let _closed = stranger.write_all(slow.as_bytes()).await;
            strangers.push(stranger);
        }
        let mut newcomer = connect().await;
        assert!(ask(&mut newcomer, "/healthz", token).await.contains("200"));
        let again = ask(&mut operator, "/api/v1/none", token).await;
        assert!(again.contains("404"), "{again}");
        admin.stop().await;
    }

    #[tokio::test]
    async fn not_ready_before_the_relay_runs() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), At::Address(([127, 0, 0, 1], 0).into()));
        let admin = Admin::start(&config, Reloads::new().0).await.unwrap().unwrap();
        let mut probe = TcpStream::connect(admin.address()).await.unwrap();
        assert!(ask(&mut probe, "/readyz", "").await.contains("503"));
        admin.stop().await;
    }
}
