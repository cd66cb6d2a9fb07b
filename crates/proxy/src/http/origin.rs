//! A connection to the origin server or the last proxy, kept from one request to the next.

use super::fields;
use super::head::Field;
use crate::chain::{Opened, Purpose};
use crate::destination::Destination;
use crate::failure::Failure;
use crate::incoming::Incoming;
use crate::resources::{Kept, Managed, PoolKey};
use crate::seen_leg::SeenLeg;
use crate::session::{Session, Way};
use crate::tunnels::FarAnswer;
use crate::world::{Hop, NamedLeg, Route};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::net::TcpStream;

/// A connection to the origin server or the last proxy, which may serve more than one request.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(super) incoming: Incoming,
    pub(super) seen: SeenLeg,
    pub(crate) managed: Managed,
    /// The destination it leads to; `None` when it leads to a proxy that is asked in absolute form.
    destination: Option<Destination>,
    pub(super) asks_proxy: Option<Arc<Hop>>,
    /// What the relay at the other end of a tunnel says of it.
    pub(super) answer: Option<Arc<FarAnswer>>,
    pub(super) route: Arc<Route>,
    pub(super) leg: Arc<NamedLeg>,
    pub(super) through: Arc<[String]>,
    pub(super) reused: bool,
    /// It is this client's alone: it has shown who it is for the connection and not for the request.
    pub(super) own: bool,
}

impl Origin {
    pub(super) async fn open(session: &Session, to: &Destination) -> Result<Self, Failure> {
        let Way { opened, seen, managed, route } = session.open(to, Purpose::Forward).await?;
        let Opened { stream, leg, through, early, asks_proxy, answer, .. } = opened;
        Ok(Self {
            incoming: Incoming::new(stream, early),
            seen,
            managed,
            destination: asks_proxy.is_none().then(|| to.clone()),
            asks_proxy,
            answer,
            route,
            leg,
            through,
            reused: false,
            own: false,
        })
    }

    /// A connection that was kept and may serve a request to `to`: the same way, a place this client may
    /// go to, still open and silent.
    pub(super) fn kept(session: &Session, to: &Destination) -> Option<Kept> {
        let route = session.world.route(to);
        for chain in route.in_order() {
            let destination = (!chain.asks_proxy()).then(|| to.clone());
            let through = chain.names();
            for client in [Some(session.registered.entry.id), None] {
                let key = PoolKey::new(route, Arc::clone(&through), destination.clone(), client);
                while let Some(origin) = session.resources().take(key.clone()) {
                    if !origin.is_silent() {
                        continue;
                    }
                    if origin.may_serve(session, to) {
                        return Some(origin);
                    }
                    // another client's, at an address this one may not go to
                    session.resources().keep(origin, key.clone());
                    break;
                }
            }
        }
        None
    }

    /// Where it is kept, after a request of this client.
    pub(super) fn key(&self, client: u64) -> PoolKey {
        let own = self.own.then_some(client);
        PoolKey::new(&self.route, Arc::clone(&self.through), self.destination.clone(), own)
    }

    pub(crate) const fn stream(&self) -> &Arc<TcpStream> {
        &self.incoming.stream
    }

    /// The address of the origin server; `None` where a proxy reaches it for us.
    pub(super) fn address(&self) -> Option<IpAddr> {
        let direct = self.through.is_empty();
        direct.then(|| self.incoming.stream.peer_addr().ok()).flatten().map(|peer| peer.ip())
    }

    /// Whether the rules let this client go where it leads; a new connection is judged in the same way.
    fn may_serve(&self, session: &Session, to: &Destination) -> bool {
        // a closed one has no address, and is of no use
        let closed = self.through.is_empty() && self.address().is_none();
        !closed && session.may_reach(to, self.address())
    }

    /// Whether it is open, and nothing was said that nobody asked for: it would be taken for the answer.
    fn is_silent(&self) -> bool {
        let mut byte = [0];
        self.incoming.bytes().is_empty()
            && matches!(self.incoming.stream.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}

/// Whether a field names a scheme by which a connection, and not a request, shows who it is (RFC 4559
/// §6; NTLM does the same).
pub(super) fn authenticates_connection(fields: &[Field], name: &str) -> bool {
    fields::values(fields, name).any(|value| {
        let scheme = value.split(|byte| matches!(byte, b' ' | b',')).next().unwrap_or_default();
        [&b"ntlm"[..], b"negotiate"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
    })
}
