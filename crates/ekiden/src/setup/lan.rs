//! The network on which clients are: this machine's private address.

use ekiden_linux::links::netlink::{LocalAddress, Netlink};
use ipnet::IpNet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address of this machine and its network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lan {
    pub(crate) address: IpAddr,
    pub(crate) network: IpNet,
}

fn addresses() -> Vec<LocalAddress> {
    // where they are not told, the answers are given by hand
    Netlink::here().ok().and_then(|netlink| netlink.local_addresses().ok()).unwrap_or_default()
}

/// The network that clients are most probably on: a private one, rather where no default route leads.
pub(crate) fn guess() -> Option<Lan> {
    choose(&addresses())
}

fn choose(all: &[LocalAddress]) -> Option<Lan> {
    let private = |one: &&LocalAddress| match one.address {
        IpAddr::V4(address) => address.is_private(),
        IpAddr::V6(address) => address.is_unique_local(),
    };
    let rank = |one: &&LocalAddress| (one.address.is_ipv6(), one.is_on_default_route);
    let best = all.iter().filter(private).min_by_key(rank)?;
    lan(best)
}

fn lan(one: &LocalAddress) -> Option<Lan> {
    let network = IpNet::new(one.address, one.prefix).ok()?.trunc();
    Some(Lan { address: one.address, network })
}

/// The device on which clients are most probably: a private address and no default route.
pub(crate) fn device() -> Option<String> {
    let mut all = addresses();
    all.retain(|one| !one.is_on_default_route);
    let guess = choose(&all)?;
    let index = all.iter().find(|one| one.address == guess.address)?.index;
    devices().into_iter().find(|(_, number)| *number == index).map(|(name, _)| name)
}

/// This machine's addresses on a device, by its name, but for link-local ones.
pub(crate) fn addresses_of_device(name: &str) -> Vec<IpAddr> {
    let index = devices().into_iter().find(|(known, _)| known == name).map(|(_, index)| index);
    let mut all = addresses();
    all.retain(|one| Some(one.index) == index && !is_link_local(one.address));
    let mut found: Vec<IpAddr> = all.into_iter().map(|one| one.address).collect();
    found.sort_unstable();
    found
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// The networks of a device, by its name.
pub(crate) fn networks_of_device(name: &str) -> Vec<IpNet> {
    let index = devices().into_iter().find(|(known, _)| known == name).map(|(_, index)| index);
    networks_where(&addresses(), |one| Some(one.index) == index)
}

/// Names and numbers of this machine's devices.
fn devices() -> Vec<(String, u32)> {
    Netlink::here().ok().and_then(|netlink| netlink.devices().ok()).unwrap_or_default()
}

/// The networks of some addresses, in order; link-local ones are not routed.
fn networks_where(all: &[LocalAddress], is_meant: impl Fn(&LocalAddress) -> bool) -> Vec<IpNet> {
    let meant = all.iter().filter(|one| is_meant(one) && !is_link_local(one.address));
    let mut networks: Vec<IpNet> = meant.filter_map(lan).map(|lan| lan.network).collect();
    networks.sort_unstable();
    networks.dedup();
    networks
}

/// The networks of this address: its own, or those of all addresses but loopback for 0.0.0.0 and `::`.
pub(crate) fn networks(of: IpAddr) -> Vec<IpNet> {
    let all = addresses();
    let meant = |one: &&LocalAddress| {
        one.address == of
            || of.is_unspecified()
                && of.is_ipv4() == one.address.is_ipv4()
                && !one.address.is_loopback()
    };
    networks_where(&all, |one| meant(&one))
}

/// All addresses of this machine: IPv4, and IPv6 where the kernel has it.
pub(crate) fn everywhere() -> Vec<IpAddr> {
    let six = std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok();
    let four = IpAddr::from(Ipv4Addr::UNSPECIFIED);
    std::iter::once(four).chain(six.then(|| Ipv6Addr::UNSPECIFIED.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_on_the_private_network_that_leads_nowhere_else() {
        let one = |text: &str, is_on_default_route| {
            let net: IpNet = text.parse().unwrap();
            let (address, prefix) = (net.addr(), net.prefix_len());
            LocalAddress { address, prefix, index: 1, is_on_default_route }
        };
        let found = |all: &[LocalAddress]| choose(all).map(|lan| lan.network.to_string());
        let (lo, wan) = (one("127.0.0.1/8", false), one("100.64.0.2/24", true));
        let (modem, lan) = (one("192.168.100.5/24", true), one("192.168.1.1/24", false));
        let six = one("fd00:1::1/64", false);
        assert_eq!(found(&[lo, wan]), None);
        assert_eq!(found(&[lo, modem, six]).as_deref(), Some("192.168.100.0/24"));
        assert_eq!(found(&[lo, modem, lan, six]).as_deref(), Some("192.168.1.0/24"));
        assert_eq!(found(&[wan, six]).as_deref(), Some("fd00:1::/64"));
    }
}
