//! How a client arrived, other than at a listening address: out of a peer's tunnel, diverted, or at a forwarded port.

use crate::observe::gateway_counts::LiveGuard;
use crate::observe::leg_stats::TunnelLeg;
use crate::settings::PortForward;
use crate::transfer::end::End;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::overload::Source;
use ekiden_tunnel::driver::{FlowStream, Incoming};
use ekiden_tunnel::frame::reason::Reason;
use ekiden_tunnel::frame::{Opening, Target};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Measurements of one peer at a time: as many as speed tests of accounts at a relay.
const MEASURED_AT_ONCE: usize = 4;
/// How long another waits for one of them to end: one of a speed test takes two seconds. A peer waits ten for an answer.
const MEASURED_IN_TURN: Duration = Duration::from_secs(5);

/// A peer that has opened flows: by what its flows share, and what it measures.
#[derive(Debug)]
pub(crate) struct JoinedPeer {
    name: Arc<str>,
    source: Source,
    measuring: Semaphore,
}

impl JoinedPeer {
    pub(crate) const fn source(&self) -> Source {
        self.source
    }

    /// A turn to measure; `None` where others of this peer take too long.
    pub(crate) async fn measure_in_turn(&self) -> Option<SemaphorePermit<'_>> {
        let turn = tokio::time::timeout(MEASURED_IN_TURN, self.measuring.acquire()).await;
        turn.ok().and_then(Result::ok)
    }
}

/// Peers by their local names, each with a number. Kept until the relay stops: operators invite few.
#[derive(Debug, Default)]
pub(crate) struct JoinedPeers(Mutex<BTreeMap<Arc<str>, Arc<JoinedPeer>>>);

impl JoinedPeers {
    pub(crate) fn get(&self, name: &str) -> Arc<JoinedPeer> {
        let peers = &mut *locked(&self.0);
        if let Some(peer) = peers.get(name) {
            return Arc::clone(peer);
        }
        let name = Arc::<str>::from(name);
        let source = Source::Peer(u32::try_from(peers.len()).unwrap_or(u32::MAX));
        let measuring = Semaphore::new(MEASURED_AT_ONCE);
        let peer = Arc::new(JoinedPeer { name: Arc::clone(&name), source, measuring });
        peers.insert(name, Arc::clone(&peer));
        peer
    }

    /// A source as people call it: an address, a network, or a peer by its name.
    pub(crate) fn name_of(&self, source: Source) -> String {
        let peers = locked(&self.0);
        let peer = peers.values().find(|peer| peer.source == source);
        peer.map_or_else(|| source.to_string(), |peer| format!("peer {}", peer.name))
    }
}

/// Why a client, a flow or a connection within another gets no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoPlace {
    #[error("there is no room for another connection")]
    Room,
    #[error(
        "your relay has as many connections in service here as it may have beside others; try again when one has ended"
    )]
    Share,
}

#[derive(Debug)]
pub(crate) struct TunnelArrival {
    leg: TunnelLeg,
    flow: Arc<FlowStream>,
    opening: Opening,
    joined: Arc<JoinedPeer>,
}

impl TunnelArrival {
    /// The arrival, and the client's end of the connection.
    pub(crate) fn new(incoming: Incoming, peers: &JoinedPeers) -> (Arc<Self>, End) {
        let Incoming { flow, opening, peer } = incoming;
        let joined = peers.get(&peer);
        let leg = TunnelLeg { peer: Arc::clone(&joined.name), flow: flow.view() };
        let flow = Arc::new(flow.into_stream(|_, _, _| ()));
        let end = End::Flow(Arc::clone(&flow));
        (Arc::new(Self { leg, flow, opening, joined }), end)
    }

    /// How many tunnels the flow has passed.
    pub(crate) const fn hops(&self) -> u8 {
        self.opening.hops
    }

    pub(crate) fn peer(&self) -> &str {
        &self.leg.peer
    }

    /// The peer's number for whoever the flow belongs to.
    pub(crate) fn account(&self) -> &[u8] {
        &self.opening.account
    }

    pub(crate) fn joined(&self) -> &JoinedPeer {
        &self.joined
    }

    /// What carries the client's bytes.
    pub(crate) const fn leg(&self) -> &TunnelLeg {
        &self.leg
    }

    pub(crate) const fn target(&self) -> &Target {
        &self.opening.target
    }

    /// Says that the destination was reached.
    pub(crate) fn accept(&self) {
        self.flow.accept();
    }

    pub(crate) fn deny(&self, why: &str) {
        self.refuse(Reason::Denied, why.to_owned());
    }

    pub(crate) fn refuse_for_room(&self, why: NoPlace) {
        self.refuse(Reason::Exhausted, why.to_string());
    }

    /// Says why it was not reached; the flow is over.
    pub(crate) fn refuse(&self, reason: Reason, words: String) {
        self.flow.refuse(reason, words);
    }
}

/// How a client arrived that speaks with its destination and not with this relay.
#[derive(Debug, Clone)]
pub(crate) enum Directed {
    /// Its connection was diverted.
    Diverted(Diverted),
    /// It came to a forwarded port.
    Forward(Arc<PortForward>),
}

/// A diverted connection.
#[derive(Debug, Clone)]
pub(crate) struct Diverted {
    /// Where it was going.
    pub(crate) to: SocketAddr,
    /// Whether it is this machine's own.
    pub(crate) own: bool,
    pub(crate) _live: Arc<LiveGuard>,
}

/// Makes the coming close a reset: no other answer fits every protocol.
pub(crate) fn reset(client: &End) {
    client.abort("closed");
}
