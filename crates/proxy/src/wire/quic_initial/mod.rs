//! The destination's name in a QUIC client's first datagrams: the server name of the ClientHello in its Initial packets
//! (RFC 9001 §5.2; RFC 9369 for version 2). Their keys follow from what stands in the clear, so anybody on the path can
//! read them. A client may write any name there.

#[cfg(any(test, feature = "fuzzing"))]
mod protect;
#[cfg(any(test, feature = "fuzzing"))]
pub use protect::protect;

use super::first_bytes::{FirstBytesReader, FirstWords};
use rustls::Tls13CipherSuite;
use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{Keys, Version};
use rustls::{Side, SupportedCipherSuite};

/// A client pads datagrams with an Initial to this size at least (RFC 9000 §14.1).
pub const LEAST_DATAGRAM: usize = 1_200;

/// It does not know yet whether the path takes more than some kilobytes.
const MOST_DATAGRAM: usize = 4_096;

/// Initials of a datagram that are looked at. Each may take keys of its own.
const MOST_PACKETS: usize = 3;

/// Datagrams that are looked at: a ClientHello with keys against quantum computers takes two, and some are lost.
const MOST_DATAGRAMS: u32 = 8;

/// Bytes of a ClientHello that are kept.
const MOST: usize = 16 * 1024;

/// Gaps between bytes that are kept; browsers send a ClientHello in dozens of pieces, in any order.
const MOST_PIECES: usize = 64;

/// A connection id is no longer (RFC 9000 §17.2).
const MOST_ID: usize = 20;

/// What the datagrams so far say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InitialWords {
    /// More may come.
    Partial,
    /// They name no destination.
    Nameless,
    /// They name this host.
    Name(String),
}

/// Reads a client's first datagrams as they come.
#[derive(Default)]
pub struct InitialReader {
    datagrams: u32,
    /// The keys of the first packet, which hold until a Retry.
    keys: Option<Keys>,
    hello: CryptoStream,
}

impl std::fmt::Debug for InitialReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InitialReader").field("datagrams", &self.datagrams).finish_non_exhaustive()
    }
}

/// Whether a datagram begins as a client's first one does: an Initial of a version that is known here.
pub fn is_initial(datagram: &[u8]) -> bool {
    datagram.len() >= LEAST_DATAGRAM && Packet::read(datagram).is_some_and(|read| read.is_initial)
}

impl InitialReader {
    /// Reads a datagram; one that is not QUIC's, or cannot be read, says nothing.
    pub fn read(&mut self, datagram: &[u8]) -> InitialWords {
        self.datagrams += 1;
        let mut rest = datagram;
        let mut initials = 0;
        // several packets may share a datagram
        while datagram.len() <= MOST_DATAGRAM
            && let Some(packet) = Packet::read(rest)
        {
            if packet.is_initial {
                initials += 1;
                // a smaller one only acknowledges
                if initials > MOST_PACKETS || datagram.len() < LEAST_DATAGRAM {
                    break;
                }
                let Some(frames) = self.decrypt(&packet) else { break };
                self.hello.read(&frames);
            }
            rest = rest.get(packet.all.len()..).unwrap_or_default();
        }
        let any = initials > 0;
        match self.hello.words() {
            InitialWords::Partial if any && self.datagrams < MOST_DATAGRAMS => {
                InitialWords::Partial
            }
            InitialWords::Partial => InitialWords::Nameless,
            settled => settled,
        }
    }

    /// The frames of an Initial.
    fn decrypt(&mut self, packet: &Packet<'_>) -> Option<Vec<u8>> {
        if let Some(frames) = self.keys.as_ref().and_then(|keys| packet.decrypt(keys)) {
            return Some(frames);
        }
        // after a Retry the keys follow from the server's connection id
        let keys = packet.keys()?;
        let frames = packet.decrypt(&keys)?;
        self.keys = Some(keys);
        Some(frames)
    }
}

/// A packet with a long header (RFC 9000 §17.2).
#[derive(Debug)]
struct Packet<'a> {
    version: Version,
    is_initial: bool,
    destination: &'a [u8],
    /// The packet up to its end.
    all: &'a [u8],
    /// Where the packet number begins.
    number_at: usize,
}

impl<'a> Packet<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = Reader { bytes, at: 0 };
        let first = *reader.take(1)?.first()?;
        // a long header, and the fixed bit
        if first & 0xc0 != 0xc0 {
            return None;
        }
        let kind = first >> 4 & 3;
        // Initial, 0-RTT, Handshake, Retry; version 2 counts from Retry on
        let (version, kind) = match reader.take(4)? {
            [0, 0, 0, 1] => (Version::V1, kind),
            [0x6b, 0x33, 0x43, 0xcf] => (Version::V2, kind.wrapping_sub(1) & 3),
            _ => return None,
        };
        let destination = reader.id()?;
        reader.id()?;
        match kind {
            0 => {
                let token = reader.number()?;
                reader.take(usize::try_from(token).ok()?)?;
            }
            1 | 2 => {}
            _ => return None,
        }
        let length = usize::try_from(reader.number()?).ok()?;
        let number_at = reader.at;
        reader.take(length)?;
        let all = bytes.get(..reader.at)?;
        Some(Self { version, is_initial: kind == 0, destination, all, number_at })
    }

    fn keys(&self) -> Option<Keys> {
        let suite = suite()?;
        let quic = suite.quic?;
        Some(Keys::initial(self.version, suite, quic, self.destination, Side::Server))
    }

    /// The frames, if the client has encrypted them with these keys (RFC 9001 §5.3, §5.4).
    fn decrypt(&self, keys: &Keys) -> Option<Vec<u8>> {
        let mut bytes = self.all.to_vec();
        let (head, tail) = bytes.split_at_mut_checked(self.number_at)?;
        let first = head.first_mut()?;
        let header = &keys.remote.header;
        let (number, rest) = tail.split_at_mut_checked(4)?;
        let sample = rest.get(..header.sample_len())?;
        header.decrypt_in_place(sample, first, number).ok()?;
        let length = 1 + usize::from(*first & 3);
        let number = number.get(..length)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let (header, payload) = bytes.split_at_mut_checked(self.number_at + length)?;
        let frames = keys.remote.packet.decrypt_in_place(number, header, payload).ok()?;
        Some(frames.to_vec())
    }
}

fn suite() -> Option<&'static Tls13CipherSuite> {
    match TLS13_AES_128_GCM_SHA256 {
        SupportedCipherSuite::Tls13(suite) => Some(suite),
        SupportedCipherSuite::Tls12(_) => None,
    }
}

/// The bytes of CRYPTO frames, in any order.
#[derive(Debug, Default)]
struct CryptoStream {
    bytes: Vec<u8>,
    /// What has come, in order and apart: from and until.
    pieces: Vec<(usize, usize)>,
    broken: bool,
}

impl CryptoStream {
    /// Reads the frames of an Initial; what may not stand there ends it.
    fn read(&mut self, frames: &[u8]) {
        let mut reader = Reader { bytes: frames, at: 0 };
        while reader.at < frames.len() && !self.broken {
            if self.frame(&mut reader).is_none() {
                self.broken = true;
            }
        }
    }

    fn frame(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        match reader.number()? {
            // PADDING and PING
            0 | 1 => {}
            kind @ (2 | 3) => {
                // ACK: largest, delay, ranges, first range
                let [_, _, ranges, _] = [(); 4].map(|()| reader.number());
                // pairs of numbers, and three counters of ECN
                let counters = if kind == 3 { 3 } else { 0 };
                let more = ranges?.checked_mul(2)?.checked_add(counters)?;
                for _ in 0..more {
                    reader.number()?;
                }
            }
            6 => {
                let offset = usize::try_from(reader.number()?).ok()?;
                let length = usize::try_from(reader.number()?).ok()?;
                let bytes = reader.take(length)?;
                self.put(offset, bytes)?;
            }
            _ => return None,
        }
        Some(())
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) -> Option<()> {
        let until = offset.checked_add(bytes.len()).filter(|until| *until <= MOST)?;
        if bytes.is_empty() {
            return Some(());
        }
        if self.bytes.len() < until {
            self.bytes.resize(until, 0);
        }
        self.bytes.get_mut(offset..until)?.copy_from_slice(bytes);
        self.pieces.push((offset, until));
        self.pieces.sort_unstable();
        let mut joined: Vec<(usize, usize)> = Vec::with_capacity(self.pieces.len());
        for (from, until) in self.pieces.drain(..) {
            match joined.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => joined.push((from, until)),
            }
        }
        self.pieces = joined;
        (self.pieces.len() <= MOST_PIECES).then_some(())
    }

    fn words(&self) -> InitialWords {
        if self.broken {
            return InitialWords::Nameless;
        }
        let complete = match self.pieces.first() {
            Some((0, until)) => self.bytes.get(..*until).unwrap_or_default(),
            _ => return InitialWords::Partial,
        };
        // a handshake message: its kind, 1 for ClientHello, and its length in three bytes (RFC 8446 §4)
        let Some((&[kind, a, b, c], _)) = complete.split_first_chunk() else {
            return InitialWords::Partial;
        };
        let length = 4 + u32::from_be_bytes([0, a, b, c]) as usize;
        if kind != 1 || length > MOST {
            return InitialWords::Nameless;
        }
        let Some(message) = complete.get(..length) else { return InitialWords::Partial };
        // as a record of TLS over TCP
        let mut record = vec![22, 3, 1];
        record.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
        record.extend_from_slice(message);
        match FirstBytesReader::default().read(&record) {
            FirstWords::Name { host, .. } => InitialWords::Name(host),
            FirstWords::Partial | FirstWords::Nameless => InitialWords::Nameless,
        }
    }
}

#[derive(Debug)]
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let until = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..until)?;
        self.at = until;
        Some(taken)
    }

    /// A variable-length integer (RFC 9000 §16).
    fn number(&mut self) -> Option<u64> {
        let first = *self.take(1)?.first()?;
        let more = self.take((1 << (first >> 6)) - 1)?;
        Some(more.iter().fold(u64::from(first & 0x3f), |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn id(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(*self.take(1)?.first()?);
        if length > MOST_ID {
            return None;
        }
        self.take(length)
    }
}

#[cfg(test)]
mod tests;
