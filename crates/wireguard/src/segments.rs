//! What the kernel left to be done: TCP super-packets are cut into packets, and checksums are filled in.

use ekiden_linux::links::tun::HEAD;

// include/uapi/linux/virtio_net.h
const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const ECN: u8 = 0x80;

// flags of TCP (RFC 9293 §3.1)
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Hands each packet of what was read from the TUN device to `each`. `room` is memory for one. Whatever does not
/// look as the kernel makes it is dropped. Returns whether it was well formed.
pub fn split(read: &mut [u8], room: &mut Vec<u8>, mut each: impl FnMut(&[u8])) -> bool {
    let Some((head, packet)) = read.split_first_chunk_mut::<HEAD>() else { return false };
    // in the machine's order of bytes
    let word = |at: usize| usize::from(u16::from_ne_bytes([head[at], head[at + 1]]));
    let (flags, kind, size) = (head[0], head[1] & !ECN, word(4));
    let (start, offset) = (word(6), word(8));
    if kind == GSO_NONE {
        if flags & NEEDS_CHECKSUM != 0 && fill(packet, start, offset).is_none() {
            return false;
        }
        each(packet);
        return true;
    }
    let v6 = match kind {
        GSO_TCPV4 => false,
        GSO_TCPV6 => true,
        _ => return false,
    };
    segments(packet, v6, start, size, room, each).is_some()
}

/// Completes a checksum whose field holds the sum of the pseudo-head.
fn fill(packet: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let sum = !fold(add(0, packet.get(start..)?));
    // 0 means "none" in UDP (RFC 768), and is as good as its complement elsewhere
    let sum = if sum == 0 { 0xffff } else { sum };
    let field = packet.get_mut(start + offset..start + offset + 2)?;
    field.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

fn segments(
    packet: &[u8],
    v6: bool,
    start: usize,
    size: usize,
    room: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]),
) -> Option<()> {
    let tcp = packet.get(start..)?;
    let payload_at = start + usize::from(*tcp.get(12)? >> 4) * 4;
    let payload = packet.get(payload_at..)?;
    if size == 0 || start < if v6 { 40 } else { 20 } || payload_at < start + 20 {
        return None;
    }
    let heads = packet.get(..payload_at)?;
    let sequence = u32::from_be_bytes(*tcp.get(4..)?.first_chunk()?);
    let identification = u16::from_be_bytes(*packet.get(4..)?.first_chunk()?);
    let count = payload.len().div_ceil(size).max(1);
    for (n, part) in payload.chunks(size).enumerate() {
        room.clear();
        room.extend_from_slice(heads);
        room.extend_from_slice(part);
        let length = room.len();
        let (ip, tcp) = room.split_at_mut_checked(start)?;
        if v6 {
            let length = u16::try_from(length - 40).ok()?;
            ip.get_mut(4..6)?.copy_from_slice(&length.to_be_bytes());
        } else {
            ip.get_mut(2..4)?.copy_from_slice(&u16::try_from(length).ok()?.to_be_bytes());
            let own = identification.wrapping_add(n as u16);
            ip.get_mut(4..6)?.copy_from_slice(&own.to_be_bytes());
            ip.get_mut(10..12)?.fill(0);
            let sum = !fold(add(0, ip));
            ip.get_mut(10..12)?.copy_from_slice(&sum.to_be_bytes());
        }
        let own = sequence.wrapping_add((n * size) as u32);
        tcp.get_mut(4..8)?.copy_from_slice(&own.to_be_bytes());
        let flags = tcp.get_mut(13)?;
        if n + 1 < count {
            *flags &= !(FIN | PSH);
        }
        if n > 0 {
            *flags &= !CWR;
        }
        tcp.get_mut(16..18)?.fill(0);
        let addresses = if v6 { ip.get(8..40)? } else { ip.get(12..20)? };
        let pseudo = add(6 + tcp.len() as u64, addresses);
        let sum = !fold(add(pseudo, tcp));
        tcp.get_mut(16..18)?.copy_from_slice(&sum.to_be_bytes());
        each(room);
    }
    Some(())
}

/// Adds 16-bit words (RFC 1071), most significant byte first.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let sum = words.iter().fold(sum, |sum, word| sum + u64::from(u32::from_be_bytes(*word)));
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    sum + u64::from(u32::from_be_bytes(last))
}

const fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
pub(crate) mod testing {
    //! Packets as a host makes them.

    use super::*;
    use std::net::IpAddr;

    pub(crate) type End = (IpAddr, u16);

    pub(crate) fn tcp(from: End, to: End, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(from.1.to_be_bytes());
        body.extend(to.1.to_be_bytes());
        body.extend(sequence.to_be_bytes());
        body.extend([0, 0, 0, 0, 5 << 4, 0x10 | PSH | FIN | CWR, 1, 0, 0, 0, 0, 0]);
        body.extend(payload);
        around(from.0, to.0, 6, (16, body))
    }

    pub(crate) fn udp(from: End, to: End, payload: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        body.extend(from.1.to_be_bytes());
        body.extend(to.1.to_be_bytes());
        body.extend((8 + payload.len() as u16).to_be_bytes());
        body.extend([0, 0]);
        body.extend(payload);
        around(from.0, to.0, 17, (6, body))
    }

    fn around(from: IpAddr, to: IpAddr, protocol: u8, (at, mut body): (usize, Vec<u8>)) -> Vec<u8> {
        let (mut packet, addresses) = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let length = (20 + body.len() as u16).to_be_bytes();
                let head = [0x45, 0, length[0], length[1], 0, 7, 0x40, 0, 64, protocol, 0, 0];
                let mut packet = [&head[..], &from.octets(), &to.octets()].concat();
                let sum = !fold(add(0, &packet));
                packet[10..12].copy_from_slice(&sum.to_be_bytes());
                let addresses = packet[12..].to_vec();
                (packet, addresses)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let length = (body.len() as u16).to_be_bytes();
                let head = [0x60, 0, 0, 0, length[0], length[1], protocol, 64];
                let packet = [&head[..], &from.octets(), &to.octets()].concat();
                let addresses = packet[8..].to_vec();
                (packet, addresses)
            }
            _ => panic!("one family"),
        };
        let pseudo = add(u64::from(protocol) + body.len() as u64, &addresses);
        let sum = !fold(add(pseudo, &body));
        body[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        packet.extend(body);
        packet
    }

    /// Whether every checksum holds.
    pub(crate) fn is_sound(packet: &[u8]) -> bool {
        let (addresses, start) = match packet[0] >> 4 {
            4 => (&packet[12..20], 20),
            _ => (&packet[8..40], 40),
        };
        let protocol = if packet[0] >> 4 == 4 { packet[9] } else { packet[6] };
        let body = &packet[start..];
        let pseudo = add(u64::from(protocol) + body.len() as u64, addresses);
        let ip = packet[0] >> 4 == 6 || fold(add(0, &packet[..20])) == 0xffff;
        ip && fold(add(pseudo, body)) == 0xffff
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{is_sound, tcp, udp};
    use super::*;
    use proptest::prelude::*;
    use std::net::IpAddr;

    fn ends(v6: bool) -> [IpAddr; 2] {
        let texts = if v6 { ["2001:db8::1", "fd77::2"] } else { ["192.0.2.1", "10.77.0.2"] };
        texts.map(|text| text.parse().unwrap())
    }

    fn head(flags: u8, kind: u8, size: u16, start: u16, offset: u16) -> Vec<u8> {
        let mut head = vec![flags, kind, 0, 0];
        head.extend([size, start, offset].into_iter().flat_map(u16::to_ne_bytes));
        head
    }

    fn cut(mut read: Vec<u8>) -> (bool, Vec<Vec<u8>>) {
        let mut packets = Vec::new();
        let fine = split(&mut read, &mut Vec::new(), |packet| packets.push(packet.to_vec()));
        (fine, packets)
    }

    proptest! {
        #[test]
        fn segments_are_the_packets_a_host_would_send(
            v6: bool,
            length in 1_usize..9_000,
            size in 500_u16..1_500,
            sequence: u32,
        ) {
            let [from, to] = ends(v6);
            let payload: Vec<u8> = (0..length).map(|n| (n / 3) as u8).collect();
            let (from, to) = ((from, 443), (to, 5_000));
            let start = if v6 { 40 } else { 20 };
            let mut read = head(NEEDS_CHECKSUM, if v6 { GSO_TCPV6 } else { GSO_TCPV4 }, size, start, 16);
            read.extend(tcp(from, to, sequence, &payload));
            let (fine, packets) = cut(read);
            prop_assert!(fine);
            let (start, size) = (usize::from(start) + 20, usize::from(size));
            prop_assert_eq!(packets.len(), length.div_ceil(size));
            for (n, packet) in packets.iter().enumerate() {
                prop_assert!(is_sound(packet));
                prop_assert!(packet.len() <= start + size);
                let own = u32::from_be_bytes(*packet[start - 16..].first_chunk().unwrap());
                prop_assert_eq!(own, sequence.wrapping_add((n * size) as u32));
                let flags = packet[start - 7];
                prop_assert_eq!(flags & (FIN | PSH) != 0, n + 1 == packets.len());
                prop_assert_eq!(flags & CWR != 0, n == 0);
            }
            let all: Vec<u8> = packets.iter().flat_map(|packet| packet[start..].to_vec()).collect();
            prop_assert_eq!(all, payload);
        }

        #[test]
        fn nothing_is_read_beyond_the_end(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            cut(bytes);
        }
    }

    #[test]
    fn fills_in_checksums() {
        for v6 in [false, true] {
            let [from, to] = ends(v6);
            let whole = udp((from, 53), (to, 5_000), b"answer");
            let start = if v6 { 40 } else { 20 };
            let mut left = whole.clone();
            let addresses = if v6 { &whole[8..40] } else { &whole[12..20] };
            let pseudo = fold(add(17 + 14, addresses));
            left[start + 6..start + 8].copy_from_slice(&pseudo.to_be_bytes());
            let read = [head(NEEDS_CHECKSUM, GSO_NONE, 0, start as u16, 6), left].concat();
            assert_eq!(cut(read), (true, vec![whole.clone()]));
            let read = [head(0, GSO_NONE, 0, 0, 0), whole.clone()].concat();
            assert_eq!(cut(read), (true, vec![whole]));
        }
    }
}
