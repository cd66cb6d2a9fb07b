//! A receiver of alerts, by webhook. It can be away: then it takes connections and answers nobody.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::sleep;

/// Its port.
pub(crate) const ALERTS: u16 = 7_900;
/// The largest message.
const MOST: usize = 1 << 20;
/// While it is away, requests wait for so long and are then refused.
const AWAY: Duration = Duration::from_millis(500);

/// Its switch, and what it was told.
#[derive(Debug, Default)]
pub(crate) struct AlertReceiver {
    away: AtomicBool,
    messages: AtomicU64,
    /// Alerts of all messages.
    alerts: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl AlertReceiver {
    /// Listens at this address until the runtime ends. Errors: the port is taken.
    pub(crate) async fn start(address: Ipv4Addr) -> io::Result<Arc<Self>> {
        let listener = TcpListener::bind((address, ALERTS)).await?;
        let receiver = Arc::new(Self::default());
        let this = Arc::clone(&receiver);
        tokio::spawn(async move {
            loop {
                let Some(stream) = super::accept(&listener).await else { continue };
                let this = Arc::clone(&this);
                tokio::spawn(async move {
                    let answer = service_fn(|request| this.answer(request));
                    let http = hyper::server::conn::http1::Builder::new();
                    // a message that broke is sent again
                    let _broken = http.serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
        Ok(receiver)
    }

    /// From now on it answers nobody, or everybody.
    pub(crate) fn set_away(&self, away: bool) {
        self.away.store(away, Relaxed);
    }

    /// Messages and alerts so far.
    pub(crate) fn told(&self) -> (u64, u64) {
        (self.messages.load(Relaxed), self.alerts.load(Relaxed))
    }

    /// Messages that were none.
    pub(crate) fn wrong(&self) -> Vec<String> {
        self.wrong.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Empty<Bytes>>, Infallible> {
        let code = |status| Response::builder().status(status).body(Empty::new());
        let status = if self.away.load(Relaxed) {
            sleep(AWAY).await;
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            // a body that broke is sent again
            match Limited::new(request.into_body(), MOST).collect().await {
                Ok(body) => self.on_message(&body.to_bytes()),
                Err(_) => StatusCode::BAD_REQUEST,
            }
        };
        Ok(code(status).unwrap_or_default())
    }

    fn on_message(&self, body: &[u8]) -> StatusCode {
        match alerts(body) {
            Some(count) => {
                self.messages.fetch_add(1, Relaxed);
                self.alerts.fetch_add(count, Relaxed);
                StatusCode::NO_CONTENT
            }
            None => {
                let text = String::from_utf8_lossy(body).into_owned();
                self.wrong.lock().unwrap_or_else(PoisonError::into_inner).push(text);
                StatusCode::BAD_REQUEST
            }
        }
    }
}

/// How many alerts a message has; `None` of what is no message.
fn alerts(body: &[u8]) -> Option<u64> {
    let message: Value = serde_json::from_slice(body).ok()?;
    let alerts = message["alerts"].as_array().filter(|alerts| !alerts.is_empty())?;
    let whole = |alert: &Value| {
        let state = alert["state"].as_str();
        // one that is over has its end
        alert["alert"].is_string()
            && alert["subject"].is_string()
            && alert["since"].is_string()
            && match state {
                Some("firing") => alert["until"].is_null(),
                Some("resolved") => alert["until"].is_string(),
                _ => false,
            }
    };
    alerts.iter().all(whole).then_some(alerts.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_alerts_with_their_times() {
        let message = |state: &str, until: &str| {
            let text = format!(
                r#"{{"alerts": [{{"alert": "line-down", "state": "{state}", "subject": "far", "since": "1", "until": {until}}}]}}"#
            );
            alerts(text.as_bytes())
        };
        assert_eq!((message("firing", "null"), message("resolved", "\"2\"")), (Some(1), Some(1)));
        assert_eq!((message("resolved", "null"), message("gone", "null")), (None, None));
        assert_eq!((alerts(b"{\"alerts\": []}"), alerts(b"{")), (None, None));
    }
}
