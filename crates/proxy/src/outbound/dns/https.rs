//! DNS over HTTPS (RFC 8484): each question is a POST on one connection of HTTP/2, which all share.

use super::liveness::Liveness;
use crate::wire::dns::{Form, Lie, Question, ServerReply, read_answer};
use bytes::Bytes;
use ekiden_model::units::Span;
use h2::client::{Builder, SendRequest};
use http::header::{ACCEPT, AGE, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// RFC 8484 §6.
const MEDIA_TYPE: &str = "application/dns-message";
/// The largest message (RFC 8484 §6).
const LARGEST: usize = u16::MAX as usize;
/// The largest head of a response.
const HEAD: u32 = 16 * 1_024;
/// The port of `https`, which the authority leaves out.
const PORT: u16 = 443;
/// A connection is closed when nothing was asked for so long.
const SILENT: Duration = Duration::from_secs(15);

/// A connection to a server; its task ends with it, or when it is silent.
#[derive(Debug, Clone)]
pub(crate) struct Https {
    send: SendRequest<Bytes>,
    uri: Uri,
    shared: Arc<Shared>,
}

/// What the questions of one connection share.
#[derive(Debug)]
struct Shared {
    /// The last question or reply.
    last: watch::Sender<Instant>,
    liveness: Liveness,
}

/// The address of a server's resource. Errors: the name or the path cannot stand in it.
pub(super) fn uri(at: SocketAddr, name: Option<&str>, path: &str) -> io::Result<Uri> {
    let host = match (name, at) {
        (Some(name), _) => name.to_owned(),
        (None, SocketAddr::V4(at)) => at.ip().to_string(),
        (None, SocketAddr::V6(at)) => format!("[{}]", at.ip()),
    };
    let port = if at.port() == PORT { String::new() } else { format!(":{}", at.port()) };
    format!("https://{host}{port}{path}").parse().map_err(io::Error::other)
}

impl Https {
    /// Begins HTTP/2 on a stream within TLS. Errors: the stream ends.
    pub(super) async fn new(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        uri: Uri,
    ) -> io::Result<Self> {
        let mut builder = Builder::new();
        builder.enable_push(false).max_header_list_size(HEAD);
        let (send, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
        let (last, seen) = watch::channel(Instant::now());
        tokio::spawn(run(connection, seen));
        let shared = Shared { last, liveness: Liveness::default() };
        Ok(Self { send, uri, shared: Arc::new(shared) })
    }

    pub(super) fn is_open(&self) -> bool {
        !self.shared.last.is_closed() && !self.shared.liveness.is_dead()
    }

    /// The server's reply. Errors: the connection broke, or of the kind `InvalidData` where the response is not a
    /// message of the DNS.
    pub(super) async fn ask(&self, question: &Question) -> io::Result<Result<ServerReply, Lie>> {
        // equal questions look equal to caches (RFC 8484 §4.1)
        let message = question.message(0, Form::PADDED).map_err(io::Error::other)?;
        let waiting = self.shared.liveness.on_question();
        self.shared.last.send_replace(Instant::now());
        let request = Request::post(self.uri.clone())
            .header(ACCEPT, MEDIA_TYPE)
            .header(CONTENT_TYPE, MEDIA_TYPE)
            .header(CONTENT_LENGTH, message.len())
            .body(())
            .map_err(io::Error::other)?;
        let mut send = self.send.clone().ready().await.map_err(|error| self.broken(error))?;
        let sent = send.send_request(request, false);
        let (response, mut body) = sent.map_err(|error| self.broken(error))?;
        body.send_data(message.into(), true).map_err(|error| self.broken(error))?;
        let response = response.await.map_err(|error| self.broken(error))?;
        self.shared.liveness.on_reply();
        self.shared.last.send_replace(Instant::now());
        drop(waiting);
        let (age, bytes) = self.read(response).await?;
        let reply = read_answer(question, 0, &bytes);
        Ok(reply.map(|reply| match reply {
            ServerReply::Found(mut found, left_out) => {
                // RFC 8484 §5.1
                let left = found.ttl.as_nanos().saturating_sub(age.as_nanos());
                found.ttl = Span::from_nanos(left);
                ServerReply::Found(found, left_out)
            }
            reply => reply,
        }))
    }

    /// How long the response stood in caches, and the message in it.
    async fn read(&self, response: Response<h2::RecvStream>) -> io::Result<(Span, Vec<u8>)> {
        let (head, mut body) = response.into_parts();
        let age = check(head.status, &head.headers)?;
        let mut message = Vec::new();
        while let Some(data) = body.data().await {
            let data = data.map_err(|error| self.broken(error))?;
            if message.len() + data.len() > LARGEST {
                return Err(too_long());
            }
            message.extend_from_slice(&data);
            let released = body.flow_control().release_capacity(data.len());
            released.map_err(|error| self.broken(error))?;
        }
        Ok((age, message))
    }

    fn broken(&self, error: h2::Error) -> io::Error {
        self.shared.liveness.on_broken();
        io::Error::other(error)
    }
}

/// Whether a response carries a message; how long it stood in caches. Errors: it does not.
fn check(status: StatusCode, headers: &HeaderMap) -> io::Result<Span> {
    let wrong = |why: String| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if status == StatusCode::NOT_FOUND {
        return wrong("HTTP status 404: check the path in `servers`".to_owned());
    }
    // redirections lead to servers that nobody configured
    if status != StatusCode::OK {
        return wrong(format!("HTTP status {}", status.as_u16()));
    }
    let kind = text(CONTENT_TYPE).unwrap_or_default();
    let media = kind.split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case(MEDIA_TYPE) {
        let shown: String = media.chars().take(40).collect();
        return wrong(format!(
            "the response is \"{}\", not {MEDIA_TYPE}: check the path in `servers`",
            shown.escape_debug()
        ));
    }
    let length = text(CONTENT_LENGTH).and_then(|text| text.parse::<usize>().ok());
    if length.is_some_and(|length| length > LARGEST) {
        return Err(too_long());
    }
    let age = text(AGE).and_then(|text| text.trim().parse().ok());
    Ok(Span::from_secs(age.unwrap_or(0_u32).into()))
}

fn too_long() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the response has more than 65,535 bytes")
}

async fn run(
    connection: impl Future<Output = Result<(), h2::Error>>,
    last: watch::Receiver<Instant>,
) {
    let mut connection = pin!(connection);
    loop {
        let until = *last.borrow() + SILENT;
        tokio::select! {
            // whoever waits for a reply learns why
            _ = &mut connection => return,
            () = sleep_until(until) => {
                if *last.borrow() + SILENT <= Instant::now() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_resource_is_named_by_the_certificates_name_or_the_address() {
        let of = |at: &str, name| uri(at.parse().unwrap(), name, "/dns-query").unwrap().to_string();
        assert_eq!(of("192.0.2.1:443", None), "https://192.0.2.1/dns-query");
        assert_eq!(of("[2001:db8::1]:8443", None), "https://[2001:db8::1]:8443/dns-query");
        assert_eq!(of("192.0.2.1:443", Some("dns.example")), "https://dns.example/dns-query");
        assert!(uri("192.0.2.1:443".parse().unwrap(), Some("a b"), "/").is_err());
    }

    #[test]
    fn only_a_message_of_the_dns_is_read() {
        let of = |status: u16, headers: &[(http::HeaderName, &str)]| {
            let headers =
                headers.iter().map(|(name, value)| (name.clone(), value.parse().unwrap()));
            check(StatusCode::from_u16(status).unwrap(), &headers.collect())
        };
        let kind = |value| (CONTENT_TYPE, value);
        assert_eq!(of(200, &[kind("application/DNS-message")]).unwrap(), Span::ZERO);
        let aged = [kind("application/dns-message; q=1"), (AGE, "7")];
        assert_eq!(of(200, &aged).unwrap(), Span::from_secs(7));
        for (status, headers) in [
            (404, vec![kind(MEDIA_TYPE)]),
            (301, vec![kind(MEDIA_TYPE)]),
            (200, vec![]),
            (200, vec![kind("text/html")]),
            (200, vec![kind(MEDIA_TYPE), (CONTENT_LENGTH, "65536")]),
        ] {
            let error = of(status, &headers).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    }
}
