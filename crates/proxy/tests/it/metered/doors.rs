//! As a law over all doors: whatever is exchanged, what an account used is what moved, and a quota ends to the byte.

use super::carrier::Carrier;
use crate::accounts_limits::{of, quota, relay_with};
use crate::common::wire::{PATIENCE, Relay};
use crate::common::{TUNNEL_PROTOCOLS, TunnelProtocol, connect, listener, wait_until};
use crate::connect_udp::{capsule, extended, path, server, upgrade};
use crate::tls::{Shown, asked, http2};
use bytes::Bytes;
use ekiden_proxy::settings::ExceededAction;
use ekiden_proxy::wire::http::reply::udp_connected;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::LazyLock;

/// More than any exchange needs.
const MUCH: u64 = 1 << 40;
/// What a relay may add to a head: `Via` and the framing of HTTP/1.1.
const ADDED: u64 = 200;
/// The relay's own words to an account that has used up its quota.
const WORDS: u64 = 1_000;
const DATAGRAM: usize = 1_200;
/// What HTTP/2 needs for the fields that each head has.
const COMMON: u64 = 600;
/// Records and frames count late, some bytes of each together.
const LATE: u64 = 10_000;

static SHOWN: LazyLock<Shown> = LazyLock::new(Shown::new);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
    Http { tls: bool },
    Http2,
    Tunnel(TunnelProtocol),
    ConnectInTls,
    ConnectByHttp2,
    Datagrams,
    DatagramsByHttp2,
}

fn doors() -> impl Iterator<Item = Door> {
    use Door::*;
    let tunnels = TUNNEL_PROTOCOLS.into_iter().map(Tunnel);
    let others = [
        Http { tls: false },
        Http { tls: true },
        Http2,
        ConnectInTls,
        ConnectByHttp2,
        Datagrams,
        DatagramsByHttp2,
    ];
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

/// What moved, and where it went.
fn run(relay: &Relay, door: Door, exchange: &Exchange) -> (Moved, SocketAddr) {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    match door {
        Door::Http { tls } => by_http(relay, tls, exchange),
        Door::Http2 => runtime().unwrap().block_on(by_http2(relay, exchange)),
        Door::Tunnel(protocol) => through(exchange, |to| protocol.open(relay.address, to)),
        Door::ConnectInTls => through(exchange, |to| {
            let mut client = SHOWN.client(relay);
            client.send(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n"));
            client.until("\r\n\r\n");
            client.0
        }),
        Door::ConnectByHttp2 => runtime().unwrap().block_on(by_connect(relay, exchange)),
        Door::Datagrams => by_upgrade(relay, exchange),
        Door::DatagramsByHttp2 => runtime().unwrap().block_on(by_extended(relay, exchange)),
    }
}

fn by_http(relay: &Relay, tls: bool, exchange: &Exchange) -> (Moved, SocketAddr) {
    let (listener, to) = listener();
    let answer = exchange.answered().into_bytes();
    let answered = answer.len() as u64;
    let serving = serve(listener, answer, take_request);
    let first = format!("POST http://{to}/ HTTP/1.1");
    let request = exchange.request.text(&first, &format!("Host: {to}\r\nConnection: close\r\n"));
    let received = match tls {
        true => exchanged(&mut SHOWN.client(relay).0, &request),
        false => exchanged(&mut connect(relay.address), &request),
    };
    // one that was refused never came
    let _ = TcpStream::connect(to);
    (Moved { sent: request.len() as u64, taken: serving.join().unwrap(), answered, received }, to)
}

/// Sends all and reads all, as far as it goes.
fn exchanged(stream: &mut (impl Read + Write), bytes: &str) -> u64 {
    let _ = stream.write_all(bytes.as_bytes()).and_then(|()| stream.flush());
    drain(stream)
}

/// The bodies as bytes of a tunnel.
fn through<S: Read + Write>(
    exchange: &Exchange,
    open: impl FnOnce(SocketAddr) -> S,
) -> (Moved, SocketAddr) {
    let (listener, to) = listener();
    let (sent, answered) = (exchange.request.body, exchange.answer.body);
    let serving = serve(listener, vec![b'a'; answered], exactly(sent));
    let received = exchanged(&mut open(to), &"b".repeat(sent));
    let (sent, answered) = (sent as u64, answered as u64);
    (Moved { sent, taken: serving.join().unwrap(), answered, received }, to)
}

/// Sends a stream's body, to its end, and reads the answer's; how many bytes that has.
async fn streamed(
    response: h2::client::ResponseFuture,
    mut up: h2::SendStream<Bytes>,
    body: usize,
    ends: bool,
) -> u64 {
    // it may be cut
    let _ = up.send_data(vec![b'b'; body].into(), ends);
    let Ok(response) = response.await else { return 0 };
    let (mut down, mut received) = (response.into_body(), 0);
    while let Some(Ok(data)) = down.data().await {
        received += data.len() as u64;
        let _ = down.flow_control().release_capacity(data.len());
    }
    let _ = up.send_data(Bytes::new(), true);
    received
}

async fn by_http2(relay: &Relay, exchange: &Exchange) -> (Moved, SocketAddr) {
    let (listener, to) = listener();
    let answer = exchange.answered().into_bytes();
    let answered = answer.len() as u64;
    let serving = serve(listener, answer, take_request);
    let (mut client, driving) = http2(&SHOWN, relay).await;
    let mut request = asked("POST", format!("http://{to}/"));
    let Message { field, body, framing } = exchange.request;
    request.headers_mut().insert("x", "f".repeat(field).try_into().unwrap());
    if matches!(framing, Framing::Length) {
        request.headers_mut().insert("content-length", body.into());
    }
    let (response, up) = client.send_request(request, false).unwrap();
    let received = streamed(response, up, body, true).await;
    driving.abort();
    let _ = TcpStream::connect(to);
    (Moved { sent: body as u64, taken: serving.join().unwrap(), answered, received }, to)
}

async fn by_connect(relay: &Relay, exchange: &Exchange) -> (Moved, SocketAddr) {
    let (listener, to) = listener();
    let (sent, answered) = (exchange.request.body, exchange.answer.body);
    let serving = serve(listener, vec![b'a'; answered], exactly(sent));
    let (mut client, driving) = http2(&SHOWN, relay).await;
    let mut request = asked("CONNECT", to.to_string());
    *request.version_mut() = http::Version::HTTP_2;
    let (response, up) = client.send_request(request, false).unwrap();
    let received = streamed(response, up, sent, false).await;
    driving.abort();
    let (sent, answered) = (sent as u64, answered as u64);
    (Moved { sent, taken: serving.join().unwrap(), answered, received }, to)
}

/// One datagram after another, each answered by one of another length.
fn datagrams(
    relay: &Relay,
    exchange: &Exchange,
    mut send: impl FnMut(Vec<u8>),
    to: &UdpSocket,
) -> (Moved, SocketAddr) {
    let mut moved = Moved::default();
    let count = exchange.request.body / DATAGRAM + 1;
    let mut buffer = vec![0; 2 * DATAGRAM];
    for nth in 0..count {
        let (up, down) = (nth * 97 % DATAGRAM, exchange.answer.field % DATAGRAM);
        // heads of capsules count, too
        let [sent, answered] = [up, down].map(|length| capsule(&vec![1; length]));
        (moved.sent, moved.answered) =
            (moved.sent + sent.len() as u64, moved.answered + answered.len() as u64);
        send(sent);
        let (n, from) = to.recv_from(&mut buffer).unwrap();
        to.send_to(&vec![2; down], from).unwrap();
        moved.taken += n as u64;
    }
    let done = || relay.status().udp.datagrams_down == count as u64;
    wait_until(done, || format!("{:?}", relay.status().udp));
    (Moved { received: moved.answered, ..moved }, to.local_addr().unwrap())
}

fn by_upgrade(relay: &Relay, exchange: &Exchange) -> (Moved, SocketAddr) {
    let to = server();
    let mut client = relay.client();
    client.send(upgrade(to.local_addr().unwrap(), ""));
    client.head();
    datagrams(relay, exchange, |capsule| client.send(capsule), &to)
}

async fn by_extended(relay: &Relay, exchange: &Exchange) -> (Moved, SocketAddr) {
    let to = server();
    let (mut client, driving) = http2(&SHOWN, relay).await;
    let (_, _down, mut up) = extended(&mut client, path(to.local_addr().unwrap())).await;
    let send = |capsule: Vec<u8>| up.send_data(capsule.into(), false).unwrap();
    let moved = tokio::task::block_in_place(|| datagrams(relay, exchange, send, &to));
    driving.abort();
    moved
}

impl Door {
    fn is_framed(self) -> bool {
        use Door::*;
        matches!(
            self,
            Http { tls: true } | Http2 | ConnectInTls | ConnectByHttp2 | DatagramsByHttp2
        )
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
        Datagrams => {
            let opening = [upgrade(to, "").len(), udp_connected().len()];
            [exact(moved.sent + opening[0] as u64), exact(moved.answered + opening[1] as u64)]
        }
        ConnectByHttp2 | DatagramsByHttp2 => [around(wire.0), around(wire.1)],
    }
}

fn limited(bytes: u64) -> Relay {
    relay_with(quota(bytes, ExceededAction::Cut), |settings| SHOWN.settings(settings))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 16, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_of_every_door_counts(exchange in exchanges(), part in 0.0..1.0) {
        for door in doors() {
            let mut relay = limited(MUCH);
            let carrier = Carrier::before(&mut relay);
            let (moved, to) = run(&relay, door, &exchange);
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
            if matches!(door, Door::Datagrams | Door::DatagramsByHttp2) || up + down <= late {
                continue;
            }
            let most = 1 + ((up + down - late) as f64 * part) as u64;
            let relay = limited(most);
            let (moved, _) = run(&relay, door, &exchange);
            relay.settles();
            let (down, up) = of(&relay);
            prop_assert_eq!(up + down, most, "{:?}: {} up, {} down, {:?}", door, up, down, moved);
            prop_assert!(moved.taken <= up + ADDED && moved.received <= down + WORDS, "{door:?}: {moved:?}");
        }
    }
}
