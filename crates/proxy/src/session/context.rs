//! What the protocol handlers ask of a session: decisions, ways to destinations, answers to the client.

use super::{LogEntry, OpenEntry, OpenTunnel, Session};
use crate::destination::{Destination, Host};
use crate::error::Failure;
use crate::observe::access_log::CutBy;
use crate::observe::leg_stats::LegStats;
use crate::observe::named_leg::{NamedLeg, limits};
use crate::observe::registry::ConnectionState;
use crate::outbound::connect::{Purpose, Requester, UpstreamConnection, open};
use crate::outbound::tls::SecuredBy;
use crate::outbound::tunnel::{FlowOwner, FlowRequest, asker_behind};
use crate::policy::access::Decider;
use crate::policy::accounts::KnownAccount;
use crate::policy::route::Route;
use crate::resources::arrival::Directed;
use crate::resources::{IdleOrigin, ManagedLeg, PoolKey, Resources};
use crate::transfer::budget::{EarlyBytes, TransferShare};
use crate::transfer::buffered::{close_gently, write_all};
use ekiden_linux::sockets::apply::Inherited;
use ekiden_linux::sockets::outcome::Outcomes;
use ekiden_linux::sockets::socket;
use ekiden_model::dns::Asker;
use ekiden_model::resources::overload::Source;
use ekiden_model::resources::quota::Direction;
use ekiden_model::units::Span;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) struct OpenedRoute {
    pub(crate) connection: UpstreamConnection,
    pub(crate) stats: LegStats,
    pub(crate) managed: ManagedLeg,
    pub(crate) route: Arc<Route>,
}

impl Session {
    /// The access decisions for this client as one of an account, or of none.
    pub(crate) fn decider<'a>(&'a self, account: Option<&'a KnownAccount>) -> Decider<'a> {
        let settings = &self.config.settings;
        let decider = match &self.arrival {
            // its connection comes from loopback, but the client behind it does not
            Some(arrival) => settings.decider_for_peer(arrival.peer()),
            None => settings.decider(self.address.ip()),
        };
        let decider = match &self.directed {
            Some(Directed::Forward(forward)) => decider.of_forward(&forward.to),
            _ => decider,
        };
        decider.of(account)
    }

    /// Whether the rules let this client reach `to` at `address`, or wherever a proxy finds it.
    pub(crate) fn may_reach(&self, to: &Destination, address: Option<IpAddr>) -> bool {
        let account = self.registration.entry.account();
        let decider = self.decider(account.as_deref());
        match address {
            None => decider.named(to).is_ok(),
            Some(address) => decider.unresolved(to).is_ok() && decider.address(to, address).is_ok(),
        }
    }

    /// With whom its connections count as one.
    pub(crate) fn source(&self) -> Source {
        let peer = self.arrival.as_ref().map(|arrival| arrival.joined().source());
        peer.unwrap_or_else(|| self.address.ip().into())
    }

    /// Memory for bytes in transit, of which its address or peer has a share.
    pub(crate) fn transfer(&self) -> TransferShare {
        let of_free = self.source().of_free();
        TransferShare::new(&self.config.shared.transfer, self.permit.in_transit(), of_free)
    }

    /// As whom names are asked for this client.
    fn asker(&self, account: Option<&KnownAccount>) -> Asker {
        let account = account.map(|account| Asker::Account(account.id));
        match &self.arrival {
            Some(arrival) => {
                let whole = account.unwrap_or_else(|| Asker::Peer(arrival.peer().into()));
                asker_behind(whole, arrival.account())
            }
            None => account.unwrap_or_else(|| Asker::at(self.address.ip())),
        }
    }

    fn requester<'a>(
        &'a self,
        to: &'a Destination,
        account: Option<&'a KnownAccount>,
        asker: &'a Asker,
    ) -> Requester<'a> {
        let client = self.address.ip();
        // only tunnels use the DSCP
        let dscp = match self.config.shared.tunnels() {
            Some(_) => self.client.socket().and_then(|at| socket::received_dscp(at.as_fd())),
            _ => None,
        };
        let decider = self.decider(account);
        let owner = match &self.arrival {
            Some(arrival) => FlowOwner::behind(account, arrival.peer(), arrival.account()),
            None => FlowOwner::of(account, client),
        };
        let request = FlowRequest { to, client, owner, hops: self.hops, dscp };
        Requester { decider, request, source: None, trace: None, asker, permit: &self.permit }
    }

    /// Opens the way to `to`, and applies the route's profile to the client's leg.
    pub(crate) async fn open(
        &self,
        to: &Destination,
        purpose: Purpose<'_>,
    ) -> Result<OpenedRoute, Failure> {
        let route = Arc::clone(self.config.route(to));
        self.open_by(route, to, None, purpose).await
    }

    /// Opens the way to an address whose client says that it has this name. The name may choose the route
    /// and may be refused; it opens nothing, because a client may say any. `source`: the address that a
    /// direct connection comes from, in place of this machine's.
    pub(crate) async fn open_diverted(
        &self,
        to: &Destination,
        claimed: Option<&Destination>,
        source: Option<IpAddr>,
    ) -> Result<OpenedRoute, Failure> {
        if let (Some(claimed), Host::Address(address)) = (claimed, &to.host) {
            let account = self.registration.entry.account();
            self.decider(account.as_deref()).claimed(claimed, *address)?;
        }
        let route = Arc::clone(self.config.route_of(claimed, to));
        self.open_by(route, to, source, Purpose::Tunnel { via: b"" }).await
    }

    async fn open_by(
        &self,
        route: Arc<Route>,
        to: &Destination,
        source: Option<IpAddr>,
        purpose: Purpose<'_>,
    ) -> Result<OpenedRoute, Failure> {
        let account = self.registration.entry.account();
        let trace = self.registration.trace();
        let trace = trace.as_deref();
        let asker = self.asker(account.as_deref());
        let requester = self.requester(to, account.as_deref(), &asker);
        let requester = Requester { source, trace, ..requester };
        trace.inspect(|trace| trace.on_opening());
        let connection = tokio::select! {
            opened = open(&self.config, &route, requester, purpose) => opened?,
            // what goes on for nobody would take places and descriptors
            () = self.client.broken() => return Err(Failure::client_gone(&self.client.error())),
        };
        // the near end of a tunnel's flow is no connection over the network
        let peer = connection.tunnel.is_none().then_some(connection.peer);
        trace.inspect(|trace| trace.on_opened(peer));
        let UpstreamConnection { stream, peer, leg, outcomes, through, tunnel, tls, .. } =
            &connection;
        let mut stats =
            LegStats::new(stream.downgrade(), peer.ip(), Arc::clone(leg), outcomes.clone());
        if let Some(SecuredBy { socket, words }) = tls {
            stats = stats.within_tls(socket, stream.tls_leg()).with_tls(words);
        }
        if let Some(tunnel) = tunnel {
            stats = stats.through_tunnel(tunnel);
        }
        let managed = self.resources().manage(stream, &leg.leg, Some(*peer));
        self.apply_route(&route, through, &stats, &managed);
        tracing::debug!(
            connection = self.registration.entry.id,
            client = %self.address,
            destination = %to,
            ?through,
            leg = %leg.name,
            "connected"
        );
        Ok(OpenedRoute { connection, stats, managed, route })
    }

    pub(crate) fn apply_route(
        &self,
        route: &Route,
        through: &Arc<[String]>,
        stats: &LegStats,
        managed: &ManagedLeg,
    ) {
        self.registration.set_upstream_leg(Arc::clone(through), Some(stats.clone()));
        self.registration.set_route(&route.why);
        self.registration.entry.legs[1].store(managed.id, Relaxed);
        // a kept-alive connection may have had another route before
        if !self.registration.has_client_leg(&route.client_leg) {
            let leg = Arc::clone(&route.client_leg);
            let outcomes = self.client.apply(&leg.leg.socket, Inherited::default());
            self.managed.set_profile(&self.client, &leg.leg);
            self.registration.set_client_leg(self.client_stats(leg, outcomes));
        }
        self.resources().pair(&self.registration.entry);
    }

    pub(super) fn client_stats(&self, leg: Arc<NamedLeg>, outcomes: Option<Outcomes>) -> LegStats {
        // the path of a loopback connection says nothing of the client's
        let at = match self.tls {
            Some(_) => Ipv4Addr::LOCALHOST.into(),
            None => self.address.ip(),
        };
        let stats = LegStats::new(self.client.downgrade(), at, leg, outcomes);
        match (&self.tls, &self.arrival) {
            (Some(outer), _) => stats.within_tls(outer, self.client.tls_leg()),
            (None, Some(arrival)) => stats.through_tunnel(arrival.leg()),
            (None, None) => stats,
        }
    }

    pub(crate) fn resources(&self) -> &Arc<Resources> {
        &self.config.shared.resources
    }

    pub(crate) fn tunnel_over(
        &self,
        opened: OpenedRoute,
        early_up: impl Into<EarlyBytes>,
        mut entry: OpenEntry<'_>,
    ) -> OpenTunnel {
        let OpenedRoute { connection, managed, route, .. } = opened;
        entry.through = connection.through;
        OpenTunnel {
            upstream: connection.stream,
            managed,
            early_up: early_up.into(),
            early_down: connection.early.into(),
            limits: limits(&route.client_leg.leg, &connection.leg.leg),
            entry: entry.hand_over(),
            answer: connection.answer,
        }
    }

    /// Runs `work` unless the relay is stopping, and then returns `None` at once.
    pub(crate) async fn unless_stopping<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            biased;
            result = work => Some(result),
            _ = stopping.wait_for(|stopping| *stopping) => None,
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.stopping.borrow()
    }

    /// Sends the relay's own answer. A client that does not read it times out as an idle client does.
    pub(crate) async fn answer(&self, bytes: &[u8]) -> io::Result<()> {
        within(self.config.client_leg.leg.idle_timeout, write_all(&self.client, bytes)).await
    }

    /// Answers that a tunnel is open, by `status` in the log. Its bytes count. Where the client has left, or its account
    /// has nothing left, the way is closed again, and the log says why.
    pub(crate) async fn answer_opened(
        &self,
        bytes: &[u8],
        (entry, status): (&mut LogEntry, u16),
    ) -> bool {
        let broke =
            |error: io::Error| (CutBy::Client, format!("the client's connection broke: {error}"));
        let answering = async {
            let passed = self.pass(Direction::Down, bytes.len()).await;
            passed.map_err(|over| (CutBy::Relay, over.to_string()))?;
            self.answer(bytes).await.map_err(broke)
        };
        let answered = tokio::select! {
            biased;
            answered = answering => answered,
            // its account may wait for long, and nobody wants the way any more
            () = self.client.broken() => Err(broke(self.client.error())),
        };
        let Err((by, why)) = answered else {
            entry.status = Some(status);
            return true;
        };
        if self.is_cut_off() {
            return false;
        }
        entry.cut_by = Some(by);
        self.trace_error("broken");
        self.log(entry, &why);
        false
    }

    /// Sends the relay's last answer and closes.
    pub(crate) async fn send_and_close(&self, bytes: &[u8]) {
        if self.answer(bytes).await.is_ok() {
            self.close_gently().await;
        }
    }

    /// After the last answer. What the client still sends is discarded, and counts.
    pub(crate) async fn close_gently(&self) {
        close_gently(&self.client, self.share().as_deref()).await;
    }

    /// Counts bytes that have moved: of no use, or around what was waited for.
    pub(crate) fn count_moved(&self, direction: Direction, bytes: usize) {
        if let Some(share) = self.share().filter(|_| bytes > 0) {
            share.charge_later(direction, bytes);
        }
    }

    /// Leaves the connection to a server. One that is kept may be another client's at once, which the end of this one
    /// must not break.
    pub(crate) fn leave_origin(&self, kept: Option<(IdleOrigin, PoolKey)>) {
        self.registration.set_upstream_leg(Arc::new([]), None);
        self.registration.entry.legs[1].store(0, Relaxed);
        if let Some((origin, key)) = kept {
            self.resources().put_idle(origin, key);
        }
    }

    /// Marks the connection as waiting for its next request.
    pub(crate) fn set_idle(&self) {
        self.registration.set_state(ConnectionState::Idle);
        self.leave_origin(None);
    }
}

/// Runs `work` for at most `limit`, then fails with `TimedOut`.
pub(crate) async fn within<T>(
    limit: Span,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut));
    tokio::time::timeout(limit.into(), work).await.unwrap_or_else(late)
}
