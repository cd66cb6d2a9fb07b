//! Successive segments of one TCP connection that are due together become one frame, as by a network card's
//! large receive offload; this saves work per packet at the receiver and here.

use crate::engine::wire::ETHERNET;
use ekiden_linux::links::packet::OFFLOAD;

/// `virtio_net_hdr`: flags, gso_type, hdr_len, gso_size, csum_start, csum_offset.
const NEEDS_CHECKSUM: u8 = 1;
const TCP_V4: u8 = 1;
const TCP_V6: u8 = 4;
/// Of TCP's header, where its checksum stands.
const CHECK: usize = 16;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;
/// No IP packet is longer.
const MOST: usize = 65_535;

/// A data segment to which more can be added.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Growing {
    v6: bool,
    /// Where TCP's header and where the payload begins in the frame.
    tcp: usize,
    payload: usize,
    /// Payload of each segment but the last.
    size: usize,
    /// Payload so far.
    all: usize,
    /// The next segment's sequence number.
    next: u32,
    /// The last one pushes, or was short.
    ended: bool,
}

impl Growing {
    /// Of a frame with a plain data segment whose checksum is still to be made, as from this machine's own
    /// sockets.
    pub(crate) fn new(frame: &[u8]) -> Option<Self> {
        const TCP: u8 = 6;
        let ip = OFFLOAD + ETHERNET;
        if frame.get(..2)? != [NEEDS_CHECKSUM, 0] || word(frame, 8)? != CHECK as u16 {
            return None;
        }
        let kind = frame.get(OFFLOAD + 12..ip)?;
        let (v6, tcp, length) = if kind == [0x08, 0x00] {
            // no options, whole, and not to be fragmented, so that its identification says nothing
            let plain = *frame.get(ip)? == 0x45
                && frame.get(ip + 6..ip + 8)? == [0x40, 0]
                && *frame.get(ip + 9)? == TCP;
            (false, ip + 20, plain.then_some(usize::from(long(frame, ip + 2)?))?)
        } else if kind == [0x86, 0xdd] {
            let plain = *frame.get(ip + 6)? == TCP;
            (true, ip + 40, plain.then_some(40 + usize::from(long(frame, ip + 4)?))?)
        } else {
            return None;
        };
        let header = usize::from(*frame.get(tcp + 12)? >> 4) * 4;
        let payload = tcp + header;
        let flags = *frame.get(tcp + 13)?;
        let starts = usize::from(word(frame, 6)?) + OFFLOAD == tcp;
        let fits = frame.len() == ip + length && frame.len() > payload && header >= 20;
        if !starts || !fits || flags & !PSH != ACK {
            return None;
        }
        let size = frame.len() - payload;
        let sequence = u32::from_be_bytes(*frame.get(tcp + 4..)?.first_chunk()?);
        let next = sequence.wrapping_add(size as u32);
        Some(Self { v6, tcp, payload, size, all: size, next, ended: flags & PSH != 0 })
    }

    /// Where the payload of each frame begins.
    pub(crate) const fn payload(&self) -> usize {
        self.payload
    }

    /// Adds `frame`'s `segment` if it continues what began with `first` and all else is the same.
    pub(crate) fn add(&mut self, first: &[u8], frame: &[u8], segment: &Self) -> bool {
        let Self { tcp, payload, .. } = *self;
        let ip = OFFLOAD + ETHERNET;
        let same = |from: usize, to: usize| first[from..to] == frame[from..to];
        let alike = if self.v6 {
            same(ip, ip + 4) && same(ip + 6, tcp)
        } else {
            same(ip, ip + 2) && same(ip + 6, ip + 10) && same(ip + 12, tcp)
        };
        if self.ended
            || (self.v6, tcp, payload) != (segment.v6, segment.tcp, segment.payload)
            || self.next != segment.next.wrapping_sub(segment.size as u32)
            || segment.size > self.size
            || payload - ip + self.all + segment.size > MOST
            || !same(OFFLOAD, ip)
            || !alike
            // ports; acknowledgement and length of the header; window; urgent pointer and options
            || !(same(tcp, tcp + 4) && same(tcp + 8, tcp + 13) && same(tcp + 14, tcp + 16))
            || !same(tcp + 18, payload)
        {
            return false;
        }
        self.all += segment.size;
        self.next = segment.next;
        self.ended = segment.ended || segment.size < self.size;
        true
    }

    /// Makes `first`'s headers those of the whole; `pushes` when its last segment does.
    pub(crate) fn seal(&self, first: &mut [u8], pushes: bool) {
        let Self { v6, tcp, payload, size, all, .. } = *self;
        if all == size {
            return;
        }
        let ip = OFFLOAD + ETHERNET;
        first[1] = if v6 { TCP_V6 } else { TCP_V4 };
        first[2..4].copy_from_slice(&((payload - OFFLOAD) as u16).to_ne_bytes());
        first[4..6].copy_from_slice(&(size as u16).to_ne_bytes());
        let more = (all - size) as u16;
        let at = if v6 { ip + 4 } else { ip + 2 };
        let length = long(first, at).unwrap_or_default().wrapping_add(more);
        first[at..at + 2].copy_from_slice(&length.to_be_bytes());
        if !v6 {
            // RFC 1624, with m = 0 and m' = what was added
            let sum = !long(first, ip + 10).unwrap_or_default();
            first[ip + 10..ip + 12].copy_from_slice(&(!plus(sum, more)).to_be_bytes());
        }
        // of what is still to be summed, the sum of the pseudo-header, with TCP's length, stands there
        let sum = long(first, tcp + CHECK).unwrap_or_default();
        first[tcp + CHECK..tcp + CHECK + 2].copy_from_slice(&plus(sum, more).to_be_bytes());
        if pushes {
            first[tcp + 13] |= PSH;
        }
    }

    /// Whether this segment's data are to be given to the reader at once.
    pub(crate) fn pushes(&self, frame: &[u8]) -> bool {
        frame[self.tcp + 13] & PSH != 0
    }
}

/// The sum in ones' complement.
const fn plus(a: u16, b: u16) -> u16 {
    let (sum, over) = a.overflowing_add(b);
    sum + over as u16
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A frame as Linux leaves it to its device: checksums of IP made, of TCP begun.
    fn segment(v6: bool, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut tcp = vec![0x1f, 0x90, 0x00, 0x50];
        tcp.extend(sequence.to_be_bytes());
        tcp.extend([0, 0, 0, 9, 0x80, flags, 1, 0, 0, 0, 0, 0]);
        tcp.extend([1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        tcp.extend(payload);
        let length = tcp.len() as u16;
        let addresses: Vec<u8> =
            if v6 { (0..32).collect() } else { vec![192, 0, 2, 1, 192, 0, 2, 2] };
        let sum = total(&[&addresses[..], &[0, 6], &length.to_be_bytes()].concat());
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        let ip = if v6 {
            let mut ip = vec![0x60, 0, 0, 0];
            ip.extend(length.to_be_bytes());
            ip.extend([6, 64]);
            [ip, addresses].concat()
        } else {
            let mut ip = vec![0x45, 2];
            ip.extend((length + 20).to_be_bytes());
            ip.extend([(sequence >> 8) as u8, sequence as u8, 0x40, 0, 64, 6, 0, 0]);
            let mut ip = [ip, addresses].concat();
            let sum = total(&ip);
            ip[10..12].copy_from_slice(&(!sum).to_be_bytes());
            ip
        };
        let mut frame = vec![NEEDS_CHECKSUM, 0, 0, 0, 0, 0];
        frame.extend((14 + ip.len() as u16).to_ne_bytes());
        frame.extend(16_u16.to_ne_bytes());
        frame.extend([2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        frame.extend(if v6 { [0x86, 0xdd] } else { [8, 0] });
        [frame, ip, tcp].concat()
    }

    fn total(bytes: &[u8]) -> u16 {
        bytes.chunks(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).fold(0, plus)
    }

    /// What the emulator hands over of these frames.
    fn together(frames: &[Vec<u8>]) -> Option<Vec<u8>> {
        let mut growing = Growing::new(&frames[0])?;
        let mut pushes = growing.pushes(&frames[0]);
        for frame in &frames[1..] {
            let segment = Growing::new(frame)?;
            if !growing.add(&frames[0], frame, &segment) {
                return None;
            }
            pushes |= segment.pushes(frame);
        }
        let mut whole = frames[0].clone();
        growing.seal(&mut whole, pushes);
        frames[1..].iter().for_each(|frame| whole.extend(&frame[growing.payload()..]));
        Some(whole)
    }

    proptest! {
        /// The whole has the headers that Linux would have given it as a super-packet.
        #[test]
        fn equals_the_super_packet_that_linux_sends(v6: bool, sequence: u32, count in 2..20_usize, last in 1..=1000_usize) {
            let data: Vec<u8> = (0..(count - 1) * 1000 + last).map(|n| n as u8).collect();
            let parts = data.chunks(1000).enumerate();
            let frames: Vec<_> = parts
                .map(|(n, part)| {
                    let flags = if n == count - 1 { ACK | PSH } else { ACK };
                    segment(v6, sequence.wrapping_add(n as u32 * 1000), flags, part)
                })
                .collect();
            let mut expected = segment(v6, sequence, ACK | PSH, &data);
            expected[1] = if v6 { TCP_V6 } else { TCP_V4 };
            let headers = if v6 { 14 + 40 + 32 } else { 14 + 20 + 32_u16 };
            expected[2..4].copy_from_slice(&headers.to_ne_bytes());
            expected[4..6].copy_from_slice(&1000_u16.to_ne_bytes());
            prop_assert_eq!(together(&frames), Some(expected));
        }

        #[test]
        fn arbitrary_frames_never_panic(frame: Vec<u8>) {
            let _ = Growing::new(&frame);
        }
    }

    #[test]
    fn keeps_different_values_apart() {
        let first = segment(false, 1000, ACK, &[1; 100]);
        let good = segment(false, 1100, ACK, &[2; 100]);
        assert!(together(&[first.clone(), good.clone()]).is_some());
        let tcp = OFFLOAD + ETHERNET + 20;
        // ECN marked; another hop count; host; port; acknowledgement; window; time stamp
        for at in [OFFLOAD + 15, OFFLOAD + 22, OFFLOAD + 33, tcp, tcp + 11, tcp + 15, tcp + 27] {
            let mut other = good.clone();
            other[at] ^= 1;
            assert_eq!(together(&[first.clone(), other]), None, "byte {at}");
        }
        assert_eq!(together(&[first.clone(), first.clone()]), None, "sent twice");
        let longer = segment(false, 1100, ACK, &[2; 101]);
        assert_eq!(together(&[first.clone(), longer]), None);
        let pushing = segment(false, 1000, ACK | PSH, &[1; 100]);
        assert_eq!(together(&[pushing, good]), None, "nothing is added to what pushes");
        for flags in [0x02, ACK | 0x01, ACK | 0x04, ACK | 0x40, ACK | 0x80] {
            assert!(Growing::new(&segment(false, 1, flags, b"x")).is_none(), "{flags:#x}");
        }
        assert!(Growing::new(&segment(false, 1, ACK, b"")).is_none());
    }
}
