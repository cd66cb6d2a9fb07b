//! The way out from this machine: names resolved, each address checked by the rules, sockets that go by the
//! leg of the route.

use super::peers::Peers;
use super::way::{Lost, Received, Whose};
use super::{IN_A_ROW, send};
use crate::destination::{Destination, Host};
use crate::dial::{check, reaches};
use crate::failure::{Failure, Kind};
use crate::incoming::is_transient;
use crate::means::{Reserved, with_scratch};
use crate::resources::Spare;
use crate::settings::Family;
use crate::world::{NamedLeg, Route, World};
use ekiden_linux::clock;
use ekiden_model::units::{Span, Time};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// Names that are asked for at a time; what else goes to a name meanwhile is lost.
const MOST_NAMES: usize = 16;

/// Of a name's addresses so many are tried.
const MOST_ADDRESSES: usize = 8;

/// How long an address of a name is spoken to without an answer before the next is. A second, as before a
/// first retransmission of anything (RFC 8085 §3.1.1); clients repeat later than that.
const UNANSWERED: Span = Span::from_secs(1);

/// Sockets whose descriptors the association's places hold.
const IN_PLACES: usize = 2;

/// One association's way to destinations that are reached from here.
#[derive(Debug)]
pub(super) struct Direct {
    world: Arc<World>,
    client: Whose,
    sockets: Vec<Outward>,
    peers: Peers,
    names: BTreeMap<String, Named>,
    asked: JoinSet<Asked>,
    answered: VecDeque<Asked>,
}

/// A name that was spoken to.
#[derive(Debug)]
struct Named {
    /// In the order in which they are tried.
    addresses: Vec<IpAddr>,
    /// Which of them is spoken to: what follows goes to the same. While it does not answer, the next is tried
    /// after a while, each once: with datagrams, an address that leads nowhere gives no sign.
    nth: usize,
    since: Time,
    /// All were tried.
    settled: bool,
}

/// A socket to the outside, by leg and family.
#[derive(Debug)]
struct Outward {
    leg: Arc<NamedLeg>,
    ipv6: bool,
    socket: UdpSocket,
    /// Of those beyond the association's own.
    _place: Option<Spare>,
}

/// A name's addresses, and what is to go there.
#[derive(Debug)]
struct Asked {
    to: Destination,
    addresses: Result<Vec<IpAddr>, String>,
    payload: Vec<u8>,
    _memory: Reserved,
}

impl Direct {
    pub(super) fn new(world: Arc<World>, client: Whose) -> Self {
        let settings = world.settings.udp;
        let peers = Peers::new(settings.destinations as usize, settings.idle);
        Self {
            world,
            client,
            sockets: Vec::new(),
            peers,
            names: BTreeMap::new(),
            asked: JoinSet::new(),
            answered: VecDeque::new(),
        }
    }

    /// Sends a datagram, and says that it is gone; or asks for the name first.
    pub(super) fn send(&mut self, to: &Destination, payload: &[u8]) -> Result<bool, Lost> {
        let route = Arc::clone(self.world.route(to));
        if !route.is_direct() {
            let text =
                format!("the route to {to} goes through upstream proxies that carry no datagrams");
            return Err(Lost::Refused(Failure::new(Kind::Denied, text)));
        }
        let decider = self.client.decider(&self.world);
        decider.unresolved(to).map_err(|denied| Lost::Refused(denied.into()))?;
        match &to.host {
            Host::Address(address) => self.send_to(&route, to, *address, payload).map(|()| true),
            Host::Name(name) => match self.names.remove(name) {
                Some(named) => self.send_by_name(&route, to, name, named, payload).map(|()| true),
                None => self.ask(to, name, payload).map(|()| false),
            },
        }
    }

    /// Until there is something to receive.
    pub(super) async fn ready(&mut self) {
        poll_fn(|cx| {
            let readable = |out: &Outward| out.socket.poll_recv_ready(cx).is_ready();
            // all of them are to wake this
            let any = self.sockets.iter().map(readable).fold(false, |any, ready| any | ready);
            while let Poll::Ready(Some(answered)) = self.asked.poll_join_next(cx) {
                // a resolver's panic is no answer
                self.answered.extend(answered);
            }
            if any || !self.answered.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// The next that came, if any has.
    pub(super) fn receive(&mut self) -> Option<Result<Received, Lost>> {
        if let Some(asked) = self.answered.pop_front() {
            return Some(self.on_addresses(asked).map(Received::Sent));
        }
        let now = clock::now();
        for out in &self.sockets {
            // strangers are not listened to for long
            for _ in 0..IN_A_ROW {
                let read = with_scratch(|scratch| {
                    let (n, from) = out.socket.try_recv_from(scratch)?;
                    let ours = self.peers.on_answer(now, from);
                    let payload = scratch.get(..n).unwrap_or_default();
                    Ok::<_, io::Error>(ours.then(|| Received::Came(from, payload.to_vec())))
                });
                match read {
                    Ok(Some(datagram)) => return Some(Ok(datagram)),
                    // nobody asked for it
                    Ok(None) => {}
                    Err(error) if is_transient(&error) => break,
                    // what the network said of an earlier one
                    Err(_) => {}
                }
            }
        }
        None
    }

    fn ask(&mut self, to: &Destination, name: &str, payload: &[u8]) -> Result<(), Lost> {
        let busy = || {
            Lost::Undelivered(Failure::new(
                Kind::Exhausted,
                format!("{name}: too many names are being asked for"),
            ))
        };
        if self.asked.len() >= MOST_NAMES {
            return Err(busy());
        }
        let memory = self.world.means.reserve(payload.len()).ok_or_else(busy)?;
        let (world, to, payload) = (Arc::clone(&self.world), to.clone(), payload.to_vec());
        let name = name.to_owned();
        self.asked.spawn(async move {
            let addresses = resolve(&world, &name).await;
            Asked { to, addresses, payload, _memory: memory }
        });
        Ok(())
    }

    /// A name was answered. How many bytes have gone there.
    fn on_addresses(&mut self, asked: Asked) -> Result<usize, Lost> {
        let Asked { to, addresses, payload, .. } = asked;
        let none = |text: String| Lost::Undelivered(Failure::new(Kind::NoName, text));
        let mut addresses =
            addresses.map_err(|error| none(format!("{} cannot be resolved: {error}", to.host)))?;
        if addresses.is_empty() {
            return Err(none(format!("{} has no address", to.host)));
        }
        addresses.truncate(MOST_ADDRESSES);
        let route = Arc::clone(self.world.route(&to));
        let named = Named { addresses, nth: 0, since: clock::now(), settled: false };
        let name = to.host.to_string();
        self.send_by_name(&route, &to, &name, named, &payload).map(|()| payload.len())
    }

    /// To the address that is spoken to, or to the next that is permitted and that a datagram can be sent to.
    fn send_by_name(
        &mut self,
        route: &Route,
        to: &Destination,
        name: &str,
        mut named: Named,
        payload: &[u8],
    ) -> Result<(), Lost> {
        let now = clock::now();
        let count = named.addresses.len();
        let at = SocketAddr::new(named.addresses[named.nth], to.port);
        if !named.settled && now.since(named.since) >= UNANSWERED {
            named.settled = self.peers.has_answered(at) || named.nth + 1 == count;
            if !self.peers.has_answered(at) {
                (named.nth, named.since) = ((named.nth + 1) % count, now);
            }
        }
        let mut last = None;
        for _ in 0..count {
            match self.send_to(route, to, named.addresses[named.nth], payload) {
                Ok(()) => {
                    // of too many names those that come first go first
                    while self.names.len() >= self.world.settings.udp.destinations as usize {
                        self.names.pop_first();
                    }
                    self.names.insert(name.to_owned(), named);
                    return Ok(());
                }
                Err(lost) => last = last.or(Some(lost)),
            }
            named.nth = (named.nth + 1) % count;
        }
        Err(last.unwrap_or_else(|| {
            Lost::Undelivered(Failure::new(Kind::NoName, format!("{name} has no address")))
        }))
    }

    fn send_to(
        &mut self,
        route: &Route,
        to: &Destination,
        address: IpAddr,
        payload: &[u8],
    ) -> Result<(), Lost> {
        let at = SocketAddr::new(address, to.port);
        let (world, client) = (Arc::clone(&self.world), self.client.clone());
        let decider = client.decider(&world);
        check(&world, &route.leg, at, &|address| decider.address(to, address)).map_err(
            |failure| match failure.kind {
                Kind::Unreachable => Lost::Undelivered(failure),
                _ => Lost::Refused(failure),
            },
        )?;
        if world.settings.tunnel.listen.iter().any(|own| reaches(*own, at)) {
            let text = format!("{at} is this relay itself");
            return Err(Lost::Refused(Failure::new(Kind::Loop, text)));
        }
        let undelivered = |error: io::Error| {
            Lost::Undelivered(Failure::io(&format!("no datagram to {at}"), &error))
        };
        let socket = self.socket(&route.leg, at.is_ipv6()).map_err(undelivered)?;
        send(socket, payload, at).map_err(undelivered)?;
        if let Some(forgotten) = self.peers.on_sent(clock::now(), at) {
            self.names.retain(|_, named| named.addresses[named.nth] != forgotten.ip());
        }
        Ok(())
    }

    /// The socket of a leg and family, made where there is none yet.
    fn socket(&mut self, leg: &Arc<NamedLeg>, ipv6: bool) -> io::Result<&UdpSocket> {
        let same = |out: &Outward| Arc::ptr_eq(&out.leg, leg) && out.ipv6 == ipv6;
        let at = match self.sockets.iter().position(same) {
            Some(at) => at,
            None => {
                let means = &self.world.means;
                let place = match self.sockets.len() < IN_PLACES {
                    true => None,
                    false => Some(means.resources.make_room().ok_or(io::ErrorKind::OutOfMemory)?),
                };
                let made = leg.leg.socket.new_datagram_socket(ipv6);
                let (socket, _) = made.inspect_err(|_| means.resources.give_way())?;
                let socket = UdpSocket::from_std(socket.into())?;
                let leg = Arc::clone(leg);
                self.sockets.push(Outward { leg, ipv6, socket, _place: place });
                self.sockets.len() - 1
            }
        };
        Ok(&self.sockets[at].socket)
    }
}

/// A name's addresses, those of the preferred family first.
async fn resolve(world: &World, name: &str) -> Result<Vec<IpAddr>, String> {
    let (want_v6, want_v4) = world.resolver.families();
    let look = |ipv6: bool, wanted: bool| async move {
        match wanted {
            true => world.resolver.lookup(name, ipv6).await,
            false => Ok(Vec::new()),
        }
    };
    let limit = world.settings.timeouts.resolve;
    let both = async { tokio::join!(look(true, want_v6), look(false, want_v4)) };
    let (v6, v4) = tokio::time::timeout(limit.into(), both)
        .await
        .map_err(|_| format!("no answer within {limit}"))?;
    let failed = v6.as_ref().err().or(v4.as_ref().err()).cloned();
    let (v6, v4) = (v6.unwrap_or_default(), v4.unwrap_or_default());
    let found = match world.settings.dns.prefer {
        Family::Ipv4 | Family::Ipv4Only => [v4, v6].concat(),
        Family::Ipv6 | Family::Ipv6Only => [v6, v4].concat(),
    };
    match failed {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}
