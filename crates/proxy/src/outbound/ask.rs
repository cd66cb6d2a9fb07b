//! Asking an upstream proxy for a connection: CONNECT, or SOCKS5.

use crate::destination::Destination;
use crate::error::{Failure, FailureKind};
use crate::policy::upstream::Hop;
use crate::runtime::RuntimeConfig;
use crate::settings::{Credentials, UpstreamProtocol};
use crate::transfer::buffered::{BufferedStream, write_all};
use crate::wire::hops;
use crate::wire::http::fields::write_one;
use crate::wire::http::head::{HeadSearch, Limits};
use crate::wire::socks::{self, METHOD_NONE, METHOD_PASSWORD};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ekiden_model::units::Span;
use std::borrow::Cow;
use std::future::Future;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose<'a> {
    /// An opaque byte stream: its far end must be the destination itself. `via` is the value of `Via`
    /// that an upstream proxy gets, so that a ring of proxies notices itself; empty: this relay alone.
    Tunnel { via: &'a [u8] },
    /// HTTP requests: the far end may be an HTTP proxy, which takes them in absolute form.
    Forward,
}

impl Purpose<'_> {
    /// The relays that the request has passed, with this one.
    fn via(&self, config: &RuntimeConfig) -> Cow<'_, [u8]> {
        match *self {
            Self::Tunnel { via } if !via.is_empty() => via.into(),
            _ => format!("1.1 {}", config.settings.name).into_bytes().into(),
        }
    }
}

/// An upstream that looks for the destination has sent it four SYNs (RFC 6298 §2 and 5.5: after 0, 1, 3 and 7 s).
const SILENT: Span = Span::from_secs(10);

/// Asks `hop`, to which `incoming` leads, for a connection to `to`; its health follows the answer.
pub(crate) async fn ask(
    config: &RuntimeConfig,
    hop: &Hop,
    incoming: &mut BufferedStream,
    to: &Destination,
    purpose: Purpose<'_>,
) -> Result<(), Failure> {
    let limit = config.settings.timeouts.handshake;
    let limits = Limits {
        bytes: config.settings.budgets.head.as_usize(),
        fields: config.settings.budgets.fields.into(),
    };
    let request = async {
        match hop.upstream.protocol {
            UpstreamProtocol::Http | UpstreamProtocol::Https => {
                ask_http(config, hop, incoming, to, (limits, purpose)).await
            }
            UpstreamProtocol::Socks5 => ask_socks5(config, hop, incoming, (to, purpose)).await,
            // the configuration check rejects this
            UpstreamProtocol::Tunnel => Err(Failure::new(
                FailureKind::Unreachable,
                format!("tunnel \"{}\" can only be the first of a chain", hop.name),
            )),
        }
    };
    let late =
        |_| Err(failed(hop, FailureKind::TimedOut, &format!("did not answer within {limit}")));
    let waiting = hop.wait(SILENT);
    let result = tokio::time::timeout(limit.into(), request).await.unwrap_or_else(late);
    let since = waiting.end();
    match &result {
        Ok(()) => hop.on_success(),
        // it did answer
        Err(failure) if failure.kind == FailureKind::UpstreamRefused => hop.on_success(),
        // the destination may be what does not answer
        Err(failure) if failure.kind == FailureKind::TimedOut => hop.on_no_answer(since, failure),
        Err(failure) => hop.on_failure(failure),
    }
    result
}

/// The value of `Proxy-Authorization` for Basic (RFC 7617).
pub(crate) fn basic(credentials: &Credentials) -> String {
    let plain = format!("{}:{}", credentials.user, credentials.password);
    format!("Basic {}", STANDARD.encode(plain))
}

async fn ask_http(
    config: &RuntimeConfig,
    hop: &Hop,
    incoming: &mut BufferedStream,
    to: &Destination,
    (limits, purpose): (Limits, Purpose<'_>),
) -> Result<(), Failure> {
    let mut request = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n").into_bytes();
    write_one(&mut request, "Via", &purpose.via(config));
    if let Some(credentials) = &hop.upstream.credentials {
        write_one(&mut request, "Proxy-Authorization", basic(credentials).as_bytes());
    }
    request.extend(b"\r\n");
    with_name(hop, write_all(&incoming.stream, &request)).await?;
    let mut search = HeadSearch::default();
    loop {
        match search.response(incoming.bytes(), limits) {
            // another protocol's greeting may never contain an empty line
            Ok(None) if !incoming.bytes().iter().zip(b"HTTP/1.").all(|(got, want)| got == want) => {
                return Err(failed(hop, FailureKind::BadAnswer, "does not speak HTTP"));
            }
            Ok(None) => more(hop, incoming).await?,
            Ok(Some((response, used))) if (200..300).contains(&response.status) => {
                incoming.consume(used);
                return Ok(());
            }
            // 101 has no meaning for CONNECT
            Ok(Some((response, used))) if response.is_interim() => {
                incoming.consume(used);
                search = HeadSearch::default();
            }
            Ok(Some((response, _))) => {
                // without the reason phrase, which may echo the request
                let (kind, hint) = match response.status {
                    407 => (FailureKind::NotAdmitted, "; check its user and password"),
                    403 => (FailureKind::UpstreamRefused, "; its rules do not allow it"),
                    _ => (FailureKind::UpstreamRefused, ""),
                };
                let what = format!("answered {} for {to}{hint}", response.status);
                return Err(failed(hop, kind, &what));
            }
            Err(bad) => {
                let what = format!("does not speak HTTP: {bad}");
                return Err(failed(hop, FailureKind::BadAnswer, &what));
            }
        }
    }
}

async fn ask_socks5(
    config: &RuntimeConfig,
    hop: &Hop,
    incoming: &mut BufferedStream,
    (to, purpose): (&Destination, Purpose<'_>),
) -> Result<(), Failure> {
    let names_relays = hop.upstream.private_methods;
    let wrong = |what: String| failed(hop, FailureKind::BadAnswer, &what);
    let not_admitted = |what: &str| failed(hop, FailureKind::NotAdmitted, what);
    let credentials = hop.upstream.credentials.as_ref();
    let methods: &[u8] = match credentials {
        Some(_) => &[METHOD_NONE, METHOD_PASSWORD],
        None => &[METHOD_NONE],
    };
    let mut methods = methods.to_vec();
    if names_relays {
        methods.extend(hops::to_methods(&purpose.via(config)));
    }
    with_name(hop, write_all(&incoming.stream, &socks::write_methods(&methods))).await?;
    let greeted = exactly::<2>(hop, incoming).await;
    let [version, method] = greeted.map_err(|failure| match failure.kind {
        FailureKind::Closed if names_relays => {
            let (text, count, name) = (&failure.text, methods.len(), &hop.name);
            let text = format!(
                "{text} after {count} methods; for a server that takes only a few, set private_methods = false in [upstream.{name}]"
            );
            Failure { text, ..failure }
        }
        _ => failure,
    })?;
    match (version, method, credentials) {
        (5, METHOD_NONE, _) => {}
        (5, METHOD_PASSWORD, Some(credentials)) => {
            let password = socks::write_password(&credentials.user, &credentials.password);
            with_name(hop, write_all(&incoming.stream, &password)).await?;
            if exactly::<2>(hop, incoming).await?[1] != 0 {
                return Err(not_admitted("does not accept its user and password"));
            }
        }
        (5, _, None) => {
            return Err(not_admitted("wants a user and password, and none are configured"));
        }
        (5, _, Some(_)) => {
            return Err(not_admitted("accepts neither \"no authentication\" nor a password"));
        }
        _ => return Err(wrong(format!("does not speak SOCKS5 (it answered version {version})"))),
    }
    with_name(hop, write_all(&incoming.stream, &socks::write_request(to))).await?;
    let [version, reply, _] = exactly::<3>(hop, incoming).await?;
    if version != 5 {
        return Err(wrong(format!("does not speak SOCKS5 (it answered version {version})")));
    }
    if reply != 0 {
        let what = format!("answered {} for {to}", reply_text(reply));
        return Err(failed(hop, FailureKind::UpstreamRefused, &what));
    }
    loop {
        match socks::read_address(incoming.bytes(), 0) {
            Ok(None) => more(hop, incoming).await?,
            Ok(Some((_, _, used))) => {
                incoming.consume(used);
                return Ok(());
            }
            Err(bad) => return Err(wrong(format!("sent a reply that cannot be read: {bad}"))),
        }
    }
}

/// RFC 1928 §6.
const fn reply_text(reply: u8) -> &'static str {
    match reply {
        1 => "\"general failure\"",
        2 => "\"not allowed by its rules\"",
        3 => "\"network unreachable\"",
        4 => "\"host unreachable\"",
        5 => "\"connection refused\"",
        6 => "\"TTL expired\"",
        7 => "\"command not supported\"",
        8 => "\"address type not supported\"",
        _ => "a reply that is not in RFC 1928",
    }
}

async fn exactly<const N: usize>(
    hop: &Hop,
    incoming: &mut BufferedStream,
) -> Result<[u8; N], Failure> {
    loop {
        if let Some((bytes, _)) = incoming.bytes().split_first_chunk::<N>() {
            let bytes = *bytes;
            incoming.consume(N);
            return Ok(bytes);
        }
        more(hop, incoming).await?;
    }
}

async fn more(hop: &Hop, incoming: &mut BufferedStream) -> Result<(), Failure> {
    // at most one head, so that few bytes of the tunnel itself are read with it
    match with_name(hop, incoming.fill(4096)).await? {
        0 => Err(failed(hop, FailureKind::Closed, "closed the connection")),
        _ => Ok(()),
    }
}

fn failed(hop: &Hop, kind: FailureKind, what: &str) -> Failure {
    Failure::new(kind, format!("upstream \"{}\" {what}", hop.name))
}

async fn with_name<T>(
    hop: &Hop,
    work: impl Future<Output = std::io::Result<T>>,
) -> Result<T, Failure> {
    work.await.map_err(|error| Failure::io(&format!("upstream \"{}\"", hop.name), &error))
}
