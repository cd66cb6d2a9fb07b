//! Devices, and the addresses and neighbours on them.

use super::message::{Request, attribute, word};
use super::{Failure, Netlink};
use crate::netns::Netns;
use libc::c_int;
use std::cell::Cell;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

// include/uapi/linux/if_link.h
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
// include/uapi/linux/if.h, RFC 2863
const IF_OPER_UP: u8 = 6;
// include/uapi/linux/if_addr.h, neighbour.h
const IFA_FLAGS: u16 = 8;
const IFA_F_NODAD: u32 = 2;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NUD_PERMANENT: u16 = 0x80;

/// For how long the kernel's workers may take over what they are to do. They were seen to take a second.
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

/// What a device has counted since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkStatistics {
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
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
    /// Makes two joined devices, each in its namespace from the first, down. What one sends the other
    /// receives. `gso_max_segs` of 1 makes TCP hand over single packets rather than super-packets.
    ///
    /// # Errors
    /// `EEXIST` when a name is taken, `EPERM` without `CAP_NET_ADMIN` in both namespaces, `ERANGE` for
    /// a name too long.
    pub fn veth(
        &self,
        a: &End<'_>,
        b: &End<'_>,
        mtu: u32,
        gso_max_segs: Option<u32>,
        txqueuelen: u32,
    ) -> Result<(), Failure> {
        let describe = |request: &mut Request, end: &End<'_>| {
            request.text(libc::IFLA_IFNAME, end.name).put(libc::IFLA_ADDRESS, &end.mac);
            request.number(libc::IFLA_MTU, mtu).number(libc::IFLA_TXQLEN, txqueuelen);
            request.number(libc::IFLA_NET_NS_FD, end.netns.as_fd().as_raw_fd() as u32);
            if let Some(segments) = gso_max_segs {
                request.number(IFLA_GSO_MAX_SEGS, segments);
            }
        };
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut request = Request::new(libc::RTM_NEWLINK, flags, &link(0, 0, 0));
        describe(&mut request, a);
        request.nest(libc::IFLA_LINKINFO, &[], |info| {
            info.text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, &[], |data| {
                data.nest(VETH_INFO_PEER, &link(0, 0, 0), |peer| describe(peer, b));
            });
        });
        self.change(&format!("the pair of devices {} and {}", a.name, b.name), &mut request)
    }

    /// Brings a device up.
    ///
    /// # Errors
    /// `ENODEV` when there is none of this name.
    pub fn up(&self, name: &str) -> Result<(), Failure> {
        self.flags(name, "up", libc::IFF_UP as u32)
    }

    /// Waits until a device that is up sends what it is given. The one of a pair that was brought up before
    /// its other end throws packets away until a worker of the kernel's has seen the carrier, which takes
    /// long where processors are busy. The one that was brought up last sends at once, and is said to be up
    /// as much as a second later: it is not to be waited for.
    ///
    /// # Errors
    /// `ETIMEDOUT` when it does not within [`PATIENCE`], `ENODEV` when there is none of this name.
    pub fn await_sending(&self, name: &str) -> Result<(), Failure> {
        until(&format!("{name} up and sending"), || {
            let is_up = Cell::new(false);
            self.link(name, |attributes| {
                let state = attribute(attributes, libc::IFLA_OPERSTATE);
                is_up.set(state.and_then(<[u8]>::first) == Some(&IF_OPER_UP));
            })?;
            Ok(is_up.get())
        })
    }

    /// Keeps a device from speaking for itself: neither ARP nor neighbour, router or multicast
    /// discovery. Before [`Self::up`]; addresses then need [`Self::neighbour`].
    ///
    /// # Errors
    /// `ENODEV` when there is none of this name.
    pub fn set_noarp(&self, name: &str) -> Result<(), Failure> {
        self.flags(name, "without ARP", libc::IFF_NOARP as u32)?;
        let index = self.index(name)?;
        let mut request = Request::new(libc::RTM_SETLINK, libc::NLM_F_ACK, &link(index, 0, 0));
        request.nest(libc::IFLA_AF_SPEC, &[], |families| {
            families.nest(libc::AF_INET6 as u16, &[], |v6| {
                v6.put(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
            });
        });
        match self.change(&format!("{name} without an address of its own making"), &mut request) {
            // no IPv6 here, or not on so small an MTU: then it has nothing to say in it
            Err(failure) if failure.errno() == libc::EAFNOSUPPORT => Ok(()),
            other => other,
        }
    }

    /// Gives a device that is up an address, usable at once, and a route to the `prefix` bits of it.
    ///
    /// # Errors
    /// `ETIMEDOUT` when the kernel does not take packets to it within [`PATIENCE`].
    /// `EEXIST` when it has it, `ENODEV`; `EACCES` or `EINVAL` for IPv6 on a device whose MTU is below
    /// the 1280 bytes that IPv6 demands (RFC 8200 §5) or that has it switched off.
    pub fn address(&self, name: &str, address: IpAddr, prefix: u8) -> Result<(), Failure> {
        let index = self.index(name)?;
        let family = family(address);
        let mut fixed = vec![family, prefix, 0, 0]; // struct ifaddrmsg
        fixed.extend(index.to_ne_bytes());
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let mut request = Request::new(libc::RTM_NEWADDR, flags, &fixed);
        let bytes = octets(address);
        request.put(libc::IFA_LOCAL, &bytes).put(libc::IFA_ADDRESS, &bytes);
        if address.is_ipv6() {
            request.number(IFA_FLAGS, IFA_F_NODAD);
        }
        let what = format!("the address {address}/{prefix} on {name}");
        self.change(&what, &mut request)?;
        if address.is_ipv6() {
            // a worker of the kernel's takes it into use; until then packets to it are thrown away
            return until(&what, || self.is_own(address));
        }
        Ok(())
    }

    /// Whether packets to an address are taken in here.
    fn is_own(&self, address: IpAddr) -> Result<bool, Failure> {
        let bytes = octets(address);
        let mut fixed = [0; 12]; // struct rtmsg
        fixed[..2].copy_from_slice(&[family(address), 8 * bytes.len() as u8]);
        let mut request = Request::new(libc::RTM_GETROUTE, libc::NLM_F_ACK, &fixed);
        request.put(libc::RTA_DST, &bytes);
        let own = Cell::new(false);
        let asked = self.ask(&format!("the way to {address}"), &mut request, |kind, body| {
            let local = body.get(7) == Some(&libc::RTN_LOCAL);
            own.set(own.get() || (kind == libc::RTM_NEWROUTE && local));
        });
        match asked {
            Err(failure) if failure.errno() == libc::ENETUNREACH => Ok(false),
            asked => asked.map(|()| own.get()),
        }
    }

    /// Tells a device for good what the hardware address of a neighbour is.
    ///
    /// # Errors
    /// `ENODEV` when there is no such device.
    pub fn neighbour(&self, name: &str, address: IpAddr, mac: [u8; 6]) -> Result<(), Failure> {
        let index = self.index(name)?;
        let mut fixed = vec![family(address), 0, 0, 0]; // struct ndmsg
        fixed.extend(index.to_ne_bytes());
        fixed.extend(NUD_PERMANENT.to_ne_bytes());
        fixed.extend([0, 0]);
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let mut request = Request::new(libc::RTM_NEWNEIGH, flags, &fixed);
        request.put(NDA_DST, &octets(address)).put(NDA_LLADDR, &mac);
        self.change(&format!("the neighbour {address} on {name}"), &mut request)
    }

    /// What a device has counted.
    ///
    /// # Errors
    /// `ENODEV` when there is none of this name.
    pub fn link_statistics(&self, name: &str) -> Result<LinkStatistics, Failure> {
        let counts = Cell::new(LinkStatistics::default());
        self.link(name, |attributes| counts.set(statistics(attributes)))?;
        Ok(counts.get())
    }

    /// Takes a device away, and the other end of a pair with it.
    ///
    /// # Errors
    /// `ENODEV` when there is none of this name.
    pub fn delete(&self, name: &str) -> Result<(), Failure> {
        let index = self.index(name)?;
        let mut request = Request::new(libc::RTM_DELLINK, libc::NLM_F_ACK, &link(index, 0, 0));
        self.change(&format!("taking {name} away"), &mut request)
    }

    /// The number of a device.
    pub(super) fn index(&self, name: &str) -> Result<u32, Failure> {
        self.link(name, |_| {})
    }

    fn link(&self, name: &str, mut each: impl FnMut(&[u8])) -> Result<u32, Failure> {
        let mut request = Request::new(libc::RTM_GETLINK, libc::NLM_F_ACK, &link(0, 0, 0));
        request.text(libc::IFLA_IFNAME, name);
        let mut index = 0;
        self.ask(&format!("a look at {name}"), &mut request, |kind, body| {
            if kind == libc::RTM_NEWLINK {
                index = word(body, 4).unwrap_or(0);
                each(body.get(16..).unwrap_or_default());
            }
        })?;
        Ok(index)
    }

    fn flags(&self, name: &str, how: &str, flags: u32) -> Result<(), Failure> {
        let index = self.index(name)?;
        let fixed = link(index, flags, flags);
        let mut request = Request::new(libc::RTM_SETLINK, libc::NLM_F_ACK, &fixed);
        self.change(&format!("{name} {how}"), &mut request)
    }
}

/// Asks until it is so.
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

/// `struct ifinfomsg`.
fn link(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[4..8].copy_from_slice(&index.to_ne_bytes());
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&change.to_ne_bytes());
    bytes
}

/// From `struct rtnl_link_stats64` and its neighbours.
fn statistics(attributes: &[u8]) -> LinkStatistics {
    let stats = attribute(attributes, libc::IFLA_STATS64).unwrap_or_default();
    let count = |n: usize| {
        let chunk = stats.get(n * 8..).and_then(<[u8]>::first_chunk);
        chunk.map_or(0, |chunk| u64::from_ne_bytes(*chunk))
    };
    let number = |kind| attribute(attributes, kind).and_then(|value| word(value, 0)).unwrap_or(0);
    LinkStatistics {
        rx_packets: count(0),
        tx_packets: count(1),
        rx_bytes: count(2),
        tx_bytes: count(3),
        rx_dropped: count(6),
        tx_dropped: count(7),
        gso_max_segs: number(IFLA_GSO_MAX_SEGS),
        mtu: number(libc::IFLA_MTU),
    }
}

/// The address family's number.
pub(super) fn family(address: IpAddr) -> u8 {
    let family: c_int = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    family as u8
}

/// The bytes of an address.
pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}
