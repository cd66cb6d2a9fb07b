//! The addresses of this network namespace, and the devices of its default routes.

use super::{Failure, Netlink};
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage};
use std::net::IpAddr;

/// An address of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalAddress {
    /// It.
    pub address: IpAddr,
    /// Bits of its network.
    pub prefix: u8,
    /// Number of its device.
    pub index: u32,
    /// Whether a default route goes over its device.
    pub is_on_default_route: bool,
}

impl Netlink {
    /// All addresses, in the kernel's order; no privilege is needed. Errors: the kernel's.
    pub fn local_addresses(&self) -> Result<Vec<LocalAddress>, Failure> {
        let dump = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let routes = self.ask("a look at the routes", dump, NLM_F_DUMP)?;
        let default: Vec<u32> = routes.iter().filter_map(default_device).collect();
        let dump = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answers = self.ask("a look at the addresses", dump, NLM_F_DUMP)?;
        Ok(answers.iter().filter_map(|answer| local(answer, &default)).collect())
    }
}

fn local(answer: &RouteNetlinkMessage, default: &[u32]) -> Option<LocalAddress> {
    let RouteNetlinkMessage::NewAddress(message) = answer else { return None };
    // on a link between two ends `Address` is the other end's
    let own = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let any = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    Some(LocalAddress {
        address: own.or(any)?,
        prefix: message.header.prefix_len,
        index: message.header.index,
        is_on_default_route: default.contains(&message.header.index),
    })
}

fn default_device(answer: &RouteNetlinkMessage) -> Option<u32> {
    let RouteNetlinkMessage::NewRoute(route) = answer else { return None };
    let header = &route.header;
    if header.destination_prefix_length != 0 || header.table != RouteHeader::RT_TABLE_MAIN {
        return None;
    }
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(device) => Some(*device),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_among_the_addresses() {
        let all = Netlink::here().unwrap().local_addresses().unwrap();
        let loopback = all.iter().find(|one| one.address.is_loopback() && one.address.is_ipv4());
        let loopback = loopback.unwrap_or_else(|| panic!("{all:?}"));
        assert!(loopback.prefix == 8 && !loopback.is_on_default_route, "{all:?}");
    }
}
