//! Whether an address is this machine's own: a lookup of its route. To bind a socket tells less: with
//! `net.ipv4.ip_nonlocal_bind` every address can be bound.

use super::links::family;
use super::{Failure, Netlink};
use crate::host::sync::locked;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::Mutex;

/// What the kernel answers where no route leads to an address, or one that drops its packets.
const NO_WAY: [i32; 5] =
    [libc::ENETUNREACH, libc::EHOSTUNREACH, libc::ENETDOWN, libc::EACCES, libc::EINVAL];

/// Kept open: where all descriptors are in use, addresses can still be looked up.
static KEPT: Mutex<Option<Netlink>> = Mutex::new(None);

/// Whether packets to `address` stay on this machine: it is a device's own, or within a prefix that is routed as `local`.
/// Asks in the namespace of the process's first lookup. Errors: the kernel cannot be asked, as without a descriptor.
pub fn is_local(address: IpAddr) -> io::Result<bool> {
    look_up(&mut locked(&KEPT), address).or_else(|_| can_bind(address))
}

fn look_up(kept: &mut Option<Netlink>, address: IpAddr) -> io::Result<bool> {
    let netlink = match kept.take() {
        Some(netlink) => netlink,
        None => Netlink::here()?,
    };
    let found = netlink.is_local(address);
    let found = found.map_err(|failure| io::Error::from_raw_os_error(failure.errno()))?;
    *kept = Some(netlink);
    Ok(found)
}

/// For a machine that refuses netlink, as some containers do.
fn can_bind(address: IpAddr) -> io::Result<bool> {
    match UdpSocket::bind((address, 0)) {
        Ok(_) => Ok(true),
        Err(error) => match error.raw_os_error() {
            Some(libc::EADDRNOTAVAIL | libc::EINVAL | libc::EAFNOSUPPORT) => Ok(false),
            _ => Err(error),
        },
    }
}

impl Netlink {
    /// Whether packets to `address` stay on this machine; no privilege is needed. Errors: the kernel's.
    pub fn is_local(&self, address: IpAddr) -> Result<bool, Failure> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        message.attributes = vec![RouteAttribute::Destination(address.into())];
        let what = format!("a look at the route to {address}");
        match self.ask(&what, RouteNetlinkMessage::GetRoute(message), 0) {
            Ok(answers) => Ok(answers.iter().any(|answer| {
                matches!(answer, RouteNetlinkMessage::NewRoute(route) if route.header.kind == RouteType::Local)
            })),
            Err(failure) if NO_WAY.contains(&failure.errno()) => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_local_and_addresses_of_examples_are_not() {
        for (address, expected) in
            [("127.0.0.1", true), ("127.1.2.3", true), ("192.0.2.1", false), ("2001:db8::1", false)]
        {
            let address = address.parse().unwrap();
            let [first, kept] = [is_local(address).unwrap(), is_local(address).unwrap()];
            assert_eq!([first, kept, can_bind(address).unwrap()], [expected; 3], "{address}");
        }
    }
}
