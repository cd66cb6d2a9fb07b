//! What is stale is confirmed or replaced, and clients' own validators (RFC 9111 §4.3).

use super::{answer, ask, get, got, relay, through};
use crate::common::wire::{Origin, field};

#[test]
fn a_304_keeps_the_cached_response() {
    let (relay, origin) = (relay(), Origin::new());
    let stale = "Cache-Control: max-age=0\r\nETag: \"a\"\r\nX-Old: 1\r\nX-Both: 1\r\n";
    through(&relay, &origin, "GET", "/a", "", &answer("200 OK", stale, "body"));
    let fresh = "HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\nX-Both: 2\r\nConnection: close\r\n\r\n";
    let (head, got_it) = through(&relay, &origin, "GET", "/a", "", fresh);
    assert_eq!(field(&head, "if-none-match"), Some("\"a\""));
    assert_eq!((got_it.status(), got_it.body.as_str()), ("200", "body"));
    assert!(got_it.cache_status().contains("fwd=stale; fwd-status=304"), "{}", got_it.head);
    // what the 304 said holds from now on
    let again = got(get(&relay, &origin, "/a", ""));
    assert!(again.is_hit(), "{}", again.head);
    assert_eq!(field(&again.head, "x-both"), Some("2"));
    assert_eq!(field(&again.head, "x-old"), Some("1"));
    let status = relay.status().cache.unwrap();
    assert_eq!((status.hits, status.validated, status.stored), (1, 1, 1));
}

#[test]
fn a_304_without_validators_confirms_the_requested_response() {
    let (relay, origin) = (relay(), Origin::new());
    let stale = "Cache-Control: max-age=0\r\nETag: \"a\"\r\n";
    through(&relay, &origin, "GET", "/a", "", &answer("200 OK", stale, "body"));
    for (fields, body) in
        [("", "body"), ("ETag: \"b\"\r\n", "body"), ("Cache-Control: no-store\r\n", "body")]
    {
        let bare = format!("HTTP/1.1 304 -\r\n{fields}Connection: close\r\n\r\n");
        let (_, got_it) = through(&relay, &origin, "GET", "/a", "", &bare);
        assert_eq!((got_it.status(), got_it.body.as_str()), ("200", body), "{fields}");
    }
    // the last said that nothing is to be kept
    let (head, _) = through(&relay, &origin, "GET", "/a", "", &answer("200 OK", "", "new"));
    assert!(!head.contains("If-None-Match"), "{head}");
}

#[test]
fn a_changed_response_replaces_the_cached_one() {
    let (relay, origin) = (relay(), Origin::new());
    let said = |age: u32, tag: &str| format!("Cache-Control: max-age={age}\r\nETag: \"{tag}\"\r\n");
    through(&relay, &origin, "GET", "/a", "", &answer("200 OK", &said(0, "a"), "old"));
    let (_, new) =
        through(&relay, &origin, "GET", "/a", "", &answer("200 OK", &said(60, "b"), "new"));
    assert_eq!(new.body, "new");
    assert!(new.cache_status().contains("fwd=stale; fwd-status=200; stored"), "{}", new.head);
    assert_eq!(got(get(&relay, &origin, "/a", "")).body, "new");
}

#[test]
fn forwards_a_client_s_own_validators() {
    let (relay, origin) = (relay(), Origin::new());
    let said = "Cache-Control: max-age=60\r\nETag: \"a\"\r\n";
    through(&relay, &origin, "GET", "/a", "", &answer("200 OK", said, "body"));
    let same = got(get(&relay, &origin, "/a", "If-None-Match: \"a\"\r\n"));
    assert_eq!((same.status(), same.body.as_str()), ("304", ""));
    assert_eq!(field(&same.head, "etag"), Some("\"a\""));
    let other = got(get(&relay, &origin, "/a", "If-None-Match: \"b\"\r\n"));
    assert_eq!((other.status(), other.body.as_str()), ("200", "body"));
    // stale: its own question goes to the origin, and the answer is for it
    through(
        &relay,
        &origin,
        "GET",
        "/b",
        "",
        &answer("200 OK", "Cache-Control: max-age=0\r\nETag: \"a\"\r\n", "body"),
    );
    let not_modified =
        "HTTP/1.1 304 -\r\nCache-Control: max-age=60\r\nETag: \"a\"\r\nConnection: close\r\n\r\n";
    let (head, own) =
        through(&relay, &origin, "GET", "/b", "If-None-Match: \"x\", \"a\"\r\n", not_modified);
    assert_eq!(field(&head, "if-none-match"), Some("\"x\", \"a\""));
    assert_eq!(own.status(), "304");
    // and made what is stored fresh
    assert!(got(get(&relay, &origin, "/b", "")).is_hit());
}

#[test]
fn answers_head_from_a_cached_get() {
    let (relay, origin) = (relay(), Origin::new());
    through(
        &relay,
        &origin,
        "GET",
        "/a",
        "",
        &answer("200 OK", "Cache-Control: max-age=60\r\n", "body"),
    );
    let head = got(ask(&relay, "HEAD", &origin, "/a", ""));
    assert!(head.is_hit() && head.body.is_empty(), "{}", head.head);
    assert_eq!(field(&head.head, "content-length"), Some("4"));
    // the other way round there is nothing to answer with
    let no_body = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\nConnection: close\r\n\r\n";
    through(&relay, &origin, "HEAD", "/b", "", no_body);
    through(&relay, &origin, "GET", "/b", "", &answer("200 OK", "", "body"));
}
