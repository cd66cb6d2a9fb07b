//! The guard checks each request before anything else.
//!
//! *Host* must be an address, localhost or a configured name: a page whose name was made to lead
//! here (DNS rebinding) shows another. *Origin* must be this port: other sites have no business
//! here, and nothing answers CORS. All below `/api` takes the token, an operator's name and password, or a
//! session that was opened with either, as does all below `/page`; `/metrics` from beyond this machine, too.

mod callers;
mod changing;
pub mod operators;

pub(crate) use callers::{Callers, READING};
pub(crate) use changing::Intent;
#[cfg(feature = "api")]
pub(crate) use changing::{AuditedAction, noted};

use super::Shared;
use super::audit::Call;
use super::problem::Problem;
use super::server::{Peer, PlaceState};
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use changing::Outcome;
use ekiden_proxy::LogThrottle;
use operators::{Operator, Role};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// For all that an answer takes, the request's body among it.
const LONGEST: Duration = Duration::from_secs(30);

/// Lets a request through, or not, and writes down what has to be.
pub(super) async fn check(
    State(shared): State<Arc<Shared>>,
    Extension(Peer(peer)): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let address = peer.ip().to_canonical();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let headers = request.headers().clone();
    let caller = match admit(&shared, address, (&method, &path), &headers).await {
        Ok(caller) => caller,
        Err(problem) => {
            say_refused(&shared, address, &method, &path, &problem).await;
            return problem.into_response();
        }
    };
    if caller.is_some()
        && let Some(place) = request.extensions().get::<PlaceState>()
    {
        place.on_authorised();
    }
    if let Some(caller) = &caller {
        request.extensions_mut().insert(caller.clone());
    }
    let (true, Some(caller)) = (!is_reading(&method), caller) else {
        return in_time(next.run(request)).await;
    };
    let leaves = leaves(&method, &path);
    let intent = Intent::default();
    request.extensions_mut().insert(intent.clone());
    // whoever goes away meanwhile does not keep a change from being written down
    let done = tokio::spawn(async move {
        let Outcome { response, what, is_unknown } = Outcome::of(&intent, next.run(request)).await;
        let written = shared.kept.as_ref().ok().and_then(|kept| {
            let (method, path, what) = (method.as_str(), path.as_str(), what.as_str());
            let (token, user) = (caller.token(), caller.user());
            let status = response.status().as_u16();
            let call = Call { address, method, path, token, user, status, what };
            match leaves {
                true if what.is_empty() || status >= 400 => None,
                true => Some(kept.audit.session(&call)),
                false if is_unknown => Some(kept.audit.unknown(&call)),
                false => Some(kept.audit.changed(&call)),
            }
        });
        if let Some(written) = written {
            written.wait().await;
        }
        response
    });
    done.await.unwrap_or_else(|error| broken(error.to_string()).into_response())
}

async fn in_time(answer: impl Future<Output = Response>) -> Response {
    tokio::time::timeout(LONGEST, answer).await.unwrap_or_else(|_| late().into_response())
}

fn late() -> Problem {
    Problem::unavailable("late", format!("not done within {} s", LONGEST.as_secs()))
}

fn broken(why: String) -> Problem {
    Problem::unavailable("broken", why)
}

/// Who calls, where that matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Caller {
    /// The holder of the token with this id.
    Token(String),
    /// A person.
    Operator(Operator),
}

impl Caller {
    pub(super) fn token(&self) -> Option<&str> {
        match self {
            Self::Token(id) => Some(id),
            Self::Operator(_) => None,
        }
    }

    pub(super) fn user(&self) -> Option<&str> {
        match self {
            Self::Token(_) => None,
            Self::Operator(operator) => Some(&operator.name),
        }
    }

    /// Stands for its right to call: a session whose opener has another one now has ended.
    pub(super) fn stamp(&self) -> String {
        match self {
            Self::Token(id) => format!("token {id}"),
            Self::Operator(operator) => operator.stamp(),
        }
    }

    /// Whether a request of before, with these fields, would be let through now: its session is open, and its token
    /// or operator is as it was.
    #[cfg(feature = "dashboard")]
    pub(super) async fn may_still_call(&self, shared: &Arc<Shared>, headers: &HeaderMap) -> bool {
        let said = authorization(headers);
        if let Some(Said::Bearer(_)) = said {
            let token = Callers::read_token(shared).await;
            return token.is_ok_and(|token| *self == Self::Token(token.id()));
        }
        let Ok(callers) = Callers::read(shared).await else { return false };
        let callers = callers.all();
        match said {
            Some(_) => callers.contains(self),
            None => {
                let caller = crate::dashboard::log_in::caller(shared, headers, || callers);
                caller.as_ref() == Some(self)
            }
        }
    }

    /// Whether it may change something.
    fn may_change(&self) -> bool {
        !matches!(self, Self::Operator(Operator { role: Role::Viewer, .. }))
    }
}

const fn is_reading(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Whether it ends the caller's session, as everybody may. That changes nothing else.
#[cfg(feature = "dashboard")]
fn leaves(method: &Method, path: &str) -> bool {
    crate::dashboard::is_session(path) && *method == Method::DELETE
}

#[cfg(not(feature = "dashboard"))]
const fn leaves(_method: &Method, _path: &str) -> bool {
    false
}

/// Who calls, where one must be known.
async fn admit(
    shared: &Arc<Shared>,
    address: IpAddr,
    (method, path): (&Method, &str),
    headers: &HeaderMap,
) -> Result<Option<Caller>, Problem> {
    is_ours(headers, &shared.settings.hosts)?;
    #[cfg(feature = "dashboard")]
    if crate::dashboard::is_open(path, *method == Method::POST) {
        return Ok(None);
    }
    let below = |folder: &str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let is_open = match path {
        // every user of this machine may count; who is beyond it reads accounts' names along
        "/metrics" => address.is_loopback(),
        _ => !(below("/api") || below("/page")),
    };
    if is_open {
        return Ok(None);
    }
    let refused = |why: &str| {
        Err(Problem::new(StatusCode::UNAUTHORIZED, "token", why).hint(
            "Authorization: Bearer TOKEN, with what `ekiden token show` prints on the relay's machine",
        ))
    };
    let caller = match authorization(headers) {
        Some(Said::Bearer(said)) => match Callers::read_token(shared).await? {
            token if token.is(said) => Caller::Token(token.id()),
            _ => return refused("wrong token"),
        },
        Some(Said::Basic(name, password)) => {
            let callers = Callers::read(shared).await?;
            let said = (name.as_str(), password.as_str());
            Caller::Operator(shared.operators.verify(callers.operators, said, address).await?)
        }
        #[cfg(feature = "dashboard")]
        None => {
            let callers = Callers::read(shared).await?;
            match crate::dashboard::log_in::caller(shared, headers, || callers.all()) {
                Some(caller) => caller,
                None => return refused("this call needs the token, or an operator"),
            }
        }
        #[cfg(not(feature = "dashboard"))]
        None => return refused("this call needs the token, or an operator"),
    };
    if is_reading(method) || caller.may_change() || leaves(method, path) {
        return Ok(Some(caller));
    }
    let name = caller.user().unwrap_or_default();
    let why = format!("operator \"{name}\" may look, and change nothing");
    Err(Problem::new(StatusCode::FORBIDDEN, "viewer", why)
        .hint("`ekiden operator add` without --viewer makes an operator who may"))
}

/// What a call says of who sends it.
enum Said<'a> {
    Bearer(&'a str),
    Basic(String, String),
}

/// One field of either scheme (RFC 6750, RFC 7617); others are as none, and so is a password longer than any.
fn authorization(headers: &HeaderMap) -> Option<Said<'_>> {
    if let Some(token) = bearer(headers) {
        return Some(Said::Bearer(token));
    }
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    let (field, none) = (fields.next()?, fields.next());
    let (name, password) = ekiden_proxy::policy::accounts::read_basic(field.as_bytes())?;
    none.is_none().then_some(Said::Basic(name, password))
}

/// RFC 6750 §2.1; the scheme in any case (RFC 9110 §11.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut fields = headers.get_all(header::AUTHORIZATION).iter();
    let (field, none) = (fields.next()?, fields.next());
    let (scheme, said) = field.to_str().ok()?.split_once(' ')?;
    (none.is_none() && scheme.eq_ignore_ascii_case("bearer")).then_some(said.trim())
}

/// Whether `Host` names this machine and `Origin`, where there is one, this port.
fn is_ours(headers: &HeaderMap, hosts: &[String]) -> Result<(), Problem> {
    let refused = |word: &str, why: String| Problem::new(StatusCode::FORBIDDEN, word, why);
    let one = |name: header::HeaderName| {
        let mut fields = headers.get_all(name).iter();
        let first = fields.next().map(|field| field.to_str().unwrap_or_default());
        // two of them are two opinions
        if fields.next().is_some() { Some("") } else { first }
    };
    let host = one(header::HOST).unwrap_or_default();
    if !names_us(host, hosts) {
        let why = format!("\"{}\" is not a name of this port", shown(host));
        return Err(refused("host", why)
            .hint("use an address or localhost, or add the name to [management] hosts"));
    }
    let Some(origin) = one(header::ORIGIN) else { return Ok(()) };
    let same = ["http://", "https://"]
        .iter()
        .any(|scheme| origin.strip_prefix(scheme).is_some_and(|at| at.eq_ignore_ascii_case(host)));
    if same {
        Ok(())
    } else {
        Err(refused("origin", format!("pages of \"{}\" may not call this port", shown(origin))))
    }
}

/// An address, localhost or a name of the configuration, with any port: whoever forwards a port has another one.
fn names_us(host: &str, hosts: &[String]) -> bool {
    let Ok(authority) = host.parse::<axum::http::uri::Authority>() else { return false };
    if authority.as_str().contains('@') {
        return false;
    }
    let name = authority.host();
    let literal = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    let known = |ours: &str| name.eq_ignore_ascii_case(ours);
    literal.parse::<IpAddr>().is_ok() || known("localhost") || hosts.iter().any(|ours| known(ours))
}

/// What a stranger sent, for a log or an answer.
fn shown(text: &str) -> String {
    ekiden_config::printable(text).chars().take(80).collect()
}

async fn say_refused(
    shared: &Shared,
    address: IpAddr,
    method: &Method,
    path: &str,
    problem: &Problem,
) {
    // who has no token does not hide that a page of another site tried
    static SAID: [LogThrottle; 2] = [LogThrottle::new(), LogThrottle::new()];
    let foreign = problem.status == StatusCode::FORBIDDEN.as_u16();
    if SAID[usize::from(foreign)].is_due() {
        tracing::warn!(
            "management: rejected {address}, {}: {} {}: {}; audit-refused.jsonl has more",
            problem.status,
            shown(method.as_str()),
            shown(path),
            problem.detail
        );
    }
    if let Ok(kept) = &shared.kept {
        let (method, status) = (method.as_str(), problem.status);
        let what = problem.detail.as_str();
        let call = Call { address, method, path, token: None, user: None, status, what };
        kept.audit.refused(&call).wait().await;
    }
}

pub(super) async fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "path", "no such path").hint(match cfg!(feature = "api") {
        true => "/api/v1/openapi.json describes all calls",
        false => "there are /metrics, /healthz and /readyz; this program was built without the API",
    })
}

pub(super) async fn method_not_allowed() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", "the path does not support this method")
        .hint("the field Allow lists the supported methods")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(header::HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn names_that_lead_here_by_a_trick_are_refused() {
        let hosts = ["relay.example".to_owned()];
        for ours in [
            "127.0.0.1:9128",
            "[::1]:9128",
            "[::1]",
            "localhost",
            "LOCALHOST:1",
            "192.0.2.7",
            "relay.example:80",
        ] {
            assert!(names_us(ours, &hosts), "{ours}");
        }
        for others in [
            "",
            "evil.example",
            "localhost.evil.example",
            "relay.example.",
            "x@localhost",
            "127.0.0.1.nip.io",
            "a b",
            "::1",
        ] {
            assert!(!names_us(others, &hosts), "{others}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let asked = |origin: &str| {
            is_ours(&headers(&[(header::HOST, "localhost:9128"), (header::ORIGIN, origin)]), &[])
        };
        assert_eq!(asked("http://localhost:9128"), Ok(()));
        for origin in [
            "null",
            "",
            "http://evil.example",
            "http://localhost:3000",
            "http://localhost",
            "file://",
        ] {
            assert_eq!(asked(origin).unwrap_err().status, 403, "{origin}");
        }
        let two = headers(&[(header::HOST, "localhost"), (header::HOST, "evil.example")]);
        assert_eq!(is_ours(&two, &[]).unwrap_err().kind, "urn:ekiden:host");
    }

    #[test]
    fn a_password_longer_than_any_is_as_none() {
        // "a:b", then letters alone
        let said = |bytes: usize| {
            let field = format!("Basic YTpi{}", "YWFh".repeat(bytes / 3));
            let headers = headers(&[(header::AUTHORIZATION, field.as_str())]);
            match authorization(&headers) {
                Some(Said::Basic(name, password)) => Some((name, password.len())),
                _ => None,
            }
        };
        assert_eq!(said(252), Some(("a".to_owned(), 253)));
        assert_eq!(said(48 << 10), None);
    }

    #[test]
    fn one_bearer_and_no_other_scheme() {
        let field = |value: &str| headers(&[(header::AUTHORIZATION, value)]);
        assert_eq!(bearer(&field("bearer  abc ")), Some("abc"));
        assert_eq!(bearer(&field("Basic abc")), None);
        assert_eq!(bearer(&field("Bearer")), None);
        let two =
            headers(&[(header::AUTHORIZATION, "Bearer a"), (header::AUTHORIZATION, "Bearer b")]);
        assert_eq!(bearer(&two), None);
    }
}
