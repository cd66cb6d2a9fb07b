//! UDP ASSOCIATE of SOCKS5 (RFC 1928 §7): datagrams between one client and whom it speaks to, for as long as
//! its TCP connection stands.
//!
//! ```text
//! client ── header + bytes ──▶ this association's port ─▶ rules, route ─▶ a way out ── bytes ──▶ destination
//!        ◀─ header + bytes ──                                             [`Way`]    ◀─ bytes ──
//! ```
//! Whose datagrams are taken, and what is counted, stands here; where one goes and who may answer is the way
//! out's: [`direct`] from this machine, or [`through`] the tunnel to another relay, as the route of each datagram
//! says. What comes out of a tunnel goes the same ways ([`door`]).
//!
//! Nothing waits for anything: what cannot go at once is lost, as it could be anywhere else on its way.

mod counts;
mod direct;
mod door;
mod peers;
mod through;
mod way;

pub(crate) use counts::Counts;
pub(crate) use door::Served;

use crate::destination::Destination;
use crate::failure::{Failure, Kind};
use crate::incoming::{Incoming, close_gently, is_transient};
use crate::means::with_scratch;
use crate::opening::{FOR_A_DESCRIPTOR, gave_way};
use crate::registry::{Protocol, State};
use crate::resources::Spare;
use crate::seldom::Seldom;
use crate::session::{LogEntry, Session};
use crate::socks::{self, Reply};
use counts::{Counted, Loss};
use ekiden_linux::clock;
use ekiden_model::quota::Direction;
use ekiden_model::units::Time;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, UdpSocket};
use way::{Lost, Received, Way, Whose};

/// Datagrams of one side before the other has its turn.
const IN_A_ROW: usize = 32;

/// An association, from the answer to its end.
struct Association<'a> {
    session: &'a Session,
    port: UdpSocket,
    /// From where the client sends: its first datagram says it.
    client: Option<SocketAddr>,
    way: Way,
    counted: Counted,
    /// Why the first that was lost was lost.
    first_loss: Option<String>,
}

/// Serves an association to its end.
pub(crate) async fn associate(session: &Session, incoming: Incoming) {
    let mut entry = session.nothing(Protocol::Udp);
    let (mut association, bound, _place) = match Association::open(session).await {
        Ok(opened) => opened,
        Err((reply, failure)) => return refuse(session, entry, reply, &failure).await,
    };
    let target = format!("UDP at {bound}");
    entry = LogEntry { target: Some(target.clone()), status: Some(0), ..entry };
    session.registered.begin(Protocol::Udp, target);
    if session.answer(&socks::write_reply(Reply::Succeeded, bound)).await.is_err() {
        return session.log(&entry, "the client's connection broke");
    }
    session.registered.set_state(State::Relaying);
    // what a client says on it from now on means nothing
    drop(incoming);
    let why = association.run().await;
    let first = association.first_loss.take();
    session.log(&entry, &association.counted.in_words(&why, first.as_deref()));
    session.registered.set_state(State::Closing);
    drop(association);
    close_gently(&session.client).await;
}

async fn refuse(session: &Session, mut entry: LogEntry, reply: Reply, failure: &Failure) {
    static SAID: Seldom = Seldom::new();
    if SAID.is_due() {
        tracing::warn!(client = %session.address, "UDP ASSOCIATE refused: {failure}");
    }
    entry.status = Some(reply as u16);
    session.failed(&entry, failure);
    session.last_words(&socks::write_reply(reply, ([0, 0, 0, 0], 0).into())).await;
}

impl<'a> Association<'a> {
    /// A port for the client, where it may have one.
    async fn open(session: &'a Session) -> Result<(Self, SocketAddr, Spare), (Reply, Failure)> {
        let (world, means) = (&session.world, &session.world.means);
        let settings = world.settings.udp;
        let not_supported =
            |text: String| (Reply::CommandNotSupported, Failure::new(Kind::Denied, text));
        let no_room = |text: String| (Reply::GeneralFailure, Failure::new(Kind::Exhausted, text));
        if settings.associations == 0 {
            return Err(not_supported("it is switched off (udp.associations = 0)".to_owned()));
        }
        if !world.carries_datagrams() {
            let text =
                "no route leads to a destination directly, and upstream proxies carry no datagrams";
            return Err(not_supported(text.to_owned()));
        }
        let counted = means.udp.begin(settings.associations.into()).ok_or_else(|| {
            no_room(format!("there are {} associations already", settings.associations))
        })?;
        let place = means.resources.make_room().ok_or_else(|| {
            no_room(
                "all connections are at work, and an association takes the places of two"
                    .to_owned(),
            )
        })?;
        let mut at = session.client.local_addr().map_err(|error| no_room(error.to_string()))?;
        at.set_port(0);
        let until = clock::now() + FOR_A_DESCRIPTOR;
        let port = loop {
            match UdpSocket::bind(at).await {
                Ok(port) => break port,
                Err(error) if gave_way(means, until, &error).await => {}
                Err(error) => return Err(no_room(format!("no UDP port on {}: {error}", at.ip()))),
            }
        };
        let bound = port.local_addr().map_err(|error| no_room(error.to_string()))?;
        let whose = Whose::Client(session.address.ip(), session.registered.entry.member());
        let way = Way::new(Arc::clone(world), whose, 0);
        let association = Self { session, port, client: None, way, counted, first_loss: None };
        Ok((association, bound, place))
    }

    /// Until it ends; why, in words.
    async fn run(&mut self) -> String {
        enum Turn {
            Client,
            Way,
            Ended(String),
        }
        let idle = self.session.world.settings.udp.idle;
        let mut last = clock::now();
        loop {
            // what is not the client's may come without a pause
            if clock::now() >= last + idle {
                return format!("silent for {idle}");
            }
            let turn = tokio::select! {
                ended = until_closed(&self.session.client) => Turn::Ended(ended),
                ready = self.port.readable() => match ready {
                    Ok(()) => Turn::Client,
                    Err(error) => Turn::Ended(format!("its port broke: {error}")),
                },
                () = self.way.ready() => Turn::Way,
                () = wait(last + idle) => continue,
            };
            let moved = match turn {
                Turn::Ended(why) => return why,
                Turn::Client => self.hear_client(),
                Turn::Way => self.hear_way(),
            };
            if moved {
                last = clock::now();
            }
        }
    }

    /// Passes on what the client has sent; whether anything came.
    fn hear_client(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..IN_A_ROW {
            let taken = with_scratch(|scratch| {
                let (n, from) = self.port.try_recv_from(scratch)?;
                Ok::<_, io::Error>(self.one_from_client(from, scratch.get(..n).unwrap_or_default()))
            });
            match taken {
                Ok(ours) => moved |= ours,
                // an answer of the network to what was sent to the client, and no datagram
                Err(error) if !is_transient(&error) => {}
                Err(_) => break,
            }
        }
        moved
    }

    /// Whether it was the client's.
    fn one_from_client(&mut self, from: SocketAddr, datagram: &[u8]) -> bool {
        if same(from.ip()) != same(self.session.address.ip()) {
            self.lose(Loss::Foreign, || format!("{from} is not the client"));
            return false;
        }
        let known = *self.client.get_or_insert(from);
        if known != from {
            self.lose(Loss::Foreign, || {
                format!("the client sends from {known}, and this came from {from}")
            });
            return false;
        }
        match socks::read_datagram(datagram) {
            Ok((to, at)) => self.send(&to, datagram.get(at..).unwrap_or_default()),
            Err(bad) => self.lose(Loss::Malformed, || bad.to_string()),
        }
        true
    }

    /// Whether the household's limits let a datagram pass; if not, it is lost.
    fn may_go(&mut self, direction: Direction, bytes: usize) -> bool {
        let Some(member) = self.session.share() else { return true };
        let passes = member.datagram(direction, bytes) == Some(true);
        if !passes {
            self.lose(Loss::Limited, || "it is over its household's limits".to_owned());
        }
        passes
    }

    fn send(&mut self, to: &Destination, payload: &[u8]) {
        if !self.may_go(Direction::Up, payload.len()) {
            return;
        }
        match self.way.send(to, payload) {
            Ok(true) => self.gone(payload.len()),
            // it waits for its name
            Ok(false) => {}
            Err(lost) => self.lost(lost),
        }
    }

    fn gone(&mut self, bytes: usize) {
        self.counted.up();
        self.session.registered.moved(clock::now(), bytes as u64, 0, 0);
    }

    /// Passes on what came back; whether anything did.
    fn hear_way(&mut self) -> bool {
        let mut moved = false;
        for _ in 0..IN_A_ROW {
            let Some(received) = self.way.receive() else { break };
            match received {
                Ok(Received::Came(from, payload)) => {
                    moved = true;
                    self.deliver(from, &payload);
                }
                Ok(Received::Sent(bytes)) => self.gone(bytes),
                Err(lost) => self.lost(lost),
            }
        }
        moved
    }

    fn deliver(&mut self, from: SocketAddr, payload: &[u8]) {
        // there is nobody to answer before it has spoken
        let Some(client) = self.client else { return };
        if !self.may_go(Direction::Down, payload.len()) {
            return;
        }
        let datagram = [&socks::write_datagram_head(from), payload].concat();
        match send(&self.port, &datagram, client) {
            Ok(_) => {
                self.counted.down();
                self.session.registered.moved(clock::now(), 0, payload.len() as u64, 0);
            }
            Err(error) => self.lose(Loss::Undelivered, || format!("{client}: {error}")),
        }
    }

    fn lost(&mut self, lost: Lost) {
        let (loss, failure) = match lost {
            Lost::Refused(failure) => (Loss::Refused, failure),
            Lost::Undelivered(failure) => (Loss::Undelivered, failure),
        };
        self.lose(loss, || failure.text);
    }

    fn lose(&mut self, loss: Loss, why: impl FnOnce() -> String) {
        self.counted.lost(loss);
        self.first_loss.get_or_insert_with(why);
    }
}

/// Sends at once or not at all. The kernel is asked, and not the runtime, which knows of a new socket only
/// later that it can be written to.
fn send(socket: &UdpSocket, datagram: &[u8], to: SocketAddr) -> io::Result<()> {
    socket2::SockRef::from(socket).send_to(datagram, &to.into()).map(|_| ())
}

/// An IPv4 address that is wrapped in an IPv6 one is that address.
fn same(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

async fn wait(until: Time) {
    // beyond a day it is looked again
    let longest = Duration::from_secs(86_400);
    tokio::time::sleep(Duration::from(until.since(clock::now())).min(longest)).await;
}

/// Until the client's connection ends; what comes on it meanwhile is thrown away.
async fn until_closed(stream: &TcpStream) -> String {
    loop {
        let read = match stream.readable().await {
            Ok(()) => with_scratch(|scratch| stream.try_read(scratch)),
            Err(error) => Err(error),
        };
        match read {
            Ok(0) => return "closed".to_owned(),
            Ok(_) => {}
            Err(error) if is_transient(&error) => {}
            Err(error) => return format!("the client's connection broke: {error}"),
        }
    }
}
