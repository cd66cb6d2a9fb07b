//! What of a packet's heads decides who sent it and where it may go. Every byte is a client's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most extension heads of IPv6 that are followed (RFC 8200 §4.1 names no more than seven). A longer chain would hide
/// what the packet carries.
const MOST_HEADS: usize = 8;

// options of IPv4 by which a packet chooses its own way (RFC 791 §3.1)
const LOOSE_ROUTE: u8 = 131;
const STRICT_ROUTE: u8 = 137;

/// What follows the IP head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the names say it
pub enum Protocol {
    Tcp,
    Udp,
    Icmp,
    /// Another, by its number.
    Other(u8),
}

impl Protocol {
    /// Whether it begins with ports: TCP, UDP, DCCP, SCTP and UDP-Lite.
    pub const fn has_ports(self) -> bool {
        matches!(self, Self::Tcp | Self::Udp | Self::Other(33 | 132 | 136))
    }
}

/// A packet's heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Its sender.
    pub source: IpAddr,
    /// Its receiver.
    pub destination: IpAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// The ports, where the protocol has some: the sender's and the receiver's. `None`: others, and later fragments.
    pub ports: Option<(u16, u16)>,
    /// What tells a query of ICMP and its answer from others. `None`: others, errors, and later fragments.
    pub query: Option<u16>,
    /// Bytes of the whole packet, which may be fewer than were given.
    pub length: usize,
    /// Bytes behind the fixed heads of IP (20 or 40 bytes) and UDP: options and extension heads count.
    pub payload: usize,
}

/// Reads the heads. `None`: no packet of IP, one whose heads are cut short, too many or out of order, or one that chooses
/// its own way. A first fragment holds all heads (RFC 8200 §4.5), because rules judge it for those that follow.
pub fn inspect(packet: &[u8]) -> Option<Header> {
    match packet.first()? >> 4 {
        4 => v4(packet),
        6 => v6(packet),
        _ => None,
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn v4(packet: &[u8]) -> Option<Header> {
    let head: &[u8; 20] = packet.first_chunk()?;
    let (start, length) = (usize::from(head[0] & 15) * 4, usize::from(number(head, 2)?));
    if start < 20 || length < start {
        return None;
    }
    let packet = packet.get(..length)?;
    let is_first = number(head, 6)? & 0x1fff == 0;
    let source = Ipv4Addr::from(*head.get(12..)?.first_chunk::<4>()?);
    let destination = Ipv4Addr::from(*head.get(16..)?.first_chunk::<4>()?);
    if chooses_its_way(packet.get(20..start)?) {
        return None;
    }
    let ends = (source.into(), destination.into());
    header(ends, head[9], packet, packet.get(start..)?, is_first)
}

/// Whether options of IPv4 hold a source route, or cannot be read.
fn chooses_its_way(mut options: &[u8]) -> bool {
    while let Some(kind) = options.first() {
        let length = match kind {
            // the end of all, and padding
            0 => return false,
            1 => 1,
            &LOOSE_ROUTE | &STRICT_ROUTE => return true,
            _ => options.get(1).map_or(0, |length| usize::from(*length)),
        };
        match options.get(length..) {
            Some(rest) if length > 0 => options = rest,
            _ => return true,
        }
    }
    false
}

fn v6(packet: &[u8]) -> Option<Header> {
    let head: &[u8; 40] = packet.first_chunk()?;
    let packet = packet.get(..40 + usize::from(number(head, 4)?))?;
    let source = Ipv6Addr::from(*head.get(8..)?.first_chunk::<16>()?);
    let destination = Ipv6Addr::from(*head.get(24..)?.first_chunk::<16>()?);
    let ends = (source.into(), destination.into());
    let (mut next, mut rest, mut is_fragment) = (head[6], packet.get(40..)?, false);
    for nth in 0..=MOST_HEADS {
        let length = match next {
            // hop by hop, as the first alone (RFC 8200 §4.3)
            0 if nth == 0 => (usize::from(*rest.get(1)?) + 1) * 8,
            // for the destination (RFC 8200 §4.6)
            60 => (usize::from(*rest.get(1)?) + 1) * 8,
            // authentication (RFC 4302 §2.2), in units of four bytes
            51 => (usize::from(*rest.get(1)?) + 2) * 4,
            // a fragment, once (RFC 8200 §4.5)
            44 if !is_fragment => {
                is_fragment = true;
                if number(rest, 2)? & 0xfff8 != 0 {
                    let next = *rest.first()?;
                    return header(ends, next, packet, rest.get(8..)?, false);
                }
                8
            }
            // out of order, or a routing head
            0 | 43 | 44 => return None,
            _ => return header(ends, next, packet, rest, true),
        };
        next = *rest.first()?;
        rest = rest.get(length..)?;
    }
    None
}

fn header(
    (source, destination): (IpAddr, IpAddr),
    protocol: u8,
    packet: &[u8],
    rest: &[u8],
    is_first: bool,
) -> Option<Header> {
    let protocol = match protocol {
        6 => Protocol::Tcp,
        17 => Protocol::Udp,
        1 | 58 => Protocol::Icmp,
        other => Protocol::Other(other),
    };
    // the least that those with ports begin with
    let own = match protocol {
        Protocol::Tcp if is_first => 20,
        _ if is_first && protocol.has_ports() => 8,
        _ => 0,
    };
    if rest.len() < own {
        return None;
    }
    let ports = if own > 0 { number(rest, 0).zip(number(rest, 2)) } else { None };
    let icmp = is_first && protocol == Protocol::Icmp;
    let query = if icmp { query(rest, source.is_ipv4()) } else { None };
    let length = packet.len();
    // a client chooses what is in options and extension heads, and could send anything in them
    let fixed = if source.is_ipv4() { 20 } else { 40 };
    let udp = if protocol == Protocol::Udp { own } else { 0 };
    let payload = length.saturating_sub(fixed + udp);
    Some(Header { source, destination, protocol, ports, query, length, payload })
}

/// The identifier of a query by ICMP, or of its answer (RFC 792, RFC 4443 §4).
fn query(rest: &[u8], is_v4: bool) -> Option<u16> {
    let kind = *rest.first()?;
    let is_query = if is_v4 { matches!(kind, 0 | 8 | 13..=18) } else { kind >= 128 };
    if is_query { number(rest, 4) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::testing::{tcp, udp};
    use proptest::prelude::*;

    #[test]
    fn reads_both_families() {
        for (from, to) in [("10.77.0.2", "192.0.2.1"), ("fd77::2", "2001:db8::1")] {
            let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
            let mut packet = udp((from, 5_000), (to, 53), b"question");
            let length = packet.len();
            // padded, as WireGuard permits
            packet.extend([0; 7]);
            let expected = Header {
                source: from,
                destination: to,
                protocol: Protocol::Udp,
                ports: Some((5_000, 53)),
                query: None,
                length,
                payload: 8,
            };
            assert_eq!(inspect(&packet), Some(expected));
            assert_eq!(inspect(packet.get(..length - 1).unwrap()), None);
            let packet = tcp((from, 5_000), (to, 443), 7, b"hello");
            let header = inspect(&packet).unwrap();
            assert_eq!((header.protocol, header.ports), (Protocol::Tcp, Some((5_000, 443))));
        }
    }

    #[test]
    fn all_that_the_kernel_tells_flows_by_is_read() {
        for (from, to, protocol, asks, error) in
            [("10.77.0.2", "192.0.2.1", 1, 8, 3), ("fd77::2", "2001:db8::1", 58, 128, 3)]
        {
            let (from, to): (IpAddr, IpAddr) = (from.parse().unwrap(), to.parse().unwrap());
            let mut packet = udp((from, 0), (to, 0), b"ping");
            let (at, start) = if from.is_ipv4() { (9, 20) } else { (6, 40) };
            packet[at] = protocol;
            packet[start] = asks;
            packet[start + 4..start + 6].copy_from_slice(&[0x12, 0x34]);
            let header = inspect(&packet).unwrap();
            assert_eq!((header.protocol, header.ports), (Protocol::Icmp, None));
            assert_eq!(header.query, Some(0x1234));
            packet[start] = error;
            assert_eq!(inspect(&packet).unwrap().query, None);
            // SCTP, which the kernel tells by ports as it does UDP
            packet[at] = 132;
            assert_eq!(inspect(&packet).unwrap().ports, Some((0x0300, 0)));
        }
    }

    #[test]
    fn later_fragments_have_no_ports() {
        let ends = ["10.77.0.2", "192.0.2.1"].map(|text| text.parse::<IpAddr>().unwrap());
        let mut packet = udp((ends[0], 1), (ends[1], 2), b"0123456789");
        packet[7] = 1;
        let header = inspect(&packet).unwrap();
        assert_eq!((header.protocol, header.ports, header.payload), (Protocol::Udp, None, 18));
        let ends = ["fd77::2", "2001:db8::1"].map(|text| text.parse::<IpAddr>().unwrap());
        let plain = udp((ends[0], 1), (ends[1], 2), b"0123456789");
        let mut packet = plain[..40].to_vec();
        packet[6] = 44;
        packet.extend([17, 0, 0, 8, 0, 0, 0, 0]);
        packet.extend(&plain[40..]);
        packet[5] += 8;
        let header = inspect(&packet).unwrap();
        assert_eq!((header.protocol, header.ports, header.payload), (Protocol::Udp, None, 8 + 18));
        packet[43] = 1;
        assert_eq!(inspect(&packet).unwrap().ports, Some((1, 2)), "the first of several");
        // a routing head would have it go elsewhere than it says
        packet[6] = 43;
        assert_eq!(inspect(&packet), None);
    }

    /// UDP from port 1 to port 2 behind extension heads: each by its kind, its length field and its bytes.
    fn behind(heads: &[(u8, u8, usize)]) -> Vec<u8> {
        let ends = ["fd77::2", "2001:db8::1"].map(|text| text.parse::<IpAddr>().unwrap());
        let plain = udp((ends[0], 1), (ends[1], 2), b"0123456789");
        let mut packet = plain[..40].to_vec();
        let kinds = heads.iter().map(|(kind, ..)| *kind).chain([17]);
        let kinds: Vec<u8> = kinds.collect();
        packet[6] = kinds[0];
        for ((_, length, bytes), next) in heads.iter().zip(&kinds[1..]) {
            let mut head = vec![0; *bytes];
            (head[0], head[1]) = (*next, *length);
            packet.extend(head);
        }
        packet.extend(&plain[40..]);
        let length = packet.len() as u16 - 40;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        packet
    }

    #[test]
    fn follows_extension_heads_to_the_ports_and_counts_them() {
        let chains: [&[(u8, u8, usize)]; 5] = [
            &[(0, 0, 8)],
            &[(0, 1, 16), (60, 2, 24), (44, 0, 8), (60, 0, 8)],
            &[(51, 4, 24)],
            &[(0, 0, 8), (60, 0, 8), (44, 0, 8), (51, 1, 12), (60, 0, 8)],
            &[(60, 0, 8); MOST_HEADS],
        ];
        for chain in chains {
            let header = inspect(&behind(chain)).unwrap_or_else(|| panic!("{chain:?}"));
            assert_eq!((header.protocol, header.ports), (Protocol::Udp, Some((1, 2))), "{chain:?}");
            let heads: usize = chain.iter().map(|(.., bytes)| bytes).sum();
            assert_eq!(header.payload, heads + 10);
        }
    }

    #[test]
    fn a_chain_that_is_long_cut_or_out_of_order_is_no_packet() {
        let chains: [&[(u8, u8, usize)]; 6] = [
            &[(60, 0, 8); MOST_HEADS + 1],
            &[(60, 0, 8); 300],
            &[(60, 0, 8), (0, 0, 8)],
            &[(44, 0, 8), (44, 0, 8)],
            &[(0, 0, 8), (43, 0, 8)],
            &[(60, 255, 8)],
        ];
        for chain in chains {
            assert_eq!(inspect(&behind(chain)), None, "{chain:?}");
        }
        // at each place, with a length that says so
        let whole = behind(&[(0, 0, 8), (60, 1, 16), (44, 0, 8)]);
        for end in 40..40 + 32 + 8 {
            let mut cut = whole[..end].to_vec();
            cut[4..6].copy_from_slice(&(end as u16 - 40).to_be_bytes());
            assert_eq!(inspect(&cut), None, "{end}");
        }
    }

    #[test]
    fn a_first_part_without_the_ports_is_no_packet() {
        let ends = ["10.77.0.2", "192.0.2.1"].map(|text| text.parse::<IpAddr>().unwrap());
        for (whole, least) in [
            (udp((ends[0], 1), (ends[1], 2), b"0123"), 28),
            (tcp((ends[0], 1), (ends[1], 2), 7, b"0123"), 40),
        ] {
            let first = |end: usize| {
                let mut part = whole[..end].to_vec();
                part[2..4].copy_from_slice(&(end as u16).to_be_bytes());
                // more follow
                part[6] = 0x20;
                inspect(&part)
            };
            assert_eq!(first(least - 1), None);
            assert_eq!(first(least).unwrap().ports, Some((1, 2)));
        }
    }

    #[test]
    fn a_source_route_is_no_packet() {
        let ends = ["10.77.0.2", "192.0.2.1"].map(|text| text.parse::<IpAddr>().unwrap());
        let plain = udp((ends[0], 1), (ends[1], 2), b"0123");
        let with = |options: [u8; 8]| {
            let mut packet = [&plain[..20], &options, &plain[20..]].concat();
            packet[0] = 0x47;
            let length = packet.len() as u16;
            packet[2..4].copy_from_slice(&length.to_be_bytes());
            inspect(&packet).map(|header| header.payload)
        };
        assert_eq!(with([1, 148, 4, 0, 0, 1, 1, 0]), Some(8 + 4), "a router alert");
        for wrong in [
            [LOOSE_ROUTE, 7, 4, 9, 9, 9, 9, 0],
            [1, STRICT_ROUTE, 7, 4, 9, 9, 9, 9],
            [148, 0, 0, 0, 0, 0, 0, 0],
            [148, 9, 0, 0, 0, 0, 0, 0],
            [1, 1, 1, 1, 1, 1, 1, 148],
        ] {
            assert_eq!(with(wrong), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn a_chain_of_any_heads_ends(heads in proptest::collection::vec(
            (prop_oneof![Just(0), Just(43), Just(44), Just(51), Just(60), any::<u8>()], 0_u8..4, 0_usize..40), 1..40,
        )) {
            let heads: Vec<_> = heads.into_iter().map(|(kind, length, bytes)| (kind, length, bytes.max(2))).collect();
            if let Some(header) = inspect(&behind(&heads)) {
                let known = header.protocol == Protocol::Udp || header.protocol == Protocol::Tcp;
                prop_assert!(!known || header.ports.is_some() || heads.iter().any(|(kind, ..)| *kind == 44));
                prop_assert!(!matches!(header.protocol, Protocol::Other(0 | 43)) || header.ports.is_none());
            }
        }

        #[test]
        fn reads_anything(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), v6: bool) {
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x45 };
            }
            if let Some(header) = inspect(&bytes) {
                prop_assert!(header.length <= bytes.len() && header.payload <= header.length);
                prop_assert_eq!(header.source.is_ipv6(), header.destination.is_ipv6());
            }
        }
    }
}
