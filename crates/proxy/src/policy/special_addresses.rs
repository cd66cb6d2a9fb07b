//! Addresses with a special purpose (IANA special-purpose registries).

use super::embedded::{embedded, is_nobodys};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Metadata services of clouds. Amazon's has a range of IPv6 addresses, of which this is one.
pub const METADATA: &[IpAddr] = &[
    // link-local, of most clouds
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    // Alibaba Cloud's is within 100.64/10, Oracle's within 192.0.0/24, Azure's looks public
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // Amazon's, Google's, Akamai's, Scaleway's, Oracle's and Alibaba Cloud's
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200)),
];

/// The kind of a special address, the strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Special {
    /// This machine: 127.0.0.0/8, ::1, and "any" (0.0.0.0/8, ::), which Linux treats as this machine.
    Loopback,
    /// 169.254.0.0/16, fe80::/10: the local link, and metadata services of clouds.
    LinkLocal,
    /// A cloud's metadata service at an address that is not link-local.
    Metadata,
    /// Multicast and broadcast.
    Multicast,
    /// Not assigned to hosts: 240/4, documentation, benchmarking, discard-only, segment identifiers, 6to4's relays.
    Reserved,
    /// 10/8, 172.16/12, 192.168/16, 100.64/10 (RFC 6598), fc00::/7, fec0::/10. Open to clients that have one.
    Private,
    /// This machine's, though it looks public; by the kernel, and not by [`special`]. Open to clients on loopback.
    Own,
}

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "a loopback address",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "a cloud's metadata service",
            Self::Private => "a private address",
            Self::Multicast => "a multicast or broadcast address",
            Self::Reserved => "a reserved address",
            Self::Own => "an address of the relay's own machine",
        })
    }
}

/// The kind of `address`; an IPv4 address within IPv6 (mapped, compatible, NAT64, 6to4) counts as
/// IPv4. Where several may be meant, the strictest counts.
pub fn special(address: IpAddr) -> Option<Special> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<Special> {
    Some(match address.octets() {
        [0 | 127, ..] => Special::Loopback,
        [169, 254, ..] => Special::LinkLocal,
        _ if METADATA.contains(&IpAddr::V4(address)) => Special::Metadata,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Special::Private,
        [255, 255, 255, 255] | [224..=239, ..] => Special::Multicast,
        // 192.88.99/24: relays of 6to4, withdrawn (RFC 7526)
        [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [240..=255, ..] => Special::Reserved,
        _ => return None,
    })
}

fn special_v6(address: Ipv6Addr) -> Option<Special> {
    let own = match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Some(Special::Loopback),
        [0x64, 0xff9b, 1, ..] if is_nobodys(address) => Some(Special::Reserved),
        // Amazon's instance services
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, _] => Some(Special::Metadata),
        _ if METADATA.contains(&IpAddr::V6(address)) => Some(Special::Metadata),
        [0xfe80..=0xfebf, ..] => Some(Special::LinkLocal),
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Some(Special::Private),
        [0xff00..=0xffff, ..] => Some(Special::Multicast),
        // discard-only, dummy (RFC 9780), Teredo, benchmarking, ORCHID, documentation, segment identifiers (RFC 9602)
        [0x100, 0, 0, 0 | 1, ..]
        | [0x2001, 0 | 2, ..]
        | [0x2001, 0x10..=0x3f, ..]
        | [0x2001, 0xdb8, ..]
        | [0x3fff | 0x5f00, ..] => Some(Special::Reserved),
        _ => None,
    };
    own.into_iter().chain(embedded(address, None).filter_map(special_v4)).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_the_list_of_forbidden_ones_is_special() {
        for (address, kind) in ekiden_testkit::forbidden::addresses() {
            let found = special(address).map(|kind| kind.to_string());
            assert_eq!(found.as_deref(), Some(kind), "{address}");
        }
    }

    #[test]
    fn classifies_every_range_at_its_edges() {
        use Special::*;
        for (text, kind) in [
            ("127.255.255.255", Some(Loopback)),
            ("0.1.2.3", Some(Loopback)),
            ("126.255.255.255", None),
            ("128.0.0.1", None),
            ("10.255.0.1", Some(Private)),
            ("172.15.255.255", None),
            ("172.16.0.0", Some(Private)),
            ("172.31.255.255", Some(Private)),
            ("172.32.0.0", None),
            ("100.63.255.255", None),
            ("100.64.0.1", Some(Private)),
            ("100.100.100.200", Some(Metadata)),
            ("169.254.169.254", Some(LinkLocal)),
            ("224.0.0.1", Some(Multicast)),
            ("239.255.255.255", Some(Multicast)),
            ("240.0.0.1", Some(Reserved)),
            ("255.255.255.255", Some(Multicast)),
            ("8.8.8.8", None),
            ("::", Some(Loopback)),
            ("::1", Some(Loopback)),
            ("::127.0.0.1", Some(Loopback)),
            ("::ffff:10.0.0.1", Some(Private)),
            ("::ffff:8.8.8.8", None),
            ("64:ff9b::a9fe:a9fe", Some(LinkLocal)),
            ("2002:7f00:1::1", Some(Loopback)),
            ("2002:808:808::1", None),
            ("fe80::1", Some(LinkLocal)),
            ("168.63.129.16", Some(Metadata)),
            ("168.63.129.17", None),
            ("fd00:ec2::254", Some(Metadata)),
            ("fd00:ec2::23", Some(Metadata)),
            ("fd20:ce::254", Some(Metadata)),
            ("fd00:a9fe:a9fe::1", Some(Metadata)),
            ("fd00:a9fe:a9fe::2", Some(Private)),
            ("fd00:42::42", Some(Metadata)),
            ("fd00:42::43", Some(Private)),
            ("fd00:c1::a9fe:a9fe", Some(Metadata)),
            ("fd00:c1::a9fe:a9ff", Some(Private)),
            ("fd00:100::100:200", Some(Metadata)),
            ("fd00:100::100:201", Some(Private)),
            ("fd12::1", Some(Private)),
            ("ff02::1", Some(Multicast)),
            ("2001:db8::1", Some(Reserved)),
            ("2606:4700::1111", None),
            ("5f00::1", Some(Reserved)),
            ("5eff::1", None),
            ("100:0:0:1::1", Some(Reserved)),
            ("100:0:0:2::1", None),
            ("5f01::1", None),
            ("192.88.99.1", Some(Reserved)),
            ("192.88.98.255", None),
            ("192.88.100.0", None),
            // RFC 8215 with prefixes of 96, 48, 56 and 64 bits
            ("64:ff9b:1::127.0.0.1", Some(Loopback)),
            ("64:ff9b:1:7f00:0:100::", Some(Loopback)),
            ("64:ff9b:1:127f:0:1::", Some(Loopback)),
            ("64:ff9b:1:1234:7f:0:100:0", Some(Loopback)),
            ("64:ff9b:1:abcd::169.254.169.254", Some(LinkLocal)),
            ("64:ff9b:1::10.0.0.1", Some(Private)),
            ("64:ff9b:1:a00:0:100::", Some(Private)),
            ("64:ff9b:1:a00:0:100:808:808", Some(Private)),
            ("64:ff9b:1:7f00:0:100:808:808", Some(Loopback)),
            ("64:ff9b:1::8.8.8.8", None),
            ("64:ff9b:1:808:8:800::", None),
            ("64:ff9b:1:1:808:808:808:808", Some(Reserved)),
            ("64:ff9b:1::", Some(Reserved)),
            ("64:ff9b:2::1", None),
        ] {
            assert_eq!(special(text.parse().unwrap()), kind, "{text}");
        }
    }
}
