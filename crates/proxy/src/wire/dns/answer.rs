//! What a server answers, and what of it is believed: the records that lead from the name that was asked to the
//! records that were wanted, and the proof that there are none. All else is left out (RFC 5452 §6).

use super::question::Question;
use super::{HEADER, end_of_name, number_at};
use ekiden_model::dns::Found;
use ekiden_model::units::Span;
use hickory_resolver::proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::{DNSClass, Name, RData, Record, RecordType};
use std::net::IpAddr;
use std::sync::Arc;

/// The most aliases from a name to its records; more indicate a loop.
const MOST_ALIASES: usize = 16;
/// What an answer takes beside its bytes.
const BESIDE: usize = 64;

const DNAME: u16 = 39;
const RRSIG: u16 = 46;
/// NSEC and NSEC3.
const DENIALS: [u16; 2] = [47, 50];

/// An answer as it is kept: a reply without EDNS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub(super) bytes: Box<[u8]>,
    /// Where the records' times stand in it.
    pub(super) ttls: Box<[u16]>,
    /// The addresses of the name that was asked.
    pub addresses: Box<[IpAddr]>,
    /// Whether it says that the name, or such records of it, do not exist.
    pub negative: bool,
}

/// A server's reply.
#[derive(Debug, Clone)]
pub enum ServerReply {
    /// An answer, and how many of its records were left out.
    Found(Found<Arc<Answer>>, usize),
    /// It is too long for UDP.
    Truncated,
    /// The server cannot answer.
    Failed(ResponseCode),
}

/// Why a message is not the reply to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // the messages say it
pub enum Lie {
    #[error("it cannot be read")]
    Unreadable,
    #[error("it has another identifier")]
    Id,
    #[error("it is about another question")]
    Question,
    #[error("it is not a reply")]
    NotAReply,
}

impl Answer {
    /// An answer of these records. `None` where they do not fit into a message.
    pub(super) fn new(
        question: &Question,
        code: ResponseCode,
        answers: Vec<Record>,
        authorities: Vec<Record>,
    ) -> Option<Self> {
        let mut message = Message::response(0, OpCode::Query);
        message.metadata.response_code = code;
        message.add_query(Query::query(question.name.clone(), question.kind));
        let wanted = |record: &&Record| record.record_type() == question.kind;
        let negative = code != ResponseCode::NoError || !answers.iter().any(|one| wanted(&one));
        let addresses = answers.iter().filter_map(|record| match &record.data {
            RData::A(address) => Some(IpAddr::V4(address.0)),
            RData::AAAA(address) => Some(IpAddr::V6(address.0)),
            _ => None,
        });
        let addresses = addresses.collect();
        let records = answers.len() + authorities.len();
        message.answers = answers;
        message.authorities = authorities;
        let bytes = message.to_vec().ok()?.into_boxed_slice();
        let ttls = times(&bytes, records)?;
        Some(Self { bytes, ttls, addresses, negative })
    }

    /// The response code.
    pub(super) fn code(&self) -> u16 {
        self.bytes.get(3).map_or(2, |byte| u16::from(byte & 0x0f))
    }

    /// Whether the name exists and has no such records.
    pub fn is_without_records(&self) -> bool {
        self.negative && self.code() == 0
    }

    /// The same, to be kept for so long.
    pub(super) fn found(self, ttl: Span) -> Found<Arc<Self>> {
        let (bytes, negative) = (self.size() as u64, self.negative);
        Found { answer: Arc::new(self), bytes, ttl, negative }
    }

    /// The bytes of memory that it takes.
    pub fn size(&self) -> usize {
        [self.bytes.len(), 2 * self.ttls.len(), 17 * self.addresses.len(), BESIDE].iter().sum()
    }

    /// Its records and those that prove that there are none.
    pub(super) fn records(&self) -> Option<(Vec<Record>, Vec<Record>)> {
        let message = Message::from_vec(&self.bytes).ok()?;
        Some((message.answers, message.authorities))
    }
}

/// Where the times of so many records stand, after one question.
fn times(bytes: &[u8], records: usize) -> Option<Box<[u16]>> {
    let mut at = end_of_name(bytes, HEADER, false)? + 4;
    let mut times = Vec::with_capacity(records);
    for _ in 0..records {
        let fixed = end_of_name(bytes, at, true)?;
        times.push(u16::try_from(fixed + 4).ok()?);
        at = fixed + 10 + usize::from(number_at(bytes, fixed + 8)?);
    }
    (at == bytes.len()).then(|| times.into_boxed_slice())
}

/// Reads a server's reply to the question that was sent with `id`. Errors: it is not that; somebody else may have sent
/// it.
pub fn read_answer(question: &Question, id: u16, bytes: &[u8]) -> Result<ServerReply, Lie> {
    let message = Message::from_vec(bytes).map_err(|_| Lie::Unreadable)?;
    judge(question, id, message)
}

/// The same of a message that has been decoded.
pub(super) fn judge(question: &Question, id: u16, message: Message) -> Result<ServerReply, Lie> {
    let head = &message.metadata;
    if head.id != id {
        return Err(Lie::Id);
    }
    if head.message_type != MessageType::Response || head.op_code != OpCode::Query {
        return Err(Lie::NotAReply);
    }
    let code = head.response_code;
    let same = |query: &Query| {
        *query.name() == question.name
            && query.query_type() == question.kind
            && query.query_class() == DNSClass::IN
    };
    match message.queries.as_slice() {
        [query] if same(query) => {}
        // some servers refuse without the question
        [] if code != ResponseCode::NoError && code != ResponseCode::NXDomain => {}
        _ => return Err(Lie::Question),
    }
    if head.truncation {
        return Ok(ServerReply::Truncated);
    }
    if code != ResponseCode::NoError && code != ResponseCode::NXDomain {
        return Ok(ServerReply::Failed(code));
    }
    Ok(believe(question, code, message))
}

fn believe(question: &Question, code: ResponseCode, message: Message) -> ServerReply {
    let all = message.answers.len() + message.authorities.len() + message.additionals.len();
    let Some((answers, last)) = chain(question, message.answers) else {
        return ServerReply::Failed(ResponseCode::ServFail);
    };
    let found = answers.iter().any(|record| record.record_type() == question.kind);
    let negative = !found || code == ResponseCode::NXDomain;
    let refers = message.authorities.iter().any(|record| matches!(record.data, RData::NS(_)));
    let mut ttl = answers.iter().map(|record| seconds(record.ttl)).min();
    let mut authorities = Vec::new();
    for mut record in message.authorities {
        let kind = u16::from(record.record_type());
        match &record.data {
            RData::SOA(soa) if negative && record.name.zone_of(&last) => {
                let kept = seconds(record.ttl).min(seconds(soa.minimum));
                ttl = Some(ttl.map_or(kept, |ttl| ttl.min(kept)));
                // spelled as in the question
                record.name = last.trim_to(record.name.iter().count());
                authorities.push(record);
            }
            _ if question.dnssec && (DENIALS.contains(&kind) || kind == RRSIG) => {
                authorities.push(record);
            }
            _ => {}
        }
    }
    let proved = authorities.iter().any(|record| matches!(record.data, RData::SOA(_)));
    if negative && !proved {
        // a server that refers to others does not resolve
        if refers {
            return ServerReply::Failed(ResponseCode::Refused);
        }
        // how long it holds, nobody says (RFC 2308 §5)
        ttl = Some(Span::ZERO);
    }
    let left_out = all - answers.len() - authorities.len();
    match Answer::new(question, code, answers, authorities) {
        Some(answer) => ServerReply::Found(answer.found(ttl.unwrap_or(Span::ZERO)), left_out),
        None => ServerReply::Failed(ResponseCode::ServFail),
    }
}

/// The records from the name that was asked, over its aliases, to those that were wanted, and the last name. `None`:
/// the aliases do not end.
fn chain(question: &Question, records: Vec<Record>) -> Option<(Vec<Record>, Name)> {
    let mut rest = records;
    let mut kept = Vec::new();
    let mut name = question.name.clone();
    for _ in 0..=MOST_ALIASES {
        let belongs = |record: &mut Record| {
            let kind = record.record_type();
            let wanted = kind == question.kind || kind == RecordType::CNAME;
            let signs = question.dnssec && u16::from(kind) == RRSIG;
            let renames = u16::from(kind) == DNAME && record.name.zone_of(&name);
            let here = record.name == name && (wanted || signs);
            record.dns_class == DNSClass::IN && (here || renames)
        };
        let mut here: Vec<Record> = rest.extract_if(.., belongs).collect();
        // spelled as in the question, so that the client's spelling takes the place of all
        for record in here.iter_mut().filter(|record| record.name == name) {
            record.name = name.clone();
        }
        let alias = here.iter().find_map(|record| match &record.data {
            RData::CNAME(target) if question.kind != RecordType::CNAME => Some(target.0.clone()),
            _ => None,
        });
        let found = here.iter().any(|record| record.record_type() == question.kind);
        kept.extend(here);
        match alias {
            Some(next) if !found => name = next,
            _ => return Some((kept, name)),
        }
    }
    None
}

/// A time in seconds; one with the highest bit set is none (RFC 2181 §8).
fn seconds(ttl: u32) -> Span {
    Span::from_secs(if ttl > i32::MAX as u32 { 0 } else { ttl.into() })
}
