//! One request and its response: heads rewritten, bodies moved both ways at once and copied for the
//! cache.

use super::interim::InterimHeads;
use super::outcome::{Broken, ExchangeError, ExchangeOutcome, Progress};
use super::plan::{ForwardPlan, NO_MEMORY, head_limits, wants_upgrade};
use super::read_head::read_counted;
use super::response::{final_response, send_counted, to_client};
use super::rewrite::{request_head, response_head};
use super::transfer::{UploadError, upload};
use crate::error::{Failure, FailureKind};
use crate::observe::access_log::CutBy;
use crate::observe::named_leg::limits;
use crate::observe::registry::ConnectionState;
use crate::outbound::dial::wait_until;
use crate::resources::origin::{Origin, authenticates_connection};
use crate::resources::{HeldMemory, IdleOrigin, PoolKey};
use crate::session::{LogEntry, OpenTunnel, Session};
use crate::transfer::budget::EarlyBytes;
use crate::transfer::buffered::{BufferedStream, write_all};
use crate::wire::http::BadMessage;
use crate::wire::http::body::Body;
use crate::wire::http::head::{HeadSearch, Version};
use ekiden_linux::host::clock;
use ekiden_model::resources::quota::Direction;
use ekiden_model::units::{Span, Time};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(super) enum ExchangeResult {
    /// With the connection to the server, where that can be kept for another request.
    Done {
        keep_client: bool,
        kept: Option<(IdleOrigin, PoolKey)>,
    },
    Upgraded(Box<OpenTunnel>),
    /// It broke off within the response, or the client left.
    Broken(Broken),
}

/// Forwards a request and returns its response; fails before anything was sent to the client.
pub(super) async fn exchange(
    session: &Session,
    client: &mut BufferedStream,
    plan: &ForwardPlan,
    body: Body,
    entry: &mut LogEntry,
) -> Result<ExchangeResult, Failure> {
    // a body can be sent only once, and only idempotent requests may repeat
    let repeatable = matches!(body, Body::None) && is_idempotent(&plan.request.method);
    let mut kept = session.reuse_origin(&plan.destination, !repeatable);
    let mut other_way = true;
    loop {
        let mut origin = match kept.take() {
            Some(origin) => {
                session.apply_route(&origin.route, &origin.through, &origin.stats, &origin.managed);
                session.registration.trace().inspect(|trace| trace.on_reused());
                origin
            }
            None => Box::new(session.open_origin(&plan.destination).await?),
        };
        let _resets = session.registration.reset_on_panic();
        origin.own |= authenticates_connection(&plan.request.fields, "authorization");
        entry.through = Arc::clone(&origin.through);
        session.registration.set_state(ConnectionState::Relaying);
        // it counts before it is made, and while the account's rate keeps it
        let sending = session.permit.hold(2 * plan.head_bytes).await;
        let mut sending = sending.ok_or_else(|| Failure::from(NO_MEMORY))?;
        let head = request_head(session, plan, body, origin.asks_proxy.as_deref())?;
        if !sending.resize(head.capacity()).await {
            return Err(NO_MEMORY.into());
        }
        session.pass_head(Direction::Up, head.len().saturating_sub(plan.head_bytes)).await?;
        let head = (head, sending);
        let result = both_ways(session, client, &mut origin, plan, body, head, entry).await;
        match result {
            Ok(ExchangeOutcome::Response { keep_client, keep_origin }) => {
                origin.reused = true;
                origin.idle_since = clock::now();
                origin.keeper = session.source();
                let kept = keep_origin.then(|| {
                    let key = origin.key(session.owner());
                    (origin, key)
                });
                return Ok(ExchangeResult::Done { keep_client, kept });
            }
            Ok(ExchangeOutcome::Upgraded(held)) => {
                let limits = limits(&origin.route.client_leg.leg, &origin.leg.leg);
                let Origin { mut incoming, managed, answer, .. } = *origin;
                return Ok(ExchangeResult::Upgraded(Box::new(OpenTunnel {
                    early_up: client.take().into(),
                    early_down: EarlyBytes::new(incoming.take(), held),
                    upstream: incoming.stream,
                    managed,
                    limits,
                    entry: entry.hand_over(),
                    answer,
                })));
            }
            Err(ExchangeError::Stale) if repeatable && origin.reused => {}
            // the proxy backs off now
            Err(ExchangeError::NoAnswer(_))
                if repeatable && other_way && origin.route.chains.len() > 1 =>
            {
                other_way = false;
            }
            Err(ExchangeError::Stale) => {
                let text = format!(
                    "{} closed a reused connection when this request arrived; it may or may not have been executed",
                    plan.destination
                );
                return Err(Failure::new(FailureKind::Closed, text));
            }
            Err(ExchangeError::Failed(failure) | ExchangeError::NoAnswer(failure)) => {
                // the server must not take the part it received for the whole request
                origin.incoming.stream.abort("the request is not whole");
                // the far end of a tunnel knows why the connection broke
                let there = origin.answer.as_ref().and_then(|answer| answer.failure());
                return Err(there.unwrap_or(failure));
            }
            Err(ExchangeError::Broken(broken)) => {
                // both sides learn that it was not the end, and what they sent beyond it is of no use
                session.count_moved(Direction::Up, client.discard());
                origin.incoming.stream.abort(&broken.why);
                drop(origin);
                // bytes that arrived go out first
                session.client.abort_when_sent(&broken.why).await;
                return Ok(ExchangeResult::Broken(broken));
            }
        }
    }
}

fn is_idempotent(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE")
}

async fn both_ways(
    session: &Session,
    client: &mut BufferedStream,
    origin: &mut Origin,
    plan: &ForwardPlan,
    body: Body,
    head: (Vec<u8>, HeldMemory),
    entry: &mut LogEntry,
) -> Result<ExchangeOutcome, ExchangeError> {
    let stream = origin.incoming.stream.clone();
    let reused = origin.reused;
    let progress = Progress::default();
    let begun = clock::now();
    let silent = limits(&origin.route.client_leg.leg, &origin.leg.leg);
    let (mut idle, half_closed) = (silent.idle, silent.half_closed);
    let mut sending = true;
    let mut response_due = Time::NEVER;
    let result = {
        // the head, too, may wait for a server that does not read
        let sends = &stream;
        let mut up = std::pin::pin!(async move {
            let (head, held) = head;
            let sent = write_all(sends, &head).await;
            drop((head, held));
            sent.map_err(|_| if reused { UploadError::Stale } else { UploadError::Origin })?;
            upload(session, client, sends, body).await
        });
        let mut down = std::pin::pin!(download(session, origin, plan, &progress, entry));
        loop {
            let waiting = if progress.has_arrived() { Time::NEVER } else { response_due };
            tokio::select! {
                biased;
                sent = &mut up, if sending => {
                    sending = false;
                    // another answer, or a refusal, would go into the one that has begun
                    let sent = match sent {
                        Err(UploadError::Stale) if progress.has_arrived() => Err(UploadError::Origin),
                        sent => sent,
                    };
                    response_due = clock::now() + session.config.settings.timeouts.response;
                    let all_sent = matches!(&sent, Ok(()) | Err(UploadError::Origin));
                    progress.all_sent.store(all_sent, Relaxed);
                    match sent {
                        Ok(()) => progress.uploaded.store(true, Relaxed),
                        // the server may have answered before it read everything
                        Err(UploadError::Origin) => {}
                        Err(UploadError::Stale) => break Err(ExchangeError::Stale),
                        // half-closed within the body: an answer can still arrive, or goes on, and the server learns of it
                        Err(UploadError::Client(error)) if error.kind() == io::ErrorKind::UnexpectedEof && progress.is_answered() => {
                            stream.finish();
                            idle = idle.min(half_closed);
                        }
                        Err(UploadError::Client(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                            break Err(ExchangeError::Failed(BadMessage::bad("the connection ended within the request body").into()));
                        }
                        Err(UploadError::Client(error)) if error.kind() == io::ErrorKind::QuotaExceeded => {
                            let over = error.to_string();
                            break Err(match progress.is_answered() {
                                true => Broken::by_relay(over).into(),
                                false => ExchangeError::Failed(Failure::new(FailureKind::Denied, over)),
                            });
                        }
                        Err(UploadError::Client(error)) => break Err(Broken::by_client(error).into()),
                        Err(UploadError::Malformed(bad)) if !progress.is_answered() => break Err(ExchangeError::Failed(bad.into())),
                        Err(UploadError::Malformed(bad)) => break Err(Broken { by: CutBy::Client, why: bad.to_string() }.into()),
                    }
                }
                got = &mut down => break got,
                // also while the body waits for a server that does not read
                () = session.client.broken() => {
                    break Err(Broken::by_client(session.client.error()).into());
                }
                () = silence(session, begun, idle) => {
                    let text = format!("silent for {idle}");
                    break Err(match progress.is_answered() {
                        true => Broken::by_relay(text).into(),
                        false => ExchangeError::Failed(Failure::new(FailureKind::TimedOut, format!("{} was {text}", plan.destination))),
                    });
                }
                () = wait_until(waiting), if waiting != Time::NEVER => {
                    // the head came in time; its body may take longer
                    if progress.has_arrived() {
                        continue;
                    }
                    let text = format!("{} did not answer within {}", plan.destination, session.config.settings.timeouts.response);
                    break Err(ExchangeError::Failed(Failure::new(FailureKind::TimedOut, text)));
                }
            }
        }
    };
    // the rest of an unfinished request must not be read as the next request
    let uploaded = progress.is_uploaded();
    result.map(|outcome| match outcome {
        ExchangeOutcome::Response { keep_client, keep_origin } => ExchangeOutcome::Response {
            keep_client: keep_client && uploaded && !session.is_stopping(),
            keep_origin: keep_origin && uploaded,
        },
        upgraded => upgraded,
    })
}

/// Resolves when nothing moves for `limit` after `begun`: the connection may have been idle before.
async fn silence(session: &Session, begun: Time, limit: Span) {
    loop {
        let quiet = clock::now().since(session.registration.last_moved().max(begun));
        if quiet >= limit {
            return;
        }
        let longest = Span::from_secs(86_400);
        let wait = Span::from_nanos(limit.as_nanos() - quiet.as_nanos()).min(longest);
        tokio::time::sleep(wait.into()).await;
    }
}

/// Reads responses up to the final one, and forwards each.
async fn download(
    session: &Session,
    origin: &mut Origin,
    plan: &ForwardPlan,
    progress: &Progress,
    entry: &mut LogEntry,
) -> Result<ExchangeOutcome, ExchangeError> {
    let limits = head_limits(session);
    let (mut interim, mut search) = (false, HeadSearch::default());
    let mut heads = InterimHeads::default();
    let no_memory = || {
        let text = "no memory is left for the head of the answer";
        ExchangeError::Failed(Failure::without_memory(text))
    };
    let Some(mut held) = session.permit.hold(origin.incoming.capacity()).await else {
        return Err(no_memory());
    };
    loop {
        let read = match search.whole_response(origin.incoming.bytes(), limits) {
            Ok(Some(whole)) => {
                // twice: it is written anew, and perhaps stored
                let parsed = 2 * whole.memory + heads.memory();
                if !held.resize(origin.incoming.capacity() + parsed).await {
                    return Err(no_memory());
                }
                whole.response(origin.incoming.bytes(), limits).map(Some)
            }
            Ok(None) => Ok(None),
            Err(bad) => Err(bad),
        };
        // those that came together are sent together
        if heads.is_full() || !matches!(&read, Ok(Some((response, _))) if response.is_interim()) {
            let (bytes, counted) = heads.take();
            send_counted(session, &bytes, counted).await?;
        }
        let (response, used) = match read {
            Ok(Some(read)) => read,
            Ok(None) => {
                if !more(session, origin, plan, progress, interim, &mut held).await? {
                    return Err(no_memory());
                }
                continue;
            }
            Err(bad) => {
                session.pass_head(Direction::Down, origin.incoming.bytes().len()).await?;
                let text = format!("the answer of {} is not HTTP: {bad}", plan.destination);
                return Err(ExchangeError::Failed(Failure::new(FailureKind::BadAnswer, text)));
            }
        };
        origin.incoming.consume(used);
        search = HeadSearch::default();
        progress.arrived.store(!response.is_interim(), Relaxed);
        session.registration.trace().inspect(|trace| trace.on_first_byte());
        let asked = origin.asks_proxy.as_ref();
        // also a 502, which says that the origin is at fault
        if let Some(hop) = asked.filter(|_| !response.is_interim() && response.status != 407) {
            hop.on_success();
        }
        if response.is_interim() {
            interim = true;
            // HTTP/1.0 has no interim responses
            let head = match plan.request.version {
                Version::Http11 => {
                    response_head(session, &response, Body::None, Version::Http11, None)
                }
                Version::Http10 => Ok(Vec::new()),
            };
            heads.add(head.as_deref().unwrap_or_default(), used);
            if !held.resize(origin.incoming.capacity() + heads.memory()).await {
                return Err(no_memory());
            }
            if let Err(bad) = head {
                let (bytes, counted) = heads.take();
                send_counted(session, &bytes, counted).await?;
                return Err(bad.into());
            }
            continue;
        }
        session.pass_head(Direction::Down, used).await?;
        progress.answered.store(true, Relaxed);
        entry.status = Some(response.status);
        if response.status == 101 {
            if !wants_upgrade(&plan.request) {
                let text = format!("{} switches protocols unasked", plan.destination);
                return Err(ExchangeError::Failed(Failure::new(FailureKind::BadAnswer, text)));
            }
            // half a body cannot be handed to another protocol
            if !progress.is_uploaded() {
                let text = format!("{} switches protocols within the request", plan.destination);
                return Err(ExchangeError::Failed(Failure::new(FailureKind::BadAnswer, text)));
            }
            let head =
                response_head(session, &response, Body::None, Version::Http11, Some("upgrade"))?;
            to_client(session, &head, used).await?;
            drop((head, response));
            // less than before, which never fails
            held.resize(origin.incoming.capacity()).await;
            return Ok(ExchangeOutcome::Upgraded(held));
        }
        // its challenge is for this relay; the client could not answer it
        if let Some(hop) = asked.filter(|_| response.status == 407) {
            let text =
                format!("upstream \"{}\" answered 407; check its user and password", hop.name);
            let failure = Failure::new(FailureKind::NotAdmitted, text);
            hop.on_failure(&failure);
            return Err(ExchangeError::Failed(failure));
        }
        // twice until it is sent: it may differ from the one that is stored. Less than before, which never fails
        held.resize(origin.incoming.capacity() + 2 * response.memory()).await;
        return final_response(session, origin, plan, progress, (&response, used, held)).await;
    }
}

/// Reads more of an answer's head; `false` where there is no memory for it. `begun`: an interim answer came.
async fn more(
    session: &Session,
    origin: &mut Origin,
    plan: &ForwardPlan,
    progress: &Progress,
    begun: bool,
    held: &mut HeldMemory,
) -> Result<bool, ExchangeError> {
    let silent = origin.incoming.bytes().is_empty() && !begun;
    let error = match read_counted(&mut origin.incoming, (held, 0), usize::MAX, true).await {
        Ok(None) => return Ok(false),
        Ok(Some(1..)) => return Ok(true),
        Ok(Some(0)) => io::Error::from(io::ErrorKind::UnexpectedEof),
        Err(error) => error,
    };
    if silent && origin.reused {
        return Err(ExchangeError::Stale);
    }
    let hop = origin.asks_proxy.as_ref();
    let who = match hop {
        Some(hop) => format!("upstream \"{}\"", hop.name),
        None => plan.destination.to_string(),
    };
    let text = format!("{who} closed the connection before it answered: {error}");
    let failure = Failure::new(FailureKind::Closed, text);
    // a cut answer may be the origin's, the client may have kept a body back for too long, or this relay has cut both
    let at_fault = silent && progress.has_sent_all() && !session.is_cut_off();
    if let Some(hop) = hop.filter(|_| at_fault) {
        let there = origin.answer.as_ref().and_then(|answer| answer.failure());
        hop.on_failure(there.as_ref().unwrap_or(&failure));
        return Err(ExchangeError::NoAnswer(failure));
    }
    Err(ExchangeError::Failed(failure))
}

#[cfg(test)]
mod tests {
    use crate::inbound::detect;
    use crate::session::tests::fixture;
    use crate::settings::{Route, Settings, Upstream, UpstreamProtocol};
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_cut_by_the_relay_is_no_failure_of_the_upstream() {
        let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = proxy.local_addr().unwrap();
        let upstream = Upstream::new(UpstreamProtocol::Http, at.ip().to_string(), at.port());
        let mut settings = Settings::default();
        settings.upstreams.insert("near".into(), upstream);
        let (to, through) = (vec![], vec![vec!["near".to_owned()]]);
        let (leg, client_leg) = ("direct".into(), "client".into());
        settings.routes = vec![Route { to, through, leg, client_leg }];
        for (cut, failures) in [(true, 0), (false, 1)] {
            let made = fixture("127.0.0.1", None, settings.clone()).await;
            let config = Arc::clone(&made.session.config);
            let entry = Arc::clone(&made.session.registration.entry);
            let mut client = made.client;
            let asking = async {
                let request = b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n";
                client.write_all(request).await.unwrap();
                let (mut asked, _) = proxy.accept().await.unwrap();
                assert!(asked.read(&mut [0; 4096]).await.unwrap() > 0);
                if cut {
                    // its task is not known here, so that the leg breaks before that is gone
                    entry.end();
                }
                drop(asked);
                client.read_to_end(&mut Vec::new()).await.unwrap();
                drop(client);
            };
            tokio::join!(Box::pin(detect::serve(made.session)), asking);
            assert_eq!(config.upstream_status(&[])[0].failures, failures, "{cut}");
            assert_eq!(made.registry.totals.failed.load(Relaxed), u64::from(failures), "{cut}");
        }
    }
}
