//! A POST of JSON by HTTP/1.1, over the relay's own way out.

use ekiden_config::WebhookUrl;
use ekiden_proxy::Handle;
use ekiden_proxy::policy::trust;
use ekiden_proxy::settings::UpstreamTls;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use std::fmt;
use std::path::PathBuf;

/// What is read of an answer.
const LONGEST: usize = 64 << 10;
/// What is said of it.
const QUOTED: usize = 200;

/// A server that documents are sent to.
#[derive(Clone, PartialEq, Eq)]
pub struct PostTarget {
    /// Where it is.
    pub url: WebhookUrl,
    /// The value of `Authorization`.
    pub authorization: Option<String>,
    /// A file with the authorities to trust, in place of the system's.
    pub authorities: Option<PathBuf>,
}

/// What the server answered.
#[derive(Debug, Clone)]
pub struct PostAnswer {
    /// The status.
    pub status: StatusCode,
    /// The fields.
    pub headers: header::HeaderMap,
    /// The body, where it is short; else empty.
    pub body: Bytes,
}

impl fmt::Debug for PostTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostTarget").field(&self.url.masked()).finish()
    }
}

impl PostTarget {
    /// Sends a document. Returns the answer, whatever its status. Errors: in words, without the URL's path.
    pub async fn post(&self, handle: &Handle, body: Vec<u8>) -> Result<PostAnswer, String> {
        let WebhookUrl { tls, host, port, authority, path } = &self.url;
        let failed = |why: String| format!("{authority}: {why}");
        let stream = if *tls {
            let trusted = UpstreamTls { authorities: self.authorities.clone(), fingerprint: None };
            // it reads the system's authorities
            let client = tokio::task::spawn_blocking(move || trust::client(&trusted)).await;
            let client = client.map_err(|error| failed(error.to_string()))?;
            handle.connect_securely(host, *port, &client.map_err(failed)?).await?
        } else {
            handle.connect_plainly(host, *port).await?
        };
        let begun = handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = begun.map_err(|error| failed(error.to_string()))?;
        let driver = Driver(tokio::spawn(connection));
        let mut request = Request::post(path)
            .header(header::HOST, authority)
            .header(header::USER_AGENT, concat!("ekiden/", env!("CARGO_PKG_VERSION")))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(Bytes::from(body)));
        let request = request.map_err(|error| failed(error.to_string()))?;
        let answer = sender.send_request(request).await;
        let (head, body) = answer.map_err(|error| failed(error.to_string()))?.into_parts();
        let body = Limited::new(body, LONGEST).collect().await;
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        drop(driver);
        Ok(PostAnswer { status: head.status, headers: head.headers, body })
    }
}

/// Drives a connection; ends with its drop.
struct Driver(tokio::task::JoinHandle<Result<(), hyper::Error>>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl PostAnswer {
    /// What a server that took nothing answered, in one short line. `key`: the one that names it in the configuration.
    pub fn refusal(&self, key: &str) -> String {
        let status = self.status;
        if status.is_redirection() {
            let to = self.headers.get(header::LOCATION).and_then(|to| to.to_str().ok());
            // its path may be the secret one
            let to = to.and_then(|to| WebhookUrl::read(to).ok()).map(|to| to.masked());
            let to = to.unwrap_or_else(|| "another path".to_owned());
            return format!("it answered {status} and points to {to}: set that URL as `{key}`");
        }
        let said: String = String::from_utf8_lossy(&self.body)
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(QUOTED)
            .collect();
        match said.trim() {
            "" => format!("it answered {status}"),
            said => format!("it answered {status}: {said}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_quoted_in_one_short_line() {
        let refused = |status, headers: &header::HeaderMap, body: &'static [u8]| {
            let (headers, body) = (headers.clone(), Bytes::from_static(body));
            PostAnswer { status, headers, body }.refusal("webhook")
        };
        let mut headers = header::HeaderMap::new();
        let said = refused(StatusCode::NOT_FOUND, &headers, b"no\nsuch hook\n");
        assert_eq!(said, "it answered 404 Not Found: no such hook");
        assert_eq!(refused(StatusCode::BAD_GATEWAY, &headers, b""), "it answered 502 Bad Gateway");
        let long = refused(StatusCode::BAD_REQUEST, &headers, &[b'x'; 10_000]);
        assert!(long.len() < 300);
        headers.insert(header::LOCATION, "https://h/geheim".parse().unwrap());
        let said = refused(StatusCode::FOUND, &headers, b"");
        assert!(said.contains("points to https://h/***: set that URL as `webhook`"), "{said}");
    }
}
