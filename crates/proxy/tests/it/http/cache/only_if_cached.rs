//! Requests that only the cache may answer (RFC 9111 §5.2.1.7).

use super::{answer, ask, get, got, relay, relay_of, through};
use crate::common::wire::Origin;
use ekiden_model::units::Bytes;
use std::io::Write as _;
use std::time::Duration;

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
        settings.budgets.memory = Bytes::kib(64);
        settings.relay.copy_mode = ekiden_proxy::settings::CopyMode::Copy;
    });
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
