//! A run's packets as a capture that tshark reads: simulated segments become IPv4 and TCP headers.

use super::Direction;
use ekiden_model::units::Time;
use ekiden_record::pcapng;
use std::io::{self, Write};

/// Bytes of an IPv4 header without options.
const IPV4: usize = 20;
/// Bytes of a TCP header without options (RFC 9293 §3.1).
const TCP: usize = 20;
/// Most bytes of TCP options (the header's length is a number of four bits).
const OPTIONS: usize = 40;
/// The most a scaled window may be shifted (RFC 7323 §2.3).
const MOST_SCALE: u8 = 14;
/// Hosts in 10.0.0.0/8, without its first and last address.
const HOSTS: u32 = (1 << 24) - 2;
/// The first of a client's ports: those that IANA leaves to be used by turns (RFC 6335 §6).
const CLIENT_PORTS: u16 = 49_152;
/// The first port of servers; one that no protocol has, so that none is read into zeros.
const SERVER_PORTS: u16 = 40_000;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// What a simulated segment says, in the simulator's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SegmentView<'a> {
    /// The sender's number among the hosts, below 2²⁴ − 2: 0 is 10.0.0.1.
    pub from: u32,
    /// The receiver's.
    pub to: u32,
    /// The connection's number, which gives the ports: distinct for any 150 million flows in a row.
    pub flow: u32,
    /// Which way it goes.
    pub direction: Direction,
    /// The offset in its stream of the first byte of payload, or of the one that would come next.
    pub sequence: u64,
    /// The offset expected next from the other side, a FIN counting as one; `None` for no ACK.
    pub acknowledged: Option<u64>,
    /// Bytes of payload; with all headers at most 65,535.
    pub payload: u32,
    /// The receive window in bytes; rounded down to what the scale can say, at most what the field holds.
    pub window: u64,
    /// Whether it opens the connection; such a segment's window is not scaled (RFC 7323 §2.2).
    pub syn: bool,
    /// Whether it ends its direction.
    pub fin: bool,
    /// Whether it ends the connection at once.
    pub reset: bool,
    /// The sender's largest segment in bytes; announced in a SYN only.
    pub mss: Option<u16>,
    /// Window scale in bits, at most 14: offered with a SYN, in force otherwise.
    pub scale: Option<u8>,
    /// Whether selective ACKs are offered; announced in a SYN only.
    pub sack_permitted: bool,
    /// Data beyond `acknowledged`: first byte and one past the last, newest first (RFC 2018 §4). As
    /// many as fit are written: four, or three beside timestamps.
    pub sack: &'a [(u64, u64)],
    /// TSval and TSecr (RFC 7323 §3.2), as the connection counts.
    pub timestamps: Option<(u32, u32)>,
}

/// Writes one capture of headers only; lengths are the packets', so that tshark sees every byte.
#[derive(Debug)]
pub struct Capture<W> {
    to: pcapng::Capture<W>,
    /// The packet at hand.
    headers: Vec<u8>,
}

impl<W: Write> Capture<W> {
    /// Begins a capture; `comment` in its head tells what produced it. Errors are the writer's.
    pub fn new(to: W, comment: &str) -> io::Result<Self> {
        let to = pcapng::Capture::new(to, comment)?;
        Ok(Self { to, headers: Vec::with_capacity(IPV4 + TCP + OPTIONS) })
    }

    /// Adds an interface, a point where packets are seen; returns its number. Errors are the
    /// writer's.
    pub fn interface(&mut self, name: &str) -> io::Result<u32> {
        self.to.interface(name)
    }

    /// Writes a segment seen at `at`. Errors: the writer's, and `InvalidInput` for a host, length
    /// or scale out of range.
    pub fn packet(
        &mut self,
        at: Time,
        interface: u32,
        segment: &SegmentView<'_>,
    ) -> io::Result<()> {
        let length = segment.write(&mut self.headers)?;
        self.to.packet(interface, at, &self.headers, length.into())
    }

    /// The writer, with everything written that was given.
    pub fn into_inner(self) -> W {
        self.to.into_inner()
    }
}

impl SegmentView<'_> {
    /// Writes its headers, over what stood there, and says how long the whole packet is.
    fn write(&self, to: &mut Vec<u8>) -> io::Result<u16> {
        to.clear();
        to.resize(IPV4 + TCP, 0);
        self.options(to)?;
        let header = to.len();
        let length = u32::try_from(header).ok().and_then(|header| header.checked_add(self.payload));
        let length = length
            .and_then(|length| u16::try_from(length).ok())
            .ok_or_else(|| refused(format!("{} bytes do not fit into one packet", self.payload)))?;
        let (from, into) = (address(self.from)?, address(self.to)?);
        let (ip, tcp) = to.split_at_mut(IPV4);
        // version 4, five words; not to be fragmented (RFC 6864); 64 hops; TCP
        ip[0] = 0x45;
        put(ip, 2, length.to_be_bytes());
        put(ip, 6, [0x40, 0, 64, 6]);
        put(ip, 12, from);
        put(ip, 16, into);
        let sum = checksum(&[ip]);
        put(ip, 10, sum);

        let [own, other] = ports(self.flow, self.direction);
        put(tcp, 0, own.to_be_bytes());
        put(tcp, 2, other.to_be_bytes());
        put(tcp, 4, self.number().to_be_bytes());
        put(tcp, 8, self.acknowledgement().to_be_bytes());
        // a number of words in the upper half
        tcp[12] = (tcp.len() as u8 / 4) << 4;
        tcp[13] = self.flags();
        put(tcp, 14, self.window_field().to_be_bytes());
        // the payload is zeros, which add nothing but their number
        let covered = (u32::from(length) - IPV4 as u32).to_be_bytes();
        let sum = checksum(&[&from, &into, &[0, 6], &covered, tcp]);
        put(tcp, 16, sum);
        Ok(length)
    }

    /// SYN and FIN take a number each: the first byte of a stream comes one after the SYN.
    fn number(&self) -> u32 {
        let first = initial(self.flow, self.direction).wrapping_add(u32::from(!self.syn));
        first.wrapping_add(self.sequence as u32)
    }

    fn acknowledgement(&self) -> u32 {
        self.acknowledged.map_or(0, |offset| self.theirs(offset))
    }

    /// The number of a byte of the other side's stream.
    fn theirs(&self, offset: u64) -> u32 {
        initial(self.flow, self.direction.back()).wrapping_add(1).wrapping_add(offset as u32)
    }

    fn flags(&self) -> u8 {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        flag(self.fin, FIN)
            | flag(self.syn, SYN)
            | flag(self.reset, RST)
            | flag(self.acknowledged.is_some(), ACK)
    }

    fn window_field(&self) -> u16 {
        let scale = if self.syn { 0 } else { self.scale.unwrap_or(0) };
        u16::try_from(self.window >> scale).unwrap_or(u16::MAX)
    }

    /// Appends the options, each led by NOPs (1) to a multiple of four bytes (RFC 7323 appendix A).
    fn options(&self, to: &mut Vec<u8>) -> io::Result<()> {
        let scale = self.scale.unwrap_or(0);
        if scale > MOST_SCALE {
            return Err(refused(format!("a window is shifted by at most 14 bits, not by {scale}")));
        }
        if self.syn {
            if let Some(mss) = self.mss {
                let [high, low] = mss.to_be_bytes();
                to.extend([2, 4, high, low]);
            }
            if let Some(scale) = self.scale {
                to.extend([1, 3, 3, scale]);
            }
            if self.sack_permitted {
                to.extend([1, 1, 4, 2]);
            }
        }
        if let Some((value, echo)) = self.timestamps {
            to.extend([1, 1, 8, 10]);
            to.extend(value.to_be_bytes());
            to.extend(echo.to_be_bytes());
        }
        let room = (IPV4 + TCP + OPTIONS - to.len()).saturating_sub(4) / 8;
        let blocks = &self.sack[..self.sack.len().min(room)];
        if !blocks.is_empty() {
            to.extend([1, 1, 5, 2 + 8 * blocks.len() as u8]);
            for (begin, end) in blocks {
                to.extend(self.theirs(*begin).to_be_bytes());
                to.extend(self.theirs(*end).to_be_bytes());
            }
        }
        Ok(())
    }
}

fn refused(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

fn address(host: u32) -> io::Result<[u8; 4]> {
    if host >= HOSTS {
        return Err(refused(format!("host {host} has no address in 10.0.0.0/8")));
    }
    Ok((0x0a00_0001 + host).to_be_bytes())
}

/// The sender's and the receiver's port.
const fn ports(flow: u32, direction: Direction) -> [u16; 2] {
    let clients = (u16::MAX - CLIENT_PORTS) as u32 + 1;
    let servers = (CLIENT_PORTS - SERVER_PORTS) as u32;
    let client = CLIENT_PORTS + (flow % clients) as u16;
    let server = SERVER_PORTS + (flow / clients % servers) as u16;
    match direction {
        Direction::ToServer => [client, server],
        Direction::ToClient => [server, client],
    }
}

/// The number of a stream's SYN, different for each so that mix-ups show: Knuth's multiplier (TAOCP
/// 6.4) by flow, a prime by side.
const fn initial(flow: u32, direction: Direction) -> u32 {
    let spread = flow.wrapping_mul(2_654_435_761);
    match direction {
        Direction::ToServer => spread,
        Direction::ToClient => spread.wrapping_add(1_000_000_007),
    }
}

fn put<const N: usize>(to: &mut [u8], at: usize, bytes: [u8; N]) {
    to[at..at + N].copy_from_slice(&bytes);
}

/// The Internet checksum (RFC 1071) over parts of even lengths.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let pairs = parts.iter().flat_map(|part| part.chunks_exact(2));
    let mut sum: u32 = pairs.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}

#[cfg(test)]
mod tests;
