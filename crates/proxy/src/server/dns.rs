//! The ports at which clients ask for names, over reloads. An address that cannot be had, because it is not there yet or
//! another program uses it, is tried again after growing pauses. Everything else is served meanwhile.

use super::listener::listen;
use super::{Inner, StartError};
use crate::inbound::dns::stream::{CLIENT, serve};
use crate::inbound::dns::udp::DnsPort;
use crate::inbound::dns::{Client, Origin};
use crate::observe::status::{DnsPortStatus, DnsStatus};
use crate::runtime::RuntimeConfig;
use crate::settings::Settings;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_linux::sockets::socket;
use ekiden_model::connect::failover::{Config, Health};
use ekiden_model::units::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Those that are served, and those that could not be had.
#[derive(Debug, Default)]
pub(super) struct NamePorts {
    /// Each over UDP and over TCP.
    served: BTreeMap<SocketAddr, [JoinHandle<()>; 2]>,
    failed: BTreeMap<SocketAddr, FailedPort>,
    /// The relay stops: none is opened any more.
    stopped: bool,
}

#[derive(Debug)]
struct FailedPort {
    health: Health,
    error: String,
}

/// Sockets at a new address.
struct BoundDns {
    at: SocketAddr,
    udp: DnsPort,
    tcp: TcpListener,
}

/// Opens one address.
fn bind_name_port(settings: &Settings, at: SocketAddr) -> Result<BoundDns, StartError> {
    let client = settings.legs.get("client").cloned().unwrap_or_default();
    let wrong = |error| StartError::Listen { address: at, error };
    let udp = DnsPort::bind(at).map_err(wrong)?;
    let (_, tcp) = listen(&client, at, false).map_err(wrong)?;
    Ok(BoundDns { at, udp, tcp })
}

impl NamePorts {
    /// Closes those that are not wanted, and those that broke. Ports that are open stay so: a socket that is closed is
    /// there until its task has ended, and nobody could take its address before.
    fn retain(&mut self, wanted: &BTreeSet<SocketAddr>) {
        self.served.retain(|at, tasks| {
            let stays = wanted.contains(at) && !tasks.iter().any(JoinHandle::is_finished);
            if !stays {
                tasks.iter().for_each(JoinHandle::abort);
            }
            stays
        });
        self.failed.retain(|at, _| wanted.contains(at));
    }

    /// Addresses to open now.
    fn due(&self, now: Time, wanted: &BTreeSet<SocketAddr>) -> Vec<SocketAddr> {
        let is_due = |at: &SocketAddr| {
            let rests = self.failed.get(at).is_some_and(|one| !one.health.is_available(now));
            !self.stopped && !rests && !self.served.contains_key(at)
        };
        wanted.iter().copied().filter(is_due).collect()
    }

    /// Returns whether the log has not had this error yet.
    fn on_failed(&mut self, now: Time, at: SocketAddr, error: &str) -> bool {
        let new = FailedPort { health: Health::new(Config::default()), error: String::new() };
        let port = self.failed.entry(at).or_insert(new);
        port.health.on_failure(now);
        let is_new = port.error != error;
        error.clone_into(&mut port.error);
        is_new
    }

    /// Whether an open port is such a one.
    #[cfg(feature = "wireguard")]
    pub(super) fn is_served_by(&self, is_such: impl Fn(&SocketAddr) -> bool) -> bool {
        self.served.keys().any(is_such)
    }

    /// Those that could not be had.
    pub(super) fn failed(&self, now: Time) -> impl Iterator<Item = DnsPortStatus> {
        self.failed.iter().map(move |(at, port)| DnsPortStatus {
            address: *at,
            error: port.error.clone(),
            retry_in_seconds: port.health.deadline().since(now).as_millis().div_ceil(1_000),
        })
    }

    /// Those that rest are opened at the next opportunity, and what fails then is logged.
    pub(super) fn on_reload(&mut self) {
        self.failed.clear();
    }

    /// Serves none.
    pub(super) fn close(&mut self) {
        self.retain(&BTreeSet::new());
    }
}

impl Inner {
    /// Serves the addresses of these settings, and closes others.
    pub(super) fn answer_names_on(self: &Arc<Self>, settings: &Settings) {
        let ports = &mut *locked(&self.dns);
        ports.on_reload();
        self.open_name_ports(ports, settings);
    }

    /// Every second: addresses that could not be had are tried again.
    pub(super) fn tend_names(self: &Arc<Self>) {
        let settings = Arc::clone(&self.config().settings);
        self.open_name_ports(&mut locked(&self.dns), &settings);
    }

    fn open_name_ports(self: &Arc<Self>, ports: &mut NamePorts, settings: &Settings) {
        let wanted = settings.dns.listen.iter().copied().collect();
        for (_, error) in self.serve_names_at(ports, settings, &wanted) {
            tracing::error!("no names for clients: {error}; it is tried again");
        }
    }

    /// Serves these addresses, and closes others. Returns what cannot be had, when that is new.
    pub(super) fn serve_names_at(
        self: &Arc<Self>,
        ports: &mut NamePorts,
        settings: &Settings,
        wanted: &BTreeSet<SocketAddr>,
    ) -> Vec<(SocketAddr, String)> {
        ports.retain(wanted);
        let (now, mut news) = (clock::now(), Vec::new());
        for at in ports.due(now, wanted) {
            match bind_name_port(settings, at) {
                Ok(bound) => {
                    ports.failed.remove(&at);
                    ports.served.insert(at, self.answer_names_at(bound));
                }
                Err(error) => {
                    let error = error.to_string();
                    if ports.on_failed(now, at, &error) {
                        news.push((at, error));
                    }
                }
            }
        }
        news
    }

    /// Serves one address.
    fn answer_names_at(self: &Arc<Self>, bound: BoundDns) -> [JoinHandle<()>; 2] {
        let BoundDns { at, udp, tcp } = bound;
        tracing::info!("answers questions for names at {at}");
        let inner = Arc::clone(self);
        let udp = tokio::spawn(async move { udp.serve(|| inner.config()).await });
        let tcp = tokio::spawn(Arc::clone(self).accept_questions(tcp));
        [udp, tcp]
    }

    pub(super) fn stop_answering_names(&self) {
        let ports = &mut *locked(&self.dns);
        ports.stopped = true;
        ports.close();
    }

    pub(super) fn dns_status(&self, config: &RuntimeConfig) -> Option<DnsStatus> {
        let mut status = self.shared.dns.status(&config.settings.dns, &config.name_servers)?;
        let now = clock::now();
        status.unavailable = locked(&self.dns).failed(now).collect();
        let failed = |at: &SocketAddr| status.unavailable.iter().any(|one| one.address == *at);
        status.listen.retain(|at| !failed(at));
        status.unavailable.extend(self.failed_names_within(now));
        Some(status)
    }

    async fn accept_questions(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, client)) => self.answer_on(stream, client),
                Err(error) => self.on_accept_error(&error).await,
            }
        }
    }

    fn answer_on(self: &Arc<Self>, stream: TcpStream, client: SocketAddr) {
        let dns = &self.shared.dns;
        let ip = client.ip().to_canonical();
        if Client::admit(&self.config(), Origin::Tcp(ip)).is_none() {
            dns.counts.refused.fetch_add(1, Relaxed);
            let _ = socket::abort(stream.as_fd());
            return;
        }
        let place = dns.stream(ip);
        // it may close somebody's idle connection: for a stream that has a place
        let room = place.and_then(|place| {
            let reserve = self.shared.resources.make_room(ip.into())?;
            Some((place, reserve))
        });
        let Some(room) = room else {
            dns.counts.limited.fetch_add(1, Relaxed);
            let _ = socket::abort(stream.as_fd());
            return;
        };
        let memory = self.shared.transfer_of(ip.into());
        let (inner, mut stopping) = (Arc::clone(self), self.stopping.subscribe());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let admit = || Client::admit(&inner.config(), Origin::Tcp(ip));
            let serving = serve(|| inner.config(), admit, memory, CLIENT, stream);
            tokio::select! {
                () = serving => {}
                _ = stopping.wait_for(|stopping| *stopping) => {}
            }
            drop(room);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::units::Span;

    #[test]
    fn an_address_that_is_not_there_is_tried_after_growing_pauses() {
        let [absent, other]: [SocketAddr; 2] =
            ["192.0.2.1:53", "192.0.2.2:53"].map(|at| at.parse().unwrap());
        let wanted = BTreeSet::from([absent, other]);
        let (mut ports, mut tried, mut logged) = (NamePorts::default(), Vec::new(), 0);
        assert_eq!(ports.due(Time::ZERO, &wanted), [absent, other]);
        for second in 0..130 {
            let now = Time::ZERO + Span::from_secs(second);
            if ports.due(now, &wanted).contains(&absent) {
                tried.push(second);
                logged += u32::from(ports.on_failed(now, absent, "not there"));
            }
            assert!(ports.due(now, &wanted).contains(&other), "it does not wait for another");
        }
        assert_eq!((&tried[..], logged), (&[0, 1, 3, 7, 15, 31, 63, 123][..], 1));
        let now = Time::ZERO + Span::from_secs(123);
        let failed: Vec<_> = ports.failed(now).collect();
        assert_eq!((failed[0].address, failed[0].retry_in_seconds), (absent, 60));
        ports.retain(&BTreeSet::from([other]));
        assert_eq!(ports.failed(now).count(), 0);
    }
}
