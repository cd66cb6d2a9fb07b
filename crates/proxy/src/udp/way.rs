//! Which way a datagram goes: out of this machine, or through the tunnel to another relay.

use super::direct::Direct;
use super::through::Through;
use crate::access::Decider;
use crate::accounts::Member;
use crate::destination::Destination;
use crate::failure::Failure;
use crate::world::World;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Whose datagrams they are.
#[derive(Debug, Clone)]
pub(super) enum Whose {
    /// A client's, at this address, and the household it belongs to.
    Client(IpAddr, Option<Arc<Member>>),
    /// Those of whoever stands behind a relay, by what that is called here, and its household.
    Relay(String, Option<Arc<Member>>),
}

impl Whose {
    pub(super) fn decider<'a>(&'a self, world: &'a World) -> Decider<'a> {
        match self {
            Self::Client(address, member) => {
                world.settings.access.decider(*address).of(member.as_deref())
            }
            Self::Relay(name, member) => {
                world.settings.access.decider_for_relay(name).of(member.as_deref())
            }
        }
    }
}

/// A datagram that did not go out.
#[derive(Debug)]
pub(super) enum Lost {
    /// It may not go there.
    Refused(Failure),
    /// It could not.
    Undelivered(Failure),
}

/// What has happened beyond.
#[derive(Debug)]
pub(super) enum Received {
    /// A datagram came back.
    Came(SocketAddr, Vec<u8>),
    /// One of so many bytes, which waited for its name, has gone out.
    Sent(usize),
}

/// All ways out of one association, or of one flow that came out of a tunnel.
#[derive(Debug)]
pub(super) struct Way {
    world: Arc<World>,
    direct: Direct,
    through: Through,
}

impl Way {
    /// `hops`: through how many tunnels they have come.
    pub(super) fn new(world: Arc<World>, whose: Whose, hops: u8) -> Self {
        let direct = Direct::new(Arc::clone(&world), whose.clone());
        let through = Through::new(Arc::clone(&world), whose, hops);
        Self { world, direct, through }
    }

    /// Sends a datagram by the route of its destination, and says that it is gone; or it waits for its name.
    pub(super) fn send(&mut self, to: &Destination, payload: &[u8]) -> Result<bool, Lost> {
        let route = self.world.route(to);
        match route.tunnel() {
            Some(hop) => {
                let hop = Arc::clone(hop);
                self.through.send(&hop, to, payload).map(|()| true)
            }
            None => self.direct.send(to, payload),
        }
    }

    /// Until there is something to receive.
    pub(super) async fn ready(&mut self) {
        tokio::select! {
            () = self.direct.ready() => {}
            () = self.through.ready() => {}
        }
    }

    /// The next that came, if any has.
    pub(super) fn receive(&mut self) -> Option<Result<Received, Lost>> {
        self.through.receive().or_else(|| self.direct.receive())
    }
}
