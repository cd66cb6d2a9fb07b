//! Requests to the authority: HTTP/1.1 within TLS, over the relay's own way out.

use bytes::Bytes;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::Span;
use ekiden_proxy::Handle;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use rustls::ClientConfig;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

/// The longest answer: a chain of certificates has some ten KiB.
const LONGEST: usize = 1 << 20;
/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest wait that the authority can ask for. The limits of public authorities count over a week at most.
const LONGEST_WAIT: Span = Span::from_secs(7 * 86_400);

/// What the authority's answers said beside their content.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Noticed {
    /// How long to wait, of the last refusal.
    pub(crate) retry_after: Option<Span>,
    /// How many seconds this machine's clock is ahead of the authority's.
    pub(crate) ahead: i64,
}

/// The authority's server was not reached, or does not answer as an authority.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoAnswer(pub(crate) String);

/// A client of one authority, which keeps a connection for the next request.
#[derive(Clone)]
pub(crate) struct Web(Arc<Inner>);

struct Inner {
    handle: Handle,
    tls: Arc<ClientConfig>,
    noticed: Mutex<Noticed>,
    kept: Mutex<Option<(String, SendRequest<Full<Bytes>>)>>,
}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Web").finish_non_exhaustive()
    }
}

impl Web {
    pub(crate) fn new(handle: Handle, tls: Arc<ClientConfig>) -> Self {
        let (noticed, kept) = (Mutex::default(), Mutex::new(None));
        Self(Arc::new(Inner { handle, tls, noticed, kept }))
    }

    pub(crate) fn noticed(&self) -> Noticed {
        *locked(&self.0.noticed)
    }

    /// Forgets what earlier refusals said.
    pub(crate) fn begin(&self) {
        locked(&self.0.noticed).retry_after = None;
    }
}

impl HttpClient for Web {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let uri = request.uri().clone();
            let asking = inner.ask(request);
            let asked = tokio::time::timeout(PATIENCE, asking)
                .await
                .unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())));
            let mut response = asked.map_err(|why| no_answer(format!("{uri}: {why}")))?;
            bound(response.headers_mut());
            inner.notice(response.status(), response.headers());
            let kind = response.headers().get(header::CONTENT_TYPE);
            let is_problem =
                kind.and_then(|kind| kind.to_str().ok()).is_some_and(|kind| kind.contains("json"));
            if !response.status().is_success() && !is_problem {
                let status = response.status();
                return Err(no_answer(format!(
                    "{uri} answered {status}; is it an ACME directory's URL?"
                )));
            }
            Ok(response.into())
        })
    }
}

fn no_answer(why: String) -> Error {
    Error::Other(Box::new(NoAnswer(why)))
}

impl Inner {
    async fn ask(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Result<Response<Full<Bytes>>, String> {
        let (parts, body) = request.into_parts();
        let Ok(body) = body.collect().await;
        let body = body.to_bytes();
        let host = parts.uri.host().ok_or("a URL without a host")?.to_owned();
        if parts.uri.scheme_str() != Some("https") {
            return Err("an ACME server is asked by https:// alone".to_owned());
        }
        let port = parts.uri.port_u16().unwrap_or(443);
        let place = if port == 443 { host.clone() } else { format!("{host}:{port}") };
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let again = || {
            let mut request = Request::builder().method(parts.method.clone()).uri(&path);
            for (name, value) in &parts.headers {
                request = request.header(name, value);
            }
            let request = request.header(header::HOST, &place).body(Full::new(body.clone()));
            request.map_err(|error| error.to_string())
        };
        let kept = locked(&self.kept).take().filter(|(kept, _)| *kept == place);
        let mut answer = None;
        if let Some((_, mut kept)) = kept
            && kept.ready().await.is_ok()
        {
            // it may have been closed meanwhile; a new connection asks again then
            answer = kept.send_request(again()?).await.ok().map(|answer| (answer, kept));
        }
        let (answer, sender) = match answer {
            Some(answer) => answer,
            None => {
                let stream = self.handle.connect_securely(&host, port, &self.tls).await?;
                let begun = handshake(TokioIo::new(stream)).await;
                let (mut sender, connection) = begun.map_err(|error| error.to_string())?;
                tokio::spawn(connection);
                let answer = sender.send_request(again()?).await;
                (answer.map_err(|error| error.to_string())?, sender)
            }
        };
        let (parts, body) = answer.into_parts();
        let body = Limited::new(body, LONGEST).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        *locked(&self.kept) = Some((place, sender));
        Ok(Response::from_parts(parts, Full::new(body)))
    }

    fn notice(&self, status: StatusCode, headers: &HeaderMap) {
        let text = |name| headers.get(name)?.to_str().ok();
        let mut noticed = locked(&self.noticed);
        if let Some(theirs) =
            text(header::DATE).and_then(|date| httpdate::parse_http_date(date).ok())
        {
            noticed.ahead = ahead(SystemTime::now(), theirs);
        }
        if status.is_client_error() || status.is_server_error() {
            noticed.retry_after = text(header::RETRY_AFTER).and_then(wait);
        }
    }
}

/// How many seconds `ours` is ahead of `theirs`.
fn ahead(ours: SystemTime, theirs: SystemTime) -> i64 {
    let seconds = |span: Duration| i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    match ours.duration_since(theirs) {
        Ok(ahead) => seconds(ahead),
        Err(behind) => -seconds(behind.duration()),
    }
}

/// Leaves a `Retry-After` of bounded seconds, or none. The library adds what it reads there to the clock, and panics where
/// the sum is no time.
fn bound(headers: &mut HeaderMap) {
    let told = headers.remove(header::RETRY_AFTER);
    let told = told.and_then(|told| wait(told.to_str().ok()?));
    if let Some(told) = told {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(told.as_secs()));
    }
}

/// `Retry-After` as a time from now (RFC 9110 §10.2.3), of [`LONGEST_WAIT`] at most.
fn wait(text: &str) -> Option<Span> {
    let text = text.trim();
    let told = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        Span::from_secs(text.parse().unwrap_or(u64::MAX))
    } else {
        let until = httpdate::parse_http_date(text).ok()?;
        until.duration_since(SystemTime::now()).map_or(Span::ZERO, Span::from)
    };
    Some(told.min(LONGEST_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_and_clocks_are_read() {
        assert_eq!(wait("120"), Some(Span::from_secs(120)));
        let soon = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(3600));
        let span = wait(&soon).unwrap();
        assert!(span > Span::from_secs(3500) && span <= Span::from_secs(3600));
        assert_eq!(wait("Thu, 01 Jan 1970 00:00:00 GMT"), Some(Span::ZERO));
        assert_eq!(wait("soon"), None);
        for far in ["18446744073709551615", "99999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"]
        {
            assert_eq!(wait(far), Some(LONGEST_WAIT), "{far}");
        }
        let now = SystemTime::now();
        assert_eq!(ahead(now + Duration::from_secs(9), now), 9);
        assert_eq!(ahead(now, now + Duration::from_secs(9)), -9);
    }

    #[test]
    fn the_library_sees_a_wait_that_can_be_added_to_the_clock() {
        for (told, left) in [
            ("120", Some("120")),
            ("18446744073709551615", Some("604800")),
            ("Thu, 01 Jan 1970 00:00:00 GMT", Some("0")),
            ("soon", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.append(header::RETRY_AFTER, HeaderValue::from_static(told));
            headers.append(header::RETRY_AFTER, HeaderValue::from(u64::MAX));
            bound(&mut headers);
            let seen: Vec<_> = headers.get_all(header::RETRY_AFTER).iter().collect();
            assert_eq!(
                seen,
                left.map(HeaderValue::from_static).iter().collect::<Vec<_>>(),
                "{told}"
            );
        }
    }
}
