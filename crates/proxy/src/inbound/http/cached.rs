//! Cache lookups, and responses from the cache.

use super::outcome::Broken;
use super::plan::ForwardPlan;
use super::rewrite::response_head;
use crate::cache::{Cache, CacheHit, CacheLookup, cache_status};
use crate::session::{Session, within};
use crate::transfer::buffered::write_all;
use crate::wire::http::body::Body;
use crate::wire::http::head::{Field, Request, Response, Version};
use ekiden_linux::host::clock;
use ekiden_model::resources::quota::Direction;
use std::borrow::Cow;
use std::sync::Arc;

/// Bytes of a cached body per write. A client that accepts none within its idle time-out is gone.
const AT_ONCE: usize = 256 * 1024;

/// The same where an account's limits may delay the write, and of the part that is copied behind the head.
const METERED: usize = 16 * 1024;

pub(super) async fn consult(
    session: &Session,
    cache: &Arc<Cache>,
    plan: &ForwardPlan,
    body: Body,
) -> CacheLookup {
    let scope = &session.config.route(&plan.destination).scope;
    let url = format!("http://{}{}", plan.authority, plan.path);
    let permitted = |stored: &crate::cache::StoredResponse| {
        session.may_reach(&plan.destination, stored.address)
    };
    let budget = &session.transfer();
    Box::pin(cache.consult(scope, url, &plan.request, body, budget, permitted)).await
}

/// The value of `Connection` in a response.
pub(super) const fn connection(keep: bool, client: Version) -> Option<&'static str> {
    match (keep, client) {
        (false, _) => Some("close"),
        (true, Version::Http10) => Some("keep-alive"),
        (true, Version::Http11) => None,
    }
}

pub(super) fn passed<'a>(
    session: &Session,
    plan: &ForwardPlan,
    response: &'a Response,
    kept: bool,
) -> Cow<'a, Response> {
    let Some(visit) = &plan.visit else { return Cow::Borrowed(response) };
    let mut response = response.clone();
    let status_text = visit.status_text(response.status, kept);
    cache_status(&session.config.settings.name, &status_text, &mut response.fields);
    Cow::Owned(response)
}

/// Sends a cached response, whose body the caller has counted; the error tells, in words, why it did not arrive.
pub(super) async fn send(
    session: &Session,
    request: &Request,
    hit: &CacheHit,
    keep: bool,
) -> Result<(), Broken> {
    let CacheHit { stored, age, status_text, client_has_it, .. } = hit;
    let mut fields = stored.fields();
    let field = |name: &str, value: String| Field { name: name.into(), value: value.into_bytes() };
    fields.push(field("Age", age.to_string()));
    let (status, reason, body) = match client_has_it {
        true => (304, b"Not Modified".to_vec(), &[][..]),
        false => (stored.status, stored.reason.clone(), &stored.body[..]),
    };
    if status != 304 {
        fields.push(field("Content-Length", body.len().to_string()));
    }
    cache_status(&session.config.settings.name, status_text, &mut fields);
    let response = Response { status, reason, version: stored.version(), fields };
    let connection = connection(keep, request.version);
    let head = response_head(session, &response, Body::None, request.version, connection)
        .map_err(Broken::by_relay)?;
    let body = if request.method == "HEAD" { &[][..] } else { body };
    let patience = session.config.client_leg.leg.idle_timeout;
    // a small body goes in one packet with its head
    let most = if session.share().is_some() { METERED } else { AT_ONCE };
    let (first, rest) = body.split_at(body.len().min(METERED.saturating_sub(head.len())));
    let first_bytes = [&head[..], first].concat();
    let parts = std::iter::once((&first_bytes[..], first.len()))
        .chain(rest.chunks(most).map(|part| (part, part.len())));
    for (bytes, payload) in parts {
        tokio::select! {
            biased;
            passed = session.pass(Direction::Down, bytes.len()) => passed.map_err(Broken::by_relay)?,
            // the account may wait for long, and the body is in memory
            () = session.client.broken() => {
                return Err(Broken::by_client(session.client.error()));
            }
        }
        within(patience, write_all(&session.client, bytes)).await.map_err(Broken::by_client)?;
        session.registration.moved(clock::now(), 0, payload as u64, 0);
        hit.on_sent(payload);
    }
    Ok(())
}
