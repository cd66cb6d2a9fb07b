//! Messages of the DNS, byte by byte, for tests that have no library for them.

use std::net::Ipv4Addr;

/// The question for A of a name (RFC 1035 §4.1), with an identifier.
pub fn question(id: u16, name: &str) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.extend_from_slice(&[0, 0, 1, 0, 1]);
    message
}

/// The reply to a question with one address, which holds for so many seconds.
pub fn answer(question: &[u8], address: Ipv4Addr, seconds: u32) -> Vec<u8> {
    // what follows the question is left out
    let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let counts = [0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
    let mut message = [&question[..2], &counts, &question[12..end]].concat();
    message.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
    message.extend_from_slice(&seconds.to_be_bytes());
    message.extend_from_slice(&[0, 4]);
    message.extend_from_slice(&address.octets());
    message
}

/// A reply's code: 0 is fine, 2 is the server's failure, 3 is that there is no such name.
pub fn code(reply: &[u8]) -> u8 {
    reply[3] & 15
}
