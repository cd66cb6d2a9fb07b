use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits { bytes: 1000, fields: 10 };

fn refused(text: &str) -> &'static str {
    read_request(text.as_bytes(), LIMITS).map(|r| r.map(|(r, _)| r.target)).unwrap_err().what
}

#[test]
fn reads_a_request_byte_by_byte() {
    let text = b"GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\nX-Empty:\r\n\r\n";
    for cut in 0..text.len() {
        assert_eq!(read_request(&text[..cut], LIMITS), Ok(None), "cut at {cut}");
    }
    let (request, used) = read_request(text, LIMITS).unwrap().unwrap();
    assert_eq!(
        (request.method.as_str(), request.target.as_str(), used),
        ("GET", "http://example.org/", text.len())
    );
    assert_eq!(request.fields[0], Field { name: "Host".into(), value: b"example.org".into() });
    assert_eq!(request.fields[1].value, b"");
    let with_empty_line = [b"\r\n", &text[..], b"body"].concat();
    assert_eq!(read_request(&with_empty_line, LIMITS).unwrap().unwrap().1, text.len() + 2);
    for cut in 0..text.len() {
        assert_eq!(read_request(&with_empty_line[..cut], LIMITS), Ok(None), "cut at {cut}");
    }
}

#[test]
fn refuses_what_others_read_differently() {
    for (text, why) in [
        ("GET / HTTP/1.1\nHost: a\n\n", "bare LF"),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n", "bare LF"),
        ("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", "CR without LF"),
        ("GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", "folded"),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", "folded"),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", "before its colon"),
        ("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", "NUL"),
        ("GET / HTTP/1.1\r\nHost: a\x01b\r\n\r\n", "not allowed"),
        ("GET / HTTP/1.1\r\n: a\r\n\r\n", "not a token"),
        ("GET  / HTTP/1.1\r\n\r\n", ""),
        ("GET /  HTTP/1.1\r\n\r\n", ""),
        ("GET /\r\n\r\n", ""),
        ("GET / HTTP/2.0\r\n\r\n", "neither HTTP/1.0"),
        ("GET / HTTP/1.1 \r\n\r\n", ""),
        ("head / HTTP/1.1\r\n\r\n", "in capitals"),
        ("Connect a:1 HTTP/1.1\r\n\r\n", "in capitals"),
        ("\x16\x03\x01", "TLS"),
        ("\u{7f}", "neither an HTTP request"),
    ] {
        let what = refused(text);
        assert!(what.contains(why), "{text:?}: {what}");
    }
}

#[test]
fn large_heads_get_431() {
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(11));
    assert_eq!(read_request(many.as_bytes(), LIMITS).unwrap_err().status, 431);
    let long = format!("GET / HTTP/1.1\r\nA: {}", "b".repeat(1000));
    assert_eq!(read_request(long.as_bytes(), LIMITS).unwrap_err().status, 431);
}

#[test]
fn long_methods_get_501() {
    let read = |length: usize| {
        let text = format!("{} http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", "M".repeat(length));
        let read = read_request(text.as_bytes(), LIMITS);
        read.map(|read| read.map(|(request, _)| request.method.len()))
    };
    assert_eq!(read(LONGEST_METHOD), Ok(Some(LONGEST_METHOD)));
    assert_eq!(read(LONGEST_METHOD + 1).unwrap_err().status, 501);
}

#[test]
fn reads_responses() {
    let (response, _) =
        read_response(b"HTTP/1.1 404 Not Found\r\nA: b\r\n\r\n", LIMITS).unwrap().unwrap();
    assert_eq!((response.status, &response.reason[..]), (404, &b"Not Found"[..]));
    let (response, _) = read_response(b"HTTP/1.0 200\r\n\r\n", LIMITS).unwrap().unwrap();
    assert_eq!((response.status, response.version), (200, Version::Http10));
    assert!(read_response(b"HTTP/1.1 099 x\r\n\r\n", LIMITS).is_err());
    assert!(read_response(b"ICY 200 OK\r\n\r\n", LIMITS).is_err());
    assert!(read_response(b"hello", LIMITS).is_err());
    assert_eq!(read_response(b"HTT", LIMITS), Ok(None));
}

proptest! {
    #[test]
    fn no_bytes_panic_and_lengths_hold(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let request = [b"GET / HTTP/1.1\r\n", &bytes[..]].concat();
        if let Ok(Some((_, used))) = read_request(&request, LIMITS) { prop_assert!(used <= request.len()); }
        let response = [b"HTTP/1.1 200 OK\r\n", &bytes[..]].concat();
        if let Ok(Some((_, used))) = read_response(&response, LIMITS) { prop_assert!(used <= response.len()); }
    }

    #[test]
    fn a_search_that_goes_on_finds_what_a_new_one_finds(
        text in proptest::collection::vec(
            prop_oneof![Just(b"a: b".to_vec()), Just(b"\r\n".to_vec()), Just(b"\r".to_vec()), Just(b"\n".to_vec()),
                Just(b" ".to_vec()), Just(b"\r\n\r\n".to_vec()), Just(vec![0])],
            0..12,
        ),
        cuts in proptest::collection::vec(0_usize..60, 0..8),
    ) {
        let text = [&b"GET http://a/ HTTP/1.1\r\n"[..], &text.concat()].concat();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.sort_unstable();
        cuts.push(text.len());
        let mut search = HeadSearch::default();
        for cut in cuts {
            let whole = read_request(&text[..cut], LIMITS);
            prop_assert_eq!(search.request(&text[..cut], LIMITS), whole.clone());
            if !matches!(whole, Ok(None)) {
                break;
            }
        }
    }

    #[test]
    fn the_memory_of_a_head_is_bounded_before_it_is_read(
        values in proptest::collection::vec("[ -~]{0,30}", 0..12),
        empty_line in any::<bool>(),
    ) {
        let fields: String = values.iter().map(|value| format!("X: {value}\r\n")).collect();
        let before = if empty_line { "\r\n" } else { "" };
        let text = format!("{before}GET http://a/ HTTP/1.1\r\n{fields}\r\n");
        let whole = HeadSearch::default().whole_request(text.as_bytes(), LIMITS).unwrap().unwrap();
        if let Ok((request, used)) = whole.request(text.as_bytes(), LIMITS) {
            prop_assert!(request.memory() <= whole.memory && used == text.len());
        }
        // a limit of fields is one of memory
        prop_assert!(whole.memory <= LIMITS.bytes + LIMITS.fields * FIELD);
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
        let whole = HeadSearch::default().whole_response(text.as_bytes(), LIMITS).unwrap().unwrap();
        if let Ok((response, used)) = whole.response(text.as_bytes(), LIMITS) {
            prop_assert!(response.memory() <= whole.memory && used == text.len());
        }
    }

    #[test]
    fn a_head_reads_the_same_however_it_arrives(value in "[ -~]{0,30}", cut in 0_usize..60) {
        let text = format!("GET http://a/ HTTP/1.1\r\nHost: a\r\nX: {value}\r\n\r\nrest");
        let whole = read_request(text.as_bytes(), LIMITS);
        let part = read_request(&text.as_bytes()[..cut.min(text.len())], LIMITS);
        prop_assert!(part == Ok(None) || part == whole);
    }
}
