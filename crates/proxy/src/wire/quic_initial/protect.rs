//! What a client does, for tests.

use super::suite;
use rustls::Side;
use rustls::quic::{Keys, Version};

/// An Initial with a packet number of four bytes, as a client protects it (RFC 9001 §5); `None` where it is too long.
pub fn protect(version_2: bool, id: &[u8], nth: u32, frames: &[u8]) -> Option<Vec<u8>> {
    let (version, first, number): (_, _, u32) = match version_2 {
        false => (Version::V1, 0xc3, 1),
        true => (Version::V2, 0xd3, 0x6b33_43cf),
    };
    let length = u16::try_from(4 + frames.len() + 16).ok().filter(|length| *length < 1 << 14)?;
    let mut packet = vec![first];
    packet.extend(number.to_be_bytes());
    packet.push(u8::try_from(id.len()).ok()?);
    packet.extend(id);
    packet.extend([0, 0]);
    packet.extend((0x4000 | length).to_be_bytes());
    let number_at = packet.len();
    packet.extend(nth.to_be_bytes());
    let suite = suite()?;
    let keys = Keys::initial(version, suite, suite.quic?, id, Side::Client).local;
    let mut payload = frames.to_vec();
    let tag = keys.packet.encrypt_in_place(nth.into(), &packet, &mut payload).ok()?;
    packet.extend(&payload);
    packet.extend(tag.as_ref());
    let (head, sample) = packet.split_at_mut_checked(number_at + 4)?;
    let sample = sample.get(..keys.header.sample_len())?;
    let (first, rest) = head.split_first_mut()?;
    let number = rest.get_mut(number_at - 1..)?;
    keys.header.encrypt_in_place(sample, first, number).ok()?;
    Some(packet)
}
