//! Names that no server is asked about.

use super::answer::Answer;
use super::question::Question;
use ekiden_model::dns::Found;
use ekiden_model::units::Span;
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::rdata::{A, AAAA, HINFO};
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// How long such an answer holds.
const HOLDS: Span = Span::from_secs(3600);

/// The answer about `localhost`, `invalid` (RFC 6761 §6.3, §6.4) and `onion` (RFC 7686), and that to a question for
/// records of any type (RFC 8482 §4.2).
pub fn special(question: &Question) -> Option<Found<Arc<Answer>>> {
    let last = question.name.iter().next_back()?.to_ascii_lowercase();
    let record =
        |data| vec![Record::from_rdata(question.name.clone(), HOLDS.as_secs() as u32, data)];
    let (code, records) = match (last.as_slice(), question.kind) {
        (b"localhost", RecordType::A) => {
            (ResponseCode::NoError, record(RData::A(A(Ipv4Addr::LOCALHOST))))
        }
        (b"localhost", RecordType::AAAA) => {
            (ResponseCode::NoError, record(RData::AAAA(AAAA(Ipv6Addr::LOCALHOST))))
        }
        (b"localhost", _) => (ResponseCode::NoError, Vec::new()),
        (b"invalid" | b"onion", _) => (ResponseCode::NXDomain, Vec::new()),
        (_, RecordType::ANY) => {
            let data = HINFO::new("RFC8482".to_owned(), String::new());
            (ResponseCode::NoError, record(RData::HINFO(data)))
        }
        _ => return None,
    };
    Answer::new(question, code, records, Vec::new()).map(|answer| answer.found(HOLDS))
}
