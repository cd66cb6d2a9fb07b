//! Connecting to a host over a leg: every candidate address is checked, and Happy Eyeballs (RFC
//! 8305) races them, each with a [`crate::outbound::syn_race`] of its own.

use crate::destination::Host;
use crate::error::{Failure, FailureKind};
use crate::observe::named_leg::NamedLeg;
use crate::observe::traces::Trace;
use crate::outbound::dns::own::lookup;
use crate::outbound::resolve::TOO_MANY;
use crate::outbound::syn_race::open;
use crate::policy::access::Denied;
use crate::policy::own_addresses::is_own;
use crate::runtime::RuntimeConfig;
use crate::settings::Settings;
use crate::transfer::end::End;
use ekiden_linux::host::clock;
use ekiden_linux::sockets::outcome::Outcomes;
use ekiden_model::connect::happy_eyeballs::{Config, FamilyAnswers, HappyEyeballs};
use ekiden_model::dns::Asker;
use ekiden_model::units::Time;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tokio::task::{AbortHandle, JoinError, JoinSet};

/// An established connection, and the kernel's answers to its socket options.
#[derive(Debug)]
pub(crate) struct Dialed {
    pub(crate) stream: End,
    pub(crate) peer: SocketAddr,
    pub(crate) outcomes: Option<Outcomes>,
}

/// Where a connection comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DialFrom<'a> {
    pub(crate) leg: &'a Arc<NamedLeg>,
    /// An address of another machine, in place of this one's.
    pub(crate) foreign: Option<IpAddr>,
    /// What it is opened for, where that is traced.
    pub(crate) trace: Option<&'a Trace>,
    /// In whose share names are asked.
    pub(crate) asker: &'a Asker,
}

impl<'a> DialFrom<'a> {
    /// From this machine, for itself.
    pub(crate) const fn leg(leg: &'a Arc<NamedLeg>) -> Self {
        Self { leg, foreign: None, trace: None, asker: &Asker::Relay }
    }

    /// The address that the configuration or the client requires, and whose it is.
    fn source(&self) -> Option<(IpAddr, String)> {
        let of_leg = || Some((self.leg.leg.socket.source?, self.leg.name.clone()));
        match self.foreign {
            Some(client) => Some((client, String::new())),
            None => of_leg().map(|(source, leg)| (source, format!(" of leg \"{leg}\""))),
        }
    }
}

/// Connects to `host`, at an address that `allowed` permits, within the leg's time-out.
pub(crate) async fn dial(
    config: &RuntimeConfig,
    host: &Host,
    port: u16,
    from: DialFrom<'_>,
    allowed: impl Fn(IpAddr) -> Result<(), Denied>,
) -> Result<Dialed, Failure> {
    let limit = from.leg.leg.connect_timeout;
    let connecting = async {
        match host {
            Host::Address(address) => {
                let address = SocketAddr::new(*address, port);
                check(config, from, address, &allowed)?;
                let opened = open(&config.shared, from.leg, address, from.foreign).await;
                opened.map_err(|error| failed(address, &error))
            }
            // boxed because it is large and rare: mostly the host is an address or the name is cached
            Host::Name(name) => Box::pin(race(config, name, port, from, &allowed)).await,
        }
    };
    tokio::time::timeout(limit.into(), connecting).await.map_err(|_| {
        Failure::new(FailureKind::TimedOut, format!("{host}:{port} did not answer within {limit}"))
    })?
}

fn failed(address: SocketAddr, error: &io::Error) -> Failure {
    Failure::io(&format!("cannot connect to {address}"), error)
}

/// Checks whether this client may connect to an address over this leg.
pub(crate) fn check(
    config: &RuntimeConfig,
    from: DialFrom<'_>,
    address: SocketAddr,
    allowed: &impl Fn(IpAddr) -> Result<(), Denied>,
) -> Result<(), Failure> {
    allowed(address.ip())?;
    let settings = &config.settings;
    let mut behind = settings.embedded(address.ip()).chain([address.ip()]);
    if behind.any(|ip| settings.wireguard.is_client(ip)) {
        let text = format!(
            "{address} is of a client of [wireguard], and none is reached through this relay"
        );
        return Err(Failure::new(FailureKind::Prohibited, text));
    }
    let forwards = settings.forwards.iter().filter(|forward| forward.protocol.tcp());
    let forwards = forwards.flat_map(|forward| &forward.listen);
    let own = settings.listen.iter().chain(&settings.closed).chain(&settings.tunnel.listen);
    let mut own = own.chain(&settings.dns.listen).chain(forwards);
    if own.any(|listen| leads_to(settings, *listen, address)) {
        return Err(Failure::new(FailureKind::Loop, format!("{address} is this relay itself")));
    }
    match from.source() {
        Some((source, of)) if source.is_ipv4() != address.is_ipv4() => {
            let other = "is of another family than the source address";
            let text = format!("{address} {other} {source}{of}");
            Err(Failure::new(FailureKind::Unreachable, text))
        }
        _ => Ok(()),
    }
}

/// Whether a connection to `address`, or to that of IPv4 for which it stands, ends at a socket listening on `listen`.
pub(crate) fn leads_to(settings: &Settings, listen: SocketAddr, address: SocketAddr) -> bool {
    let behind = settings.embedded(address.ip()).map(|v4| SocketAddr::new(v4, address.port()));
    behind.chain([address]).any(|address| reaches(listen, address))
}

fn reaches(listen: SocketAddr, address: SocketAddr) -> bool {
    if listen.port() != address.port() || listen.is_ipv4() != address.is_ipv4() {
        return false;
    }
    // connecting to the unspecified address connects to loopback
    let to = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    // a relay that connects to itself does so until all is used up: what is not known counts as itself
    listen.ip() == to || (listen.ip().is_unspecified() && is_own(to).unwrap_or(true))
}

enum Event {
    Resolved { ipv6: bool, answer: Result<Vec<IpAddr>, String> },
    Attempted(SocketAddr, io::Result<Dialed>),
}

/// How far an attempt got. The failure of the furthest attempt is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FailureStage {
    NoAddress,
    Addresses,
    Attempted,
    Home,
}

fn remember(failure: &mut Option<(FailureStage, Failure)>, got: FailureStage, new: Failure) {
    if failure.as_ref().is_none_or(|(before, _)| *before <= got) {
        *failure = Some((got, new));
    }
}

async fn race(
    config: &RuntimeConfig,
    name: &str,
    port: u16,
    from: DialFrom<'_>,
    allowed: &impl Fn(IpAddr) -> Result<(), Denied>,
) -> Result<Dialed, Failure> {
    let dns = &config.settings.dns;
    let (want_v6, want_v4) = config.resolver.families();
    let ipv6_first = !matches!(dns.prefer, crate::settings::Family::Ipv4);
    let mut race = HappyEyeballs::new(Config {
        attempt_delay: dns.attempt_delay,
        within: from.leg.leg.connect_timeout,
        resolution_delay: config.resolver.answers(|answers| answers.delay(dns.resolution_delay)),
        ipv6_first,
    });
    from.trace.inspect(|trace| trace.on_lookup());
    // until the preferred family answers, or the other's first attempt begins without
    let mut awaited = want_v6 && want_v4;
    let resolving = |ipv6: bool, wanted: bool| async move {
        if !wanted {
            return Event::Resolved { ipv6, answer: Ok(Vec::new()) };
        }
        let limit = config.settings.timeouts.resolve;
        let answer =
            tokio::time::timeout(limit.into(), lookup(config, name, ipv6, from.asker)).await;
        let late = || Err(format!("no answer within {limit}"));
        Event::Resolved { ipv6, answer: answer.unwrap_or_else(|_| late()) }
    };
    let (mut v6, mut v4) =
        (std::pin::pin!(resolving(true, want_v6)), std::pin::pin!(resolving(false, want_v4)));
    let (mut v6_open, mut v4_open) = (true, true);
    // the connection has a descriptor for one attempt; each beside it counts as a connection
    let mut places = Vec::new();
    // dropping the set ends the losing attempts
    let mut attempts = JoinSet::new();
    let mut running: Vec<(u32, AbortHandle)> = Vec::new();
    let mut failure = None;
    loop {
        let now = clock::now();
        while let Some(attempt) = race.next(now, || {
            let place = config.shared.resources.try_reserve();
            let permitted = place.is_some();
            places.extend(place);
            permitted
        }) {
            from.trace.inspect(|trace| trace.on_addresses());
            if std::mem::take(&mut awaited) {
                config.resolver.answers(FamilyAnswers::on_missing);
            }
            let (shared, leg) = (Arc::clone(&config.shared), Arc::clone(from.leg));
            let (address, foreign) = (SocketAddr::new(attempt.address, port), from.foreign);
            let given_up =
                running.iter().position(|(number, _)| Some(*number) == attempt.instead_of);
            if let Some(at) = given_up {
                running.remove(at).1.abort();
            }
            let task = async move { (address, open(&shared, &leg, address, foreign).await) };
            running.push((attempt.number, attempts.spawn(task)));
        }
        if race.is_exhausted() && attempts.is_empty() {
            let no_address = || Failure::new(FailureKind::NoName, format!("{name} has no address"));
            return Err(failure.map_or_else(no_address, |(_, failure)| failure));
        }
        let event = tokio::select! {
            event = &mut v6, if v6_open => { v6_open = false; event }
            event = &mut v4, if v4_open => { v4_open = false; event }
            Some(done) = attempts.join_next_with_id(), if !attempts.is_empty() => {
                let id = done.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
                // one that was given up runs no more
                if let Some(at) = running.iter().position(|(_, attempt)| attempt.id() == id) {
                    race.on_failed(clock::now(), running.remove(at).0);
                    places.truncate(race.running().saturating_sub(1));
                }
                match done {
                    Ok((_, (address, result))) => Event::Attempted(address, result),
                    // it was given up, or it panicked and counts as failed
                    Err(_) => continue,
                }
            },
            () = wait_until(race.deadline()), if race.deadline() != Time::NEVER => continue,
        };
        match event {
            Event::Attempted(_, Ok(dialed)) => return Ok(dialed),
            Event::Attempted(address, Err(error)) => {
                remember(&mut failure, FailureStage::Attempted, failed(address, &error));
            }
            Event::Resolved { ipv6, answer } => {
                if ipv6 == ipv6_first {
                    awaited &= !config.resolver.answers(|answers| ends_wait(answers, &answer));
                }
                let addresses = answer.unwrap_or_else(|error| {
                    let text = format!("{name} cannot be resolved: {error}");
                    // no fault of the name's, or of an upstream that has it
                    let kind = match error == TOO_MANY {
                        true => FailureKind::Exhausted,
                        false => FailureKind::NoName,
                    };
                    let unknown = Failure::new(kind, text);
                    remember(&mut failure, FailureStage::NoAddress, unknown);
                    Vec::new()
                });
                let addresses = addresses.into_iter().filter(|address| {
                    let address = SocketAddr::new(*address, port);
                    check(config, from, address, allowed)
                        .map_err(|denied| {
                            let home = denied.kind == FailureKind::Loop;
                            let got =
                                if home { FailureStage::Home } else { FailureStage::Addresses };
                            remember(&mut failure, got, denied);
                        })
                        .is_ok()
                });
                race.on_addresses(clock::now(), ipv6, addresses.collect::<Vec<_>>());
            }
        }
    }
}

/// Whether the preferred family is awaited no longer. What this relay did not ask says nothing of the family's answers.
fn ends_wait(answers: &mut FamilyAnswers, answer: &Result<Vec<IpAddr>, String>) -> bool {
    if answer.is_ok() {
        answers.on_answer();
    }
    answer.as_ref().err().is_none_or(|error| error == TOO_MANY)
}

pub(crate) async fn wait_until(deadline: Time) {
    tokio::time::sleep(deadline.since(clock::now()).into()).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::units::Span;

    #[test]
    fn a_family_that_was_not_asked_is_not_awaited_and_does_not_count_as_one_that_does_not_answer() {
        let (mut answers, delay) = (FamilyAnswers::default(), Span::from_millis(50));
        let late = Err("no answer within 5 s".to_owned());
        assert!(!ends_wait(&mut answers, &late), "its answer is missing once it is not awaited");
        (0..3).for_each(|_| answers.on_missing());
        assert!(ends_wait(&mut answers, &Err(TOO_MANY.to_owned())));
        assert_eq!(answers.delay(delay), Span::ZERO, "nobody has answered");
        assert!(ends_wait(&mut answers, &Ok(Vec::new())));
        assert_eq!(answers.delay(delay), delay);
    }
}
