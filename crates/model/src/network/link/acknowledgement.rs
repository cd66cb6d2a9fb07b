//! Bare acknowledgements, for ACK-first queueing (RFC 3449 §5.4; the asymmetric study's uplink).

use super::Discipline;

const TCP: u8 = 6;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Whether this IP packet is a TCP segment that only acknowledges: no payload, SYN, FIN or RST.
/// Bytes behind its own length (Ethernet padding) are ignored. Bias: keep-alive probes without a
/// byte and window updates count; fragments, and TCP behind IPv6 extension headers other than
/// options and routing, do not.
pub fn is_acknowledgement(ip: &[u8]) -> bool {
    segment(ip).is_some_and(acknowledges)
}

impl Discipline {
    /// The class of an IP packet: for ACK-first 0 for bare acknowledgements, else 1; `otherwise`
    /// elsewhere.
    pub fn class_of(&self, ip: &[u8], otherwise: u8) -> u8 {
        match self {
            Self::AckFirst(_) => u8::from(!is_acknowledgement(ip)),
            Self::DropTail(_) | Self::Priority(_) | Self::FqCodel(_) => otherwise,
        }
    }
}

/// The TCP segment in an IP packet, header and payload.
fn segment(ip: &[u8]) -> Option<&[u8]> {
    match ip.first()? >> 4 {
        4 => segment_of_v4(ip),
        6 => segment_of_v6(ip),
        _ => None,
    }
}

fn segment_of_v4(ip: &[u8]) -> Option<&[u8]> {
    let header = usize::from(ip.first()? & 15) * 4;
    let length = usize::from(half(ip, 2)?);
    let fragment = half(ip, 6)? & 0x3fff; // more to come, or not the first
    (header >= 20 && fragment == 0 && *ip.get(9)? == TCP).then(|| ip.get(header..length))?
}

fn segment_of_v6(ip: &[u8]) -> Option<&[u8]> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const DESTINATION: u8 = 60;
    let length = 40 + usize::from(half(ip, 4)?);
    let mut next = *ip.get(6)?;
    let mut rest = ip.get(40..length)?;
    while [HOP_BY_HOP, ROUTING, DESTINATION].contains(&next) {
        next = *rest.first()?;
        rest = rest.get((usize::from(*rest.get(1)?) + 1) * 8..)?;
    }
    (next == TCP).then_some(rest)
}

fn acknowledges(tcp: &[u8]) -> bool {
    let (Some(offset), Some(flags)) = (tcp.get(12), tcp.get(13)) else { return false };
    let header = usize::from(offset >> 4) * 4;
    header >= 20 && header == tcp.len() && flags & (ACK | SYN | FIN | RST) == ACK
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::link::Bound;
    use crate::testing::*;

    fn tcp(flags: u8, options: usize, payload: usize) -> Vec<u8> {
        let mut segment = alloc::vec![0; 20 + options + payload];
        segment[12] = ((20 + options) / 4 * 16) as u8;
        segment[13] = flags;
        segment
    }

    fn v4(protocol: u8, segment: &[u8]) -> Vec<u8> {
        let mut ip = alloc::vec![0; 20];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&(20 + segment.len() as u16).to_be_bytes());
        ip[9] = protocol;
        ip.extend(segment);
        ip
    }

    fn v6(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut ip = alloc::vec![0; 40];
        ip[0] = 0x60;
        ip[4..6].copy_from_slice(&(rest.len() as u16).to_be_bytes());
        ip[6] = next;
        ip.extend(rest);
        ip
    }

    #[test]
    fn bare_acknowledgements_with_and_without_options() {
        // timestamps take 12 bytes, three blocks of selective acknowledgements beside them 28
        for options in [0, 12, 40] {
            assert!(is_acknowledgement(&v4(TCP, &tcp(ACK, options, 0))), "{options}");
            assert!(is_acknowledgement(&v6(TCP, &tcp(ACK, options, 0))), "{options}");
        }
        // a congestion mark's echo, and PSH
        assert!(is_acknowledgement(&v4(TCP, &tcp(ACK | 0x40 | 0x08, 12, 0))));
    }

    #[test]
    fn syn_fin_rst_and_data_are_not_bare_acks() {
        for flags in [SYN, SYN | ACK, FIN | ACK, RST, RST | ACK, 0] {
            assert!(!is_acknowledgement(&v4(TCP, &tcp(flags, 12, 0))), "{flags:x}");
        }
        assert!(!is_acknowledgement(&v4(TCP, &tcp(ACK, 12, 1))));
        assert!(!is_acknowledgement(&v6(TCP, &tcp(ACK, 12, 1))));
        assert!(!is_acknowledgement(&v4(17, &tcp(ACK, 0, 0))), "UDP");
    }

    #[test]
    fn padding_is_not_payload() {
        let mut padded = v4(TCP, &tcp(ACK, 0, 0));
        padded.resize(46, 0);
        assert!(is_acknowledgement(&padded));
        let mut cut = v4(TCP, &tcp(ACK, 12, 0));
        cut.pop();
        assert!(!is_acknowledgement(&cut));
    }

    #[test]
    fn fragments_are_none() {
        let mut fragment = v4(TCP, &tcp(ACK, 0, 0));
        fragment[6] = 0x20;
        assert!(!is_acknowledgement(&fragment));
        fragment[6..8].copy_from_slice(&[0x40, 0]); // do not fragment
        assert!(is_acknowledgement(&fragment));
        let inside = tcp(ACK, 0, 0);
        assert!(!is_acknowledgement(&v6(44, &[&[TCP, 0, 0, 0, 0, 0, 0, 0], &inside[..]].concat())));
        // options before TCP, 8 and 16 bytes of them
        let options = [&[60, 0, 0, 0, 0, 0, 0, 0, TCP, 1], &[0; 14][..], &inside[..]].concat();
        assert!(is_acknowledgement(&v6(0, &options)));
    }

    #[test]
    fn only_ack_first_looks_at_the_packet() {
        let (ack, other) = (v4(TCP, &tcp(ACK, 12, 0)), v4(TCP, &tcp(ACK, 12, 100)));
        let first = Discipline::AckFirst(Bound::Unlimited);
        assert_eq!((first.class_of(&ack, 7), first.class_of(&other, 7)), (0, 1));
        for discipline in
            [Discipline::DropTail(Bound::Unlimited), Discipline::Priority(Bound::Unlimited)]
        {
            assert_eq!((discipline.class_of(&ack, 7), discipline.class_of(&other, 3)), (7, 3));
        }
    }

    proptest! {
        #[test]
        fn no_packet_upsets_it(ip in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = is_acknowledgement(&ip);
        }

        /// Corrupt packets: the answer never depends on bytes behind the packet.
        #[test]
        fn wrong_bytes_anywhere(
            version in prop_oneof![Just(4_u8), Just(6)],
            options in (0_usize..=10).prop_map(|n| n * 4),
            changes in proptest::collection::vec((0_usize..80, any::<u8>()), 0..3),
            behind in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let segment = tcp(ACK, options, 0);
            let mut ip = if version == 4 { v4(TCP, &segment) } else { v6(TCP, &segment) };
            for (at, byte) in changes {
                let length = ip.len();
                ip[at % length] = byte;
            }
            if is_acknowledgement(&ip) {
                let whole = ip.len();
                ip.extend(behind);
                prop_assert!(is_acknowledgement(&ip));
                let [high, low] = if version == 4 { [ip[2], ip[3]] } else { [ip[4], ip[5]] };
                let said = usize::from(u16::from_be_bytes([high, low]));
                let needed = if version == 4 { said } else { 40 + said };
                prop_assert!(needed <= whole && is_acknowledgement(&ip[..needed]));
                prop_assert!(!is_acknowledgement(&ip[..needed - 1]), "a byte is missing");
            }
        }
    }
}
