//! HTTP/2 within TLS, as browsers speak to an HTTPS proxy (RFC 9113): each stream is one request or one CONNECT,
//! said in HTTP/1.1 to a session of its own, whose answer goes back on the stream.

use super::{pair, serve_boxed};
use crate::http::body::{self, Body};
use crate::http::chunked::{Chunked, Output};
use crate::http::fields;
use crate::http::forward::head_limits;
use crate::http::head::{Limits, Response, read_response};
use crate::incoming::{Incoming, write_all};
use crate::session::Session;
use bytes::Bytes;
use ekiden_model::units::Span;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Method, Request, header};
use socket2::SockRef;
use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// Streams of one client at once, each the place of a connection: what browsers take for granted (RFC 9113
/// §6.5.2 recommends no less than 100).
const STREAMS: u32 = 100;
/// What a client may send on a stream before it was taken, and on all of them: a long path's worth of one.
const WINDOW: u32 = 1 << 20;
/// What is kept of a stream's answer while the client does not take it.
const UNSENT: usize = 256 * 1024;
/// Bytes of an answer read at a time.
const AT_ONCE: usize = 64 * 1024;

/// What comes next on a client's connection.
enum Next<T> {
    /// A stream, or the end.
    Accepted(T),
    /// A stream ended.
    Look,
    /// Nothing is going on any more, or the relay stops.
    End,
}

/// Serves streams until the client ends or the relay stops.
pub(super) async fn serve<S>(session: &Session, client: S) -> Result<(), h2::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let settings = &session.world.settings;
    let mut connection = Builder::new()
        .max_concurrent_streams(STREAMS)
        .initial_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buffer_size(UNSENT)
        .max_header_list_size(u32::try_from(settings.budgets.head.as_u64()).unwrap_or(u32::MAX))
        .handshake::<_, Bytes>(client)
        .await?;
    let mut streams = JoinSet::new();
    let mut stopping = session.stopping.clone();
    let mut asked_to_end = false;
    loop {
        let idle = tokio::time::sleep(settings.timeouts.keep_alive.into());
        let next = tokio::select! {
            accepted = connection.accept() => Next::Accepted(accepted),
            Some(_) = streams.join_next() => Next::Look,
            () = idle, if streams.is_empty() && !asked_to_end => Next::End,
            _ = stopping.wait_for(|stopping| *stopping), if !asked_to_end => Next::End,
        };
        match next {
            Next::Accepted(None) => return Ok(()),
            Next::Accepted(Some(accepted)) => {
                let (request, respond) = accepted?;
                begin(session, request, respond, &mut streams).await;
            }
            Next::Look => {}
            Next::End => {
                connection.graceful_shutdown();
                asked_to_end = true;
            }
        }
    }
}

/// Begins with one stream, in a task that ends with the connection.
async fn begin(
    session: &Session,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    streams: &mut JoinSet<()>,
) {
    let Some(place) = session.resources().another() else {
        return refuse(&mut respond, 503);
    };
    let Ok((outside, inside)) = pair().await else { return refuse(&mut respond, 503) };
    let inner = session.within(outside);
    let entry = Arc::clone(&inner.registered.entry);
    place.belongs_to(&entry);
    let limits = head_limits(session);
    let task = tokio::spawn(async move {
        serve_boxed(inner).await;
        drop(place);
    });
    // set once, here
    let _ = entry.task.set(task.abort_handle());
    let leg = &session.world.client_leg.leg;
    let (silence, patience) = (leg.half_closed_timeout, leg.idle_timeout);
    let (inside, whole, sent) = (Arc::new(inside), AtomicBool::new(false), AtomicU64::new(0));
    let stream = Stream { inside, limits, silence, patience, sent, whole };
    streams.spawn(async move {
        match stream.carry(request, &mut respond).await {
            Ok(()) => stream.whole.store(true, Relaxed),
            Err(Broken) => respond.send_reset(Reason::CONNECT_ERROR),
        }
    });
}

fn refuse(respond: &mut SendResponse<Bytes>, status: u16) {
    let mut response = http::Response::new(());
    if let Ok(status) = http::StatusCode::from_u16(status) {
        *response.status_mut() = status;
    }
    // a client that is gone need not be told
    let _ = respond.send_response(response, true);
}

/// One stream, and the connection to its session.
struct Stream {
    inside: Arc<TcpStream>,
    limits: Limits,
    /// How long one direction may be silent when the other has ended.
    silence: Span,
    /// How long a client may take nothing.
    patience: Span,
    /// Parts that the client has sent.
    sent: AtomicU64,
    /// It came to its end.
    whole: AtomicBool,
}

impl Drop for Stream {
    fn drop(&mut self) {
        // cut off in the middle, the session must not take it for the end
        if !self.whole.load(Relaxed) {
            let _ = SockRef::from(&*self.inside).set_linger(Some(Duration::ZERO));
        }
    }
}

/// The stream or the connection broke.
struct Broken;

impl From<h2::Error> for Broken {
    fn from(_: h2::Error) -> Self {
        Self
    }
}

impl From<io::Error> for Broken {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl Stream {
    async fn carry(
        &self,
        request: Request<RecvStream>,
        respond: &mut SendResponse<Bytes>,
    ) -> Result<(), Broken> {
        let (parts, body) = request.into_parts();
        let Some((head, chunks)) = request_head(&parts, body.is_end_stream()) else {
            refuse(respond, 400);
            return Ok(());
        };
        write_all(&self.inside, head.as_bytes()).await?;
        let tunnel = parts.method == Method::CONNECT;
        let up = self.up(body, tunnel, chunks);
        let down = self.down(&parts.method, tunnel, respond);
        tokio::pin!(up, down);
        let mut sent = false;
        loop {
            tokio::select! {
                up = &mut up, if !sent => { up?; sent = true; }
                // an answer may come before all of the request has gone
                down = &mut down => {
                    down?;
                    break;
                }
            }
        }
        if !tunnel || sent {
            return Ok(());
        }
        // both directions of a tunnel have to come to their end
        loop {
            let before = self.sent.load(Relaxed);
            match tokio::time::timeout(self.silence.into(), &mut up).await {
                Ok(up) => return up,
                Err(_) if self.sent.load(Relaxed) == before => return Err(Broken),
                Err(_) => {}
            }
        }
    }

    /// What the client sends, to the session.
    async fn up(&self, mut body: RecvStream, tunnel: bool, chunks: bool) -> Result<(), Broken> {
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
        if tunnel {
            SockRef::from(&*self.inside).shutdown(Shutdown::Write)?;
        }
        Ok(())
    }

    /// What the session answers, to the client.
    async fn down(
        &self,
        method: &Method,
        tunnel: bool,
        respond: &mut SendResponse<Bytes>,
    ) -> Result<(), Broken> {
        let mut incoming = Incoming::new(Arc::clone(&self.inside), Vec::new());
        let response = loop {
            match read_response(incoming.bytes(), self.limits) {
                Ok(Some((response, used))) => {
                    incoming.consume(used);
                    // interim answers are for this hop
                    if response.status >= 200 {
                        break response;
                    }
                }
                Ok(None) => {
                    let more = tokio::select! {
                        more = incoming.fill(AT_ONCE) => more?,
                        // who gave up must not hold a place while nothing is answered
                        _ = poll_fn(|context| respond.poll_reset(context)) => 0,
                    };
                    if more == 0 {
                        return Err(Broken);
                    }
                }
                Err(_) => return Err(Broken),
            }
        };
        let body = match tunnel && (200..300).contains(&response.status) {
            true => Body::UntilClose,
            false => body::of_response(method.as_str(), &response).map_err(|_| Broken)?,
        };
        let empty = matches!(body, Body::None | Body::Length(0));
        let mut to =
            respond.send_response(response_head(&response, tunnel).ok_or(Broken)?, empty)?;
        if empty {
            return Ok(());
        }
        self.body(&mut incoming, body, &mut to).await?;
        to.send_data(Bytes::new(), true)?;
        Ok(())
    }

    async fn body(
        &self,
        incoming: &mut Incoming,
        body: Body,
        to: &mut SendStream<Bytes>,
    ) -> Result<(), Broken> {
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
                    chunked.read(&read, &mut data).map_err(|_| Broken)?;
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
                _ = poll_fn(|context| to.poll_reset(context)) => return Err(Broken),
            };
            if more == 0 {
                return if matches!(body, Body::UntilClose) { Ok(()) } else { Err(Broken) };
            }
        }
    }

    /// Sends as the client takes it.
    async fn send(&self, to: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), Broken> {
        while !data.is_empty() {
            to.reserve_capacity(data.len());
            let room = poll_fn(|context| to.poll_capacity(context));
            let room = tokio::time::timeout(self.patience.into(), room).await;
            let Ok(Some(room)) = room else { return Err(Broken) };
            let part = data.split_to(room?.min(data.len()));
            to.send_data(part, false)?;
        }
        Ok(())
    }
}

/// The request in HTTP/1.1, and whether its body follows in chunks; `None` for one that cannot be said so.
fn request_head(parts: &http::request::Parts, ended: bool) -> Option<(String, bool)> {
    let authority = parts.uri.authority()?.as_str();
    let target = match parts.method {
        Method::CONNECT => authority.to_owned(),
        _ => {
            let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
            format!("{}://{authority}{path}", parts.uri.scheme_str()?)
        }
    };
    let mut head = format!("{} {target} HTTP/1.1\r\nHost: {authority}\r\n", parts.method);
    let mut cookies = Vec::new();
    for (name, value) in &parts.headers {
        let value = value.to_str().ok()?;
        // RFC 9113 §8.2.2, and §8.2.3 for cookies, which may come in parts
        match name.as_str() {
            "host" | "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding"
            | "upgrade" | "te" => {}
            "cookie" => cookies.push(value),
            name => head.push_str(&format!("{name}: {value}\r\n")),
        }
    }
    if !cookies.is_empty() {
        head.push_str(&format!("cookie: {}\r\n", cookies.join("; ")));
    }
    if parts.method == Method::CONNECT {
        head.push_str("\r\n");
        return Some((head, false));
    }
    let chunks = !ended && !parts.headers.contains_key(header::CONTENT_LENGTH);
    if chunks {
        head.push_str("Transfer-Encoding: chunked\r\n");
    }
    head.push_str("Connection: close\r\n\r\n");
    Some((head, chunks))
}

/// The answer's head on the stream, without what was for the connection (RFC 9113 §8.2.2).
fn response_head(response: &Response, tunnel: bool) -> Option<http::Response<()>> {
    let mut head = http::Response::new(());
    *head.status_mut() = http::StatusCode::from_u16(response.status).ok()?;
    let mut headers = HeaderMap::new();
    for field in fields::end_to_end(&response.fields).ok()? {
        // RFC 9110 §9.3.6: an answer to CONNECT that succeeded has no length
        if tunnel && response.status < 300 && field.name.eq_ignore_ascii_case("content-length") {
            continue;
        }
        let name = header::HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        headers.append(name, header::HeaderValue::from_bytes(&field.value).ok()?);
    }
    // it is for the client of this proxy, and ends at the next hop in HTTP/1.1 alone
    for value in fields::values(&response.fields, "proxy-authenticate") {
        headers.append(header::PROXY_AUTHENTICATE, header::HeaderValue::from_bytes(value).ok()?);
    }
    *head.headers_mut() = headers;
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::head::{Field, Version};

    fn parts(method: &str, uri: &str, fields: &[(&str, &str)]) -> http::request::Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn answers_keep_what_is_for_the_client_of_the_proxy() {
        let field = |name: &str, value: &str| Field { name: name.into(), value: value.into() };
        let said = |status, fields| Response {
            status,
            reason: Vec::new(),
            version: Version::Http11,
            fields,
        };
        let who = said(
            407,
            vec![field("Proxy-Authenticate", "Basic realm=\"r\""), field("Connection", "close")],
        );
        let head = response_head(&who, true).unwrap();
        assert_eq!(head.headers()["proxy-authenticate"], "Basic realm=\"r\"");
        assert!(!head.headers().contains_key("connection"));
        let fine = said(200, vec![field("Content-Length", "5")]);
        assert!(response_head(&fine, true).unwrap().headers().is_empty());
        assert_eq!(response_head(&fine, false).unwrap().headers()["content-length"], "5");
    }

    #[test]
    fn requests_in_http_1() {
        let connect = parts("CONNECT", "a.example:443", &[("proxy-authorization", "Basic QQ==")]);
        let said = "CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nproxy-authorization: Basic QQ==\r\n\r\n";
        assert_eq!(request_head(&connect, false), Some((said.to_owned(), false)));
        let fields = [("cookie", "a=1"), ("te", "trailers"), ("cookie", "b=2")];
        let post = parts("POST", "http://a.example/x?y", &fields);
        let (head, chunks) = request_head(&post, false).unwrap();
        assert!(
            chunks && head.starts_with("POST http://a.example/x?y HTTP/1.1\r\nHost: a.example\r\n")
        );
        assert!(head.contains("\r\ncookie: a=1; b=2\r\n") && !head.contains("te:"), "{head}");
        let known = parts("POST", "http://a.example/", &[("content-length", "3")]);
        assert!(!request_head(&known, false).unwrap().1);
        assert!(!request_head(&parts("GET", "http://a.example/", &[]), true).unwrap().1);
        assert_eq!(request_head(&parts("GET", "/x", &[]), true), None);
    }
}
