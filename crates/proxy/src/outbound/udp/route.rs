//! The route of a datagram: from this machine, or through a peer's tunnel.

use super::direct::DirectSockets;
use crate::destination::Destination;
use crate::error::{Failure, FailureKind};
use crate::outbound::tunnel::{FlowOwner, asker_behind};
use crate::outbound::udp::tunnel::TunnelFlows;
use crate::policy::access::Decider;
use crate::policy::accounts::KnownAccount;
use crate::policy::route::Route;
use crate::policy::upstream::Hop;
use crate::runtime::RuntimeConfig;
use crate::transfer::budget::TransferShare;
use bytes::Bytes;
use ekiden_model::dns::Asker;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub(crate) enum DatagramOwner {
    Client(IpAddr, Option<Arc<KnownAccount>>),
    /// A client of a forwarded port, and where that leads, which it did not choose.
    Forwarded(IpAddr, Option<Arc<KnownAccount>>, Destination),
    /// By its name; with its text for the account.
    Peer(String, Bytes, Option<Arc<KnownAccount>>),
}

impl DatagramOwner {
    pub(crate) const fn account(&self) -> Option<&Arc<KnownAccount>> {
        match self {
            Self::Client(_, account)
            | Self::Forwarded(_, account, _)
            | Self::Peer(_, _, account) => account.as_ref(),
        }
    }

    /// As whom names are asked.
    pub(crate) fn asker(&self) -> Asker {
        match self {
            Self::Client(_, Some(account)) | Self::Forwarded(_, Some(account), _) => {
                Asker::Account(account.id)
            }
            Self::Client(address, None) | Self::Forwarded(address, None, _) => Asker::at(*address),
            Self::Peer(_, number, Some(account)) => {
                asker_behind(Asker::Account(account.id), number)
            }
            Self::Peer(name, number, None) => {
                asker_behind(Asker::Peer(name.as_str().into()), number)
            }
        }
    }

    /// As whose its flows go through tunnels.
    pub(super) fn of_flows(&self) -> FlowOwner<'_> {
        match self {
            Self::Client(address, account) | Self::Forwarded(address, account, _) => {
                FlowOwner::of(account.as_deref(), *address)
            }
            Self::Peer(name, number, account) => {
                FlowOwner::behind(account.as_deref(), name, number)
            }
        }
    }

    pub(crate) fn decider<'a>(&'a self, config: &'a RuntimeConfig) -> Decider<'a> {
        match self {
            Self::Client(address, account) => {
                config.settings.decider(*address).of(account.as_deref())
            }
            Self::Forwarded(address, account, to) => {
                config.settings.decider(*address).of(account.as_deref()).of_forward(to)
            }
            Self::Peer(name, _, account) => {
                config.settings.decider_for_peer(name).of(account.as_deref())
            }
        }
    }
}

#[derive(Debug)]
pub(crate) enum DatagramError {
    Refused(Failure),
    Undelivered(Failure),
}

impl DatagramError {
    pub(super) fn refused(kind: FailureKind, text: impl Into<String>) -> Self {
        Self::Refused(Failure::new(kind, text))
    }

    pub(super) fn undelivered(kind: FailureKind, text: impl Into<String>) -> Self {
        Self::Undelivered(Failure::new(kind, text))
    }
}

impl From<Failure> for DatagramError {
    fn from(failure: Failure) -> Self {
        match failure.kind {
            FailureKind::Denied
            | FailureKind::Prohibited
            | FailureKind::UpstreamRefused
            | FailureKind::Loop => Self::Refused(failure),
            _ => Self::Undelivered(failure),
        }
    }
}

#[derive(Debug)]
pub(crate) enum Received {
    Came(SocketAddr, Vec<u8>),
    /// A datagram of this size, which waited for name resolution, was sent.
    Sent(usize),
}

/// All paths of one association, or of one packet flow from a tunnel.
#[derive(Debug)]
pub(crate) struct DatagramPaths {
    config: Arc<RuntimeConfig>,
    direct: DirectSockets,
    through: TunnelFlows,
    /// The path of all, where it does not change any more.
    settled: Option<SettledPath>,
}

#[derive(Debug)]
struct SettledPath {
    route: Arc<Route>,
    /// Directly where there is none.
    hop: Option<Arc<Hop>>,
}

impl DatagramPaths {
    /// `memory`: for datagrams that wait for names; `hops`: how many tunnels the datagrams have passed.
    pub(crate) fn new(
        config: Arc<RuntimeConfig>,
        owner: DatagramOwner,
        memory: TransferShare,
        hops: u8,
    ) -> Self {
        let direct = DirectSockets::new(Arc::clone(&config), owner.clone(), memory);
        let through = TunnelFlows::new(Arc::clone(&config), owner, hops);
        Self { config, direct, through, settled: None }
    }

    /// Settles the path of all datagrams, which go to `to`, by the name that the client claims: through the tunnel of the
    /// route if that is up, or directly if the route permits that. Fails where neither is so.
    pub(crate) fn settle(
        &mut self,
        to: &Destination,
        claimed: Option<&Destination>,
    ) -> Result<&Arc<Route>, Failure> {
        let route = Arc::clone(self.config.route_of(claimed, to));
        let hop = self.tunnel_in_use(&route).cloned();
        if hop.is_none() && !route.is_direct() {
            return Err(match route.tunnel() {
                Some(hop) => down(hop),
                None => {
                    let text = format!(
                        "the route to {to} goes through upstream proxies that carry no datagrams"
                    );
                    Failure::new(FailureKind::Denied, text)
                }
            });
        }
        Ok(&self.settled.insert(SettledPath { route, hop }).route)
    }

    /// Settles the path as [`Self::settle`] does, resolves the name where this relay does that, and checks that
    /// datagrams may go to `to`. What a peer decides is known only after the first datagram.
    pub(crate) async fn open(&mut self, to: &Destination) -> Result<Arc<Route>, Failure> {
        let route = Arc::clone(self.settle(to, None)?);
        match self.settled_hop() {
            Some(_) => self.through.check(to)?,
            None => self.direct.open(&route, to).await?,
        }
        Ok(route)
    }

    /// The hop of the settled path; `None`: directly, or it is not settled.
    pub(crate) fn settled_hop(&self) -> Option<&Arc<Hop>> {
        self.settled.as_ref().and_then(|settled| settled.hop.as_ref())
    }

    /// Sends a datagram by the route of its destination and returns true, or false while its name is resolved.
    pub(crate) fn send(&mut self, to: &Destination, payload: &[u8]) -> Result<bool, DatagramError> {
        let (route, hop) = match &self.settled {
            Some(SettledPath { route, hop }) => {
                // opening a flow would wait for the tunnel; another path may be there
                if let Some(hop) = hop
                    && !self.config.shared.tunnel_is_up(&hop.upstream.host)
                {
                    return Err(DatagramError::Refused(down(hop)));
                }
                (Arc::clone(route), hop.clone())
            }
            None => {
                let route = Arc::clone(self.config.route(to));
                let hop = self.tunnel_in_use(&route).cloned();
                // nothing waits for a tunnel: a datagram is worth little later
                if let (None, Some(hop), false) = (&hop, route.tunnel(), route.is_direct()) {
                    return Err(DatagramError::Undelivered(down(hop)));
                }
                (route, hop)
            }
        };
        match hop {
            Some(hop) => self.through.send(&hop, to, payload).map(|()| true),
            None => self.direct.send(&route, to, payload),
        }
    }

    /// The tunnel of a route, while it is up.
    fn tunnel_in_use<'a>(&self, route: &'a Route) -> Option<&'a Arc<Hop>> {
        route.tunnel().filter(|hop| self.config.shared.tunnel_is_up(&hop.upstream.host))
    }

    pub(crate) async fn ready(&mut self) {
        tokio::select! {
            () = self.direct.ready() => {}
            () = self.through.ready() => {}
        }
    }

    pub(crate) fn receive(&mut self) -> Option<Result<Received, DatagramError>> {
        self.through.receive().or_else(|| self.direct.receive())
    }
}

fn down(hop: &Hop) -> Failure {
    let text = format!("the tunnel to peer \"{}\" is down", hop.upstream.host);
    Failure::new(FailureKind::NoTunnel, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_behind_a_peer_go_as_the_peer_s_numbers() {
        let home =
            KnownAccount { id: 3, name: "home".to_owned(), allow: Vec::new(), deny: Vec::new() };
        for account in [None, Some(Arc::new(home))] {
            for number in [&b"1"[..], b"2"] {
                let (of, name) = (Bytes::from_static(number), "near".to_owned());
                let owner = DatagramOwner::Peer(name, of, account.clone());
                // as its connections do
                let known = account.as_deref();
                assert_eq!(owner.of_flows(), FlowOwner::behind(known, "near", number));
                let peer = || Asker::Peer("near".into());
                let whole = known.map_or_else(peer, |account| Asker::Account(account.id));
                assert_eq!(owner.asker(), asker_behind(whole, number));
            }
        }
        assert_ne!(FlowOwner::behind(None, "near", b"1"), FlowOwner::behind(None, "near", b"2"));
    }
}
