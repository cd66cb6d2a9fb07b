//! A response head as a server sends it.
#![no_main]

use ekiden_proxy::wire::http::body::{self, Body};
use ekiden_proxy::wire::http::fields;
use ekiden_proxy::wire::http::head::{Limits, read_response};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { bytes: 4096, fields: 32 };

fuzz_target!(|bytes: &[u8]| {
    let whole = read_response(bytes, LIMITS);
    for cut in [1, bytes.len() / 3, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let part = read_response(&bytes[..cut.min(bytes.len())], LIMITS);
        match (&part, &whole) {
            (Ok(None), _) => {}
            (Ok(_), _) => assert_eq!(part, whole, "cut at {cut}"),
            (Err(_), _) => assert!(whole.is_err(), "cut at {cut}: {part:?} and then {whole:?}"),
        }
    }
    let Ok(Some((response, used))) = whole else { return };
    assert!(used <= bytes.len() && used <= LIMITS.bytes);
    assert!((100..=599).contains(&response.status));
    let framed = body::of_response("GET", &response);
    let to_head = body::of_response("HEAD", &response);
    assert_eq!(framed.is_ok(), to_head.is_ok(), "the method decides only whether there is a body");
    if let Ok(body) = to_head {
        assert_eq!(body, Body::None);
    }
    let Ok(kept) = fields::end_to_end(&response.fields) else { return };
    let mut written = format!("HTTP/1.1 {} ", response.status).into_bytes();
    written.extend(&response.reason);
    written.extend(b"\r\n");
    fields::write(&mut written, &kept);
    if framed == Ok(Body::Chunked) {
        fields::write_one(&mut written, "Transfer-Encoding", b"chunked");
    }
    written.extend(b"\r\n");
    let roomy = Limits { bytes: LIMITS.bytes * 2, fields: LIMITS.fields + 1 };
    let Ok(Some((again, length))) = read_response(&written, roomy) else {
        panic!("what is passed on is not read: {}", written.escape_ascii());
    };
    assert_eq!(
        (length, again.status, &again.reason),
        (written.len(), response.status, &response.reason)
    );
    if let Ok(framed) = framed {
        assert_eq!(body::of_response("GET", &again), Ok(framed));
    }
});
