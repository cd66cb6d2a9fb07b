//! What of a packet's heads decides who sent it and where it may go. Every byte is a client's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most extension heads of IPv6 that are followed (RFC 8200 §4.1 names no more than seven).
const MOST_HEADS: usize = 8;

/// What follows the IP head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it
pub enum Protocol {
    Tcp,
    Udp,
    Icmp,
    /// Another, by its number.
    Other(u8),
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
    /// The ports of TCP and UDP: the sender's and the receiver's. `None`: others, and later fragments.
    pub ports: Option<(u16, u16)>,
    /// Bytes of the whole packet, which may be fewer than were given.
    pub length: usize,
    /// Bytes behind the heads of IP and UDP.
    pub payload: usize,
}

/// Reads the heads. `None`: no packet of IP, one that is cut short, or one that chooses its own way by a routing head.
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
    let ends = (source.into(), destination.into());
    Some(header(ends, head[9], packet, packet.get(start..)?, is_first))
}

fn v6(packet: &[u8]) -> Option<Header> {
    let head: &[u8; 40] = packet.first_chunk()?;
    let packet = packet.get(..40 + usize::from(number(head, 4)?))?;
    let source = Ipv6Addr::from(*head.get(8..)?.first_chunk::<16>()?);
    let destination = Ipv6Addr::from(*head.get(24..)?.first_chunk::<16>()?);
    let ends = (source.into(), destination.into());
    let (mut next, mut rest, mut is_first) = (head[6], packet.get(40..)?, true);
    for _ in 0..MOST_HEADS {
        match next {
            // hop by hop, and for the destination (RFC 8200 §4.3, §4.6)
            0 | 60 => {
                let length = (usize::from(*rest.get(1)?) + 1) * 8;
                next = *rest.first()?;
                rest = rest.get(length..)?;
            }
            // a fragment (RFC 8200 §4.5)
            44 => {
                is_first &= number(rest, 2)? & 0xfff8 == 0;
                next = *rest.first()?;
                rest = rest.get(8..)?;
                if !is_first {
                    break;
                }
            }
            43 => return None,
            _ => break,
        }
    }
    Some(header(ends, next, packet, rest, is_first))
}

fn header(
    (source, destination): (IpAddr, IpAddr),
    protocol: u8,
    packet: &[u8],
    rest: &[u8],
    is_first: bool,
) -> Header {
    let protocol = match protocol {
        6 => Protocol::Tcp,
        17 => Protocol::Udp,
        1 | 58 => Protocol::Icmp,
        other => Protocol::Other(other),
    };
    let has_ports = is_first && matches!(protocol, Protocol::Tcp | Protocol::Udp);
    let ports = if has_ports { number(rest, 0).zip(number(rest, 2)) } else { None };
    let head = if ports.is_some() && protocol == Protocol::Udp { 8 } else { 0 };
    let (length, payload) = (packet.len(), rest.len().saturating_sub(head));
    Header { source, destination, protocol, ports, length, payload }
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
        assert_eq!((header.protocol, header.ports, header.payload), (Protocol::Udp, None, 18));
        packet[43] = 1;
        assert_eq!(inspect(&packet).unwrap().ports, Some((1, 2)), "the first of several");
        // a routing head would have it go elsewhere than it says
        packet[6] = 43;
        assert_eq!(inspect(&packet), None);
    }

    proptest! {
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
