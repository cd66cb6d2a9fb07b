//! The gateway: its listeners, and the rules that divert connections to them. Rules that cannot be set are an
//! error in the log and in the status; connections pass by then, and the rules are tried again after growing pauses.
//!
//! nft may take seconds. So two locks: [`GatewayDoor`] is held for moments; `rules` is held while nft or the kernel is
//! spoken to, and is taken first. What an attempt finds counts only if nothing else was asked for meanwhile.

use super::Inner;
use super::diversion::{Ports, divert_nothing_new, divert_plan, guarded, held_plan};
use super::housekeeping::keep;
use super::listener::BACKLOG;
use crate::observe::log_throttle::LogThrottle;
use crate::observe::status::{GatewayDevice, GatewayStatus};
use crate::resources::AcceptedClient;
use crate::resources::arrival::{Directed, Diverted};
use crate::settings::{Gateway, Quic, Settings};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_linux::links::divert::{Divert, DivertError, DivertPlan};
use ekiden_linux::links::netlink::Netlink;
use ekiden_linux::sockets::apply::Inherited;
use ekiden_linux::sockets::{socket, transparent};
use ekiden_model::connect::failover::{Config, Health};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, TryLockError};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

#[derive(Debug, Default)]
pub(super) struct GatewayDoor {
    settings: Gateway,
    /// Counts what was asked for: settings, or none.
    asked: u64,
    /// Where they listen; none before the gateway was first on.
    listeners: Vec<(SocketAddr, JoinHandle<()>)>,
    /// Where QUIC arrives; none before it was first diverted.
    pub(super) quic: Vec<(SocketAddr, JoinHandle<()>)>,
    /// The rules; held while they change.
    pub(super) rules: Arc<Mutex<Option<Divert>>>,
    /// The plan whose rules the kernel has, as of the last look.
    pub(super) held: Option<DivertPlan>,
    error: Option<String>,
    /// When they are tried again.
    health: Option<Health>,
    /// How often they were set again after they were lost.
    restored: u64,
    /// The relay stops: nothing is set any more.
    stopped: bool,
}

impl Inner {
    /// Diverts what the settings say. Whatever fails is logged and tried again, and connections pass by.
    pub(super) fn open_gateway(self: &Arc<Self>, settings: &Settings) {
        let (rules, asked) = {
            let door = &mut *locked(&self.gateway);
            door.settings = settings.gateway.clone();
            (door.error, door.health) = (None, None);
            door.asked += 1;
            (Arc::clone(&door.rules), door.asked)
        };
        self.set_rules(&mut locked(&rules), settings, asked);
    }

    fn set_rules(self: &Arc<Self>, rules: &mut Option<Divert>, settings: &Settings, asked: u64) {
        let done = match settings.gateway.is_on() {
            true => self.listen_and_divert(rules, settings),
            // live connections still need their packets
            false => divert_nothing_new(rules),
        };
        let held = held_plan(rules);
        let door = &mut *locked(&self.gateway);
        if door.asked != asked {
            return;
        }
        self.set_held(door, held);
        let error = done.err().map(|error| error.to_string());
        match &error {
            Some(error) => {
                let then = match door.held.is_some() {
                    true => "the rules before stay in effect",
                    false => "all connections pass by, unaccelerated",
                };
                if door.error.as_ref() != Some(error) {
                    tracing::error!(
                        "gateway: {error}; {then}; it is tried again (`ekiden doctor` says more)"
                    );
                }
                let health = door.health.get_or_insert_with(|| Health::new(Config::default()));
                health.on_failure(clock::now());
            }
            None => {
                door.health = None;
                if settings.gateway.is_on() {
                    door.log();
                }
            }
        }
        door.error = error;
    }

    /// A look found the rules of this plan, or none.
    fn set_held(&self, door: &mut GatewayDoor, held: Option<DivertPlan>) {
        *locked(&self.shared.guarded) = guarded(held.as_ref());
        door.held = held;
    }

    fn listen_and_divert(
        self: &Arc<Self>,
        rules: &mut Option<Divert>,
        settings: &Settings,
    ) -> Result<(), DivertError> {
        check_user(&settings.gateway)?;
        let plan = {
            let door = &mut *locked(&self.gateway);
            self.listen_for_diverted(door).inspect_err(|_| close_all(&mut door.listeners))?;
            if settings.gateway.quic == Quic::Tunnel {
                self.listen_for_quic(door).inspect_err(|_| close_all(&mut door.quic))?;
            }
            divert_plan(settings, ports(&door.listeners), ports(&door.quic))
        };
        if rules.as_mut().is_some_and(|divert| !divert.is_held()) {
            *rules = None;
        }
        let divert = match rules {
            Some(divert) => divert,
            None => rules.insert(Divert::start()?),
        };
        divert.set(&plan)
    }

    fn listen_for_diverted(self: &Arc<Self>, door: &mut GatewayDoor) -> Result<(), DivertError> {
        if !door.listeners.is_empty() {
            return Ok(());
        }
        for ipv6 in [false, true] {
            match transparent::listen(ipv6, BACKLOG).and_then(TcpListener::from_std) {
                Ok(listener) => {
                    let address = listener.local_addr()?;
                    let listener = Arc::new(listener);
                    let accept =
                        move |inner: Arc<Self>| inner.accept_diverted(Arc::clone(&listener));
                    let task = keep("diverted connections", self, accept);
                    door.listeners.push((address, task));
                }
                Err(error) if ipv6 && is_off(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let text = "a transparent listener takes CAP_NET_ADMIN";
                    return Err(io::Error::new(error.kind(), text).into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// New connections pass by from here on.
    pub(super) fn stop_diverting(&self) {
        let rules = self.forget_rules();
        if let Err(error) = divert_nothing_new(&mut locked(&rules)) {
            tracing::warn!("gateway: {error}");
        }
    }

    /// Nothing is left of the gateway.
    pub(super) fn close_gateway(&self) {
        let rules = self.forget_rules();
        *locked(&rules) = None;
        let door = &mut *locked(&self.gateway);
        self.set_held(door, None);
        close_all(&mut door.listeners);
        close_all(&mut door.quic);
    }

    /// What an attempt under way finds counts no longer.
    fn forget_rules(&self) -> Arc<Mutex<Option<Divert>>> {
        let door = &mut *locked(&self.gateway);
        door.asked += 1;
        (door.health, door.stopped) = (None, true);
        Arc::clone(&door.rules)
    }

    /// Every second: rules that were lost or could not be set are set again, and those that nobody needs are removed. While
    /// the relay stops, lost rules are only noticed.
    pub(super) fn check_gateway(self: &Arc<Self>) {
        let (rules, asked, is_on) = {
            let door = locked(&self.gateway);
            (Arc::clone(&door.rules), door.asked, door.settings.is_on())
        };
        let mut rules = match rules.try_lock() {
            Ok(rules) => rules,
            Err(TryLockError::Poisoned(rules)) => rules.into_inner(),
            // they change now
            Err(TryLockError::WouldBlock) => return,
        };
        let now = clock::now();
        let door = &mut *locked(&self.gateway);
        if door.asked != asked {
            return;
        }
        let held = held_plan(&mut rules);
        if door.stopped {
            // while nft lives the plan before stays: its successor would shut the WireGuard door on live connections
            if held.is_none() {
                self.set_held(door, None);
            }
            return;
        }
        self.set_held(door, held);
        let idle = !is_on && rules.is_some() && self.shared.gateway.live.load(Relaxed) == 0;
        let failed = door.health.as_ref().is_some_and(|health| health.is_available(now));
        let lost = is_on && door.health.is_none() && door.held.is_none();
        let inner = Arc::clone(self);
        // nft takes milliseconds, or hangs; the kernel may be busy with routes of others
        if idle || failed || lost {
            tokio::task::spawn_blocking(move || inner.set_again(asked, lost));
        } else if door.held.is_some() {
            tokio::task::spawn_blocking(move || inner.restore_routing(asked));
        }
    }

    /// Adds the rules and routes of the mark again that others removed.
    fn restore_routing(&self, asked: u64) {
        let rules = Arc::clone(&locked(&self.gateway).rules);
        let rules = &*locked(&rules);
        if locked(&self.gateway).asked != asked {
            return;
        }
        let Some(divert) = rules else { return };
        let restored = divert.restore_routing();
        let door = &mut *locked(&self.gateway);
        if door.asked == asked {
            door.on_restored(restored);
        }
    }

    fn set_again(self: &Arc<Self>, asked: u64, lost: bool) {
        let rules = Arc::clone(&locked(&self.gateway).rules);
        let rules = &mut *locked(&rules);
        let is_on = {
            let door = locked(&self.gateway);
            if door.asked != asked {
                return;
            }
            door.settings.is_on()
        };
        if is_on {
            self.set_rules(rules, &self.config().settings, asked);
        } else if self.shared.gateway.live.load(Relaxed) > 0 {
            // they still need their packets
            self.set_rules(rules, &self.config().settings, asked);
        } else {
            *rules = None;
        }
        let door = &mut *locked(&self.gateway);
        self.set_held(door, held_plan(rules));
        if rules.is_none() && !is_on {
            (door.error, door.health) = (None, None);
        }
        if is_on && lost && door.held.is_some() {
            door.restored += 1;
            tracing::warn!("gateway: nft had ended; its rules are set again");
        }
    }

    async fn accept_diverted(self: Arc<Self>, listener: Arc<TcpListener>) {
        let inherited = Inherited::from_listener(listener.as_fd());
        loop {
            match listener.accept().await {
                Ok((stream, address)) => self.admit_diverted(stream, address, inherited),
                Err(error) => self.on_accept_error(&error).await,
            }
        }
    }

    fn admit_diverted(&self, stream: TcpStream, address: SocketAddr, inherited: Inherited) {
        let counts = &self.shared.gateway;
        let Some((to, own)) = transparent::original_destination(stream.as_fd()) else {
            counts.stray.fetch_add(1, Relaxed);
            static LOGGED: LogThrottle = LogThrottle::new();
            if LOGGED.is_due() {
                tracing::warn!(client = %address, "gateway: reset a connection to its own port that nobody had diverted; the status counts all");
            }
            let _ = socket::abort(stream.as_fd());
            return;
        };
        let counter = if own { &counts.own } else { &counts.diverted };
        counter.fetch_add(1, Relaxed);
        // this machine's own are as those at any other port
        let address = if own { as_loopback(address) } else { address };
        let diverted = Diverted { to, own, _live: counts.enter() };
        let directed = Some(Directed::Diverted(diverted));
        let client = AcceptedClient::new(stream.into(), address, inherited);
        self.admit(AcceptedClient { directed, ..client });
    }

    pub(super) fn gateway_status(&self) -> Option<GatewayStatus> {
        let is_there = |door: &GatewayDoor| door.settings.is_on() || door.held.is_some();
        if !is_there(&locked(&self.gateway)) {
            return None;
        }
        let counts = &self.shared.gateway;
        // the kernel may take its time
        let there = Netlink::here().ok().and_then(|netlink| netlink.devices().ok());
        let there = there.unwrap_or_default();
        let door = locked(&self.gateway);
        let device = |name: &String| GatewayDevice {
            present: there.iter().any(|(known, _)| known == name),
            name: name.clone(),
        };
        let retry = door.health.as_ref().map(|health| health.deadline().since(clock::now()));
        Some(GatewayStatus {
            in_effect: door.settings.is_on() && door.held.is_some() && door.error.is_none(),
            error: door.error.clone(),
            retry_in_seconds: retry.map(|left| left.as_millis().div_ceil(1_000)),
            restored: door.restored,
            devices: door.settings.devices.iter().map(device).collect(),
            own_traffic: door.settings.own,
            listen: door.listeners.iter().map(|(address, _)| *address).collect(),
            mark: door.settings.mark,
            live: counts.live.load(Relaxed),
            diverted: counts.diverted.load(Relaxed),
            own: counts.own.load(Relaxed),
            named_tls: counts.named_tls.load(Relaxed),
            named_http: counts.named_http.load(Relaxed),
            unnamed: counts.unnamed.load(Relaxed),
            stray: counts.stray.load(Relaxed),
            listen_quic: match door.settings.quic {
                Quic::Tunnel => door.quic.iter().map(|(address, _)| *address).collect(),
                Quic::Direct | Quic::Block => Vec::new(),
            },
            quic_tunneled: counts.quic_tunneled.load(Relaxed),
            quic_direct: counts.quic_direct.load(Relaxed),
            quic_named: counts.quic_named.load(Relaxed),
            quic_blocked: counts.quic_blocked.load(Relaxed),
        })
    }
}

impl GatewayDoor {
    /// Rules and routes of the mark were looked at, and added again where any was gone.
    fn on_restored(&mut self, was_gone: Result<bool, DivertError>) {
        static LOGGED: LogThrottle = LogThrottle::new();
        match was_gone {
            Ok(false) => {}
            Ok(true) => {
                self.restored += 1;
                if LOGGED.is_due() {
                    tracing::warn!(
                        "gateway: another program had removed its rules of `ip rule` or routes of `ip route`; they are added again"
                    );
                }
            }
            Err(error) if LOGGED.is_due() => tracing::error!("gateway: {error}"),
            Err(_) => {}
        }
    }

    fn log(&self) {
        let Gateway { devices, own, quic, .. } = &self.settings;
        let families: Vec<&str> = self
            .listeners
            .iter()
            .map(|(at, _)| if at.is_ipv6() { "IPv6" } else { "IPv4" })
            .collect();
        let mut what: Vec<&str> = devices.iter().map(String::as_str).collect();
        if *own {
            what.push("this machine itself");
        }
        let quic = match quic {
            Quic::Direct => "QUIC passes by",
            Quic::Block => "QUIC is answered with \"port unreachable\"",
            Quic::Tunnel => "QUIC goes through tunnels",
        };
        tracing::info!(
            "gateway: diverts TCP over {} of {}; {quic}",
            families.join(" and "),
            what.join(", ")
        );
    }
}

fn close_all(sockets: &mut Vec<(SocketAddr, JoinHandle<()>)>) {
    sockets.drain(..).for_each(|(_, task)| task.abort());
}

/// This relay's own connections are told from the machine's by its user.
fn check_user(gateway: &Gateway) -> Result<(), DivertError> {
    if gateway.own && rustix::process::geteuid().is_root() {
        let text = "`own_traffic` takes a user that runs this relay alone, as the service does; root's other programs could not be told from it";
        return Err(io::Error::other(text).into());
    }
    Ok(())
}

fn ports(sockets: &[(SocketAddr, JoinHandle<()>)]) -> Ports {
    [false, true].map(|ipv6| {
        let mut sockets = sockets.iter();
        sockets.find(|(at, _)| at.is_ipv6() == ipv6).map(|(at, _)| at.port())
    })
}

/// Whether a family is switched off on this machine.
pub(super) fn is_off(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
}

const fn as_loopback(address: SocketAddr) -> SocketAddr {
    let ip: IpAddr = match address {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::settings::Wireguard;
    use ipnet::IpNet;

    #[tokio::test]
    async fn addresses_are_guarded_as_long_as_the_rules_are_held() {
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        let settings = Settings { listen, ..Settings::default() };
        let server = Server::start(Arc::new(settings.clone())).unwrap();
        let inner = &server.inner;
        let guarded = || locked(&inner.shared.guarded).clone();
        assert!(guarded().is_empty());
        let mut asked = settings;
        asked.wireguard.listen = vec!["127.0.0.1:0".parse().unwrap()];
        let plan = divert_plan(&asked, Ports::default(), Ports::default());
        inner.set_held(&mut locked(&inner.gateway), Some(plan));
        let Wireguard { network, network_v6, .. } = asked.wireguard;
        assert_eq!(guarded(), [IpNet::from(network), IpNet::from(network_v6)]);
        inner.close_gateway();
        assert!(guarded().is_empty());
    }
}
