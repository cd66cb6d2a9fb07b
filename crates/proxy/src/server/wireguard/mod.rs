//! The WireGuard door over reloads: its device, its peers, and this relay's answers to their questions for names. What
//! cannot be opened is an error in the log and in the status, and everything else is served.
//!
//! The kernel may take seconds to open a device, or to say how it is. So two locks, as the gateway has: [`WireguardDoor`]
//! is held for moments, and `work` while the kernel is spoken to. That one is taken first.

use super::diversion::serves_tunnel;
use super::dns::NamePorts;
use super::{Inner, StartError};
use crate::inbound::wireguard::ClientGate;
use crate::observe::status::{DnsPortStatus, WireguardPeerStatus, WireguardStatus};
use crate::policy::accounts::TunnelDevice;
use crate::settings::{Settings, Wireguard};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_linux::links::netlink::Netlink;
use ekiden_linux::links::tun::Tun;
use ekiden_model::units::Time;
use ekiden_wireguard::{Door, Engine, PeerSettings, PeerSnapshot, server_key};
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

/// Between two attempts to open a door that failed.
const RETRY_SECONDS: u32 = 10;

#[derive(Debug, Default)]
pub(super) struct WireguardDoor {
    settings: Wireguard,
    door: Option<Door>,
    /// This relay's answers to questions for names, at its addresses in the tunnel.
    names: NamePorts,
    error: Option<String>,
    /// Seconds since it failed.
    failed: u32,
    /// Held while the door is opened, closed or looked at.
    work: Arc<Mutex<()>>,
}

/// What is opened, without what clients are told.
fn opened(settings: &Wireguard) -> Wireguard {
    Wireguard { endpoint: None, dns: Vec::new(), ..settings.clone() }
}

/// Why nothing passes the device of this name, as far as the kernel says.
fn broken(name: &str) -> Option<String> {
    // where it cannot be asked, the door's own thread knows
    match Netlink::here().map(|netlink| netlink.is_up(name)) {
        Ok(Ok(false)) => Some(format!("the device \"{name}\" was set down")),
        Ok(Err(failure)) if failure.errno() == libc::ENODEV => {
            Some(format!("the device \"{name}\" is gone"))
        }
        Ok(_) | Err(_) => None,
    }
}

/// Nothing: this build has the door.
#[allow(clippy::unnecessary_wraps)] // its counterpart in a build without the door fails
pub(super) const fn check_wireguard(_: &Settings) -> Result<(), StartError> {
    Ok(())
}

impl Inner {
    /// Opens the door that the settings ask for, or closes it.
    pub(super) fn open_wireguard(self: &Arc<Self>, settings: &Settings) {
        let work = Arc::clone(&locked(&self.wireguard).work);
        let _work = locked(&work);
        let (stays, before) = {
            let door = &mut *locked(&self.wireguard);
            let stays =
                door.door.is_some() && opened(&door.settings) == opened(&settings.wireguard);
            door.settings = settings.wireguard.clone();
            let before = if stays { None } else { door.door.take() };
            if !stays {
                door.error = None;
            }
            (stays, before)
        };
        drop(before);
        if !stays && settings.wireguard.is_on() {
            self.start_wireguard(&settings.wireguard);
        }
        let door = &mut *locked(&self.wireguard);
        if let Some(running) = door.door.as_ref().filter(|_| stays) {
            self.tell_peers(running, &door.settings);
        }
        door.names.on_reload();
        match door.door.is_some() {
            true => self.answer_names_within(settings, door),
            false => door.names.close(),
        }
    }

    /// Ends the door where the settings ask for another, before the rules change, which then are for that one.
    pub(super) fn end_other_wireguard(&self, settings: &Settings) {
        let work = Arc::clone(&locked(&self.wireguard).work);
        let _work = locked(&work);
        let before = {
            let door = &mut *locked(&self.wireguard);
            let is_other = opened(&door.settings) != opened(&settings.wireguard);
            if is_other { door.door.take() } else { None }
        };
        drop(before);
    }

    fn start_wireguard(self: &Arc<Self>, settings: &Wireguard) {
        let started = self.start(settings).map_err(|error| error.to_string());
        let door = &mut *locked(&self.wireguard);
        match started {
            Ok(started) => {
                let listen: Vec<String> =
                    started.listen().iter().map(ToString::to_string).collect();
                let (key, device) = (started.engine().public(), &settings.device);
                tracing::info!(
                    "wireguard: listens on {}, device {device}, public key {key}",
                    listen.join(", ")
                );
                self.tell_peers(&started, settings);
                (door.door, door.error, door.failed) = (Some(started), None, 0);
            }
            Err(error) => {
                if door.error.as_ref() != Some(&error) {
                    tracing::error!(
                        "wireguard: {error}; nobody comes in by it (`ekiden doctor` says more)"
                    );
                }
                door.error = Some(error);
            }
        }
    }

    fn start(self: &Arc<Self>, settings: &Wireguard) -> Result<Door, Box<dyn Error>> {
        let folder = settings.state.as_ref();
        let folder = folder.ok_or("no home directory for its key; set `state` in [accounts]")?;
        let key = server_key(folder)?;
        let bits = |address: &IpAddr| match address {
            IpAddr::V4(_) => settings.network.prefix_len(),
            IpAddr::V6(_) => settings.network_v6.prefix_len(),
        };
        let addresses = settings.own().map(|address| (address, bits(&address)));
        let tun = Tun::open(&settings.device, settings.mtu, &addresses)?;
        // the door does not keep the relay
        let inner = Arc::downgrade(self);
        let gate = ClientGate::new(move || inner.upgrade().map(|inner| inner.config()));
        Ok(Door::start(&settings.listen, tun, Engine::new(key), gate)?)
    }

    /// Answers at the relay's own addresses in the tunnel, where no port of all addresses is open.
    fn answer_names_within(self: &Arc<Self>, settings: &Settings, door: &mut WireguardDoor) {
        let others = &settings.dns.listen;
        let is_there = |at: &SocketAddr| {
            let all =
                |other: &SocketAddr| other.ip().is_unspecified() && other.is_ipv6() == at.is_ipv6();
            let open = locked(&self.dns)
                .is_served_by(|other| other.port() == 53 && (all(other) || other.ip() == at.ip()));
            open || others.iter().any(|other| other.port() == 53 && other.ip() == at.ip())
        };
        let own = door.settings.own().map(|address| SocketAddr::new(address, 53));
        let is_wanted = |at: &SocketAddr| !others.is_empty() && !is_there(at);
        let wanted = own.into_iter().filter(is_wanted).collect();
        for (at, error) in self.serve_names_at(&mut door.names, settings, &wanted) {
            match at.is_ipv6() {
                // IPv6 may be off
                true => tracing::debug!("wireguard: {error}"),
                false => {
                    tracing::warn!(
                        "wireguard: {error}; clients get no answers for names; it is tried again"
                    );
                }
            }
        }
    }

    /// Addresses within the tunnel at which clients cannot ask for names. IPv6 may be off.
    pub(super) fn failed_names_within(&self, now: Time) -> Vec<DnsPortStatus> {
        let door = locked(&self.wireguard);
        door.names.failed(now).filter(|port| port.address.is_ipv4()).collect()
    }

    /// Every second: peers come and go with their accounts, and a door that failed is tried again.
    pub(super) fn tend_wireguard(self: &Arc<Self>) {
        let work = Arc::clone(&locked(&self.wireguard).work);
        let _work = locked(&work);
        let running = {
            let door = locked(&self.wireguard);
            door.door.as_ref().map(|_| door.settings.device.clone())
        };
        let gone = running.and_then(|device| broken(&device));
        let (ended, again) = {
            let door = &mut *locked(&self.wireguard);
            let why = gone.or_else(|| door.door.as_ref().and_then(Door::ended));
            let ended = why.and_then(|why| {
                tracing::error!("wireguard: {why}; the door is opened anew in {RETRY_SECONDS} s");
                door.names.close();
                (door.error, door.failed) = (Some(why), 0);
                door.door.take()
            });
            let has_failed = door.door.is_none() && door.error.is_some();
            door.failed += u32::from(has_failed);
            let is_due = has_failed && door.failed.is_multiple_of(RETRY_SECONDS);
            (ended, is_due.then(|| door.settings.clone()))
        };
        drop(ended);
        if let Some(settings) = again {
            self.start_wireguard(&settings);
        }
        let door = &mut *locked(&self.wireguard);
        if let Some(running) = &door.door {
            self.tell_peers(running, &door.settings);
            let settings = Arc::clone(&self.config().settings);
            self.answer_names_within(&settings, door);
        }
    }

    /// Without the kernel's rules nothing passes: rules and limits would not hold.
    fn tell_peers(&self, door: &Door, own: &Wireguard) {
        let config = self.config();
        let devices = config.directory.as_ref().map(|directory| directory.tunnel_devices());
        let settings = &config.settings.wireguard;
        let peer = |device: TunnelDevice| {
            let foreign = (!settings.has(device.v4, device.v6)).then(|| {
                "its addresses are not of `network`: replace its configuration".to_owned()
            });
            Some(PeerSettings {
                key: device.key.parse().ok()?,
                v4: device.v4,
                v6: device.v6,
                account: device.account,
                device: device.name,
                barred: device.barred.or(foreign),
            })
        };
        let peers = devices.unwrap_or_default().into_iter().filter_map(peer).collect();
        let is_open = {
            let gateway = locked(&self.gateway);
            gateway.held.as_ref().is_some_and(|plan| serves_tunnel(plan, &config.settings, own))
        };
        let left = {
            let mut engine = door.engine();
            engine.set_open(is_open);
            engine.set_peers(peers)
        };
        // the lowest free address is given out again: another device must not get what was for the one before
        if !left.is_empty() {
            self.registry.end_of(&left);
        }
    }

    pub(super) fn close_wireguard(&self) {
        let work = Arc::clone(&locked(&self.wireguard).work);
        let _work = locked(&work);
        let before = {
            let door = &mut *locked(&self.wireguard);
            door.names.close();
            door.error = None;
            door.door.take()
        };
        drop(before);
    }

    pub(super) fn wireguard_status(&self) -> Option<WireguardStatus> {
        let door = locked(&self.wireguard);
        if !door.settings.is_on() {
            return None;
        }
        let now = clock::now();
        let mut status = WireguardStatus {
            device: door.settings.device.clone(),
            error: door.error.clone(),
            ..WireguardStatus::default()
        };
        if let Some(running) = &door.door {
            let engine = running.engine();
            let counts = engine.counts();
            status.listen = running.listen().to_vec();
            status.public_key = Some(engine.public().to_string());
            status.peers =
                engine.snapshot(now).into_iter().map(|peer| peer_status(now, peer)).collect();
            (status.received, status.sent) = (counts.received, counts.sent);
            status.handshakes = counts.handshakes;
            status.cookies = counts.cookies;
            status.limited = counts.limited;
            status.unknown = counts.unknown;
            status.invalid = counts.invalid;
            status.keepalives = counts.keepalives;
            status.forged = counts.forged;
            status.unreadable = counts.unreadable;
            status.refused = counts.refused;
            status.undelivered = counts.undelivered + running.lost();
        }
        Some(status)
    }
}

fn peer_status(now: Time, peer: PeerSnapshot) -> WireguardPeerStatus {
    let PeerSnapshot { settings, endpoint, handshake, received, sent } = peer;
    WireguardPeerStatus {
        account: settings.account,
        device: settings.device,
        public_key: settings.key.to_string(),
        addresses: vec![settings.v4.into(), settings.v6.into()],
        endpoint,
        handshake_seconds_ago: handshake.map(|at| now.since(at).as_millis() as f64 / 1e3),
        received,
        sent,
        barred: settings.barred,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use std::sync::mpsc::channel;

    #[tokio::test]
    async fn a_kernel_that_takes_its_time_holds_up_neither_housekeeping_nor_the_status() {
        let any = || vec!["127.0.0.1:0".parse().unwrap()];
        let mut settings = Settings { listen: any(), ..Settings::default() };
        // without a folder for its key it is not opened
        settings.wireguard.listen = any();
        let server = Server::start(Arc::new(settings)).unwrap();
        let work = Arc::clone(&locked(&server.inner.wireguard).work);
        let ((hold, held), (release, released)) = (channel(), channel::<()>());
        let kernel = std::thread::spawn(move || {
            let _work = locked(&work);
            hold.send(()).unwrap();
            let _ = released.recv();
        });
        held.recv().unwrap();
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let error = server.status().wireguard.unwrap().error.unwrap();
        assert!(error.contains("set `state`"), "{error}");
        drop(release);
        kernel.join().unwrap();
    }
}
