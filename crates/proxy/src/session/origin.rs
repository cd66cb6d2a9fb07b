//! Connections to origin servers: a new one, or an idle one that fits the request.

use super::{OpenedRoute, Session};
use crate::destination::Destination;
use crate::error::Failure;
use crate::outbound::connect::Purpose;
use crate::resources::origin::Origin;
use crate::resources::{IdleOrigin, Owner, PoolKey};
use crate::transfer::buffered::BufferedStream;
use ekiden_linux::host::clock;
use std::sync::Arc;

impl Session {
    /// Connects to the origin server of `to`, or to the last proxy before it.
    pub(crate) async fn open_origin(&self, to: &Destination) -> Result<Origin, Failure> {
        let opened = self.open(to, Purpose::Forward).await?;
        let OpenedRoute { connection, stats, managed, route } = opened;
        Ok(Origin {
            incoming: BufferedStream::new(connection.stream, connection.early),
            stats,
            managed,
            destination: connection.asks_proxy.is_none().then(|| to.clone()),
            asks_proxy: connection.asks_proxy,
            answer: connection.answer,
            route,
            leg: connection.leg,
            through: connection.through,
            peer: connection.peer.ip(),
            keeper: self.source(),
            reused: false,
            idle_since: clock::now(),
            kept_for: None,
            own: false,
        })
    }

    /// An idle connection that may serve a request to `to`: the way that a new one would take first, permitted to
    /// this client, open, silent. `once`: the request must not be sent twice.
    pub(crate) fn reuse_origin(&self, to: &Destination, once: bool) -> Option<IdleOrigin> {
        let route = self.config.route(to);
        for chain in route.to_reuse(|peer| self.config.shared.tunnel_is_up(peer)) {
            let destination = (!chain.asks_proxy()).then(|| to.clone());
            let through = chain.names();
            for owner in [Some(self.owner()), None] {
                let key = PoolKey::new(route, Arc::clone(&through), destination.clone(), owner);
                while let Some(origin) = self.resources().take_idle(key.clone()) {
                    if !origin.is_silent() {
                        continue;
                    }
                    if self.may_use(&origin, to) && (!once || origin.takes_once()) {
                        return Some(origin);
                    }
                    // another client's, at an address that this client may not reach, or too old; the next are older
                    self.resources().put_idle(origin, key.clone());
                    break;
                }
            }
        }
        None
    }

    /// The client and the account of its present request.
    pub(crate) fn owner(&self) -> Owner {
        let entry = &self.registration.entry;
        Owner { client: entry.id, account: entry.account().map(|account| account.id) }
    }

    /// Whether the rules let this client use the connection; a new connection is judged the same way.
    fn may_use(&self, origin: &Origin, to: &Destination) -> bool {
        self.may_reach(to, origin.address())
    }
}
