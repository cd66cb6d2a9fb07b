//! Cache lookups, and responses from the cache.

use super::outcome::Broken;
use super::plan::ForwardPlan;
use super::rewrite::response_head;
use crate::cache::{Cache, CacheHit, CacheLookup, StoredResponse, cache_status};
use crate::error::Failure;
use crate::resources::HeldMemory;
use crate::session::{Session, within};
use crate::transfer::budget::CountedMemory;
use crate::transfer::buffered::write_all;
use crate::wire::http::BadMessage;
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

/// Bytes of the fields that this relay adds to a cached response, at most.
const ADDED: usize = 1024;

pub(super) async fn consult(
    session: &Session,
    cache: &Arc<Cache>,
    plan: &ForwardPlan,
    body: Body,
) -> CacheLookup {
    let scope = &session.config.route(&plan.destination).scope;
    let url = format!("http://{}{}", plan.authority, plan.path);
    let permitted = |stored: &StoredResponse| session.may_reach(&plan.destination, stored.address);
    let budget = &session.transfer();
    let consulting = cache.consult(scope, url, &plan.request, body, budget, permitted);
    let mut lookup = Box::pin(consulting).await;
    if let CacheLookup::Pass(visit) = &mut lookup
        && let Some(stale) = visit.stale()
    {
        let counted = session.permit.hold(stored_head(stale)).await;
        visit.count_stale(counted.map(|held| Box::new(held) as Box<dyn CountedMemory>));
    }
    lookup
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

/// What [`send`] takes: for the head that is made, twice while it is written, and for the stored one, which the
/// cache may drop meanwhile.
pub(super) async fn memory_for(session: &Session, hit: &CacheHit) -> Result<HeldMemory, Failure> {
    let stored = &hit.stored;
    let made = 2 * (stored.head_memory() + ADDED) + stored.body.len().min(METERED);
    let held = session.permit.hold(stored_head(stored) + made).await;
    let text = "no memory is left for the head of the answer";
    held.ok_or_else(|| Failure::without_memory(text))
}

/// Bytes that a stored response takes beside its body: the policy has its fields once more.
fn stored_head(stored: &StoredResponse) -> usize {
    2 * stored.head_memory()
}

/// Sends a cached response, which counts in `held` beside its body; the error tells, in words, why it did not arrive.
pub(super) async fn send(
    session: &Session,
    request: &Request,
    hit: &CacheHit,
    keep: bool,
    mut held: HeldMemory,
) -> Result<(), Broken> {
    let body = match hit.client_has_it || request.method == "HEAD" {
        true => &[][..],
        false => &hit.stored.body[..],
    };
    // a small body goes in one packet with its head
    let (first, payload, rest) = {
        let head = head_of(session, request, hit, keep).map_err(Broken::by_relay)?;
        let (first, rest) = body.split_at(body.len().min(METERED.saturating_sub(head.len())));
        ([&head[..], first].concat(), first.len(), rest)
    };
    // the client may take its time; less than before, which never fails
    held.resize(stored_head(&hit.stored) + first.capacity()).await;
    send_part(session, hit, &first, payload).await?;
    drop(first);
    held.resize(stored_head(&hit.stored)).await;
    let most = if session.share().is_some() { METERED } else { AT_ONCE };
    for part in rest.chunks(most) {
        send_part(session, hit, part, part.len()).await?;
    }
    Ok(())
}

fn head_of(
    session: &Session,
    request: &Request,
    hit: &CacheHit,
    keep: bool,
) -> Result<Vec<u8>, BadMessage> {
    let CacheHit { stored, age, status_text, client_has_it, .. } = hit;
    let mut fields = stored.fields();
    let field = |name: &str, value: String| Field { name: name.into(), value: value.into_bytes() };
    fields.push(field("Age", age.to_string()));
    let (status, reason) = match client_has_it {
        true => (304, b"Not Modified".to_vec()),
        false => (stored.status, stored.reason.clone()),
    };
    if status != 304 {
        fields.push(field("Content-Length", stored.body.len().to_string()));
    }
    cache_status(&session.config.settings.name, status_text, &mut fields);
    let response = Response { status, reason, version: stored.version(), fields };
    let connection = connection(keep, request.version);
    response_head(session, &response, Body::None, request.version, connection)
}

/// Sends a part once the account's limits allow it; `payload` of its bytes are of the body.
async fn send_part(
    session: &Session,
    hit: &CacheHit,
    bytes: &[u8],
    payload: usize,
) -> Result<(), Broken> {
    tokio::select! {
        biased;
        passed = session.pass(Direction::Down, bytes.len()) => passed.map_err(Broken::by_relay)?,
        // the account may wait for long, and the body is in memory
        () = session.client.broken() => {
            return Err(Broken::by_client(session.client.error()));
        }
    }
    let patience = session.config.client_leg.leg.idle_timeout;
    within(patience, write_all(&session.client, bytes)).await.map_err(Broken::by_client)?;
    session.registration.moved(clock::now(), 0, payload as u64, 0);
    hit.on_sent(payload);
    Ok(())
}
