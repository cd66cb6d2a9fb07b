//! Every phase of every protocol ends by itself, whatever the client does or leaves.
use crate::common::wire::{Origin, Relay, Wire, get};
use crate::shares::{preface, unfinished_head};
use crate::tls::Shown;
use ekiden_model::units::Span;
use ekiden_proxy::settings::Settings;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const BRIEF: Span = Span::from_millis(300);

fn brief(settings: &mut Settings) {
    settings.timeouts.first_byte = BRIEF;
    settings.timeouts.request_head = BRIEF;
    settings.timeouts.keep_alive = BRIEF;
    for leg in settings.legs.values_mut() {
        leg.idle_timeout = BRIEF;
        leg.half_closed_timeout = BRIEF;
    }
}

/// Sends a byte of `text` and again one, until the other side is gone or has answered.
fn drip(client: &mut Wire, text: &mut dyn Iterator<Item = u8>) {
    client.stream.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    for byte in text {
        let sent = client.stream.write_all(&[byte]);
        match client.stream.peek(&mut [0]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && sent.is_ok() => {}
            _ => return,
        }
    }
}

#[test]
fn a_head_that_comes_byte_by_byte_gets_408() {
    let relay = Relay::with(brief);
    let mut client = relay.client();
    let mut endless =
        b"GET http://a.example/ HTTP/1.1\r\nX: ".iter().copied().chain(std::iter::repeat(b'a'));
    drip(&mut client, &mut endless);
    let answer = String::from_utf8(client.rest().0).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    drop(client);
    relay.settles();
}

#[test]
fn every_message_of_socks_has_a_deadline() {
    let relay = Relay::with(brief);
    let name = [&[5, 1, 0, 5, 1, 0, 3, 255][..], &[b'a'; 200]].concat();
    let parts: [&[u8]; 5] =
        [&[5], &[5, 9, 0], &[5, 1, 0, 5, 1], &name, &[4, 1, 0, 80, 0, 0, 0, 1, b'u']];
    for begun in parts {
        let mut client = relay.client();
        client.send(begun);
        // answered or not, it ends
        client.rest().1.unwrap();
        drop(client);
        relay.settles();
    }
}

#[test]
fn a_tls_handshake_has_a_deadline() {
    let shown = Shown::new();
    let relay = Relay::with(|settings| {
        shown.settings(settings);
        brief(settings);
    });
    // a record that announces more than follows, and one that comes byte by byte
    let mut client = relay.client();
    client.send([22, 3, 1, 2, 0, 1]);
    client.is_gone();
    let mut client = relay.client();
    drip(&mut client, &mut [22, 3, 1, 64, 0, 1].into_iter().chain(std::iter::repeat(0)));
    client.rest().1.unwrap_or_default();
    // the handshake is done, and nothing follows
    let mut client = shown.client(&relay);
    client.0.conn.complete_io(&mut client.0.sock).unwrap();
    let mut rest = Vec::new();
    let ended = client.0.read_to_end(&mut rest);
    assert!(rest.is_empty() && !matches!(&ended, Err(e) if e.kind() == ErrorKind::WouldBlock));
    drop(client);
    relay.settles();
}

/// Whatever part of HTTP/2 is missing, the connection ends: preface, a request, a head's end; and so it does
/// after GOAWAY, which these clients ignore.
#[test]
fn every_phase_of_http_2_has_a_deadline() {
    let shown = Shown::new();
    let relay = Relay::with(|settings| {
        shown.settings(settings);
        brief(settings);
    });
    let part = preface()[..10].to_vec();
    let begun = [preface(), unfinished_head()].concat();
    for sent in [vec![], part, preface(), begun] {
        let mut client = shown.within(TcpStream::connect(relay.address).unwrap(), b"h2");
        client.send(sent);
        client.0.conn.complete_io(&mut client.0.sock).unwrap();
        relay.settles();
    }
}

/// A client that takes nothing of its answer, plain, within TLS and within HTTP/2.
#[test]
fn an_answer_that_nobody_reads_ends() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = Relay::with(|settings| {
        shown.settings(settings);
        brief(settings);
    });
    let answer = |origin: &Origin| {
        let mut server = origin.accept();
        server.head();
        // more than all buffers on the way
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 64 << 20);
        let _ = server.stream.write_all(head.as_bytes());
        let _ = server.stream.write_all(&vec![b'a'; 64 << 20]);
    };
    let mut plain = relay.client();
    plain.send(get(&origin, "/", ""));
    answer(&origin);
    relay.settles();
    let mut tls = shown.client(&relay);
    tls.send(get(&origin, "/", ""));
    answer(&origin);
    relay.settles();
    drop((plain, tls));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stream_that_nobody_reads_ends() {
    let (shown, origin) = (Shown::new(), Origin::new());
    let relay = tokio::task::block_in_place(|| {
        Relay::with(|settings| {
            shown.settings(settings);
            brief(settings);
        })
    });
    let (mut client, driving) = crate::tls::http2(&shown, &relay).await;
    let uri = format!("http://{}/", origin.name);
    let request = http::Request::builder().uri(uri).body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    tokio::task::block_in_place(|| {
        let mut server = origin.accept();
        server.head();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 64 << 20);
        let _ = server.stream.write_all(head.as_bytes());
        let _ = server.stream.write_all(&vec![b'a'; 64 << 20]);
    });
    // the body is held and never read
    let response = response.await;
    tokio::task::block_in_place(|| relay.settles());
    drop((response, driving, client));
    tokio::task::block_in_place(|| drop(relay));
}
