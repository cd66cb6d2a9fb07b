//! What a link needs of a frame: length, flow, class and ECN bits; and the mark instead of a drop (RFC 3168).

use ekiden_linux::links::packet::{OFFLOAD, is_tcp, segment_size, transport_start};
use ekiden_model::network::link::Packet;

/// Length of an Ethernet header.
pub(crate) const ETHERNET: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Congestion experienced, in the two ECN bits.
const CE: u8 = 0b11;

/// Reads offload header, Ethernet header and IP packet; `None` for all but unicast IPv4 and IPv6, which does
/// not cross the link. Bytes are those of IP packets on the wire, with the headers of each segment. The class
/// for strict priority is 7 − IP precedence: CS6 before EF before AF41 before unmarked.
pub(crate) fn look(frame: &[u8], id: u64) -> Option<Packet> {
    let offload: &[u8; OFFLOAD] = frame.get(..OFFLOAD)?.try_into().ok()?;
    let ethernet = frame.get(OFFLOAD..)?;
    // a group address: multicast and broadcast belong to the local network
    if ethernet.first()? & 1 == 1 {
        return None;
    }
    let kind = ethernet.get(12..ETHERNET)?;
    let ip = ethernet.get(ETHERNET..)?;
    let (traffic_class, flow) = if kind == IPV4 {
        (*ip.get(1)?, flow_of_v4(ip)?)
    } else if kind == IPV6 {
        ((ip.first()? << 4) | (ip.get(1)? >> 4), flow_of_v6(ip)?)
    } else {
        return None;
    };
    let length = ip.len();
    let (segments, bytes) = match usize::from(segment_size(offload)) {
        0 => (1, length),
        size => {
            let headers = headers(offload, ethernet).min(length);
            let segments = (length - headers).div_ceil(size).max(1);
            (segments, length + (segments - 1) * headers)
        }
    };
    Some(Packet {
        id,
        bytes: u32::try_from(bytes).ok()?,
        class: 7 - (traffic_class >> 5),
        flow,
        segments: u16::try_from(segments).ok()?,
        ecn_capable: traffic_class & CE != 0,
    })
}

/// The IP packet of a frame, from its first byte on; nothing of what is too short for one.
pub(crate) fn ip(frame: &[u8]) -> &[u8] {
    frame.get(OFFLOAD + ETHERNET..).unwrap_or_default()
}

/// Bytes of headers that each segment of a super-packet repeats, from IP's on.
fn headers(offload: &[u8; OFFLOAD], ethernet: &[u8]) -> usize {
    const UDP: usize = 8;
    let start = usize::from(transport_start(offload));
    let own = match ethernet.get(start + 12) {
        Some(length) if is_tcp(offload) => usize::from(length >> 4) * 4,
        _ => UDP,
    };
    (start + own).saturating_sub(ETHERNET)
}

/// Sets CE on the IP packet of `frame`, which [`look`] understood.
pub(crate) fn mark(frame: &mut [u8]) {
    let start = OFFLOAD + ETHERNET;
    let is_v6 = frame.get(start - 2..start).is_some_and(|kind| kind == IPV6);
    let Some(ip) = frame.get_mut(start..) else { return };
    if is_v6 {
        // the traffic class's low half is the high half of byte 1
        if let Some(byte) = ip.get_mut(1) {
            *byte |= CE << 4;
        }
        return;
    }
    let Some(&[version, before, ..]) = ip.first_chunk::<12>() else { return };
    let after = before | CE;
    ip[1] = after;
    // RFC 1624: HC' = ~(~HC + ~m + m')
    let word = |low: u8| u32::from(u16::from_be_bytes([version, low]));
    let sum =
        u32::from(!u16::from_be_bytes([ip[10], ip[11]])) + (!word(before) & 0xffff) + word(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    ip[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

fn flow_of_v4(ip: &[u8]) -> Option<u64> {
    let header = usize::from(ip.first()? & 15) * 4;
    let addresses = ip.get(12..20)?;
    // the ports stand in the first fragment alone, so fragments go by their addresses
    let whole = u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]) & 0x3fff == 0;
    Some(flow(addresses, *ip.get(9)?, ip.get(header..).filter(|_| whole)))
}

fn flow_of_v6(ip: &[u8]) -> Option<u64> {
    Some(flow(ip.get(8..40)?, *ip.get(6)?, ip.get(40..)))
}

/// A number for addresses, protocol and, of TCP and UDP, ports (FNV-1a).
fn flow(addresses: &[u8], protocol: u8, after: Option<&[u8]>) -> u64 {
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    let ports = match protocol {
        TCP | UDP => after.and_then(|after| after.get(..4)).unwrap_or(&[]),
        _ => &[],
    };
    let bytes = addresses.iter().chain(core::iter::once(&protocol)).chain(ports);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4/UDP frame with a valid header checksum.
    fn v4(traffic_class: u8, payload: usize) -> Vec<u8> {
        let length = (28 + payload) as u16;
        let mut ip = vec![0x45, traffic_class];
        ip.extend(length.to_be_bytes());
        ip.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        let sum = checksum(&ip);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        ip.extend([0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0]);
        ip.resize(usize::from(length), 0);
        let mut frame = vec![0; OFFLOAD];
        frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        frame.extend(IPV4);
        frame.extend(ip);
        frame
    }

    fn checksum(ip: &[u8]) -> u16 {
        let sum: u32 =
            ip[..20].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        !(((folded & 0xffff) + (folded >> 16)) as u16)
    }

    #[test]
    fn length_class_and_ecn() {
        let packet = look(&v4(0b1011_1010, 1000), 7).unwrap();
        assert_eq!((packet.id, packet.bytes, packet.segments), (7, 1028, 1));
        assert_eq!(packet.class, 2, "EF has precedence 5");
        assert!(packet.ecn_capable);
        let plain = look(&v4(0, 0), 0).unwrap();
        assert_eq!((plain.class, plain.ecn_capable), (7, false));
    }

    #[test]
    fn super_packet_counts_the_headers_of_its_segments() {
        let mut frame = v4(0, 2920);
        frame[1] = 5; // gso_type: UDP
        frame[2..4].copy_from_slice(&1042_u16.to_ne_bytes()); // a hint, no header's length
        frame[4..6].copy_from_slice(&1000_u16.to_ne_bytes());
        frame[6..8].copy_from_slice(&34_u16.to_ne_bytes()); // Ethernet 14 + IP 20
        let packet = look(&frame, 0).unwrap();
        assert_eq!((packet.segments, packet.bytes), (3, 2920 + 3 * 28));
        frame[1] = 0x81; // TCP with ECN, whose header says that it has 32 bytes
        frame[OFFLOAD + ETHERNET + 20 + 12] = 0x80;
        let packet = look(&frame, 0).unwrap();
        assert_eq!((packet.segments, packet.bytes), (3, 2928 - 32 + 3 * 52));
    }

    #[test]
    fn mark_keeps_the_header_checksum_right() {
        for traffic_class in 0..=255_u8 {
            let mut frame = v4(traffic_class, 20);
            mark(&mut frame);
            let ip = &frame[OFFLOAD + ETHERNET..];
            assert_eq!(ip[1], traffic_class | CE);
            assert_eq!(checksum(ip), 0, "{traffic_class:#x}");
        }
    }

    #[test]
    fn marks_ipv6() {
        let mut frame = vec![0; OFFLOAD];
        frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        frame.extend(IPV6);
        frame.extend([0x60, 0x20, 0, 0, 0, 0, 17, 64]); // traffic class 2: ECT(0)
        frame.resize(OFFLOAD + ETHERNET + 48, 1);
        let before = look(&frame, 0).unwrap();
        assert!(before.ecn_capable);
        mark(&mut frame);
        assert_eq!(frame[OFFLOAD + ETHERNET + 1], 0x30);
        assert_eq!(look(&frame, 0).unwrap().flow, before.flow);
    }

    #[test]
    fn classifies_by_the_ip_packet() {
        use ekiden_model::network::link::{Bound, Discipline, is_acknowledgement};
        let mut frame = v4(0, 12);
        frame[OFFLOAD + ETHERNET + 9] = 6; // TCP, whose header is the 20 bytes behind IP's
        frame[OFFLOAD + ETHERNET + 20 + 12] = 0x50;
        frame[OFFLOAD + ETHERNET + 20 + 13] = 0x10; // ACK
        assert!(is_acknowledgement(ip(&frame)));
        let first = Discipline::AckFirst(Bound::Unlimited);
        assert_eq!(first.class_of(ip(&frame), 7), 0);
        assert_eq!(first.class_of(ip(&v4(0, 12)), 7), 1);
        assert_eq!(first.class_of(ip(&frame[..OFFLOAD]), 7), 1, "too short for a packet");
    }

    #[test]
    fn leaves_other_traffic_off_the_link() {
        let mut group = v4(0, 0);
        group[OFFLOAD] |= 1;
        assert_eq!(look(&group, 0), None);
        let mut arp = v4(0, 0);
        arp[OFFLOAD + 12..OFFLOAD + 14].copy_from_slice(&[8, 6]);
        assert_eq!(look(&arp, 0), None);
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_frames_never_panic(frame: Vec<u8>) {
            let _ = look(&frame, 0);
            let mut frame = frame;
            mark(&mut frame);
        }
    }
}
