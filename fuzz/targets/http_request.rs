//! A request head as a client sends it: whatever arrives, the answer is the same however it is cut,
//! and what is passed on reads back as what was meant.
#![no_main]

use ekiden_proxy::wire::http::head::{Limits, Version, read_request};
use ekiden_proxy::wire::http::target::{self, Target};
use ekiden_proxy::wire::http::{body, fields};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { bytes: 4096, fields: 32 };

fuzz_target!(|bytes: &[u8]| {
    let whole = read_request(bytes, LIMITS);
    for cut in [1, bytes.len() / 3, bytes.len() / 2, bytes.len().saturating_sub(1)] {
        let part = read_request(&bytes[..cut.min(bytes.len())], LIMITS);
        match (&part, &whole) {
            (Ok(None), _) => {}
            (Ok(_), _) => assert_eq!(part, whole, "cut at {cut}"),
            // what was refused early is not accepted later
            (Err(_), _) => assert!(whole.is_err(), "cut at {cut}: {part:?} and then {whole:?}"),
        }
    }
    let Ok(Some((request, used))) = whole else { return };
    assert!(used <= bytes.len() && used <= LIMITS.bytes + 2);
    assert!(request.fields.len() <= LIMITS.fields);
    assert!(bytes[..used].ends_with(b"\r\n\r\n"));
    // the bytes that could end a line for somebody else are in nothing that is written on
    let breaks = |b: &u8| matches!(b, b'\r' | b'\n' | 0);
    for field in &request.fields {
        assert!(!field.name.is_empty() && !field.value.iter().any(breaks));
    }
    // what is not framed without doubt is not passed on
    let Ok(framed) = body::of_request(&request) else { return };
    let _ = fields::keeps_alive(request.version, &request.fields);
    let _ = fields::via(&request.fields).count();
    let Ok(Target::Forward { authority, path, destination }) = target::of_request(&request) else {
        return;
    };
    assert!(path == "*" || path.starts_with('/'), "{path:?}");
    assert!(!path.bytes().any(|b| b <= b' ' || b == b'#'), "{path:?}");
    let Ok(kept) = fields::end_to_end(&request.fields) else { return };
    // the head as it goes on is read the same, with the same body
    let mut written = format!("{} {path} HTTP/1.1\r\n", request.method).into_bytes();
    fields::write_one(&mut written, "Host", authority.as_bytes());
    let others = kept.into_iter().filter(|f| !f.name.eq_ignore_ascii_case("host"));
    fields::write(&mut written, &others.collect::<Vec<_>>());
    if framed == body::Body::Chunked {
        fields::write_one(&mut written, "Transfer-Encoding", b"chunked");
    }
    written.extend(b"\r\n");
    let roomy = Limits { bytes: LIMITS.bytes * 2, fields: LIMITS.fields + 2 };
    let Ok(Some((again, length))) = read_request(&written, roomy) else {
        panic!("what is passed on is not read: {}", written.escape_ascii());
    };
    assert_eq!((length, again.version), (written.len(), Version::Http11));
    assert_eq!(body::of_request(&again), Ok(framed));
    let absolute = format!("http://{authority}/");
    let again = ekiden_proxy::wire::http::head::Request { target: absolute, ..again };
    match target::of_request(&again) {
        Ok(Target::Forward { destination: same, .. }) => assert_eq!(same, destination),
        other => panic!("{other:?}"),
    }
});
