//! The cache beside what RFC 9111 asks, case by case after the ideas of the public suite
//! (github.com/http-tests/cache-tests): an origin says something, a second request follows, and either it
//! comes to the origin, or it does not, or the origin is asked whether what is stored is still true.
use crate::common::wire::{Origin, Relay, Wire, field, request};
use ekiden_model::units::Bytes;
use std::io::Write as _;
use std::time::{Duration, Instant};

fn relay() -> Relay {
    relay_with(|_| {})
}

fn relay_with(edit: impl FnOnce(&mut ekiden_proxy::settings::Cache)) -> Relay {
    let relay = Relay::with(|settings| {
        settings.cache.memory = Some(Bytes::mib(16));
        edit(&mut settings.cache);
    });
    let begun = Instant::now();
    while !relay.status().cache.unwrap().open {
        assert!(begun.elapsed() < crate::common::wire::PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
    relay
}

/// What the client got.
struct Got {
    head: String,
    body: String,
}

impl Got {
    fn status(&self) -> &str {
        &self.head[9..12]
    }

    fn cache_status(&self) -> &str {
        field(&self.head, "cache-status").unwrap_or_default()
    }

    fn is_hit(&self) -> bool {
        self.cache_status().ends_with("\"relay-under-test\"; hit")
            || self.cache_status().contains("\"relay-under-test\"; hit;")
    }
}

fn get(relay: &Relay, origin: &Origin, path: &str, fields: &str) -> Wire {
    ask(relay, "GET", origin, path, fields)
}

fn ask(relay: &Relay, method: &str, origin: &Origin, path: &str, fields: &str) -> Wire {
    let mut client = relay.client();
    client.send(request(method, origin, path, &format!("Connection: close\r\n{fields}")));
    client
}

fn got(mut client: Wire) -> Got {
    let head = client.head();
    Got { body: client.until_end(), head }
}

/// An origin's answer, its connection closed afterwards.
fn answer(status: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// One request that comes to the origin; its head there, and what the client got.
fn through(
    relay: &Relay,
    origin: &Origin,
    method: &str,
    path: &str,
    fields: &str,
    said: &str,
) -> (String, Got) {
    let client = ask(relay, method, origin, path, fields);
    let mut server = origin.accept();
    let head = server.head();
    server.send(said);
    drop(server);
    (head, got(client))
}

/// The status of the second answer: where it came from.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Then {
    /// The cache.
    Hit,
    /// The origin, which is asked as if nothing were stored.
    Miss,
    /// The origin, which is asked whether it is still true.
    Asked,
}
use Then::{Asked, Hit, Miss};

/// Its name; the first answer's status, the first request's fields and the answer's; the second request's
/// fields; and what it comes to.
type Case<'a> = (&'a str, (&'a str, &'a str, &'a str), &'a str, Then);

/// A date so many seconds from now.
fn date(seconds: i64) -> String {
    let now = std::time::SystemTime::now();
    let then = match seconds {
        0.. => now + Duration::from_secs(seconds.unsigned_abs()),
        _ => now - Duration::from_secs(seconds.unsigned_abs()),
    };
    httpdate::fmt_http_date(then)
}

fn check(name: &str, first: (&str, &str, &str), second: &str, then: Then) {
    let (relay, origin) = (relay(), Origin::new());
    let (status, asked, said) = first;
    let (head, one) = through(&relay, &origin, "GET", "/a", asked, &answer(status, said, "first"));
    assert!(!head.contains("If-None-Match: \"") || asked.contains("If-None-Match"), "{name}");
    assert_eq!(one.body, "first", "{name}");
    let client = get(&relay, &origin, "/a", second);
    if then == Hit {
        let two = got(client);
        assert_eq!(
            (two.status(), two.body.as_str()),
            (one.status(), "first"),
            "{name}: {}",
            two.head
        );
        assert!(two.is_hit() && field(&two.head, "age").is_some(), "{name}: {}", two.head);
        assert!(origin.came().is_none(), "{name}");
        return;
    }
    let mut server = origin.accept();
    let head = server.head();
    let asks = head.contains("If-None-Match:") || head.contains("If-Modified-Since:");
    assert_eq!(asks, then == Asked, "{name}: {head}");
    server.send(answer("200 OK", "", "second"));
    drop(server);
    let two = got(client);
    assert_eq!(two.body, "second", "{name}: {}", two.head);
    assert!(!two.is_hit(), "{name}: {}", two.head);
}

#[test]
fn caches_and_reuses_responses() {
    let dated = |seconds: i64, more: &str| format!("Date: {}\r\n{more}", date(seconds));
    let expires = |seconds: i64| dated(0, &format!("Expires: {}\r\n", date(seconds)));
    let modified =
        |ago: i64, more: &str| dated(0, &format!("Last-Modified: {}\r\n{more}", date(-ago)));
    let ok = "200 OK";
    let cases: &[Case<'_>] = &[
        // freshness
        ("max-age", (ok, "", "Cache-Control: max-age=60\r\n"), "", Hit),
        ("max-age=0", (ok, "", "Cache-Control: max-age=0\r\n"), "", Miss),
        ("s-maxage over max-age", (ok, "", "Cache-Control: s-maxage=60, max-age=0\r\n"), "", Hit),
        (
            "max-age over Expires",
            (ok, "", &format!("Cache-Control: max-age=60\r\n{}", expires(-60))),
            "",
            Hit,
        ),
        ("Expires in the future", (ok, "", &expires(60)), "", Hit),
        ("Expires in the past", (ok, "", &expires(-60)), "", Miss),
        ("Expires: 0", (ok, "", "Expires: 0\r\n"), "", Miss),
        ("Age beyond max-age", (ok, "", "Cache-Control: max-age=60\r\nAge: 61\r\n"), "", Miss),
        ("Date long ago", (ok, "", &dated(-120, "Cache-Control: max-age=60\r\n")), "", Miss),
        ("heuristic, changed long ago", (ok, "", &modified(86_400, "")), "", Hit),
        ("no word of freshness", (ok, "", ""), "", Miss),
        (
            "two max-ages",
            (ok, "", "Cache-Control: max-age=60\r\nCache-Control: max-age=60\r\n"),
            "",
            Hit,
        ),
        // directives of responses
        ("no-store", (ok, "", "Cache-Control: no-store, max-age=60\r\n"), "", Miss),
        ("NO-STORE", (ok, "", "Cache-Control: NO-STORE, max-age=60\r\n"), "", Miss),
        ("private", (ok, "", "Cache-Control: private, max-age=60\r\n"), "", Miss),
        (
            "no-cache with a tag",
            (ok, "", "Cache-Control: no-cache, max-age=60\r\nETag: \"a\"\r\n"),
            "",
            Asked,
        ),
        ("Set-Cookie", (ok, "", "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n"), "", Miss),
        ("Pragma: no-cache", (ok, "", "Pragma: no-cache\r\nExpires: 0\r\n"), "", Miss),
        // statuses
        ("404", ("404 Not Found", "", "Cache-Control: max-age=60\r\n"), "", Hit),
        ("301", ("301 Moved", "", "Cache-Control: max-age=60\r\nLocation: /b\r\n"), "", Hit),
        (
            "302 with max-age",
            ("302 Found", "", "Cache-Control: max-age=60\r\nLocation: /b\r\n"),
            "",
            Hit,
        ),
        ("500", ("500 No", "", "Cache-Control: max-age=60\r\n"), "", Miss),
        ("599", ("599 Odd", "", "Cache-Control: max-age=60\r\n"), "", Miss),
        // requests
        (
            "request no-cache",
            (ok, "", "Cache-Control: max-age=60\r\nETag: \"a\"\r\n"),
            "Cache-Control: no-cache\r\n",
            Asked,
        ),
        ("request Pragma", (ok, "", "Cache-Control: max-age=60\r\n"), "Pragma: no-cache\r\n", Miss),
        (
            "request max-age=0",
            (ok, "", "Cache-Control: max-age=60\r\nAge: 5\r\nETag: \"a\"\r\n"),
            "Cache-Control: max-age=0\r\n",
            Asked,
        ),
        (
            "request min-fresh",
            (ok, "", "Cache-Control: max-age=60\r\n"),
            "Cache-Control: min-fresh=100\r\n",
            Miss,
        ),
        (
            "request max-stale",
            (ok, "", "Cache-Control: max-age=0\r\nETag: \"a\"\r\n"),
            "Cache-Control: max-stale=60\r\n",
            Asked,
        ),
        (
            "request NO-CACHE beside max-stale",
            (ok, "", "Cache-Control: max-age=60\r\nETag: \"a\"\r\n"),
            "Cache-Control: NO-CACHE, max-stale=60\r\n",
            Asked,
        ),
        (
            "an odd byte beside no-store",
            (ok, "", "Cache-Control: no-store, max-age=60, x=\"\u{e9}\"\r\n"),
            "",
            Miss,
        ),
        ("immutable, expired", (ok, "", "Cache-Control: immutable\r\nExpires: 0\r\n"), "", Miss),
        (
            "Vary by what Connection names",
            (
                ok,
                "Connection: accept\r\nAccept: x\r\n",
                "Cache-Control: max-age=60\r\nVary: Accept\r\n",
            ),
            "Accept: x\r\n",
            Miss,
        ),
        (
            "max-stale, must-revalidate",
            (ok, "", "Cache-Control: max-age=0, must-revalidate\r\nETag: \"a\"\r\n"),
            "Cache-Control: max-stale=60\r\n",
            Asked,
        ),
        (
            "request no-store",
            (ok, "Cache-Control: no-store\r\n", "Cache-Control: max-age=60\r\n"),
            "",
            Miss,
        ),
        (
            "credentials the first time",
            (ok, "Authorization: Basic eDp5\r\n", "Cache-Control: max-age=60, public\r\n"),
            "",
            Miss,
        ),
        (
            "credentials the second time",
            (ok, "", "Cache-Control: max-age=60, public\r\n"),
            "Authorization: Basic eDp5\r\n",
            Miss,
        ),
        (
            "a cookie the first time",
            (ok, "Cookie: a=b\r\n", "Cache-Control: max-age=60\r\n"),
            "",
            Miss,
        ),
        (
            "a cookie the second time",
            (ok, "", "Cache-Control: max-age=60\r\n"),
            "Cookie: a=b\r\n",
            Miss,
        ),
        (
            "a part is the origin's",
            (ok, "", "Cache-Control: max-age=60\r\n"),
            "Range: bytes=0-1\r\n",
            Miss,
        ),
        // validators
        ("stale with a tag", (ok, "", "Cache-Control: max-age=0\r\nETag: \"a\"\r\n"), "", Asked),
        (
            "stale with a weak tag",
            (ok, "", "Cache-Control: max-age=0\r\nETag: W/\"a\"\r\n"),
            "",
            Asked,
        ),
        ("stale with a date", (ok, "", &modified(60, "Cache-Control: max-age=0\r\n")), "", Asked),
        // Vary
        (
            "Vary, the same",
            (ok, "Accept: x\r\n", "Cache-Control: max-age=60\r\nVary: Accept\r\n"),
            "Accept: x\r\n",
            Hit,
        ),
        (
            "Vary, another",
            (ok, "Accept: x\r\n", "Cache-Control: max-age=60\r\nVary: Accept\r\n"),
            "Accept: y\r\n",
            Miss,
        ),
        (
            "Vary, none now",
            (ok, "Accept: x\r\n", "Cache-Control: max-age=60\r\nVary: accept\r\n"),
            "",
            Miss,
        ),
        (
            "Vary, none both times",
            (ok, "", "Cache-Control: max-age=60\r\nVary: Accept\r\n"),
            "",
            Hit,
        ),
        (
            "Vary, two fields",
            (ok, "A: 1\r\nB: 2\r\n", "Cache-Control: max-age=60\r\nVary: B, A\r\n"),
            "B: 2\r\nA: 1\r\n",
            Hit,
        ),
        (
            "Vary, one of two",
            (ok, "A: 1\r\nB: 2\r\n", "Cache-Control: max-age=60\r\nVary: A\r\nVary: B\r\n"),
            "A: 1\r\n",
            Miss,
        ),
        (
            "Vary, lines joined",
            (ok, "A: 1\r\nA: 2\r\n", "Cache-Control: max-age=60\r\nVary: A\r\n"),
            "A: 1, 2\r\n",
            Hit,
        ),
        ("Vary: *", (ok, "", "Cache-Control: max-age=60\r\nVary: *\r\n"), "", Miss),
    ];
    for (name, first, second, then) in cases {
        check(name, *first, second, *then);
    }
}

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

#[test]
fn unsafe_methods_remove_cached_responses() {
    for (method, status, gone) in [
        ("POST", "200 OK", true),
        ("DELETE", "204 -", true),
        ("PUT", "303 -", true),
        ("POST", "500 No", false),
        ("OPTIONS", "200 OK", false),
    ] {
        let (relay, origin) = (relay(), Origin::new());
        let said = "Cache-Control: max-age=60\r\nVary: Accept\r\n";
        through(&relay, &origin, "GET", "/a", "Accept: x\r\n", &answer("200 OK", said, "x"));
        through(&relay, &origin, "GET", "/a", "Accept: y\r\n", &answer("200 OK", said, "y"));
        let end = "Connection: close\r\n\r\n";
        let answer_to_it = format!(
            "HTTP/1.1 {status}\r\n{}{end}",
            if status.starts_with("204") { "" } else { "Content-Length: 0\r\n" }
        );
        let (_, changed) =
            through(&relay, &origin, method, "/a", "Content-Length: 0\r\n", &answer_to_it);
        assert!(changed.cache_status().contains("fwd=method"), "{}", changed.head);
        if !gone {
            assert!(got(get(&relay, &origin, "/a", "Accept: x\r\n")).is_hit(), "{method} {status}");
            continue;
        }
        through(&relay, &origin, "GET", "/a", "Accept: x\r\n", &answer("200 OK", said, "new x"));
        // a variant from before is not found again
        let (_, y) = through(
            &relay,
            &origin,
            "GET",
            "/a",
            "Accept: y\r\n",
            &answer("200 OK", said, "new y"),
        );
        assert_eq!(y.body, "new y", "{method} {status}");
        assert_eq!(got(get(&relay, &origin, "/a", "Accept: x\r\n")).body, "new x");
    }
}

#[test]
fn does_not_cache_responses_requested_before_a_change() {
    let (relay, origin) = (relay(), Origin::new());
    let slow = get(&relay, &origin, "/a", "");
    let mut server = origin.accept();
    server.head();
    let posted =
        through(&relay, &origin, "POST", "/a", "Content-Length: 0\r\n", &answer("200 OK", "", ""));
    assert_eq!(posted.1.status(), "200");
    server.send(answer("200 OK", "Cache-Control: max-age=60\r\n", "old"));
    drop(server);
    assert_eq!(got(slow).body, "old");
    through(&relay, &origin, "GET", "/a", "", &answer("200 OK", "", "new"));
}

#[test]
fn a_newer_uncacheable_response_removes_the_older() {
    let (relay, origin) = (relay(), Origin::new());
    let kept = answer("200 OK", "Cache-Control: max-age=60\r\n", "old");
    through(&relay, &origin, "GET", "/a", "", &kept);
    let newer = answer("200 OK", "Cache-Control: no-store\r\n", "new");
    through(&relay, &origin, "GET", "/a", "Cache-Control: no-cache\r\n", &newer);
    through(&relay, &origin, "GET", "/a", "", &answer("200 OK", "", "newest"));
}

#[test]
fn only_if_cached() {
    let (relay, origin) = (relay(), Origin::new());
    let nothing = got(get(&relay, &origin, "/a", "Cache-Control: only-if-cached\r\n"));
    assert_eq!(nothing.status(), "504");
    assert!(origin.came().is_none());
    through(
        &relay,
        &origin,
        "GET",
        "/a",
        "",
        &answer("200 OK", "Cache-Control: max-age=60\r\n", "body"),
    );
    assert_eq!(got(get(&relay, &origin, "/a", "Cache-Control: only-if-cached\r\n")).body, "body");
    // what the cache leaves alone is not sent on either
    for (method, fields) in [
        ("GET", "Cookie: a=b\r\n"),
        ("GET", "Authorization: Basic eDp5\r\n"),
        ("GET", "Range: bytes=0-1\r\n"),
        ("GET", "If-Match: \"a\"\r\n"),
        ("POST", "Content-Length: 0\r\n"),
        ("OPTIONS", ""),
    ] {
        let fields = format!("Cache-Control: only-if-cached\r\n{fields}");
        assert_eq!(got(ask(&relay, method, &origin, "/a", &fields)).status(), "504", "{fields}");
        assert!(origin.came().is_none(), "{fields}");
    }
}

#[test]
fn only_if_cached_without_memory_to_send_it_from() {
    let relay = Relay::with(|settings| {
        settings.cache.memory = Some(Bytes::mib(16));
        settings.budgets.memory = Bytes::kib(64);
        settings.relay.copy_mode = ekiden_proxy::settings::CopyMode::Copy;
    });
    let begun = Instant::now();
    while !relay.status().cache.unwrap().open {
        assert!(begun.elapsed() < crate::common::wire::PATIENCE);
    }
    let origin = Origin::new();
    let said = answer("200 OK", "Cache-Control: max-age=60\r\n", &"x".repeat(60_000));
    through(&relay, &origin, "GET", "/a", "", &said);
    relay.settles();
    // clients that take nothing of what is sent to them; the rest of a read waits in that memory, and
    // its size is the kernel's matter
    let (server, mut held) = (Origin::new(), Vec::new());
    while relay.status().budgets[2].used < 6_000 {
        assert!(held.len() < 50, "{:?}", relay.status().budgets[2]);
        let mut slow = relay.client();
        slow.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", server.name));
        let mut flood = server.accept();
        slow.head();
        flood.stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        while flood.stream.write(&[7; 65_536]).is_ok() {}
        held.push((slow, flood));
    }
    let stored_or_nothing = "Cache-Control: only-if-cached\r\n";
    assert_eq!(got(get(&relay, &origin, "/a", stored_or_nothing)).status(), "504");
    assert!(origin.came().is_none());
    let (_, passed) = through(&relay, &origin, "GET", "/a", "", &answer("200 OK", "", "anew"));
    assert_eq!(passed.body, "anew");
    let status = relay.status().cache.unwrap();
    assert_eq!((status.hits, status.misses), (0, 2));
}

#[test]
fn the_status_counts_cache_events() {
    let (relay, origin) = (relay(), Origin::new());
    let kept = "Cache-Control: max-age=60\r\nETag: \"a\"\r\n";
    through(&relay, &origin, "GET", "/a", "", &answer("200 OK", kept, "body"));
    let counts = || {
        let status = relay.status().cache.unwrap();
        (status.hits, status.misses, status.bytes, status.stored, status.removed)
    };
    assert_eq!(counts(), (0, 1, 0, 1, 0));
    // neither has a body
    got(ask(&relay, "HEAD", &origin, "/a", ""));
    assert_eq!(got(get(&relay, &origin, "/a", "If-None-Match: \"a\"\r\n")).status(), "304");
    assert_eq!(counts(), (2, 1, 0, 1, 0));
    got(get(&relay, &origin, "/a", ""));
    assert_eq!(counts(), (3, 1, 4, 1, 0));
    // there is nothing to take away under this name, and something under that
    let posted = answer("200 OK", "", "");
    through(&relay, &origin, "POST", "/b", "Content-Length: 0\r\n", &posted);
    assert_eq!(counts(), (3, 1, 4, 1, 0));
    through(&relay, &origin, "POST", "/a", "Content-Length: 0\r\n", &posted);
    assert_eq!(counts(), (3, 1, 4, 1, 1));
    // a newer one that is not kept takes the older away, and so does a 304 that says so
    through(&relay, &origin, "GET", "/a", "", &answer("200 OK", kept, "body"));
    let newer = answer("200 OK", "Cache-Control: no-store\r\n", "new");
    through(&relay, &origin, "GET", "/a", "Cache-Control: no-cache\r\n", &newer);
    assert_eq!(counts(), (3, 3, 4, 2, 2));
}

#[test]
fn a_second_relay_in_the_same_folder_fails() {
    let folder = tempfile::tempdir().unwrap();
    let settings = || {
        let mut settings = ekiden_proxy::settings::Settings {
            listen: vec![([127, 0, 0, 1], 0).into()],
            ..Default::default()
        };
        settings.cache.memory = Some(Bytes::mib(1));
        settings.cache.disk = Some(Bytes::mib(64));
        settings.cache.directory = Some(folder.path().to_owned());
        std::sync::Arc::new(settings)
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _in_it = runtime.enter();
    let first = ekiden_proxy::Server::start(settings()).unwrap();
    // the first keeps it, also when it is told to begin anew
    first.reload(settings()).unwrap();
    let why = ekiden_proxy::Server::start(settings()).unwrap_err().to_string();
    assert!(why.contains("as its cache") && why.contains("cache.directory"), "{why}");
}

#[test]
fn caches_chunked_bodies_plain_but_not_broken_ones() {
    let (relay, origin) = (relay(), Origin::new());
    let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    let whole = format!("{head}5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nX-Trailer: 1\r\n\r\n");
    through(&relay, &origin, "GET", "/a", "", &whole);
    let again = got(get(&relay, &origin, "/a", ""));
    assert_eq!(
        (again.body.as_str(), field(&again.head, "content-length")),
        ("hello world", Some("11"))
    );
    assert!(field(&again.head, "transfer-encoding").is_none());
    // the origin's connection ends within: nobody may get that for the whole
    for cut in [
        format!("{head}5\r\nhel"),
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\nhel".to_owned(),
    ] {
        let mut client = get(&relay, &origin, "/cut", "");
        let mut server = origin.accept();
        server.head();
        server.send(cut);
        drop(server);
        client.head();
        let _ = client.rest();
        relay.settles();
    }
    through(&relay, &origin, "GET", "/cut", "", &answer("200 OK", "", "whole"));
    // up to the end of the connection: whether it is all nobody knows
    through(
        &relay,
        &origin,
        "GET",
        "/close",
        "",
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\r\nbody",
    );
    through(&relay, &origin, "GET", "/close", "", &answer("200 OK", "", "again"));
}

#[test]
fn caches_no_large_body_and_bounds_memory() {
    let relay = relay_with(|cache| {
        cache.memory = Some(Bytes::mib(1));
        cache.largest = Bytes::kib(200);
    });
    let origin = Origin::new();
    let large = "x".repeat(201 * 1024);
    let said = "Cache-Control: max-age=60\r\n";
    let (_, got_it) =
        through(&relay, &origin, "GET", "/large", "", &answer("200 OK", said, &large));
    assert_eq!(got_it.body.len(), large.len());
    assert!(!got_it.cache_status().contains("stored"), "{}", got_it.head);
    assert_eq!(relay.status().cache.unwrap().stored, 0);
    let medium = "x".repeat(150 * 1024);
    for n in 0..20 {
        through(&relay, &origin, "GET", &format!("/{n}"), "", &answer("200 OK", said, &medium));
        assert!(relay.status().cache.unwrap().memory <= 1 << 20);
    }
    assert_eq!(relay.status().cache.unwrap().stored, 20);
    // on its way into the cache a body counts against the budget, and is given back
    relay.settles();
    assert_eq!(relay.status().budgets[2].used, 0);
}

#[test]
fn hides_cached_responses_from_clients_that_the_rules_deny() {
    // the same relay for two clients on loopback, of which the second may not reach the origin's address
    let relay = Relay::with(|settings| {
        settings.cache.memory = Some(Bytes::mib(16));
        let rule = |from: &str, to: &[&str], allow| ekiden_proxy::settings::Rule {
            from: vec![from.parse().unwrap()],
            peers: Vec::new(),
            to: to
                .iter()
                .map(|net| ekiden_proxy::settings::Pattern {
                    host: ekiden_proxy::settings::HostPattern::Net(net.parse().unwrap()),
                    ports: None,
                })
                .collect(),
            allow,
            allow_destinations: Vec::new(),
        };
        settings.access.rules =
            vec![rule("127.0.0.2/32", &["127.0.0.0/8"], false), rule("127.0.0.0/8", &[], true)];
    });
    let begun = Instant::now();
    while !relay.status().cache.unwrap().open {
        assert!(begun.elapsed() < crate::common::wire::PATIENCE);
    }
    let origin = Origin::new();
    through(
        &relay,
        &origin,
        "GET",
        "/a",
        "",
        &answer("200 OK", "Cache-Control: max-age=60\r\n", "secret"),
    );
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    socket.connect(&relay.address.into()).unwrap();
    let mut other = Wire::new(socket.into());
    other.send(request("GET", &origin, "/a", "Connection: close\r\n"));
    let refused = got(other);
    assert_eq!(refused.status(), "403", "{}", refused.head);
    assert!(!refused.body.contains("secret"));
    assert!(got(get(&relay, &origin, "/a", "")).is_hit());
}

#[test]
fn the_disk_cache_outlives_the_relay() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::new();
    let open = || {
        relay_with(|cache| {
            cache.memory = Some(Bytes::mib(1));
            cache.disk = Some(Bytes::mib(64));
            cache.directory = Some(folder.path().join("cache"));
        })
    };
    let mut relay = open();
    let said = "Cache-Control: max-age=60\r\nETag: \"a\"\r\nX-Odd: caf\u{e9}\r\n";
    through(&relay, &origin, "GET", "/a", "", &answer("200 OK", said, "kept"));
    through(&relay, &origin, "GET", "/b", "", &answer("200 OK", said, "taken away"));
    through(&relay, &origin, "POST", "/b", "Content-Length: 0\r\n", &answer("200 OK", "", ""));
    relay.begin_stop().join().unwrap();
    drop(relay);
    let relay = open();
    let again = got(get(&relay, &origin, "/a", ""));
    assert!(again.is_hit() && again.body == "kept", "{}", again.head);
    through(&relay, &origin, "GET", "/b", "", &answer("200 OK", "", "new"));
}

#[test]
fn without_memory_nothing_is_cached() {
    let (relay, origin) = (Relay::new(), Origin::new());
    for _ in 0..2 {
        let said = answer("200 OK", "Cache-Control: max-age=60\r\n", "body");
        let (_, got_it) = through(&relay, &origin, "GET", "/a", "", &said);
        assert_eq!(got_it.cache_status(), "");
    }
    assert!(relay.status().cache.is_none());
}
