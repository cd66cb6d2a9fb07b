//! One request and its response: heads rewritten, bodies moved, both at the same time; and what the cache
//! keeps of it.

use super::BadMessage;
use super::body::{self, Body};
use super::cached::{self, send};
use super::fields;
use super::forward::{Plan, client_keeps_alive, head_limits, wants_upgrade};
use super::head::{Response, Version, read_response};
use super::origin::{Origin, authenticates_connection};
use super::rewrite::{request_head, response_head};
use super::transfer::{Sending, chunks_down, copied_down, pump_down, upload};
use crate::failure::{Failure, Kind};
use crate::incoming::{Incoming, write_all};
use crate::registry::State;
use crate::relay::wait_until_sent;
use crate::resources::Managed;
use crate::session::{LogEntry, Session};
use crate::tunnels::FarAnswer;
use crate::world::limits;
use ekiden_linux::{clock, socket};
use ekiden_model::lifetime::Limits;
use ekiden_model::units::{Span, Time};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::io::Interest;

/// How a request went.
pub(super) enum Exchange {
    /// The response is with the client.
    Done { keep_client: bool },
    /// The server switched protocols.
    Upgraded(Box<Upgraded>),
    /// It broke off when the response had begun, or the client went away; in words.
    Broken(String),
}

/// A connection that speaks something else from now on.
pub(crate) struct Upgraded {
    pub(crate) origin: Incoming,
    pub(crate) managed: Managed,
    pub(crate) early_up: Vec<u8>,
    pub(crate) limits: Limits,
    pub(crate) answer: Option<Arc<FarAnswer>>,
}

/// Why the response did not come through.
enum Trouble {
    /// Nothing was sent to the client yet: it can be told.
    Failed(Failure),
    /// The same, and the server closed a kept connection before it said anything: worth a second try.
    Stale,
    /// The response had begun.
    Broken(String),
}

/// Passes a request on and its response back.
///
/// # Errors
/// A failure before anything was sent to the client.
pub(super) async fn exchange(
    session: &Session,
    client: &mut Incoming,
    plan: &Plan,
    body: Body,
    entry: &mut LogEntry,
) -> Result<Exchange, Failure> {
    let mut kept = Origin::kept(session, &plan.destination);
    loop {
        let mut origin = match kept.take() {
            Some(origin) => {
                session.go_by(&origin.route, &origin.through, &origin.seen, &origin.managed);
                origin
            }
            None => Box::new(Origin::open(session, &plan.destination).await?),
        };
        origin.own |= authenticates_connection(&plan.request.fields, "authorization");
        entry.through = Arc::clone(&origin.through);
        session.registered.set_state(State::Relaying);
        let head = request_head(session, plan, body, origin.asks_proxy.as_deref())?;
        // a body is sent once; and so is what may not be done twice
        let replayable =
            origin.reused && matches!(body, Body::None) && is_idempotent(&plan.request.method);
        let result = both_ways(session, client, &mut origin, plan, body, &head, entry).await;
        match result {
            Ok(Outcome::Response { keep_client, keep_origin }) => {
                origin.reused = true;
                if keep_origin {
                    let client = session.registered.entry.id;
                    let key = origin.key(client);
                    session.resources().keep(origin, key);
                }
                return Ok(Exchange::Done { keep_client });
            }
            Ok(Outcome::Upgraded) => {
                let limits = limits(&origin.route.client_leg.leg, &origin.leg.leg);
                let Origin { incoming, managed, answer, .. } = *origin;
                let early_up = client.take();
                let upgraded = Upgraded { origin: incoming, managed, early_up, limits, answer };
                return Ok(Exchange::Upgraded(Box::new(upgraded)));
            }
            Err(Trouble::Stale) if replayable => {}
            Err(Trouble::Stale) => {
                let text = format!(
                    "{} closed a kept connection when this request arrived; whether it was carried out is not known",
                    plan.destination
                );
                return Err(Failure::new(Kind::Closed, text));
            }
            Err(Trouble::Failed(failure)) => {
                // the server must not take what it got of the request for the whole
                let _ = socket::abort(origin.incoming.stream.as_fd());
                // what became of the connection beyond a tunnel is known there
                let there = origin.answer.as_ref().and_then(|answer| answer.failure());
                return Err(there.unwrap_or(failure));
            }
            Err(Trouble::Broken(why)) => {
                // what arrived goes out first; then both sides learn that it was not the end
                wait_until_sent(&session.client).await;
                for stream in [&session.client, &origin.incoming.stream] {
                    let _ = socket::abort(stream.as_fd());
                }
                return Ok(Exchange::Broken(why));
            }
        }
    }
}

fn is_idempotent(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE")
}

/// How the two directions ended.
enum Outcome {
    Response { keep_client: bool, keep_origin: bool },
    Upgraded,
}

/// Sends the request while the response may already be coming back.
async fn both_ways(
    session: &Session,
    client: &mut Incoming,
    origin: &mut Origin,
    plan: &Plan,
    body: Body,
    head: &[u8],
    entry: &mut LogEntry,
) -> Result<Outcome, Trouble> {
    let stream = Arc::clone(&origin.incoming.stream);
    let reused = origin.reused;
    let progress = Progress::default();
    let begun = clock::now();
    let idle = limits(&origin.route.client_leg.leg, &origin.leg.leg).idle;
    let mut sending = true;
    let mut response_due = Time::NEVER;
    let result = {
        // the head too may wait for a server that does not read
        let mut up = std::pin::pin!(async {
            let head = write_all(&stream, head).await;
            head.map_err(|_| if reused { Sending::Stale } else { Sending::Origin })?;
            upload(session, client, &stream, body).await
        });
        let mut down = std::pin::pin!(download(session, origin, plan, &progress, entry));
        loop {
            let waiting = if progress.is_answered() { Time::NEVER } else { response_due };
            tokio::select! {
                biased;
                sent = &mut up, if sending => {
                    sending = false;
                    response_due = clock::now() + session.world.settings.timeouts.response;
                    match sent {
                        Ok(()) => progress.uploaded.store(true, Relaxed),
                        // the server may have answered before it had read everything
                        Err(Sending::Origin) => {}
                        Err(Sending::Stale) => break Err(Trouble::Stale),
                        // half-closed within the body: it can still be told
                        Err(Sending::Client(error)) if error.kind() == io::ErrorKind::UnexpectedEof && !progress.is_answered() => {
                            break Err(Trouble::Failed(BadMessage::bad("the connection ended within the request body").into()));
                        }
                        Err(Sending::Client(error)) if error.kind() == io::ErrorKind::QuotaExceeded => {
                            let over = error.to_string();
                            break Err(match progress.is_answered() {
                                true => Trouble::Broken(over),
                                false => Trouble::Failed(Failure::new(Kind::Denied, over)),
                            });
                        }
                        Err(Sending::Client(error)) => break Err(Trouble::Broken(format!("the client's connection broke: {error}"))),
                        Err(Sending::Malformed(bad)) if !progress.is_answered() => break Err(Trouble::Failed(bad.into())),
                        Err(Sending::Malformed(bad)) => break Err(Trouble::Broken(bad.to_string())),
                    }
                }
                got = &mut down => break got,
                // also while the body waits for a server that does not read
                _ = session.client.ready(Interest::ERROR) => {
                    break Err(Trouble::Broken("the client's connection broke".to_owned()));
                }
                () = silence(session, begun, idle) => {
                    let text = format!("silent for {idle}");
                    break Err(match progress.is_answered() {
                        true => Trouble::Broken(text),
                        false => Trouble::Failed(Failure::new(Kind::TimedOut, format!("{} was {text}", plan.destination))),
                    });
                }
                () = until(waiting), if waiting != Time::NEVER => {
                    let text = format!("{} did not answer within {}", plan.destination, session.world.settings.timeouts.response);
                    break Err(Trouble::Failed(Failure::new(Kind::TimedOut, text)));
                }
            }
        }
    };
    // what is left of an unfinished request must not be read as the next one
    let uploaded = progress.is_uploaded();
    result.map(|outcome| match outcome {
        Outcome::Response { keep_client, keep_origin } => Outcome::Response {
            keep_client: keep_client && uploaded && !session.is_stopping(),
            keep_origin: keep_origin && uploaded,
        },
        upgraded => upgraded,
    })
}

/// How far the two directions have come.
#[derive(Default)]
struct Progress {
    /// The whole request is with the server.
    uploaded: AtomicBool,
    /// The final response has begun.
    answered: AtomicBool,
}

impl Progress {
    fn is_uploaded(&self) -> bool {
        self.uploaded.load(Relaxed)
    }

    fn is_answered(&self) -> bool {
        self.answered.load(Relaxed)
    }
}

async fn until(deadline: Time) {
    tokio::time::sleep(deadline.since(clock::now()).into()).await;
}

/// Resolves when nothing has moved for `limit`, counted from `begun` at the earliest: before it, the
/// connection may have waited for a request as long as it liked.
async fn silence(session: &Session, begun: Time, limit: Span) {
    loop {
        let quiet = clock::now().since(session.registered.last_moved().max(begun));
        if quiet >= limit {
            return;
        }
        let longest = Span::from_secs(86_400);
        let wait = Span::from_nanos(limit.as_nanos() - quiet.as_nanos()).min(longest);
        tokio::time::sleep(wait.into()).await;
    }
}

/// Reads responses until the final one, and passes each on.
async fn download(
    session: &Session,
    origin: &mut Origin,
    plan: &Plan,
    progress: &Progress,
    entry: &mut LogEntry,
) -> Result<Outcome, Trouble> {
    let limits = head_limits(session);
    let mut interim = false;
    loop {
        let (response, used) = match read_response(origin.incoming.bytes(), limits) {
            Ok(Some(read)) => read,
            Ok(None) => {
                more(origin, plan, interim).await?;
                continue;
            }
            Err(bad) => {
                let text = format!("the answer of {} is not HTTP: {bad}", plan.destination);
                return Err(Trouble::Failed(Failure::new(Kind::BadAnswer, text)));
            }
        };
        origin.incoming.consume(used);
        if (100..200).contains(&response.status) && response.status != 101 {
            interim = true;
            // an HTTP/1.0 client does not know interim responses
            if plan.request.version == Version::Http11 {
                let head = response_head(session, &response, Body::None, Version::Http11, None)?;
                to_client(session, &head).await?;
            }
            continue;
        }
        progress.answered.store(true, Relaxed);
        entry.status = Some(response.status);
        if response.status == 101 {
            if !wants_upgrade(&plan.request) {
                let text = format!("{} switches protocols unasked", plan.destination);
                return Err(Trouble::Failed(Failure::new(Kind::BadAnswer, text)));
            }
            // half a body cannot be handed over to another protocol
            if !progress.is_uploaded() {
                let text = format!("{} switches protocols within the request", plan.destination);
                return Err(Trouble::Failed(Failure::new(Kind::BadAnswer, text)));
            }
            let head =
                response_head(session, &response, Body::None, Version::Http11, Some("upgrade"))?;
            to_client(session, &head).await?;
            return Ok(Outcome::Upgraded);
        }
        // its challenge is for this relay, and the client could not answer it
        if let Some(hop) = origin.asks_proxy.as_ref().filter(|_| response.status == 407) {
            let text = format!("upstream «{}» answered 407; check its user and password", hop.name);
            let failure = Failure::new(Kind::NotAdmitted, text);
            hop.on_failure(&failure);
            return Err(Trouble::Failed(failure));
        }
        return final_response(session, origin, plan, progress, &response).await;
    }
}

async fn more(origin: &mut Origin, plan: &Plan, begun: bool) -> Result<(), Trouble> {
    let nothing_said = origin.incoming.bytes().is_empty();
    let error = match origin.incoming.fill(usize::MAX).await {
        Ok(n) if n > 0 => return Ok(()),
        Ok(_) => io::Error::from(io::ErrorKind::UnexpectedEof),
        Err(error) => error,
    };
    if nothing_said && origin.reused && !begun {
        return Err(Trouble::Stale);
    }
    let text = format!("{} closed the connection before it answered: {error}", plan.destination);
    Err(Trouble::Failed(Failure::new(Kind::Closed, text)))
}

impl From<BadMessage> for Trouble {
    fn from(bad: BadMessage) -> Self {
        Self::Failed(Failure::new(
            Kind::BadAnswer,
            format!("the answer cannot be passed on: {bad}"),
        ))
    }
}

async fn to_client(session: &Session, bytes: &[u8]) -> Result<(), Trouble> {
    write_all(&session.client, bytes)
        .await
        .map_err(|error| Trouble::Broken(format!("the client's connection broke: {error}")))
}

async fn final_response(
    session: &Session,
    origin: &mut Origin,
    plan: &Plan,
    progress: &Progress,
    response: &Response,
) -> Result<Outcome, Trouble> {
    let body = body::of_response(&plan.request.method, response)?;
    origin.own |= authenticates_connection(&response.fields, "www-authenticate");
    // an HTTP/1.0 client gets chunked bodies plain, up to the end of the connection
    let until_close = match body {
        Body::UntilClose => true,
        Body::Chunked => plan.request.version == Version::Http10,
        Body::None | Body::Length(_) => false,
    };
    // answered early: the client is told that the rest of its request is not wanted
    let keep_client = client_keeps_alive(&plan.request)
        && !until_close
        && progress.is_uploaded()
        && !session.is_stopping();
    let keep_origin =
        fields::keeps_alive(response.version, &response.fields) && body != Body::UntilClose;
    if let Some(visit) = &plan.visit {
        visit.on_response(&plan.request, response);
        if response.status == 304
            && let Some(hit) = visit.on_not_modified(&plan.request, response)
        {
            let keep_client = client_keeps_alive(&plan.request) && !session.is_stopping();
            send(session, &plan.request, &hit, keep_client).await.map_err(Trouble::Broken)?;
            let clean = origin.incoming.bytes().is_empty();
            return Ok(Outcome::Response { keep_client, keep_origin: keep_origin && clean });
        }
    }
    let mut copy = plan.visit.as_ref().and_then(|visit| visit.copy(response, body));
    if let (Some(visit), None) = (&plan.visit, &copy)
        && response.status != 304
    {
        visit.drop_older();
    }
    let connection = cached::connection(keep_client, plan.request.version);
    // of what comes in chunks it is not known yet whether it is not too large
    let kept = copy.is_some() && body != Body::Chunked;
    let said = cached::passed(session, plan, response, kept);
    let head = response_head(session, &said, body, plan.request.version, connection)?;
    to_client(session, &head).await?;
    let from = &mut origin.incoming;
    let moved = match (body, &mut copy) {
        (Body::None, _) => Ok(()),
        (Body::Length(n), Some(copy)) => copied_down(session, from, n, copy).await,
        (Body::Length(n), None) => pump_down(session, from, Some(n)).await,
        (Body::UntilClose, _) => pump_down(session, from, None).await,
        (Body::Chunked, copy) => {
            chunks_down(session, from, plan.request.version, copy.as_mut()).await
        }
    };
    moved.map_err(Trouble::Broken)?;
    if let (Some(visit), Some(copy)) = (&plan.visit, copy) {
        visit.keep(response, copy, origin.address());
    }
    let clean = origin.incoming.bytes().is_empty();
    Ok(Outcome::Response { keep_client, keep_origin: keep_origin && clean })
}
