//! Messages of the DNS without I/O: clients' questions (RFC 1035, RFC 6891), what servers answer and what of that is
//! believed, and replies out of kept answers.

mod answer;
mod framing;
mod nat64;
mod question;
mod reply;
mod sent;
mod special;
#[cfg(test)]
mod tests;

pub use answer::{Answer, Lie, ServerReply, read_answer};
pub use framing::{Messages, framed};
pub use nat64::Nat64;
pub use question::{ClientQuestion, Form, Question, Reading, read_question};
pub use sent::{LetterBits, SentQuestion};
pub use special::special;

/// The most bytes of a message over UDP, in both directions: what passes any path unfragmented.
pub const UDP_MOST: u16 = 1_232;
/// Bytes of the header of a message (RFC 1035 §4.1.1).
const HEADER: usize = 12;

/// Where a name that begins at `at` ends, after its last byte. `compressed`: whether it may end in a pointer (RFC 1035
/// §4.1.4), which is not followed.
fn end_of_name(message: &[u8], mut at: usize, compressed: bool) -> Option<usize> {
    loop {
        match message.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(*length),
            192..=255 if compressed => return message.get(at + 1).map(|_| at + 2),
            _ => return None,
        }
    }
}

/// The number in two bytes at `at`.
fn number_at(message: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]))
}
