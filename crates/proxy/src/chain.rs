//! Getting to a destination along a route: each chain of upstream proxies in turn until one answers,
//! hop by hop.

use crate::access::Decider;
use crate::destination::Destination;
use crate::dial::{Dialed, dial};
use crate::failure::{Failure, Kind};
use crate::http::head::{Limits, read_response};
use crate::incoming::{Incoming, write_all};
use crate::settings::{Credentials, UpstreamProtocol};
use crate::socks::{self, METHOD_NONE, METHOD_PASSWORD};
use crate::tunnels::{Asked, Dug, FarAnswer};
use crate::world::{Chain, Hop, NamedLeg, Route, World};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ekiden_linux::answer::{Outcomes, Stage};
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use tokio::net::TcpStream;

/// What the connection is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Bytes that are not looked at: the destination itself must be at the end.
    Tunnel,
    /// HTTP requests: an HTTP proxy may be at the end, which is then asked in absolute form.
    Forward,
}

/// A connection along a route.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) stream: Arc<TcpStream>,
    /// What was dialled: the destination, or the chain's first proxy.
    pub(crate) peer: SocketAddr,
    pub(crate) leg: Arc<NamedLeg>,
    pub(crate) outcomes: Outcomes,
    /// The chain's names.
    pub(crate) through: Arc<[String]>,
    /// What the far end has said already.
    pub(crate) early: Vec<u8>,
    /// The HTTP proxy at the end, when requests go to it in absolute form.
    pub(crate) asks_proxy: Option<Arc<Hop>>,
    /// What the relay at the other end of a tunnel says of it.
    pub(crate) answer: Option<Arc<FarAnswer>>,
}

/// Who goes where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traveller<'a> {
    pub(crate) decider: Decider<'a>,
    pub(crate) asked: Asked<'a>,
}

/// Opens a connection along `route`.
///
/// # Errors
/// The last chain's failure, or at once when the client may not go there.
pub(crate) async fn open(
    world: &World,
    route: &Route,
    traveller: Traveller<'_>,
    purpose: Purpose,
) -> Result<Opened, Failure> {
    let mut last = None;
    for chain in route.in_order() {
        match open_chain(world, route, chain, traveller, purpose).await {
            Ok(opened) => return Ok(opened),
            Err(failure) if matches!(failure.kind, Kind::Denied | Kind::Loop | Kind::Exhausted) => {
                return Err(failure);
            }
            Err(failure) => last = Some(failure),
        }
    }
    Err(last.unwrap_or_else(|| Failure::new(Kind::Unreachable, "the route names no way")))
}

async fn open_chain(
    world: &World,
    route: &Route,
    chain: &Chain,
    traveller: Traveller<'_>,
    purpose: Purpose,
) -> Result<Opened, Failure> {
    let Traveller { decider, asked: Asked { to, .. } } = traveller;
    let Some((first, rest)) = chain.hops.split_first() else {
        decider.unresolved(to)?;
        let allowed = |address| decider.address(to, address);
        let Dialed { stream, peer, outcomes } =
            dial(world, &to.host, to.port, &route.leg, allowed).await?;
        return Ok(Opened {
            stream,
            peer,
            leg: Arc::clone(&route.leg),
            outcomes,
            through: Arc::new([]),
            early: Vec::new(),
            asks_proxy: None,
            answer: None,
        });
    };
    // the name is resolved at the far end, so it is judged as it is named
    decider.named(to)?;
    if first.upstream.protocol == UpstreamProtocol::Tunnel {
        return open_through_tunnel(world, chain, first, rest, traveller, purpose).await;
    }
    // hops are the operator's choice: no rule applies to them
    let at = first.destination()?;
    let dialed = dial(world, &at.host, at.port, &first.leg, |_| Ok(())).await;
    let dialed = dialed.map_err(|failure| {
        first.on_failure(&failure);
        // the client has never heard of that address
        Failure { text: format!("upstream «{}»: {}", first.name, failure.text), ..failure }
    })?;
    finish(world, chain, first, rest, dialed, to, purpose).await
}

/// Asks each hop for the next, from `first`, to which `dialed` leads.
async fn finish(
    world: &World,
    chain: &Chain,
    first: &Arc<Hop>,
    rest: &[Arc<Hop>],
    dialed: Dialed,
    to: &Destination,
    purpose: Purpose,
) -> Result<Opened, Failure> {
    let Dialed { stream, peer, outcomes } = dialed;
    let mut incoming = Incoming::new(Arc::clone(&stream), Vec::new());
    let mut hop = first;
    for next in rest {
        let asked = ask(world, hop, &mut incoming, &next.destination()?).await;
        asked.inspect_err(|failure| {
            if failure.kind == Kind::UpstreamRefused {
                chain.on_failure(next, failure);
            }
        })?;
        hop = next;
    }
    let asks_proxy = (purpose == Purpose::Forward
        && hop.upstream.protocol == UpstreamProtocol::Http)
        .then(|| Arc::clone(hop));
    if asks_proxy.is_none() {
        ask(world, hop, &mut incoming, to).await?;
    } else {
        hop.on_success();
    }
    chain.on_success();
    Ok(Opened {
        stream,
        peer,
        leg: Arc::clone(&first.leg),
        outcomes,
        through: chain.names(),
        early: incoming.take(),
        asks_proxy,
        answer: None,
    })
}

/// A chain whose nearest hop is a tunnel: the other relay connects to the next hop, or to the destination.
async fn open_through_tunnel(
    world: &World,
    chain: &Chain,
    first: &Arc<Hop>,
    rest: &[Arc<Hop>],
    traveller: Traveller<'_>,
    purpose: Purpose,
) -> Result<Opened, Failure> {
    let relay = &first.upstream.host;
    let tunnels = world.means.tunnels().ok_or_else(|| {
        Failure::new(Kind::Unreachable, format!("the tunnel to relay «{relay}» has not begun"))
    })?;
    let next = rest.first().map(|next| next.destination()).transpose()?;
    let asked = Asked { to: next.as_ref().unwrap_or(traveller.asked.to), ..traveller.asked };
    // a request may follow at once: what becomes of it also says what became of the connection
    let wait = purpose == Purpose::Tunnel || next.is_some();
    let patience = first.leg.leg.connect_timeout;
    let limit = world.settings.timeouts.handshake;
    let place = world.means.resources.taken();
    let opening = tunnels.open(relay, asked, patience, wait, place);
    let opened = tokio::time::timeout((patience + limit).into(), opening).await;
    let opened = opened.unwrap_or_else(|_| {
        let text = format!("relay «{relay}» did not answer within {limit}");
        Err(Failure::new(Kind::TimedOut, text))
    });
    let Dug { stream, answer } = opened.inspect_err(|failure| match failure.kind {
        // the tunnel itself
        Kind::Unreachable => first.on_failure(failure),
        _ => first.on_success(),
    })?;
    let outcomes = first.leg.leg.socket.apply(stream.as_fd(), Stage::Accepted);
    // the near end of the flow: a socket pair within this process
    let peer = stream.peer_addr().map_err(|error| {
        Failure::new(Kind::Closed, format!("the flow to relay «{relay}» broke: {error}"))
    })?;
    let dialed = Dialed { stream, peer, outcomes };
    let opened = match rest.split_first() {
        Some((second, rest)) => {
            finish(world, chain, second, rest, dialed, traveller.asked.to, purpose).await?
        }
        None => {
            if wait {
                first.on_success();
                chain.on_success();
            }
            let Dialed { stream, peer, outcomes } = dialed;
            Opened {
                stream,
                peer,
                leg: Arc::clone(&first.leg),
                outcomes,
                through: chain.names(),
                early: Vec::new(),
                asks_proxy: None,
                answer: None,
            }
        }
    };
    Ok(Opened { leg: Arc::clone(&first.leg), answer: Some(answer), ..opened })
}

/// Asks `hop`, at the end of what is connected so far, for a tunnel to `to`.
async fn ask(
    world: &World,
    hop: &Hop,
    incoming: &mut Incoming,
    to: &Destination,
) -> Result<(), Failure> {
    let limit = world.settings.timeouts.handshake;
    let limits = Limits {
        bytes: world.settings.budgets.head.as_usize(),
        fields: world.settings.budgets.fields.into(),
    };
    let asked = async {
        match hop.upstream.protocol {
            UpstreamProtocol::Http => ask_http(world, hop, incoming, to, limits).await,
            UpstreamProtocol::Socks5 => ask_socks5(hop, incoming, to).await,
            // the configuration is refused before it comes to this
            UpstreamProtocol::Tunnel => Err(Failure::new(
                Kind::Unreachable,
                format!("tunnel «{}» can only be the first of a chain", hop.name),
            )),
        }
    };
    let result = tokio::time::timeout(limit.into(), asked).await.unwrap_or_else(|_| {
        let text = format!("upstream «{}» did not answer within {limit}", hop.name);
        Err(Failure::new(Kind::TimedOut, text))
    });
    match &result {
        Ok(()) => hop.on_success(),
        // it did answer
        Err(failure) if failure.kind == Kind::UpstreamRefused => hop.on_success(),
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
    world: &World,
    hop: &Hop,
    incoming: &mut Incoming,
    to: &Destination,
    limits: Limits,
) -> Result<(), Failure> {
    let mut request =
        format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\nVia: 1.1 {}\r\n", world.settings.name);
    if let Some(credentials) = &hop.upstream.credentials {
        request.push_str(&format!("Proxy-Authorization: {}\r\n", basic(credentials)));
    }
    request.push_str("\r\n");
    told(hop, write_all(&incoming.stream, request.as_bytes())).await?;
    loop {
        match read_response(incoming.bytes(), limits) {
            // another protocol's greeting may never have an empty line to end at
            Ok(None) if !incoming.bytes().iter().zip(b"HTTP/1.").all(|(got, want)| got == want) => {
                let text = format!("upstream «{}» does not speak HTTP", hop.name);
                return Err(Failure::new(Kind::BadAnswer, text));
            }
            Ok(None) => more(hop, incoming).await?,
            Ok(Some((response, used))) if (200..300).contains(&response.status) => {
                incoming.consume(used);
                return Ok(());
            }
            // 101 to a CONNECT would mean nothing
            Ok(Some((response, used)))
                if (100..200).contains(&response.status) && response.status != 101 =>
            {
                incoming.consume(used);
            }
            Ok(Some((response, _))) => {
                // without its reason phrase, which may echo what it was sent
                let (kind, hint) = match response.status {
                    407 => (Kind::NotAdmitted, "; check its user and password"),
                    403 => (Kind::UpstreamRefused, "; its rules do not allow it"),
                    _ => (Kind::UpstreamRefused, ""),
                };
                let text =
                    format!("upstream «{}» answered {} for {to}{hint}", hop.name, response.status);
                return Err(Failure::new(kind, text));
            }
            Err(bad) => {
                let text = format!("upstream «{}» does not speak HTTP: {bad}", hop.name);
                return Err(Failure::new(Kind::BadAnswer, text));
            }
        }
    }
}

async fn ask_socks5(hop: &Hop, incoming: &mut Incoming, to: &Destination) -> Result<(), Failure> {
    let wrong =
        |what: String| Failure::new(Kind::BadAnswer, format!("upstream «{}» {what}", hop.name));
    let refused =
        |what: &str| Failure::new(Kind::UpstreamRefused, format!("upstream «{}» {what}", hop.name));
    let not_admitted =
        |what: &str| Failure::new(Kind::NotAdmitted, format!("upstream «{}» {what}", hop.name));
    let credentials = hop.upstream.credentials.as_ref();
    let greeting: &[u8] = match credentials {
        Some(_) => &[5, 2, METHOD_NONE, METHOD_PASSWORD],
        None => &[5, 1, METHOD_NONE],
    };
    told(hop, write_all(&incoming.stream, greeting)).await?;
    let [version, method] = exactly::<2>(hop, incoming).await?;
    match (version, method, credentials) {
        (5, METHOD_NONE, _) => {}
        (5, METHOD_PASSWORD, Some(credentials)) => {
            let password = socks::write_password(&credentials.user, &credentials.password);
            told(hop, write_all(&incoming.stream, &password)).await?;
            if exactly::<2>(hop, incoming).await?[1] != 0 {
                return Err(not_admitted("does not accept its user and password"));
            }
        }
        (5, _, None) => {
            return Err(not_admitted("wants a user and password, and none are configured"));
        }
        (5, _, Some(_)) => {
            return Err(not_admitted("accepts neither «no authentication» nor a password"));
        }
        _ => return Err(wrong(format!("does not speak SOCKS5 (it answered version {version})"))),
    }
    told(hop, write_all(&incoming.stream, &socks::write_request(to))).await?;
    let [version, reply, _] = exactly::<3>(hop, incoming).await?;
    if version != 5 {
        return Err(wrong(format!("does not speak SOCKS5 (it answered version {version})")));
    }
    if reply != 0 {
        return Err(refused(&format!("answered {} for {to}", reply_text(reply))));
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
        1 => "«general failure»",
        2 => "«not allowed by its rules»",
        3 => "«network unreachable»",
        4 => "«host unreachable»",
        5 => "«connection refused»",
        6 => "«TTL expired»",
        7 => "«command not supported»",
        8 => "«address type not supported»",
        _ => "a reply that is not in RFC 1928",
    }
}

async fn exactly<const N: usize>(hop: &Hop, incoming: &mut Incoming) -> Result<[u8; N], Failure> {
    loop {
        if let Some((bytes, _)) = incoming.bytes().split_first_chunk::<N>() {
            let bytes = *bytes;
            incoming.consume(N);
            return Ok(bytes);
        }
        more(hop, incoming).await?;
    }
}

async fn more(hop: &Hop, incoming: &mut Incoming) -> Result<(), Failure> {
    // no more than a head's worth, so that little of the tunnel's own bytes is read along
    match told(hop, incoming.fill(4096)).await? {
        0 => Err(Failure::new(
            Kind::Closed,
            format!("upstream «{}» closed the connection", hop.name),
        )),
        _ => Ok(()),
    }
}

async fn told<T>(hop: &Hop, work: impl Future<Output = std::io::Result<T>>) -> Result<T, Failure> {
    work.await.map_err(|error| Failure::io(&format!("upstream «{}»", hop.name), &error))
}
