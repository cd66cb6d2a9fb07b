//! Requests and the cache: what is looked for, and sending what was found.

use super::body::Body;
use super::forward::Plan;
use super::head::{Field, Request, Response, Version};
use super::rewrite::response_head;
use crate::cache::{Cache, Found, Hit, cache_status};
use crate::incoming::write_all;
use crate::session::{Session, within};
use ekiden_linux::clock;
use ekiden_model::quota::Direction;
use std::borrow::Cow;
use std::sync::Arc;

/// Bytes of a stored body written at a time: who takes none of them for as long as its leg may be silent is gone.
const AT_ONCE: usize = 256 * 1024;

/// The same where a household's limits may hold it up.
const METERED: usize = 16 * 1024;

/// Looks for a response to a request.
pub(super) async fn consult(
    session: &Session,
    cache: &Arc<Cache>,
    plan: &Plan,
    body: Body,
) -> Found {
    let scope = &session.world.route(&plan.destination).scope;
    let url = format!("http://{}{}", plan.authority, plan.path);
    let permitted =
        |stored: &crate::cache::Stored| session.may_reach(&plan.destination, stored.address);
    Box::pin(cache.consult(scope, url, &plan.request, body, permitted)).await
}

/// `Connection` of a response.
pub(super) const fn connection(keep: bool, client: Version) -> Option<&'static str> {
    match (keep, client) {
        (false, _) => Some("close"),
        (true, Version::Http10) => Some("keep-alive"),
        (true, Version::Http11) => None,
    }
}

/// A response that passes, with what the cache says of it.
pub(super) fn passed<'a>(
    session: &Session,
    plan: &Plan,
    response: &'a Response,
    kept: bool,
) -> Cow<'a, Response> {
    let Some(visit) = &plan.visit else { return Cow::Borrowed(response) };
    let mut response = response.clone();
    let said = visit.said(response.status, kept);
    cache_status(&session.world.settings.name, &said, &mut response.fields);
    Cow::Owned(response)
}

/// Sends what was found; the error is why it did not arrive, in words.
pub(super) async fn send(
    session: &Session,
    request: &Request,
    hit: &Hit,
    keep: bool,
) -> Result<(), String> {
    let Hit { stored, age, said, client_has_it, .. } = hit;
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
    cache_status(&session.world.settings.name, said, &mut fields);
    let response = Response { status, reason, version: stored.version(), fields };
    let connection = connection(keep, request.version);
    let head = response_head(session, &response, Body::None, request.version, connection)
        .map_err(|bad| bad.to_string())?;
    let body = if request.method == "HEAD" { &[][..] } else { body };
    let patience = session.world.client_leg.leg.idle_timeout;
    // what is small goes in one packet with its head
    let most = if session.share().is_some() { METERED } else { AT_ONCE };
    let (first, rest) = body.split_at(body.len().min(most - head.len().min(most)));
    let first_bytes = [&head[..], first].concat();
    let parts = std::iter::once((&first_bytes[..], first.len()))
        .chain(rest.chunks(most).map(|part| (part, part.len())));
    for (bytes, payload) in parts {
        session.pass(Direction::Down, payload).await.map_err(|error| error.to_string())?;
        within(patience, write_all(&session.client, bytes))
            .await
            .map_err(|error| format!("the client's connection broke: {error}"))?;
        session.registered.moved(clock::now(), 0, payload as u64, 0);
        hit.on_sent(payload);
    }
    Ok(())
}
