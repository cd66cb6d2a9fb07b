//! HTTP/2 within TLS, as browsers use it with an HTTPS proxy (RFC 9113). Each stream is one request
//! or CONNECT, translated to HTTP/1.1 for a session of its own.

mod control;
mod counted;
mod frames;
mod kept;
mod read_limit;
mod slow;
mod stream;
mod unsent;
mod untaken;

use crate::inbound::http::plan::head_limits;
use crate::policy::quota::Framing;
use crate::session::Session;
use crate::transfer::end::End;
use crate::wire::http::h2::{CONNECT_UDP, protocol, request_head};
use crate::wire::http::head::LONGEST_METHOD;
use bytes::Bytes;
use control::ControlFrames;
use counted::{Counted, Paid};
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Method, Request};
use kept::Kept;
use read_limit::{Allowance, ReadLimit};
use slow::SlowStreams;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll};
use stream::{H2Stream, STREAM, StreamBroken, Tunnel};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
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
/// The same while memory is short, or no body was asked for. A byte may stand for a field (RFC 7541 §6.1) of some 80 bytes
/// in memory.
const READ_LITTLE: usize = 1024;
/// Requests in a row that were not served: without a log-in, malformed, or for the relay itself. HTTP/1.1 closes after
/// each.
const UNSERVED: u32 = 32;
/// Streams that a client reset before their answer, beyond those that were answered. Browsers leave pages with some tens.
const GIVEN_UP: u32 = 100;

enum NextStep<T> {
    Accepted(T),
    /// What the library keeps has changed.
    Kept,
    /// A head has gone on for too long.
    Late,
    Look,
    Window,
    End,
}

/// What all streams of a connection have.
struct Common {
    slow: Arc<SlowStreams>,
    untaken: Arc<Untaken>,
    kept: Arc<Kept>,
    control: Arc<ControlFrames>,
    /// Requests in a row that were answered and not served.
    unserved: AtomicU32,
    /// Streams that were reset before their answer, less those that were answered.
    given_up: AtomicU32,
    /// See [`Common::set_cut`].
    cut: AtomicBool,
}

impl Common {
    /// The relay ends the connection, by a limit. Streams that are not whole are its cut, and no client's.
    fn set_cut(&self) {
        self.cut.store(true, Relaxed);
    }

    fn is_cut(&self) -> bool {
        self.cut.load(Relaxed)
    }

    /// Whether the connection ends: control frames are too many, or unserved requests, refused heads or resets have reached
    /// so many times their limit.
    fn is_over(&self, times: u32) -> bool {
        self.control.is_over(times)
            || self.unserved.load(Relaxed) >= times * UNSERVED
            || self.given_up.load(Relaxed) >= times * GIVEN_UP
    }

    /// A request has its answer. `served`: it was for a destination, whether that was reached or not.
    fn on_answer(&self, status: u16, served: bool) {
        match status {
            _ if served => self.unserved.store(0, Relaxed),
            // no room now, while tunnels beside it may run; who may not log in is told so after a second
            429 | 503 => {}
            _ => self.on_unserved(),
        }
        let one_less = |count: u32| count.checked_sub(1);
        let _ = self.given_up.fetch_update(Relaxed, Relaxed, one_less);
    }

    fn on_unserved(&self) {
        self.unserved.fetch_add(1, Relaxed);
    }

    fn on_given_up(&self) {
        self.given_up.fetch_add(1, Relaxed);
    }
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
    let (untaken, kept) = (Untaken::new(Arc::clone(&framing), FIRST_WINDOW), Kept::default());
    let (untaken, kept) = (Arc::new(untaken), Arc::new(kept));
    let control = Arc::new(ControlFrames::default());
    let client = Counted::new(
        client,
        Arc::clone(&framing),
        Arc::clone(&untaken),
        Arc::clone(&kept),
        Arc::clone(&control),
    );
    let (client, mut allowance) = ReadLimit::new(client, READ_AT_ONCE);
    let mut paid = Paid::new(Arc::clone(&framing));
    session.registration.entry.set_carrier(&framing);
    let mut builder = Builder::new();
    if session.config.why_no_datagrams().is_none() {
        // RFC 8441 §3; where it is not set, the library resets such streams
        builder.enable_connect_protocol();
    }
    let handshake = builder
        .max_concurrent_streams(STREAMS)
        .initial_window_size(WINDOW)
        .max_send_buffer_size(UNSENT)
        // its entries would keep what they were read from
        .header_table_size(0)
        .max_header_list_size(u32::try_from(settings.budgets.head.as_u64()).unwrap_or(u32::MAX))
        .handshake::<_, Bytes>(client);
    // the client's preface, which it may send as slowly as a head
    let limit = settings.timeouts.request_head.into();
    let Ok(connection) = tokio::time::timeout(limit, handshake).await else { return Ok(()) };
    let mut connection = connection?;
    let mut streams = JoinSet::new();
    let slow = Arc::new(SlowStreams::default());
    let (unserved, given_up) = (AtomicU32::new(0), AtomicU32::new(0));
    let cut = AtomicBool::new(false);
    let all = Arc::new(Common { slow, untaken, kept, control, unserved, given_up, cut });
    let mut stopping = session.stopping.clone();
    let (mut asked_to_end, mut wide) = (false, false);
    // the connection's window, what counts, and the head that goes on with the end of its time
    let (mut window, mut counted) = (0, head);
    let mut unfinished: Option<(u64, Instant)> = None;
    loop {
        // the client's next connection may do better
        if all.is_over(1) && !asked_to_end {
            connection.graceful_shutdown();
            asked_to_end = true;
        }
        // a graceful end waits for the client to acknowledge it
        if all.is_over(2) && !all.is_cut() {
            // before the library wakes the streams
            all.set_cut();
            connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        let needed = head + window + all.kept.beside(head, window);
        if counted != needed && !held.resize(needed).await {
            tracing::debug!(client = %session.address, "HTTP/2: no memory for what the client has sent");
            all.set_cut();
            return Ok(());
        }
        counted = needed;
        unfinished = all.kept.unfinished().map(|nth| {
            let before = unfinished.filter(|(before, _)| *before == nth);
            (nth, before.map_or_else(|| Instant::now() + limit, |(_, until)| until))
        });
        let until = unfinished.map_or_else(Instant::now, |(_, until)| until);
        let idle = tokio::time::sleep(settings.timeouts.keep_alive.into());
        let next = tokio::select! {
            accepted = poll_fn(|cx| {
                let little = !wide || session.permit.is_memory_short();
                let most = if little { READ_LITTLE } else { READ_AT_ONCE };
                let accepted = poll_request(most, &mut connection, &mut allowance, &mut paid, cx);
                let over = !asked_to_end && all.is_over(1) || !all.is_cut() && all.is_over(2);
                if accepted.is_pending() && over {
                    return Poll::Ready(NextStep::Look);
                }
                if accepted.is_pending() && all.kept.beside(head, window) != counted - head - window {
                    return Poll::Ready(NextStep::Kept);
                }
                accepted.map(NextStep::Accepted)
            }) => accepted,
            () = sleep_until(until), if unfinished.is_some() => NextStep::Late,
            Some(_) = streams.join_next() => NextStep::Look,
            () = all.slow.changed(), if wide => NextStep::Window,
            () = idle, if streams.is_empty() => NextStep::End,
            _ = stopping.wait_for(|stopping| *stopping), if !asked_to_end => NextStep::End,
        };
        match next {
            NextStep::Accepted(None) => return Ok(()),
            NextStep::Accepted(Some(accepted)) => {
                // limits of the library's own; streams may hear of these first
                let (request, mut respond) = accepted.inspect_err(|error| {
                    if error.is_library() && error.reason() == Some(Reason::ENHANCE_YOUR_CALM) {
                        all.set_cut();
                    }
                })?;
                all.control.on_accepted();
                // nothing is begun for a stream that was reset in the same breath
                if poll_fn(|cx| Poll::Ready(respond.poll_reset(cx).is_ready())).await {
                    all.on_given_up();
                    continue;
                }
                let Some(asked) = Asked::read(request, &mut respond) else {
                    all.on_unserved();
                    continue;
                };
                // from the first stream on, as much as the window may arrive unread
                if window == 0 {
                    window = FIRST_WINDOW;
                    let needed = head + window + all.kept.beside(head, window);
                    if !held.resize(needed).await {
                        window = 0;
                        answer(&mut respond, 503);
                        continue;
                    }
                    counted = needed;
                }
                if asked.sends && !wide && held.resize_if_free(counted - window + WINDOW as usize) {
                    connection.set_target_window_size(WINDOW);
                    all.untaken.on_window(WINDOW as usize);
                    (counted, window) = (counted - window + WINDOW as usize, WINDOW as usize);
                    wide = true;
                }
                begin(session, &all, (&name, &framing), (asked, respond), &mut streams).await;
            }
            NextStep::Kept => {}
            NextStep::Late if all.kept.unfinished() == unfinished.map(|(nth, _)| nth) => {
                all.set_cut();
                return Ok(());
            }
            NextStep::Late => {}
            NextStep::Look => {}
            NextStep::Window => {
                let wanted = WINDOW.saturating_mul(1 + all.slow.count());
                all.untaken.on_window(wanted as usize);
                connection.set_target_window_size(wanted);
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
type Accepted = (Request<RecvStream>, SendResponse<Bytes>);

/// The next request. Nothing is read while one waits that has been read: the library would keep the heads of a hundred
/// streams, which no budget counts. `most`: bytes that are read at a time.
fn poll_request<S>(
    most: usize,
    connection: &mut Connection<ReadLimit<S>, Bytes>,
    allowance: &mut Allowance,
    paid: &mut Paid,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Accepted, h2::Error>>>
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
    allowance.set(most);
    let next = connection.poll_accept(cx);
    if next.is_pending() && allowance.is_used_up() {
        // other tasks have their turn first
        cx.waker().wake_by_ref();
    }
    next
}

/// A request, as HTTP/1.1 has it.
struct Asked {
    method: Method,
    tunnel: Tunnel,
    head: Vec<u8>,
    /// The body follows in chunks.
    chunks: bool,
    /// A body follows.
    sends: bool,
    body: RecvStream,
}

impl Asked {
    /// What cannot be read is answered. Its fields go: two thousand short ones take 400 kB, and 12 kB in the text.
    fn read(request: Request<RecvStream>, respond: &mut SendResponse<Bytes>) -> Option<Self> {
        let (parts, body) = request.into_parts();
        // it would stay with its stream
        if parts.method.as_str().len() > LONGEST_METHOD {
            answer(respond, 501);
            return None;
        }
        let tunnel = match (&parts.method, protocol(&parts)) {
            (&Method::CONNECT, None) => Tunnel::Bytes,
            (_, None) => Tunnel::None,
            (_, Some(CONNECT_UDP)) => Tunnel::Capsules,
            // RFC 9220 §3 says so for HTTP/3
            (_, Some(_)) => {
                answer(respond, 501);
                return None;
            }
        };
        let sends = !body.is_end_stream();
        let Some((head, chunks)) = request_head(&parts, !sends) else {
            answer(respond, 400);
            return None;
        };
        Some(Self { method: parts.method, tunnel, head, chunks, sends, body })
    }
}

/// `name`: what the client's TLS asked for.
async fn begin(
    session: &Session,
    all: &Arc<Common>,
    (name, framing): (&Option<Arc<str>>, &Arc<Framing>),
    (asked, mut respond): (Asked, SendResponse<Bytes>),
    streams: &mut JoinSet<()>,
) {
    let Asked { method, tunnel, head, chunks, body, .. } = asked;
    let Some(held) = session.permit.hold(STREAM + head.capacity()).await else {
        return answer(&mut respond, 503);
    };
    let Ok((inside, entry)) = super::begin_stream(session, name.clone(), framing) else {
        return answer(&mut respond, 503);
    };
    let number = respond.stream_id().as_u32();
    all.untaken.take_head(number);
    let leg = &session.config.client_leg.leg;
    let patience = [leg.half_closed_timeout, leg.idle_timeout];
    let inside = End::Pipe(Arc::new(inside));
    let limits = head_limits(session);
    let of = (number, Arc::clone(all), entry);
    let mut stream = H2Stream::new(inside, (method, tunnel), limits, patience, held, of);
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

/// Refuses a request whose head no session reads. There is no body: until its client takes it, nothing would count it.
fn answer(respond: &mut SendResponse<Bytes>, status: u16) {
    let mut response = http::Response::new(());
    if let Ok(status) = http::StatusCode::from_u16(status) {
        *response.status_mut() = status;
    }
    // for want of memory, or of a place
    if status == 503 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    // fails where the client is gone
    let _ = respond.send_response(response, true);
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Common {
        /// Of a connection that has had no stream.
        pub(super) fn unused() -> Self {
            Self {
                slow: Arc::default(),
                untaken: Arc::new(Untaken::new(Arc::default(), FIRST_WINDOW)),
                kept: Arc::default(),
                control: Arc::default(),
                unserved: AtomicU32::new(0),
                given_up: AtomicU32::new(0),
                cut: AtomicBool::new(false),
            }
        }
    }

    #[test]
    fn unserved_requests_count_until_one_is_served() {
        let all = Common::unused();
        let answers =
            |count: u32, status, served| (0..count).for_each(|_| all.on_answer(status, served));
        answers(UNSERVED - 1, 200, false);
        answers(1, 502, true);
        answers(UNSERVED - 1, 407, false);
        answers(100, 429, false);
        answers(100, 503, false);
        assert!(!all.is_over(1));
        all.on_unserved();
        assert!(all.is_over(1) && !all.is_over(2));
        answers(UNSERVED, 400, false);
        assert!(all.is_over(2));
    }
}
