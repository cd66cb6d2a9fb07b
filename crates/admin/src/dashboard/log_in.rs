//! Log-in and log-out of the operator's page, and which requests a session lets through.

use super::session::Secrets;
use crate::Shared;
use crate::audit::Call;
use crate::guard::{AuditedAction, Caller, Callers};
use crate::problem::Problem;
use crate::server::Peer;
use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// The name of the cookie, and of the field with the key.
const COOKIE: &str = "ekiden_session";
const KEY: &str = "x-ekiden-key";
/// Seconds after which a browser forgets the cookie; the relay may be sooner.
const AGE: u32 = 12 * 3600;
/// Bytes of a log-in.
const LONGEST: usize = 1024;

#[derive(Deserialize)]
#[serde(untagged)]
enum LogIn {
    Token(ByToken),
    Operator(ByName),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ByToken {
    token: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ByName {
    name: String,
    password: String,
}

/// Opens a session for the token or an operator; a session that the browser had before ends.
pub(super) async fn open(
    State(shared): State<Arc<Shared>>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let address = peer.ip().to_canonical();
    let (status, what, caller, response) = match log_in(&shared, address, &headers, body).await {
        Ok((secrets, caller)) => (200, "logged in".to_owned(), Some(caller), opened(&secrets)),
        Err(problem) => (problem.status, problem.detail.clone(), None, problem.into_response()),
    };
    if let Ok(kept) = shared.kept() {
        let (token, user) = (caller.as_ref().and_then(Caller::token), caller.as_ref());
        let user = user.and_then(Caller::user);
        let (method, path) = ("POST", super::SESSION);
        let call = Call { address, method, path, token, user, status, what: &what };
        let written = match status {
            200 => kept.audit.session(&call),
            _ => kept.audit.refused(&call),
        };
        // whoever goes away meanwhile does not keep a log-in from being written down
        let _waited = tokio::spawn(written.wait()).await;
    }
    response
}

async fn log_in(
    shared: &Arc<Shared>,
    address: IpAddr,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Secrets, Caller), Problem> {
    let now = Instant::now();
    // other types are what forms of other sites could send
    let json = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    let bad = || {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "document",
            "a log-in is {\"token\": …}, or {\"name\": …, \"password\": …}",
        )
    };
    let body = to_bytes(body, LONGEST).await.map_err(|_| bad())?;
    let said: LogIn = serde_json::from_slice(&body).ok().filter(|_| json).ok_or_else(bad)?;
    let caller = match said {
        LogIn::Token(ByToken { token: said }) => {
            let token = Callers::read_token(shared).await?;
            // its 256 random bits are not guessed, so whoever has it enters; all users of this machine share an address
            if !token.is(said.trim()) {
                shared.dashboard.sessions.guess(address, now).map_err(|wait| {
                    let seconds = wait.as_secs().max(1);
                    let why =
                        format!("too many wrong tokens from {address}; try again in {seconds} s");
                    Problem::new(StatusCode::TOO_MANY_REQUESTS, "guesses", why)
                })?;
                return Err(Problem::new(StatusCode::UNAUTHORIZED, "token", "wrong token")
                    .hint("`ekiden token show` prints it on the relay's machine"));
            }
            Caller::Token(token.id())
        }
        // guesses at passwords are counted there
        LogIn::Operator(ByName { name, password }) => {
            let callers = Callers::read(shared).await?;
            let said = (name.trim(), password.as_str());
            Caller::Operator(shared.operators.verify(callers.operators, said, address).await?)
        }
    };
    for old in cookies(headers) {
        shared.dashboard.sessions.close(old);
    }
    let random = |error: ekiden_tunnel::trust::NoRandomness| {
        Problem::unavailable("randomness", error.to_string())
    };
    // as of now: a password takes a while to check
    let callers = Callers::read(shared).await?.all();
    let stamps: Vec<String> = callers.iter().map(Caller::stamp).collect();
    let may = |opener: &str| stamps.iter().any(|stamp| stamp == opener);
    let secrets = shared.dashboard.sessions.open(&caller.stamp(), may, now).map_err(random)?;
    Ok((secrets, caller))
}

fn opened(secrets: &Secrets) -> Response {
    let mut response = Json(json!({ "key": secrets.key })).into_response();
    set_cookie(&mut response, &secrets.cookie, AGE);
    response
}

fn set_cookie(response: &mut Response, value: &str, age: u32) {
    let cookie = format!("{COOKIE}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict");
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
}

/// Ends the session. The audit log has it only where there was one.
pub(super) async fn close(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let close = |cookie: &&str| shared.dashboard.sessions.close(cookie);
    let ended = cookies(&headers).filter(close).count();
    let mut response = StatusCode::NO_CONTENT.into_response();
    set_cookie(&mut response, "", 0);
    if ended > 0 {
        response.extensions_mut().insert(AuditedAction("logged out".to_owned()));
    }
    response
}

/// Whose session a request belongs to, of all `callers` of now. Requests that a page of another site sends belong to none.
pub(crate) fn caller(
    shared: &Shared,
    headers: &HeaderMap,
    callers: impl FnOnce() -> Vec<Caller>,
) -> Option<Caller> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // Fetch Metadata: absent where a browser is old or an address is not trusted
    let own = text("sec-fetch-site").is_none_or(|site| site == "same-origin");
    let secrets = (cookies(headers), text(KEY).filter(|_| own)?);
    let callers: Vec<(String, Caller)> =
        callers().into_iter().map(|caller| (caller.stamp(), caller)).collect();
    let may = |opener: &str| callers.iter().any(|(stamp, _)| stamp == opener);
    let opener = shared.dashboard.sessions.opener(secrets, may, Instant::now())?;
    callers.into_iter().find(|(stamp, _)| *stamp == opener).map(|(_, caller)| caller)
}

/// All cookies of the session's name, as many as a head has room for. A page of another port may add some, with other
/// paths: those are of no session, or of one with another key.
fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let fields = headers.get_all(header::COOKIE).iter().filter_map(|field| field.to_str().ok());
    fields.flat_map(|field| field.split(';')).filter_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        (name == COOKIE).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cookies_of_its_name_count() {
        let of = |fields: &[&str]| {
            let mut headers = HeaderMap::new();
            for field in fields {
                headers.append(header::COOKIE, field.parse().unwrap());
            }
            cookies(&headers).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(of(&["a=b; ekiden_session=x"]), ["x"]);
        assert_eq!(of(&["a=b", "ekiden_session=x"]), ["x"]);
        assert_eq!(of(&["ekiden_session=x; ekiden_session=y"]), ["x", "y"]);
        assert_eq!(of(&["ekiden_session=x", "ekiden_session=y"]), ["x", "y"]);
        assert!(of(&["xekiden_session=x"]).is_empty());
    }
}
