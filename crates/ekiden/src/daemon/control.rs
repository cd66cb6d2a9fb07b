//! The control socket: HTTP/1.1 and JSON over a Unix socket that only its owner may open.

use crate::commands::client::Reloaded;
use axum::extract::{Path as Part, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::serve::Listener;
use axum::{Json, Router};
use ekiden_alerts::Trial;
use ekiden_linux::host::panics::restarted;
use ekiden_proxy::observe::status::{AccountExplanation, Explanation, Measured, Status};
use rustix::fs::Mode;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// Returns the status.
pub(crate) type Ask = Arc<dyn Fn() -> Status + Send + Sync>;

/// Measures a tunnel: the peer's name, and seconds for each direction.
pub(crate) type Measure =
    Arc<dyn Fn(String, u16) -> Pin<Box<dyn Future<Output = Measured> + Send>> + Send + Sync>;

/// Explains a connection, by its number.
pub(crate) type Explain = Arc<dyn Fn(u64) -> Option<Explanation> + Send + Sync>;

/// Explains an account or what comes from a peer, by its name.
pub(crate) type ExplainAccount = Arc<dyn Fn(&str) -> Option<AccountExplanation> + Send + Sync>;

/// Reads the configuration again.
pub(crate) type Reload =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Reloaded> + Send>> + Send + Sync>;

/// Sends a trial alert to everybody who is told of alerts.
pub(crate) type TryAlerts =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Vec<Trial>> + Send>> + Send + Sync>;

/// What the daemon does when it is asked.
#[derive(Clone)]
pub(crate) struct Answers {
    pub(crate) status: Ask,
    pub(crate) explain: Explain,
    pub(crate) explain_account: ExplainAccount,
    pub(crate) measure: Measure,
    pub(crate) try_alerts: TryAlerts,
    pub(crate) reload: Reload,
}

/// Why the control socket cannot be created.
#[derive(Debug)]
pub(crate) struct ControlError {
    path: PathBuf,
    why: String,
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the control socket {} cannot be created: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for ControlError {}

/// A control socket that listens. Its file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Control {
    listener: Option<UnixListener>,
    path: PathBuf,
    identity: (u64, u64),
}

/// The default path of the socket: `ekiden.sock` in the folder that systemd made for the service
/// (`$RUNTIME_DIRECTORY`), else in `$XDG_RUNTIME_DIR`, else for root in `/run/ekiden`, else in `/tmp/ekiden-UID`,
/// which is made for its owner alone.
pub(crate) fn default_path() -> PathBuf {
    let user = rustix::process::geteuid();
    if let Some(runtime) = runtime_dir() {
        runtime.join("ekiden.sock")
    } else if user.is_root() {
        PathBuf::from(SERVICE)
    } else {
        private_dir().join("ekiden.sock")
    }
}

/// The default paths for a client: its user's, then the service's. Also the folder in `/tmp`, where it is left out because
/// another user may have put a socket there.
pub(crate) fn places() -> (Vec<PathBuf>, Option<PathBuf>) {
    trusted_places(default_path(), private_dir())
}

fn trusted_places(own: PathBuf, private_dir: PathBuf) -> (Vec<PathBuf>, Option<PathBuf>) {
    let private = private_dir.join("ekiden.sock");
    let mut places = vec![own];
    for other in [PathBuf::from(SERVICE), private.clone()] {
        if !places.contains(&other) {
            places.push(other);
        }
    }
    if check_private(&private_dir).is_ok() {
        return (places, None);
    }
    // also where it is not there: somebody may make it right now
    places.retain(|place| *place != private);
    let is_there = fs::symlink_metadata(&private_dir).is_ok();
    (places, is_there.then_some(private_dir))
}

const SERVICE: &str = "/run/ekiden/ekiden.sock";

fn runtime_dir() -> Option<PathBuf> {
    let of = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    // systemd's, and where a service has several, nothing tells which of them is meant
    let service =
        of("RUNTIME_DIRECTORY").filter(|path| !path.as_os_str().as_bytes().contains(&b':'));
    service.or_else(|| of("XDG_RUNTIME_DIR"))
}

fn private_dir() -> PathBuf {
    PathBuf::from(format!("/tmp/ekiden-{}", rustix::process::geteuid().as_raw()))
}

/// Whether a directory is ours and private; in `/tmp` anybody may have created it.
fn check_private(dir: &Path) -> Result<(), String> {
    let data = fs::symlink_metadata(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let ours = data.uid() == rustix::process::geteuid().as_raw();
    if data.is_dir() && ours && data.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(format!(
            "{} is not a private directory of this user; set another socket with --socket",
            dir.display()
        ))
    }
}

fn prepare(path: &Path) -> Result<(), String> {
    let Some(dir) = path.parent() else { return Ok(()) };
    let private = dir == private_dir();
    let service = Path::new(SERVICE).parent() == Some(dir);
    if private || service {
        let mode = if private { 0o700 } else { 0o755 };
        match fs::DirBuilder::new().mode(mode).create(dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(format!("{}: {error}", dir.display()));
            }
            _ => {}
        }
    }
    if private { check_private(dir) } else { Ok(()) }
}

/// Removes a stale socket.
fn remove_stale(path: &Path) -> Result<(), String> {
    let data = match fs::symlink_metadata(path) {
        Ok(data) => data,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.to_string()),
    };
    if !data.file_type().is_socket() {
        return Err("a file of that name exists and is no socket; remove it, or set another socket with --socket".to_owned());
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => {
            Err("another ekiden answers on it; stop that one, or set another socket with --socket"
                .to_owned())
        }
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path)
            .map_err(|error| format!("cannot remove the stale socket: {error}")),
        Err(error) => Err(format!("cannot test the existing socket: {error}")),
    }
}

impl Control {
    /// Makes the socket, mode 0600. A stale file is replaced, a live socket is not.
    ///
    /// Must be called within a tokio runtime.
    /// Errors: when another daemon answers there, or the file system refuses.
    pub(crate) fn bind(path: &Path) -> Result<Self, ControlError> {
        let failed = |why: String| ControlError { path: path.to_owned(), why };
        prepare(path).and_then(|()| remove_stale(path)).map_err(failed)?;
        // private from the first moment, not only after a chmod
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(path);
        rustix::process::umask(before);
        let made = bound.and_then(|listener| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
            let data = fs::symlink_metadata(path)?;
            Ok((listener, (data.dev(), data.ino())))
        });
        let (listener, identity) = made.map_err(|error: io::Error| failed(error.to_string()))?;
        Ok(Self { listener: Some(listener), path: path.to_owned(), identity })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Answers until the task is ended.
    pub(crate) fn answer(&mut self, answers: Answers) -> Option<JoinHandle<()>> {
        let listener = Shared(Arc::new(self.listener.take()?));
        let router = Router::new()
            .route("/v1/status", get(status))
            .route("/v1/connections/{id}", get(connection))
            .route("/v1/explain/{name}", get(account))
            .route("/v1/tunnels/{peer}/measure", get(measured))
            .route("/v1/alerts/try", post(tried))
            .route("/v1/reload", post(reloaded))
            .with_state(answers);
        Some(answer_at(listener, router))
    }
}

/// A socket that outlives a panic of the task that takes connections from it.
#[derive(Debug, Clone)]
struct Shared(Arc<UnixListener>);

impl Listener for Shared {
    type Io = UnixStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (UnixStream, SocketAddr) {
        loop {
            match self.0.accept().await {
                Ok(accepted) => return accepted,
                Err(error) => {
                    // out of descriptors, most likely: others give some back
                    tracing::warn!(%error, "the control socket accepts nothing for now");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// Answers until the task is ended, and begins anew where it panics.
fn answer_at<L>(listener: L, router: Router) -> JoinHandle<()>
where
    L: Listener + Clone,
    L::Addr: fmt::Debug,
{
    tokio::spawn(restarted("the control socket", move || {
        let (listener, router) = (listener.clone(), router.clone());
        async move {
            if let Err(error) = axum::serve(listener, router).await {
                tracing::error!(%error, "control socket server stopped");
            }
        }
    }))
}

async fn status(State(answers): State<Answers>) -> Json<Status> {
    Json((answers.status)())
}

async fn reloaded(State(answers): State<Answers>) -> Json<Reloaded> {
    Json((answers.reload)().await)
}

async fn tried(State(answers): State<Answers>) -> Json<Vec<Trial>> {
    Json((answers.try_alerts)().await)
}

/// Seconds to measure each direction: over a satellite, the rate is steady after one.
const SECONDS: u16 = 5;

async fn measured(State(answers): State<Answers>, Part(peer): Part<String>) -> Json<Measured> {
    Json((answers.measure)(peer, SECONDS).await)
}

/// A malformed number also gets "no such connection".
async fn connection(
    State(answers): State<Answers>,
    Part(id): Part<String>,
) -> Result<Json<Explanation>, StatusCode> {
    let found = id.parse().ok().and_then(|id| (answers.explain)(id));
    found.map(Json).ok_or(StatusCode::NOT_FOUND)
}

async fn account(
    State(answers): State<Answers>,
    Part(name): Part<String>,
) -> Result<Json<AccountExplanation>, StatusCode> {
    (answers.explain_account)(&name).map(Json).ok_or(StatusCode::NOT_FOUND)
}

impl Drop for Control {
    fn drop(&mut self) {
        // only if it is still ours: another daemon may have replaced it
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|data| (data.dev(), data.ino()) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "cannot remove the control socket");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Panics once.
    #[derive(Clone)]
    struct Panicking(Shared, Arc<AtomicBool>);

    impl Listener for Panicking {
        type Io = UnixStream;
        type Addr = SocketAddr;

        async fn accept(&mut self) -> (UnixStream, SocketAddr) {
            assert!(self.1.swap(true, Ordering::Relaxed), "a test asked for it");
            self.0.accept().await
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            self.0.local_addr()
        }
    }

    #[tokio::test]
    async fn a_panic_loses_neither_the_socket_nor_who_waits_at_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e.sock");
        let listener = Shared(Arc::new(UnixListener::bind(&path).unwrap()));
        let mut waiting = UnixStream::connect(&path).await.unwrap();
        let panicked = Arc::new(AtomicBool::new(false));
        let task = answer_at(Panicking(listener, Arc::clone(&panicked)), Router::new());
        waiting.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        waiting.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        assert!(panicked.load(Ordering::Relaxed));
        task.abort();
    }

    #[tokio::test]
    async fn answers_on_a_private_socket_and_removes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e.sock");
        let mut control = Control::bind(&path).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o777, 0o600);
        let warnings = vec!["a warning".to_owned()];
        let outcome = Reloaded { file: None, errors: Vec::new(), warnings };
        let task = control
            .answer(Answers {
                status: Arc::new(crate::commands::sample),
                explain: Arc::new(crate::commands::explain::sample_of_seven),
                explain_account: Arc::new(|name| {
                    let name = name.to_owned();
                    (name == "田中").then(|| AccountExplanation { name, ..Default::default() })
                }),
                measure: Arc::new(|peer, _| {
                    let error = Some("no".to_owned());
                    Box::pin(async { Measured { peer, error, ..Measured::default() } })
                }),
                try_alerts: Arc::new(|| {
                    let (to, error) = ("mail".to_owned(), Some("no".to_owned()));
                    Box::pin(async { vec![Trial { to, answer: None, error }] })
                }),
                reload: {
                    let outcome = outcome.clone();
                    Arc::new(move || Box::pin(std::future::ready(outcome.clone())))
                },
            })
            .unwrap();
        let reloaded = crate::commands::client::reload(Some(&path)).await.unwrap();
        assert_eq!(reloaded, Some(outcome));
        let tried = crate::commands::client::try_alerts(Some(&path)).await.unwrap().unwrap();
        assert_eq!(tried[0].error.as_deref(), Some("no"));
        let measured = crate::commands::client::measure(Some(&path), "far").await.unwrap().unwrap();
        assert_eq!((measured.peer.as_str(), measured.error.as_deref()), ("far", Some("no")));
        let (explanation, _) = crate::commands::client::explain(Some(&path), 7).await.unwrap();
        assert_eq!(explanation.unwrap().connection.id, 7);
        assert!(crate::commands::client::explain(Some(&path), 8).await.unwrap().0.is_none());
        let account = crate::commands::client::explain_account(Some(&path), "田中").await.unwrap();
        assert_eq!(account.0.unwrap().name, "田中");
        let status = crate::commands::client::status(Some(&path)).await.unwrap();
        assert_eq!(status.0.name, "ekiden-5d41a0c7");
        // a live one is not replaced
        let error = Control::bind(&path).unwrap_err().to_string();
        assert!(error.contains("another ekiden answers"), "{error}");
        task.abort();
        drop(control);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn replaces_a_stale_socket_but_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("e.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(Control::bind(&path).unwrap());
        fs::write(&path, "mine").unwrap();
        assert!(Control::bind(&path).unwrap_err().to_string().contains("no socket"));
        assert!(
            crate::commands::client::status(Some(&path))
                .await
                .unwrap_err()
                .to_string()
                .contains("no ekiden answers")
        );
    }

    #[test]
    fn rejects_a_directory_open_to_others() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        assert!(check_private(dir.path()).is_err());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(check_private(dir.path()), Ok(()));
    }

    #[test]
    fn no_client_asks_at_a_socket_that_another_user_may_have_made() {
        let dir = tempfile::tempdir().unwrap();
        let private = dir.path().join("private");
        let (socket, own) = (private.join("ekiden.sock"), dir.path().join("run/ekiden.sock"));
        let service = PathBuf::from(SERVICE);
        let places = |own: &Path| trusted_places(own.to_owned(), private.clone());
        assert_eq!(places(&socket), (vec![service.clone()], None), "it is not there");
        fs::create_dir(&private).unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o755)).unwrap();
        let left_out = Some(private.clone());
        assert_eq!(places(&socket), (vec![service.clone()], left_out.clone()));
        assert_eq!(places(&own), (vec![own.clone(), service.clone()], left_out));
        fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(places(&socket), (vec![socket.clone(), service.clone()], None));
        assert_eq!(places(&own), (vec![own.clone(), service, socket], None));
    }
}
