//! One client's connection: from its first byte to the front door it knocks at, and the tunnel that
//! may follow.

use crate::access::Decider;
use crate::access_log::{AccessLog, Record, timestamp};
use crate::accounts::Member;
use crate::chain::{Opened, Purpose, Traveller, open};
use crate::destination::Destination;
use crate::failure::Failure;
use crate::households::{self, NotAdmitted};
use crate::http::exchange::Upgraded;
use crate::http::{forward, reply};
use crate::incoming::{Incoming, close_gently, write_all};
use crate::registry::{Entry, Protocol, Registered, State, locked};
use crate::relay::{Ended, Side, relay};
use crate::resources::{Managed, Resources, Turned, turn_away};
use crate::seen_leg::SeenLeg;
use crate::seldom::Seldom;
use crate::socks_door;
use crate::tls_door;
use crate::tunnel_door;
use crate::tunnels::{Arrival, Asked, FarAnswer};
use crate::world::{NamedLeg, Route, World, limits};
use ekiden_linux::answer::{Outcomes, Stage};
use ekiden_linux::{clock, socket};
use ekiden_model::lifetime::{Expired, Limits};
use ekiden_model::quota::Direction;
use ekiden_model::units::{Span, Time};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// A client's connection and all it needs.
pub(crate) struct Session {
    pub(crate) world: Arc<World>,
    pub(crate) registered: Registered,
    pub(crate) client: Arc<TcpStream>,
    /// The client's leg.
    pub(crate) managed: Managed,
    pub(crate) address: SocketAddr,
    /// The flow it is the outer end of, where it came out of a tunnel.
    pub(crate) arrival: Option<Arc<Arrival>>,
    /// Its place in its household.
    pub(crate) place: Mutex<Place>,
    /// Whether it came within TLS.
    pub(crate) sealed: bool,
    /// Through how many tunnels it has come.
    pub(crate) hops: u8,
    pub(crate) log: Arc<AccessLog>,
    pub(crate) stopping: watch::Receiver<bool>,
}

/// A connection's place in its household.
#[derive(Debug, Default)]
pub(crate) enum Place {
    /// It has not asked for one.
    #[default]
    Unasked,
    /// It has one, as a connection of this account, or of none. `None`: nothing limits it.
    Taken(Option<i64>, Option<Arc<households::Member>>),
}

/// A tunnel that is open at both ends.
pub(crate) struct Tunnel {
    pub(crate) upstream: Arc<TcpStream>,
    pub(crate) managed: Managed,
    pub(crate) early_up: Vec<u8>,
    pub(crate) early_down: Vec<u8>,
    pub(crate) limits: Limits,
    pub(crate) entry: LogEntry,
    /// Why it broke, where another relay knows.
    pub(crate) answer: Option<Arc<FarAnswer>>,
}

/// A way to a destination that was opened.
pub(crate) struct Way {
    pub(crate) opened: Opened,
    pub(crate) seen: SeenLeg,
    pub(crate) managed: Managed,
    pub(crate) route: Arc<Route>,
}

/// What the access log will say of a request that is under way.
pub(crate) struct LogEntry {
    pub(crate) protocol: Protocol,
    pub(crate) method: Option<String>,
    pub(crate) target: Option<String>,
    pub(crate) through: Arc<[String]>,
    pub(crate) status: Option<u16>,
    pub(crate) begun: Time,
    /// The connection's counters when it began.
    pub(crate) before: (u64, u64),
}

impl LogEntry {
    /// One that begins now, on this connection.
    pub(crate) fn new(protocol: Protocol, registered: &Registered) -> Self {
        Self {
            protocol,
            method: None,
            target: None,
            through: Arc::new([]),
            status: None,
            begun: clock::now(),
            before: registered.bytes(),
        }
    }

    /// Writes its line.
    pub(crate) fn write(&self, log: &AccessLog, registered: &Registered, result: &str) {
        let (up, down) = registered.bytes();
        let seconds = clock::now().since(self.begun).as_micros() as f64 / 1e6;
        tracing::debug!(
            connection = registered.entry.id,
            protocol = self.protocol.name(),
            target = self.target.as_deref().unwrap_or("-"),
            status = self.status,
            up = up - self.before.0,
            down = down - self.before.1,
            seconds,
            "ended: {result}"
        );
        if log.is_off() {
            return;
        }
        let member = registered.entry.member();
        log.write(&Record {
            time: timestamp(),
            connection: registered.entry.id,
            client: registered.entry.client,
            account: member.as_ref().map(|member| member.name.as_str()),
            protocol: self.protocol.name(),
            method: self.method.as_deref(),
            target: self.target.as_deref(),
            through: &self.through,
            status: self.status,
            bytes_up: up - self.before.0,
            bytes_down: down - self.before.1,
            seconds,
            result,
        });
    }
}

/// Serves one client to the end.
pub(crate) async fn serve(session: Session) {
    let client_leg = Arc::clone(&session.world.client_leg);
    let outcomes = client_leg.leg.socket.apply(session.client.as_fd(), Stage::Accepted);
    session.registered.set_client_leg(session.seen(client_leg, outcomes));
    // with accounts, whom no rule admits may still log in
    let admitted = match session.placed() {
        Ok(None) if session.world.directory.is_none() => {
            session.decider(None).client().map_err(Failure::from)
        }
        placed => placed.map(|member| session.belongs_to(member)),
    };
    if let Err(denied) = admitted {
        session.registered.count_refused();
        static SAID: Seldom = Seldom::new();
        if SAID.is_due() {
            let text = "; more like it are counted in the status, and in the log at level debug";
            tracing::warn!(client = %session.address, "refused: {denied}{text}");
        } else {
            tracing::debug!(client = %session.address, "refused: {denied}");
        }
        if let Some(arrival) = &session.arrival {
            return arrival.deny(&denied.text);
        }
        let text =
            reply::refusal(403, &session.world.settings.name, &denied.to_string(), false, false);
        return session.last_words(&text).await;
    }
    // who may still log in takes a place when it is known whose
    let is_known = session.world.directory.is_none() || session.registered.entry.member().is_some();
    if is_known && let Err(not) = session.join_household() {
        return session.not_admitted(&not).await;
    }
    // each stage is in a box of its own and gone when it is over: an idle tunnel holds none of them
    if let Some(tunnel) = session.front_door().await {
        session.tunnel(tunnel).await;
    }
}

impl Session {
    /// The decisions about this client as one of a household, or of none.
    pub(crate) fn decider<'a>(&'a self, member: Option<&'a Member>) -> Decider<'a> {
        let access = &self.world.settings.access;
        let decider = match &self.arrival {
            // its connection comes from loopback, and nothing behind it does
            Some(arrival) => access.decider_for_relay(arrival.relay()),
            None => access.decider(self.address.ip()),
        };
        decider.of(member)
    }

    /// Whether the rules let this client reach `to` where that is at `address`, or wherever a proxy finds it.
    pub(crate) fn may_reach(&self, to: &Destination, address: Option<IpAddr>) -> bool {
        let member = self.registered.entry.member();
        let decider = self.decider(member.as_deref());
        match address {
            None => decider.named(to).is_ok(),
            Some(address) => decider.unresolved(to).is_ok() && decider.address(to, address).is_ok(),
        }
    }

    /// Takes its place in the household whose account it is of, or that claims it by where it comes from. It stays
    /// there until it is another account's: then it goes to that one, and counts as a connection that comes.
    pub(crate) fn join_household(&self) -> Result<(), NotAdmitted> {
        let (entry, households) = (&self.registered.entry, &self.world.means.households);
        let member = entry.member();
        let whose = member.as_ref().map(|member| member.id);
        let mut place = locked(&self.place);
        if matches!(&*place, Place::Taken(before, _) if *before == whose) {
            return Ok(());
        }
        *place = Place::Unasked;
        let share = match member {
            Some(member) => Some(households.admit_known(&member.name, Some(entry))?),
            None => {
                let relay = self.arrival.as_ref().map(|arrival| arrival.relay());
                households.receive(self.address.ip(), relay, Some(entry))?
            }
        };
        *locked(&entry.share) = share.as_ref().map(Arc::downgrade).unwrap_or_default();
        *place = Place::Taken(whose, share);
        Ok(())
    }

    /// Its place in the household whose bytes its bytes are; `None`: nothing limits them.
    pub(crate) fn share(&self) -> Option<Arc<households::Member>> {
        match &*locked(&self.place) {
            Place::Taken(_, share) => share.clone(),
            Place::Unasked => None,
        }
    }

    /// The place of a connection whose client goes on within another, whose it is from now on.
    fn hand_over(&self, inner: &Arc<Entry>) -> Place {
        let place = std::mem::take(&mut *locked(&self.place));
        if let Place::Taken(_, Some(share)) = &place {
            share.seat(inner);
            *locked(&inner.share) = Arc::downgrade(share);
            *locked(&self.registered.entry.share) = Weak::new();
        }
        place
    }

    /// Waits until so many bytes of payload may go.
    pub(crate) async fn pass(&self, direction: Direction, bytes: usize) -> io::Result<()> {
        match self.share() {
            Some(share) => share.pass(direction, bytes).await,
            None => Ok(()),
        }
    }

    async fn not_admitted(&self, not: &NotAdmitted) {
        self.registered.count_refused();
        static SAID: Seldom = Seldom::new();
        if SAID.is_due() {
            let text = "; more like it are counted in the status, and in the log at level debug";
            tracing::warn!(client = %self.address, "refused: {not}{text}");
        } else {
            tracing::debug!(client = %self.address, "refused: {not}");
        }
        if let Some(arrival) = &self.arrival {
            return arrival.deny(&not.to_string());
        }
        let (status, retry_after) = not.status();
        let turned = Turned { status, text: not.to_string(), retry_after };
        turn_away(&self.client, &self.world.settings.name, &turned).await;
    }

    /// Reads the first bytes and leads to the door they ask for.
    async fn front_door(&self) -> Option<Tunnel> {
        if let Some(arrival) = &self.arrival {
            return Box::pin(tunnel_door::serve(self, arrival)).await;
        }
        let mut incoming = Incoming::new(Arc::clone(&self.client), Vec::new());
        let limit = self.world.settings.timeouts.first_byte;
        match self.unless_stopping(within(limit, incoming.fill(usize::MAX))).await {
            Some(Ok(n)) if n > 0 => {}
            _ => return None,
        }
        match incoming.bytes().first() {
            Some(5) => Box::pin(socks_door::socks5(self, incoming)).await,
            Some(4) => Box::pin(socks_door::socks4(self, incoming)).await,
            Some(&tls_door::FIRST_BYTE) if self.world.certificate.is_some() && !self.sealed => {
                Box::pin(tls_door::unseal(self, incoming)).await;
                None
            }
            _ => forward::serve(self, incoming).await,
        }
    }

    /// What the same client says within TLS, which comes out of `stream`. Its place in its household goes to the
    /// first of them; others take their own.
    pub(crate) fn within(&self, stream: TcpStream) -> Self {
        let client = Arc::new(stream);
        let managed = self.resources().manage(&client, &self.world.client_leg.leg, None);
        let registered = self.registered.within();
        registered.entry.legs[0].store(managed.id, Relaxed);
        let place = Mutex::new(self.hand_over(&registered.entry));
        Self {
            world: Arc::clone(&self.world),
            registered,
            client,
            managed,
            address: self.address,
            arrival: None,
            place,
            sealed: true,
            hops: 0,
            log: Arc::clone(&self.log),
            stopping: self.stopping.clone(),
        }
    }

    /// Who goes to `to`.
    fn traveller<'a>(&'a self, to: &'a Destination, member: Option<&'a Member>) -> Traveller<'a> {
        let client = self.address.ip();
        // a mark is for tunnels alone
        let dscp = match self.world.means.tunnels() {
            Some(_) if self.arrival.is_none() => socket::received_dscp(self.client.as_fd()),
            _ => None,
        };
        let decider = self.decider(member);
        Traveller { decider, asked: Asked { to, client, hops: self.hops, dscp } }
    }

    /// Opens the way to `to`, and lays the route's profile over the client's leg.
    pub(crate) async fn open(&self, to: &Destination, purpose: Purpose) -> Result<Way, Failure> {
        let route = Arc::clone(self.world.route(to));
        let member = self.registered.entry.member();
        let traveller = self.traveller(to, member.as_deref());
        let opened = open(&self.world, &route, traveller, purpose).await?;
        let seen = SeenLeg::new(
            &opened.stream,
            opened.peer.ip(),
            Arc::clone(&opened.leg),
            vec![opened.outcomes.clone()],
        );
        let managed = self.resources().manage(&opened.stream, &opened.leg.leg, Some(opened.peer));
        self.go_by(&route, &opened.through, &seen, &managed);
        tracing::debug!(
            connection = self.registered.entry.id,
            client = %self.address,
            destination = %to,
            through = ?opened.through,
            leg = %opened.leg.name,
            "open"
        );
        Ok(Way { opened, seen, managed, route })
    }

    /// What the connection is from now on: its upstream leg, and the route's profile over the client's.
    pub(crate) fn go_by(
        &self,
        route: &Route,
        through: &Arc<[String]>,
        seen: &SeenLeg,
        managed: &Managed,
    ) {
        self.registered.set_upstream_leg(Arc::clone(through), Some(seen.clone()));
        self.registered.set_route(&route.why);
        self.registered.entry.legs[1].store(managed.id, Relaxed);
        // a kept-alive connection may come back from another route
        if !self.registered.has_client_leg(&route.client_leg) {
            let leg = Arc::clone(&route.client_leg);
            let outcomes = leg.leg.socket.apply(self.client.as_fd(), Stage::Accepted);
            self.managed.become_other(&self.client, &leg.leg);
            self.registered.set_client_leg(self.seen(leg, outcomes));
        }
        self.resources().pair(self.managed.id, managed.id);
    }

    /// The client's leg, as the register sees it.
    fn seen(&self, leg: Arc<NamedLeg>, outcomes: Outcomes) -> SeenLeg {
        // the path of a connection within this machine is not its client's
        let at = if self.sealed { Ipv4Addr::LOCALHOST.into() } else { self.address.ip() };
        SeenLeg::new(&self.client, at, leg, vec![outcomes])
    }

    pub(crate) fn resources(&self) -> &Arc<Resources> {
        &self.world.means.resources
    }

    /// The tunnel over what was opened.
    pub(crate) fn tunnel_over(&self, way: Way, early_up: Vec<u8>, mut entry: LogEntry) -> Tunnel {
        let Way { opened, managed, route, .. } = way;
        entry.through = opened.through;
        Tunnel {
            upstream: opened.stream,
            managed,
            early_up,
            early_down: opened.early,
            limits: limits(&route.client_leg.leg, &opened.leg.leg),
            entry,
            answer: opened.answer,
        }
    }

    /// The tunnel over a connection that switched protocols.
    pub(crate) fn upgraded(&self, upgraded: Upgraded, entry: LogEntry) -> Tunnel {
        let Upgraded { mut origin, managed, early_up, limits, answer } = upgraded;
        let early_down = origin.take();
        Tunnel { upstream: origin.stream, managed, early_up, early_down, limits, entry, answer }
    }

    async fn tunnel(&self, tunnel: Tunnel) {
        // its leg is managed to the end
        let Tunnel { upstream, managed: _managed, early_up, early_down, limits, entry, answer } =
            tunnel;
        let client = Arc::clone(&self.client);
        let means = &self.world.means;
        let (registered, share) = (&self.registered, self.share());
        let share = share.as_ref();
        let ended =
            relay(client, upstream, [early_up, early_down], limits, registered, share, means).await;
        let result = match &ended {
            Ended::Closed if self.registered.entry.evicted.load(Relaxed) => {
                "silent, and closed to make room".to_owned()
            }
            Ended::Closed => "closed".to_owned(),
            Ended::Reset(_, error) if error.kind() == io::ErrorKind::QuotaExceeded => {
                error.to_string()
            }
            Ended::Reset(Side::Client, error) => format!("the client's connection broke: {error}"),
            Ended::Reset(Side::Upstream, error) => {
                let there = answer.and_then(|answer| answer.failure());
                let why = there.map_or_else(|| error.to_string(), |failure| failure.text);
                format!("the destination's connection broke: {why}")
            }
            Ended::Expired(Expired::Idle) => format!("silent for {}", limits.idle),
            Ended::Expired(Expired::HalfClosed) => {
                format!("half-closed and silent for {}", limits.half_closed)
            }
        };
        self.log(&entry, &result);
    }

    /// The log entry of a request that begins now.
    pub(crate) fn begin(
        &self,
        protocol: Protocol,
        destination: &Destination,
        method: Option<String>,
        target: String,
    ) -> LogEntry {
        self.registered.begin(protocol, destination.to_string());
        LogEntry { method, target: Some(target), ..self.nothing(protocol) }
    }

    /// A log entry for something that never became a request.
    pub(crate) fn nothing(&self, protocol: Protocol) -> LogEntry {
        self.registered.set_protocol(protocol);
        LogEntry::new(protocol, &self.registered)
    }

    /// Counts and logs a failure.
    pub(crate) fn failed(&self, entry: &LogEntry, failure: &Failure) {
        if failure.is_refusal() {
            self.registered.count_refused();
        } else {
            self.registered.count_failed();
        }
        self.log(entry, &failure.text);
    }

    /// Writes the request's line in the access log.
    pub(crate) fn log(&self, entry: &LogEntry, result: &str) {
        entry.write(&self.log, &self.registered, result);
    }

    /// `work`, unless the relay is stopping, in which case `None` at once.
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

    /// Writes an answer of the relay's own. A client that takes nothing is not waited for without end:
    /// it may have left earlier answers unread.
    pub(crate) async fn answer(&self, bytes: &[u8]) -> io::Result<()> {
        within(self.world.client_leg.leg.idle_timeout, write_all(&self.client, bytes)).await
    }

    /// The same, and nothing comes after it.
    pub(crate) async fn last_words(&self, bytes: &[u8]) {
        if self.answer(bytes).await.is_ok() {
            close_gently(&self.client).await;
        }
    }

    /// Marks the connection as waiting for its next request.
    pub(crate) fn set_idle(&self) {
        self.registered.set_state(State::Idle);
        self.registered.set_upstream_leg(Arc::new([]), None);
        self.registered.entry.legs[1].store(0, Relaxed);
    }
}

/// `work` within `limit`, or an error of kind `TimedOut`.
pub(crate) async fn within<T>(
    limit: Span,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut));
    tokio::time::timeout(limit.into(), work).await.unwrap_or_else(late)
}
