//! The packets of a pcap or pcapng file, one after the other, each with its time.

use super::ClassifyError;
use ekiden_model::units::Time;
use pcap_parser::traits::{PcapNGPacketBlock as _, PcapReaderIterator};
use pcap_parser::{Block, InterfaceDescriptionBlock, LegacyPcapReader, PcapBlockOwned};
use pcap_parser::{PcapError, PcapHeader, PcapNGReader};
use std::io::{self, Cursor, Read};

/// As it was captured.
pub(super) struct Packet<'a> {
    /// When, from the Unix epoch.
    pub(super) at: Time,
    /// What it begins with, by tcpdump.org's list of link types.
    pub(super) link: i32,
    /// What was kept of it.
    pub(super) bytes: &'a [u8],
    /// Its length before it was cut to what was kept.
    pub(super) length: u32,
}

/// The first bytes of a pcapng file, the same in both byte orders.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Those of pcap: µs and ns, and Kuznetzov's variant, in both byte orders where there are both.
const PCAP: [u32; 5] = [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34, 0xd4c3_b2a1, 0x4d3c_b2a1];
/// Read at once; whole packets are mostly smaller.
const CHUNK: usize = 1 << 17;
/// No packet and no block is larger: tcpdump's largest snapshot is 256 KiB.
const LARGEST: usize = 1 << 24;

/// Calls `each` with every packet of `input`.
pub(super) fn read(
    input: impl Read + Send,
    mut each: impl FnMut(&Packet<'_>) -> Result<(), ClassifyError>,
) -> Result<(), ClassifyError> {
    let mut input = input;
    let mut reader = open(&mut input)?;
    let mut room = CHUNK;
    let mut head = Head::default();
    let mut packets = 0;
    loop {
        match reader.next() {
            Ok((used, block)) => {
                let packet = head.on_block(&block).map_err(|what| damaged(packets, what))?;
                if let Some(packet) = packet {
                    each(&packet)?;
                    packets += 1;
                }
                reader.consume(used);
            }
            Err(PcapError::Eof) => return Ok(()),
            Err(PcapError::Incomplete(_)) => refill(reader.as_mut())?,
            Err(PcapError::BufferTooSmall) => {
                room *= 2;
                if room > LARGEST {
                    return Err(damaged(packets, "it claims a packet of more than 16 MiB"));
                }
                reader.grow(room);
                refill(reader.as_mut())?;
            }
            Err(PcapError::UnexpectedEof) => return Err(ClassifyError::Truncated { packets }),
            Err(PcapError::ReadError) => return Err(io::Error::other("it cannot be read").into()),
            Err(_) => return Err(damaged(packets, "a packet's head makes no sense")),
        }
    }
}

fn damaged(packets: u64, what: &'static str) -> ClassifyError {
    ClassifyError::Damaged { packets, what }
}

fn refill(reader: &mut dyn PcapReaderIterator) -> Result<(), ClassifyError> {
    reader.refill().map_err(|_| io::Error::other("it cannot be read").into())
}

type Reader<'a> = Box<dyn PcapReaderIterator + 'a>;

/// The reader for what the first bytes say.
fn open<'a>(input: &'a mut (dyn Read + Send)) -> Result<Reader<'a>, ClassifyError> {
    // the readers take the head from their first read, and that of a pipe may be short
    let mut first = Vec::new();
    Read::take(&mut *input, CHUNK as u64 / 2).read_to_end(&mut first)?;
    let magic = first.first_chunk::<4>().copied();
    let whole = first.len();
    let input = Cursor::new(first).chain(input);
    let opened = match magic {
        None if whole == 0 => return Err(ClassifyError::Empty),
        Some(PCAPNG) => {
            PcapNGReader::new(CHUNK, input).map(|reader| Box::new(reader) as Reader<'a>)
        }
        Some(magic) if PCAP.contains(&u32::from_le_bytes(magic)) => {
            LegacyPcapReader::new(CHUNK, input).map(|reader| Box::new(reader) as Reader<'a>)
        }
        _ => return Err(ClassifyError::NotACapture),
    };
    opened.map_err(|error| match error {
        PcapError::Incomplete(_) | PcapError::Eof => ClassifyError::Truncated { packets: 0 },
        PcapError::ReadError => io::Error::other("it cannot be read").into(),
        _ => damaged(0, "its head makes no sense"),
    })
}

/// What packets' own heads leave out.
#[derive(Default)]
struct Head {
    /// Of pcap: link type, ns in a unit of time.
    file: Option<(i32, u64)>,
    /// Of pcapng, for the section that is read.
    interfaces: Vec<Interface>,
}

struct Interface {
    link: i32,
    clock: Clock,
}

/// How an interface counts time.
struct Clock {
    units_per_second: u128,
    offset_seconds: i64,
}

impl Head {
    fn on_block<'a>(
        &mut self,
        block: &'a PcapBlockOwned<'_>,
    ) -> Result<Option<Packet<'a>>, &'static str> {
        match block {
            PcapBlockOwned::LegacyHeader(header) => {
                self.file = Some((link(header), unit(header)));
                Ok(None)
            }
            PcapBlockOwned::Legacy(packet) => {
                let Some((link, unit)) = self.file else { return Err("it has no head") };
                let nanos =
                    u64::from(packet.ts_sec) * 1_000_000_000 + u64::from(packet.ts_usec) * unit;
                let (at, bytes) = (Time::from_nanos(nanos), packet.data);
                Ok(Some(Packet { at, link, bytes, length: packet.origlen }))
            }
            PcapBlockOwned::NG(Block::SectionHeader(_)) => {
                self.interfaces.clear();
                Ok(None)
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(block)) => {
                self.interfaces.push(Interface { link: block.linktype.0, clock: clock(block)? });
                Ok(None)
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let Some(interface) = self.interfaces.get(packet.if_id as usize) else {
                    return Err("a packet is of an interface that is not described");
                };
                let units = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                Ok(Some(Packet {
                    at: interface.clock.at(units),
                    link: interface.link,
                    bytes: packet.packet_data(),
                    length: packet.origlen,
                }))
            }
            PcapBlockOwned::NG(Block::SimplePacket(_)) => {
                Err("its packets have no times (simple packet blocks)")
            }
            PcapBlockOwned::NG(_) => Ok(None),
        }
    }
}

/// The upper bits may hold the length of a frame check sequence.
fn link(header: &PcapHeader) -> i32 {
    header.network.0 & 0x0fff_ffff
}

/// Nanoseconds in a unit of the fraction of a second.
fn unit(header: &PcapHeader) -> u64 {
    if header.is_nanosecond_precision() { 1 } else { 1_000 }
}

/// The resolution's highest bit says whether it counts powers of 2 or of 10
/// (draft-ietf-opsawg-pcapng, §4.2).
fn clock(block: &InterfaceDescriptionBlock<'_>) -> Result<Clock, &'static str> {
    let exponent = u32::from(block.if_tsresol & 0x7f);
    let units = if block.if_tsresol & 0x80 == 0 {
        10_u128.checked_pow(exponent)
    } else {
        1_u128.checked_shl(exponent)
    };
    let Some(units_per_second) = units else { return Err("an interface's clock makes no sense") };
    Ok(Clock { units_per_second, offset_seconds: block.if_tsoffset })
}

impl Clock {
    fn at(&self, units: u64) -> Time {
        // 64 bits and 30 bits: no overflow
        let nanos = u128::from(units) * 1_000_000_000 / self.units_per_second;
        let offset = i128::from(self.offset_seconds) * 1_000_000_000;
        let nanos = (nanos as i128).saturating_add(offset);
        Time::from_nanos(nanos.clamp(0, u64::MAX.into()) as u64)
    }
}
