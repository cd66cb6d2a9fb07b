//! One attempt to send a batch, and what its answer means (OTLP specification, "OTLP/HTTP Response").

use crate::TraceSettings;
use crate::otlp;
use ekiden_alerts::{PostAnswer, PostTarget};
use ekiden_config::WebhookUrl;
use ekiden_proxy::Handle;
use ekiden_proxy::observe::traces::FinishedTrace;
use hyper::header::RETRY_AFTER;
use serde::Deserialize;
use std::time::Duration;

/// The longest that one attempt may take: a satellite's round trips, and a collector that is slow.
const PATIENCE: Duration = Duration::from_secs(30);

/// A collector, and what it is told of this relay.
#[derive(Debug)]
pub(crate) struct Exporter {
    target: PostTarget,
    resource: otlp::Resource,
}

/// What came of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The collector has the batch, but for some traces.
    Taken { rejected: u64, why: Option<String> },
    /// It does not want it.
    Refused(String),
    /// It may be tried again, if said after this time.
    Away { why: String, after: Option<Duration> },
}

impl Exporter {
    /// `None` where nothing is to be sent.
    pub(crate) fn new(settings: &TraceSettings) -> Option<Self> {
        settings.collector()?;
        let traces = &settings.traces;
        let mut url = WebhookUrl::read(traces.endpoint.as_deref()?).ok()?;
        url.path = path(&url.path);
        let authorization = settings.authorization.as_ref().map(|secret| secret.0.clone());
        let target = PostTarget { url, authorization, authorities: traces.authorities.clone() };
        Some(Self { target, resource: otlp::Resource::new(&traces.service, &settings.relay) })
    }

    pub(crate) async fn send(&self, handle: &Handle, traces: &[FinishedTrace]) -> Attempt {
        let body = match serde_json::to_vec(&otlp::document(&self.resource, traces)) {
            Ok(body) => body,
            Err(error) => return Attempt::Refused(error.to_string()),
        };
        let posted = tokio::time::timeout(PATIENCE, self.target.post(handle, body)).await;
        match posted {
            Ok(Ok(answer)) => judge(&answer, &self.target.url.authority),
            Ok(Err(why)) => Attempt::Away { why, after: None },
            Err(_) => {
                let authority = &self.target.url.authority;
                let why = format!("{authority}: no answer within {} s", PATIENCE.as_secs());
                Attempt::Away { why, after: None }
            }
        }
    }
}

/// The path for traces, below that of the collector's URL.
fn path(base: &str) -> String {
    let base = base.trim_end_matches('/');
    match base.ends_with("/v1/traces") {
        true => base.to_owned(),
        false => format!("{base}/v1/traces"),
    }
}

/// The body of a success; all of it may be missing.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Success {
    partial_success: Option<Partial>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Partial {
    /// A number, or its digits (protobuf's JSON of int64).
    rejected_spans: serde_json::Value,
    error_message: String,
}

fn judge(answer: &PostAnswer, authority: &str) -> Attempt {
    if answer.status.is_success() {
        let success: Success = serde_json::from_slice(&answer.body).unwrap_or_default();
        let partial = success.partial_success.unwrap_or_default();
        let rejected = match &partial.rejected_spans {
            serde_json::Value::String(digits) => digits.parse().unwrap_or(0),
            number => number.as_u64().unwrap_or(0),
        };
        let why = || format!("{authority} rejected {rejected} spans: {}", partial.error_message);
        // spans, of which a trace has several
        let traces = rejected.div_ceil(otlp::MOST_SPANS);
        return Attempt::Taken { rejected: traces, why: (rejected > 0).then(why) };
    }
    let why = format!("{authority}: {}", answer.refusal("endpoint"));
    match answer.status.as_u16() {
        429 | 502..=504 => {
            let after = answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
            let after = after.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
            Attempt::Away { why, after }
        }
        _ => Attempt::Refused(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::StatusCode;
    use hyper::header::HeaderMap;

    fn answer(status: u16, body: &str) -> PostAnswer {
        let status = StatusCode::from_u16(status).unwrap();
        PostAnswer { status, headers: HeaderMap::new(), body: body.to_owned().into() }
    }

    #[test]
    fn traces_go_below_the_collectors_url() {
        assert_eq!(path("/"), "/v1/traces");
        assert_eq!(path("/otlp/"), "/otlp/v1/traces");
        assert_eq!(path("/v1/traces"), "/v1/traces");
    }

    #[test]
    fn answers_say_whether_to_try_again() {
        let taken = Attempt::Taken { rejected: 0, why: None };
        for body in ["{}", "", "{\"partialSuccess\":{}}"] {
            assert_eq!(judge(&answer(200, body), "c"), taken);
        }
        let partly = "{\"partialSuccess\":{\"rejectedSpans\":\"6\",\"errorMessage\":\"late\"}}";
        let Attempt::Taken { rejected: 2, why: Some(why) } = judge(&answer(200, partly), "c")
        else {
            unreachable!("it was taken in part")
        };
        assert_eq!(why, "c rejected 6 spans: late");
        let refused = judge(&answer(400, "no"), "c");
        assert_eq!(refused, Attempt::Refused("c: it answered 400 Bad Request: no".to_owned()));
        let mut busy = answer(503, "");
        busy.headers.insert(RETRY_AFTER, "7".parse().unwrap());
        let Attempt::Away { after, .. } = judge(&busy, "c") else { unreachable!("it is away") };
        assert_eq!(after, Some(Duration::from_secs(7)));
    }
}
