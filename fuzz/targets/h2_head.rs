//! A request of HTTP/2 as its library passes it on: in HTTP/1.1 it is one request with the same body, or none. What
//! a server answers becomes fields that HTTP/2 allows.
#![no_main]

use ekiden_proxy::wire::http::body::{self, Body};
use ekiden_proxy::wire::http::h2::{request_head, response_head};
use ekiden_proxy::wire::http::head::{Limits, read_request, read_response};
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { bytes: 64 * 1024, fields: 128 };

/// A line of the input; its first byte says whose.
fn parts(bytes: &[u8]) -> Option<http::request::Parts> {
    let mut lines = bytes.split(|b| *b == b'\n');
    let method = Method::from_bytes(lines.next()?).ok()?;
    let uri = Uri::try_from(lines.next()?).ok()?;
    let (mut parts, ()) = Request::new(()).into_parts();
    (parts.method, parts.uri) = (method, uri);
    for line in lines {
        let colon = line.iter().position(|b| *b == b':')?;
        // names in HTTP/2 are in lower case (RFC 9113 §8.2)
        let name = HeaderName::from_lowercase(&line[..colon]).ok()?;
        parts.headers.append(name, HeaderValue::from_bytes(&line[colon + 1..]).ok()?);
    }
    Some(parts)
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((response, _))) = read_response(bytes, LIMITS) {
        for tunnel in [false, true] {
            let Some(head) = response_head(&response, tunnel, ()) else { continue };
            assert_eq!(head.status().as_u16(), response.status);
            // RFC 9113 §8.2.2
            for name in
                ["connection", "transfer-encoding", "keep-alive", "upgrade", "proxy-connection"]
            {
                assert!(!head.headers().contains_key(name), "{name}");
            }
        }
    }
    let Some((ended, rest)) = bytes.split_first() else { return };
    let (ended, Some(parts)) = (ended % 2 == 0, parts(rest)) else { return };
    let Some((head, chunks)) = request_head(&parts, ended) else { return };
    assert!(!(ended && chunks));
    let Ok(read) = read_request(&head, LIMITS) else { return };
    let Some((request, used)) = read else {
        panic!("a head without an end: {:?}", String::from_utf8_lossy(&head))
    };
    assert_eq!(used, head.len(), "one head: {:?}", String::from_utf8_lossy(&head));
    assert_eq!(
        (request.method.as_str(), request.target.contains(' ')),
        (parts.method.as_str(), false)
    );
    // refused, or with the body that HTTP/2 delimits by its own frames
    if let Ok(framed) = body::of_request(&request) {
        match framed {
            Body::Chunked => assert!(chunks),
            Body::Length(_) => assert!(!chunks && parts.headers.contains_key("content-length")),
            Body::None => assert!(!chunks && !parts.headers.contains_key("content-length")),
            Body::UntilClose => panic!("of a request"),
        }
    }
});
