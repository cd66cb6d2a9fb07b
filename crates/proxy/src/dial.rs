//! Connecting to a host over a leg: names resolved, every candidate address checked, and the race of
//! RFC 8305 run on the leg's own sockets, one opening ([`crate::opening`]) for each address.

use crate::access::Denied;
use crate::destination::Host;
use crate::failure::{Failure, Kind};
use crate::opening::open;
use crate::world::{NamedLeg, World};
use ekiden_linux::answer::Outcomes;
use ekiden_linux::clock;
use ekiden_model::happy_eyeballs::{Config, HappyEyeballs};
use ekiden_model::units::Time;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A connection made, and what its socket was granted.
#[derive(Debug)]
pub(crate) struct Dialed {
    pub(crate) stream: Arc<TcpStream>,
    /// Where it leads.
    pub(crate) peer: SocketAddr,
    pub(crate) outcomes: Outcomes,
}

/// Connects to `host`, at an address that `allowed` allows.
///
/// # Errors
/// The name does not resolve, no address is allowed, or none answers within the leg's time-out.
pub(crate) async fn dial(
    world: &World,
    host: &Host,
    port: u16,
    leg: &Arc<NamedLeg>,
    allowed: impl Fn(IpAddr) -> Result<(), Denied>,
) -> Result<Dialed, Failure> {
    let limit = leg.leg.connect_timeout;
    let connecting = async {
        match host {
            Host::Address(address) => {
                let address = SocketAddr::new(*address, port);
                check(world, leg, address, &allowed)?;
                open(&world.means, leg, address).await.map_err(|error| failed(address, &error))
            }
            // in a box: most of the time an address is given or the name is cached, and this is large
            Host::Name(name) => Box::pin(race(world, name, port, leg, &allowed)).await,
        }
    };
    tokio::time::timeout(limit.into(), connecting).await.map_err(|_| {
        Failure::new(Kind::TimedOut, format!("{host}:{port} did not answer within {limit}"))
    })?
}

fn failed(address: SocketAddr, error: &io::Error) -> Failure {
    Failure::io(&format!("cannot connect to {address}"), error)
}

/// Whether what this client sends may go to an address, by this leg.
pub(crate) fn check(
    world: &World,
    leg: &NamedLeg,
    address: SocketAddr,
    allowed: &impl Fn(IpAddr) -> Result<(), Denied>,
) -> Result<(), Failure> {
    allowed(address.ip())?;
    let own = world.settings.listen.iter().chain(&world.settings.closed);
    if own.into_iter().any(|listen| reaches(*listen, address)) {
        return Err(Failure::new(Kind::Loop, format!("{address} is this relay itself")));
    }
    match leg.leg.socket.source {
        Some(source) if source.is_ipv4() != address.is_ipv4() => Err(Failure::new(
            Kind::Unreachable,
            format!(
                "{address} is of another family than the source address {source} of leg «{}»",
                leg.name
            ),
        )),
        _ => Ok(()),
    }
}

/// Whether a connection to `address` ends at a socket listening on `listen`.
pub(crate) fn reaches(listen: SocketAddr, address: SocketAddr) -> bool {
    if listen.port() != address.port() || listen.is_ipv4() != address.is_ipv4() {
        return false;
    }
    // connecting to the unspecified address is connecting to loopback
    let to = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    listen.ip() == to || (listen.ip().is_unspecified() && is_local(to))
}

/// Whether this machine has the address. The kernel is asked, which also knows what is assigned by
/// prefix; only destinations on a port of this relay's own come this far.
fn is_local(ip: IpAddr) -> bool {
    ip.is_loopback() || std::net::UdpSocket::bind((ip, 0)).is_ok()
}

enum Event {
    Resolved { ipv6: bool, answer: Result<Vec<IpAddr>, String> },
    Attempted(SocketAddr, io::Result<Dialed>),
}

/// How far it got before it failed: a failure further on is the one worth telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Got {
    NoAddress,
    Addresses,
    Attempted,
    Home,
}

fn remember(failure: &mut Option<(Got, Failure)>, got: Got, new: Failure) {
    if failure.as_ref().is_none_or(|(before, _)| *before <= got) {
        *failure = Some((got, new));
    }
}

/// The race: both families are asked at once, and addresses tried as `HappyEyeballs` says.
async fn race(
    world: &World,
    name: &str,
    port: u16,
    leg: &Arc<NamedLeg>,
    allowed: &impl Fn(IpAddr) -> Result<(), Denied>,
) -> Result<Dialed, Failure> {
    let dns = &world.settings.dns;
    let (want_v6, want_v4) = world.resolver.families();
    let mut race = HappyEyeballs::new(Config {
        attempt_delay: dns.attempt_delay,
        resolution_delay: dns.resolution_delay,
        ipv6_first: !matches!(dns.prefer, crate::settings::Family::Ipv4),
    });
    let resolving = |ipv6: bool, wanted: bool| async move {
        if !wanted {
            return Event::Resolved { ipv6, answer: Ok(Vec::new()) };
        }
        let limit = world.settings.timeouts.resolve;
        let answer = tokio::time::timeout(limit.into(), world.resolver.lookup(name, ipv6)).await;
        let late = || Err(format!("no answer within {limit}"));
        Event::Resolved { ipv6, answer: answer.unwrap_or_else(|_| late()) }
    };
    let (mut v6, mut v4) =
        (std::pin::pin!(resolving(true, want_v6)), std::pin::pin!(resolving(false, want_v4)));
    let (mut v6_open, mut v4_open) = (true, true);
    // dropping the set ends the attempts that lost
    let mut attempts = JoinSet::new();
    let mut failure = None;
    loop {
        let now = clock::now();
        while let Some(address) = race.next(now) {
            let (means, leg) = (Arc::clone(&world.means), Arc::clone(leg));
            let address = SocketAddr::new(address, port);
            attempts.spawn(async move { (address, open(&means, &leg, address).await) });
        }
        if race.is_exhausted() && attempts.is_empty() {
            let nothing = || Failure::new(Kind::NoName, format!("{name} has no address"));
            return Err(failure.map_or_else(nothing, |(_, failure)| failure));
        }
        let event = tokio::select! {
            event = &mut v6, if v6_open => { v6_open = false; event }
            event = &mut v4, if v4_open => { v4_open = false; event }
            Some(done) = attempts.join_next(), if !attempts.is_empty() => match done {
                Ok((address, result)) => Event::Attempted(address, result),
                // a panic in an attempt; it counts as failed
                Err(_) => {
                    race.on_failed(clock::now());
                    continue;
                }
            },
            () = wait_until(race.deadline()), if race.deadline() != Time::NEVER => continue,
        };
        match event {
            Event::Attempted(_, Ok(dialed)) => return Ok(dialed),
            Event::Attempted(address, Err(error)) => {
                race.on_failed(clock::now());
                remember(&mut failure, Got::Attempted, failed(address, &error));
            }
            Event::Resolved { ipv6, answer } => {
                let addresses = answer.unwrap_or_else(|error| {
                    let text = format!("{name} cannot be resolved: {error}");
                    remember(&mut failure, Got::NoAddress, Failure::new(Kind::NoName, text));
                    Vec::new()
                });
                let addresses = addresses.into_iter().filter(|address| {
                    let address = SocketAddr::new(*address, port);
                    check(world, leg, address, allowed)
                        .map_err(|denied| {
                            let home = denied.kind == Kind::Loop;
                            let got = if home { Got::Home } else { Got::Addresses };
                            remember(&mut failure, got, denied);
                        })
                        .is_ok()
                });
                race.on_addresses(clock::now(), ipv6, addresses.collect::<Vec<_>>());
            }
        }
    }
}

pub(crate) async fn wait_until(deadline: Time) {
    tokio::time::sleep(deadline.since(clock::now()).into()).await;
}
