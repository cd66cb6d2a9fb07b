//! The WireGuard door, and the addresses of its clients.

use ipnet::{Ipv4Net, Ipv6Net};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

/// The most devices of one network.
const MOST: u32 = 1 << 20;

/// `[wireguard]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wireguard {
    /// Where clients' datagrams arrive; empty: the door is off.
    pub listen: Vec<SocketAddr>,
    /// Where clients send theirs: a name or an address, and a port.
    pub endpoint: Option<String>,
    /// The clients' addresses; the relay has the first. Default `10.77.0.0/24`.
    pub network: Ipv4Net,
    /// The others, by the same numbers. Default `fd65:6b69:6465:6e77::/64`.
    pub network_v6: Ipv6Net,
    /// The name servers of clients; empty: this relay, where it answers questions for names.
    pub dns: Vec<IpAddr>,
    /// The longest packet in the tunnel. Default 1420 bytes.
    pub mtu: u32,
    /// The name of the TUN device. Default `ekiden-wg`.
    pub device: String,
    /// Whether what the kernel forwards goes out under this machine's address. Default yes.
    pub masquerade: bool,
    /// The folder of the relay's own key. `None` until the daemon has filled it in.
    pub state: Option<PathBuf>,
}

impl Default for Wireguard {
    fn default() -> Self {
        let (v4, v6) = (Ipv4Addr::new(10, 77, 0, 0), "fd65:6b69:6465:6e77::");
        let v6 = v6.parse().unwrap_or(Ipv6Addr::UNSPECIFIED);
        Self {
            listen: Vec::new(),
            endpoint: None,
            network: Ipv4Net::new_assert(v4, 24),
            network_v6: Ipv6Net::new_assert(v6, 64),
            dns: Vec::new(),
            mtu: 1_420,
            device: "ekiden-wg".to_owned(),
            masquerade: true,
            state: None,
        }
    }
}

impl Wireguard {
    /// Whether clients may come in by it.
    pub const fn is_on(&self) -> bool {
        !self.listen.is_empty()
    }

    /// The numbers of devices: from 2 on, as 1 is the relay, up to the one before the broadcast address.
    fn numbers(&self) -> std::ops::Range<u32> {
        let bits = 32 - u32::from(self.network.prefix_len());
        let bits_v6 = 128 - u32::from(self.network_v6.prefix_len());
        let room = 1_u32.checked_shl(bits.min(bits_v6)).unwrap_or(MOST);
        2..room.saturating_sub(1).min(MOST)
    }

    /// Whether there are addresses for a device at all.
    pub fn has_room(&self) -> bool {
        !self.numbers().is_empty()
    }

    fn addresses(&self, number: u32) -> (Ipv4Addr, Ipv6Addr) {
        let v4 = self.network.network().to_bits().wrapping_add(number);
        let v6 = self.network_v6.network().to_bits().wrapping_add(number.into());
        (v4.into(), v6.into())
    }

    /// The relay's own addresses in the tunnel.
    pub fn own(&self) -> [IpAddr; 2] {
        let (v4, v6) = self.addresses(1);
        [v4.into(), v6.into()]
    }

    /// Whether clients may ask for names at this relay's address, where it answers them at `listen`: at its own in the
    /// tunnel, and at those of `dns`. Its other addresses are not theirs.
    pub fn asks_at(&self, address: IpAddr, listen: &[SocketAddr]) -> bool {
        let answers = |at: &SocketAddr| {
            let all = at.ip().is_unspecified() && at.is_ipv6() == address.is_ipv6();
            all || at.ip() == address
        };
        let given = || self.dns.contains(&address) && listen.iter().any(answers);
        !listen.is_empty() && (self.own().contains(&address) || given())
    }

    /// Whether an address is a client's of this door, or could be given to one.
    pub fn is_client(&self, address: IpAddr) -> bool {
        let is_within = match address.to_canonical() {
            IpAddr::V4(v4) => self.network.contains(&v4),
            IpAddr::V6(v6) => self.network_v6.contains(&v6),
        };
        self.is_on() && is_within && !self.own().contains(&address.to_canonical())
    }

    /// The lowest addresses that no device has; `None`: all are taken.
    pub fn free(&self, taken: &BTreeSet<Ipv4Addr>) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let mut all = self.numbers().map(|number| self.addresses(number));
        all.find(|(v4, _)| !taken.contains(v4))
    }

    /// Whether a device's addresses are of these networks, and no others'.
    pub fn has(&self, v4: Ipv4Addr, v6: Ipv6Addr) -> bool {
        let number = v4.to_bits().wrapping_sub(self.network.network().to_bits());
        self.numbers().contains(&number) && self.addresses(number) == (v4, v6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_given_in_order_and_again() {
        let network = "10.77.0.0/29".parse().unwrap();
        let door = Wireguard { network, ..Wireguard::default() };
        assert_eq!(door.own()[0].to_string(), "10.77.0.1");
        let mut taken = BTreeSet::new();
        let mut given = Vec::new();
        while let Some((v4, v6)) = door.free(&taken) {
            assert!(door.has(v4, v6) && taken.insert(v4));
            given.push(format!("{v4} {v6}"));
        }
        assert_eq!(given.len(), 5);
        assert_eq!(given[0], "10.77.0.2 fd65:6b69:6465:6e77::2");
        taken.remove(&Ipv4Addr::new(10, 77, 0, 4));
        assert_eq!(door.free(&taken).unwrap().0, Ipv4Addr::new(10, 77, 0, 4));
        for network in ["10.77.0.0/32", "10.77.0.0/31"] {
            assert!(!Wireguard { network: network.parse().unwrap(), ..door.clone() }.has_room());
        }
    }

    #[test]
    fn clients_are_within_the_networks_while_the_door_is_on() {
        let off = Wireguard::default();
        let on = Wireguard { listen: vec!["0.0.0.0:51820".parse().unwrap()], ..off.clone() };
        for (address, is_client) in [
            ("10.77.0.2", true),
            ("10.77.0.255", true),
            ("::ffff:10.77.0.3", true),
            ("fd65:6b69:6465:6e77::2", true),
            ("10.77.0.1", false),
            ("fd65:6b69:6465:6e77::1", false),
            ("10.77.1.2", false),
            ("fd65:6b69:6465:6e78::2", false),
        ] {
            let address = address.parse().unwrap();
            assert_eq!((on.is_client(address), off.is_client(address)), (is_client, false));
        }
    }

    #[test]
    fn names_are_asked_for_at_the_relay_s_addresses_in_the_tunnel_and_at_those_of_dns() {
        let [own, lan, other] =
            ["10.77.0.1", "192.168.1.1", "192.168.2.1"].map(|ip| ip.parse().unwrap());
        let door = Wireguard { dns: vec![lan, [9, 9, 9, 9].into()], ..Wireguard::default() };
        let ports = |ip: &str| [SocketAddr::new(ip.parse().unwrap(), 53)];
        let asks = |listen: &[SocketAddr]| [own, lan, other].map(|ip| door.asks_at(ip, listen));
        assert_eq!(asks(&[]), [false; 3]);
        assert_eq!(asks(&ports("127.0.0.1")), [true, false, false]);
        assert_eq!(asks(&ports("192.168.1.1")), [true, true, false]);
        assert_eq!(asks(&ports("192.168.2.1")), [true, false, false]);
        assert_eq!(asks(&ports("0.0.0.0")), [true, true, false]);
        assert_eq!(asks(&ports("::")), [true, false, false]);
        assert!(!door.asks_at([9, 9, 9, 9].into(), &ports("192.168.1.1")), "another's");
    }

    proptest! {
        #[test]
        fn a_device_has_both_addresses_of_one_number(bits in 8_u8..=32, bits_v6 in 48_u8..=128, number: u32) {
            let door = Wireguard {
                network: Ipv4Net::new([10, 0, 0, 0].into(), bits).unwrap(),
                network_v6: Ipv6Net::new("fd77::".parse().unwrap(), bits_v6).unwrap(),
                ..Wireguard::default()
            };
            if let Some((v4, v6)) = door.free(&BTreeSet::new()) {
                prop_assert!(door.has(v4, v6) && door.network.contains(&v4) && door.network_v6.contains(&v6));
                prop_assert!(v4 != door.network.broadcast() && IpAddr::V4(v4) != door.own()[0]);
            }
            let (v4, v6) = door.addresses(number);
            let both = door.network.contains(&v4) && door.network_v6.contains(&v6);
            prop_assert!(!door.has(v4, v6) || both);
            prop_assert!(!door.has(v4, "fd78::2".parse().unwrap()));
        }
    }
}
