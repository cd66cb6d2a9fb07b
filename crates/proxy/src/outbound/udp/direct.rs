//! Datagrams sent from this machine: names are resolved, the rules check each address, and sockets
//! use the route's leg.

use super::peers::Peers;
use super::recent::Recent;
use crate::destination::{Destination, Host};
use crate::error::{Failure, FailureKind};
use crate::observe::named_leg::NamedLeg;
use crate::outbound::dial::{DialFrom, check, leads_to};
use crate::outbound::dns::own::lookup;
use crate::outbound::udp::route::{DatagramError, DatagramOwner, Received};
use crate::outbound::udp::{IN_A_ROW, send};
use crate::policy::route::Route;
use crate::resources::DescriptorReserve;
use crate::runtime::RuntimeConfig;
use crate::settings::Family;
use crate::transfer::budget::ReservedMemory;
use crate::transfer::scratch::with_scratch;
use crate::transfer::transient::is_transient;
use ekiden_linux::host::clock;
use ekiden_model::dns::Asker;
use ekiden_model::units::{Span, Time};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

/// Names resolved at a time; datagrams to further names are dropped meanwhile.
const MOST_NAMES: usize = 16;

/// The most addresses of a name that are tried.
const MOST_ADDRESSES: usize = 8;

/// An address of a name that does not answer for this long gives way to the next: one second, as
/// before a first retransmission (RFC 8085 §3.1.1).
const UNANSWERED: Span = Span::from_secs(1);

/// Sockets that the association's own permits cover.
const IN_PLACES: usize = 2;

/// One association's sockets to destinations reached from here.
#[derive(Debug)]
pub(crate) struct DirectSockets {
    config: Arc<RuntimeConfig>,
    client: DatagramOwner,
    sockets: Vec<OutboundSocket>,
    peers: Peers,
    names: Recent<String, ResolvedName>,
    asked: JoinSet<Resolution>,
    answered: VecDeque<Resolution>,
}

/// A name in use.
#[derive(Debug)]
struct ResolvedName {
    addresses: Vec<IpAddr>,
    /// The address in use. One that does not answer for a while gives way, each once.
    nth: usize,
    since: Time,
    /// All were tried.
    settled: bool,
}

/// A socket to the outside, by leg and family.
#[derive(Debug)]
struct OutboundSocket {
    leg: Arc<NamedLeg>,
    ipv6: bool,
    socket: UdpSocket,
    /// For sockets beyond the association's own.
    _place: Option<DescriptorReserve>,
}

/// A name's addresses, and a datagram that waited for them.
#[derive(Debug)]
struct Resolution {
    route: Arc<Route>,
    to: Destination,
    addresses: Result<Vec<IpAddr>, Failure>,
    payload: Vec<u8>,
    _memory: ReservedMemory,
}

impl DirectSockets {
    pub(crate) fn new(config: Arc<RuntimeConfig>, client: DatagramOwner) -> Self {
        let settings = config.settings.udp;
        let most = settings.destinations as usize;
        let peers = Peers::new(most, settings.idle);
        Self {
            config,
            client,
            sockets: Vec::new(),
            peers,
            names: Recent::new(most),
            asked: JoinSet::new(),
            answered: VecDeque::new(),
        }
    }

    /// Sends a datagram and returns true, or begins to resolve the name and returns false.
    pub(crate) fn send(
        &mut self,
        route: &Arc<Route>,
        to: &Destination,
        payload: &[u8],
    ) -> Result<bool, DatagramError> {
        if !route.is_direct() {
            let text =
                format!("the route to {to} goes through upstream proxies that carry no datagrams");
            return Err(DatagramError::refused(FailureKind::Denied, text));
        }
        let decider = self.client.decider(&self.config);
        decider.unresolved(to).map_err(|denied| DatagramError::Refused(denied.into()))?;
        match &to.host {
            Host::Address(address) => self.send_to(route, to, *address, payload).map(|()| true),
            Host::Name(name) => match self.names.remove(name) {
                Some(named) => self.send_by_name(route, to, name, named, payload).map(|()| true),
                None => self.ask(route, to, name, payload).map(|()| false),
            },
        }
    }

    /// Resolves the destination's name, and checks that datagrams may go to one of its addresses.
    pub(crate) async fn open(&mut self, route: &Route, to: &Destination) -> Result<(), Failure> {
        self.client.decider(&self.config).unresolved(to)?;
        let name = match &to.host {
            Host::Address(address) => return self.check_address(route, to, *address),
            Host::Name(name) => name,
        };
        let addresses = resolve(&self.config, name, &self.client.asker()).await?;
        let mut first = None;
        for (nth, address) in addresses.iter().enumerate() {
            match self.check_address(route, to, *address) {
                Ok(()) => {
                    let since = clock::now();
                    let named = ResolvedName { addresses, nth, since, settled: false };
                    self.names.insert(name.clone(), named);
                    return Ok(());
                }
                Err(failure) => first = first.or(Some(failure)),
            }
        }
        let none = || Failure::new(FailureKind::NoName, format!("{name} has no address"));
        Err(first.unwrap_or_else(none))
    }

    pub(crate) async fn ready(&mut self) {
        poll_fn(|cx| {
            let readable = |out: &OutboundSocket| out.socket.poll_recv_ready(cx).is_ready();
            // each poll registers a waker, so none may be skipped
            let any = self.sockets.iter().map(readable).fold(false, |any, ready| any | ready);
            while let Poll::Ready(Some(answered)) = self.asked.poll_join_next(cx) {
                // a resolver's panic counts as no answer
                self.answered.extend(answered);
            }
            if any || !self.answered.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub(crate) fn receive(&mut self) -> Option<Result<Received, DatagramError>> {
        if let Some(asked) = self.answered.pop_front() {
            return Some(self.on_addresses(asked).map(Received::Sent));
        }
        let now = clock::now();
        for out in &self.sockets {
            // unsolicited packets must not keep this loop busy
            for _ in 0..IN_A_ROW {
                let read = with_scratch(|scratch| {
                    let (n, from) = out.socket.try_recv_from(scratch)?;
                    let ours = self.peers.on_answer(now, from);
                    let payload = scratch.get(..n).unwrap_or_default();
                    Ok::<_, io::Error>(ours.then(|| Received::Came(from, payload.to_vec())))
                });
                match read {
                    Ok(Some(datagram)) => return Some(Ok(datagram)),
                    // unsolicited
                    Ok(None) => {}
                    Err(error) if is_transient(&error) => break,
                    // an ICMP error about an earlier datagram
                    Err(_) => {}
                }
            }
        }
        None
    }

    fn ask(
        &mut self,
        route: &Arc<Route>,
        to: &Destination,
        name: &str,
        payload: &[u8],
    ) -> Result<(), DatagramError> {
        let busy = || {
            let text = format!("{name}: too many names are being asked for");
            DatagramError::undelivered(FailureKind::Exhausted, text)
        };
        if self.asked.len() >= MOST_NAMES {
            return Err(busy());
        }
        let memory = self.config.shared.transfer.reserve(payload.len()).ok_or_else(busy)?;
        let (config, to, payload) = (Arc::clone(&self.config), to.clone(), payload.to_vec());
        let (name, route) = (name.to_owned(), Arc::clone(route));
        let asker = self.client.asker();
        self.asked.spawn(async move {
            let addresses = resolve(&config, &name, &asker).await;
            Resolution { route, to, addresses, payload, _memory: memory }
        });
        Ok(())
    }

    fn on_addresses(&mut self, asked: Resolution) -> Result<usize, DatagramError> {
        let Resolution { route, to, addresses, payload, .. } = asked;
        let addresses = addresses.map_err(DatagramError::Undelivered)?;
        let named = ResolvedName { addresses, nth: 0, since: clock::now(), settled: false };
        let name = to.host.to_string();
        self.send_by_name(&route, &to, &name, named, &payload).map(|()| payload.len())
    }

    /// Sends to the address in use, or to the next one that is permitted and works.
    fn send_by_name(
        &mut self,
        route: &Route,
        to: &Destination,
        name: &str,
        mut named: ResolvedName,
        payload: &[u8],
    ) -> Result<(), DatagramError> {
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
                    self.names.insert(name.to_owned(), named);
                    return Ok(());
                }
                Err(on_error) => last = last.or(Some(on_error)),
            }
            named.nth = (named.nth + 1) % count;
        }
        let none = format!("{name} has no address");
        Err(last.unwrap_or_else(|| DatagramError::undelivered(FailureKind::NoName, none)))
    }

    fn send_to(
        &mut self,
        route: &Route,
        to: &Destination,
        address: IpAddr,
        payload: &[u8],
    ) -> Result<(), DatagramError> {
        let at = SocketAddr::new(address, to.port);
        self.check_address(route, to, address).map_err(|failure| match failure.kind {
            FailureKind::Unreachable => DatagramError::Undelivered(failure),
            _ => DatagramError::Refused(failure),
        })?;
        let undelivered = |error: io::Error| {
            DatagramError::Undelivered(Failure::io(&format!("no datagram to {at}"), &error))
        };
        let socket = self.socket(&route.leg, at.is_ipv6()).map_err(undelivered)?;
        send(socket, payload, at).map_err(undelivered)?;
        if let Some(forgotten) = self.peers.on_sent(clock::now(), at) {
            self.names.retain(|named| named.addresses[named.nth] != forgotten.ip());
        }
        Ok(())
    }

    /// Whether the rules let datagrams go to this address, and the leg's source can reach it.
    fn check_address(
        &self,
        route: &Route,
        to: &Destination,
        address: IpAddr,
    ) -> Result<(), Failure> {
        let (config, at) = (&self.config, SocketAddr::new(address, to.port));
        let decider = self.client.decider(config);
        check(config, DialFrom::leg(&route.leg), at, &|address| decider.address(to, address))?;
        let forwards = config.settings.forwards.iter().filter(|forward| forward.protocol.udp());
        let forwards = forwards.flat_map(|forward| &forward.listen);
        let own = config.settings.tunnel.listen.iter().chain(&config.settings.wireguard.listen);
        let mut own = own.chain(forwards);
        if own.any(|own| leads_to(&config.settings, *own, at)) {
            return Err(Failure::new(FailureKind::Loop, format!("{at} is this relay itself")));
        }
        Ok(())
    }

    /// The socket of a leg and family; opens it on first use.
    fn socket(&mut self, leg: &Arc<NamedLeg>, ipv6: bool) -> io::Result<&UdpSocket> {
        let same = |out: &OutboundSocket| Arc::ptr_eq(&out.leg, leg) && out.ipv6 == ipv6;
        let at = match self.sockets.iter().position(same) {
            Some(at) => at,
            None => {
                let shared = &self.config.shared;
                let source = match &self.client {
                    DatagramOwner::Client(address, _) => (*address).into(),
                    DatagramOwner::Peer(name, _) => shared.resources.peers.get(name).source(),
                };
                let place = match self.sockets.len() < IN_PLACES {
                    true => None,
                    false => {
                        Some(shared.resources.make_room(source).ok_or(io::ErrorKind::OutOfMemory)?)
                    }
                };
                let made = leg.leg.socket.new_datagram_socket(ipv6);
                let (socket, _) = made.inspect_err(|_| shared.resources.evict_for_descriptor())?;
                let socket = UdpSocket::from_std(socket.into())?;
                let leg = Arc::clone(leg);
                self.sockets.push(OutboundSocket { leg, ipv6, socket, _place: place });
                self.sockets.len() - 1
            }
        };
        Ok(&self.sockets[at].socket)
    }
}

/// A name's addresses, the preferred family first; never none.
async fn resolve(
    config: &RuntimeConfig,
    name: &str,
    asker: &Asker,
) -> Result<Vec<IpAddr>, Failure> {
    let (want_v6, want_v4) = config.resolver.families();
    let look = |ipv6: bool, wanted: bool| async move {
        match wanted {
            true => lookup(config, name, ipv6, asker).await,
            false => Ok(Vec::new()),
        }
    };
    let limit = config.settings.timeouts.resolve;
    let both = async { tokio::join!(look(true, want_v6), look(false, want_v4)) };
    let (v6, v4) = tokio::time::timeout(limit.into(), both).await.map_err(|_| {
        let text = format!("{name} cannot be resolved: no answer within {limit}");
        Failure::new(FailureKind::NameTimedOut, text)
    })?;
    let failed = v6.as_ref().err().or(v4.as_ref().err()).cloned();
    let (v6, v4) = (v6.unwrap_or_default(), v4.unwrap_or_default());
    let mut found = match config.settings.dns.prefer {
        Family::Ipv4 | Family::Ipv4Only => [v4, v6].concat(),
        Family::Ipv6 | Family::Ipv6Only => [v6, v4].concat(),
    };
    found.truncate(MOST_ADDRESSES);
    if found.is_empty() {
        let text = match failed {
            Some(error) => format!("{name} cannot be resolved: {error}"),
            None => format!("{name} has no address"),
        };
        return Err(Failure::new(FailureKind::NoName, text));
    }
    Ok(found)
}
