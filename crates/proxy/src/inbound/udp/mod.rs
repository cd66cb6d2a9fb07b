//! UDP ASSOCIATE of SOCKS5 (RFC 1928 §7): datagrams between one client and its destinations, as
//! long as the client's TCP connection lasts.
//!
//! ```text
//! client ── header + bytes ──▶ association's port ─▶ rules, route ─▶ DatagramPaths ── bytes ──▶
//! destination
//!        ◀─ header + bytes ──                                                      ◀─ bytes ──
//! ```
//! This module decides whose datagrams are accepted, and counts them. [`DatagramPaths`] sends them
//! directly or through a peer's tunnel, and decides who may answer; [`capsules`] and [`from_tunnel`] use
//! it, too.
//! Nothing waits: a datagram that cannot be sent at once is dropped.

pub(crate) mod capsules;
mod client_port;
pub(crate) mod diverted;
pub(crate) mod flows;
pub(crate) mod forward;
mod from_tunnel;

pub(crate) use crate::inbound::udp::from_tunnel::PacketFlow;

use crate::destination::Destination;
use crate::error::{Failure, FailureKind};
use crate::inbound::udp::client_port::ClientPort;
use crate::observe::access_log::CutBy;
use crate::observe::log_throttle::LogThrottle;
use crate::observe::registry::{ConnectionState, Protocol};
use crate::observe::udp_counts::{DropReason, Holder, UdpTally};
use crate::outbound::syn_race::{DESCRIPTOR_WAIT, made_room};
use crate::outbound::udp::route::{DatagramError, DatagramOwner, DatagramPaths, Received};
use crate::outbound::udp::{IN_A_ROW, send};
use crate::policy::quota::AccountConnection;
use crate::resources::DescriptorReserve;
use crate::session::{LogEntry, Session};
use crate::transfer::buffered::BufferedStream;
use crate::transfer::scratch::with_scratch;
use crate::transfer::transient::is_transient;
use crate::wire::socks::{self, Reply};
use ekiden_linux::host::clock;
use ekiden_model::resources::associations::NoAssociation;
use ekiden_model::resources::quota::Direction;
use ekiden_model::units::Time;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;

struct Association<'a> {
    session: &'a Session,
    entry: &'a mut LogEntry,
    port: UdpSocket,
    /// Where the client sends from.
    client: ClientPort,
    way: DatagramPaths,
    tally: UdpTally,
    /// Bytes that came on the TCP connection.
    discarded: usize,
}

/// Bytes that the TCP connection of an association may bring. They have no meaning (RFC 1928 §7).
const MOST_DISCARDED: usize = 64 * 1024;

pub(crate) async fn associate(session: &Session, incoming: BufferedStream) {
    let mut entry = session.new_entry(Protocol::Udp);
    // bytes on the TCP connection have no meaning from now on
    session.count_moved(Direction::Up, incoming.bytes().len());
    drop(incoming);
    let (port, bound, tally, _place) = match open(session).await {
        Ok(opened) => opened,
        Err(failure) => return refuse(session, &mut entry, &failure).await,
    };
    let target = format!("UDP at {bound}");
    entry.target = Some(target.clone());
    session.registration.begin(Protocol::Udp, target);
    let answer = socks::write_reply(Reply::Succeeded, bound);
    if !session.answer_opened(&answer, (&mut entry, 0)).await {
        return;
    }
    session.registration.set_state(ConnectionState::Relaying);
    let way = paths(session);
    let (client, discarded) = (ClientPort::new(clock::now()), 0);
    let mut association =
        Association { session, entry: &mut entry, port, client, way, tally, discarded };
    let why = association.run().await;
    if session.is_cut_off() {
        return;
    }
    session.log(association.entry, &association.tally.in_words(&why));
    session.registration.set_state(ConnectionState::Closing);
    drop(association);
    session.close_gently().await;
}

async fn refuse(session: &Session, entry: &mut LogEntry, failure: &Failure) {
    let reply = match failure.kind {
        FailureKind::Denied => Reply::CommandNotSupported,
        _ => Reply::GeneralFailure,
    };
    static LOGGED: LogThrottle = LogThrottle::new();
    // a refusal has its own line
    if !failure.is_refusal() && LOGGED.is_due() {
        tracing::warn!(client = %session.address, "UDP ASSOCIATE refused: {failure}");
    }
    entry.status = Some(reply as u16);
    session.on_failure(entry, failure);
    session.send_and_close(&socks::write_reply(reply, ([0, 0, 0, 0], 0).into())).await;
}

/// The port of an association, its address, and its places.
async fn open(
    session: &Session,
) -> Result<(UdpSocket, SocketAddr, UdpTally, DescriptorReserve), Failure> {
    let (tally, place) = begin(session)?;
    let no_room = |text: String| Failure::new(FailureKind::Exhausted, text);
    let mut at = session.client.local_addr().map_err(|error| no_room(error.to_string()))?;
    at.set_port(0);
    let until = clock::now() + DESCRIPTOR_WAIT;
    let port = loop {
        match UdpSocket::bind(at).await {
            Ok(port) => break port,
            Err(error) if made_room(&session.config.shared, until, &error).await => {}
            Err(error) => return Err(no_room(format!("no UDP port on {}: {error}", at.ip()))),
        }
    };
    let bound = port.local_addr().map_err(|error| no_room(error.to_string()))?;
    Ok((port, bound, tally, place))
}

impl Drop for Association<'_> {
    fn drop(&mut self) {
        let tally = &self.tally;
        self.session.log_cut(self.entry, |why| tally.in_words(why));
    }
}

impl Association<'_> {
    async fn run(&mut self) -> String {
        enum Turn {
            Client,
            DatagramPaths,
            Ended(String),
        }
        let idle = self.session.config.settings.udp.idle;
        loop {
            // the client's datagrams alone prolong it: after as long, no destination may answer
            let until = self.client.heard() + idle;
            // packets from elsewhere may keep this loop busy
            if clock::now() >= until {
                return format!("silent for {idle}");
            }
            let turn = tokio::select! {
                ended = until_closed(self.session, self.entry, &mut self.discarded) => {
                    Turn::Ended(ended)
                }
                ready = self.port.readable() => match ready {
                    Ok(()) => Turn::Client,
                    Err(error) => Turn::Ended(format!("its port broke: {error}")),
                },
                () = self.way.ready() => Turn::DatagramPaths,
                () = self.tally.gives_way() => Turn::Ended(cut_by_relay(self.entry, GAVE_WAY)),
                () = wait(until) => continue,
            };
            match turn {
                Turn::Ended(why) => return why,
                Turn::Client => self.receive_from_client(),
                Turn::DatagramPaths => self.receive_from_outside(),
            }
        }
    }

    /// Forwards the client's datagrams.
    fn receive_from_client(&mut self) {
        for _ in 0..IN_A_ROW {
            let received = with_scratch(|scratch| {
                let (n, from) = self.port.try_recv_from(scratch)?;
                self.one_from_client(from, scratch.get(..n).unwrap_or_default());
                Ok::<_, io::Error>(())
            });
            match received {
                Err(error) if is_transient(&error) => break,
                // or an ICMP error about an earlier datagram to the client
                Ok(()) | Err(_) => {}
            }
        }
    }

    fn one_from_client(&mut self, from: SocketAddr, datagram: &[u8]) {
        if same(from.ip()) != same(self.session.address.ip()) {
            self.tally.on_dropped(DropReason::Foreign, || format!("{from} is not the client"));
            return;
        }
        let now = clock::now();
        if !self.client.may_send(now, from) {
            let known = self.client.known().unwrap_or(from);
            self.tally.on_dropped(DropReason::Foreign, || {
                format!("the client sends from {known}, and this came from {from}")
            });
            return;
        }
        let read = socks::read_datagram(datagram);
        self.client.on_datagram(now, from, read.is_ok());
        match read {
            Ok((to, at)) => self.send(&to, datagram, at),
            Err(bad) => self.tally.on_dropped(DropReason::Malformed, || bad.to_string()),
        }
    }

    fn within_limits(&mut self, direction: Direction, bytes: usize) -> bool {
        let share = self.session.share();
        within_limits(share.as_deref(), &mut self.tally, direction, bytes).unwrap_or_else(|| {
            self.tally.on_dropped(DropReason::Limited, over_limits);
            false
        })
    }

    /// Forwards what a datagram has behind its head, which counts: the name in it goes to a name server.
    fn send(&mut self, to: &Destination, datagram: &[u8], head: usize) {
        if !self.within_limits(Direction::Up, datagram.len()) {
            return;
        }
        let payload = datagram.get(head..).unwrap_or_default();
        match self.way.send(to, payload) {
            Ok(true) => self.on_sent(payload.len()),
            // waits for name resolution
            Ok(false) => {}
            Err(on_error) => self.on_dropped(Some(to), on_error),
        }
    }

    fn on_dropped(&mut self, to: Option<&Destination>, on_error: DatagramError) {
        if let DatagramError::Refused(failure) = &on_error {
            self.session.log_refused_datagram(to, failure);
        }
        drop_datagram(&mut self.tally, on_error);
    }

    fn on_sent(&mut self, bytes: usize) {
        self.tally.up();
        self.session.registration.moved(clock::now(), bytes as u64, 0, 0);
    }

    /// Forwards datagrams that came back.
    fn receive_from_outside(&mut self) {
        for _ in 0..IN_A_ROW {
            let Some(received) = self.way.receive() else { break };
            match received {
                Ok(Received::Came(from, payload)) => self.deliver(from, &payload),
                Ok(Received::Sent(bytes)) => self.on_sent(bytes),
                Err(on_error) => self.on_dropped(None, on_error),
            }
        }
    }

    fn deliver(&mut self, from: SocketAddr, payload: &[u8]) {
        // the client's port is unknown before its first datagram
        let Some(client) = self.client.known() else { return };
        let head = socks::write_datagram_head(from);
        if !self.within_limits(Direction::Down, head.len() + payload.len()) {
            return;
        }
        let datagram = [&head[..], payload].concat();
        match send(&self.port, &datagram, client) {
            Ok(_) => {
                self.tally.down();
                self.session.registration.moved(clock::now(), 0, payload.len() as u64, 0);
            }
            Err(error) => {
                self.tally.on_dropped(DropReason::Undelivered, || format!("{client}: {error}"))
            }
        }
    }
}

/// A client's place among the associations and among the connections. Fails where UDP is off (`Denied`) or full.
fn begin(session: &Session) -> Result<(UdpTally, DescriptorReserve), Failure> {
    let (config, shared) = (&session.config, &session.config.shared);
    if let Some(why) = config.why_no_datagrams() {
        return Err(Failure::new(FailureKind::Denied, why));
    }
    let no_room = |text: String| Failure::new(FailureKind::Exhausted, text);
    let (account, client) = (session.registration.entry.account(), session.address.ip());
    let holder = Holder::of(account.map(|account| account.id), client);
    let limits = config.association_limits();
    let tally = shared.udp.begin(limits, holder, true);
    let tally = tally.map_err(|why| no_association(why, limits.most))?;
    let place = shared.resources.make_room(client.into()).ok_or_else(|| {
        no_room("the connection limit is reached, and an association counts as two".to_owned())
    })?;
    Ok((tally, place))
}

/// A limit or a stop of this relay ends the flow of this entry. Returns why, for its line. Silence is a flow's own end.
fn cut_by_relay(entry: &mut LogEntry, why: impl Into<String>) -> String {
    entry.cut_by = Some(CutBy::Relay);
    why.into()
}

/// Why an association ended that another one took the place of.
const GAVE_WAY: &str =
    "its place went to another association, because all are in use (`associations` in [udp])";

fn no_association(why: NoAssociation, most: u64) -> Failure {
    let text = match why {
        NoAssociation::All => format!("the limit of {most} associations is reached"),
        NoAssociation::Unproven(part) => format!(
            "clients of forwarded UDP hold {part} of {most} associations, their part; raise `associations` in [udp]"
        ),
        NoAssociation::Open(open) => format!(
            "clients without an account hold {open} of {most} associations, and the others are kept for accounts; raise `associations` in [udp], or lower `pressure.accounts`"
        ),
        NoAssociation::Share(own) => format!(
            "{own} of {most} associations are held from here, a share; end one, or raise `associations` in [udp]"
        ),
    };
    Failure::new(FailureKind::Exhausted, text)
}

/// Whether an account's limits let a datagram pass, else it is dropped; `None`: none may any more. Words are left to
/// the caller, because a client that sends on costs nothing but this.
fn within_limits(
    share: Option<&AccountConnection>,
    tally: &mut UdpTally,
    direction: Direction,
    bytes: usize,
) -> Option<bool> {
    let Some(share) = share else { return Some(true) };
    let passes = share.datagram(direction, bytes);
    if passes == Some(false) {
        tally.on_dropped(DropReason::Limited, over_limits);
    }
    passes
}

/// The same for a flow that ends with its account's quota, which cuts it: `Err` says why none may pass any more.
fn within_limits_or_over(
    share: Option<&AccountConnection>,
    (tally, entry): (&mut UdpTally, &mut LogEntry),
    direction: Direction,
    bytes: usize,
) -> Result<bool, Failure> {
    within_limits(share, tally, direction, bytes).ok_or_else(|| {
        let why = share.and_then(AccountConnection::ended);
        let why = why.unwrap_or_else(|| "the account has nothing left".to_owned());
        Failure::new(FailureKind::Denied, cut_by_relay(entry, why))
    })
}

fn over_limits() -> String {
    "it exceeds its account's limits".to_owned()
}

/// Counts a dropped datagram and why it was dropped.
fn drop_datagram(tally: &mut UdpTally, on_error: DatagramError) {
    let (loss, failure) = match on_error {
        DatagramError::Refused(failure) => (DropReason::Refused, failure),
        DatagramError::Undelivered(failure) => (DropReason::Undelivered, failure),
    };
    tally.on_dropped(loss, || failure.text);
}

/// Drops a datagram of a flow of one destination; a refusal of that destination ends the flow.
fn end_if_refused(tally: &mut UdpTally, on_error: DatagramError) -> Result<(), Failure> {
    match on_error {
        DatagramError::Refused(failure) => {
            tally.count_dropped(DropReason::Refused);
            Err(failure)
        }
        on_error @ DatagramError::Undelivered(_) => {
            drop_datagram(tally, on_error);
            Ok(())
        }
    }
}

/// The ways of the client's datagrams.
fn paths(session: &Session) -> DatagramPaths {
    let account = session.registration.entry.account();
    let owner = DatagramOwner::Client(session.address.ip(), account);
    DatagramPaths::new(Arc::clone(&session.config), owner, session.transfer(), 0)
}

fn same(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

async fn wait(until: Time) {
    // the timer's range is limited; the loop checks again after a day
    let longest = Duration::from_secs(86_400);
    tokio::time::sleep(Duration::from(until.since(clock::now())).min(longest)).await;
}

/// Reads and discards until the client's connection ends, or has brought too much.
async fn until_closed(session: &Session, entry: &mut LogEntry, discarded: &mut usize) -> String {
    let stream = &session.client;
    loop {
        let read = match stream.readable().await {
            Ok(()) => with_scratch(|scratch| stream.try_read(scratch)),
            Err(error) => Err(error),
        };
        match read {
            Ok(0) => return "closed".to_owned(),
            Ok(n) => {
                session.count_moved(Direction::Up, n);
                *discarded += n;
                if *discarded > MOST_DISCARDED {
                    let why = format!(
                        "the client sent more than {MOST_DISCARDED} bytes on the TCP connection of its association, where none have a meaning"
                    );
                    return cut_by_relay(entry, why);
                }
            }
            Err(error) if is_transient(&error) => {}
            Err(error) => return format!("the client's connection broke: {error}"),
        }
    }
}
