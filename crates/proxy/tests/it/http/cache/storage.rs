//! What is stored: whole bodies, within limits, counted, hidden from clients that rules deny, kept on disk.

use super::{answer, ask, get, got, relay, relay_of, relay_with, through};
use crate::accounts_limits;
use crate::common::wait_until;
use crate::common::wire::{Origin, Relay, field, request};
use ekiden_model::units::{Bytes, Span};
use ekiden_proxy::settings::ExceededAction;

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
fn a_stored_body_does_not_wait_for_the_account_of_a_client_that_reset() {
    let limits = accounts_limits::quota(1 << 30, ExceededAction::Cut);
    let relay = accounts_limits::relay_with(limits, |settings| {
        settings.cache.memory = Some(Bytes::mib(16));
    });
    wait_until(|| relay.status().cache.unwrap().open, || "the cache does not open".to_owned());
    let origin = Origin::new();
    let kept = answer("200 OK", "Cache-Control: max-age=60\r\n", "body");
    through(&relay, &origin, "GET", "/a", "", &kept);
    relay.settles();
    // enough for the head of another request, and nothing for its answer until more is granted
    let asked = request("GET", &origin, "/a", "");
    let (down, up) = accounts_limits::of(&relay);
    let accounts = relay.server.as_ref().unwrap().handle().accounts();
    let until = down + up + asked.len() as u64;
    assert!(accounts.set_until("home", until, Span::from_secs(3_600), true));
    let mut client = relay.client();
    client.send(&asked);
    let waits = || relay.status().connections.iter().any(|one| one.waits.is_some());
    wait_until(waits, || format!("it does not wait: {:?}", relay.status().connections));
    client.reset();
    relay.settles();
}

/// A client that has it all may ask again at once.
#[test]
fn a_response_is_stored_before_its_last_bytes_are_sent() {
    let limits = accounts_limits::quota(1 << 30, ExceededAction::Cut);
    let relay = accounts_limits::relay_with(limits, |settings| {
        settings.cache.memory = Some(Bytes::mib(16));
    });
    wait_until(|| relay.status().cache.unwrap().open, || "the cache does not open".to_owned());
    let origin = Origin::new();
    let accounts = relay.server.as_ref().unwrap().handle().accounts();
    let body = "x".repeat(2_000);
    let whole = answer("200 OK", "Cache-Control: max-age=60\r\n", &body);
    let chunks = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n7D0\r\n{body}\r\n0\r\n\r\n"
    );
    let empty = answer("200 OK", "Cache-Control: max-age=60\r\n", "");
    for (nth, said) in [whole, chunks, empty].iter().enumerate() {
        let grant = |bytes: usize| {
            let (down, up) = accounts_limits::of(&relay);
            let until = down + up + bytes as u64;
            assert!(accounts.set_until("home", until, Span::from_secs(3_600), true));
        };
        grant(100_000);
        let client = get(&relay, &origin, &format!("/{nth}"), "");
        let mut server = origin.accept();
        server.head();
        // not enough for all, as the relay's own fields count as well
        grant(said.len() + 10);
        server.send(said);
        let state = || {
            let waits = relay.status().connections.iter().any(|one| one.waits.is_some());
            (waits, relay.status().cache.unwrap().stored)
        };
        wait_until(|| state() == (true, nth as u64 + 1), || format!("{:?}", state()));
        client.reset();
        relay.settles();
    }
}

#[test]
fn a_second_relay_in_the_same_folder_fails() {
    let folder = tempfile::tempdir().unwrap();
    let settings = || {
        let mut settings = ekiden_proxy::settings::Settings {
            listen: vec![([127, 0, 0, 1], 0).into()],
            ..Default::default()
        };
        settings.cache.memory = Some(Bytes::mib(32));
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
    let relay = relay_of(|settings| {
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
    let origin = Origin::new();
    let secret = answer("200 OK", "Cache-Control: max-age=60\r\n", "secret");
    // a connection that was reset does not know where it led
    for resets in [false, true] {
        let path = if resets { "/resets" } else { "/ends" };
        let client = get(&relay, &origin, path, "");
        let mut server = origin.accept();
        server.head();
        server.send(&secret);
        if resets {
            server.reset();
        } else {
            drop(server);
        }
        assert_eq!(got(client).body, "secret");
        let mut other = relay.client_at([127, 0, 0, 2]);
        other.send(request("GET", &origin, path, "Connection: close\r\n"));
        let refused = got(other);
        assert_eq!(refused.status(), "403", "{}", refused.head);
        assert!(!refused.body.contains("secret"));
        assert!(got(get(&relay, &origin, path, "")).is_hit());
    }
}

/// After the handshake, requests carry no credentials, and answers are for that user.
#[test]
fn answers_on_a_connection_that_a_user_authenticated_are_not_cached() {
    let (relay, origin) = (relay(), Origin::new());
    let said = "Cache-Control: max-age=60\r\n";
    through(&relay, &origin, "GET", "/b", "", &answer("200 OK", said, "of all"));
    let mut user = relay.client();
    user.send(request("GET", &origin, "/", "Authorization: NTLM TlRMTVNTUAAD\r\n"));
    let mut server = origin.accept();
    server.head();
    let ok = |body: &str| {
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\n{said}Content-Length: {length}\r\n\r\n{body}")
    };
    server.send(ok("hello"));
    user.until("hello");
    for (path, fields) in [("/a", ""), ("/b", "Cache-Control: no-cache\r\n")] {
        user.send(request("GET", &origin, path, fields));
        assert!(server.head().starts_with(&format!("GET {path} ")));
        server.send(ok("of one"));
        assert!(!user.until("of one").contains("stored"));
    }
    for path in ["/a", "/b"] {
        let (_, other) = through(&relay, &origin, "GET", path, "", &answer("200 OK", said, "new"));
        assert_eq!(other.body, "new", "{path}");
    }
}

#[test]
fn the_disk_cache_outlives_the_relay() {
    let folder = tempfile::tempdir().unwrap();
    let origin = Origin::new();
    let open = || {
        relay_with(|cache| {
            cache.memory = Some(Bytes::mib(32));
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
