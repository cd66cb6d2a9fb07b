//! Names for clients: kept, served past their end, asked for once, over UDP, TCP and TLS; servers that lie or are gone.

mod amplification;
mod beliefs;
mod https;
mod openings;
mod own;
mod server;
mod shares;

use crate::harness::*;
use ekiden_model::units::Span;
use ekiden_proxy::observe::status::DnsStatus;
use ekiden_proxy::settings::{Dns, DnsServer};
use ekiden_testkit::Authority;
use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, PTR, TXT};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use server::*;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A relay that answers for names, and where.
fn relay(server: DnsServer, change: impl FnOnce(&mut Dns)) -> (Relay, SocketAddr) {
    let mut settings = settings();
    let at = free_port();
    settings.dns.listen = vec![at];
    settings.dns.servers = vec![server];
    change(&mut settings.dns);
    (Relay::start(settings), at)
}

fn dns(relay: &Relay) -> DnsStatus {
    relay.status().dns.unwrap()
}

fn code(reply: &Message) -> ResponseCode {
    reply.response_code
}

#[test]
fn an_answer_is_asked_for_once_and_kept() {
    let server = Server::start(|query, _| addresses(query, &["192.0.2.7", "2001:db8::7"], 300));
    let (relay, at) = relay(server.at.into(), |_| {});
    let first = ask(at, "a.example.", RecordType::A);
    assert_eq!((code(&first), found(&first)), (ResponseCode::NoError, vec!["192.0.2.7".into()]));
    assert!(first.recursion_available && !first.authoritative);
    assert!((1..=300).contains(&first.answers[0].ttl));
    let again = ask(at, "A.EXAMPLE.", RecordType::A);
    assert_eq!((found(&again), server.asked()), (found(&first), 1));
    assert_eq!(found(&ask(at, "a.example.", RecordType::AAAA)), ["2001:db8::7"]);
    // without EDNS there is none in the reply
    let plain = query("a.example.", RecordType::A, None);
    assert!(ask_within(at, &plain, Duration::from_secs(60)).unwrap().edns.is_none());
    // this relay's own question
    let seen = server.seen.lock().unwrap()[0].clone();
    assert!(seen.recursion_desired && seen.edns.is_some());
    let seen = dns(&relay);
    assert_eq!((seen.questions_udp, seen.asked, seen.cached), (4, 2, 2));
    assert_eq!((seen.servers[0].answered, seen.servers[0].available), (2, true));
}

#[test]
fn many_questions_come_on_one_stream_and_long_answers_fit_there() {
    let server = Server::start(|query, stream| {
        let text = vec!["x".repeat(200)];
        let data = (0..20).map(|_| RData::TXT(TXT::new(text.clone()))).collect();
        let mut reply = reply(query, ResponseCode::NoError, data, 60);
        if !stream {
            reply = reply.truncate();
        }
        vec![reply.to_vec().unwrap()]
    });
    let (relay, at) = relay(server.at.into(), |_| {});
    let short = ask(at, "long.example.", RecordType::TXT);
    assert!(short.truncation && short.answers.is_empty());
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let asked: Vec<Message> =
        (0..40).map(|n| query(&format!("n{n}.example."), RecordType::TXT, None)).collect();
    for message in &asked {
        write_message(&mut stream, &message.to_vec().unwrap());
    }
    let mut ids: Vec<u16> = (0..40)
        .map(|_| {
            let reply = Message::from_vec(&read_message(&mut stream).unwrap()).unwrap();
            assert_eq!((reply.answers.len(), reply.truncation), (20, false));
            reply.id
        })
        .collect();
    ids.sort_unstable();
    let mut expected: Vec<u16> = asked.iter().map(|message| message.id).collect();
    expected.sort_unstable();
    assert_eq!(ids, expected);
    let seen = dns(&relay);
    assert_eq!((seen.questions_tcp, seen.truncated), (40, 1));
}

#[test]
fn answers_past_their_end_are_served_while_the_server_is_gone() {
    let server = Server::start(|query, _| addresses(query, &["192.0.2.7"], 1));
    let (relay, at) = relay(server.at.into(), |_| {});
    assert_eq!(found(&ask(at, "a.example.", RecordType::A)), ["192.0.2.7"]);
    server.fall_silent();
    wait_for("the end of the answer", || {
        let reply = ask(at, "a.example.", RecordType::A);
        assert_eq!(found(&reply), ["192.0.2.7"], "never nothing");
        dns(&relay).stale > 0
    });
    let stale = ask(at, "a.example.", RecordType::A);
    assert_eq!((found(&stale), stale.answers[0].ttl), (vec!["192.0.2.7".into()], 30));
    // what is not known fails
    let unknown = ask(at, "b.example.", RecordType::A);
    assert_eq!(code(&unknown), ResponseCode::ServFail);
    let seen = dns(&relay);
    assert!(!seen.servers[0].available && seen.servers[0].last_error.is_some(), "{seen:?}");
    // and comes again by itself
    server.speak_again();
    wait_for("a fresh answer", || ask(at, "a.example.", RecordType::A).answers[0].ttl <= 1);
}

#[test]
fn lies_are_dropped_and_counted() {
    let server = Server::start(|query, _| {
        let fine = reply(query, ResponseCode::NoError, vec![RData::A(A::new(192, 0, 2, 7))], 60);
        let mut other_id = fine.clone();
        other_id.metadata.id = fine.id.wrapping_add(1);
        let mut other_name = fine.clone();
        other_name.queries[0].set_name(name("bank.example."));
        let mut more = fine;
        let evil = RData::A(A::new(192, 0, 2, 66));
        more.add_answer(Record::from_rdata(name("bank.example."), 60, evil.clone()));
        more.add_additional(Record::from_rdata(name("bank.example."), 60, evil));
        let replies = [other_id, other_name, more].map(|reply| reply.to_vec().unwrap());
        [vec![vec![7; 40]], replies.to_vec()].concat()
    });
    let (relay, at) = relay(server.at.into(), |_| {});
    assert_eq!(found(&ask(at, "a.example.", RecordType::A)), ["192.0.2.7"]);
    let seen = dns(&relay);
    assert_eq!((seen.lies, seen.left_out), (3, 2));
}

#[test]
fn a_server_that_cannot_is_passed_over() {
    let broken = Server::start(|query, _| {
        vec![reply(query, ResponseCode::ServFail, vec![], 0).to_vec().unwrap()]
    });
    let fine = Server::start(|query, _| addresses(query, &["192.0.2.7"], 60));
    let closed = free_port();
    let (relay, at) = relay(closed.into(), |dns| {
        dns.servers.push(broken.at.into());
        dns.servers.push(fine.at.into());
    });
    assert_eq!(found(&ask(at, "a.example.", RecordType::A)), ["192.0.2.7"]);
    assert_eq!(found(&ask(at, "b.example.", RecordType::A)), ["192.0.2.7"]);
    let seen = dns(&relay).servers;
    assert!(!seen[0].available && seen[1].available && seen[2].answered == 2, "{seen:?}");
}

#[test]
fn a_client_has_its_rate_and_no_more() {
    let server = Server::start(|query, _| addresses(query, &["192.0.2.7"], 60));
    let (relay, at) = relay(server.at.into(), |dns| dns.rate = 5);
    ask(at, "a.example.", RecordType::A);
    let socket = UdpSocket::bind(loopback(0)).unwrap();
    let message = query("a.example.", RecordType::A, None).to_vec().unwrap();
    wait_for("questions above the rate", || {
        for _ in 0..20 {
            socket.send_to(&message, at).unwrap();
        }
        dns(&relay).limited > 0
    });
}

/// TLS of a server for `dns.example`, and the file with its authority.
fn tls_of(folder: &Path) -> (Arc<rustls::ServerConfig>, PathBuf) {
    let authority = Authority::new(folder, "ca");
    let made = authority.certify(folder, "dns.example", [2020, 2090]);
    let chain = CertificateDer::pem_file_iter(&made.certificate).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(&made.key).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    (Arc::new(config), authority.file)
}

#[test]
fn names_are_asked_for_within_tls_on_one_stream() {
    let server = Server::start(|query, _| addresses(query, &["192.0.2.7"], 60));
    let folder = tempfile::tempdir().unwrap();
    let (config, file) = tls_of(folder.path());
    let secure = server.within_tls(config);
    let tls = |name: &str| DnsServer::Tls { at: secure, name: Some(name.to_owned()) };
    let (relay, at) = relay(tls("dns.example"), |dns| dns.authorities = Some(file.clone()));
    for name in ["a.example.", "b.example.", "c.example."] {
        assert_eq!(found(&ask(at, name, RecordType::A)), ["192.0.2.7"]);
    }
    assert_eq!((server.asked(), server.streams.load(Relaxed)), (3, 1));
    drop(relay);
    // a certificate for another name
    let (other, at) = self::relay(tls("other.example"), |dns| {
        dns.authorities = Some(file);
    });
    assert_eq!(code(&ask(at, "d.example.", RecordType::A)), ResponseCode::ServFail);
    let error = dns(&other).servers[0].last_error.clone().unwrap();
    assert!(error.contains("certificate") && server.asked() == 3, "{error}");
}

#[test]
fn names_without_ipv6_get_the_translators_addresses() {
    let server = Server::start(|query, _| {
        match query.queries[0].name().to_lowercase().to_ascii().as_str() {
            "six.example." => addresses(query, &["192.0.2.7", "2001:db8::7"], 60),
            "four.example." => addresses(query, &["9.9.9.9"], 60),
            "inside.example." => addresses(query, &["10.0.0.5"], 60),
            "both.example." => addresses(query, &["169.254.169.254", "9.9.9.9"], 60),
            _ => vec![reply(query, ResponseCode::NXDomain, vec![], 0).to_vec().unwrap()],
        }
    });
    let nat64 = Some("64:ff9b::/96".parse().unwrap());
    let (relay, at) = relay(server.at.into(), |dns| dns.nat64 = nat64);
    for _ in 0..2 {
        let of = |text| ask(at, text, RecordType::AAAA);
        assert_eq!(found(&of("six.example.")), ["2001:db8::7"]);
        assert_eq!(found(&of("four.example.")), ["64:ff9b::909:909"]);
        assert_eq!(code(&of("none.example.")), ResponseCode::NXDomain);
        // what no client may reach has no address there (RFC 6052 §3.1)
        let inside = of("inside.example.");
        assert_eq!((code(&inside), inside.answers.len()), (ResponseCode::NoError, 0));
        assert_eq!(found(&of("both.example.")), ["64:ff9b::909:909"]);
    }
    assert_eq!(
        (dns(&relay).synthesized, found(&ask(at, "four.example.", RecordType::A)).len()),
        (4, 1)
    );
}

#[test]
fn names_of_the_translators_addresses_are_those_of_ipv4() {
    let server = Server::start(|query, _| {
        let data = match query.queries[0].name().to_lowercase().to_ascii().as_str() {
            "7.2.0.192.in-addr.arpa." => vec![RData::PTR(PTR(name("host.example.")))],
            _ => vec![],
        };
        let code = if data.is_empty() { ResponseCode::NXDomain } else { ResponseCode::NoError };
        vec![reply(query, code, data, 60).to_vec().unwrap()]
    });
    let nat64 = Some("64:ff9b::/96".parse().unwrap());
    let (relay, at) = relay(server.at.into(), |dns| dns.nat64 = nat64);
    let of = |address: &str| {
        let address: Ipv6Addr = address.parse().unwrap();
        ask(at, &Name::from(address).to_ascii(), RecordType::PTR)
    };
    let named = of("64:ff9b::192.0.2.7");
    let records: Vec<String> = named.answers.iter().map(|one| one.data.to_string()).collect();
    assert_eq!(records, ["7.2.0.192.in-addr.arpa.", "host.example."]);
    assert_eq!((named.answers[0].record_type(), named.answers[0].ttl), (RecordType::CNAME, 60));
    // no name, and no such prefix
    assert_eq!(code(&of("64:ff9b::192.0.2.8")), ResponseCode::NXDomain);
    assert_eq!(code(&of("2001:db8::7")), ResponseCode::NXDomain);
    assert_eq!((dns(&relay).synthesized, server.asked()), (1, 4));
}

#[test]
fn a_popular_answer_is_renewed_before_its_end_and_reloads_keep_all() {
    let server = Server::start(|query, _| addresses(query, &["192.0.2.7"], 2));
    let (relay, at) = relay(server.at.into(), |_| {});
    wait_for("a question before the end", || {
        ask(at, "a.example.", RecordType::A);
        std::thread::sleep(Duration::from_millis(10));
        dns(&relay).prefetched > 0
    });
    let mut changed = settings();
    changed.listen = vec![relay.address];
    changed.dns.servers = vec![server.at.into()];
    let moved = free_port();
    changed.dns.listen = vec![moved];
    changed.dns.max_ttl = Span::from_secs(60);
    let before = dns(&relay).questions_udp;
    relay.reload(changed).unwrap();
    assert_eq!(found(&ask(moved, "a.example.", RecordType::A)), ["192.0.2.7"]);
    assert!(dns(&relay).questions_udp > before);
    let gone = query("a.example.", RecordType::A, None);
    assert!(ask_within(at, &gone, Duration::from_millis(200)).is_none());
}

#[test]
fn a_port_that_is_taken_is_tried_again_at_the_start_and_after_a_reload() {
    let server = Server::start(|query, _| addresses(query, &["192.0.2.7"], 60));
    // where no other test takes a port that is free for a moment
    let taken = |last| UdpSocket::bind((Ipv4Addr::new(127, 0, 7, last), 0)).unwrap();
    let (first, second) = (taken(1), taken(2));
    let [at, moved] = [&first, &second].map(|socket| socket.local_addr().unwrap());
    let mut settings = settings();
    (settings.dns.listen, settings.dns.servers) = (vec![at], vec![server.at.into()]);
    let relay = Relay::start(settings.clone());
    let is_answered = |free: UdpSocket, at| {
        let status = dns(&relay);
        assert_eq!((status.listen.len(), status.unavailable[0].address), (0, at));
        assert!(!status.unavailable[0].error.is_empty());
        drop(free);
        wait_for("the port", || dns(&relay).unavailable.is_empty());
        assert_eq!(dns(&relay).listen, [at]);
        assert_eq!(found(&ask(at, "a.example.", RecordType::A)), ["192.0.2.7"]);
    };
    is_answered(first, at);
    (settings.listen, settings.dns.listen) = (vec![relay.address], vec![moved]);
    relay.reload(settings).unwrap();
    is_answered(second, moved);
}
