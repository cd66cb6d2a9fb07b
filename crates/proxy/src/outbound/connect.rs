//! Connections along a route: each chain of upstream proxies is tried, hop by hop, until one connects.

use crate::destination::Destination;
use crate::error::{Failure, FailureKind, LateFailure};
use crate::observe::named_leg::NamedLeg;
use crate::outbound::dial::{Dialed, dial};
use crate::outbound::tunnel::{FlowRequest, TunnelStream};
use crate::policy::access::Decider;
use crate::policy::route::{Chain, Route};
use crate::policy::upstream::Hop;
use crate::runtime::RuntimeConfig;
use crate::settings::{Credentials, TunnelAnswer, UpstreamProtocol};
use crate::transfer::buffered::{BufferedStream, write_all};
use crate::wire::http::fields::write_one;
use crate::wire::http::head::{HeadSearch, Limits};
use crate::wire::socks::{self, METHOD_NONE, METHOD_PASSWORD};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ekiden_linux::sockets::outcome::{Outcomes, Stage};
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use tokio::net::TcpStream;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose<'a> {
    /// An opaque byte stream: its far end must be the destination itself. `via` is the value of `Via`
    /// that an HTTP proxy gets, so that a ring of proxies notices itself; empty: this relay alone.
    Tunnel { via: &'a [u8] },
    /// HTTP requests: the far end may be an HTTP proxy, which takes them in absolute form.
    Forward,
}

#[derive(Debug)]
pub(crate) struct UpstreamConnection {
    pub(crate) stream: Arc<TcpStream>,
    /// The dialed address: the destination's, or the chain's first proxy's.
    pub(crate) peer: SocketAddr,
    pub(crate) leg: Arc<NamedLeg>,
    pub(crate) outcomes: Outcomes,
    pub(crate) through: Arc<[String]>,
    /// Bytes that the far end has sent already.
    pub(crate) early: Vec<u8>,
    /// The HTTP proxy at the far end, when requests go to it in absolute form.
    pub(crate) asks_proxy: Option<Arc<Hop>>,
    /// The peer whose tunnel the connection goes through.
    pub(crate) tunnel: Option<Arc<str>>,
    /// The peer's later report, where the connection goes through a tunnel.
    pub(crate) answer: Option<Arc<LateFailure>>,
}

impl UpstreamConnection {
    fn new(dialed: Dialed, leg: &Arc<NamedLeg>, through: Arc<[String]>) -> Self {
        let Dialed { stream, peer, outcomes } = dialed;
        let (leg, early) = (Arc::clone(leg), Vec::new());
        Self {
            stream,
            peer,
            leg,
            outcomes,
            through,
            early,
            asks_proxy: None,
            tunnel: None,
            answer: None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Requester<'a> {
    pub(crate) decider: Decider<'a>,
    pub(crate) request: FlowRequest<'a>,
}

/// Opens a connection along `route`. Fails with the last chain's failure, or at once with one that
/// other chains share, such as a denial.
pub(crate) async fn open(
    config: &RuntimeConfig,
    route: &Route,
    requester: Requester<'_>,
    purpose: Purpose<'_>,
) -> Result<UpstreamConnection, Failure> {
    let mut last = None;
    for chain in route.in_order(|peer| config.shared.tunnel_is_up(peer)) {
        match open_chain(config, route, chain, requester, purpose).await {
            Ok(opened) => return Ok(opened),
            Err(failure)
                if matches!(
                    failure.kind,
                    FailureKind::Denied
                        | FailureKind::Prohibited
                        | FailureKind::Loop
                        | FailureKind::Exhausted
                ) =>
            {
                return Err(failure);
            }
            Err(failure) => last = Some(failure),
        }
    }
    Err(last.unwrap_or_else(|| Failure::new(FailureKind::Unreachable, "the route has no chain")))
}

async fn open_chain(
    config: &RuntimeConfig,
    route: &Route,
    chain: &Chain,
    requester: Requester<'_>,
    purpose: Purpose<'_>,
) -> Result<UpstreamConnection, Failure> {
    let Requester { decider, request: FlowRequest { to, .. } } = requester;
    let Some((first, rest)) = chain.hops.split_first() else {
        decider.unresolved(to)?;
        let allowed = |address| decider.address(to, address);
        let dialed = dial(config, &to.host, to.port, &route.leg, allowed).await?;
        return Ok(UpstreamConnection::new(dialed, &route.leg, Arc::new([])));
    };
    // the far end resolves the name, so the rules judge the name
    decider.named(to)?;
    if first.upstream.protocol == UpstreamProtocol::Tunnel {
        return open_through_tunnel(config, chain, first, rest, requester, purpose).await;
    }
    // the operator chose the hops: no rule applies to them
    let at = first.destination()?;
    let dialed = dial(config, &at.host, at.port, &first.leg, |_| Ok(())).await;
    let dialed = dialed.map_err(|failure| {
        first.on_failure(&failure);
        // the client does not know that address
        Failure { text: format!("upstream \"{}\": {}", first.name, failure.text), ..failure }
    })?;
    finish(config, chain, first, rest, dialed, to, purpose).await
}

/// Asks each hop for the next one, beginning with `first`, to which `dialed` leads.
async fn finish(
    config: &RuntimeConfig,
    chain: &Chain,
    first: &Arc<Hop>,
    rest: &[Arc<Hop>],
    dialed: Dialed,
    to: &Destination,
    purpose: Purpose<'_>,
) -> Result<UpstreamConnection, Failure> {
    let mut incoming = BufferedStream::new(Arc::clone(&dialed.stream), Vec::new());
    let mut hop = first;
    for next in rest {
        let request = ask(config, hop, &mut incoming, &next.destination()?, purpose).await;
        request.inspect_err(|failure| {
            if failure.kind == FailureKind::UpstreamRefused {
                chain.on_failure(next, failure);
            }
        })?;
        hop = next;
    }
    let asks_proxy = (purpose == Purpose::Forward
        && hop.upstream.protocol == UpstreamProtocol::Http)
        .then(|| Arc::clone(hop));
    if asks_proxy.is_none() {
        ask(config, hop, &mut incoming, to, purpose).await?;
    } else {
        hop.on_success();
    }
    chain.on_success();
    let connection = UpstreamConnection::new(dialed, &first.leg, chain.names());
    Ok(UpstreamConnection { early: incoming.take(), asks_proxy, ..connection })
}

/// Opens a chain that begins with a tunnel: the peer connects to the next hop, or to the destination.
async fn open_through_tunnel(
    config: &RuntimeConfig,
    chain: &Chain,
    first: &Arc<Hop>,
    rest: &[Arc<Hop>],
    requester: Requester<'_>,
    purpose: Purpose<'_>,
) -> Result<UpstreamConnection, Failure> {
    let peer = &first.upstream.host;
    let tunnels = config.shared.tunnels_to(peer)?;
    let next = rest.first().map(|next| next.destination()).transpose()?;
    let request =
        FlowRequest { to: next.as_ref().unwrap_or(requester.request.to), ..requester.request };
    // A forwarded request is answered by the origin. A flow out of another tunnel is answered truly, because the relay
    // at its other end decides whether to wait for that.
    let at_once = match purpose {
        Purpose::Forward => true,
        Purpose::Tunnel { .. } => {
            config.settings.tunnel.answer == TunnelAnswer::AtOnce && request.hops == 0
        }
    };
    let wait = next.is_some() || !at_once;
    if purpose != Purpose::Forward
        && !wait
        && let Some(failure) = tunnels.unresolved(peer, request.to)
    {
        return Err(failure);
    }
    let patience = first.leg.leg.connect_timeout;
    let limit = config.settings.timeouts.handshake;
    let place = config.shared.resources.always_reserve();
    let opening = tunnels.open(peer, request, patience, wait, place);
    let opened = tokio::time::timeout((patience + limit).into(), opening).await;
    let opened = opened.unwrap_or_else(|_| {
        let text = format!("peer \"{peer}\" did not answer within {limit}");
        Err(Failure::new(FailureKind::TimedOut, text))
    });
    let TunnelStream { stream, answer } = opened?;
    let outcomes = first.leg.leg.socket.apply(stream.as_fd(), Stage::Accepted);
    // the near end of the flow is a loopback connection within this process
    let peer = stream.peer_addr().map_err(|error| {
        Failure::new(FailureKind::Closed, format!("the flow to peer \"{peer}\" broke: {error}"))
    })?;
    let dialed = Dialed { stream, peer, outcomes };
    let opened = match rest.split_first() {
        Some((second, rest)) => {
            finish(config, chain, second, rest, dialed, requester.request.to, purpose).await?
        }
        None => {
            if wait {
                chain.on_success();
            }
            UpstreamConnection::new(dialed, &first.leg, chain.names())
        }
    };
    let (leg, tunnel) = (Arc::clone(&first.leg), Some(first.upstream.host.as_str().into()));
    Ok(UpstreamConnection { leg, tunnel, answer: Some(answer), ..opened })
}

async fn ask(
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
            UpstreamProtocol::Http => ask_http(config, hop, incoming, to, (limits, purpose)).await,
            UpstreamProtocol::Socks5 => ask_socks5(hop, incoming, to).await,
            // the configuration check rejects this
            UpstreamProtocol::Tunnel => Err(Failure::new(
                FailureKind::Unreachable,
                format!("tunnel \"{}\" can only be the first of a chain", hop.name),
            )),
        }
    };
    let late =
        |_| Err(failed(hop, FailureKind::TimedOut, &format!("did not answer within {limit}")));
    let result = tokio::time::timeout(limit.into(), request).await.unwrap_or_else(late);
    match &result {
        Ok(()) => hop.on_success(),
        // it did answer
        Err(failure) if failure.kind == FailureKind::UpstreamRefused => hop.on_success(),
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
    match purpose {
        Purpose::Tunnel { via } if !via.is_empty() => write_one(&mut request, "Via", via),
        _ => write_one(&mut request, "Via", format!("1.1 {}", config.settings.name).as_bytes()),
    }
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
    hop: &Hop,
    incoming: &mut BufferedStream,
    to: &Destination,
) -> Result<(), Failure> {
    let wrong = |what: String| failed(hop, FailureKind::BadAnswer, &what);
    let not_admitted = |what: &str| failed(hop, FailureKind::NotAdmitted, what);
    let credentials = hop.upstream.credentials.as_ref();
    let greeting: &[u8] = match credentials {
        Some(_) => &[5, 2, METHOD_NONE, METHOD_PASSWORD],
        None => &[5, 1, METHOD_NONE],
    };
    with_name(hop, write_all(&incoming.stream, greeting)).await?;
    let [version, method] = exactly::<2>(hop, incoming).await?;
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
