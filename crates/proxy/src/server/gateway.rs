//! The gateway: its listeners, and the rules that divert connections to them. Rules that cannot be set are an
//! error in the log and in the status; connections pass by then.

use super::Inner;
use super::listener::BACKLOG;
use crate::observe::log_throttle::LogThrottle;
use crate::observe::status::{GatewayDevice, GatewayStatus};
use crate::resources::AcceptedClient;
use crate::resources::arrival::{Directed, Diverted};
use crate::settings::{Gateway, Quic, Settings, Wireguard};
use ekiden_linux::host::sync::locked;
use ekiden_linux::links::divert::{Divert, DivertError, DivertPlan, TunnelRules};
use ekiden_linux::links::netlink::Netlink;
use ekiden_linux::sockets::apply::Inherited;
use ekiden_linux::sockets::{socket, transparent};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Between two attempts to set rules that were lost.
const RETRY_SECONDS: u32 = 10;

#[derive(Debug, Default)]
pub(super) struct GatewayDoor {
    settings: Gateway,
    /// Where they listen; none before the gateway was first on.
    listeners: Vec<(SocketAddr, JoinHandle<()>)>,
    /// Where QUIC arrives; none before it was first diverted.
    pub(super) quic: Vec<(SocketAddr, JoinHandle<()>)>,
    divert: Option<Divert>,
    error: Option<String>,
    /// Seconds since the rules were lost.
    lost: u32,
}

/// Ports of loopback for IPv4 and IPv6.
pub type Ports = [Option<u16>; 2];

/// The plan of these settings, for listeners at these ports of loopback, and sockets for QUIC at those.
pub fn divert_plan(settings: &Settings, [v4, v6]: Ports, quic: Ports) -> DivertPlan {
    let gateway = &settings.gateway;
    // a user of its own has no connections but this relay's
    let own = gateway.own.then(|| rustix::process::geteuid().as_raw());
    DivertPlan {
        devices: gateway.devices.clone(),
        v4,
        v6,
        own_except: own,
        reject_quic: gateway.quic == Quic::Block,
        quic: if gateway.quic == Quic::Tunnel { quic } else { Ports::default() },
        bypass: gateway.bypass.iter().map(|net| (net.network(), net.prefix_len())).collect(),
        mark: gateway.mark,
        tunnel: settings.wireguard.is_on().then(|| tunnel_rules(settings)),
    }
}

fn tunnel_rules(settings: &Settings) -> TunnelRules {
    let Wireguard { device, network, network_v6, masquerade, .. } = &settings.wireguard;
    TunnelRules {
        device: device.clone(),
        networks: vec![
            (network.network().into(), network.prefix_len()),
            (network_v6.network().into(), network_v6.prefix_len()),
        ],
        masquerade: *masquerade,
        names: !settings.dns.listen.is_empty(),
    }
}

impl Inner {
    /// Diverts what the settings say. Whatever fails is logged, and connections pass by.
    pub(super) fn open_gateway(self: &Arc<Self>, settings: &Settings) {
        let door = &mut *locked(&self.gateway);
        door.settings = settings.gateway.clone();
        let done = match settings.gateway.is_on() {
            true => check_user(&settings.gateway)
                .and_then(|()| self.listen_for_diverted(door))
                .and_then(|()| match settings.gateway.quic {
                    Quic::Tunnel => self.listen_for_quic(door),
                    Quic::Direct | Quic::Block => Ok(()),
                })
                .and_then(|()| door.divert(settings)),
            // live connections still need their packets
            false => door.divert_nothing_new(),
        };
        door.error = done.err().map(|error| error.to_string());
        match &door.error {
            Some(error) => {
                let then = match door.divert.as_ref().and_then(Divert::plan) {
                    Some(_) => "the rules before stay in effect",
                    None => "all connections pass by, unaccelerated",
                };
                tracing::error!("gateway: {error}; {then} (`ekiden doctor` says more)");
            }
            None if settings.gateway.is_on() => door.log(),
            None => {}
        }
    }

    fn listen_for_diverted(self: &Arc<Self>, door: &mut GatewayDoor) -> Result<(), DivertError> {
        if !door.listeners.is_empty() {
            return Ok(());
        }
        for ipv6 in [false, true] {
            match transparent::listen(ipv6, BACKLOG).and_then(TcpListener::from_std) {
                Ok(listener) => {
                    let address = listener.local_addr()?;
                    let task = tokio::spawn(Arc::clone(self).accept_diverted(listener));
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
        if let Err(error) = locked(&self.gateway).divert_nothing_new() {
            tracing::warn!("gateway: {error}");
        }
    }

    /// Nothing is left of the gateway.
    pub(super) fn close_gateway(&self) {
        let door = &mut *locked(&self.gateway);
        door.divert = None;
        door.listeners.drain(..).for_each(|(_, task)| task.abort());
        door.quic.drain(..).for_each(|(_, task)| task.abort());
    }

    /// Every second: rules that were lost are set again, and those that nobody needs are removed.
    pub(super) fn check_gateway(&self) {
        let config = self.config();
        let door = &mut *locked(&self.gateway);
        let Some(divert) = &mut door.divert else { return };
        if !door.settings.is_on() {
            if self.shared.gateway.live.load(Relaxed) == 0 {
                door.divert = None;
            }
            return;
        }
        if divert.is_held() {
            return;
        }
        if door.lost.is_multiple_of(RETRY_SECONDS) {
            let done = door.divert(&config.settings);
            door.error = done.err().map(|error| error.to_string());
            match &door.error {
                None => tracing::warn!("gateway: nft had ended; its rules are set again"),
                Some(error) => tracing::error!("gateway: nft has ended, and {error}"),
            }
        }
        door.lost = if door.error.is_some() { door.lost + 1 } else { 0 };
    }

    /// Whether the kernel has the rules for the device of the WireGuard door.
    #[cfg(feature = "wireguard")]
    pub(super) fn tunnel_rules_hold(&self) -> bool {
        let door = &mut *locked(&self.gateway);
        let is_held = |divert: &mut Divert| {
            divert.is_held() && divert.plan().is_some_and(|plan| plan.tunnel.is_some())
        };
        door.divert.as_mut().is_some_and(is_held)
    }

    async fn accept_diverted(self: Arc<Self>, listener: TcpListener) {
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
        let door = &mut *locked(&self.gateway);
        if !door.settings.is_on() && door.divert.is_none() {
            return None;
        }
        let counts = &self.shared.gateway;
        let there = Netlink::here().ok().and_then(|netlink| netlink.devices().ok());
        let there = there.unwrap_or_default();
        let device = |name: &String| GatewayDevice {
            present: there.iter().any(|(known, _)| known == name),
            name: name.clone(),
        };
        let held = door.divert.as_mut().is_some_and(Divert::is_held);
        Some(GatewayStatus {
            in_effect: door.settings.is_on() && held && door.error.is_none(),
            error: door.error.clone(),
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
    /// Has QUIC of these clients to these destinations answered with "port unreachable". Fails where nft does.
    pub(super) fn block_quic(&mut self, pairs: &[(SocketAddr, IpAddr)]) -> Result<(), DivertError> {
        let diverts = |divert: &&mut Divert| divert.plan().is_some_and(DivertPlan::diverts_quic);
        // otherwise it passes by anyway
        self.divert.as_mut().filter(diverts).map_or(Ok(()), |divert| divert.block_quic(pairs))
    }

    fn divert(&mut self, settings: &Settings) -> Result<(), DivertError> {
        let plan = divert_plan(settings, ports(&self.listeners), ports(&self.quic));
        if self.divert.as_mut().is_some_and(|divert| !divert.is_held()) {
            self.divert = None;
        }
        let mut divert = self.divert.take().map_or_else(Divert::start, Ok)?;
        let set = divert.set(&plan);
        self.divert = Some(divert);
        set
    }

    /// Keeps the rules for packets of live connections alone.
    fn divert_nothing_new(&mut self) -> Result<(), DivertError> {
        let Some(divert) = &mut self.divert else { return Ok(()) };
        let Some(before) = divert.plan() else { return Ok(()) };
        let plan = DivertPlan {
            devices: Vec::new(),
            own_except: None,
            quic: Ports::default(),
            ..before.clone()
        };
        divert.set(&plan)
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
