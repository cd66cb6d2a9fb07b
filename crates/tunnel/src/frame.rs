//! What two relays say to each other inside QUIC: frames on streams and in datagrams (`docs/protocol.md`).
//!
//! A frame is a type, the length of what follows, and that. So a reader may pass over types it does not
//! know, and what comes later (repair packets) finds room. Numbers are QUIC's (RFC 9000 §16).

use crate::reason::Reason;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use ekiden_model::units::Rate;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The version of the protocol; another one has another ALPN name.
pub const VERSION: u64 = 1;
/// The protocol's name in ALPN (RFC 7301).
pub const ALPN: &[u8] = b"ekiden/1";
/// No frame is longer: a datagram of 9,000 bytes and room for the future.
pub const LONGEST: usize = 16 * 1024;
/// An account's name and words beside a reason have at most so many bytes; more words are cut.
pub const WORDS: usize = 512;
/// Types from here on are passed over by those who do not know them; others must be known.
pub const OPTIONAL: u64 = 0x20;
/// Kept for repair packets (forward error correction), which may be passed over.
pub const REPAIR: std::ops::RangeInclusive<u64> = 0x20..=0x2f;

mod kind {
    pub(super) const HELLO: u64 = 0x01;
    pub(super) const OPEN: u64 = 0x02;
    pub(super) const ATTACH: u64 = 0x03;
    pub(super) const DATA: u64 = 0x04;
    pub(super) const FIN: u64 = 0x05;
    pub(super) const RESET: u64 = 0x06;
    pub(super) const OPENED: u64 = 0x07;
    pub(super) const REFUSED: u64 = 0x08;
    pub(super) const CREDIT: u64 = 0x09;
    pub(super) const TOTAL: u64 = 0x0a;
}

/// Where a flow is to go: the far relay resolves names and chooses the route.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// A name or an address.
    pub host: Host,
    /// The port, never 0.
    pub port: u16,
}

/// A host by name or by address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name of 1 to 255 bytes, in UTF-8.
    Name(String),
    /// An address.
    Address(IpAddr),
}

/// The first words of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u64,
    /// 0: interactive; 1: bulk.
    pub lane: u8,
    /// Which tunnel of this peer: both lanes say the same number.
    pub session: u64,
    /// What its sender may be sent, bits per second on the IP wire.
    pub receive: Rate,
    /// What a new flow may be sent before any credit, bytes.
    pub window: u64,
    /// What all flows together may be sent before any credit, bytes.
    pub total: u64,
    /// The invitation's secret, where its sender is not known yet; empty otherwise.
    pub secret: Bytes,
}

/// A flow begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Open {
    /// Its number: even when the tunnel's opener opens it, odd otherwise; never used again.
    pub flow: u64,
    /// What it is to be.
    pub opening: Opening,
}

/// What a flow is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opening {
    /// Whose it is, as the near relay numbers those who share the tunnel; at most [`WORDS`] bytes, and
    /// empty where it does not tell them apart. Flows of one account take turns with those of another.
    pub account: Bytes,
    /// Through how many tunnels it has come already.
    pub hops: u8,
    /// Where it goes.
    pub target: Target,
}

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Who speaks.
    Hello(Hello),
    /// A flow begins; what follows on this stream is about it.
    Open(Open),
    /// What follows on this stream is about a flow that began elsewhere.
    Attach(u64),
    /// Bytes of the flow.
    Data {
        /// Of the first of them.
        offset: u64,
        /// At least one.
        bytes: Bytes,
    },
    /// The flow ends after so many bytes.
    Fin(u64),
    /// The flow breaks after so many bytes.
    Reset {
        /// What came before is still good.
        offset: u64,
        /// Why.
        reason: Reason,
        /// The same in words.
        words: String,
    },
    /// The destination answered.
    Opened,
    /// It did not.
    Refused {
        /// Why.
        reason: Reason,
        /// The same in words.
        words: String,
    },
    /// A flow may be sent up to this offset.
    Credit {
        /// Which.
        flow: u64,
        /// The offset it must not pass.
        limit: u64,
    },
    /// All flows together may be sent so many bytes since the tunnel began.
    Total(u64),
    /// A type from [`OPTIONAL`] on, which this version does not know.
    Unknown(u64),
}

/// What is no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// Longer than [`LONGEST`].
    #[error("a frame of {0} bytes, longer than the longest")]
    TooLong(u64),
    /// A type below [`OPTIONAL`] that this version does not know.
    #[error("a frame of type {0:#x}, which must be known")]
    UnknownKind(u64),
    /// Cut, or with bytes left over.
    #[error("a frame of type {0:#x} whose length is not that of its fields")]
    Length(u64),
    /// A field with a value it cannot have.
    #[error("a frame of type {0:#x} with a value out of its range")]
    Value(u64),
}

/// Reads the first frame of `bytes` and takes it off; `None` when it is not all there.
///
/// # Errors
/// [`BadFrame`]: the peer is wrong and the tunnel cannot go on.
pub fn read(bytes: &mut BytesMut) -> Result<Option<Frame>, BadFrame> {
    let mut peek = &bytes[..];
    let (Some(kind), Some(length)) = (get(&mut peek), get(&mut peek)) else { return Ok(None) };
    if length > LONGEST as u64 {
        return Err(BadFrame::TooLong(length));
    }
    let head = bytes.len() - peek.len();
    // at most LONGEST
    let length = length as usize;
    if peek.len() < length {
        return Ok(None);
    }
    bytes.advance(head);
    decode(kind, bytes.split_to(length).freeze()).map(Some)
}

/// Reads all frames of a datagram.
///
/// # Errors
/// As [`read`]; a cut frame too.
pub fn read_all(datagram: Bytes) -> Result<Vec<Frame>, BadFrame> {
    let mut bytes = BytesMut::from(datagram);
    let mut frames = Vec::new();
    while let Some(frame) = read(&mut bytes)? {
        frames.push(frame);
    }
    if bytes.is_empty() { Ok(frames) } else { Err(BadFrame::Length(0)) }
}

fn decode(kind: u64, mut body: Bytes) -> Result<Frame, BadFrame> {
    let (cut, bad) = (BadFrame::Length(kind), BadFrame::Value(kind));
    let number = |body: &mut Bytes| get(body).ok_or(cut);
    let frame = match kind {
        kind::HELLO => {
            let version = number(&mut body)?;
            let lane = u8::try_from(number(&mut body)?).ok().filter(|lane| *lane < 2).ok_or(bad)?;
            let session = number(&mut body)?;
            let receive = Rate::from_bits_per_second(number(&mut body)?);
            let (window, total) = (number(&mut body)?, number(&mut body)?);
            let secret = text(&mut body, 64, cut, bad)?;
            // later versions may say more
            body.clear();
            Frame::Hello(Hello { version, lane, session, receive, window, total, secret })
        }
        kind::OPEN => {
            let flow = number(&mut body)?;
            let account = text(&mut body, WORDS, cut, bad)?;
            let hops = body.try_get_u8().map_err(|_| cut)?;
            let target = target(&mut body, cut, bad)?;
            // an option for the flow may follow
            body.clear();
            Frame::Open(Open { flow, opening: Opening { account, hops, target } })
        }
        kind::ATTACH => Frame::Attach(number(&mut body)?),
        kind::DATA => {
            let offset = number(&mut body)?;
            let bytes = body.split_to(body.len());
            if bytes.is_empty()
                || offset.checked_add(bytes.len() as u64).is_none_or(|end| end > MOST)
            {
                return Err(bad);
            }
            Frame::Data { offset, bytes }
        }
        kind::FIN => Frame::Fin(number(&mut body)?),
        kind::RESET => {
            let offset = number(&mut body)?;
            let (reason, words) = reason(&mut body, cut, bad)?;
            Frame::Reset { offset, reason, words }
        }
        kind::OPENED => Frame::Opened,
        kind::REFUSED => {
            let (reason, words) = reason(&mut body, cut, bad)?;
            Frame::Refused { reason, words }
        }
        kind::CREDIT => Frame::Credit { flow: number(&mut body)?, limit: number(&mut body)? },
        kind::TOTAL => Frame::Total(number(&mut body)?),
        OPTIONAL.. => {
            body.clear();
            Frame::Unknown(kind)
        }
        _ => return Err(BadFrame::UnknownKind(kind)),
    };
    if body.is_empty() { Ok(frame) } else { Err(cut) }
}

fn text(body: &mut Bytes, most: usize, cut: BadFrame, bad: BadFrame) -> Result<Bytes, BadFrame> {
    let length = get(body).ok_or(cut)?;
    let length = usize::try_from(length).ok().filter(|length| *length <= most).ok_or(bad)?;
    if body.len() < length { Err(cut) } else { Ok(body.split_to(length)) }
}

fn reason(body: &mut Bytes, cut: BadFrame, bad: BadFrame) -> Result<(Reason, String), BadFrame> {
    let reason = Reason::from_code(get(body).ok_or(cut)?);
    let words = text(body, WORDS, cut, bad)?;
    // shown to people and put into answers: nothing that breaks a line or a terminal
    let words = String::from_utf8_lossy(&words).chars().filter(|c| !c.is_control()).collect();
    Ok((reason, words))
}

fn target(body: &mut Bytes, cut: BadFrame, bad: BadFrame) -> Result<Target, BadFrame> {
    let host = match body.try_get_u8().map_err(|_| cut)? {
        4 => {
            let bytes = body.split_to_checked(4).ok_or(cut)?;
            let bytes: [u8; 4] = bytes[..].try_into().map_err(|_| cut)?;
            Host::Address(Ipv4Addr::from(bytes).into())
        }
        6 => {
            let bytes = body.split_to_checked(16).ok_or(cut)?;
            let bytes: [u8; 16] = bytes[..].try_into().map_err(|_| cut)?;
            Host::Address(Ipv6Addr::from(bytes).into())
        }
        3 => {
            let name = text(body, 255, cut, bad)?;
            let name = std::str::from_utf8(&name).map_err(|_| bad)?;
            if name.is_empty() {
                return Err(bad);
            }
            Host::Name(name.to_owned())
        }
        _ => return Err(bad),
    };
    match body.try_get_u16().map_err(|_| cut)? {
        0 => Err(bad),
        port => Ok(Target { host, port }),
    }
}

/// `Bytes::split_to` that does not panic.
trait SplitChecked {
    fn split_to_checked(&mut self, length: usize) -> Option<Bytes>;
}

impl SplitChecked for Bytes {
    fn split_to_checked(&mut self, length: usize) -> Option<Bytes> {
        (self.len() >= length).then(|| self.split_to(length))
    }
}

impl Frame {
    /// Writes it.
    pub fn write(&self, into: &mut BytesMut) {
        let mut body = BytesMut::new();
        let kind = match self {
            Self::Hello(hello) => {
                put(&mut body, hello.version);
                put(&mut body, hello.lane.into());
                put(&mut body, hello.session);
                put(&mut body, hello.receive.as_bits_per_second());
                put(&mut body, hello.window);
                put(&mut body, hello.total);
                put_text(&mut body, &hello.secret);
                kind::HELLO
            }
            Self::Open(open) => {
                put(&mut body, open.flow);
                let Opening { account, hops, target } = &open.opening;
                put_text(&mut body, account);
                body.put_u8(*hops);
                match &target.host {
                    Host::Address(IpAddr::V4(address)) => {
                        body.put_u8(4);
                        body.put_slice(&address.octets());
                    }
                    Host::Address(IpAddr::V6(address)) => {
                        body.put_u8(6);
                        body.put_slice(&address.octets());
                    }
                    Host::Name(name) => {
                        body.put_u8(3);
                        put_text(&mut body, name.as_bytes());
                    }
                }
                body.put_u16(target.port);
                kind::OPEN
            }
            Self::Attach(flow) => {
                put(&mut body, *flow);
                kind::ATTACH
            }
            Self::Data { offset, bytes } => {
                // without copying the bytes twice
                put(into, kind::DATA);
                put(into, (length(*offset) + bytes.len()) as u64);
                put(into, *offset);
                into.put_slice(bytes);
                return;
            }
            Self::Fin(offset) => {
                put(&mut body, *offset);
                kind::FIN
            }
            Self::Reset { offset, reason, words } => {
                put(&mut body, *offset);
                put_reason(&mut body, *reason, words);
                kind::RESET
            }
            Self::Opened => kind::OPENED,
            Self::Refused { reason, words } => {
                put_reason(&mut body, *reason, words);
                kind::REFUSED
            }
            Self::Credit { flow, limit } => {
                put(&mut body, *flow);
                put(&mut body, *limit);
                kind::CREDIT
            }
            Self::Total(limit) => {
                put(&mut body, *limit);
                kind::TOTAL
            }
            Self::Unknown(kind) => *kind,
        };
        put(into, kind);
        put(into, body.len() as u64);
        into.put_slice(&body);
    }

    /// It alone, written.
    #[must_use]
    pub fn to_bytes(&self) -> BytesMut {
        let mut bytes = BytesMut::new();
        self.write(&mut bytes);
        bytes
    }
}

/// What DATA takes beside its bytes: type, length of two bytes (four beyond 16 KiB, which no packet has),
/// offset.
#[must_use]
pub fn data_overhead(offset: u64) -> usize {
    1 + 2 + length(offset)
}

fn put_text(into: &mut BytesMut, bytes: &[u8]) {
    put(into, bytes.len() as u64);
    into.put_slice(bytes);
}

fn put_reason(into: &mut BytesMut, reason: Reason, words: &str) {
    put(into, reason.code());
    put_text(into, &words.as_bytes()[..words.floor_char_boundary(WORDS)]);
}

/// The largest number there is (RFC 9000 §16).
pub const MOST: u64 = (1 << 62) - 1;

const fn length(n: u64) -> usize {
    match n {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Writes a number; what is larger than [`MOST`] is written as that.
fn put(into: &mut BytesMut, n: u64) {
    let n = n.min(MOST);
    match length(n) {
        1 => into.put_u8(n as u8),
        2 => into.put_u16(n as u16 | 0x4000),
        4 => into.put_u32(n as u32 | 0x8000_0000),
        _ => into.put_u64(n | 0xc000_0000_0000_0000),
    }
}

/// Reads a number; `None` when it is cut.
fn get(from: &mut impl Buf) -> Option<u64> {
    let first = *from.chunk().first()?;
    let length = 1_usize << (first >> 6);
    if from.remaining() < length {
        return None;
    }
    let n = (0..length).fold(0, |n, _| n << 8 | u64::from(from.get_u8()));
    Some(n & (u64::MAX >> (66 - 8 * length)))
}

#[cfg(test)]
mod tests;
