//! Which replies of a server over UDP are believed: the case of the question, cookies, EDNS; and cookies for clients.

use super::server::*;
use super::{code, dns, relay};
use crate::harness::{loopback, wait_for};
use ekiden_model::dns::{Cookie, ServerCookie};
use hickory_resolver::proto::op::{Edns, Message, ResponseCode};
use hickory_resolver::proto::rr::RecordType;
use hickory_resolver::proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// With letters enough that no draw gives lower case alone.
const LONG: &str = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz.example.";
const EVIL: &[&str] = &["192.0.2.66"];
const TRUE: &[&str] = &["192.0.2.7"];

/// The reply of a server that spells all names in lower case.
fn folded(query: &Message, list: &[&str]) -> Vec<u8> {
    let mut query = query.clone();
    let lower = query.queries[0].name().to_lowercase();
    query.queries[0].set_name(lower);
    addresses(&query, list, 60).remove(0)
}

fn cookie_of(message: &Message) -> Option<Cookie> {
    match message.edns.as_ref()?.option(EdnsCode::Cookie)? {
        EdnsOption::Unknown(_, bytes) => Cookie::read(bytes),
        _ => None,
    }
}

fn with_cookie(message: &mut Message, cookie: &[u8]) {
    let mut edns = Edns::new();
    edns.set_max_payload(1_232);
    edns.options_mut().insert(EdnsOption::Unknown(10, cookie.to_vec()));
    message.set_edns(edns);
}

/// A reply with a cookie.
fn answer(query: &Message, list: &[&str], cookie: Cookie, code: ResponseCode) -> Vec<u8> {
    let mut reply = Message::from_vec(&addresses(query, list, 60)[0]).unwrap();
    with_cookie(&mut reply, &cookie.to_vec());
    reply.metadata.response_code = code;
    reply.to_vec().unwrap()
}

#[test]
fn servers_see_a_case_of_their_own_and_clients_theirs() {
    let server = Server::start(|query, _| addresses(query, TRUE, 60));
    let (relay, at) = relay(server.at.into(), |_| {});
    let upper = LONG.to_ascii_uppercase();
    for spelled in [LONG, &upper] {
        let reply = ask(at, spelled, RecordType::A);
        assert_eq!(found(&reply), TRUE);
        assert_eq!(reply.answers[0].name.to_ascii(), spelled);
        assert_eq!(reply.queries[0].name().to_ascii(), spelled);
    }
    let seen = server.seen.lock().unwrap()[0].queries[0].name().to_ascii();
    assert!(seen != LONG && seen != upper && seen.eq_ignore_ascii_case(LONG), "{seen}");
    assert_eq!((server.asked(), dns(&relay).lies), (1, 0));
}

#[test]
fn a_forged_reply_in_another_case_is_not_believed() {
    // identifier, address and port are right
    let server = Server::start(|query, stream| {
        let fine = addresses(query, TRUE, 60);
        if stream { fine } else { [vec![folded(query, EVIL)], fine].concat() }
    });
    let (relay, at) = relay(server.at.into(), |_| {});
    assert_eq!(found(&ask(at, LONG, RecordType::A)), TRUE);
    let seen = dns(&relay);
    assert_eq!((seen.lies, server.streams.load(Relaxed)), (1, 1));
    assert!(!seen.servers[0].changes_case, "one is not enough");
}

#[test]
fn a_server_that_changes_case_is_asked_over_tcp_and_the_status_says_so() {
    let server =
        Server::start(
            |query, stream| {
                if stream { addresses(query, TRUE, 60) } else { vec![folded(query, EVIL)] }
            },
        );
    let (relay, at) = relay(server.at.into(), |_| {});
    for n in 0..4 {
        assert!(!dns(&relay).servers[0].changes_case);
        assert_eq!(found(&ask(at, &format!("n{n}.{LONG}"), RecordType::A)), TRUE);
    }
    let seen = dns(&relay);
    assert_eq!((seen.lies, server.asked(), seen.servers[0].changes_case), (4, 8, true));
    // no datagram any more, and one stream for all
    assert_eq!(found(&ask(at, LONG, RecordType::A)), TRUE);
    assert_eq!((dns(&relay).lies, server.asked(), server.streams.load(Relaxed)), (4, 9, 1));
}

#[test]
fn a_cookie_of_the_server_is_shown_to_it_and_proves_its_replies() {
    let own = ServerCookie::new(b"of the server").unwrap();
    let server = Server::start(move |query, _| {
        let asked = cookie_of(query).unwrap();
        let fine = Cookie { server: Some(own), ..asked };
        if asked.server != Some(own) {
            return vec![answer(query, &[], fine, ResponseCode::BADCOOKIE)];
        }
        let forged = Cookie { client: [7; 8], ..fine };
        [forged, fine]
            .map(|one| {
                let list = if one == fine { TRUE } else { EVIL };
                answer(query, list, one, ResponseCode::NoError)
            })
            .to_vec()
    });
    let (relay, at) = relay(server.at.into(), |_| {});
    assert_eq!(found(&ask(at, "a.example.", RecordType::A)), TRUE);
    assert_eq!((server.asked(), dns(&relay).lies), (2, 1));
    assert_eq!(found(&ask(at, "b.example.", RecordType::A)), TRUE);
    let seen = dns(&relay);
    assert_eq!((server.asked(), seen.lies, server.streams.load(Relaxed)), (3, 2, 0));
    assert!(seen.servers[0].cookies);
}

#[test]
fn a_reply_without_the_cookie_that_is_due_is_not_believed() {
    let server = Server::start(|query, stream| {
        let asked = cookie_of(query);
        let server = ServerCookie::new(&[9; 16]);
        match asked {
            Some(asked) if asked.server.is_none() => {
                vec![answer(query, TRUE, Cookie { server, ..asked }, ResponseCode::NoError)]
            }
            _ if stream => addresses(query, TRUE, 60),
            _ => addresses(query, EVIL, 60),
        }
    });
    let (relay, at) = relay(server.at.into(), |_| {});
    for name in ["a.example.", "b.example."] {
        assert_eq!(found(&ask(at, name, RecordType::A)), TRUE);
    }
    assert_eq!((dns(&relay).lies, server.streams.load(Relaxed)), (1, 1));
}

#[test]
fn a_server_that_refuses_cookies_twice_is_asked_over_tcp() {
    let server = Server::start(|query, stream| match cookie_of(query) {
        Some(asked) if !stream => {
            let server = ServerCookie::new(&[9; 16]);
            vec![answer(query, EVIL, Cookie { server, ..asked }, ResponseCode::BADCOOKIE)]
        }
        _ => addresses(query, TRUE, 60),
    });
    let (relay, at) = relay(server.at.into(), |_| {});
    assert_eq!(found(&ask(at, "a.example.", RecordType::A)), TRUE);
    assert_eq!((server.asked(), dns(&relay).lies, server.streams.load(Relaxed)), (3, 0, 1));
}

#[test]
fn a_server_without_edns_is_asked_without() {
    let server = Server::start(|query, _| {
        if query.edns.is_none() {
            return addresses(query, TRUE, 60);
        }
        // a header alone, as old ones send
        let mut refusal = reply(query, ResponseCode::FormErr, vec![], 0);
        refusal.queries.clear();
        vec![refusal.to_vec().unwrap()]
    });
    let (relay, at) = relay(server.at.into(), |_| {});
    assert_eq!(found(&ask(at, "a.example.", RecordType::A)), TRUE);
    assert_eq!(server.asked(), 2);
    assert_eq!(found(&ask(at, "b.example.", RecordType::A)), TRUE);
    let seen = dns(&relay);
    assert_eq!((server.asked(), seen.lies, seen.servers[0].lacks_edns), (3, 0, true));
}

/// A client's question with a cookie, and the reply to it.
fn ask_with(at: SocketAddr, cookie: &[u8]) -> Option<Message> {
    let mut message = query("a.example.", RecordType::A, None);
    with_cookie(&mut message, cookie);
    ask_within(at, &message, Duration::from_secs(1))
}

#[test]
fn clients_are_given_cookies_and_keep_their_rate_by_them() {
    let server = Server::start(|query, _| addresses(query, TRUE, 60));
    let (relay, at) = relay(server.at.into(), |dns| dns.rate = 1);
    let first = ask_with(at, b"a client").unwrap();
    let given = cookie_of(&first).unwrap();
    assert_eq!((&given.client, given.server.unwrap().as_bytes().len()), (b"a client", 16));
    assert_eq!((found(&first), dns(&relay).proven), (vec![TRUE[0].to_owned()], 0));
    // somebody asks in its name, above its rate
    let socket = UdpSocket::bind(loopback(0)).unwrap();
    let forged = query("a.example.", RecordType::A, None).to_vec().unwrap();
    wait_for("forged questions above the rate", || {
        socket.send_to(&forged, at).unwrap();
        dns(&relay).limited > 0
    });
    assert_eq!(found(&ask_with(at, &given.to_vec()).unwrap()), TRUE);
    assert_eq!(dns(&relay).proven, 1);
    let mut wrong = given.to_vec();
    wrong[20] ^= 1;
    // a wrong one is answered as none, once the rate allows it
    wait_for("an answer to a wrong cookie", || ask_with(at, &wrong).is_some());
    assert_eq!(dns(&relay).proven, 1);
}

#[test]
fn a_cookie_of_a_wrong_length_is_refused() {
    let server = Server::start(|query, _| addresses(query, TRUE, 60));
    let (_relay, at) = relay(server.at.into(), |_| {});
    let mut message = query("a.example.", RecordType::A, None);
    with_cookie(&mut message, &[1; 12]);
    let socket = UdpSocket::bind(loopback(0)).unwrap();
    socket.connect(at).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket.send(&message.to_vec().unwrap()).unwrap();
    let mut buffer = [0; 512];
    let n = socket.recv(&mut buffer).unwrap();
    assert_eq!(code(&Message::from_vec(&buffer[..n]).unwrap()), ResponseCode::FormErr);
    assert_eq!(server.asked(), 0);
}
