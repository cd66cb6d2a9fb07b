//! Datagrams sent from this machine: names are resolved, the rules check each address, and sockets
//! use the route's leg.

use super::lookups::{EndedLookup, NameLookups, WaitingDatagram, resolve};
use super::peers::Peers;
use super::resolved::ResolvedName;
use crate::destination::{Destination, Host};
use crate::error::{Failure, FailureKind};
use crate::observe::named_leg::NamedLeg;
use crate::observe::udp_counts::DropReason;
use crate::outbound::dial::{DialFrom, check, leads_to};
use crate::outbound::recent::Recent;
use crate::outbound::udp::route::{DatagramError, DatagramOwner, Received};
use crate::outbound::udp::{IN_A_ROW, send};
use crate::policy::route::Route;
use crate::resources::DescriptorReserve;
use crate::runtime::RuntimeConfig;
use crate::transfer::budget::TransferShare;
use crate::transfer::scratch::with_scratch;
use crate::transfer::transient::is_transient;
use ekiden_linux::host::clock;
use ekiden_model::units::Time;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::Poll;
use tokio::net::UdpSocket;

/// Datagrams that wait for one name: the newest, since old ones are worth little.
const MOST_WAITING: usize = 8;

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
    lookups: NameLookups,
    /// For datagrams that wait for names.
    memory: TransferShare,
    /// What became of datagrams that waited for names.
    settled: VecDeque<Result<Received, DatagramError>>,
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

impl DirectSockets {
    /// `memory`: for datagrams that wait for names.
    pub(crate) fn new(
        config: Arc<RuntimeConfig>,
        client: DatagramOwner,
        memory: TransferShare,
    ) -> Self {
        let settings = config.settings.udp;
        let most = settings.destinations as usize;
        let peers = Peers::new(most, settings.idle);
        Self {
            config,
            client,
            sockets: Vec::new(),
            peers,
            names: Recent::new(most),
            lookups: NameLookups::default(),
            memory,
            settled: VecDeque::new(),
        }
    }

    /// Sends a datagram and returns true, or false where it waits for its name.
    pub(crate) fn send(
        &mut self,
        route: &Arc<Route>,
        to: &Destination,
        payload: &[u8],
    ) -> Result<bool, DatagramError> {
        self.send_at(clock::now(), route, to, payload)
    }

    pub(super) fn send_at(
        &mut self,
        now: Time,
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
            Host::Address(address) => {
                self.send_to(now, (route, to), *address, payload).map(|()| true)
            }
            Host::Name(name) => match self.names.remove(name) {
                Some(named) => {
                    self.send_by_name(now, (route, to), name, named, payload).map(|()| true)
                }
                None => self.wait_for(route, to, name, payload).map(|()| false),
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
                    let named = ResolvedName::new(clock::now(), addresses, nth);
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
            let ended = self.lookups.poll_ended(cx);
            if any || ended || !self.settled.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub(crate) fn receive(&mut self) -> Option<Result<Received, DatagramError>> {
        while self.settled.is_empty()
            && let Some(ended) = self.lookups.take_ended()
        {
            self.on_lookup(ended);
        }
        if let Some(settled) = self.settled.pop_front() {
            return Some(settled);
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

    /// The datagram waits for the name, which is looked up.
    fn wait_for(
        &mut self,
        route: &Arc<Route>,
        to: &Destination,
        name: &str,
        payload: &[u8],
    ) -> Result<(), DatagramError> {
        let exhausted = |why: &str| {
            DatagramError::undelivered(FailureKind::Exhausted, format!("{name}: {why}"))
        };
        let memory = self.memory.reserve(payload.len());
        let memory = memory.ok_or_else(|| exhausted("no memory for datagrams that wait for it"))?;
        let asker = self.client.asker();
        let waiting = self.lookups.begin(&self.config, name, asker);
        let waiting = waiting.ok_or_else(|| exhausted("too many names are being asked for"))?;
        let (route, to, payload) = (Arc::clone(route), to.clone(), payload.to_vec());
        waiting.push_back(WaitingDatagram { route, to, payload, _memory: memory });
        if waiting.len() > MOST_WAITING {
            drop(waiting.pop_front());
            self.config.shared.udp.count_dropped(DropReason::Undelivered);
        }
        Ok(())
    }

    /// A lookup has ended: what waited for it is sent, or a name in use has its addresses of now.
    fn on_lookup(&mut self, EndedLookup { name, found, datagrams }: EndedLookup) {
        let now = clock::now();
        if let (Ok(addresses), Some(named)) = (&found, self.names.get_mut(&name)) {
            named.on_addresses(now, addresses.clone());
        }
        for WaitingDatagram { route, to, payload, .. } in datagrams {
            let named = match (self.names.remove(&name), &found) {
                (Some(named), _) => Ok(named),
                (None, Ok(addresses)) => Ok(ResolvedName::new(now, addresses.clone(), 0)),
                (None, Err(failure)) => Err(DatagramError::Undelivered(failure.clone())),
            };
            let sent = named
                .and_then(|named| self.send_by_name(now, (&route, &to), &name, named, &payload));
            self.settled.push_back(sent.map(|()| Received::Sent(payload.len())));
        }
    }

    /// Sends to the address in use, or to the next one that is permitted and works.
    fn send_by_name(
        &mut self,
        now: Time,
        (route, to): (&Route, &Destination),
        name: &str,
        mut named: ResolvedName,
        payload: &[u8],
    ) -> Result<(), DatagramError> {
        let at = SocketAddr::new(named.address(), to.port);
        named.on_sending(now, self.peers.has_answered(at));
        // beside what is sent; where there is no room, the next datagram asks
        if named.is_due(now, self.peers.unanswered_since(at))
            && self.lookups.begin(&self.config, name, self.client.asker()).is_some()
        {
            named.on_asked(now);
        }
        let mut last = None;
        for _ in 0..named.count() {
            match self.send_to(now, (route, to), named.address(), payload) {
                Ok(()) => {
                    self.names.insert(name.to_owned(), named);
                    return Ok(());
                }
                Err(on_error) => last = last.or(Some(on_error)),
            }
            named.advance();
        }
        let none = format!("{name} has no address");
        Err(last.unwrap_or_else(|| DatagramError::undelivered(FailureKind::NoName, none)))
    }

    fn send_to(
        &mut self,
        now: Time,
        (route, to): (&Route, &Destination),
        address: IpAddr,
        payload: &[u8],
    ) -> Result<(), DatagramError> {
        let at = SocketAddr::new(address, to.port);
        // a flow of datagrams would ask the kernel for each of them
        let is_decided = self.peers.is_permitted(now, at, &to.host);
        if !is_decided {
            self.check_address(route, to, address)?;
        }
        let undelivered = |error: io::Error| {
            DatagramError::Undelivered(Failure::io(&format!("no datagram to {at}"), &error))
        };
        let socket = self.socket(&route.leg, at.is_ipv6()).map_err(undelivered)?;
        send(socket, payload, at).map_err(undelivered)?;
        if let Some(forgotten) = self.peers.on_sent(now, at) {
            self.names.retain(|named| named.address() != forgotten.ip());
        }
        if !is_decided {
            self.peers.permit(now, at, &to.host);
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
                    DatagramOwner::Client(address, _) | DatagramOwner::Forwarded(address, ..) => {
                        (*address).into()
                    }
                    DatagramOwner::Peer(name, ..) => shared.resources.peers.get(name).source(),
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
