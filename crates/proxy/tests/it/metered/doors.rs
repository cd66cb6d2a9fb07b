//! As a law over the doors of streams: whatever is exchanged, what an account used is what moved, and a quota ends to the byte.

use super::carrier::Carrier;
use super::{COMMON, LATE, MUCH, SHOWN, forwarding};
use crate::accounts_limits::of;
use crate::common::wire::{PATIENCE, Relay};
use crate::common::{TUNNEL_PROTOCOLS, TunnelProtocol, connect, listener, wait_until};
use crate::tls::{asked, http2};
use bytes::Bytes;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

/// What a relay may add to a head: `Via` and the framing of HTTP/1.1.
const ADDED: u64 = 200;
/// The relay's own words to an account that has used up its quota.
const WORDS: u64 = 1_000;
/// More than opens a tunnel.
const OPENING: u64 = 400;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Http {
        tls: bool,
    },
    Http2,
    Tunnel(TunnelProtocol),
    ConnectInTls,
    ConnectByHttp2,
    /// A port that leads to one server.
    Forwarded,
}

fn doors() -> impl Iterator<Item = Door> {
    use Door::*;
    let tunnels = TUNNEL_PROTOCOLS.into_iter().map(Tunnel);
    let others =
        [Http { tls: false }, Http { tls: true }, Http2, ConnectInTls, ConnectByHttp2, Forwarded];
    others.into_iter().chain(tunnels)
}

#[derive(Debug, Clone, Copy)]
enum Framing {
    Length,
    /// In chunks of so many bytes, and a trailer of so many.
    Chunked(usize, usize),
    /// Up to the end of the connection.
    Close,
}

#[derive(Debug, Clone, Copy)]
struct Message {
    field: usize,
    body: usize,
    framing: Framing,
}

#[derive(Debug, Clone)]
struct Exchange {
    request: Message,
    /// A field of so many bytes in each.
    interim: Vec<usize>,
    answer: Message,
}

fn messages(most: usize, closes: bool) -> impl Strategy<Value = Message> {
    let framing = prop_oneof![
        3 => Just(Framing::Length),
        3 => (1_usize..20_000, 0_usize..3_000).prop_map(|(chunk, trailer)| Framing::Chunked(chunk, trailer)),
        u32::from(closes) => Just(Framing::Close),
    ];
    (0_usize..8_000, 0..most, framing).prop_map(|(field, body, framing)| Message {
        field,
        body,
        framing,
    })
}

fn exchanges() -> impl Strategy<Value = Exchange> {
    let interim = prop::collection::vec(0_usize..3_000, 0..4);
    (messages(60_000, false), interim, messages(200_000, true))
        .prop_map(|(request, interim, answer)| Exchange { request, interim, answer })
}

fn filler(name: &str, length: usize) -> String {
    format!("{name}: {}\r\n", "f".repeat(length))
}

impl Message {
    /// With its first line and further fields, as HTTP/1.1.
    fn text(&self, first: &str, more: &str) -> String {
        let body = "b".repeat(self.body);
        let (field, framed) = match self.framing {
            Framing::Length => (format!("Content-Length: {}\r\n", self.body), body),
            Framing::Close => (String::new(), body),
            Framing::Chunked(chunk, trailer) => {
                let chunks = body.as_bytes().chunks(chunk);
                let chunks: String = chunks
                    .map(|bytes| format!("{:x}\r\n{}\r\n", bytes.len(), "b".repeat(bytes.len())))
                    .collect();
                let trailer = if trailer > 0 { filler("T", trailer) } else { String::new() };
                ("Transfer-Encoding: chunked\r\n".to_owned(), format!("{chunks}0\r\n{trailer}\r\n"))
            }
        };
        format!("{first}\r\n{more}{field}{}\r\n{framed}", filler("X", self.field))
    }
}

impl Exchange {
    fn answered(&self) -> String {
        let interim = self.interim.iter();
        let interim: String = interim
            .map(|field| format!("HTTP/1.1 103 Early Hints\r\n{}\r\n", filler("X", *field)))
            .collect();
        interim + &self.answer.text("HTTP/1.1 200 OK", "")
    }

    fn heads(&self) -> u64 {
        1 + self.interim.len() as u64
    }
}

/// Bytes that moved: at the client and at the server, to the server and back.
#[derive(Debug, Clone, Copy, Default)]
struct Moved {
    sent: u64,
    taken: u64,
    answered: u64,
    received: u64,
}

/// All that comes, to the end or to a break.
fn drain(from: &mut impl Read) -> u64 {
    let (mut sum, mut buffer) = (0, vec![0; 1 << 16]);
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        sum += n as u64;
    }
    sum
}

/// Reads a request to its end; how many bytes came.
fn take_request(stream: &mut TcpStream) -> u64 {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        if let Some(at) = at {
            let head = String::from_utf8_lossy(&bytes[..at]).to_ascii_lowercase();
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let body = &bytes[at..];
            let last =
                body.starts_with(b"0\r\n") || body.windows(5).any(|five| five == b"\r\n0\r\n");
            let whole = match length {
                Some(length) => body.len() >= length.parse().unwrap(),
                None if head.contains("transfer-encoding: chunked") => {
                    last && body.ends_with(b"\r\n\r\n")
                }
                None => true,
            };
            if whole {
                return bytes.len() as u64;
            }
        }
        match stream.read(&mut buffer) {
            Ok(n @ 1..) => bytes.extend(&buffer[..n]),
            _ => return bytes.len() as u64,
        }
    }
}

/// A server of one connection, and what it took.
fn serve(
    listener: TcpListener,
    answer: Vec<u8>,
    take: impl FnOnce(&mut TcpStream) -> u64 + Send + 'static,
) -> std::thread::JoinHandle<u64> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let taken = take(&mut stream);
        // the relay may close before all of it is sent
        let _ = stream.write_all(&answer);
        let _ = stream.shutdown(Shutdown::Write);
        drain(&mut stream);
        taken
    })
}

fn exactly(bytes: usize) -> impl FnOnce(&mut TcpStream) -> u64 {
    move |stream| drain(&mut stream.take(bytes as u64))
}

/// What moved between a client and the server at `to`.
fn run(
    relay: &Relay,
    door: Door,
    exchange: &Exchange,
    (listener, to): (TcpListener, SocketAddr),
) -> Moved {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let bytes = |count: usize| vec![b'a'; count];
    let (request, answer) = (exchange.request, exchange.answer);
    let serving = match door {
        Door::Http { .. } | Door::Http2 => {
            serve(listener, exchange.answered().into_bytes(), take_request)
        }
        _ => serve(listener, bytes(answer.body), exactly(request.body)),
    };
    let through = |mut stream: TcpStream| exchanged(&mut stream, &bytes(request.body));
    let (sent, received) = match door {
        Door::Http { tls } => by_http(relay, tls, exchange, to),
        Door::Http2 => runtime().unwrap().block_on(by_http2(relay, exchange, to)),
        Door::Tunnel(protocol) => (request.body, through(protocol.open(relay.address, to))),
        Door::Forwarded => (request.body, through(connect(relay.address))),
        Door::ConnectInTls => {
            let mut client = SHOWN.client(relay);
            client.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n"));
            client.until("\r\n\r\n");
            (request.body, exchanged(&mut client.0, &bytes(request.body)))
        }
        Door::ConnectByHttp2 => runtime().unwrap().block_on(by_connect(relay, exchange, to)),
    };
    // one that was refused never came
    let _ = TcpStream::connect(to);
    let answered = match door {
        Door::Http { .. } | Door::Http2 => exchange.answered().len(),
        _ => answer.body,
    };
    let (sent, answered) = (sent as u64, answered as u64);
    Moved { sent, taken: serving.join().unwrap(), answered, received }
}

/// Bytes that were sent and that came.
fn by_http(relay: &Relay, tls: bool, exchange: &Exchange, to: SocketAddr) -> (usize, u64) {
    let first = format!("POST http://{to}/ HTTP/1.1");
    let request = exchange.request.text(&first, &format!("Host: {to}\r\nConnection: close\r\n"));
    let received = match tls {
        true => exchanged(&mut SHOWN.client(relay).0, request.as_bytes()),
        false => exchanged(&mut connect(relay.address), request.as_bytes()),
    };
    (request.len(), received)
}

/// Sends all and reads all, as far as it goes.
fn exchanged(stream: &mut (impl Read + Write), bytes: &[u8]) -> u64 {
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    drain(stream)
}

/// Sends a stream's body, to its end, and reads the answer's; how many bytes that has.
async fn streamed(
    response: h2::client::ResponseFuture,
    mut up: h2::SendStream<Bytes>,
    body: usize,
    end: End,
) -> u64 {
    // it may be cut
    let _ = up.send_data(vec![b'b'; body].into(), matches!(end, End::WithBody));
    if let End::Trailer(length) = end {
        let mut trailer = http::HeaderMap::new();
        trailer.insert("t", "f".repeat(length).try_into().unwrap());
        let _ = up.send_trailers(trailer);
    }
    let Ok(response) = response.await else { return 0 };
    let (mut down, mut received) = (response.into_body(), 0);
    while let Some(Ok(data)) = down.data().await {
        received += data.len() as u64;
        let _ = down.flow_control().release_capacity(data.len());
    }
    if matches!(end, End::AfterAnswer) {
        let _ = up.send_data(Bytes::new(), true);
    }
    received
}

/// How a stream's body ends.
enum End {
    WithBody,
    AfterAnswer,
    /// By a trailer with a field of so many bytes.
    Trailer(usize),
}

async fn by_http2(relay: &Relay, exchange: &Exchange, to: SocketAddr) -> (usize, u64) {
    let (mut client, driving) = http2(&SHOWN, relay).await;
    let mut request = asked("POST", format!("http://{to}/"));
    let Message { field, body, framing } = exchange.request;
    request.headers_mut().insert("x", "f".repeat(field).try_into().unwrap());
    if matches!(framing, Framing::Length) {
        request.headers_mut().insert("content-length", body.into());
    }
    let end = match framing {
        Framing::Chunked(_, trailer @ 1..) => End::Trailer(trailer),
        _ => End::WithBody,
    };
    let (response, up) = client.send_request(request, false).unwrap();
    let received = streamed(response, up, body, end).await;
    driving.abort();
    (body, received)
}

async fn by_connect(relay: &Relay, exchange: &Exchange, to: SocketAddr) -> (usize, u64) {
    let (mut client, driving) = http2(&SHOWN, relay).await;
    let mut request = asked("CONNECT", to.to_string());
    *request.version_mut() = http::Version::HTTP_2;
    let (response, up) = client.send_request(request, false).unwrap();
    let received = streamed(response, up, exchange.request.body, End::AfterAnswer).await;
    driving.abort();
    (exchange.request.body, received)
}

impl Door {
    fn is_framed(self) -> bool {
        use Door::*;
        matches!(self, Http { tls: true } | Http2 | ConnectInTls | ConnectByHttp2)
    }

    /// Bytes that a quota has at least: without them nothing is opened.
    fn least(self) -> u64 {
        use Door::*;
        if matches!(self, Tunnel(_) | ConnectInTls | ConnectByHttp2) { OPENING } else { 1 }
    }
}

/// What an account should have used, up and down, at least and at most: `moved` at its ends, of them `wire` below TLS.
fn expected(
    door: Door,
    exchange: &Exchange,
    moved: Moved,
    wire: (u64, u64),
    to: SocketAddr,
) -> [(u64, u64); 2] {
    use Door::*;
    // what is written may be longer than what was read
    let more = |bytes: u64, heads: u64| (bytes, bytes + bytes / 100 + ADDED * heads);
    let heads = exchange.heads();
    let around = |bytes: u64| (bytes.saturating_sub(COMMON), bytes + COMMON);
    let exact = |bytes: u64| (bytes, bytes);
    match door {
        Http { tls: false } => [more(moved.sent, 1), more(moved.answered, heads)],
        // interim responses and all that the client got, which is less or more by some fields
        Http { tls: true } => {
            let beside = wire.1 - moved.received;
            [more(wire.0, 1), more(moved.answered + beside, heads)]
        }
        // heads count as HTTP/1.1
        Http2 => {
            let of = |wire: u64, body: u64, field: usize, text: u64, heads: u64| {
                let (least, most) = more(wire - body + text, heads);
                (least.saturating_sub(field as u64 + COMMON), most)
            };
            let interim: usize = exchange.interim.iter().sum();
            let field = [exchange.request.field, exchange.answer.field + interim];
            [
                of(wire.0, moved.sent, field[0], moved.taken, 1),
                of(wire.1, moved.received, field[1], moved.answered, heads),
            ]
        }
        Tunnel(protocol) => {
            let (up, down) = protocol.opening(to);
            [exact(moved.sent + up), exact(moved.answered + down)]
        }
        ConnectInTls => [exact(wire.0), exact(wire.1)],
        Forwarded => [exact(moved.sent), exact(moved.answered)],
        ConnectByHttp2 => [around(wire.0), around(wire.1)],
    }
}

/// A relay whose account may use so many bytes, the server, and where that is.
fn limited(door: Door, bytes: u64) -> (Relay, TcpListener, SocketAddr) {
    let (listener, to) = listener();
    let (mut relay, port) = forwarding(bytes, to);
    if door == Door::Forwarded {
        relay.address = port;
    }
    (relay, listener, to)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 16, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_of_every_door_counts(exchange in exchanges(), part in 0.0..1.0) {
        for door in doors() {
            let (mut relay, listener, to) = limited(door, MUCH);
            let carrier = Carrier::before(&mut relay);
            let moved = run(&relay, door, &exchange, (listener, to));
            let wire = carrier.moved();
            relay.settles();
            let expected = expected(door, &exchange, moved, wire, to);
            let is_all = |(down, up): (u64, u64)| {
                [up, down].into_iter().zip(expected).all(|(used, (least, most))| (least..=most).contains(&used))
            };
            // what carried a connection counts when that is gone
            wait_until(|| is_all(of(&relay)), || format!("{door:?}: {:?}, {expected:?}, {moved:?}, {wire:?}", of(&relay)));
            let (down, up) = of(&relay);
            let late = if door.is_framed() { LATE } else { 2 };
            let least = door.least();
            let Some(left) = (up + down).checked_sub(least + late) else { continue };
            let most = least + (left as f64 * part) as u64;
            let (relay, listener, to) = limited(door, most);
            let moved = run(&relay, door, &exchange, (listener, to));
            relay.settles();
            let (down, up) = of(&relay);
            prop_assert_eq!(up + down, most, "{:?}: {} up, {} down, {:?}", door, up, down, moved);
            prop_assert!(moved.taken <= up + ADDED && moved.received <= down + WORDS, "{door:?}: {moved:?}");
        }
    }
}
