//! HTTP/2 within TLS, as browsers use it with an HTTPS proxy (RFC 9113). Each stream is one request
//! or CONNECT, translated to HTTP/1.1 for a session of its own.

mod counted;
mod frames;
mod read_limit;
mod slow;
mod stream;
mod untaken;

use crate::inbound::http::plan::head_limits;
use crate::policy::quota::Framing;
use crate::session::Session;
use crate::transfer::end::End;
use crate::wire::http::h2::{CONNECT_UDP, protocol, request_head};
use bytes::Bytes;
use counted::{Counted, Paid};
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::{Method, Request};
use read_limit::{Allowance, ReadLimit};
use slow::SlowStreams;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use stream::{H2Stream, STREAM, StreamBroken, Tunnel};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use untaken::Untaken;

/// Concurrent streams, each counted as a connection; RFC 9113 §6.5.2 recommends at least 100.
const STREAMS: u32 = 100;
/// The flow-control window of a stream, and of a connection that sends bodies while there is memory:
/// enough for one stream on a long path.
const WINDOW: u32 = 1 << 20;
/// The window of other connections, the protocol's own (RFC 9113 §6.9.2).
const FIRST_WINDOW: usize = 65_535;
/// Limit on unsent bytes of a stream's answer.
const UNSENT: usize = 64 * 1024;
/// Bytes read at a time: a frame of the usual size (RFC 9113 §6.5.2), or heads that take some hundred kilobytes.
const READ_AT_ONCE: usize = 16 * 1024;
/// The same while memory is short. A byte may stand for a field (RFC 7541 §6.1) of some 80 bytes in memory.
const READ_WHILE_SHORT: usize = 1024;

enum NextStep<T> {
    Accepted(T),
    Look,
    Window,
    End,
}

/// `name`: what the client's TLS asked for.
pub(crate) async fn serve<S>(
    session: &Session,
    name: Option<Arc<str>>,
    client: S,
    framing: Arc<Framing>,
) -> Result<(), h2::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let settings = &session.config.settings;
    // a head that never ends
    let head = settings.budgets.head.as_usize();
    let Some(mut held) = session.permit.hold(head).await else { return Ok(()) };
    let untaken = Arc::new(Untaken::new(Arc::clone(&framing), FIRST_WINDOW));
    let client = Counted::new(client, Arc::clone(&framing), Arc::clone(&untaken));
    let (client, mut allowance) = ReadLimit::new(client, READ_AT_ONCE);
    let mut paid = Paid::new(Arc::clone(&framing));
    let mut builder = Builder::new();
    if session.config.why_no_datagrams().is_none() {
        // RFC 8441 §3; where it is not set, the library resets such streams
        builder.enable_connect_protocol();
    }
    let handshake = builder
        .max_concurrent_streams(STREAMS)
        .initial_window_size(WINDOW)
        .max_send_buffer_size(UNSENT)
        .max_header_list_size(u32::try_from(settings.budgets.head.as_u64()).unwrap_or(u32::MAX))
        .handshake::<_, Bytes>(client);
    // the client's preface, which it may send as slowly as a head
    let limit = settings.timeouts.request_head.into();
    let Ok(connection) = tokio::time::timeout(limit, handshake).await else { return Ok(()) };
    let mut connection = connection?;
    let mut streams = JoinSet::new();
    let slow = Arc::new(SlowStreams::default());
    let mut stopping = session.stopping.clone();
    let (mut asked_to_end, mut wide) = (false, false);
    loop {
        let idle = tokio::time::sleep(settings.timeouts.keep_alive.into());
        let next = tokio::select! {
            accepted = poll_fn(|cx| poll_request(session, &mut connection, &mut allowance, &mut paid, cx)) => NextStep::Accepted(accepted),
            Some(_) = streams.join_next() => NextStep::Look,
            () = slow.changed(), if wide => NextStep::Window,
            () = idle, if streams.is_empty() => NextStep::End,
            _ = stopping.wait_for(|stopping| *stopping), if !asked_to_end => NextStep::End,
        };
        match next {
            NextStep::Accepted(None) => return Ok(()),
            NextStep::Accepted(Some(accepted)) => {
                let (request, mut respond) = accepted?;
                // from the first stream on, as much as the window may arrive unread
                if !wide && !held.resize(head + FIRST_WINDOW).await {
                    answer(&mut respond, 503);
                    continue;
                }
                let sends = !request.body().is_end_stream();
                if sends && !wide && held.resize_if_free(head + WINDOW as usize) {
                    connection.set_target_window_size(WINDOW);
                    untaken.on_window(WINDOW as usize);
                    wide = true;
                }
                let of = Of { name: &name, framing: &framing, slow: &slow, untaken: &untaken };
                begin(session, of, (request, respond), &mut streams).await;
            }
            NextStep::Look => {}
            NextStep::Window => {
                let window = WINDOW.saturating_mul(1 + slow.count());
                untaken.on_window(window as usize);
                connection.set_target_window_size(window);
            }
            // it had as long again to end by itself
            NextStep::End if asked_to_end => return Ok(()),
            NextStep::End => {
                connection.graceful_shutdown();
                asked_to_end = true;
            }
        }
    }
}

/// A request, and where its answer goes.
type Asked = (Request<RecvStream>, SendResponse<Bytes>);

/// The next request. Nothing is read while one waits that has been read: the library would keep the heads of a hundred
/// streams, which no budget counts.
fn poll_request<S>(
    session: &Session,
    connection: &mut Connection<ReadLimit<S>, Bytes>,
    allowance: &mut Allowance,
    paid: &mut Paid,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Asked, h2::Error>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    allowance.set(0);
    let waiting = connection.poll_accept(cx);
    if waiting.is_ready() {
        return waiting;
    }
    if !paid.is_due(cx) {
        return Poll::Pending;
    }
    let short = session.permit.is_memory_short();
    allowance.set(if short { READ_WHILE_SHORT } else { READ_AT_ONCE });
    let next = connection.poll_accept(cx);
    if next.is_pending() && allowance.is_used_up() {
        // other tasks have their turn first
        cx.waker().wake_by_ref();
    }
    next
}

/// What all streams of a connection have.
struct Of<'a> {
    name: &'a Option<Arc<str>>,
    framing: &'a Arc<Framing>,
    slow: &'a Arc<SlowStreams>,
    untaken: &'a Arc<Untaken>,
}

async fn begin(
    session: &Session,
    Of { name, framing, slow, untaken }: Of<'_>,
    (request, mut respond): Asked,
    streams: &mut JoinSet<()>,
) {
    let (parts, body) = request.into_parts();
    let tunnel = match (&parts.method, protocol(&parts)) {
        (&Method::CONNECT, None) => Tunnel::Bytes,
        (_, None) => Tunnel::None,
        (_, Some(CONNECT_UDP)) => Tunnel::Capsules,
        // RFC 9220 §3 says so for HTTP/3
        (_, Some(_)) => return answer(&mut respond, 501),
    };
    let Some((head, chunks)) = request_head(&parts, body.is_end_stream()) else {
        return answer(&mut respond, 400);
    };
    // two thousand short fields take 400 kB in its map, and 12 kB in the text
    let method = parts.method.clone();
    drop(parts);
    let Some(held) = session.permit.hold(STREAM + head.capacity()).await else {
        return answer(&mut respond, 503);
    };
    let Ok(inside) = super::begin_stream(session, name.clone(), framing) else {
        return answer(&mut respond, 503);
    };
    untaken.take_head(respond.stream_id().as_u32());
    let leg = &session.config.client_leg.leg;
    let patience = [leg.half_closed_timeout, leg.idle_timeout];
    let inside = End::Pipe(Arc::new(inside));
    let of_all = (Arc::clone(slow), Arc::clone(untaken));
    let limits = head_limits(session);
    let mut stream = H2Stream::new(inside, (method, tunnel), limits, patience, held, of_all);
    streams.spawn(async move {
        match stream.carry(head, chunks, body, &mut respond).await {
            Ok(()) => stream.set_whole(),
            // RFC 9297 §3.3: malformed capsules are what resets such a stream
            Err(StreamBroken) if tunnel == Tunnel::Capsules => {
                respond.send_reset(Reason::PROTOCOL_ERROR);
            }
            Err(StreamBroken) => respond.send_reset(Reason::CONNECT_ERROR),
        }
    });
}

/// Refuses a request whose head no session reads.
fn answer(respond: &mut SendResponse<Bytes>, status: u16) {
    let mut response = http::Response::new(());
    if let Ok(status) = http::StatusCode::from_u16(status) {
        *response.status_mut() = status;
    }
    // fails where the client is gone
    let _ = respond.send_response(response, true);
}
