//! Which responses are kept and used again, by what request and response say (RFC 9111 §3 and §4).

use super::{answer, get, got, relay, through};
use crate::common::wire::{Origin, field};
use std::time::Duration;

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
