//! The operator's page by its calls: sessions, forged and guessed requests, what it tells and what it changes.

use super::{Answer, CONFIG, Managed};
use crate::daemons::free_port;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ekiden_testkit::{PATIENCE, eventually, wait_for};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// What a browser keeps of a log-in.
struct Session {
    cookie: String,
    key: String,
}

impl Session {
    fn fields(&self) -> String {
        format!("Cookie: ekiden_session={}\r\nX-Ekiden-Key: {}\r\n", self.cookie, self.key)
    }
}

impl Managed {
    /// With these fields and a document.
    fn send(&self, method: &str, path: &str, fields: &str, document: &Value) -> Answer {
        let body = document.to_string();
        self.say(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{fields}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        ))
    }

    fn try_log_in(&self, fields: &str, token: &str) -> Answer {
        self.send("POST", "/page/session", fields, &json!({ "token": token }))
    }

    fn log_in(&self) -> Session {
        let answer = self.try_log_in("", &self.token());
        assert_eq!(answer.0, 200, "{}", answer.2);
        let cookie = answer.1.split("ekiden_session=").nth(1).unwrap();
        let (cookie, rest) = cookie.split_once(';').unwrap();
        let rest = rest.lines().next().unwrap();
        assert!(rest.contains("HttpOnly") && rest.contains("SameSite=Strict"), "{rest}");
        let key = answer.json()["key"].as_str().unwrap().to_owned();
        Session { cookie: cookie.to_owned(), key }
    }

    /// A document that a session may read.
    fn read(&self, session: &Session, path: &str) -> Value {
        let answer = self.ask("GET", path, &session.fields());
        assert_eq!(answer.0, 200, "{path}: {}", answer.2);
        answer.json()
    }
}

#[test]
fn a_session_needs_its_cookie_its_key_and_the_token_that_opened_it() {
    let daemon = Managed::start(CONFIG);
    let one = daemon.log_in();
    let two = daemon.log_in();
    assert!(one.cookie != two.cookie && one.cookie != one.key && one.cookie.len() == 64);
    let status = |fields: &str| daemon.ask("GET", "/page/configuration", fields).0;
    assert_eq!(status(&one.fields()), 200);
    // the API, too
    assert_eq!(daemon.ask("GET", "/api/v1/relays", &one.fields()).0, 200);
    let mixed = Session { cookie: one.cookie.clone(), key: two.key.clone() };
    for (fields, what) in [
        (String::new(), "nothing"),
        (format!("Cookie: ekiden_session={}\r\n", one.cookie), "the cookie alone"),
        (format!("X-Ekiden-Key: {}\r\n", one.key), "the key alone"),
        (mixed.fields(), "another session's key"),
        (format!("{}Sec-Fetch-Site: same-site\r\n", one.fields()), "another port's page"),
        (format!("{}Sec-Fetch-Site: cross-site\r\n", one.fields()), "another site's page"),
    ] {
        assert_eq!(status(&fields), 401, "{what}");
    }
    // a page of another port of this host may add cookies: the one whose session has the key counts
    for more in ["x", two.cookie.as_str(), one.cookie.as_str()] {
        let more = format!("Cookie: ekiden_session=planted; ekiden_session={more}\r\n");
        assert_eq!(status(&format!("{more}{}", one.fields())), 200, "{more}");
    }
    for field in ["Origin: http://evil.example\r\n", "Host: evil.example\r\n"] {
        assert_eq!(status(&format!("{}{field}", one.fields())), 403, "{field}");
        assert_eq!(daemon.try_log_in(field, &daemon.token()).0, 403, "{field}");
    }
    // whoever plants a cookie has not the one of the log-in, and the old one ends
    let planted = format!("Cookie: ekiden_session={}\r\n", two.cookie);
    let fixed = daemon.try_log_in(&planted, &daemon.token());
    assert!(fixed.0 == 200 && !fixed.1.contains(&two.cookie), "{}", fixed.1);
    assert_eq!(status(&two.fields()), 401);
    let out = daemon.ask("DELETE", "/page/session", &one.fields());
    assert!(out.0 == 204 && out.1.contains("Max-Age=0"), "{}", out.1);
    assert_eq!(status(&one.fields()), 401);
    let three = daemon.log_in();
    daemon.run(&["token", "rotate"]);
    assert_eq!(status(&three.fields()), 401);
    assert_eq!(status(&daemon.log_in().fields()), 200);
    let logs = ["audit-changes.jsonl", "audit-sessions.jsonl", "audit-refused.jsonl", "daemon.log"];
    for name in logs.into_iter().filter(|name| daemon.path().join("state").join(name).exists()) {
        let text = daemon.state(name);
        let secrets = [&one.cookie, &one.key, &three.cookie, &three.key];
        assert!(!secrets.iter().any(|secret| text.contains(*secret)), "{name}");
    }
    assert!(daemon.state("audit-sessions.jsonl").contains("\"what\":\"logged in\""));
}

#[test]
fn guesses_are_limited_and_written_down() {
    let daemon = Managed::start(CONFIG);
    let wrong = "ekiden_".to_owned() + &"0".repeat(64);
    let tried: Vec<u16> = (0..20).map(|_| daemon.try_log_in("", &wrong).0).collect();
    assert_eq!(tried[0], 401);
    assert_eq!(tried[19], 429, "{tried:?}");
    let waits = daemon.try_log_in("", &wrong);
    assert!(waits.0 == 429 && waits.2.contains("try again in"), "{}", waits.2);
    // the right token enters beside them
    assert_eq!(daemon.try_log_in("", &daemon.token()).0, 200);
    // sessions and the token itself go on
    assert_eq!(daemon.call("GET", "/api/v1/relays", None).0, 200);
    assert!(daemon.state("audit-refused.jsonl").contains("/page/session"));
    for (document, status) in [(json!({}), 400), (json!({ "token": "x".repeat(2_000) }), 400)] {
        let answer = daemon.send("POST", "/page/session", "", &document);
        assert!(answer.0 == status || answer.0 == 429, "{}", answer.2);
    }
}

#[test]
fn the_page_is_served_with_a_strict_policy() {
    let daemon = Managed::start(CONFIG);
    let gzip = "Accept-Encoding: gzip\r\n";
    for path in ["/", "/assets/app.js", "/assets/uplot.js", "/assets/icon.svg"] {
        let plain = daemon.get(path);
        assert!(plain.0 == 200 && !plain.2.is_empty(), "{path}: {}", plain.0);
        let mut stream = TcpStream::connect(daemon.port).unwrap();
        let head =
            format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{gzip}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let head: Vec<String> = BufReader::new(stream).lines().map(Result::unwrap).collect();
        let head = head.join("\n").to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        for field in [
            "content-security-policy: default-src 'none'; script-src 'self' 'sha256-",
            "; style-src 'self' 'sha256-",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "content-encoding: gzip",
        ] {
            assert!(head.contains(field), "{path}: {field}\n{head}");
        }
        assert!(!head.contains("unsafe"), "{head}");
    }
    // documents are compressed for those who ask for it
    let session = daemon.log_in();
    let mut stream = TcpStream::connect(daemon.port).unwrap();
    let fields = format!("{}{gzip}Connection: close\r\n", session.fields());
    let head = format!("GET /page/configuration HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    assert!(text.contains("\r\ncontent-encoding: gzip\r\n"), "{text}");
    let plain = daemon.ask("GET", "/page/configuration", &session.fields());
    assert!(answer.len() < plain.2.len() / 2, "{} of {}", answer.len(), plain.2.len());
    // what is data is not stored
    let refused = daemon.get("/page/live");
    assert_eq!(refused.0, 401);
    assert!(refused.1.to_ascii_lowercase().contains("cache-control: no-store"), "{}", refused.1);
}

#[test]
fn changes_need_the_session_and_stand_in_the_audit_log() {
    let daemon = Managed::start(CONFIG);
    let session = daemon.log_in();
    let new = json!({
        "name": "tanaka", "quota": 20_000_000_000_u64, "period": "month",
        "devices": [{ "kind": "password", "user": "<img src=x onerror=alert(1)>", "password": "right password" }]
    });
    let cookie = format!("Cookie: ekiden_session={}\r\n", session.cookie);
    assert_eq!(daemon.send("POST", "/api/v1/accounts", &cookie, &new).0, 401);
    let added = daemon.send("POST", "/api/v1/accounts", &session.fields(), &new);
    assert_eq!(added.0, 201, "{}", added.2);
    let page = eventually("the account", || {
        let page = daemon.read(&session, "/page/accounts?find=ONERROR&order=used&count=50");
        page["accounts"][0]["now"]["quota"].is_number().then_some(page)
    });
    assert_eq!((&page["found"], &page["changeable"]), (&json!(1), &json!(true)));
    assert_eq!(page["accounts"][0]["kept"]["devices"][0]["kind"], "password");
    assert_eq!(daemon.read(&session, "/page/accounts?find=nobody&count=50")["found"], 0);
    let off = json!({ "disabled": true });
    let path = "/api/v1/accounts/tanaka";
    assert_eq!(daemon.send("PATCH", path, &session.fields(), &off).0, 200);
    wait_for("the account to be barred", || {
        let page = daemon.read(&session, "/page/accounts?count=1");
        page["accounts"][0]["barred"].as_str().is_some_and(|why| why.contains("disabled"))
    });
    assert_eq!(daemon.ask("DELETE", path, &session.fields()).0, 204);
    let lines = daemon.read(&session, "/page/audit?kind=changes")["lines"].clone();
    let what: Vec<_> =
        lines.as_array().unwrap().iter().map(|line| line["what"].as_str().unwrap()).collect();
    assert_eq!(what[0], "remove \"tanaka\"");
    assert!(what[1].starts_with("change \"tanaka\": disabled"), "{what:?}");
    let refused = daemon.read(&session, "/page/audit?kind=refused")["lines"].clone();
    assert_eq!(refused[0]["status"], 401);
    for (path, status) in [
        ("/page/audit", 400),
        ("/page/audit?kind=../management.token", 400),
        ("/page/connections?order=worst", 400),
        ("/page/connections?count=-1", 400),
        ("/page/history?span=year&series=x", 400),
        ("/page/history?series=../total", 404),
        ("/page/connections/99", 404),
        ("/page/connections/x", 404),
        ("/page/nothing", 404),
    ] {
        assert_eq!(daemon.ask("GET", path, &session.fields()).0, status, "{path}");
    }
}

#[test]
fn connections_are_paged_and_explained() {
    let config = CONFIG.replace("enabled = true", "enabled = true\nrequired = false");
    let daemon = Managed::start(&config);
    let session = daemon.log_in();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = server.local_addr().unwrap();
    let held: Vec<_> = (0..12).map(|_| daemon.daemon.connect(to, "").1).collect();
    let page = eventually("the connections", || {
        let page = daemon.read(&session, "/page/connections?order=new&offset=4&count=5");
        (page["total"] == 12).then_some(page)
    });
    let lines = page["lines"].as_array().unwrap();
    assert_eq!((lines.len(), &page["found"]), (5, &json!(12)));
    assert_eq!(lines[0]["destination"], to.to_string());
    assert!(lines[0]["slowest"].as_str().unwrap().starts_with("nothing: "), "{}", lines[0]);
    let one = daemon.read(&session, &format!("/page/connections/{}", lines[0]["id"]));
    assert!(one["route"].as_str().unwrap().starts_with("direct"), "{one:#}");
    assert_eq!(daemon.read(&session, "/page/connections?find=elsewhere&count=9")["found"], 0);
    drop(held);
}

/// The documents of a stream of events.
fn events(at: SocketAddr, session: &Session) -> impl Iterator<Item = Value> {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!("GET /page/live HTTP/1.1\r\nHost: localhost\r\n{}\r\n", session.fields());
    stream.write_all(head.as_bytes()).unwrap();
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    lines.filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
}

#[test]
fn viewers_share_one_look_and_are_few() {
    let daemon = Managed::start(CONFIG);
    let session = daemon.log_in();
    let mut viewers: Vec<_> = (0..16).map(|_| events(daemon.port, &session)).collect();
    let firsts: Vec<Value> = viewers.iter_mut().map(|viewer| viewer.next().unwrap()).collect();
    assert_eq!(firsts[0]["status"]["connections"], json!([]));
    assert_eq!(firsts[0]["findings"], json!([]));
    let next = viewers[0].next().unwrap();
    assert!(next["at"].as_i64() > firsts[0]["at"].as_i64(), "{next:#}");
    assert!(next["down"].is_number(), "{next:#}");
    let many = daemon.ask("GET", "/page/live", &session.fields());
    assert_eq!((many.0, &many.json()["type"]), (429, &json!("urn:ekiden:viewers")));
    drop(viewers);
    wait_for("room for another", || {
        // one that was let in writes until it is gone
        let mut stream = events(daemon.port, &session);
        stream.next().is_some()
    });
}

#[test]
fn a_stream_of_events_ends_with_its_session_or_its_token() {
    let daemon = Managed::start(CONFIG);
    let [session, other] = [daemon.log_in(), daemon.log_in()];
    let [mut viewer, mut by_token] = [&session, &other].map(|one| events(daemon.port, one));
    assert!(viewer.next().is_some() && by_token.next().is_some());
    assert_eq!(daemon.ask("DELETE", "/page/session", &session.fields()).0, 204);
    // it would have an event each second
    assert!(viewer.take(10).count() < 10);
    assert!(by_token.by_ref().take(3).count() == 3, "another session's stream goes on");
    daemon.run(&["token", "rotate"]);
    assert!(by_token.take(10).count() < 10);
}

#[test]
fn a_peer_is_invited_and_removed_by_the_page() {
    let port = free_port();
    let tunnel =
        format!("{CONFIG}[tunnel]\nlisten = [\"127.0.0.1:{port}\"]\nstate = \"DIR/peers\"\n");
    let daemon = Managed::start(&tunnel);
    let session = daemon.log_in();
    let none = daemon.read(&session, "/page/peers");
    assert_eq!(none, json!({ "peers": [], "listens": true }));
    let address = format!("127.0.0.1:{port}");
    let new =
        json!({ "name": "ship", "address": address, "send": 20_000_000, "receive": 2_000_000 });
    let made = daemon.send("POST", "/page/peers", &session.fields(), &new);
    assert_eq!(made.0, 201, "{}", made.2);
    let made = made.json();
    let token = made["invitation"].as_str().unwrap();
    assert!(made["link"].as_str().unwrap().ends_with(token), "{made:#}");
    assert!(made["code"]["path"].as_str().unwrap().starts_with("M0 0h7v1"), "{made:#}");
    for (document, status) in [
        (new.clone(), 409),
        (
            json!({ "name": "a b", "address": address, "send": 1_000_000, "receive": 1_000_000 }),
            422,
        ),
        (
            json!({ "name": "b", "address": "nowhere", "send": 1_000_000, "receive": 1_000_000 }),
            422,
        ),
        (json!({ "name": "b", "address": address, "send": 1, "receive": 1_000_000 }), 422),
        (json!({ "name": "b" }), 400),
    ] {
        let answer = daemon.send("POST", "/page/peers", &session.fields(), &document);
        assert_eq!(answer.0, status, "{document}: {}", answer.2);
    }
    // in the words of the form, not of the command
    let low = json!({ "name": "b", "address": address, "send": 1_000_000, "receive": 2_000 });
    for (document, words) in [
        (&low, "The link carries from it: 2 kbit/s is too low"),
        (&new, "or replace the peer of this name"),
    ] {
        let said = daemon.send("POST", "/page/peers", &session.fields(), document).2;
        assert!(said.contains(words) && !said.contains("--"), "{said}");
    }
    let known = daemon.read(&session, "/page/peers");
    assert_eq!(
        (&known["peers"][0]["name"], &known["peers"][0]["kind"]),
        (&json!("ship"), &json!("invited"))
    );
    let audit = daemon.state("audit-changes.jsonl");
    assert!(audit.contains("invite \\\"ship\\\" to 127.0.0.1"), "{audit}");
    assert!(!audit.contains(token) && !known.to_string().contains(token), "{audit}");
    assert_eq!(daemon.ask("DELETE", "/page/peers/ship", &session.fields()).0, 204);
    assert_eq!(daemon.ask("DELETE", "/page/peers/ship", &session.fields()).0, 404);
}

#[test]
fn the_history_survives_a_kill_and_secrets_of_the_configuration_stay_hidden() {
    let port = free_port();
    let config = CONFIG.replace(
        "[management]\nlisten = \"127.0.0.1:0\"",
        &format!("[management]\nlisten = \"127.0.0.1:{port}\""),
    );
    let upstream = "[upstream.far]\nurl = \"http://anna:geheim@192.0.2.9:3128\"\n";
    let mut daemon = Managed::start(&format!("{config}{upstream}"));
    let session = daemon.log_in();
    let shown = daemon.read(&session, "/page/configuration");
    assert!(!shown.to_string().contains("geheim"), "{shown:#}");
    assert!(shown["values"]["management.listen"]["from"].as_str().unwrap().contains("toml:"));
    let file = daemon.path().join("state/history/total.ring");
    wait_for("the first sample on disk", || file.exists());
    let known = |chart: &Value| {
        let row = chart["rows"]["connections"].as_array().unwrap().clone();
        row.iter().filter(|value| !value.is_null()).count()
    };
    let path = "/page/history?span=hour&series=(total)";
    let before = daemon.read(&session, path);
    assert!(known(&before) >= 1, "{before:#}");
    assert_eq!(before["rows"]["down"].as_array().unwrap().len(), 360);
    daemon.daemon.kill();
    daemon.daemon.restart();
    wait_for("readiness", || {
        TcpStream::connect(daemon.port).is_ok() && daemon.get("/readyz").0 == 200
    });
    let after = daemon.read(&daemon.log_in(), path);
    assert!(known(&after) >= 1, "{after:#}");
}

#[test]
fn operators_do_what_their_role_allows_and_are_named_in_the_audit_log() {
    let daemon = Managed::start(CONFIG);
    let add = |args: &[&str], password: &str| {
        daemon.run_with(&[&["operator", "add"], args].concat(), password).status.code()
    };
    assert_eq!(add(&["mika"], "a long password\n"), Some(0));
    assert_eq!(add(&["guest", "--viewer"], "another password\n"), Some(0));
    assert_eq!(add(&["mika"], "a long password\n"), Some(1), "there is one");
    let list = daemon.printed(&["operator", "list"]);
    assert!(list.contains("mika") && list.contains("viewer"), "{list}");
    let json: Value =
        serde_json::from_str(&daemon.printed(&["operator", "list", "--json"])).unwrap();
    assert_eq!(json["operators"][1], json!({ "name": "mika", "role": "full" }));
    let log_in = |name: &str, password: &str| {
        let said = json!({ "name": name, "password": password });
        daemon.send("POST", "/page/session", "", &said)
    };
    let session = |answer: &Answer| {
        assert_eq!(answer.0, 200, "{}", answer.2);
        let cookie = answer.1.split("ekiden_session=").nth(1).unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        Session { cookie, key: answer.json()["key"].as_str().unwrap().to_owned() }
    };
    assert_eq!(log_in("mika", "another password").0, 401);
    assert_eq!(log_in("nobody", "a long password").0, 401);
    let both = json!({ "name": "mika", "password": "a long password", "token": "x" });
    assert_eq!(daemon.send("POST", "/page/session", "", &both).0, 400);
    let mika = session(&log_in("mika", "a long password"));
    let guest = session(&log_in("guest", "another password"));

    // by a session and by the API, one changes and the other looks
    let basic = |name: &str, password: &str| {
        format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{name}:{password}")))
    };
    let account = |name: &str, net: &str| json!({ "name": name, "devices": [{ "kind": "prefix", "prefix": net }] });
    let by = [
        (mika.fields(), basic("mika", "a long password"), 201, 201),
        (guest.fields(), basic("guest", "another password"), 403, 403),
    ];
    for (nth, (fields, login, by_session, by_login)) in by.iter().enumerate() {
        for (way, fields, status) in [("by", fields, by_session), ("with", login, by_login)] {
            assert_eq!(daemon.ask("GET", "/api/v1/accounts", fields).0, 200);
            let new =
                account(&format!("new-{way}{nth}"), &format!("192.0.2.{}/32", nth + way.len()));
            let answer = daemon.send("POST", "/api/v1/accounts", fields, &new);
            assert_eq!(answer.0, *status, "{fields}: {}", answer.2);
        }
    }
    let denied =
        daemon.send("POST", "/api/v1/accounts", &guest.fields(), &account("x", "192.0.2.9/32"));
    assert!(denied.2.contains("may look, and change nothing"), "{}", denied.2);
    assert_eq!(daemon.ask("GET", "/api/v1/accounts", &basic("mika", "wrong password")).0, 401);
    let audit = daemon.state("audit-changes.jsonl");
    let by_mika = audit.lines().filter(|line| line.contains("\"user\":\"mika\"")).count();
    assert_eq!(by_mika, 2, "two accounts:\n{audit}");
    assert!(audit.contains("ekiden operator add") && !audit.contains("long password"), "{audit}");
    assert!(daemon.state("audit-refused.jsonl").contains("operator \\\"guest\\\" may look"));

    // whoever leaves does so, and whoever is removed has left
    assert_eq!(daemon.ask("DELETE", "/page/session", &guest.fields()).0, 204);
    assert_eq!(daemon.ask("GET", "/page/audit?kind=changes", &guest.fields()).0, 401);
    let login = basic("guest", "another password");
    assert!((0..20).all(|_| daemon.ask("DELETE", "/page/session", &login).0 == 204));
    assert_eq!(daemon.state("audit-changes.jsonl"), audit, "it changed nothing");
    let sessions = daemon.state("audit-sessions.jsonl");
    assert_eq!(["logged in", "logged out"].map(|what| sessions.matches(what).count()), [2, 1]);
    assert_eq!(daemon.ask("GET", "/page/audit?kind=changes", &mika.fields()).0, 200);
    daemon.printed(&["operator", "remove", "mika"]);
    assert_eq!(daemon.ask("GET", "/page/audit?kind=changes", &mika.fields()).0, 401);
    assert_eq!(log_in("mika", "a long password").0, 401);
    // the token goes on
    assert_eq!(daemon.call("GET", "/api/v1/accounts", None).0, 200);
}
