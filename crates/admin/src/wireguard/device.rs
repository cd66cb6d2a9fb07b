//! A device to add: its key is made here, or is its own.

use super::Given;
use ekiden_accounts::{Account, Credential, StoreError, add_tunnel};
use ekiden_proxy::settings::{Settings, Wireguard};
use ekiden_wireguard::{PrivateKey, PublicKey, server_key};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// What a new device gets, but for its addresses.
#[derive(Debug)]
pub struct NewTunnel {
    door: Wireguard,
    /// Name servers.
    dns: Vec<IpAddr>,
    endpoint: String,
    relay: PublicKey,
    /// `None`: the device has made its own.
    private: Option<PrivateKey>,
    public: PublicKey,
    device: Option<String>,
}

impl NewTunnel {
    /// A device for the relay of these settings, whose own key is in `folder`. `key` is the public key of a device that
    /// has made its own; otherwise a pair is made. `device` is its name; one that is known gets the new key. Reads and
    /// writes files. Errors, in words: the settings have no such door; the key is none; no file can be written.
    pub fn new(
        settings: &Settings,
        folder: &Path,
        key: Option<&str>,
        device: Option<String>,
    ) -> Result<Self, String> {
        let door = settings.wireguard.clone();
        if !door.is_on() {
            return Err("the configuration has no `listen` in [wireguard]; `ekiden init gateway --wireguard HOST` sets it up".to_owned());
        }
        let endpoint = door.endpoint.clone().ok_or(
            "where do clients find this relay from outside? Set `endpoint` in [wireguard], such as relay.example.org:51820",
        )?;
        let relay = server_key(folder).map_err(|error| error.to_string())?.public();
        let (private, public) = match key {
            None => {
                let private = PrivateKey::generate().map_err(|error| error.to_string())?;
                let public = private.public();
                (Some(private), public)
            }
            Some(own) => {
                (None, own.parse().map_err(|bad: ekiden_wireguard::BadKey| bad.to_string())?)
            }
        };
        let dns = match (door.dns.is_empty(), settings.dns.listen.is_empty()) {
            (false, _) => door.dns.clone(),
            (true, false) => door.own().to_vec(),
            (true, true) => Vec::new(),
        };
        Ok(Self { door, dns, endpoint, relay, private, public, device })
    }

    /// Gives the account the device; one that is there under its name keeps its addresses and gets the new key.
    pub(super) fn give(
        &self,
        to: &mut Account,
        taken: &BTreeSet<Ipv4Addr>,
    ) -> Result<Given, StoreError> {
        let key = self.public.to_string();
        let same = |known: &str| self.device.as_deref() == Some(known);
        for device in to.devices.iter_mut().filter(|device| same(&device.name)) {
            if let Credential::Wireguard { v4, v6, key: known } = &mut device.credential
                && self.door.has(*v4, *v6)
            {
                *known = key;
                return Ok((device.name.clone(), *v4, *v6));
            }
        }
        // one of a network that is no more
        to.devices.retain(|device| {
            !(same(&device.name) && matches!(device.credential, Credential::Wireguard { .. }))
        });
        let free = self.door.free(taken).ok_or_else(|| {
            let why = format!(
                "every address of {} is taken: set a larger `network` in [wireguard]",
                self.door.network
            );
            StoreError::Refused(why)
        })?;
        let (v4, v6) = free;
        let name = add_tunnel(Credential::Wireguard { v4, v6, key }, self.device.as_deref(), to);
        Ok((name, v4, v6))
    }

    /// Whether the configuration holds a private key; otherwise the device has its own.
    pub const fn holds_a_key(&self) -> bool {
        self.private.is_some()
    }

    /// Whether the configuration names name servers.
    pub const fn names_servers(&self) -> bool {
        !self.dns.is_empty()
    }

    /// The configuration, as the app of WireGuard and `wg-quick` read it.
    pub fn text(&self, (v4, v6): (Ipv4Addr, Ipv6Addr)) -> String {
        let mut text = "[Interface]\n".to_owned();
        let private = match &self.private {
            Some(private) => format!("PrivateKey = {}", private.reveal()),
            None => format!("# PrivateKey = the one that belongs to {}", self.public),
        };
        let _ = writeln!(text, "{private}\nAddress = {v4}/32, {v6}/128");
        if !self.dns.is_empty() {
            let dns: Vec<String> = self.dns.iter().map(ToString::to_string).collect();
            let _ = writeln!(text, "DNS = {}", dns.join(", "));
        }
        let _ = write!(
            text,
            "MTU = {}\n\n[Peer]\nPublicKey = {}\nAllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = {}\nPersistentKeepalive = 25\n",
            self.door.mtu, self.relay, self.endpoint
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_accounts::{AccountId, Attributes};

    fn new(device: Option<&str>) -> NewTunnel {
        let private = PrivateKey::generate().unwrap();
        NewTunnel {
            door: Wireguard::default(),
            dns: vec!["10.77.0.1".parse().unwrap()],
            endpoint: "relay.example.org:51820".into(),
            relay: PrivateKey::generate().unwrap().public(),
            public: private.public(),
            private: Some(private),
            device: device.map(str::to_owned),
        }
    }

    #[test]
    fn a_device_that_is_replaced_keeps_its_addresses() {
        let attributes = Attributes::default();
        let mut to = Account { id: AccountId(0), name: "anna".into(), devices: vec![], attributes };
        let mut taken = BTreeSet::from([Ipv4Addr::new(10, 77, 0, 2)]);
        let (name, v4, v6) = new(None).give(&mut to, &taken).unwrap();
        assert_eq!((name.as_str(), v4), ("wireguard", Ipv4Addr::new(10, 77, 0, 3)));
        taken.insert(v4);
        let again = new(Some("wireguard"));
        assert_eq!(again.give(&mut to, &taken).unwrap(), (name, v4, v6));
        let key = again.public.to_string();
        assert_eq!(to.devices.len(), 1);
        assert_eq!(to.devices[0].credential, Credential::Wireguard { v4, v6, key });
        assert_eq!(
            new(Some("tablet")).give(&mut to, &taken).unwrap().1,
            Ipv4Addr::new(10, 77, 0, 4)
        );
        // in another network it is at home nowhere
        let network = "10.78.0.0/24".parse().unwrap();
        let moved = NewTunnel {
            door: Wireguard { network, ..Wireguard::default() },
            ..new(Some("tablet"))
        };
        assert_eq!(moved.give(&mut to, &taken).unwrap().1, Ipv4Addr::new(10, 78, 0, 2));
        assert_eq!(to.devices.len(), 2);
    }

    #[test]
    fn the_text_is_what_wg_quick_reads() {
        let mut tunnel = new(None);
        let ends = ("10.77.0.2".parse().unwrap(), "fd77::2".parse().unwrap());
        let text = tunnel.text(ends);
        let secret = tunnel.private.as_ref().unwrap().reveal();
        let expected = format!(
            "[Interface]\nPrivateKey = {secret}\nAddress = 10.77.0.2/32, fd77::2/128\nDNS = 10.77.0.1\nMTU = 1420\n\n\
             [Peer]\nPublicKey = {}\nAllowedIPs = 0.0.0.0/0, ::/0\nEndpoint = relay.example.org:51820\nPersistentKeepalive = 25\n",
            tunnel.relay
        );
        assert_eq!(text, expected);
        tunnel.private = None;
        assert!(
            tunnel
                .text(ends)
                .contains(&format!("# PrivateKey = the one that belongs to {}", tunnel.public))
        );
    }
}
