//! Replies to clients, written from kept answers without decoding them: the identifier, the flags, the spelling of the
//! name, the times and the EDNS record are put in.

use super::answer::Answer;
use super::question::ClientQuestion;
use super::{HEADER, UDP_MOST};
use ekiden_model::dns::{Outcome, STALE_TTL};
use ekiden_model::units::Span;
use hickory_resolver::proto::op::ResponseCode;
use std::sync::Arc;

/// Extended errors (RFC 8914 §4): the answer is past its end, no server can be reached.
const STALE: u16 = 3;
const NO_SERVER: u16 = 22;

/// Flags of a reply: a response, recursion desired and available (RFC 1035 §4.1.1).
const RESPONSE: u16 = 0x8180;
const TRUNCATED: u16 = 0x0200;
const CHECKING_DISABLED: u16 = 0x0010;

/// A header alone, in reply to another header.
pub(super) fn bare(header: &[u8], code: ResponseCode) -> Vec<u8> {
    let mut reply = header[..HEADER].to_vec();
    reply[2] = 0x80 | (header[2] & 0x79);
    reply[3] = 0x80 | (u16::from(code) as u8 & 0x0f);
    reply[4..].fill(0);
    reply
}

impl ClientQuestion {
    /// Writes the reply into `out`, in place of what is there: at most `most` bytes, else a truncated one without
    /// records, so that the client asks over TCP (RFC 2181 §9).
    pub fn reply(&self, outcome: &Outcome<Arc<Answer>>, most: usize, out: &mut Vec<u8>) {
        let (answer, ttl, error) = match outcome {
            Outcome::Fresh(answer, ttl) => (answer, *ttl, None),
            Outcome::Stale(answer) => (answer, STALE_TTL, Some(STALE)),
            Outcome::Failed | Outcome::GaveWay => {
                let error = matches!(outcome, Outcome::Failed).then_some(NO_SERVER);
                return self.without_records(ResponseCode::ServFail.into(), error, 0, out);
            }
        };
        let code = answer.code();
        if answer.bytes.len() + self.room_of_edns(error) > most {
            return self.without_records(code, error, TRUNCATED, out);
        }
        out.clear();
        out.extend_from_slice(&answer.bytes);
        // the name has the same length however it is spelled, and pointers to it stay right
        if let Some(spelled) = out.get_mut(HEADER..HEADER + self.spelled.len()) {
            spelled.copy_from_slice(&self.spelled);
        }
        self.put_header(code, 0, out);
        let seconds = seconds(ttl).to_be_bytes();
        for at in &answer.ttls {
            let at = usize::from(*at);
            if let Some(place) = out.get_mut(at..at + 4) {
                place.copy_from_slice(&seconds);
            }
        }
        self.put_edns(code, error, out);
    }

    /// A reply with this code and without records.
    pub fn refusal(&self, code: ResponseCode) -> Vec<u8> {
        let mut out = Vec::new();
        self.without_records(code.into(), None, 0, &mut out);
        out
    }

    fn without_records(&self, code: u16, error: Option<u16>, flags: u16, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&self.spelled);
        self.put_header(code, flags, out);
        self.put_edns(code, error, out);
    }

    fn put_header(&self, code: u16, flags: u16, out: &mut [u8]) {
        let disabled = if self.question.unchecked { CHECKING_DISABLED } else { 0 };
        let flags = RESPONSE | flags | disabled | (code & 0x0f);
        out[..2].copy_from_slice(&self.id.to_be_bytes());
        out[2..4].copy_from_slice(&flags.to_be_bytes());
    }

    fn room_of_edns(&self, error: Option<u16>) -> usize {
        let cookie = self.reply_cookie.map_or(0, |cookie| 4 + cookie.to_vec().len());
        self.edns.map_or(0, |_| 11 + error.map_or(0, |_| 6) + cookie)
    }

    /// The OPT record (RFC 6891 §6.1.2), for a client that sent one.
    fn put_edns(&self, code: u16, error: Option<u16>, out: &mut Vec<u8>) {
        if self.edns.is_none() {
            return;
        }
        let count = u16::from_be_bytes([out[10], out[11]]).saturating_add(1);
        out[10..12].copy_from_slice(&count.to_be_bytes());
        out.extend_from_slice(&[0, 0, 41]);
        out.extend_from_slice(&UDP_MOST.to_be_bytes());
        let wanted = if self.question.dnssec { 0x80 } else { 0 };
        // the upper bits of the code, version 0, flags
        out.extend_from_slice(&[(code >> 4) as u8, 0, wanted, 0]);
        let mut options = Vec::new();
        if let Some(error) = error {
            options.extend_from_slice(&[0, 15, 0, 2]);
            options.extend_from_slice(&error.to_be_bytes());
        }
        if let Some(cookie) = self.reply_cookie {
            let cookie = cookie.to_vec();
            // at most 40 bytes
            options.extend_from_slice(&[0, 10, 0, cookie.len() as u8]);
            options.extend_from_slice(&cookie);
        }
        // an option or two, of a few bytes each
        out.extend_from_slice(&(options.len() as u16).to_be_bytes());
        out.extend_from_slice(&options);
    }
}

/// In whole seconds, rounded up: an answer that holds a moment longer is not one that may not be kept.
fn seconds(ttl: Span) -> u32 {
    u32::try_from(ttl.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u32::MAX)
}
