//! UDP payloads in capsules on a stream: the Capsule Protocol (RFC 9297 §3) with the one context of UDP proxying
//! (RFC 9298 §5).
//!
//! ```text
//! DATAGRAM capsule: type 0, length, context ID 0, UDP payload; the first three are variable-length integers of QUIC
//! ```
//! Other capsules and other contexts are skipped. What is skipped has a bound, because it moves nothing for the client.

/// The largest UDP payload, in bytes (RFC 9298 §5).
pub const MOST_PAYLOAD: usize = 65_527;
/// The most bytes that are skipped between two UDP payloads: the largest datagrams of four contexts that are unknown
/// here.
pub const MOST_SKIPPED: u64 = 256 * 1024;
/// The bytes before a payload that [`write_head`] writes, at most.
pub const HEAD: usize = 6;

/// The type of a DATAGRAM capsule (RFC 9297 §3.5).
const DATAGRAM: u64 = 0;
/// The context of UDP payloads (RFC 9298 §4).
const UDP_PAYLOAD: u64 = 0;
/// Type, length and context ID, each of 8 bytes at most (RFC 9000 §16).
const LONGEST_HEAD: usize = 24;

/// Why a stream of capsules cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadCapsule {
    /// A DATAGRAM capsule that ends within its context ID.
    #[error("a DATAGRAM capsule has no context ID")]
    NoContext,
    /// A UDP payload of this many bytes.
    #[error("a UDP payload has {0} bytes, and {MOST_PAYLOAD} is the most")]
    TooLong(u64),
    /// Capsules and contexts that are not known here, beyond the bound.
    #[error(
        "more than {MOST_SKIPPED} bytes came in unknown capsules or contexts without a UDP payload between them"
    )]
    TooMuchSkipped,
}

/// A UDP payload that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UdpPayload<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// It arrives in parts, and there is no room to keep them. It will be skipped.
    NoRoom,
}

/// Reads capsules out of bytes that arrive in any parts. It keeps at most one head and one payload.
#[derive(Debug, Default)]
pub struct CapsuleReader {
    state: State,
    /// A head that is not whole.
    head: Vec<u8>,
    /// A payload that is not whole, or the one that was returned last.
    held: Vec<u8>,
    skipped: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// A payload of so many bytes, none of which was read.
    Payload(usize),
    /// So many bytes of the payload are missing.
    Held(usize),
    /// So many bytes of a capsule are to be skipped.
    Skip(u64),
}

#[derive(Debug, Clone, Copy)]
enum Head {
    Payload(usize),
    Skip(u64),
}

impl CapsuleReader {
    /// The next UDP payload out of `input`, which moves on; `None` when all of `input` is read. `hold`: whether a
    /// payload of so many bytes may be kept here until the rest of it arrives.
    pub fn read<'a, 'b: 'a>(
        &'a mut self,
        input: &mut &'b [u8],
        hold: impl FnOnce(usize) -> bool,
    ) -> Result<Option<UdpPayload<'a>>, BadCapsule> {
        if self.state == State::Head {
            // returned before
            self.held = Vec::new();
        }
        loop {
            match self.state {
                State::Head => match self.read_head(input)? {
                    Some(Head::Payload(length)) => self.state = State::Payload(length),
                    Some(Head::Skip(length)) => self.state = State::Skip(length),
                    None => return Ok(None),
                },
                State::Skip(left) => {
                    let length = left.min(input.len() as u64);
                    take(input, length as usize);
                    if length < left {
                        self.state = State::Skip(left - length);
                        return Ok(None);
                    }
                    self.state = State::Head;
                }
                State::Payload(length) => {
                    if input.len() >= length {
                        self.state = State::Head;
                        return Ok(Some(UdpPayload::Whole(take(input, length))));
                    }
                    if input.is_empty() {
                        return Ok(None);
                    }
                    if !hold(length) {
                        self.state = State::Skip(length as u64);
                        return Ok(Some(UdpPayload::NoRoom));
                    }
                    self.held = Vec::with_capacity(length);
                    self.state = State::Held(length);
                    return Ok(self.fill(input, length));
                }
                State::Held(left) => return Ok(self.fill(input, left)),
            }
        }
    }

    /// Whether a payload that is not whole is kept here.
    pub const fn is_holding(&self) -> bool {
        matches!(self.state, State::Held(_))
    }

    /// Whether a capsule has begun and not ended.
    pub const fn is_within_capsule(&self) -> bool {
        !matches!(self.state, State::Head) || !self.head.is_empty()
    }

    fn fill(&mut self, input: &mut &[u8], left: usize) -> Option<UdpPayload<'_>> {
        let part = take(input, left.min(input.len()));
        self.held.extend_from_slice(part);
        if part.len() < left {
            self.state = State::Held(left - part.len());
            return None;
        }
        self.state = State::Head;
        Some(UdpPayload::Whole(&self.held))
    }

    fn read_head(&mut self, input: &mut &[u8]) -> Result<Option<Head>, BadCapsule> {
        let before = self.head.len();
        let more = input.get(..LONGEST_HEAD - before).unwrap_or(input);
        let parsed = if before == 0 {
            parse_head(more)?
        } else {
            self.head.extend_from_slice(more);
            parse_head(&self.head)?
        };
        let Some((head, used)) = parsed else {
            // all of the input, because no head is longer
            if before == 0 {
                self.head.extend_from_slice(more);
            }
            take(input, more.len());
            return Ok(None);
        };
        self.head = Vec::new();
        take(input, used.saturating_sub(before));
        self.skipped = match head {
            Head::Payload(_) => 0,
            Head::Skip(length) => self.skipped.saturating_add(length).saturating_add(used as u64),
        };
        if self.skipped > MOST_SKIPPED {
            return Err(BadCapsule::TooMuchSkipped);
        }
        Ok(Some(head))
    }
}

/// The first bytes, which `from` has no more then.
fn take<'a>(from: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (first, rest) = from.split_at(length.min(from.len()));
    *from = rest;
    first
}

/// The head of a capsule and its length; `None` while more bytes are needed.
fn parse_head(bytes: &[u8]) -> Result<Option<(Head, usize)>, BadCapsule> {
    let Some((kind, first)) = integer(bytes) else { return Ok(None) };
    let Some((length, second)) = integer(&bytes[first..]) else { return Ok(None) };
    let used = first + second;
    if kind != DATAGRAM {
        return Ok(Some((Head::Skip(length), used)));
    }
    if length == 0 {
        return Err(BadCapsule::NoContext);
    }
    let Some(first) = bytes.get(used) else { return Ok(None) };
    let payload = length.checked_sub(integer_length(*first) as u64).ok_or(BadCapsule::NoContext)?;
    let Some((context, third)) = integer(&bytes[used..]) else { return Ok(None) };
    let head = match usize::try_from(payload) {
        _ if context != UDP_PAYLOAD => Head::Skip(payload),
        Ok(payload) if payload <= MOST_PAYLOAD => Head::Payload(payload),
        _ => return Err(BadCapsule::TooLong(payload)),
    };
    Ok(Some((head, used + third)))
}

/// A variable-length integer and its length (RFC 9000 §16).
fn integer(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    let length = integer_length(first);
    let rest = bytes.get(1..length)?;
    let value =
        rest.iter().fold(u64::from(first & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, length))
}

/// The length of a variable-length integer by its first byte.
const fn integer_length(first: u8) -> usize {
    1 << (first >> 6)
}

/// Writes what stands before a UDP payload of `length` bytes, at most [`MOST_PAYLOAD`]: type, length and context ID.
pub fn write_head(to: &mut Vec<u8>, length: usize) {
    to.push(DATAGRAM as u8);
    match length as u32 + 1 {
        value @ 0..0x40 => to.push(value as u8),
        value @ 0x40..0x4000 => to.extend((0x4000 | value as u16).to_be_bytes()),
        value => to.extend((0x8000_0000 | value).to_be_bytes()),
    }
    to.push(UDP_PAYLOAD as u8);
}

#[cfg(test)]
mod tests;
