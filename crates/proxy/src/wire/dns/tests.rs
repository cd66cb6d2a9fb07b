//! Questions, replies and what is believed.

use super::*;
use ekiden_model::dns::Outcome;
use ekiden_model::units::Span;
use hickory_resolver::proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, AAAA, CNAME, NS, SOA, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use proptest::prelude::*;
use std::sync::Arc;

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn query(text: &str, kind: RecordType, edns: Option<u16>) -> Message {
    let mut message = Message::new(0x1234, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(text), kind));
    if let Some(size) = edns {
        let mut record = Edns::new();
        record.set_max_payload(size);
        message.set_edns(record);
    }
    message
}

fn asked(message: &Message) -> ClientQuestion {
    match read_question(&message.to_vec().unwrap()) {
        Reading::Question(question) => *question,
        other => panic!("{other:?}"),
    }
}

/// The code of a refusal, with its upper bits.
fn refused(bytes: &[u8]) -> Option<ResponseCode> {
    match read_question(bytes) {
        Reading::Refuse(reply) => {
            let message = Message::from_vec(&reply).unwrap();
            assert_eq!((message.id, message.message_type), (0x1234, MessageType::Response));
            Some(message.response_code)
        }
        _ => None,
    }
}

fn a(owner: &str, last: u8, ttl: u32) -> Record {
    Record::from_rdata(name(owner), ttl, RData::A(A::new(192, 0, 2, last)))
}

fn alias(owner: &str, to: &str) -> Record {
    Record::from_rdata(name(owner), 300, RData::CNAME(CNAME(name(to))))
}

fn soa(owner: &str, minimum: u32) -> Record {
    let data = SOA::new(name("ns."), name("root."), 1, 2, 3, 4, minimum);
    Record::from_rdata(name(owner), 900, RData::SOA(data))
}

/// A server's reply to a question for A of `a.example`.
fn reply(code: ResponseCode, answers: Vec<Record>, authorities: Vec<Record>) -> Message {
    let mut message = Message::response(7, OpCode::Query);
    message.metadata.response_code = code;
    message.add_query(Query::query(name("a.example."), RecordType::A));
    message.answers = answers;
    message.authorities = authorities;
    message
}

fn question() -> Question {
    Question::new(name("a.example."), RecordType::A)
}

fn read(message: &Message) -> Result<ServerReply, Lie> {
    read_answer(&question(), 7, &message.to_vec().unwrap())
}

/// The answer, its time in seconds and how many records were left out.
fn believed(message: &Message) -> (Arc<Answer>, u64, usize) {
    match read(message) {
        Ok(ServerReply::Found(found, left_out)) => (found.answer, found.ttl.as_secs(), left_out),
        other => panic!("{other:?}"),
    }
}

#[test]
fn refuses_what_is_no_question_for_a_resolver() {
    let bytes = |change: fn(&mut Message)| {
        let mut message = query("a.example.", RecordType::A, Some(1_232));
        change(&mut message);
        message.to_vec().unwrap()
    };
    for (what, code) in [
        (bytes(|m| m.metadata.recursion_desired = false), Some(ResponseCode::Refused)),
        (bytes(|m| m.metadata.op_code = OpCode::Update), Some(ResponseCode::NotImp)),
        (bytes(|m| m.queries.clear()), Some(ResponseCode::FormErr)),
        (bytes(|m| m.queries.push(m.queries[0].clone())), Some(ResponseCode::FormErr)),
        (
            bytes(|m| {
                m.queries[0].set_query_type(RecordType::AXFR);
            }),
            Some(ResponseCode::Refused),
        ),
        (bytes(|m| m.metadata.message_type = MessageType::Response), None),
        (bytes(|_| {})[..11].to_vec(), None),
        (bytes(|_| {})[..14].to_vec(), Some(ResponseCode::FormErr)),
    ] {
        assert_eq!(refused(&what), code, "{what:?}");
    }
    let mut newer = query("a.example.", RecordType::A, Some(1_232));
    newer.edns.as_mut().unwrap().set_version(1);
    let Reading::Refuse(reply) = read_question(&newer.to_vec().unwrap()) else { panic!() };
    let reply = Message::from_vec(&reply).unwrap();
    assert_eq!(reply.edns.unwrap().rcode_high(), 1, "BADVERS");
    // a name that points to itself
    let mut looped = bytes(|_| {});
    looped[12..14].copy_from_slice(&[0xc0, 12]);
    assert_eq!(refused(&looped), Some(ResponseCode::FormErr));
}

#[test]
fn replies_as_the_client_spelled_it_with_the_time_that_is_left() {
    let (answer, ttl, _) = believed(&reply(
        ResponseCode::NoError,
        vec![alias("a.example.", "b.example."), a("b.example.", 1, 60)],
        vec![],
    ));
    assert_eq!((ttl, answer.negative), (60, false));
    let client = asked(&query("A.eXample.", RecordType::A, Some(4_096)));
    let mut out = vec![9; 3];
    client.reply(&Outcome::Fresh(Arc::clone(&answer), Span::from_millis(41_200)), 1_232, &mut out);
    let message = Message::from_vec(&out).unwrap();
    assert_eq!((message.id, message.answers.len()), (0x1234, 2));
    assert!(message.recursion_available && !message.authoritative && !message.authentic_data);
    assert_eq!(message.queries[0].name().to_ascii(), "A.eXample.");
    assert!(message.answers.iter().all(|record| record.ttl == 42));
    assert_eq!(message.edns.as_ref().unwrap().max_payload(), UDP_MOST);
    client.reply(&Outcome::Stale(answer), 1_232, &mut out);
    let message = Message::from_vec(&out).unwrap();
    assert!(message.answers.iter().all(|record| record.ttl == 30));
    // RFC 8914: "stale answer"
    assert!(out.ends_with(&[0, 15, 0, 2, 0, 3]));
    client.reply(&Outcome::Failed, 1_232, &mut out);
    assert_eq!(Message::from_vec(&out).unwrap().response_code, ResponseCode::ServFail);
}

#[test]
fn truncates_replies_that_do_not_fit() {
    let many = (0..60).map(|n| a("a.example.", n, 60)).collect();
    let (answer, ..) = believed(&reply(ResponseCode::NoError, many, vec![]));
    let outcome = Outcome::Fresh(answer, Span::from_secs(60));
    let mut out = Vec::new();
    for (edns, most, truncated) in
        [(None, 512, true), (Some(100), 512, true), (Some(4_096), 1_232, false)]
    {
        let client = asked(&query("a.example.", RecordType::A, edns));
        assert_eq!(client.udp_most(), most);
        client.reply(&outcome, most, &mut out);
        let message = Message::from_vec(&out).unwrap();
        assert!(out.len() <= most && message.truncation == truncated);
        assert_eq!(message.answers.len(), if truncated { 0 } else { 60 });
        assert_eq!(message.edns.is_some(), edns.is_some());
    }
}

#[test]
fn another_identifier_question_or_direction_is_a_lie() {
    let fine = reply(ResponseCode::NoError, vec![a("a.example.", 1, 60)], vec![]);
    let lie = |change: fn(&mut Message)| {
        let mut message = fine.clone();
        change(&mut message);
        read(&message).map(|_| ())
    };
    assert_eq!(lie(|_| {}), Ok(()));
    assert_eq!(lie(|m| m.metadata.id = 8), Err(Lie::Id));
    assert_eq!(lie(|m| m.metadata.message_type = MessageType::Query), Err(Lie::NotAReply));
    assert_eq!(lie(|m| m.queries.clear()), Err(Lie::Question));
    assert_eq!(
        lie(|m| {
            m.queries[0].set_name(name("b.example."));
        }),
        Err(Lie::Question)
    );
    assert_eq!(
        lie(|m| {
            m.queries[0].set_query_type(RecordType::AAAA);
        }),
        Err(Lie::Question)
    );
    assert_eq!(read_answer(&question(), 7, &[7; 9]).map(|_| ()), Err(Lie::Unreadable));
    // a record whose name points to itself
    let mut looped = fine.to_vec().unwrap();
    let at = looped.len() - 16;
    looped[at..at + 2].copy_from_slice(&[0xc0, at as u8]);
    assert_eq!(read_answer(&question(), 7, &looped).map(|_| ()), Err(Lie::Unreadable));
}

#[test]
fn records_that_nobody_asked_for_are_left_out() {
    let mut message = reply(
        ResponseCode::NoError,
        vec![a("bank.example.", 66, 60), a("a.example.", 1, 60)],
        vec![Record::from_rdata(name("example."), 60, RData::NS(NS(name("evil."))))],
    );
    message.additionals = vec![a("evil.", 66, 60)];
    let (answer, _, left_out) = believed(&message);
    assert_eq!(left_out, 3);
    assert_eq!(*answer.addresses, ["192.0.2.1".parse::<std::net::IpAddr>().unwrap()]);
    // aliases that never end
    let mut turn = vec![alias("a.example.", "b.example."), alias("b.example.", "a.example.")];
    turn.push(a("c.example.", 1, 60));
    let (answer, ..) = believed(&reply(ResponseCode::NoError, turn, vec![]));
    assert!(answer.negative && answer.addresses.is_empty());
    // a referral is no answer
    let refers = vec![Record::from_rdata(name("example."), 60, RData::NS(NS(name("ns.example."))))];
    let referred = read(&reply(ResponseCode::NoError, vec![], refers));
    assert!(matches!(referred, Ok(ServerReply::Failed(_))));
}

#[test]
fn how_long_nothing_holds_the_zone_says() {
    let of = |code, authorities| believed(&reply(code, vec![], authorities));
    let (answer, ttl, _) = of(ResponseCode::NXDomain, vec![soa("example.", 30)]);
    assert_eq!((answer.negative, answer.is_without_records(), ttl), (true, false, 30));
    let (answer, ttl, _) = of(ResponseCode::NoError, vec![soa("example.", 3_000)]);
    assert_eq!(
        (answer.is_without_records(), ttl),
        (true, 900),
        "not longer than the record itself"
    );
    assert_eq!(of(ResponseCode::NXDomain, vec![]).1, 0);
    assert_eq!(of(ResponseCode::NXDomain, vec![soa("other.", 30)]).1, 0, "of another zone");
    let huge = a("a.example.", 1, u32::MAX);
    assert_eq!(believed(&reply(ResponseCode::NoError, vec![huge], vec![])).1, 0);
}

#[test]
fn names_without_ipv6_are_given_the_translators_addresses() {
    let nat64 = Nat64::new("64:ff9b::/96".parse().unwrap()).unwrap();
    let aaaa = question().of_kind(RecordType::AAAA);
    assert!(Nat64::applies(&aaaa) && !Nat64::applies(&question()));
    assert!(!Nat64::applies(&Question { dnssec: true, unchecked: true, ..aaaa.clone() }));
    let records = vec![alias("a.example.", "b.example."), a("b.example.", 33, 60)];
    let (of_v4, ..) = believed(&reply(ResponseCode::NoError, records, vec![]));
    let found = nat64.synthesize(&aaaa, &of_v4, Span::from_secs(9), |_| true).unwrap();
    assert_eq!(*found.answer.addresses, ["64:ff9b::c000:221".parse::<std::net::IpAddr>().unwrap()]);
    let nothing = believed(&reply(ResponseCode::NoError, vec![], vec![soa("example.", 30)])).0;
    assert!(
        Nat64::lacks(&nothing) && nat64.synthesize(&aaaa, &nothing, Span::MAX, |_| true).is_none()
    );
    // of several, those that are allowed; of none, nothing but the alias
    let records =
        vec![alias("a.example.", "b.example."), a("b.example.", 1, 60), a("b.example.", 2, 60)];
    let (of_v4, ..) = believed(&reply(ResponseCode::NoError, records, vec![]));
    let of = |last| nat64.synthesize(&aaaa, &of_v4, Span::MAX, move |v4| v4.octets()[3] == last);
    assert_eq!(
        *of(2).unwrap().answer.addresses,
        ["64:ff9b::c000:202".parse::<std::net::IpAddr>().unwrap()]
    );
    assert!(of(3).is_none());
    let mapped = RData::AAAA(AAAA("::ffff:192.0.2.1".parse().unwrap()));
    let mapped = Record::from_rdata(name("a.example."), 60, mapped);
    let mapped = Answer::new(&aaaa, ResponseCode::NoError, vec![mapped], vec![]).unwrap();
    assert!(Nat64::lacks(&mapped));
    assert!(!Nat64::lacks(&believed(&reply(ResponseCode::NXDomain, vec![], vec![])).0));
}

#[test]
fn some_names_are_never_asked_about() {
    let of = |text: &str, kind| special(&Question::new(name(text), kind)).map(|found| found.answer);
    let local = of("x.LocalHost.", RecordType::A).unwrap();
    assert_eq!(*local.addresses, ["127.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
    assert!(of("a.invalid.", RecordType::A).unwrap().negative);
    assert!(of("a.example.", RecordType::ANY).is_some() && of(".", RecordType::NS).is_none());
    assert!(
        of("a.example.", RecordType::A).is_none() && of("notlocalhost.", RecordType::A).is_none()
    );
}

proptest! {
    #[test]
    fn reads_any_bytes_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Reading::Question(client) = read_question(&bytes) {
            prop_assert!(client.question.message(1, Form::PLAIN).is_ok());
        }
        let _ = read_answer(&question(), 7, &bytes);
    }

    #[test]
    fn a_changed_reply_is_believed_only_within_its_question(
        text in "[a-z]{1,9}", at in 0_usize..200, byte: u8,
    ) {
        let long = Record::from_rdata(name("a.example."), 9, RData::TXT(TXT::new(vec![text])));
        let answers = vec![alias("a.example.", "b.example."), a("b.example.", 1, 60), long];
        let mut bytes = reply(ResponseCode::NoError, answers, vec![soa("example.", 30)]).to_vec().unwrap();
        let end = bytes.len();
        bytes[at % end] = byte;
        if let Ok(ServerReply::Found(found, _)) = read_answer(&question(), 7, &bytes) {
            let client = asked(&query("a.example.", RecordType::A, None));
            let mut out = Vec::new();
            client.reply(&Outcome::Fresh(found.answer, found.ttl), 512, &mut out);
            let message = Message::from_vec(&out).unwrap();
            let mut known = vec![name("a.example.")];
            for record in &message.answers {
                prop_assert!(known.contains(&record.name) || u16::from(record.record_type()) == 39);
                if let RData::CNAME(target) = &record.data {
                    known.push(target.0.clone());
                }
            }
        }
    }
}
