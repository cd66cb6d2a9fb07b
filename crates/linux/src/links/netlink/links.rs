//! Devices, and the addresses and neighbours on them.

use super::{Failure, Netlink};
use crate::namespaces::netns::Netns;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute,
    LinkFlags, LinkInfo, LinkMessage, State,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Limit for work that the kernel defers to its workers. They were seen to take a second.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// One end of a pair of devices.
#[derive(Debug, Clone, Copy)]
pub struct End<'a> {
    /// Its name, at most 15 bytes.
    pub name: &'a str,
    /// Its address.
    pub mac: [u8; 6],
    /// Where it shall be.
    pub netns: &'a Netns,
}

/// Counters of a device since its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)] // the names say it
pub struct LinkStatistics {
    pub rx_packets: u64,
    pub tx_packets: u64,
    /// Packets received and thrown away for want of room.
    pub rx_dropped: u64,
    /// Packets that could not be sent for want of room.
    pub tx_dropped: u64,
    /// How many packets a super-packet handed to the device may stand for; 1: none is one.
    pub gso_max_segs: u32,
    /// The largest packet, bytes.
    pub mtu: u32,
}

impl Netlink {
    /// Creates two joined devices, down, each in its namespace. `gso_max_segs` of 1 makes TCP send
    /// single packets, no super-packets. Errors: `EEXIST` for a taken name, `EPERM` without
    /// `CAP_NET_ADMIN` in both namespaces, `ERANGE` for a name too long.
    pub fn veth(
        &self,
        a: &End<'_>,
        b: &End<'_>,
        mtu: u32,
        gso_max_segs: Option<u32>,
        txqueuelen: u32,
    ) -> Result<(), Failure> {
        let describe = |end: &End<'_>| {
            let mut message = LinkMessage::default();
            message.attributes = vec![
                LinkAttribute::IfName(end.name.to_owned()),
                LinkAttribute::Address(end.mac.to_vec()),
                LinkAttribute::Mtu(mtu),
                LinkAttribute::TxQueueLen(txqueuelen),
                LinkAttribute::NetNsFd(end.netns.as_fd().as_raw_fd()),
            ];
            message.attributes.extend(gso_max_segs.map(LinkAttribute::GsoMaxSegs));
            message
        };
        let mut message = describe(a);
        let peer = InfoData::Veth(InfoVeth::Peer(describe(b)));
        let info = vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(peer)];
        message.attributes.push(LinkAttribute::LinkInfo(info));
        let what = format!("the pair of devices {} and {}", a.name, b.name);
        self.change(&what, RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Brings a device up. Errors: `ENODEV`.
    pub fn up(&self, name: &str) -> Result<(), Failure> {
        self.flags(name, "up", LinkFlags::Up)
    }

    /// Sets the longest packet that a device sends, bytes. Errors: `ENODEV`, `EINVAL` out of the device's range.
    pub fn set_mtu(&self, name: &str, mtu: u32) -> Result<(), Failure> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.attributes = vec![LinkAttribute::Mtu(mtu)];
        self.change(&format!("an MTU of {mtu} on {name}"), RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Waits until a device that is up transmits: the end of a pair that came up first drops
    /// packets until the kernel has seen the carrier. Do not wait for the end that came up last: it
    /// transmits at once but reports so up to a second later. Errors: `ETIMEDOUT` after
    /// [`PATIENCE`], `ENODEV`.
    pub fn await_sending(&self, name: &str) -> Result<(), Failure> {
        until(&format!("{name} up and sending"), || {
            let state = LinkAttribute::OperState(State::Up);
            Ok(self.link(name)?.attributes.contains(&state))
        })
    }

    /// Keeps a device from sending ARP and neighbour, router or multicast discovery. Before
    /// [`Self::up`]; addresses then need [`Self::neighbour`]. Errors: `ENODEV`.
    pub fn set_noarp(&self, name: &str) -> Result<(), Failure> {
        self.flags(name, "without ARP", LinkFlags::Noarp)?;
        let mode = AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)]);
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.attributes = vec![LinkAttribute::AfSpecUnspec(vec![mode])];
        let what = format!("{name} without an address of its own making");
        match self.change(&what, RouteNetlinkMessage::SetLink(message), 0) {
            // no IPv6 here, or not on so small an MTU: then it sends nothing by IPv6
            Err(failure) if failure.errno() == libc::EAFNOSUPPORT => Ok(()),
            other => other,
        }
    }

    /// Gives a device that is up an address, usable at once, and a route to its `prefix` bits.
    /// Errors: `ETIMEDOUT` where packets to it are not accepted within [`PATIENCE`], `EEXIST`,
    /// `ENODEV`; `EACCES` or `EINVAL` for IPv6 where the MTU is below 1280 bytes (RFC 8200 §5) or
    /// IPv6 is off.
    pub fn address(&self, name: &str, address: IpAddr, prefix: u8) -> Result<(), Failure> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix;
        message.header.index = self.index(name)?;
        message.attributes =
            vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        if address.is_ipv6() {
            message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let what = format!("the address {address}/{prefix} on {name}");
        let message = RouteNetlinkMessage::NewAddress(message);
        self.change(&what, message, NLM_F_CREATE | NLM_F_EXCL)?;
        if address.is_ipv6() {
            // a worker of the kernel takes it into use; until then packets to it are dropped
            return until(&what, || self.is_own(address));
        }
        Ok(())
    }

    /// Whether packets to an address are taken in here.
    fn is_own(&self, address: IpAddr) -> Result<bool, Failure> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        message.attributes = vec![RouteAttribute::Destination(address.into())];
        let is_local = |answer: &RouteNetlinkMessage| match answer {
            RouteNetlinkMessage::NewRoute(route) => route.header.kind == RouteType::Local,
            _ => false,
        };
        let what = format!("the way to {address}");
        match self.ask(&what, RouteNetlinkMessage::GetRoute(message), 0) {
            Ok(answers) => Ok(answers.iter().any(is_local)),
            Err(failure) if failure.errno() == libc::ENETUNREACH => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Sets a permanent neighbour entry with a hardware address. Errors: `ENODEV`.
    pub fn neighbour(&self, name: &str, address: IpAddr, mac: [u8; 6]) -> Result<(), Failure> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = self.index(name)?;
        message.header.state = NeighbourState::Permanent;
        let to = match address {
            IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
            IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
        };
        message.attributes = vec![
            NeighbourAttribute::Destination(to),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ];
        let what = format!("the neighbour {address} on {name}");
        let message = RouteNetlinkMessage::NewNeighbour(message);
        self.change(&what, message, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Names and numbers of all devices. Errors: the kernel's.
    pub fn devices(&self) -> Result<Vec<(String, u32)>, Failure> {
        let dump = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.ask("a look at the devices", dump, NLM_F_DUMP)?;
        let device = |answer: RouteNetlinkMessage| {
            let RouteNetlinkMessage::NewLink(link) = answer else { return None };
            let index = link.header.index;
            link.attributes.into_iter().find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some((name, index)),
                _ => None,
            })
        };
        Ok(answers.into_iter().filter_map(device).collect())
    }

    /// Whether a device is up. Errors: `ENODEV`.
    pub fn is_up(&self, name: &str) -> Result<bool, Failure> {
        Ok(self.link(name)?.header.flags.contains(LinkFlags::Up))
    }

    /// A device's counters. Errors: `ENODEV`.
    pub fn link_statistics(&self, name: &str) -> Result<LinkStatistics, Failure> {
        Ok(statistics(&self.link(name)?.attributes))
    }

    /// Deletes a device, and the other end of a pair with it. Errors: `ENODEV`.
    pub fn delete(&self, name: &str) -> Result<(), Failure> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        self.change(&format!("taking {name} away"), RouteNetlinkMessage::DelLink(message), 0)
    }

    pub(super) fn index(&self, name: &str) -> Result<u32, Failure> {
        Ok(self.link(name)?.header.index)
    }

    fn link(&self, name: &str) -> Result<LinkMessage, Failure> {
        let what = format!("a look at {name}");
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        let answers = self.ask(&what, RouteNetlinkMessage::GetLink(message), 0)?;
        let link = answers.into_iter().find_map(|answer| match answer {
            RouteNetlinkMessage::NewLink(link) => Some(link),
            _ => None,
        });
        link.ok_or_else(|| Failure::new(&what, libc::EBADMSG))
    }

    fn flags(&self, name: &str, how: &str, flags: LinkFlags) -> Result<(), Failure> {
        let mut message = LinkMessage::default();
        message.header.index = self.index(name)?;
        message.header.flags = flags;
        message.header.change_mask = flags;
        self.change(&format!("{name} {how}"), RouteNetlinkMessage::SetLink(message), 0)
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let end = Instant::now() + PATIENCE;
    while !is_so()? {
        if Instant::now() > end {
            return Err(Failure::new(what, libc::ETIMEDOUT));
        }
        sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn statistics(attributes: &[LinkAttribute]) -> LinkStatistics {
    let mut read = LinkStatistics::default();
    for attribute in attributes {
        match attribute {
            LinkAttribute::Stats64(stats) => {
                read.rx_packets = stats.rx_packets;
                read.tx_packets = stats.tx_packets;
                read.rx_dropped = stats.rx_dropped;
                read.tx_dropped = stats.tx_dropped;
            }
            LinkAttribute::GsoMaxSegs(segments) => read.gso_max_segs = *segments,
            LinkAttribute::Mtu(mtu) => read.mtu = *mtu,
            _ => {}
        }
    }
    read
}

pub(super) const fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
