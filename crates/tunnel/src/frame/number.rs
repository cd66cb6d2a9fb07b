//! Numbers of one, two, four or eight bytes (RFC 9000 §16).

use bytes::{Buf, BufMut, BytesMut};

/// The largest number there is (RFC 9000 §16).
pub const MOST: u64 = (1 << 62) - 1;

pub(super) const fn length(n: u64) -> usize {
    match n {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Writes a number; larger ones than [`MOST`] are written as [`MOST`].
pub(super) fn put(into: &mut BytesMut, n: u64) {
    let n = n.min(MOST);
    match length(n) {
        1 => into.put_u8(n as u8),
        2 => into.put_u16(n as u16 | 0x4000),
        4 => into.put_u32(n as u32 | 0x8000_0000),
        _ => into.put_u64(n | 0xc000_0000_0000_0000),
    }
}

/// Reads a number; `None` when it is cut.
pub(crate) fn get(from: &mut impl Buf) -> Option<u64> {
    let first = *from.chunk().first()?;
    let length = 1_usize << (first >> 6);
    if from.remaining() < length {
        return None;
    }
    let n = (0..length).fold(0, |n, _| n << 8 | u64::from(from.get_u8()));
    Some(n & (u64::MAX >> (66 - 8 * length)))
}
