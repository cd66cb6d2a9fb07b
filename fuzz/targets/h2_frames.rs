//! A connection of HTTP/2: frames with hostile values in any order, in a relay that serves them by sessions of its own.
//! The relay neither panics nor hangs, and its origin receives whole messages of HTTP/1.1 alone.
//!
//! Without TLS, and with sockets of loopback: some hundred inputs a second. The relay stays from one input to the next. Each
//! input has a connection of its own, which ends once every whole request has its answer.
#![no_main]

use ekiden_proxy::Server;
use ekiden_proxy::settings::{Route, Settings, Upstream, UpstreamProtocol};
use ekiden_proxy::wire::http::body::{self, Body};
use ekiden_proxy::wire::http::chunked::{Chunked, Output};
use ekiden_proxy::wire::http::head::{Limits, Request, read_request};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, LazyLock, OnceLock};
use std::thread;
use std::time::Duration;

const LIMITS: Limits = Limits { bytes: 64 * 1024, fields: 128 };
/// Longer than anything here takes: a hang.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long the client waits for more of the answers that it expects, before it ends the connection: a window may be shut.
const SOON: Duration = Duration::from_millis(20);
/// The same where garbage may have swallowed what would be answered.
const LITTLE: Duration = Duration::from_millis(4);
/// The client's preface (RFC 9113 §3.4), and empty SETTINGS.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const LAST_PING: &[u8; 8] = b"lastping";

/// Where datagrams are asked for (RFC 9298 §2): a destination that the relay refuses.
const DATAGRAMS: &str = "/.well-known/masque/udp/127.0.0.1/9/";

const NAMES: &[&str] = &[
    ":method",
    ":scheme",
    ":authority",
    ":path",
    ":protocol",
    ":status",
    "content-length",
    "transfer-encoding",
    "host",
    "cookie",
    "connection",
    "te",
    "expect",
    "upgrade",
    "trailer",
    "via",
    "proxy-authorization",
    "x",
    "X",
    "",
    "a b",
    "x\r\ny",
    "content-length ",
];
const VALUES: &[&str] = &[
    "GET",
    "POST",
    "CONNECT",
    "HEAD",
    "OPTIONS",
    "http",
    "https",
    "o.test",
    "o.test:80",
    "/",
    "*",
    "/a b",
    "",
    "0",
    "5",
    "05",
    "+5",
    "5,5",
    "18446744073709551616",
    "chunked",
    "trailers",
    "100-continue",
    "close",
    "a=b",
    "x\r\ny: z",
    "x\0",
    "\u{e9}",
    "http://o.test/",
    "o.test/x",
    "u@o.test",
    "websocket",
    "connect-udp",
    "GET / HTTP/1.1",
    "1.1 relay",
];

/// Bytes from the input, 0 at its end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    fn stream(&mut self) -> u32 {
        match self.byte() {
            byte @ 0..=239 => u32::from(byte % 12),
            byte => u32::MAX >> (byte % 16),
        }
    }

    fn number(&mut self) -> u32 {
        match self.byte() % 4 {
            0 => self.byte().into(),
            1 => u32::from(self.byte()) << 8,
            2 => u32::MAX >> (self.byte() % 32),
            _ => 16_384 + u32::from(self.byte()) % 3 - 1,
        }
    }

    /// Fields as HPACK literals (RFC 7541 §6.2.2), without its tables.
    fn fields(&mut self) -> Vec<u8> {
        let mut block = Vec::new();
        if !self.byte().is_multiple_of(4) {
            // a request that could be served: most are
            let path = format!("/{}", self.byte() % 10);
            let [plain, https] = [("http", path.as_str()), ("https", DATAGRAMS)];
            let (method, authority, more) = match self.byte() % 8 {
                0 | 1 => ("GET", "o.test", Some(plain)),
                2 | 3 => ("POST", "o.test", Some(plain)),
                4 => ("PUT", "o.test", Some(plain)),
                5 => ("HEAD", "o.test", Some(plain)),
                6 => ("CONNECT", "o.test:80", None),
                _ => ("CONNECT", "o.test", Some(https)),
            };
            literal(&mut block, b":method", method.as_bytes());
            literal(&mut block, b":authority", authority.as_bytes());
            if let Some((scheme, path)) = more {
                literal(&mut block, b":scheme", scheme.as_bytes());
                literal(&mut block, b":path", path.as_bytes());
                if scheme == "https" {
                    literal(&mut block, b":protocol", b"connect-udp");
                }
            }
        }
        for _ in 0..self.byte() % 6 {
            let name = NAMES[usize::from(self.byte()) % NAMES.len()];
            match self.byte() {
                255 => literal(&mut block, name.as_bytes(), self.bytes()),
                254 => block.extend(self.bytes()),
                byte => literal(
                    &mut block,
                    name.as_bytes(),
                    VALUES[usize::from(byte) % VALUES.len()].as_bytes(),
                ),
            }
        }
        block
    }
}

/// Strings below 127 bytes are enough.
fn literal(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    for text in [name, value] {
        let text = &text[..text.len().min(126)];
        block.push(text.len() as u8);
        block.extend(text);
    }
}

fn frame(to: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    to.extend(&(payload.len() as u32).to_be_bytes()[1..]);
    to.extend([kind, flags]);
    to.extend(stream.to_be_bytes());
    to.extend(payload);
}

/// What a client sends, and what it may wait for.
struct Sent {
    bytes: Vec<u8>,
    /// Streams whose requests are whole: each gets an answer or a reset, unless the connection ends.
    whole: BTreeSet<u32>,
    patience: Duration,
}

fn write_frames(input: &mut Input<'_>) -> Sent {
    let (mut out, mut patience) = (PREFACE.to_vec(), SOON);
    let (mut begun, mut whole) = (BTreeSet::new(), BTreeSet::new());
    let mut frames = 0;
    while !input.0.is_empty() && frames < 64 {
        frames += 1;
        let kind = match input.byte() % 64 {
            63 => 15,
            byte => byte % 15,
        };
        let (stream, flags) = (input.stream(), input.byte());
        if matches!(kind, 0..=4) {
            begun.insert(stream);
        }
        if matches!(kind, 0..=7) && flags & 1 == 1 && begun.contains(&stream) {
            whole.insert(stream);
        }
        match kind {
            // HEADERS that end themselves, in a stream that ends or not
            0..=3 => frame(&mut out, 1, 4 | flags & 1, stream, &input.fields()),
            4 => {
                let block = input.fields();
                let (first, second) = block.split_at(block.len() / 2);
                frame(&mut out, 1, flags & 1, stream, first);
                frame(&mut out, 9, 4, stream, second);
            }
            5..=7 => frame(&mut out, 0, flags & 1, stream, input.bytes()),
            8 => {
                whole.remove(&stream);
                frame(&mut out, 3, 0, stream, &input.number().to_be_bytes());
            }
            9 => {
                let (name, value) = (u16::from(input.byte() % 8), input.number());
                let setting = [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
                frame(&mut out, 4, flags & 1, 0, &setting);
            }
            10 => frame(&mut out, 6, flags & 1, 0, b"fuzzping"),
            11 => frame(&mut out, 8, 0, stream, &input.number().to_be_bytes()),
            12 => frame(&mut out, 2, 0, stream, &[0, 0, 0, input.byte(), 9]),
            13 => frame(&mut out, 7, 0, 0, &[0, 0, 0, input.byte(), 0, 0, 0, 0]),
            // any flags, on any stream, of any type
            14 => frame(&mut out, input.byte() % 12, flags, stream, input.bytes()),
            _ => {
                patience = LITTLE;
                out.extend(input.bytes());
            }
        }
    }
    frame(&mut out, 6, 0, 0, LAST_PING);
    Sent { bytes: out, whole, patience }
}

/// What the relay has answered.
#[derive(Default)]
struct Answers {
    /// A frame that is not whole.
    held: Vec<u8>,
    /// Streams that it has ended.
    ended: BTreeSet<u32>,
    /// It has read all frames.
    is_pinged: bool,
}

impl Answers {
    fn read(&mut self, bytes: &[u8]) {
        self.held.extend(bytes);
        let mut at = 0;
        while let Some((head, rest)) = self.held[at..].split_first_chunk::<9>() {
            let [a, b, c, kind, flags, w, x, y, z] = *head;
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            let Some(payload) = rest.get(..length) else { break };
            match kind {
                // the last of DATA or HEADERS, or RST_STREAM
                0 | 1 if flags & 1 == 1 => _ = self.ended.insert(u32::from_be_bytes([w, x, y, z])),
                3 => _ = self.ended.insert(u32::from_be_bytes([w, x, y, z])),
                6 => self.is_pinged |= flags & 1 == 1 && payload == LAST_PING,
                _ => {}
            }
            at += 9 + length;
        }
        self.held.drain(..at);
    }
}

/// A body that takes several windows of the protocol's own size.
static LONG: LazyLock<String> = LazyLock::new(|| "x".repeat(200_000));

/// What the origin answers, by the last byte of the target; and whether it closes then.
fn answer(request: &Request) -> (Vec<u8>, bool) {
    let (head, body, closes) = match request.target.bytes().next_back() {
        Some(b'1') => {
            ("200 OK\r\nTransfer-Encoding: chunked", "4\r\nfine\r\n0\r\nx: y\r\n\r\n", false)
        }
        Some(b'2') => ("204 No Content", "", false),
        Some(b'3') => (
            "100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n\
             HTTP/1.1 200 OK\r\nContent-Length: 4",
            "fine",
            false,
        ),
        Some(b'4') => ("200 OK\r\nConnection: close, x\r\nX: y", "until the end", true),
        Some(b'5') => ("200 OK\r\nContent-Length: 5", "cut", true),
        Some(b'6') => ("200 OK\r\nContent-Length: 4\r\nContent-Length: 5", "both", true),
        Some(b'7') => {
            ("407 No\r\nProxy-Authenticate: Basic realm=\"o\"\r\nContent-Length: 0", "", false)
        }
        Some(b'8') => ("304 Not Modified\r\nETag: \"x\"", "", false),
        Some(b'9') => ("200 OK\r\nContent-Length: 200000", LONG.as_str(), false),
        _ => ("200 OK\r\nContent-Length: 4", "fine", false),
    };
    let body = if request.method == "HEAD" { "" } else { body };
    (format!("HTTP/1.1 {head}\r\n\r\n{body}").into_bytes(), closes)
}

/// The other end of a CONNECT: what comes goes back.
fn echo(mut stream: TcpStream, first: &[u8]) {
    let mut some = [0; 16 * 1024];
    let mut sent =
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").and_then(|()| stream.write_all(first));
    while sent.is_ok() {
        sent = match stream.read(&mut some) {
            Ok(n) if n > 0 => stream.write_all(&some[..n]),
            _ => return,
        };
    }
}

/// Each message is whole and framed without doubt, as a server reads it; a cut is no message.
fn check(mut stream: TcpStream) {
    let _ = (stream.set_read_timeout(Some(4 * PATIENCE)), stream.set_nodelay(true));
    let (mut held, mut some) = (Vec::new(), [0; 16 * 1024]);
    let mut more = |held: &mut Vec<u8>, stream: &mut TcpStream| match stream.read(&mut some) {
        Ok(n) if n > 0 => {
            held.extend(&some[..n]);
            true
        }
        _ => false,
    };
    loop {
        let (request, used) = match read_request(&held, LIMITS) {
            Ok(Some(read)) => read,
            Ok(None) if more(&mut held, &mut stream) => continue,
            Ok(None) => return,
            Err(bad) => panic!("the origin got {}: {bad}", held.escape_ascii()),
        };
        held.drain(..used);
        let left = match body::of_request(&request) {
            Ok(Body::None | Body::UntilClose) => 0,
            Ok(Body::Length(n)) => n as usize,
            Ok(Body::Chunked) => {
                let (mut chunked, mut plain) = (Chunked::new(Output::Plain, LIMITS), Vec::new());
                loop {
                    let used = match chunked.read(&held, &mut plain) {
                        Ok(used) => used,
                        Err(bad) => panic!("the origin got a body {}: {bad}", held.escape_ascii()),
                    };
                    held.drain(..used);
                    if chunked.is_done() {
                        break;
                    }
                    if !more(&mut held, &mut stream) {
                        return;
                    }
                }
                0
            }
            Err(bad) => panic!("the origin got {request:?}: {bad}"),
        };
        while held.len() < left {
            if !more(&mut held, &mut stream) {
                return;
            }
        }
        held.drain(..left);
        if request.method == "CONNECT" {
            return echo(stream, &held);
        }
        let (answer, closes) = answer(&request);
        if stream.write_all(&answer).is_err() || closes {
            return;
        }
    }
}

/// A relay that sends everything to one origin, on loopback.
fn relay() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = listener.local_addr().unwrap();
    thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| _ = thread::spawn(|| check(stream)))
    });
    let mut settings = Settings { listen: vec![([127, 0, 0, 1], 0).into()], ..Settings::default() };
    let upstream = Upstream::new(UpstreamProtocol::Http, "127.0.0.1", origin.port());
    settings.upstreams.insert("origin".to_owned(), upstream);
    let (leg, client_leg) = ("direct".to_owned(), "client".to_owned());
    settings.routes.push(Route {
        to: Vec::new(),
        through: vec![vec!["origin".to_owned()]],
        leg,
        client_leg,
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(async { Server::start(Arc::new(settings)) }).unwrap();
    let address = server.status().listen[0];
    // both as long as the fuzzer
    std::mem::forget((server, runtime));
    address
}

static RELAY: OnceLock<SocketAddr> = OnceLock::new();

fuzz_target!(|bytes: &[u8]| {
    let mut stream = TcpStream::connect(RELAY.get_or_init(relay)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let sent = write_frames(&mut Input(bytes));
    // one that has ended the connection reads no more
    let _ = stream.write_all(&sent.bytes);
    let mut answers = Answers::default();
    let _ = until(&mut stream, sent.patience, |some| {
        answers.read(some);
        answers.is_pinged && sent.whole.is_subset(&answers.ended)
    });
    let _ = stream.shutdown(Shutdown::Write);
    assert!(
        until(&mut stream, PATIENCE, |_| false),
        "the relay does not end a connection that its client has ended"
    );
});

/// Reads until it is enough; true: or until the end. `enough` is asked about each part that comes.
fn until(
    stream: &mut TcpStream,
    patience: Duration,
    mut enough: impl FnMut(&[u8]) -> bool,
) -> bool {
    stream.set_read_timeout(Some(patience)).unwrap();
    let mut some = [0; 16 * 1024];
    loop {
        match stream.read(&mut some) {
            Ok(n) if n > 0 && enough(&some[..n]) => return true,
            Ok(n) if n > 0 => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return false;
            }
            // an end, or a reset
            _ => return true,
        }
    }
}
