//! Packets of a pcap or pcapng file (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng) in order; reads the file
//! once and never holds it whole.

use super::ClassifyError;
use ekiden_model::units::Time;
use std::io::{BufReader, Read};

pub(super) struct Packet<'a> {
    /// When, from the Unix epoch.
    pub(super) at: Time,
    /// What it begins with, by tcpdump.org's list of link types.
    pub(super) link: u32,
    /// What was kept of it.
    pub(super) bytes: &'a [u8],
    /// Its length before it was cut to what was kept.
    pub(super) length: u32,
}

/// The type of a section's head, the same in both byte orders.
const SECTION: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const PACKET: u32 = 6;
/// A section's byte order is that in which it has written this.
const ORDER: u32 = 0x1a2b_3c4d;
/// A pcap file's first number, with times in µs and in ns.
const MICROS: u32 = 0xa1b2_c3d4;
const NANOS: u32 = 0xa1b2_3c4d;
/// No packet and no block is larger: tcpdump's largest snapshot is 256 KiB.
const LARGEST: u32 = 1 << 24;

pub(super) fn read(
    input: impl Read,
    each: impl FnMut(&Packet<'_>) -> Result<(), ClassifyError>,
) -> Result<(), ClassifyError> {
    let mut source = Source { input: BufReader::with_capacity(1 << 16, input), packets: 0, each };
    let mut magic = Vec::new();
    source.input.by_ref().take(4).read_to_end(&mut magic)?;
    match (&magic[..], Order::Little.u32(&magic), Order::Big.u32(&magic)) {
        ([], ..) => Err(ClassifyError::Empty),
        (magic, ..) if magic == SECTION => source.pcapng(),
        (_, MICROS, _) => source.pcap(Order::Little, 1_000),
        (_, NANOS, _) => source.pcap(Order::Little, 1),
        (_, _, MICROS) => source.pcap(Order::Big, 1_000),
        (_, _, NANOS) => source.pcap(Order::Big, 1),
        _ => Err(ClassifyError::NotACapture),
    }
}

/// Which byte of a number comes first.
#[derive(Clone, Copy)]
enum Order {
    Little,
    Big,
}

impl Order {
    /// The first bytes in network order; those that are missing count as 0.
    fn first<const N: usize>(self, bytes: &[u8]) -> [u8; N] {
        let mut first = bytes.first_chunk().copied().unwrap_or([0; N]);
        if let Self::Little = self {
            first.reverse();
        }
        first
    }

    fn u16(self, bytes: &[u8]) -> u16 {
        u16::from_be_bytes(self.first(bytes))
    }

    fn u32(self, bytes: &[u8]) -> u32 {
        u32::from_be_bytes(self.first(bytes))
    }

    fn i64(self, bytes: &[u8]) -> i64 {
        i64::from_be_bytes(self.first(bytes))
    }
}

struct Source<R, E> {
    input: BufReader<R>,
    packets: u64,
    each: E,
}

impl<R: Read, E: FnMut(&Packet<'_>) -> Result<(), ClassifyError>> Source<R, E> {
    /// The next `n` bytes, in place of what is in `to`; false if the file ends before the first.
    fn next(&mut self, to: &mut Vec<u8>, n: u32) -> Result<bool, ClassifyError> {
        to.clear();
        // what a damaged file claims is not reserved before it is there
        self.input.by_ref().take(n.into()).read_to_end(to)?;
        if to.len() == n as usize {
            Ok(true)
        } else if to.is_empty() {
            Ok(false)
        } else {
            Err(self.truncated())
        }
    }

    /// The same where the file must not end.
    fn rest(&mut self, to: &mut Vec<u8>, n: u32) -> Result<(), ClassifyError> {
        if self.next(to, n)? { Ok(()) } else { Err(self.truncated()) }
    }

    fn give(&mut self, packet: &Packet<'_>) -> Result<(), ClassifyError> {
        (self.each)(packet)?;
        self.packets += 1;
        Ok(())
    }

    fn truncated(&self) -> ClassifyError {
        ClassifyError::Truncated { packets: self.packets }
    }

    fn damaged(&self, what: &'static str) -> ClassifyError {
        ClassifyError::Damaged { packets: self.packets, what }
    }

    fn pcap(&mut self, order: Order, nanos_in_unit: u64) -> Result<(), ClassifyError> {
        let mut head = Vec::new();
        self.rest(&mut head, 20)?;
        // the upper bits may hold the length of a frame check sequence
        let link = order.u32(&head[16..]) & 0x0fff_ffff;
        let mut bytes = Vec::new();
        while self.next(&mut head, 16)? {
            let [seconds, fraction, kept, length] =
                [0, 4, 8, 12].map(|at: usize| order.u32(&head[at..]));
            if kept > LARGEST {
                return Err(self.damaged("it claims a packet of more than 16 MiB"));
            }
            self.rest(&mut bytes, kept)?;
            let nanos = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * nanos_in_unit;
            let at = Time::from_nanos(nanos);
            self.give(&Packet { at, link, bytes: &bytes, length })?;
        }
        Ok(())
    }

    fn pcapng(&mut self) -> Result<(), ClassifyError> {
        let mut order = Order::Little;
        let mut interfaces = Vec::new();
        let (mut kind, mut head, mut body) = (SECTION.to_vec(), Vec::new(), Vec::new());
        loop {
            self.rest(&mut head, 4)?;
            let mut read = 8;
            if kind == SECTION {
                let mut mark = Vec::new();
                self.rest(&mut mark, 4)?;
                read = 12;
                order = match (Order::Little.u32(&mark), Order::Big.u32(&mark)) {
                    (ORDER, _) => Order::Little,
                    (_, ORDER) => Order::Big,
                    _ => return Err(self.damaged("a section has no byte order")),
                };
                interfaces.clear();
            }
            let length = order.u32(&head);
            if length > LARGEST {
                return Err(self.damaged("it claims a block of more than 16 MiB"));
            }
            if length < read + 4 || !length.is_multiple_of(4) {
                return Err(self.damaged("a block is shorter than its own head"));
            }
            self.rest(&mut body, length - read)?;
            let end = body.split_off(body.len() - 4);
            if order.u32(&end) != length {
                return Err(self.damaged("a block says two lengths"));
            }
            if kind != SECTION {
                self.block(order, order.u32(&kind), &body, &mut interfaces)?;
            }
            if !self.next(&mut kind, 4)? {
                return Ok(());
            }
        }
    }

    /// One block but a section's head.
    fn block(
        &mut self,
        order: Order,
        kind: u32,
        body: &[u8],
        interfaces: &mut Vec<Interface>,
    ) -> Result<(), ClassifyError> {
        let number = match kind {
            INTERFACE => {
                let described = Interface::read(order, body);
                interfaces.push(described.map_err(|what| self.damaged(what))?);
                return Ok(());
            }
            SIMPLE_PACKET => {
                return Err(self.damaged("its packets have no times (simple packet blocks)"));
            }
            PACKET => order.u32(body),
            OLD_PACKET => order.u16(body).into(),
            // names, statistics, secrets
            _ => return Ok(()),
        };
        let Some((head, data)) = body.split_at_checked(20) else {
            return Err(self.damaged("a packet's block is too short"));
        };
        let Some(interface) = interfaces.get(number as usize) else {
            return Err(self.damaged("a packet is of an interface that is not described"));
        };
        let [high, low, kept, length] = [4, 8, 12, 16].map(|at: usize| order.u32(&head[at..]));
        let Some(bytes) = data.get(..kept as usize) else {
            return Err(self.damaged("a packet is longer than its block"));
        };
        let at = interface.time(u64::from(high) << 32 | u64::from(low));
        self.give(&Packet { at, link: interface.link, bytes, length })
    }
}

/// What its packets begin with, and how it counts time.
struct Interface {
    link: u32,
    units_per_second: u128,
    offset_seconds: i64,
}

impl Interface {
    const RESOLUTION: u16 = 9;
    const OFFSET: u16 = 14;

    fn read(order: Order, body: &[u8]) -> Result<Self, &'static str> {
        let Some((head, mut options)) = body.split_at_checked(8) else {
            return Err("an interface's block is too short");
        };
        // microseconds, unless an option says otherwise
        let (mut units, mut offset_seconds) = (Some(1_000_000), 0);
        while let Some((option, rest)) = options.split_at_checked(4) {
            let length = usize::from(order.u16(&option[2..]));
            let Some(value) = rest.get(..length) else {
                return Err("an interface's option is longer than its block");
            };
            match (order.u16(option), value) {
                (Self::RESOLUTION, [resolution, ..]) => units = units_per_second(*resolution),
                (Self::OFFSET, value) if length == 8 => offset_seconds = order.i64(value),
                _ => {}
            }
            options = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        let Some(units_per_second) = units else {
            return Err("an interface's clock makes no sense");
        };
        Ok(Self { link: order.u16(head).into(), units_per_second, offset_seconds })
    }

    fn time(&self, units: u64) -> Time {
        // 64 bits and 30 bits: no overflow
        let nanos = u128::from(units) * 1_000_000_000 / self.units_per_second;
        let offset = i128::from(self.offset_seconds) * 1_000_000_000;
        let nanos = (nanos as i128).saturating_add(offset);
        Time::from_nanos(nanos.clamp(0, u64::MAX.into()) as u64)
    }
}

/// The highest bit says whether it counts powers of 2 or of 10; `None` if they do not fit.
fn units_per_second(resolution: u8) -> Option<u128> {
    let exponent = u32::from(resolution & 0x7f);
    if resolution & 0x80 == 0 {
        10_u128.checked_pow(exponent)
    } else {
        1_u128.checked_shl(exponent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(code: u16, value: &[u8]) -> Vec<u8> {
        let mut body = vec![0, 101, 0, 0, 0, 0, 0, 0];
        body.extend(code.to_be_bytes());
        body.extend((value.len() as u16).to_be_bytes());
        body.extend(value);
        body.resize(body.len().next_multiple_of(4), 0);
        body
    }

    #[test]
    fn clocks_count_in_powers_of_ten_and_of_two_from_any_second() {
        let nanos = |code, value: &[u8], units| {
            let read = Interface::read(Order::Big, &interface(code, value)).unwrap();
            assert_eq!(read.link, 101);
            read.time(units).as_nanos()
        };
        assert_eq!(nanos(1, b"a comment", 1_500_000), 1_500_000_000, "microseconds by default");
        assert_eq!(nanos(Interface::RESOLUTION, &[3], 1_500), 1_500_000_000);
        assert_eq!(nanos(Interface::RESOLUTION, &[9], 1_500), 1_500);
        assert_eq!(nanos(Interface::RESOLUTION, &[0x80 | 10], 1_536), 1_500_000_000);
        assert_eq!(nanos(Interface::OFFSET, &2_i64.to_be_bytes(), 1_500_000), 3_500_000_000);
        assert_eq!(nanos(Interface::OFFSET, &(-2_i64).to_be_bytes(), 5), 0, "before the epoch");
        let refused = Interface::read(Order::Big, &interface(Interface::RESOLUTION, &[99]));
        assert_eq!(refused.err(), Some("an interface's clock makes no sense"));
    }

    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32 + 12).to_be_bytes();
        [&kind.to_be_bytes()[..], &length, body, &length].concat()
    }

    fn section() -> Vec<u8> {
        let version = [0, 1, 0, 0];
        block(0x0a0d_0d0a, &[&ORDER.to_be_bytes()[..], &version, &[0xff; 8]].concat())
    }

    /// 8 bytes, at 5 s.
    fn packet(kept: u32) -> Vec<u8> {
        let mut body = Vec::new();
        for number in [0, 0, 5_000_000, kept, 1_500_u32] {
            body.extend(number.to_be_bytes());
        }
        body.extend(*b"12345678");
        body
    }

    fn found(file: &[u8]) -> (Vec<(u64, usize, u32)>, String) {
        let mut packets = Vec::new();
        let end = read(file, |packet| {
            packets.push((packet.at.as_nanos(), packet.bytes.len(), packet.length));
            Ok(())
        });
        (packets, end.err().map_or_else(String::new, |error| error.to_string()))
    }

    #[test]
    fn pcapng_is_read_in_the_other_byte_order() {
        let described = block(INTERFACE, &interface(1, b""));
        let names = block(4, &[0; 8]);
        let file = [section(), described, names, block(PACKET, &packet(7))].concat();
        assert_eq!(found(&file), (vec![(5_000_000_000, 7, 1_500)], String::new()));
    }

    #[test]
    fn refuses_contradictions() {
        let begin = [section(), block(INTERFACE, &interface(1, b""))].concat();
        let after = |block: &[u8]| found(&[&begin[..], block].concat()).1;
        assert_eq!(after(&[]), "");
        let mut two = block(PACKET, &packet(8));
        *two.last_mut().unwrap() += 4;
        assert!(after(&two).contains("two lengths"));
        assert!(after(&block(PACKET, &packet(9))).contains("longer than its block"));
        assert!(after(&block(PACKET, &packet(8)[..16])).contains("too short"));
        assert!(after(&block(SIMPLE_PACKET, &packet(8))).contains("no times"));
        assert!(after(&block(INTERFACE, &[0; 4])).contains("too short"));
        let long = interface(1, b"abcd");
        assert!(after(&block(INTERFACE, &long[..12])).contains("option is longer"));
        for length in [0_u32, 8, 14, LARGEST + 4] {
            let claim = [PACKET.to_be_bytes(), length.to_be_bytes(), [0; 4]].concat();
            let what = if length > LARGEST { "16 MiB" } else { "its own head" };
            assert!(after(&claim).contains(what), "{length}");
        }
        let mut orderless = section();
        orderless[8] = 0;
        assert!(found(&orderless).1.contains("no byte order"));
        let pcap = [&MICROS.to_be_bytes()[..], &[0; 20], &[0; 8], &[0xff; 8]].concat();
        assert!(found(&pcap).1.contains("16 MiB"));
    }
}
