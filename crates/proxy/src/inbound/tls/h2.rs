//! HTTP/2 within TLS, as browsers use it with an HTTPS proxy (RFC 9113). Each stream is one request
//! or CONNECT, translated to HTTP/1.1 for a session of its own.

use crate::inbound::http::plan::head_limits;
use crate::session::Session;
use crate::transfer::buffered::{BufferedStream, write_all};
use crate::transfer::end::End;
use crate::transfer::pipe::PIPE;
use crate::wire::http::body::{self, Body};
use crate::wire::http::chunked::{Chunked, Output};
use crate::wire::http::h2::{CONNECT_UDP, protocol, request_head, response_head};
use crate::wire::http::head::{Limits, Response, read_response};
use bytes::Bytes;
use ekiden_model::units::Span;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::request::Parts;
use http::{Method, Request};
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

/// Concurrent streams, each counted as a connection; RFC 9113 §6.5.2 recommends at least 100.
const STREAMS: u32 = 100;
/// The flow-control window of a stream, and of a connection that sends bodies while there is memory:
/// enough for one stream on a long path.
const WINDOW: u32 = 1 << 20;
/// The window of other connections, the protocol's own (RFC 9113 §6.9.2).
const FIRST_WINDOW: usize = 65_535;
/// Limit on unsent bytes of a stream's answer.
const UNSENT: usize = 64 * 1024;
/// Bytes of an answer read at a time.
const AT_ONCE: usize = 64 * 1024;

enum NextStep<T> {
    Accepted(T),
    Look,
    End,
}

/// `name`: what the client's TLS asked for.
pub(crate) async fn serve<S>(
    session: &Session,
    name: Option<Arc<str>>,
    client: S,
) -> Result<(), h2::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let settings = &session.config.settings;
    // a head that never ends
    let head = settings.budgets.head.as_usize();
    let Some(mut held) = session.permit.hold(head).await else { return Ok(()) };
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
    let mut stopping = session.stopping.clone();
    let (mut asked_to_end, mut wide) = (false, false);
    loop {
        let idle = tokio::time::sleep(settings.timeouts.keep_alive.into());
        let next = tokio::select! {
            accepted = connection.accept() => NextStep::Accepted(accepted),
            Some(_) = streams.join_next() => NextStep::Look,
            () = idle, if streams.is_empty() => NextStep::End,
            _ = stopping.wait_for(|stopping| *stopping), if !asked_to_end => NextStep::End,
        };
        match next {
            NextStep::Accepted(None) => return Ok(()),
            NextStep::Accepted(Some(accepted)) => {
                let (request, mut respond) = accepted?;
                // from the first stream on, as much as the window may arrive unread
                if !wide && !held.resize(head + FIRST_WINDOW).await {
                    refuse(&mut respond, 503);
                    continue;
                }
                let sends = !request.body().is_end_stream();
                if sends && !wide && held.resize_if_free(head + WINDOW as usize) {
                    connection.set_target_window_size(WINDOW);
                    wide = true;
                }
                begin(session, name.clone(), request, respond, &mut streams).await;
            }
            NextStep::Look => {}
            // it had as long again to end by itself
            NextStep::End if asked_to_end => return Ok(()),
            NextStep::End => {
                connection.graceful_shutdown();
                asked_to_end = true;
            }
        }
    }
}

async fn begin(
    session: &Session,
    name: Option<Arc<str>>,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    streams: &mut JoinSet<()>,
) {
    let (parts, body) = request.into_parts();
    let tunnel = match (&parts.method, protocol(&parts)) {
        (&Method::CONNECT, None) => Tunnel::Bytes,
        (_, None) => Tunnel::None,
        (_, Some(CONNECT_UDP)) => Tunnel::Capsules,
        // RFC 9220 §3 says so for HTTP/3
        (_, Some(_)) => return refuse(&mut respond, 501),
    };
    let Some(held) = session.permit.hold(PIPE).await else {
        return refuse(&mut respond, 503);
    };
    let Ok(inside) = super::begin_stream(session, name) else {
        return refuse(&mut respond, 503);
    };
    let limits = head_limits(session);
    let leg = &session.config.client_leg.leg;
    let (silence, patience) = (leg.half_closed_timeout, leg.idle_timeout);
    let inside = End::Pipe(Arc::new(inside));
    let (whole, sent) = (AtomicBool::new(false), AtomicU64::new(0));
    let stream = H2Stream { inside, tunnel, limits, silence, patience, sent, whole };
    streams.spawn(async move {
        let _held = held;
        match stream.carry(&parts, body, &mut respond).await {
            Ok(()) => stream.whole.store(true, Relaxed),
            // RFC 9297 §3.3: malformed capsules are what resets such a stream
            Err(StreamBroken) if tunnel == Tunnel::Capsules => {
                respond.send_reset(Reason::PROTOCOL_ERROR);
            }
            Err(StreamBroken) => respond.send_reset(Reason::CONNECT_ERROR),
        }
    });
}

fn refuse(respond: &mut SendResponse<Bytes>, status: u16) {
    let mut response = http::Response::new(());
    if let Ok(status) = http::StatusCode::from_u16(status) {
        *response.status_mut() = status;
    }
    // fails where the client is gone
    let _ = respond.send_response(response, true);
}

/// What follows the heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tunnel {
    /// Bodies.
    None,
    /// Bytes of a CONNECT.
    Bytes,
    /// Capsules of an extended CONNECT for UDP (RFC 9298).
    Capsules,
}

struct H2Stream {
    inside: End,
    tunnel: Tunnel,
    limits: Limits,
    /// How long one direction may be silent after the other has ended.
    silence: Span,
    /// How long the client may accept nothing.
    patience: Span,
    /// Data frames from the client so far.
    sent: AtomicU64,
    whole: AtomicBool,
}

impl Drop for H2Stream {
    fn drop(&mut self) {
        // the session must not take a cut for an end of stream
        if !self.whole.load(Relaxed) {
            self.inside.abort("the stream was cut");
        }
    }
}

struct StreamBroken;

impl From<h2::Error> for StreamBroken {
    fn from(_: h2::Error) -> Self {
        Self
    }
}

impl From<io::Error> for StreamBroken {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl H2Stream {
    async fn carry(
        &self,
        parts: &Parts,
        body: RecvStream,
        respond: &mut SendResponse<Bytes>,
    ) -> Result<(), StreamBroken> {
        let Some((head, chunks)) = request_head(parts, body.is_end_stream()) else {
            refuse(respond, 400);
            return Ok(());
        };
        write_all(&self.inside, head.as_bytes()).await?;
        let up = self.up(body, chunks);
        let down = self.down(&parts.method, respond);
        tokio::pin!(up, down);
        let mut sent = false;
        loop {
            tokio::select! {
                up = &mut up, if !sent => { up?; sent = true; }
                // the answer may come before the whole request is sent
                down = &mut down => {
                    down?;
                    break;
                }
            }
        }
        // where the relay ends a flow of datagrams, nothing that still comes has a meaning
        if self.tunnel != Tunnel::Bytes || sent {
            return Ok(());
        }
        // a tunnel needs the end of both directions
        loop {
            let before = self.sent.load(Relaxed);
            match tokio::time::timeout(self.silence.into(), &mut up).await {
                Ok(up) => return up,
                Err(_) if self.sent.load(Relaxed) == before => return Err(StreamBroken),
                Err(_) => {}
            }
        }
    }

    async fn up(&self, mut body: RecvStream, chunks: bool) -> Result<(), StreamBroken> {
        while let Some(data) = body.data().await {
            let data = data?;
            if data.is_empty() {
                continue;
            }
            if chunks {
                let size = format!("{:x}\r\n", data.len());
                write_all(&self.inside, size.as_bytes()).await?;
            }
            write_all(&self.inside, &data).await?;
            if chunks {
                write_all(&self.inside, b"\r\n").await?;
            }
            self.sent.fetch_add(1, Relaxed);
            body.flow_control().release_capacity(data.len())?;
        }
        if chunks {
            write_all(&self.inside, b"0\r\n\r\n").await?;
        }
        if self.tunnel != Tunnel::None {
            self.inside.finish();
        }
        Ok(())
    }

    async fn down(
        &self,
        method: &Method,
        respond: &mut SendResponse<Bytes>,
    ) -> Result<(), StreamBroken> {
        let mut incoming = BufferedStream::new(self.inside.clone(), Vec::new());
        let response = loop {
            match read_response(incoming.bytes(), self.limits) {
                Ok(Some((response, used))) => {
                    incoming.consume(used);
                    match response.status {
                        200.. => break response,
                        // RFC 8441 §5: the stream takes no upgrade, it is open
                        101 if self.tunnel == Tunnel::Capsules => {
                            break Response { status: 200, ..response };
                        }
                        // interim responses end at this hop
                        _ => {}
                    }
                }
                Ok(None) => {
                    let more = tokio::select! {
                        more = incoming.fill(AT_ONCE) => more?,
                        // a client that reset its stream must not occupy a connection meanwhile
                        _ = poll_fn(|context| respond.poll_reset(context)) => 0,
                    };
                    if more == 0 {
                        return Err(StreamBroken);
                    }
                }
                Err(_) => return Err(StreamBroken),
            }
        };
        let tunnel = self.tunnel != Tunnel::None;
        let body = match tunnel && (200..300).contains(&response.status) {
            true => Body::UntilClose,
            false => body::of_response(method.as_str(), &response).map_err(|_| StreamBroken)?,
        };
        let empty = matches!(body, Body::None | Body::Length(0));
        let mut to =
            respond.send_response(response_head(&response, tunnel).ok_or(StreamBroken)?, empty)?;
        if empty {
            return Ok(());
        }
        self.body(&mut incoming, body, &mut to).await?;
        to.send_data(Bytes::new(), true)?;
        Ok(())
    }

    async fn body(
        &self,
        incoming: &mut BufferedStream,
        body: Body,
        to: &mut SendStream<Bytes>,
    ) -> Result<(), StreamBroken> {
        let mut left = match body {
            Body::Length(n) => n,
            _ => u64::MAX,
        };
        let mut chunked =
            matches!(body, Body::Chunked).then(|| Chunked::new(Output::Plain, self.limits));
        loop {
            let read = incoming.take();
            match &mut chunked {
                Some(chunked) => {
                    let mut data = Vec::new();
                    chunked.read(&read, &mut data).map_err(|_| StreamBroken)?;
                    self.send(to, data.into()).await?;
                    if chunked.is_done() {
                        return Ok(());
                    }
                }
                None => {
                    left = left.saturating_sub(read.len() as u64);
                    self.send(to, read.into()).await?;
                    if left == 0 {
                        return Ok(());
                    }
                }
            }
            let more = tokio::select! {
                more = incoming.fill(AT_ONCE) => more?,
                _ = poll_fn(|context| to.poll_reset(context)) => return Err(StreamBroken),
            };
            if more == 0 {
                return if matches!(body, Body::UntilClose) { Ok(()) } else { Err(StreamBroken) };
            }
        }
    }

    /// Sends within the client's flow-control window.
    async fn send(&self, to: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), StreamBroken> {
        while !data.is_empty() {
            to.reserve_capacity(data.len());
            let room = poll_fn(|context| to.poll_capacity(context));
            let room = tokio::time::timeout(self.patience.into(), room).await;
            let Ok(Some(room)) = room else { return Err(StreamBroken) };
            let part = data.split_to(room?.min(data.len()));
            to.send_data(part, false)?;
        }
        Ok(())
    }
}
