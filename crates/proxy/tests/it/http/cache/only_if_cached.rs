//! Requests that only the cache may answer (RFC 9111 §5.2.1.7).

use super::{answer, ask, get, got, relay, relay_of, through};
use crate::common::wire::Origin;
use ekiden_model::units::Bytes;

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
    let relay = relay_of(|settings| {
        // less than the stored answer is long
        settings.budgets.memory = Bytes::kib(32);
    });
    let origin = Origin::new();
    let said = answer("200 OK", "Cache-Control: max-age=60\r\n", &"x".repeat(60_000));
    through(&relay, &origin, "GET", "/a", "", &said);
    relay.settles();
    let stored_or_nothing = "Cache-Control: only-if-cached\r\n";
    assert_eq!(got(get(&relay, &origin, "/a", stored_or_nothing)).status(), "504");
    assert!(origin.came().is_none());
    let (_, passed) = through(&relay, &origin, "GET", "/a", "", &answer("200 OK", "", "anew"));
    assert_eq!(passed.body, "anew");
    let status = relay.status().cache.unwrap();
    assert_eq!((status.hits, status.misses), (0, 2));
}
