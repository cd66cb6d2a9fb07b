//! Bodies in every framing, both ways, small and large, and what is left of them when a side breaks.
use crate::common::wire::{Origin, Relay, Wire, field, get, ok, request};
use ekiden_model::units::Bytes;
use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

#[test]
fn an_early_answer_reaches_a_client_that_is_still_sending() {
    const LENGTH: usize = 20_000_000;
    let relay = Relay::new();
    let mut client = relay.client();
    client.send(format!(
        "POST http://192.0.2.1/ HTTP/1.1\r\nHost: 192.0.2.1\r\nContent-Length: {LENGTH}\r\n\r\n"
    ));
    client.send("b".repeat(LENGTH));
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 403 "), "{head}");
}

#[test]
fn chunks_both_ways_with_trailers() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(request("POST", &origin, "/", "Transfer-Encoding: chunked\r\nTrailer: Sum\r\n"));
    let mut server = origin.accept();
    let head = server.head();
    assert_eq!(field(&head, "transfer-encoding"), Some("chunked"));
    assert_eq!(field(&head, "trailer"), Some("Sum"));
    // each chunk goes on before the next one is there
    client.send("5;ext=1\r\nhello\r\n");
    assert_eq!(server.exactly(10), b"5\r\nhello\r\n");
    client.send("00000A\r\n0123456789\r\n0\r\nSum: 1\r\nHost: evil\r\nContent-Length: 9\r\n\r\n");
    assert_eq!(server.until("0\r\nSum: 1\r\n\r\n"), "a\r\n0123456789\r\n0\r\nSum: 1\r\n\r\n");
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    assert_eq!(field(&client.head(), "transfer-encoding"), Some("chunked"));
    assert_eq!(client.exactly(8), b"3\r\nabc\r\n");
    server.send("0\r\nSum: 2\r\nSet-Cookie: evil\r\n\r\n");
    assert_eq!(client.until("\r\n\r\n"), "0\r\nSum: 2\r\n\r\n");
    // both connections are at the begin of a message again
    client.send(get(&origin, "/next", ""));
    assert!(server.head().starts_with("GET /next "));
}

#[test]
fn an_http_1_0_client_gets_plain_bytes() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(format!("GET http://{}/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", origin.name));
    let mut server = origin.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nT: x\r\n\r\n");
    let head = client.head();
    assert_eq!(field(&head, "transfer-encoding"), None);
    assert_eq!(field(&head, "connection"), Some("close"));
    assert_eq!(client.until_end(), "abcde");
}

#[test]
fn an_http_1_0_origin_ends_with_its_connection() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(get(&origin, "/", ""));
    let mut server = origin.accept();
    server.head();
    server.send("HTTP/1.0 200 OK\r\nServer: old\r\n\r\nuntil ");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"));
    assert_eq!(field(&head, "connection"), Some("close"));
    server.send("the end");
    drop(server);
    assert_eq!(client.until_end(), "until the end");
}

#[test]
fn responses_without_a_body() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(request("HEAD", &origin, "/", ""));
    let mut server = origin.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n");
    assert_eq!(field(&client.head(), "content-length"), Some("1000"));
    client.send(request("HEAD", &origin, "/", ""));
    server.head();
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.head();
    client.send(get(&origin, "/", ""));
    server.head();
    server.send("HTTP/1.1 304 Not Modified\r\nContent-Length: 1000\r\nETag: \"x\"\r\n\r\n");
    let head = client.head();
    assert_eq!(
        (field(&head, "content-length"), field(&head, "etag")),
        (Some("1000"), Some("\"x\""))
    );
    client.send(request("DELETE", &origin, "/", ""));
    server.head();
    server.send("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n");
    let head = client.head();
    assert_eq!(field(&head, "content-length"), None, "nobody may wait for these five bytes");
    client.send(get(&origin, "/", ""));
    server.head();
    server.send(ok("all on one connection"));
    client.head();
    assert_eq!(client.exactly(21), b"all on one connection");
    assert!(origin.came().is_none());
}

#[test]
fn forwards_an_answer_before_the_end_of_the_request() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(request("POST", &origin, "/", "Content-Length: 1000\r\n") + "begin");
    let mut server = origin.accept();
    server.head();
    assert_eq!(server.exactly(5), b"begin");
    server.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno");
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 413 "));
    assert_eq!(field(&head, "connection"), Some("close"));
    assert_eq!(client.until_end(), "no");
    server.is_gone();
}

/// The server answers in full and resets, while the client has not read the answer and goes on with
/// its body: the upload fails, the download does not, and the rest of the body is no request.
#[test]
fn the_rest_of_a_refused_body_is_not_a_request() {
    let relay = Relay::with(|settings| {
        let buffers = [("client", 16), ("direct", 1024)];
        for (name, kib) in buffers {
            let socket = &mut settings.legs.get_mut(name).unwrap().socket;
            socket.send_buffer = Some(Bytes::kib(kib));
            socket.receive_buffer = Some(Bytes::kib(kib));
        }
    });
    let (origin, victim) = (Origin::new(), Origin::new());
    let mut client = relay.client();
    socket2::SockRef::from(&client.stream).set_recv_buffer_size(16 << 10).unwrap();
    let smuggled = get(&victim, "/smuggled", "");
    let length = 1 + 1 + smuggled.len();
    client.send(request("POST", &origin, "/", &format!("Content-Length: {length}\r\n")) + "x");
    let mut server = origin.accept();
    server.head();
    // "x" stays unread, so that closing resets
    const LONG: usize = 600_000;
    server.send(format!("HTTP/1.1 413 No\r\nContent-Length: {LONG}\r\n\r\n"));
    server.send("y".repeat(LONG));
    while ekiden_linux::sockets::socket::unacknowledged(server.stream.as_fd()).unwrap() > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    server.reset();
    client.send("x");
    thread::sleep(Duration::from_millis(50));
    assert!(client.head().starts_with("HTTP/1.1 413 "));
    assert_eq!(client.exactly(LONG).len(), LONG);
    let _ = client.stream.write_all(smuggled.as_bytes());
    assert_eq!(client.rest().0.escape_ascii().to_string(), "");
    relay.settles();
    assert!(victim.came().is_none());
}

/// The next request on a kept connection waits for a server that does not read, and answers and resets.
#[test]
fn a_request_is_not_repeated_once_its_answer_has_begun() {
    let relay = Relay::with(|settings| {
        settings.budgets.head = Bytes::mib(4);
        settings.legs.get_mut("direct").unwrap().socket.send_buffer = Some(Bytes::kib(8));
    });
    let origin = Origin::new();
    let mut client = relay.client();
    client.send(get(&origin, "/", ""));
    let mut server = origin.accept();
    server.head();
    server.send(ok("kept"));
    assert!(client.head().starts_with("HTTP/1.1 200 ") && client.exactly(4) == b"kept");
    // more than both ends' buffers take
    client.send(get(&origin, "/", &format!("X: {}\r\n", "a".repeat(3 << 20))));
    assert!(server.until("\r\n").starts_with("GET / "));
    server.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello");
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    assert_eq!(client.exactly(5), b"hello");
    server.reset();
    assert_eq!(client.rest().0.escape_ascii().to_string(), "");
    relay.settles();
    assert!(origin.came().is_none());
}

/// It may have read of a refusal, and have nothing more to send.
#[test]
fn an_answer_goes_on_for_a_client_that_half_closes_within_its_body() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(request("POST", &origin, "/", "Content-Length: 10\r\n") + "hello");
    let mut server = origin.accept();
    server.head();
    server.send("HTTP/1.1 413 No\r\nContent-Length: 10\r\n\r\nhello");
    assert!(client.head().starts_with("HTTP/1.1 413 "));
    assert_eq!(client.exactly(5), b"hello");
    client.finish();
    thread::sleep(Duration::from_millis(50));
    server.send("again");
    assert_eq!(client.until_end(), "again");
    assert_eq!(server.exactly(5), b"hello");
    // nothing follows a request that is not whole
    server.is_gone();
}

#[test]
fn bodies_that_are_cut_short_break_the_clients_connection() {
    for (head, body, early) in [
        ("Content-Length: 10\r\n", "hello", false),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n", false),
        ("Transfer-Encoding: chunked\r\n", "a\r\nhello", false),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\nSum: 1\r\n", false),
        ("Content-Length: 10\r\n", "hello", true),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n", true),
        ("", "hello", true),
    ] {
        let (relay, origin) = (Relay::new(), Origin::new());
        let mut client = relay.client();
        client.send(get(&origin, "/", ""));
        let mut server = origin.accept();
        server.head();
        server.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}"));
        client.head();
        let first = client.exactly(body.len().min(5));
        if early {
            server.reset()
        } else {
            drop(server)
        }
        let (rest, how) = client.rest();
        assert!(how.is_err(), "{head} {body}: an orderly end after a part");
        let got = [first, rest].concat();
        assert!(got.windows(5).any(|w| w == b"hello"), "{}", got.escape_ascii());
        relay.settles();
    }
}

#[test]
fn a_malformed_chunk_of_the_server_breaks_the_clients_connection() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(get(&origin, "/", ""));
    let mut server = origin.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n");
    client.head();
    assert_eq!(client.exactly(10), b"5\r\nhello\r\n");
    server.send("5\nhello\r\n0\r\n\r\n");
    assert_eq!(client.until_reset(), "");
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Framing {
    Length,
    Chunked,
    UntilClose,
}

const LARGE: usize = 64 << 20;

/// Bytes that differ everywhere, made as they are needed; and their hash.
fn large(mut sink: impl FnMut(&[u8])) -> u64 {
    let (mut state, mut hasher, mut left) = (1_u64, DefaultHasher::new(), LARGE);
    while left > 0 {
        let mut block = [0; 60_001];
        for word in block.chunks_mut(8) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            word.copy_from_slice(&state.to_be_bytes()[..word.len()]);
        }
        let n = left.min(block.len());
        hasher.write(&block[..n]);
        sink(&block[..n]);
        left -= n;
    }
    hasher.finish()
}

fn send_large(to: &mut std::net::TcpStream, framing: Framing) -> u64 {
    let hash = large(|block| {
        if framing == Framing::Chunked {
            // of uneven sizes
            for part in block.chunks(17_003) {
                to.write_all(format!("{:x}\r\n", part.len()).as_bytes()).unwrap();
                to.write_all(part).unwrap();
                to.write_all(b"\r\n").unwrap();
            }
        } else {
            to.write_all(block).unwrap();
        }
    });
    if framing == Framing::Chunked {
        to.write_all(b"0\r\n\r\n").unwrap();
    }
    hash
}

/// Reads the body and hashes it in the same blocks.
fn receive_large(from: &mut Wire, framing: Framing) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut pending = Vec::new();
    let mut total = 0;
    let mut take = |bytes: &[u8], last: bool| {
        pending.extend_from_slice(bytes);
        total += bytes.len();
        while pending.len() >= 60_001 || (last && !pending.is_empty()) {
            let n = pending.len().min(60_001);
            hasher.write(&pending[..n]);
            pending.drain(..n);
        }
    };
    if framing == Framing::Chunked {
        loop {
            let line = from.until("\r\n");
            let size = usize::from_str_radix(line.trim(), 16).unwrap();
            take(&from.exactly(size), size == 0);
            from.exactly(2);
            if size == 0 {
                break;
            }
        }
    } else {
        let mut left = LARGE;
        let early = from.buffered(left);
        left -= early.len();
        take(&early, left == 0);
        let mut block = vec![0; 1 << 17];
        while left > 0 {
            let most = block.len().min(left);
            let n = from.stream.read(&mut block[..most]).unwrap();
            assert!(n > 0, "{left} bytes are missing");
            left -= n;
            take(&block[..n], left == 0);
        }
    }
    assert_eq!(total, LARGE);
    hasher.finish()
}

fn fields_of(framing: Framing) -> String {
    match framing {
        Framing::Length => format!("Content-Length: {LARGE}\r\n"),
        Framing::Chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
        Framing::UntilClose => "Connection: close\r\n".to_owned(),
    }
}

#[test]
fn large_uploads_arrive_whole() {
    for framing in [Framing::Length, Framing::Chunked] {
        let (relay, origin) = (Relay::new(), Origin::new());
        let mut client = relay.client();
        client.send(request("PUT", &origin, "/", &fields_of(framing)));
        let sending = thread::spawn(move || {
            let hash = send_large(&mut client.stream, framing);
            (client, hash)
        });
        let mut server = origin.accept();
        server.head();
        let got = receive_large(&mut server, framing);
        let (mut client, sent) = sending.join().unwrap();
        assert_eq!(got, sent, "{framing:?}");
        server.send(ok("got it"));
        client.head();
        assert_eq!(client.exactly(6), b"got it");
    }
}

#[test]
fn large_downloads_arrive_whole() {
    for framing in [Framing::Length, Framing::Chunked, Framing::UntilClose] {
        let (relay, origin) = (Relay::new(), Origin::new());
        let mut client = relay.client();
        client.send(get(&origin, "/", ""));
        let mut server = origin.accept();
        server.head();
        server.send(format!("HTTP/1.1 200 OK\r\n{}\r\n", fields_of(framing)));
        let sending = thread::spawn(move || send_large(&mut server.stream, framing));
        client.head();
        let got = receive_large(&mut client, framing);
        assert_eq!(got, sending.join().unwrap(), "{framing:?}");
        if framing == Framing::UntilClose {
            assert_eq!(client.until_end(), "");
        }
    }
}

#[test]
fn both_directions_at_once() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(request("POST", &origin, "/", "Transfer-Encoding: chunked\r\n"));
    let mut server = origin.accept();
    server.head();
    server.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.head();
    // an echo that answers while it is asked
    for n in 1..200_usize {
        let chunk = format!("{n:x}\r\n{}\r\n", "x".repeat(n));
        client.send(&chunk);
        assert_eq!(server.exactly(chunk.len()), chunk.as_bytes());
        server.send(&chunk);
        assert_eq!(client.exactly(chunk.len()), chunk.as_bytes());
    }
    client.send("0\r\n\r\n");
    assert_eq!(server.exactly(5), b"0\r\n\r\n");
    server.send("0\r\n\r\n");
    assert_eq!(client.exactly(5), b"0\r\n\r\n");
    assert_eq!(
        client.until_end(),
        "",
        "the head had said close, since the request was not complete"
    );
}
