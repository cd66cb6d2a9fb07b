//! A request of HTTP/2 as its library passes it on: in HTTP/1.1 it is one request with the same body, or none. What
//! a server answers becomes fields that HTTP/2 allows.
#![no_main]

use ekiden_proxy::wire::http::body::{self, Body};
use ekiden_proxy::wire::http::h2::{protocol, request_head, response_head};
use ekiden_proxy::wire::http::head::{Limits, read_request, read_response};
use h2::ext::Protocol;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { bytes: 64 * 1024, fields: 128 };

const METHODS: &[&[u8]] = &[b"GET", b"POST", b"HEAD", b"CONNECT", b"OPTIONS", b"get", b"X-Y"];
/// Most requests have none (RFC 8441 §4).
const PROTOCOLS: &[&str] = &["", "", "", "", "", "connect-udp", "websocket", "a\r\nb: c", "\u{e9}"];
const TARGETS: &[&[u8]] = &[
    b"http://a.example/x?y",
    b"https://a.example/.well-known/masque/udp/192.0.2.6/443/",
    b"a.example:443",
    b"http://[::1]:8080/",
    b"http://u@a.example:80/",
    b"ftp://a.example/x",
    b"https://a.example",
    b"/x",
    b"*",
];
const NAMES: &[&[u8]] = &[
    b"content-length",
    b"transfer-encoding",
    b"host",
    b"cookie",
    b"connection",
    b"keep-alive",
    b"proxy-connection",
    b"te",
    b"upgrade",
    b"expect",
    b"trailer",
    b"via",
    b"proxy-authenticate",
    b"set-cookie",
    b"x",
    b"a b",
    b"content-length ",
];
const VALUES: &[&[u8]] = &[
    b"0",
    b"5",
    b"+5",
    b"5,5",
    b"18446744073709551616",
    b"chunked",
    b"gzip, chunked",
    b"close",
    b"x, upgrade",
    b"trailers",
    b"a=b",
    b"o.test",
    b"Basic realm=\"r\"",
    b"",
    b" y\t",
    b"\xe9",
    b"x\r\ny: z",
];
const STATUSES: &[&[u8]] = &[
    b"HTTP/1.1 200 OK",
    b"HTTP/1.1 204 No Content",
    b"HTTP/1.0 200",
    b"HTTP/1.1 407 Who",
    b"HTTP/1.1 304 Same",
    b"HTTP/1.1 103 Early",
    b"HTTP/1.1 101 Switching Protocols",
    b"HTTP/1.1 599 \xe9",
];

/// Parts of a message, which the input chooses; or bytes of its own.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn one_of(&mut self, words: &[&'static [u8]]) -> &'a [u8] {
        let nth = self.byte();
        if nth < 255 {
            return words[usize::from(nth) % words.len()];
        }
        let length = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    fn fields(&mut self) -> Vec<(&'a [u8], &'a [u8])> {
        let count = self.byte() % 12;
        (0..count).map(|_| (self.one_of(NAMES), self.one_of(VALUES))).collect()
    }
}

fn request(input: &mut Input<'_>) -> Option<http::request::Parts> {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.method = Method::from_bytes(input.one_of(METHODS)).ok()?;
    parts.uri = Uri::try_from(input.one_of(TARGETS)).ok()?;
    let protocol = PROTOCOLS[usize::from(input.byte()) % PROTOCOLS.len()];
    // the library lets no other method have one
    if parts.method == Method::CONNECT && !protocol.is_empty() {
        parts.extensions.insert(Protocol::from(protocol));
    }
    for (name, value) in input.fields() {
        // names in HTTP/2 are in lower case (RFC 9113 §8.2)
        let name = HeaderName::from_lowercase(name);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            parts.headers.append(name, value);
        }
    }
    Some(parts)
}

fn response(input: &mut Input<'_>) -> Vec<u8> {
    let mut head = [input.one_of(STATUSES), b"\r\n"].concat();
    for (name, value) in input.fields() {
        head.extend([name, b": ", value, b"\r\n"].concat());
    }
    head.extend(b"\r\n");
    head
}

fn check_response(head: &[u8]) {
    let Ok(Some((response, _))) = read_response(head, LIMITS) else { return };
    for tunnel in [false, true] {
        let Some(head) = response_head(&response, tunnel, ()) else { continue };
        assert_eq!(head.status().as_u16(), response.status);
        // RFC 9113 §8.2.2
        for name in ["connection", "transfer-encoding", "keep-alive", "upgrade", "proxy-connection"]
        {
            assert!(!head.headers().contains_key(name), "{name}");
        }
    }
}

fn check_request(parts: &http::request::Parts, ended: bool) {
    let Some((head, chunks)) = request_head(parts, ended) else { return };
    assert!(!(ended && chunks));
    let Ok(read) = read_request(&head, LIMITS) else { return };
    let Some((request, used)) = read else {
        panic!("a head without an end: {:?}", String::from_utf8_lossy(&head))
    };
    assert_eq!(used, head.len(), "one head: {:?}", String::from_utf8_lossy(&head));
    let method = if protocol(parts).is_some() { "GET" } else { parts.method.as_str() };
    assert_eq!((request.method.as_str(), request.target.contains(' ')), (method, false));
    // refused, or with the body that HTTP/2 delimits by its own frames
    if let Ok(framed) = body::of_request(&request) {
        match framed {
            Body::Chunked => assert!(chunks),
            Body::Length(_) => assert!(!chunks && parts.headers.contains_key("content-length")),
            Body::None => assert!(!chunks && !parts.headers.contains_key("content-length")),
            Body::UntilClose => panic!("of a request"),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    match input.byte() % 4 {
        0 => check_response(&response(&mut input)),
        // as it is
        1 => check_response(input.0),
        kind => {
            if let Some(parts) = request(&mut input) {
                check_request(&parts, kind == 2);
            }
        }
    }
});
