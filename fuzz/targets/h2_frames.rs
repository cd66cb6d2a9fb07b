//! A connection of HTTP/2: frames with hostile values in any order, in a relay that serves them by sessions of its own.
//! The relay neither panics nor hangs, and its origin receives whole messages of HTTP/1.1 alone.
//!
//! Without TLS, and with sockets of loopback: some hundred inputs a second.
#![no_main]

use ekiden_proxy::Server;
use ekiden_proxy::settings::{Route, Settings, Upstream, UpstreamProtocol};
use ekiden_proxy::wire::http::body::{self, Body};
use ekiden_proxy::wire::http::chunked::{Chunked, Output};
use ekiden_proxy::wire::http::head::{Limits, read_request};
use libfuzzer_sys::fuzz_target;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

const LIMITS: Limits = Limits { bytes: 64 * 1024, fields: 128 };
/// Longer than anything here takes: a hang.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long a relay may take to answer a ping, before its client ends the connection.
const SOON: Duration = Duration::from_millis(40);
/// The client's preface (RFC 9113 §3.4), and empty SETTINGS.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const LAST_PING: &[u8; 8] = b"lastping";

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
            let method = ["GET", "POST", "CONNECT", "PUT"][usize::from(self.byte() % 4)];
            for (name, value) in [
                (":method", method),
                (":scheme", "http"),
                (":authority", "o.test"),
                (":path", "/x"),
            ] {
                if method != "CONNECT" || !matches!(name, ":scheme" | ":path") {
                    literal(&mut block, name.as_bytes(), value.as_bytes());
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

fn write_frames(input: &mut Input<'_>) -> Vec<u8> {
    let mut out = PREFACE.to_vec();
    let mut frames = 0;
    while !input.0.is_empty() && frames < 64 {
        frames += 1;
        let (kind, stream, flags) = (input.byte() % 16, input.stream(), input.byte());
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
            8 => frame(&mut out, 3, 0, stream, &input.number().to_be_bytes()),
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
            _ => out.extend(input.bytes()),
        }
    }
    frame(&mut out, 6, 0, 0, LAST_PING);
    out
}

/// Each message is whole and framed without doubt, as a server reads it; a cut is no message.
fn check(mut stream: TcpStream) {
    let _ = stream.set_read_timeout(Some(4 * PATIENCE));
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
        let body = if request.method == "HEAD" { "" } else { "fine" };
        let tunnel = request.method == "CONNECT";
        let answer = if tunnel {
            "HTTP/1.1 200 OK\r\n\r\n".to_owned()
        } else {
            format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{body}")
        };
        if stream.write_all(answer.as_bytes()).is_err() || tunnel {
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
    // one that has ended the connection reads no more
    let _ = stream.write_all(&write_frames(&mut Input(bytes)));
    // requests are served meanwhile; within an incomplete frame the ping is not seen
    let _ = until(&mut stream, SOON, |held| {
        held.windows(LAST_PING.len()).any(|window| window == LAST_PING)
    });
    let _ = stream.shutdown(Shutdown::Write);
    assert!(
        until(&mut stream, PATIENCE, |_| false),
        "the relay does not end a connection that its client has ended"
    );
});

/// Reads until it is enough; true: or until the end.
fn until(stream: &mut TcpStream, patience: Duration, enough: impl Fn(&[u8]) -> bool) -> bool {
    stream.set_read_timeout(Some(patience)).unwrap();
    let (mut held, mut some) = (Vec::new(), [0; 16 * 1024]);
    loop {
        match stream.read(&mut some) {
            Ok(n) if n > 0 => held.extend(&some[..n]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return false;
            }
            // an end, or a reset
            _ => return true,
        }
        if enough(&held) {
            return true;
        }
    }
}
