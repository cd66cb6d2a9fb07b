//! Streams of clients and of peers, without a server around them.

use super::stream::{CLIENT, Limits as StreamLimits, PEER, serve};
use super::*;
use crate::resources::Resources;
use crate::runtime::shared::Shared;
use crate::settings::{Allowance, ExceededAction, Limits, Settings};
use crate::transfer::budget::TransferShare;
use crate::wire::dns::{Messages, ServerReply, framed, read_answer};
use bytes::BufMut as _;
use ekiden_model::resources::quota::Direction;
use ekiden_model::units::{Bytes, Rate};
use hickory_resolver::proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::UdpSocket;

pub(super) fn config(change: impl FnOnce(&mut Settings)) -> Arc<RuntimeConfig> {
    let mut settings = Settings::default();
    change(&mut settings);
    let (resources, _admitted) = Resources::new(&settings, false);
    let shared = Shared::new(&settings, resources, None);
    Arc::new(RuntimeConfig::new(Arc::new(settings), shared, None, None).unwrap())
}

/// A question that needs no server, behind its length.
fn question(id: u16) -> Vec<u8> {
    question_for(id, "a.invalid.", RecordType::A)
}

fn question_for(id: u16, name: &str, kind: RecordType) -> Vec<u8> {
    let mut message = Message::new(id, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    framed(&message.to_vec().unwrap()).unwrap()
}

fn client(payer: Option<&str>) -> Client {
    let ip: IpAddr = [192, 0, 2, 1].into();
    Client { origin: Origin::Tcp(ip), asker: Asker::at(ip), payer: payer.map(Into::into) }
}

/// The share of that client.
fn memory(config: &RuntimeConfig) -> TransferShare {
    config.shared.transfer_of(IpAddr::from([192, 0, 2, 1]).into())
}

/// Asks for anna, so many times: how many replies there were, and the bytes of them and of their questions.
fn ask(config: &Arc<RuntimeConfig>, times: u16) -> [usize; 2] {
    ask_from(config, &client(Some("anna")), times)
}

fn ask_from(config: &Arc<RuntimeConfig>, from: &Client, times: u16) -> [usize; 2] {
    let mut out = Vec::new();
    let mut sums = [0; 2];
    for id in 0..times {
        let message = question(id)[2..].to_vec();
        if matches!(handle(config, from, &message, &mut out), Handled::Reply) {
            let lengths = 2 * from.origin.around();
            sums = [sums[0] + 1, sums[1] + lengths + message.len() + out.len()];
        }
    }
    sums
}

fn used(config: &RuntimeConfig) -> u64 {
    let all = config.shared.quotas.usage();
    all.iter().find(|usage| &*usage.account == "anna").map_or(0, |usage| usage.up + usage.down)
}

#[tokio::test]
async fn questions_and_replies_count_for_their_account_to_the_byte_of_its_quota() {
    let config = config(|settings| settings.dns.rate = 100_000);
    let quota = Allowance {
        bytes: Bytes::new(10_000),
        period: Span::from_secs(3_600),
        on_exceeded: ExceededAction::Cut,
    };
    config.shared.quotas.set("anna", Limits { quota: Some(quota), ..Limits::default() });
    let [replies, bytes] = ask(&config, 20);
    assert_eq!((replies, used(&config)), (20, bytes as u64));
    ask(&config, 500);
    assert_eq!(used(&config), 10_000);
    // a few, for nothing
    let [replies, bytes] = ask(&config, 500);
    assert!(replies <= 25 && bytes <= replies * (512 + 64), "{replies} of {bytes} bytes");
    assert_eq!(used(&config), 10_000);
    // from wherever it asks
    let replies: usize = (0..100_u8)
        .map(|host| {
            let ip = IpAddr::from([198, 51, 100, host]);
            let from =
                Client { origin: Origin::Tcp(ip), asker: Asker::at(ip), ..client(Some("anna")) };
            ask_from(&config, &from, 3)[0]
        })
        .sum();
    assert!(replies <= 25, "{replies}");
}

#[tokio::test]
async fn names_go_on_while_an_account_pays_for_what_others_left() {
    let config =
        config(|settings| settings.sharing.downlink = Some(Rate::from_bits_per_second(1_000_000)));
    let quotas = &config.shared.quotas;
    quotas.set("anna", Limits::default());
    let anna = quotas.admit_known("anna", None).unwrap();
    anna.charge_later(Direction::Down, 100_000);
    assert_eq!(ask(&config, 1)[0], 0);
    let mut replies = 0;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        replies += ask(&config, 1)[0];
    }
    assert!(replies > 0);
}

#[tokio::test]
async fn an_account_that_is_behind_its_rate_is_answered_later() {
    let config = config(|settings| settings.dns.rate = 100_000);
    let rates = [None, Some(Rate::from_bits_per_second(80_000))];
    config.shared.quotas.set("anna", Limits { rates, ..Limits::default() });
    let ip: IpAddr = [192, 0, 2, 1].into();
    let from = Client { origin: Origin::Udp(ip), ..client(Some("anna")) };
    let [replies, bytes] = ask_from(&config, &from, 4_000);
    // 16 KiB at once, and a second of the rate; more where the machine is slow
    assert!((45_000..105_000).contains(&bytes) && replies < 2_000, "{replies} of {bytes} bytes");
    assert!(config.shared.dns.counts.limited.load(Relaxed) > 1_000);
}

/// The codes of the replies to so many questions, which a client sends at once on a stream.
async fn codes_of_stream(
    config: &Arc<RuntimeConfig>,
    from: Client,
    limits: StreamLimits,
    questions: u16,
) -> Vec<ResponseCode> {
    let (mut ours, theirs) = duplex(1 << 16);
    let (config, memory) = (Arc::clone(config), memory(config));
    let admit = move || Some(from.clone());
    let serving = tokio::spawn(serve(move || Arc::clone(&config), admit, memory, limits, theirs));
    for id in 0..questions {
        ours.write_all(&question(id)).await.unwrap();
    }
    let codes = codes_of(ours).await;
    serving.await.unwrap();
    codes
}

/// The codes of all replies; nothing more is asked.
async fn codes_of(mut ours: DuplexStream) -> Vec<ResponseCode> {
    ours.shutdown().await.unwrap();
    let (mut bytes, mut received) = (Vec::new(), Messages::default());
    ours.read_to_end(&mut bytes).await.unwrap();
    let mut codes = Vec::new();
    for bytes in bytes.chunks(1_000) {
        received.room().put_slice(bytes);
        while let Some(reply) = received.take().unwrap() {
            codes.push(Message::from_vec(&reply).unwrap().response_code);
        }
    }
    codes
}

#[tokio::test]
async fn questions_on_a_stream_wait_for_the_rate_and_all_are_answered() {
    let config = config(|settings| settings.dns.rate = 100_000);
    let rates = [None, Some(Rate::from_bits_per_second(80_000))];
    config.shared.quotas.set("anna", Limits { rates, ..Limits::default() });
    let codes = codes_of_stream(&config, client(Some("anna")), PEER, 1_200).await;
    assert_eq!(codes, [ResponseCode::NXDomain; 1_200], "of its account");
    let config = self::config(|settings| settings.dns.rate = 10);
    let codes = codes_of_stream(&config, client(None), PEER, 25).await;
    assert_eq!(codes, [ResponseCode::NXDomain; 25], "of its address");
    let counts = &config.shared.dns.counts;
    assert_eq!((counts.tcp.load(Relaxed), counts.limited.load(Relaxed)), (25, 0), "once each");
}

#[tokio::test]
async fn a_stream_that_no_rate_lets_go_on_ends_with_what_was_answered() {
    let config = config(|settings| settings.dns.rate = 100_000);
    let rates = [None, Some(Rate::from_bits_per_second(8))];
    config.shared.quotas.set("anna", Limits { rates, ..Limits::default() });
    let limits = StreamLimits { idle: Duration::from_millis(300), ..PEER };
    let codes = codes_of_stream(&config, client(Some("anna")), limits, 1_200).await;
    // of 16 KiB
    assert!((300..1_200).contains(&codes.len()), "{}", codes.len());
    assert_eq!(config.shared.dns.counts.limited.load(Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_once_its_client_may_not_ask_any_more_or_is_another() {
    let from = vec!["192.0.2.0/24".parse().unwrap()];
    let rule = Rule { from, allow: true, ..Rule::default() };
    let named = config(|settings| settings.access.rules = vec![rule]);
    let origin = Origin::Tcp([192, 0, 2, 1].into());
    let before = Client::admit(&named, origin).unwrap();
    let after = [
        // the rule was taken away
        Client::admit(&config(|_| {}), origin),
        Some(Client { asker: Asker::Account(7), ..before.clone() }),
        Some(Client { payer: Some("anna".into()), ..before.clone() }),
    ];
    for after in after {
        let (mut ours, theirs) = duplex(1 << 16);
        let current = Arc::new(Mutex::new(Some(before.clone())));
        let (in_effect, seen) = (Arc::clone(&named), Arc::clone(&current));
        let in_effect = move || Arc::clone(&in_effect);
        let admit = move || locked(&seen).clone();
        tokio::spawn(serve(in_effect, admit, memory(&named), CLIENT, theirs));
        for id in 0..3 {
            ours.write_all(&question(id)).await.unwrap();
            let bytes = ours.read_u16().await.unwrap();
            ours.read_exact(&mut vec![0; bytes.into()]).await.unwrap();
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        *locked(&current) = after;
        ours.write_all(&question(3)).await.unwrap();
        let mut rest = Vec::new();
        ours.read_to_end(&mut rest).await.unwrap();
        assert!(rest.is_empty(), "it was answered");
    }
    assert_eq!(named.shared.dns.counts.refused.load(Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn replies_on_their_way_reach_a_client_that_may_not_ask_any_more() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let server = silent.local_addr().unwrap();
    let config = config(|settings| settings.dns.servers = vec![server.into()]);
    let (mut ours, theirs) = duplex(1 << 16);
    let current = Arc::new(Mutex::new(Some(client(None))));
    let (in_effect, seen, memory) = (Arc::clone(&config), Arc::clone(&current), memory(&config));
    let in_effect = move || Arc::clone(&in_effect);
    let admit = move || locked(&seen).clone();
    tokio::spawn(serve(in_effect, admit, memory, CLIENT, theirs));
    for id in 0..2 {
        let asked = question_for(id, &format!("n{id}.example."), RecordType::A);
        ours.write_all(&asked).await.unwrap();
    }
    while locked(&config.shared.dns.answers).snapshot().asking < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    *locked(&current) = None;
    // the first reply does not end the stream
    assert_eq!(codes_of(ours).await, [ResponseCode::ServFail; 2]);
    assert_eq!(config.shared.dns.counts.refused.load(Relaxed), 0);
}

#[tokio::test]
async fn bytes_of_a_message_do_not_keep_a_stream_open() {
    let config = config(|_| {});
    let limits = StreamLimits { idle: Duration::from_millis(300), ..PEER };
    let (mut ours, theirs) = duplex(64);
    let memory = memory(&config);
    let config = move || Arc::clone(&config);
    let serving = tokio::spawn(serve(config, || Some(client(None)), memory, limits, theirs));
    ours.write_all(&question(1)).await.unwrap();
    let mut sent = 0;
    while !serving.is_finished() && sent < 200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        // nothing of it is a whole message
        let _ = ours.write_all(&[9]).await;
        sent += 1;
    }
    assert!((3..200).contains(&sent), "{sent}");
}

/// Else a stream of zeros would cost nothing of the rate, and never wait.
#[tokio::test]
async fn a_message_without_a_header_ends_a_stream() {
    let config = config(|_| {});
    let (mut ours, theirs) = duplex(1 << 16);
    ours.write_all(&question(1)).await.unwrap();
    ours.write_all(&[0; 2]).await.unwrap();
    let memory = memory(&config);
    serve(move || Arc::clone(&config), || Some(client(None)), memory, PEER, theirs).await;
    let mut received = Vec::new();
    ours.read_to_end(&mut received).await.unwrap();
    assert!(received.len() > 12, "the question before is answered");
}

/// Else whoever has a quota could upload without end.
#[tokio::test]
async fn bytes_on_a_stream_count_that_are_no_question() {
    let config = config(|_| {});
    config.shared.quotas.set("anna", Limits::default());
    // a part of a message, and one without a header
    for rest in [&[2_u8, 0, 7, 7, 7][..], &[0, 1, 7]] {
        let before = used(&config);
        let (mut ours, theirs) = duplex(1 << 16);
        let sent = [&question(1)[..], rest].concat();
        ours.write_all(&sent).await.unwrap();
        ours.shutdown().await.unwrap();
        let (in_effect, memory) = (Arc::clone(&config), memory(&config));
        let in_effect = move || Arc::clone(&in_effect);
        serve(in_effect, || Some(client(Some("anna"))), memory, CLIENT, theirs).await;
        let mut replies = Vec::new();
        ours.read_to_end(&mut replies).await.unwrap();
        assert!(replies.len() > 12, "the question before is answered");
        assert_eq!(used(&config) - before, (sent.len() + replies.len()) as u64);
    }
}

#[tokio::test]
async fn a_peer_has_a_rate_and_its_stream_goes_on() {
    let config = config(|settings| settings.dns.rate = 1);
    for peer in ["ship", "barge"] {
        let codes = codes_of_stream(&config, Client::peer(peer), PEER, 200).await;
        let known = codes.iter().filter(|code| **code == ResponseCode::NXDomain).count();
        let failed = codes.iter().filter(|code| **code == ResponseCode::ServFail).count();
        // 16 a second, twice that at once
        assert!((32..150).contains(&known) && known + failed == 200, "{known} and {failed}");
    }
    assert!(config.shared.dns.counts.limited.load(Relaxed) > 100);
}

#[tokio::test]
async fn long_replies_to_unproven_addresses_have_a_bound_for_all_of_them() {
    let config = config(|_| {});
    let mut asked =
        Message::from_vec(&question_for(1, "a.example.", RecordType::TXT)[2..]).unwrap();
    let mut edns = Edns::new();
    edns.set_max_payload(1_232);
    asked.set_edns(edns);
    let asked = asked.to_vec().unwrap();
    let read = || match read_question(&asked) {
        Reading::Question(question) => question,
        other => panic!("{other:?}"),
    };
    let client_question = read();
    let question = &client_question.question;
    let mut found = Message::response(7, OpCode::Query);
    found.add_query(Query::query(question.name.clone(), question.kind));
    let data = RData::TXT(TXT::new(vec!["x".repeat(200); 5]));
    found.add_answer(Record::from_rdata(question.name.clone(), 60, data));
    let found = read_answer(question, 7, &found.to_vec().unwrap());
    let Ok(ServerReply::Found(found, _)) = found else { panic!("{found:?}") };
    let outcome = Outcome::Fresh(found.answer, Span::from_secs(60));
    let bytes = |origin, proven| {
        let (mut out, to) = (Vec::new(), Client { origin, ..client(None) });
        let asked = Asked { question: read(), proven, spent: false };
        reply(&config, &to, &asked, &outcome, &mut out);
        out.len()
    };
    // as if a whole network asked
    let address = |nth: usize| IpAddr::from([192, 0, 2, nth as u8]);
    let mut long = (0..100_000).map(|nth| bytes(Origin::Udp(address(nth)), false));
    let sent: usize = long.by_ref().take_while(|bytes| *bytes > LEAST_MOST).sum();
    assert!(long.next().is_some(), "no reply was cut");
    assert!(sent > 990_000, "{sent} bytes before the first that was cut");
    let counts = &config.shared.dns.counts;
    assert!(counts.truncated.load(Relaxed) > 0, "its client is told to come over TCP");
    // who has shown its address does not share it
    assert!(bytes(Origin::Udp(address(1)), true) > LEAST_MOST);
    assert!(bytes(Origin::Tcp(address(1)), true) > LEAST_MOST);
}

/// A server that answers once it was asked for so many names: with text of 3,000 bytes, or an address.
async fn server_of_long_answers(names: usize) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let at = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut asked, mut open, mut buffer) = (BTreeMap::new(), false, [0; 1_500]);
        while let Ok((n, from)) = socket.recv_from(&mut buffer).await {
            let query = Message::from_vec(&buffer[..n]).unwrap();
            asked.insert(query.queries[0].name().to_lowercase().to_ascii(), (query, from));
            open |= asked.len() == names;
            if !open {
                continue;
            }
            for (query, from) in std::mem::take(&mut asked).into_values() {
                let mut reply = Message::response(query.id, OpCode::Query);
                reply.add_query(query.queries[0].clone());
                let data = match query.queries[0].query_type() {
                    RecordType::TXT => RData::TXT(TXT::new(vec!["x".repeat(200); 15])),
                    _ => RData::A(A::new(192, 0, 2, 7)),
                };
                let name = query.queries[0].name().clone();
                reply.add_answer(Record::from_rdata(name, 60, data));
                socket.send_to(&reply.to_vec().unwrap(), from).await.unwrap();
            }
        }
    });
    at
}

#[tokio::test]
async fn answers_that_wait_for_a_slow_reader_have_a_share_of_memory() {
    const NAMES: u16 = 40;
    let server = server_of_long_answers(NAMES.into()).await;
    let config = config(|settings| {
        settings.dns.servers = vec![server.into()];
        settings.budgets.memory = Bytes::kib(64);
    });
    // it does not hold the first reply
    let (mut ours, theirs) = duplex(2_048);
    let (in_effect, memory) = (Arc::clone(&config), memory(&config));
    let in_effect = move || Arc::clone(&in_effect);
    let serving = tokio::spawn(serve(in_effect, || Some(client(None)), memory, CLIENT, theirs));
    for id in 0..NAMES {
        let asked = question_for(id, &format!("n{id}.example."), RecordType::TXT);
        ours.write_all(&asked).await.unwrap();
    }
    let seen = || {
        let seen = locked(&config.shared.dns.answers).snapshot();
        (seen.asked, seen.waiting)
    };
    while seen() != (NAMES.into(), 0) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // each of those that waited has its turn
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    let used = config.shared.transfer.status()[1].used;
    assert!((16 << 10..=32 << 10).contains(&used), "{used} bytes of the share, which is half");
    let codes = codes_of(ours).await;
    serving.await.unwrap();
    let count = |code: ResponseCode| codes.iter().filter(|one| **one == code).count();
    let (answered, failed) = (count(ResponseCode::NoError), count(ResponseCode::ServFail));
    assert_eq!((answered + failed, codes.len()), (NAMES.into(), NAMES.into()));
    assert!((5..=15).contains(&answered), "{answered} answers of 3 KiB");
    assert_eq!(config.shared.transfer.status()[1].used, 0);
}

#[tokio::test]
async fn short_answers_and_one_that_waits_need_no_memory() {
    let server = server_of_long_answers(2).await;
    let config = config(|settings| settings.dns.servers = vec![server.into()]);
    let transfer = &config.shared.transfer;
    let all = transfer.unshared().reserve(Bytes::mib(64).as_usize());
    assert!(all.is_some() && memory(&config).reserve(1).is_none());
    let (mut ours, theirs) = duplex(1 << 16);
    let (in_effect, memory) = (Arc::clone(&config), memory(&config));
    let in_effect = move || Arc::clone(&in_effect);
    let serving = tokio::spawn(serve(in_effect, || Some(client(None)), memory, PEER, theirs));
    ours.write_all(&question_for(1, "long.example.", RecordType::TXT)).await.unwrap();
    ours.write_all(&question_for(2, "short.example.", RecordType::A)).await.unwrap();
    let codes = codes_of(ours).await;
    serving.await.unwrap();
    assert_eq!(codes, [ResponseCode::NoError; 2]);
}
