//! Requests on a client's connection: each is forwarded and answered, or a CONNECT becomes a
//! tunnel.

use super::cached;
use super::exchange::{ExchangeResult, exchange};
use super::outcome::Broken;
use super::own::OwnRequest;
use super::page::{password, speed};
use super::plan::{ForwardPlan, NO_MEMORY, OWN_PAGE, STATE, checks, client_keeps_alive};
use super::read_head::{copies, read_head};
use super::rewrite::{max_forwards, via};
use super::{connect_udp, pac, page};
use crate::cache::{CacheHit, CacheLookup, only_if_cached};
use crate::destination::Destination;
use crate::error::{Failure, FailureKind};
use crate::observe::registry::{ConnectionState, Protocol};
use crate::observe::traces::TraceParent;
use crate::outbound::connect::Purpose;
use crate::policy::accounts::read_basic;
use crate::policy::quota::NotAdmitted;
use crate::resources::{HeldMemory, watch};
use crate::session::{LogEntry, OpenTunnel, Session, within};
use crate::transfer::budget::EarlyBytes;
use crate::transfer::buffered::{BufferedStream, FIRST_READ};
use crate::wire::http::BadMessage;
use crate::wire::http::body::{self, Body};
use crate::wire::http::fields;
use crate::wire::http::head::Request;
use crate::wire::http::reply;
use crate::wire::http::target::{self, Target};
use ekiden_model::resources::quota::Direction;
use std::io;

/// Bytes of a path that the log shows.
const SHOWN: usize = 2_048;
/// Bytes of a path whose responses are cached: RFC 9110 §4.1 wants 8,000 to be supported.
const CACHED: usize = 8_192;

enum NextStep {
    Request,
    Close,
    Tunnel(Box<OpenTunnel>),
}

/// Serves requests until the end or a tunnel. A request's state is in a box that is freed between
/// requests.
pub(crate) async fn serve(session: &Session, mut incoming: BufferedStream) -> Option<OpenTunnel> {
    let timeouts = &session.config.settings.timeouts;
    let mut kept: Option<HeldMemory> = None;
    loop {
        // before the request's state is made, so that thousands that wait for memory have none
        let needed = STATE + incoming.capacity();
        let counting = async {
            match kept.take() {
                Some(mut held) => held.resize(needed).await.then_some(held),
                None => session.permit.hold(needed).await,
            }
        };
        let held = tokio::time::timeout(timeouts.request_head.into(), counting).await;
        let Ok(Some(mut held)) = held else {
            session.count_moved(Direction::Up, incoming.discard());
            Box::pin(refuse_early(session, &NO_MEMORY.into(), None)).await;
            return None;
        };
        match Box::pin(one(session, &mut incoming, &mut held)).await {
            NextStep::Tunnel(tunnel) => return Some(*tunnel),
            NextStep::Close => {
                // perhaps the body of a request that was refused
                session.count_moved(Direction::Up, incoming.bytes().len());
                return None;
            }
            NextStep::Request => {}
        }
        // what has come of the next request counts all the time
        kept = (!incoming.bytes().is_empty()).then_some(held);
        session.set_idle();
        if session.is_stopping() {
            return None;
        }
        if incoming.bytes().is_empty() {
            session.resources().park(&session.registration.entry, &session.permit);
            // nothing is read before the connection counts as active, so that evictions see unread bytes
            let spoke = async {
                watch(&session.client).await;
                Ok(())
            };
            let spoke = session.unless_stopping(within(timeouts.keep_alive, spoke)).await;
            // closed to make room: a request that comes now could not be answered, so is not carried out
            if !session.resources().resume(&session.registration.entry, &session.permit) {
                return None;
            }
            match spoke {
                Some(Ok(())) => {}
                _ => return None,
            }
            match incoming.fill(FIRST_READ).await {
                Ok(n) if n > 0 => {}
                _ => return None,
            }
        } else {
            session.permit.set_silent();
        }
        session.registration.set_state(ConnectionState::Reading);
    }
}

/// `held` counts [`STATE`] and what `incoming` has.
async fn one(session: &Session, incoming: &mut BufferedStream, held: &mut HeldMemory) -> NextStep {
    session.registration.set_protocol(Protocol::Http);
    let read = match read_head(session, incoming, held).await {
        Ok(read) => read.map_err(Failure::from),
        Err(_) if incoming.bytes().is_empty() => return NextStep::Close,
        Err(error) => match error.kind() {
            io::ErrorKind::TimedOut => {
                let limit = session.config.settings.timeouts.request_head;
                let text = format!("the head did not arrive within {limit}");
                Err(Failure::new(FailureKind::Malformed(408), text))
            }
            // half-closed within a head: an answer can still arrive
            io::ErrorKind::UnexpectedEof => {
                Err(BadMessage::bad("the connection ended within the request head").into())
            }
            _ => return NextStep::Close,
        },
    };
    let (mut request, head_bytes) = match read {
        Ok(read) => read,
        Err(failure) => {
            // the client may take its time to read why, and what it sent is of no use
            session.count_moved(Direction::Up, incoming.discard());
            held.resize(STATE).await;
            return refuse_early(session, &failure, None).await;
        }
    };
    // the head's memory counts until its request is served; no more than while it was read, which never fails
    held.resize(STATE + copies(session) * request.memory() + incoming.capacity()).await;
    let udp = connect_udp::is_meant(session, &request);
    let own = match OwnRequest::of(session, &request) {
        Some(own) if !udp => {
            if let Some(part) = speed::Part::of(session, &request, &own) {
                Box::pin(speed::serve(session, (&request, &own), incoming, part)).await;
                return NextStep::Close;
            }
            let mut sending = held.beside();
            if !sending.resize(OWN_PAGE).await {
                return refuse_early(session, &NO_MEMORY.into(), Some(&request)).await;
            }
            let rest = (&mut *incoming, &mut *held);
            let answer = match Box::pin(password::answer(session, &request, &own, rest)).await {
                Some(answer) => Some(answer),
                None => Box::pin(read_own(session, &request, &own)).await,
            };
            answer.map(|answer| (answer, sending))
        }
        _ => None,
    };
    if let Some((answer, sending)) = own {
        return answer_own(session, (answer, sending), &request).await;
    }
    if let Err(failure) = admit(session, &request).await {
        return refuse_early(session, &failure, Some(&request)).await;
    }
    if let Err(failure) = session.begin_service() {
        return refuse_early(session, &failure, Some(&request)).await;
    }
    if let Err(over) = session.pass_head(Direction::Up, head_bytes).await {
        return refuse_early(session, &over, Some(&request)).await;
    }
    if udp {
        let mut entry = session.new_entry(Protocol::Udp);
        let served = connect_udp::serve(session, incoming, &request, &mut entry);
        return match Box::pin(served).await {
            Ok(()) => NextStep::Close,
            Err(failure) => refuse(session, &mut entry, &failure, Some(&request)).await,
        };
    }
    let mut next = match target::of_request(&request) {
        Ok(Target::Tunnel(destination)) => connect(session, incoming, &request, &destination).await,
        Ok(Target::Forward { destination, authority, path }) => {
            // what is needed of it was copied
            request.target = String::new();
            let plan =
                ForwardPlan { request, head_bytes, destination, authority, path, visit: None };
            forward(session, incoming, plan).await
        }
        Err(bad) => refuse_early(session, &bad.into(), Some(&request)).await,
    };
    if let NextStep::Tunnel(tunnel) = &mut next {
        // they count already, with what goes now
        let early = std::mem::take(&mut tunnel.early_up.bytes);
        let counted = held.split(early.capacity());
        tunnel.early_up = EarlyBytes::new(early, counted);
    }
    next
}

/// What is read of the relay itself.
async fn read_own(session: &Session, request: &Request, own: &OwnRequest<'_>) -> Option<Vec<u8>> {
    match pac::answer(session, request, own) {
        Some(answer) => Some(answer),
        None => page::answer(session, request, own).await,
    }
}

/// Sends an answer of the relay itself, which counts until its client has it.
async fn answer_own(
    session: &Session,
    (answer, mut sending): (Vec<u8>, HeldMemory),
    request: &Request,
) -> NextStep {
    if !sending.resize(answer.capacity()).await {
        drop(answer);
        return refuse_early(session, &NO_MEMORY.into(), Some(request)).await;
    }
    session.send_and_close(&answer).await;
    NextStep::Close
}

/// Reads one request of a client whose account has used up its volume. What it asks of the relay itself is answered,
/// and all else refused.
pub(crate) async fn serve_spent(
    session: &Session,
    mut incoming: BufferedStream,
    not: &NotAdmitted,
) {
    // what the head holds counts to the end
    let mut held = session.permit.hold(STATE).await;
    let read = match &mut held {
        Some(held) => read_head(session, &mut incoming, held).await.ok().and_then(Result::ok),
        None => None,
    };
    let request = read.map(|(request, _)| request);
    if let Some(request) = &request
        && let Some(own) = OwnRequest::of(session, request)
        && let Some(sending) = session.permit.hold(OWN_PAGE).await
        && let Some(answer) = read_own(session, request, &own).await
    {
        answer_own(session, (answer, sending), request).await;
        return;
    }
    session.count_and_log_refusal(&not.to_string());
    let head_only = request.is_some_and(|request| request.method == "HEAD");
    let text = Failure::from(not.clone()).response(&session.config.settings.name, head_only);
    session.send_and_close(&text).await;
}

/// Refuses before it is known where the request goes.
async fn refuse_early(session: &Session, failure: &Failure, request: Option<&Request>) -> NextStep {
    let mut entry = session.new_entry(Protocol::Http);
    entry.method = request.map(|request| request.method.clone());
    refuse(session, &mut entry, failure, request).await
}

/// Identifies a request's account: several users may share the connection. A log-in counts before the address, where
/// passwords are accepted, even if the address's account is refused.
async fn admit(session: &Session, request: &Request) -> Result<(), Failure> {
    if session.config.directory.is_none() {
        return Ok(());
    }
    let brought = fields::values(&request.fields, "proxy-authorization").next();
    let account = match (session.identify(), brought) {
        (known @ (Ok(Some(_)) | Err(_)), Some(_)) if !session.may_log_in() => known?,
        (_, Some(value)) => {
            let Some((user, password)) = read_basic(value) else {
                let text = "the log-in is not by Basic, the only scheme here, or too long";
                return Err(Failure::new(FailureKind::LogIn, text));
            };
            Some(session.log_in(&user, &password).await?)
        }
        (Ok(None), None) if session.must_log_in() => {
            session.check_password_path(false)?;
            let text = "this relay requires an account; log in with user and password";
            return Err(Failure::new(FailureKind::LogIn, text));
        }
        (known, None) => known?,
    };
    session.set_account(account);
    Ok(session.join_account()?)
}

async fn refuse(
    session: &Session,
    entry: &mut LogEntry,
    failure: &Failure,
    request: Option<&Request>,
) -> NextStep {
    let status = failure.status();
    entry.status = Some(status);
    session.on_failure(entry, failure);
    let head_only = request.is_some_and(|request| request.method == "HEAD");
    session.send_and_close(&failure.response(&session.config.settings.name, head_only)).await;
    NextStep::Close
}

async fn connect(
    session: &Session,
    incoming: &mut BufferedStream,
    request: &Request,
    to: &Destination,
) -> NextStep {
    let method = Some(request.method.clone());
    let mut entry = session.begin(Protocol::Connect, to, method, to.to_string());
    let checked = checks(session, request).and_then(|()| match body::of_request(request) {
        Ok(Body::None | Body::Length(0)) => Ok(()),
        Ok(_) => Err(BadMessage::bad("CONNECT does not have a body").into()),
        Err(bad) => Err(bad.into()),
    });
    if let Err(failure) = checked {
        return refuse(session, &mut entry, &failure, None).await;
    }
    // a copy of the fields
    let copied = fields::values(&request.fields, "via").map(|value| 2 * value.len()).sum();
    let Some(_counted) = session.permit.hold(copied).await else {
        return refuse(session, &mut entry, &NO_MEMORY.into(), None).await;
    };
    let via = via(session, request.version, &request.fields);
    match session.open(to, Purpose::Tunnel { via: &via }).await {
        Ok(way) => {
            let answer = reply::connected(request.version);
            if !session.answer_opened(answer, (&mut entry, 200)).await {
                return NextStep::Close;
            }
            NextStep::Tunnel(Box::new(session.tunnel_over(way, incoming.take(), entry)))
        }
        Err(failure) => refuse(session, &mut entry, &failure, None).await,
    }
}

async fn forward(
    session: &Session,
    incoming: &mut BufferedStream,
    mut plan: ForwardPlan,
) -> NextStep {
    let path = plan.path.split('?').next().unwrap_or_default();
    let shown = path.get(..path.floor_char_boundary(SHOWN)).unwrap_or_default();
    let cut = if shown.len() < path.len() { "…" } else { "" };
    let url = format!("http://{}{shown}{cut}", plan.authority);
    let method = Some(plan.request.method.clone());
    let parent = fields::values(&plan.request.fields, "traceparent").next();
    let parent = parent.and_then(TraceParent::read);
    let mut entry = session.begin_within(parent, Protocol::Http, &plan.destination, (method, url));
    let checked = checks(session, &plan.request).and_then(|()| {
        if plan.request.method == "TRACE" {
            let text = "TRACE is not forwarded, because it would reveal fields of other proxies";
            return Err(Failure::new(FailureKind::Malformed(405), text));
        }
        Ok(body::of_request(&plan.request)?)
    });
    let body = match checked {
        Ok(body) => body,
        Err(failure) => return refuse(session, &mut entry, &failure, Some(&plan.request)).await,
    };
    match max_forwards(&mut plan.request) {
        Ok(true) => {}
        Ok(false) => return answer_options(session, &mut entry).await,
        Err(bad) => return refuse(session, &mut entry, &bad.into(), Some(&plan.request)).await,
    }
    // a copy of the path in each key, for a response that no other request will ask for
    let short = plan.path.len() <= CACHED;
    if session.config.shared.cache.is_some() && !short && only_if_cached(&plan.request) {
        return nothing_stored(session, &mut entry, &plan).await;
    }
    if let Some(cache) = session.config.shared.cache.as_ref().filter(|_| short) {
        let lookup = tokio::select! {
            biased;
            lookup = cached::consult(session, cache, &plan, body) => lookup,
            // the disk may be slow
            () = session.client.broken() => {
                let broken = Broken::by_client(session.client.error());
                return broke_off(session, &mut entry, &broken);
            }
        };
        match lookup {
            CacheLookup::Pass(visit) => plan.visit = Some(visit),
            CacheLookup::Nothing => return nothing_stored(session, &mut entry, &plan).await,
            CacheLookup::Hit(hit) => {
                return answer_from_cache(session, &mut entry, &plan, &hit).await;
            }
        }
    }
    match exchange(session, incoming, &plan, body, &mut entry).await {
        Ok(ExchangeResult::Done { keep_client, kept }) => {
            session.log(&mut entry, "done");
            session.leave_origin(kept);
            if keep_client { NextStep::Request } else { end(session).await }
        }
        Ok(ExchangeResult::Upgraded(tunnel)) => NextStep::Tunnel(tunnel),
        Ok(ExchangeResult::Broken(broken)) => broke_off(session, &mut entry, &broken),
        Err(failure) => refuse(session, &mut entry, &failure, Some(&plan.request)).await,
    }
}

/// Answers `only-if-cached` without a cached response (RFC 9111 §5.2.1.7).
async fn nothing_stored(session: &Session, entry: &mut LogEntry, plan: &ForwardPlan) -> NextStep {
    let text = "the client accepts only a cached response, and this one is not cached";
    let failure = Failure::new(FailureKind::Malformed(504), text);
    refuse(session, entry, &failure, Some(&plan.request)).await
}

async fn answer_from_cache(
    session: &Session,
    entry: &mut LogEntry,
    plan: &ForwardPlan,
    hit: &CacheHit,
) -> NextStep {
    let held = match cached::memory_for(session, hit).await {
        Ok(held) => held,
        Err(failure) => return refuse(session, entry, &failure, Some(&plan.request)).await,
    };
    hit.on_used();
    session.registration.set_state(ConnectionState::Relaying);
    entry.status = Some(if hit.client_has_it { 304 } else { hit.stored.status });
    let keep_client = client_keeps_alive(&plan.request) && !session.is_stopping();
    match cached::send(session, &plan.request, hit, keep_client, held).await {
        Ok(()) => {
            session.log(entry, "from the cache");
            if keep_client { NextStep::Request } else { end(session).await }
        }
        Err(broken) => broke_off(session, entry, &broken),
    }
}

fn broke_off(session: &Session, entry: &mut LogEntry, broken: &Broken) -> NextStep {
    session.on_broken(entry, broken.by, &broken.why);
    NextStep::Close
}

async fn end(session: &Session) -> NextStep {
    session.close_gently().await;
    NextStep::Close
}

async fn answer_options(session: &Session, entry: &mut LogEntry) -> NextStep {
    entry.status = Some(200);
    session.log(entry, "answered by the relay");
    let name = &session.config.settings.name;
    let text = format!(
        "HTTP/1.1 200 OK\r\nVia: 1.1 {name}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    session.send_and_close(text.as_bytes()).await;
    NextStep::Close
}
