//! The final response to the client, and to the cache.

use super::cached;
use super::outcome::{Broken, ExchangeError, ExchangeOutcome, Progress};
use super::plan::{ForwardPlan, client_keeps_alive};
use super::rewrite::response_head;
use super::transfer::{chunks_down, copied_down, pump_down};
use crate::error::Failure;
use crate::resources::HeldMemory;
use crate::resources::origin::{Origin, authenticates_connection};
use crate::session::Session;
use crate::transfer::buffered::write_all;
use crate::wire::http::body::{self, Body};
use crate::wire::http::fields;
use crate::wire::http::head::{Response, Version};
use ekiden_model::resources::quota::Direction;

/// Sends a head that was written anew from one of `read` bytes, which the account's limits allowed.
pub(super) async fn to_client(
    session: &Session,
    head: &[u8],
    read: usize,
) -> Result<(), ExchangeError> {
    send_counted(session, head, head.len().saturating_sub(read)).await
}

/// Sends a head once the account's limits allow so many bytes.
pub(super) async fn send_counted(
    session: &Session,
    head: &[u8],
    bytes: usize,
) -> Result<(), ExchangeError> {
    session.pass_head(Direction::Down, bytes).await?;
    Ok(write_all(&session.client, head).await.map_err(Broken::by_client)?)
}

pub(super) async fn final_response(
    session: &Session,
    origin: &mut Origin,
    plan: &ForwardPlan,
    progress: &Progress,
    (response, read, mut held): (&Response, usize, HeldMemory),
) -> Result<ExchangeOutcome, ExchangeError> {
    let body = body::of_response(&plan.request.method, response)?;
    origin.own |= authenticates_connection(&response.fields, "www-authenticate");
    // an HTTP/1.0 client gets chunked bodies plain, up to the end of the connection
    let until_close = match body {
        Body::UntilClose => true,
        Body::Chunked => plan.request.version == Version::Http10,
        Body::None | Body::Length(_) => false,
    };
    // an early answer closes the connection, so that the client stops sending
    let keep_client = client_keeps_alive(&plan.request)
        && !until_close
        && progress.is_uploaded()
        && !session.is_stopping();
    origin.kept_for = fields::keep_alive_timeout(&response.fields);
    let keep_origin =
        fields::keeps_alive(response.version, &response.fields) && body != Body::UntilClose;
    if let Some(visit) = &plan.visit {
        visit.on_response(&plan.request, response);
        if response.status == 304
            && let Some(hit) = visit.on_not_modified(&plan.request, response, !origin.own)
        {
            let keep_client = client_keeps_alive(&plan.request) && !session.is_stopping();
            let sending = cached::memory_for(session, &hit).await?;
            cached::send(session, &plan.request, &hit, keep_client, sending).await?;
            let clean = origin.incoming.bytes().is_empty();
            return Ok(ExchangeOutcome::Response {
                keep_client,
                keep_origin: keep_origin && clean,
            });
        }
    }
    // on a connection that a user authenticated, the answer may be for that user alone
    let from = origin.address();
    let shared = plan.visit.as_ref().filter(|_| !origin.own);
    let mut copy = shared.and_then(|visit| visit.copy(response, body, from, session.transfer()));
    // the answer, its policy, and twice while its head is written; while half of the memory is not free, it is not stored
    let copied = origin.incoming.capacity() + 4 * response.memory();
    copy = copy.filter(|_| held.resize_if_free(copied));
    if let (Some(visit), None) = (&plan.visit, &copy)
        && response.status != 304
    {
        visit.drop_older(response);
    }
    let connection = cached::connection(keep_client, plan.request.version);
    // a chunked body may still turn out to be too large
    let kept = copy.is_some() && body != Body::Chunked;
    let annotated = cached::passed(session, plan, response, kept);
    let head = response_head(session, &annotated, body, plan.request.version, connection)?;
    drop(annotated);
    let heads = (1 + usize::from(copy.is_some())) * response.memory();
    if !held.resize(origin.incoming.capacity() + heads + head.capacity()).await {
        let text = "no memory is left for the head of the answer";
        return Err(Failure::without_memory(text).into());
    }
    if let (Body::None | Body::Length(0), Some(copy)) = (body, &mut copy) {
        copy.store();
    }
    to_client(session, &head, read).await?;
    drop(head);
    // bytes that came with the head count until they are sent
    let early = origin.incoming.bytes().len();
    held.resize(heads + early).await;
    let early = held.split(early);
    let from = &mut origin.incoming;
    let moved = match (body, &mut copy) {
        (Body::None, _) => Ok(()),
        (Body::Length(n), Some(copy)) => copied_down(session, from, n, copy, early).await,
        (Body::Length(n), None) => pump_down(session, from, Some(n), early).await,
        (Body::UntilClose, _) => pump_down(session, from, None, early).await,
        (Body::Chunked, copy) => {
            chunks_down(session, from, plan.request.version, copy.as_mut(), early).await
        }
    };
    moved?;
    let clean = origin.incoming.bytes().is_empty();
    Ok(ExchangeOutcome::Response { keep_client, keep_origin: keep_origin && clean })
}
