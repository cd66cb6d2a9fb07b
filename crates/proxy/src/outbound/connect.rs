//! Connections along a route: each chain of upstream proxies is tried, hop by hop, until one connects.

use crate::error::{Failure, FailureKind, LateFailure};
use crate::observe::leg_stats::TunnelLeg;
use crate::observe::named_leg::NamedLeg;
use crate::observe::traces::Trace;
pub(crate) use crate::outbound::ask::Purpose;
use crate::outbound::ask::ask;
use crate::outbound::dial::{DialFrom, Dialed, dial};
use crate::outbound::tls::{SecuredBy, secure};
use crate::outbound::tunnel::{FlowRequest, TunnelStream};
use crate::policy::access::Decider;
use crate::policy::route::{Chain, Route};
use crate::policy::upstream::Hop;
use crate::resources::AdmissionPermit;
use crate::runtime::RuntimeConfig;
use crate::settings::{Leg, TunnelAnswer, UpstreamProtocol};
use crate::transfer::buffered::BufferedStream;
use crate::transfer::end::End;
use ekiden_linux::sockets::outcome::Outcomes;
use ekiden_model::dns::Asker;
use ekiden_model::units::Span;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct UpstreamConnection {
    pub(crate) stream: End,
    /// The dialed address: the destination's, or the chain's first proxy's.
    pub(crate) peer: SocketAddr,
    pub(crate) leg: Arc<NamedLeg>,
    pub(crate) outcomes: Option<Outcomes>,
    pub(crate) through: Arc<[String]>,
    /// Bytes that the far end has sent already.
    pub(crate) early: Vec<u8>,
    /// The HTTP proxy at the far end, when requests go to it in absolute form.
    pub(crate) asks_proxy: Option<Arc<Hop>>,
    /// The tunnel that the connection goes through.
    pub(crate) tunnel: Option<TunnelLeg>,
    /// The peer's later report, where the connection goes through a tunnel.
    pub(crate) answer: Option<Arc<LateFailure>>,
    /// The first TLS connection of the chain, around `stream`.
    pub(crate) tls: Option<SecuredBy>,
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
            tls: None,
        }
    }
}

/// Two SYNs had no answer (RFC 6298 §2 and 5.5: the third follows after three seconds).
const SILENT: Span = Span::from_secs(3);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Requester<'a> {
    pub(crate) decider: Decider<'a>,
    pub(crate) request: FlowRequest<'a>,
    /// The address that direct connections come from, in place of this machine's.
    pub(crate) source: Option<IpAddr>,
    /// What it is opened for, where that is traced.
    pub(crate) trace: Option<&'a Trace>,
    /// In whose share the destination's name is asked.
    pub(crate) asker: &'a Asker,
    /// Of the client, whose source has the memory of TLS on the way in its share.
    pub(crate) permit: &'a AdmissionPermit,
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
    let Requester {
        decider, request: FlowRequest { to, client, .. }, source, trace, asker, ..
    } = requester;
    let Some((first, rest)) = chain.hops.split_first() else {
        decider.unresolved(to)?;
        let allowed = |address| decider.address(to, address);
        let from = DialFrom { leg: &route.leg, foreign: source, trace, asker };
        let dialed = dial(config, &to.host, to.port, from, allowed).await?;
        return Ok(UpstreamConnection::new(dialed, &route.leg, Arc::new([])));
    };
    // the far end resolves the name, so the rules judge the name
    decider.named(to)?;
    if first.upstream.protocol == UpstreamProtocol::Tunnel {
        return open_through_tunnel(config, chain, first, rest, requester, purpose).await;
    }
    // the operator chose the hops: no rule applies to them
    let at = first.destination()?;
    let from = DialFrom { trace, ..DialFrom::leg(&first.leg) };
    let waiting = first.wait(SILENT);
    let dialed = dial(config, &at.host, at.port, from, |_| Ok(())).await;
    waiting.end();
    let dialed = dialed.map_err(|failure| {
        first.on_failure(&failure);
        // the client does not know that address
        Failure { text: format!("upstream \"{}\": {}", first.name, failure.text), ..failure }
    })?;
    let comes_back = first.upstream.protocol == UpstreamProtocol::Socks5
        && dialed.peer.ip().to_canonical() == client.to_canonical();
    let _until_answered = comes_back.then(|| first.on_returned(to)).transpose()?;
    finish(config, chain, first, rest, dialed, requester, purpose).await
}

/// Asks each hop for the next one, beginning with `first`, to which `dialed` leads.
async fn finish(
    config: &RuntimeConfig,
    chain: &Chain,
    first: &Arc<Hop>,
    rest: &[Arc<Hop>],
    dialed: Dialed,
    requester: Requester<'_>,
    purpose: Purpose<'_>,
) -> Result<UpstreamConnection, Failure> {
    let Requester { request: FlowRequest { to, .. }, permit, .. } = requester;
    let mut incoming = BufferedStream::new(dialed.stream.clone(), Vec::new());
    // the near end of a tunnel's flow is no connection over the network
    let is_tunnel = |hop: &Arc<Hop>| hop.upstream.protocol == UpstreamProtocol::Tunnel;
    let network = match chain.hops.first().is_some_and(is_tunnel) {
        true => None,
        false => Some((&first.leg.leg, dialed.peer)),
    };
    let mut tls = None;
    let mut hop = first;
    for next in rest {
        incoming = begin(config, hop, permit, incoming, network, &mut tls).await?;
        let request = ask(config, hop, &mut incoming, &next.destination()?, purpose).await;
        request.inspect_err(|failure| {
            if failure.kind == FailureKind::UpstreamRefused {
                chain.on_failure(next, failure);
            }
        })?;
        hop = next;
    }
    incoming = begin(config, hop, permit, incoming, network, &mut tls).await?;
    // its health follows its answers to the requests themselves
    let asks_proxy =
        (purpose == Purpose::Forward && hop.upstream.protocol.is_http()).then(|| Arc::clone(hop));
    if asks_proxy.is_none() {
        ask(config, hop, &mut incoming, to, purpose).await?;
    }
    chain.on_success();
    let connection = UpstreamConnection::new(dialed, &first.leg, chain.names());
    let (stream, early) = (incoming.stream.clone(), incoming.take());
    Ok(UpstreamConnection { stream, early, asks_proxy, tls, ..connection })
}

/// Begins what `hop` speaks on the connection to it: TLS, or nothing. The first TLS goes to `tls`.
async fn begin(
    config: &RuntimeConfig,
    hop: &Hop,
    permit: &AdmissionPermit,
    incoming: BufferedStream,
    network: Option<(&Leg, SocketAddr)>,
    tls: &mut Option<SecuredBy>,
) -> Result<BufferedStream, Failure> {
    let Some(client) = &hop.tls else { return Ok(incoming) };
    let network = network.filter(|_| tls.is_none());
    let waiting = hop.wait(SILENT);
    // boxed, because it is large and most upstreams have none
    let secured = Box::pin(secure(config, (hop, client), permit, incoming, network)).await;
    waiting.end();
    let (incoming, by) = secured.inspect_err(|failure| hop.on_failure(failure))?;
    tls.get_or_insert(by);
    Ok(incoming)
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
    // what the next hop is asked travels with the opening; its answer says whether both worked
    let wait = !at_once || tunnels.is_unresolved(peer, request.to);
    let patience = first.leg.leg.connect_timeout;
    let limit = config.settings.timeouts.handshake;
    let opened = tunnels.open(peer, request, patience, wait.then_some(limit)).await;
    let TunnelStream { stream, answer, leg: tunnel } = opened?;
    // the near end of the flow is within this process
    let peer = (Ipv4Addr::LOCALHOST, 0).into();
    let dialed = Dialed { stream, peer, outcomes: None };
    let opened = match rest.split_first() {
        Some((second, rest)) => {
            let asked = finish(config, chain, second, rest, dialed, requester, purpose).await;
            // the peer's report says more than a broken connection does
            asked.map_err(|failure| answer.failure().unwrap_or(failure))?
        }
        None => {
            if wait {
                chain.on_success();
            }
            UpstreamConnection::new(dialed, &first.leg, chain.names())
        }
    };
    let (leg, tunnel) = (Arc::clone(&first.leg), Some(tunnel));
    Ok(UpstreamConnection { leg, tunnel, answer: Some(answer), ..opened })
}
