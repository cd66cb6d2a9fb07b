//! A webhook: a POST of JSON by HTTP/1.1, over the relay's own way out.

use crate::AlertSettings;
use crate::message::AlertMessage;
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

/// Where a document is sent.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Webhook {
    url: WebhookUrl,
    authorization: Option<String>,
    authorities: Option<PathBuf>,
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Webhook").field(&self.url.masked()).finish()
    }
}

impl Webhook {
    pub(crate) fn of(settings: &AlertSettings) -> Option<Self> {
        let url = WebhookUrl::read(settings.alerts.webhook.as_deref()?).ok()?;
        let authorization = settings.secrets.authorization.clone();
        Some(Self { url, authorization, authorities: settings.alerts.authorities.clone() })
    }

    /// Sends a document. Returns the answer's status. Errors: in words, without the URL's path.
    pub(crate) async fn post(
        &self,
        handle: &Handle,
        message: &AlertMessage,
    ) -> Result<String, String> {
        let WebhookUrl { tls, host, port, authority, path } = &self.url;
        let failed = |why: String| format!("{authority}: {why}");
        let body = serde_json::to_vec(message).map_err(|error| failed(error.to_string()))?;
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
        let driver = tokio::spawn(connection);
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
        if head.status.is_success() {
            driver.abort();
            return Ok(format!("{authority} answered {}", head.status));
        }
        let said = Limited::new(body, LONGEST).collect().await;
        driver.abort();
        let said = said.map(|body| body.to_bytes()).unwrap_or_default();
        Err(failed(refused(head.status, &head.headers, &said)))
    }
}

/// What a receiver that took nothing answered.
fn refused(status: StatusCode, headers: &header::HeaderMap, body: &[u8]) -> String {
    if status.is_redirection() {
        let to = headers.get(header::LOCATION).and_then(|to| to.to_str().ok()).unwrap_or_default();
        let to: String = to.chars().take(QUOTED).collect();
        return format!("it answered {status} and points to {to}: set that URL as `webhook`");
    }
    let said: String = String::from_utf8_lossy(body)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(QUOTED)
        .collect();
    match said.trim() {
        "" => format!("it answered {status}"),
        said => format!("it answered {status}: {said}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_quoted_in_one_short_line() {
        let mut headers = header::HeaderMap::new();
        let said = refused(StatusCode::NOT_FOUND, &headers, b"no\nsuch hook\n");
        assert_eq!(said, "it answered 404 Not Found: no such hook");
        assert_eq!(refused(StatusCode::BAD_GATEWAY, &headers, b""), "it answered 502 Bad Gateway");
        let long = refused(StatusCode::BAD_REQUEST, &headers, &[b'x'; 10_000]);
        assert!(long.len() < 300);
        headers.insert(header::LOCATION, "https://h/new".parse().unwrap());
        let said = refused(StatusCode::FOUND, &headers, b"");
        assert!(said.contains("points to https://h/new: set that URL"), "{said}");
    }
}
