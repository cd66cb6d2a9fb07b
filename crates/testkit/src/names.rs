//! Messages of the DNS, byte by byte, for tests that have no library for them.

use std::net::{Ipv4Addr, Ipv6Addr};

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
    with_record(question, 1, &address.octets(), seconds)
}

/// The same for AAAA (RFC 3596).
pub fn answer_v6(question: &[u8], address: Ipv6Addr, seconds: u32) -> Vec<u8> {
    with_record(question, 28, &address.octets(), seconds)
}

/// The reply that there is nothing of the kind.
pub fn no_answer(question: &[u8]) -> Vec<u8> {
    head(question, 0)
}

/// The head of a reply, and the question; what follows the question is left out.
fn head(question: &[u8], answers: u8) -> Vec<u8> {
    let end = 12 + question[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let counts = [0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0];
    [&question[..2], &counts, &question[12..end]].concat()
}

fn with_record(question: &[u8], kind: u8, data: &[u8], seconds: u32) -> Vec<u8> {
    let mut message = head(question, 1);
    message.extend_from_slice(&[0xc0, 12, 0, kind, 0, 1]);
    message.extend_from_slice(&seconds.to_be_bytes());
    message.extend_from_slice(&[0, data.len() as u8]);
    message.extend_from_slice(data);
    message
}

/// A reply's code: 0 is fine, 2 is the server's failure, 3 is that there is no such name.
pub fn code(reply: &[u8]) -> u8 {
    reply[3] & 15
}
