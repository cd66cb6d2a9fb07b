//! What a client asks, and what a server is asked.

use super::reply::bare;
use super::{HEADER, UDP_MOST, end_of_name};
use ekiden_model::dns::Cookie;
use hickory_resolver::proto::ProtoError;
use hickory_resolver::proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_resolver::proto::rr::{DNSClass, Name, RecordType};

/// A question, with all that its answer depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The name.
    pub name: Name,
    /// The type of its records.
    pub kind: RecordType,
    /// Whether signatures are wanted (the DO bit, RFC 3225).
    pub dnssec: bool,
    /// Whether unchecked answers are wanted (the CD bit, RFC 4035 §3.2.2).
    pub unchecked: bool,
}

/// The number of the COOKIE option (RFC 7873 §4).
const COOKIE: u16 = 10;
/// That of padding (RFC 7830 §3).
const PADDING: u16 = 12;
/// Questions within TLS have a multiple of so many bytes (RFC 8467 §4.1), so that their length says little of the name.
const PADDED: usize = 128;

/// How a question is written for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// With EDNS (RFC 6891).
    pub edns: bool,
    /// The cookie, within EDNS.
    pub cookie: Option<Cookie>,
    /// Padded, within EDNS.
    pub padded: bool,
}

impl Form {
    /// With EDNS alone.
    pub const PLAIN: Self = Self { edns: true, cookie: None, padded: false };
    /// For streams that nobody can read.
    pub const PADDED: Self = Self { padded: true, ..Self::PLAIN };
}

/// A client's question, and how it is to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientQuestion {
    pub(super) id: u16,
    /// The question section as the client spelled it.
    pub(super) spelled: Box<[u8]>,
    /// The size that the client's EDNS gives; `None`: it sent none.
    pub(super) edns: Option<u16>,
    /// The client's cookie.
    pub cookie: Option<Cookie>,
    /// The cookie of the reply; `None`: there is none.
    pub reply_cookie: Option<Cookie>,
    /// What is asked.
    pub question: Question,
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// It is a question.
    Question(Box<ClientQuestion>),
    /// It is refused with this reply.
    Refuse(Vec<u8>),
    /// Nothing is answered: it is no question at all.
    Drop,
}

impl Question {
    /// A question of this relay's own.
    pub const fn new(name: Name, kind: RecordType) -> Self {
        Self { name, kind, dnssec: false, unchecked: false }
    }

    /// The same question about records of another type.
    pub fn of_kind(&self, kind: RecordType) -> Self {
        Self { kind, ..self.clone() }
    }

    /// The key of its answer: equal for names that differ in case alone.
    pub fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.name.len() + 4);
        for label in &self.name {
            // a label has at most 63 bytes
            key.push(label.len() as u8);
            key.extend(label.iter().map(u8::to_ascii_lowercase));
        }
        key.extend(u16::from(self.kind).to_be_bytes());
        key.push(u8::from(self.dnssec) | u8::from(self.unchecked) << 1);
        key
    }

    /// The message that asks a server. Errors: the name cannot be written.
    pub fn message(&self, id: u16, form: Form) -> Result<Vec<u8>, ProtoError> {
        let mut message = Message::new(id, MessageType::Query, OpCode::Query);
        message.metadata.recursion_desired = true;
        message.metadata.checking_disabled = self.unchecked;
        message.add_query(Query::query(self.name.clone(), self.kind));
        if !form.edns {
            return message.to_vec();
        }
        let mut edns = Edns::new();
        edns.set_max_payload(UDP_MOST).set_dnssec_ok(self.dnssec);
        if let Some(cookie) = form.cookie {
            edns.options_mut().insert(EdnsOption::Unknown(COOKIE, cookie.to_vec()));
        }
        message.set_edns(edns.clone());
        let bytes = message.to_vec()?;
        if !form.padded {
            return Ok(bytes);
        }
        // the option itself takes four bytes more
        let length = (bytes.len() + 4).next_multiple_of(PADDED) - bytes.len() - 4;
        edns.options_mut().insert(EdnsOption::Unknown(PADDING, vec![0; length]));
        message.set_edns(edns);
        message.to_vec()
    }
}

/// The cookie in a message's EDNS, the first one. `Some(None)`: its length is not allowed.
pub(super) fn cookie_in(edns: Option<&Edns>) -> Option<Option<Cookie>> {
    match edns?.option(EdnsCode::Cookie)? {
        EdnsOption::Unknown(_, bytes) => Some(Cookie::read(bytes)),
        _ => Some(None),
    }
}

impl ClientQuestion {
    /// The most bytes of a reply over UDP (RFC 6891 §6.2.5).
    pub fn udp_most(&self) -> usize {
        self.edns.map_or(512, |size| size.clamp(512, UDP_MOST)).into()
    }
}

/// Reads a client's message.
pub fn read_question(bytes: &[u8]) -> Reading {
    let Some(header) = bytes.get(..HEADER) else { return Reading::Drop };
    // answers to answers would never end
    if header[2] & 0x80 != 0 {
        return Reading::Drop;
    }
    let id = u16::from_be_bytes([header[0], header[1]]);
    let refuse = |code| Reading::Refuse(bare(header, code));
    if header[2] & 0x78 != 0 {
        return refuse(ResponseCode::NotImp);
    }
    let Ok(message) = Message::from_vec(bytes) else { return refuse(ResponseCode::FormErr) };
    let ([query], Some(end)) = (message.queries.as_slice(), end_of_name(bytes, HEADER, false))
    else {
        return refuse(ResponseCode::FormErr);
    };
    let Some(spelled) = bytes.get(HEADER..end + 4) else { return refuse(ResponseCode::FormErr) };
    let edns = message.edns.as_ref();
    let cookie = match cookie_in(edns) {
        None => None,
        Some(Some(cookie)) => Some(cookie),
        // RFC 7873 §5.2.2
        Some(None) => return refuse(ResponseCode::FormErr),
    };
    let question = Question {
        name: query.name().clone(),
        kind: query.query_type(),
        dnssec: edns.is_some_and(|edns| edns.flags().dnssec_ok),
        unchecked: message.metadata.checking_disabled,
    };
    let asked = ClientQuestion {
        id,
        spelled: spelled.into(),
        edns: edns.map(Edns::max_payload),
        cookie,
        reply_cookie: None,
        question,
    };
    let refuse = |code| Reading::Refuse(asked.refusal(code));
    if message.version() > 0 {
        return refuse(ResponseCode::BADVERS);
    }
    // transfers and other questions that are not about records; ANY is answered elsewhere (RFC 8482)
    let meta = matches!(u16::from(asked.question.kind), 0 | 41 | 249..=254);
    if query.query_class() != DNSClass::IN || meta {
        return refuse(ResponseCode::Refused);
    }
    // whether somebody else has asked is nobody's business
    if !message.metadata.recursion_desired {
        return refuse(ResponseCode::Refused);
    }
    Reading::Question(Box::new(asked))
}
