//! The client of the control socket, for `status`, `top`, `explain`, `alerts`, `doctor`, `init` and `peer`.

use crate::daemon::control;
use crate::setup::place;
use ekiden_alerts::Trial;
use ekiden_proxy::observe::status::{AccountExplanation, Explanation, Measured, Status};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::Method;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

/// A healthy daemon on this machine answers at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// The status of 20,000 connections takes about 50 MiB.
const LONGEST: usize = 1 << 30;

/// What shows why the service does not run.
pub(crate) const SEE_SERVICE: &str = "systemctl status ekiden; journalctl -u ekiden -n 20";

/// Why the daemon could not be asked.
#[derive(Debug, Clone)]
pub(crate) enum AskError {
    /// No daemon answers on any of these sockets. In that folder nobody was asked: it may be another user's.
    NoDaemon(Vec<PathBuf>, Option<PathBuf>),
    /// Nor does the service, which systemd is to run.
    NoService(Vec<PathBuf>),
    /// This user may not use the socket.
    Denied(PathBuf),
    /// None within so many seconds.
    Slow(PathBuf, u64),
    /// An unexpected answer.
    Answer(PathBuf, String),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDaemon(places, left_out) => {
                write!(
                    f,
                    "no ekiden answers on {}: start one with `ekiden serve`, or give its socket with --socket",
                    any_of(places)
                )?;
                let Some(folder) = left_out else { return Ok(()) };
                write!(f, "; {} is left out: it is not this user's alone", folder.display())
            }
            Self::NoService(places) => write!(
                f,
                "the service does not answer on {}: `{SEE_SERVICE}` says why; another's socket is given with --socket",
                any_of(places)
            ),
            Self::Denied(path) => write!(
                f,
                "{} belongs to another user: run this as that user or as root (sudo)",
                path.display()
            ),
            Self::Slow(path, seconds) => write!(
                f,
                "the daemon on {} did not answer within {seconds} s: it is busy or stopped; try again, and see its log",
                path.display()
            ),
            Self::Answer(path, why) => write!(
                f,
                "unexpected answer from the daemon on {}: {why}; is its version the same?",
                path.display()
            ),
        }
    }
}

impl std::error::Error for AskError {}

fn any_of(places: &[PathBuf]) -> String {
    let places: Vec<_> = places.iter().map(|place| place.display().to_string()).collect();
    places.join(" or ")
}

/// Opening a flow, 5 s for each direction, and the time-outs of a peer that does not answer.
const MEASURING: Duration = Duration::from_secs(120);

/// Asks for the status, at `socket`, or at the default sockets of this user and of the service. Also returns
/// the document as it was sent.
/// Errors: when no daemon answers as expected within 5 s.
pub(crate) async fn status(socket: Option<&Path>) -> Result<(Status, Bytes), AskError> {
    let what = "/v1/status";
    match ask(socket, what, PATIENCE).await? {
        (Some(status), body) => Ok((status, body)),
        (None, _) => Err(AskError::Answer(
            socket.map(Path::to_owned).unwrap_or_default(),
            "HTTP status 404".into(),
        )),
    }
}

/// Asks about one connection; `None` if it does not exist. As [`status`].
/// Errors: as [`status`].
pub(crate) async fn explain(
    socket: Option<&Path>,
    connection: u64,
) -> Result<(Option<Explanation>, Bytes), AskError> {
    ask(socket, &format!("/v1/connections/{connection}"), PATIENCE).await
}

/// Asks about an account, or about what comes out of a peer's tunnel; `None` if there is neither. As [`status`].
/// Errors: as [`status`].
pub(crate) async fn explain_account(
    socket: Option<&Path>,
    name: &str,
) -> Result<(Option<AccountExplanation>, Bytes), AskError> {
    // a name may have letters of any language
    let name: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    ask(socket, &format!("/v1/explain/{name}"), PATIENCE).await
}

/// Measures the tunnel to a peer, in about 10 s; `None` if the daemon cannot.
/// Errors: as [`status`].
pub(crate) async fn measure(
    socket: Option<&Path>,
    peer: &str,
) -> Result<Option<Measured>, AskError> {
    Ok(ask(socket, &format!("/v1/tunnels/{peer}/measure"), MEASURING).await?.0)
}

/// A receiver that does not answer for a minute; an older daemon tries two one after the other.
const TRYING: Duration = Duration::from_secs(150);

/// Has the daemon send a trial alert to everybody who is told of alerts; `None` if it cannot be asked to. As [`status`].
pub(crate) async fn try_alerts(socket: Option<&Path>) -> Result<Option<Vec<Trial>>, AskError> {
    Ok(send(socket, (Method::POST, "/v1/alerts/try"), TRYING).await?.0)
}

/// The outcome of a reload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reloaded {
    /// The configuration's file.
    pub(crate) file: Option<String>,
    /// Why the old configuration stays.
    pub(crate) errors: Vec<String>,
    /// What is to be known of the new one.
    pub(crate) warnings: Vec<String>,
}

/// Has the daemon read its configuration again; `None` if it cannot be asked to. As [`status`].
pub(crate) async fn reload(socket: Option<&Path>) -> Result<Option<Reloaded>, AskError> {
    Ok(send(socket, (Method::POST, "/v1/reload"), PATIENCE).await?.0)
}

async fn ask<T: DeserializeOwned>(
    socket: Option<&Path>,
    what: &str,
    patience: Duration,
) -> Result<(Option<T>, Bytes), AskError> {
    send(socket, (Method::GET, what), patience).await
}

/// `None` if the daemon does not know the path.
async fn send<T: DeserializeOwned>(
    socket: Option<&Path>,
    what: (Method, &str),
    patience: Duration,
) -> Result<(Option<T>, Bytes), AskError> {
    let (places, left_out) =
        socket.map_or_else(control::places, |path| (vec![path.to_owned()], None));
    let mut denied = None;
    for path in &places {
        let stream = match UnixStream::connect(path).await {
            Ok(stream) => stream,
            Err(error) => {
                if error.kind() == std::io::ErrorKind::PermissionDenied {
                    denied = Some(path.clone());
                }
                continue;
            }
        };
        let wrong = |why: String| AskError::Answer(path.clone(), why);
        let body = tokio::time::timeout(patience, request(stream, what.clone()))
            .await
            .map_err(|_| AskError::Slow(path.clone(), patience.as_secs()))?
            .map_err(wrong)?;
        let Some(body) = body else { return Ok((None, Bytes::new())) };
        let document = serde_json::from_slice(&body).map_err(|error| wrong(error.to_string()))?;
        return Ok((Some(document), body));
    }
    Err(match denied {
        Some(path) => AskError::Denied(path),
        None if socket.is_none() && place::by_systemd() => AskError::NoService(places),
        None => AskError::NoDaemon(places, left_out),
    })
}

async fn request(
    stream: UnixStream,
    (method, what): (Method, &str),
) -> Result<Option<Bytes>, String> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let driver = tokio::spawn(connection);
    let request = hyper::Request::builder()
        .method(method)
        .uri(what)
        .header("host", "ekiden")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    if response.status() == hyper::StatusCode::NOT_FOUND {
        return Ok(None);
    }
    if !response.status().is_success() {
        return Err(format!("HTTP status {}", response.status()));
    }
    let body = Limited::new(response.into_body(), LONGEST).collect().await;
    driver.abort();
    body.map(|body| Some(body.to_bytes())).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_does_not_answer_is_not_started_by_hand() {
        let said = AskError::NoService(vec!["/run/ekiden/ekiden.sock".into()]).to_string();
        assert!(said.contains(SEE_SERVICE) && !said.contains("ekiden serve"), "{said}");
    }

    #[tokio::test]
    async fn a_daemon_that_is_late_is_no_other_version() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let _silent = tokio::net::UnixListener::bind(&path).unwrap();
        let asked = ask::<Status>(Some(&path), "/v1/status", Duration::from_millis(1)).await;
        let said = asked.unwrap_err().to_string();
        assert!(said.contains("did not answer within") && !said.contains("version"), "{said}");
    }
}
