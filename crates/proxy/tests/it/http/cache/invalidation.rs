//! Unsafe methods and newer responses remove what is stored (RFC 9111 §4.4).

use super::{answer, get, got, relay, through};
use crate::common::wire::Origin;

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
fn unsafe_methods_remove_what_their_answers_name() {
    for (field, url, gone) in [
        ("Location", "/b", true),
        ("Content-Location", "http://{o}/b", true),
        ("Location", "http://{o}/b#part", true),
        // another origin's, and none
        ("Location", "http://{o}.example/b", false),
        ("Content-Location", "//{o}/b", false),
    ] {
        let (relay, origin) = (relay(), Origin::new());
        let kept = answer("200 OK", "Cache-Control: max-age=60\r\n", "old");
        through(&relay, &origin, "GET", "/b", "", &kept);
        let named = format!("{field}: {}\r\n", url.replace("{o}", &origin.name));
        let created = answer("201 Created", &named, "");
        through(&relay, &origin, "POST", "/a", "Content-Length: 0\r\n", &created);
        if gone {
            let (_, new) = through(&relay, &origin, "GET", "/b", "", &answer("200 OK", "", "new"));
            assert_eq!(new.body, "new", "{field}: {url}");
        } else {
            assert!(got(get(&relay, &origin, "/b", "")).is_hit(), "{field}: {url}");
        }
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
fn an_answer_names_one_resource_by_each_field() {
    let (relay, origin) = (relay(), Origin::new());
    let kept = answer("200 OK", "Cache-Control: max-age=60\r\n", "old");
    for path in ["/b", "/c", "/d", "/e"] {
        through(&relay, &origin, "GET", path, "", &kept);
    }
    let fields = "Location: /b\r\nLocation: /c\r\nContent-Location: /d\r\nContent-Location: /e\r\n";
    let created = answer("201 Created", fields, "");
    through(&relay, &origin, "POST", "/a", "Content-Length: 0\r\n", &created);
    for path in ["/c", "/e"] {
        assert!(got(get(&relay, &origin, path, "")).is_hit(), "{path}");
    }
    for path in ["/b", "/d"] {
        let (_, new) = through(&relay, &origin, "GET", path, "", &answer("200 OK", "", "new"));
        assert_eq!(new.body, "new", "{path}");
    }
}

#[test]
fn changes_at_one_origin_keep_nothing_of_another_from_being_stored() {
    let (relay, origin, other) = (relay(), Origin::new(), Origin::new());
    let slow = get(&relay, &origin, "/a", "");
    let mut server = origin.accept();
    server.head();
    for n in 0..80 {
        let fields: String = (0..90).map(|m| format!("Location: /{n}/{m}\r\n")).collect();
        let path = format!("/{n}");
        let created = answer("201 Created", &fields, "");
        let (_, made) = through(&relay, &other, "POST", &path, "Content-Length: 0\r\n", &created);
        assert_eq!(made.status(), "201");
    }
    server.send(answer("200 OK", "Cache-Control: max-age=60\r\n", "kept"));
    drop(server);
    assert_eq!(got(slow).body, "kept");
    assert!(got(get(&relay, &origin, "/a", "")).is_hit());
}

#[test]
fn wishes_of_one_client_take_nothing_from_others() {
    let (relay, origin) = (relay(), Origin::new());
    let kept = "Cache-Control: max-age=60\r\nETag: \"a\"\r\n";
    through(&relay, &origin, "GET", "/a", "", &answer("200 OK", kept, "body"));
    let newer = answer("200 OK", kept, "newer");
    let wants = "Cache-Control: no-cache, no-store\r\n";
    for (method, wants, said) in [
        ("HEAD", "Cache-Control: no-cache\r\n", answer("200 OK", "ETag: \"b\"\r\n", "")),
        ("GET", "Cache-Control: no-cache\r\n", answer("500 No", "", "sorry")),
        ("GET", wants, answer("304 Not Modified", kept, "")),
        ("GET", wants, newer),
    ] {
        through(&relay, &origin, method, "/a", wants, &said);
        let again = got(get(&relay, &origin, "/a", ""));
        assert!(again.is_hit() && again.body == "body", "{method} {said}: {}", again.head);
    }
}
