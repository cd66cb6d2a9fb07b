//! What is now, as server-sent events: one look each second for all viewers, and none without a viewer.

use super::findings::{Finding, MOST_ALERTS, findings, held_back};
use super::viewers::{VIEWERS, Viewers};
use crate::Shared;
use crate::guard::Caller;
use crate::problem::Problem;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use ekiden_proxy::observe::status::{Status, Summary};
use hyper::body::{Body as HttpBody, Frame};
use serde::Serialize;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, mpsc};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// A stream ends with its caller's right to call, and so long after its begin, before the port closes its connection; the
/// page opens another.
const LIFE: Duration = Duration::from_secs(50);
/// Accounts of the overview, the busiest first; the page of accounts has all.
const BUSIEST: usize = 12;

#[derive(Debug, Default)]
pub(super) struct Live {
    viewers: Arc<Viewers>,
    last: Mutex<Option<Look>>,
}

/// What was seen last, and sums to count rates from.
#[derive(Debug)]
struct Look {
    at: Instant,
    bytes: [u64; 2],
    event: Bytes,
}

/// An event's document.
#[derive(Debug, Serialize)]
struct Now<'a> {
    /// Milliseconds since 1970.
    at: i64,
    status: &'a Status,
    /// Payload towards clients and from them, bits per second since the last look; null at the first.
    down: Option<u64>,
    up: Option<u64>,
    /// What holds each line's rate down, in the order of `status.tunnels`.
    held_back: Vec<String>,
    /// Accounts that are limited, of which `status` has the busiest.
    accounts: usize,
    /// Alerts that stand, of which `status` has the first.
    standing: usize,
    findings: Vec<Finding>,
}

/// The stream of a viewer.
pub(super) async fn events(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    let Some(mut place) = shared.dashboard.live.viewers.take(&caller.stamp()) else {
        let why = format!("{VIEWERS} pages are open already");
        return Problem::new(StatusCode::TOO_MANY_REQUESTS, "viewers", why)
            .hint("close one of them")
            .into_response();
    };
    let (send, receive) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = place.lost() => {}
            () = send_events(&shared, &caller, &headers, send) => {}
        }
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    (kind, Body::new(Events(receive))).into_response()
}

async fn send_events(
    shared: &Arc<Shared>,
    caller: &Caller,
    headers: &HeaderMap,
    send: mpsc::Sender<Bytes>,
) {
    let begun = Instant::now();
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while begun.elapsed() < LIFE {
        tick.tick().await;
        // whoever logged out, or may not call any more, sees no further event
        if !caller.may_still_call(shared, headers).await {
            break;
        }
        let event = match look(shared).await {
            Ok(event) => event,
            Err(problem) => {
                let problem = serde_json::to_string(&problem).unwrap_or_default();
                Bytes::from(format!("event: problem\ndata: {problem}\n\n"))
            }
        };
        // a viewer that does not read is not waited for longer than its stream lasts
        match tokio::time::timeout(LIFE, send.send(event)).await {
            Ok(Ok(())) => {}
            _ => break,
        }
    }
}

struct Events(mpsc::Receiver<Bytes>);

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}

/// The event of this second.
async fn look(shared: &Shared) -> Result<Bytes, Problem> {
    let mut last = shared.dashboard.live.last.lock().await;
    if let Some(look) = &*last
        && look.at.elapsed() < EVERY * 9 / 10
    {
        return Ok(look.event.clone());
    }
    let Summary { mut status, accounts } = shared.status.summary(BUSIEST).await?;
    let (at, bytes) = (Instant::now(), [status.totals.bytes_down, status.totals.bytes_up]);
    let before = last.as_ref().map(|look| (at.duration_since(look.at), look.bytes));
    // over a longer pause a mean would not be of now
    let before = before.filter(|(passed, _)| *passed < 5 * EVERY);
    let rate = |n: usize| {
        let (passed, before) = before?;
        let bits = bytes[n].saturating_sub(before[n]) as f64 * 8.0;
        Some((bits / passed.as_secs_f64()) as u64)
    };
    let findings = findings(&status);
    let standing = status.alerts.as_ref().map_or(0, |alerts| alerts.standing.len());
    if let Some(alerts) = &mut status.alerts {
        alerts.standing.truncate(MOST_ALERTS);
    }
    let now = Now {
        at: jiff::Timestamp::now().as_millisecond(),
        down: rate(0),
        up: rate(1),
        held_back: status.tunnels.iter().map(held_back).collect(),
        accounts,
        standing,
        findings,
        status: &status,
    };
    let document = serde_json::to_string(&now)
        .map_err(|error| Problem::unavailable("status", error.to_string()))?;
    let event = Bytes::from(format!("data: {document}\n\n"));
    *last = Some(Look { at, bytes, event: event.clone() });
    Ok(event)
}
