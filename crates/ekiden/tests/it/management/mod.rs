//! The management port of a running daemon: who is let in, what is written down of it, and what the API does to
//! clients of the proxy.

#[cfg(feature = "dashboard")]
mod browser;
#[cfg(feature = "dashboard")]
mod dashboard;
mod schemathesis;
#[cfg(feature = "dashboard")]
mod trials;

use crate::accounts::ANNA;
use crate::daemons::{daemon, home};
use ekiden_testkit::{Daemon, PATIENCE, eventually, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;

/// A daemon with accounts and a management port.
struct Managed {
    daemon: Daemon,
    port: SocketAddr,
}

const CONFIG: &str = "listen = [\"127.0.0.1:0\"]\n[access]\nallow_destinations = [\"127.0.0.0/8\"]\n\
    [accounts]\nenabled = true\n[management]\nlisten = \"127.0.0.1:0\"\n";

/// An answer: status, head, body.
struct Answer(u16, String, String);

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.2).unwrap()
    }
}

impl Managed {
    fn start(config: &str) -> Self {
        let daemon = daemon(config);
        let port = eventually("the management port", || {
            let log = daemon.log();
            let (_, rest) = log.split_once("management at http://")?;
            rest.split(": /").next()?.parse().ok()
        });
        let this = Self { daemon, port };
        wait_for("readiness", || this.get("/readyz").0 == 200);
        this
    }

    fn token(&self) -> String {
        self.state("management.token").trim().to_owned()
    }

    /// Says exactly this and reads to the end.
    fn say(&self, text: &str) -> Answer {
        let mut stream = TcpStream::connect(self.port).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // a refused document may end it with a reset after the answer
        let _ended = stream.read_to_end(&mut answer);
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        Answer(status, head.to_owned(), body.to_owned())
    }

    /// With these fields instead of the token's.
    fn ask(&self, method: &str, path: &str, fields: &str) -> Answer {
        let host = if fields.contains("Host:") {
            String::new()
        } else {
            format!("Host: {}\r\n", self.port)
        };
        self.say(&format!("{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n{fields}\r\n"))
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    /// With the token, and a document.
    fn call(&self, method: &str, path: &str, document: Option<&Value>) -> Answer {
        let token = self.token();
        let body = document.map_or_else(String::new, ToString::to_string);
        self.say(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.port,
            body.len()
        ))
    }

    /// The status of the proxy's answer to a CONNECT by anna, and the connection.
    fn connect(&self, to: SocketAddr, fields: &str) -> (u16, TcpStream) {
        let (head, stream) = self.daemon.connect(to, fields);
        (head.split(' ').nth(1).unwrap().parse().unwrap(), stream)
    }
}

impl Deref for Managed {
    type Target = Daemon;

    fn deref(&self) -> &Daemon {
        &self.daemon
    }
}

#[test]
fn health_answers_beside_silent_connections() {
    let daemon = Managed::start(&format!("{CONFIG}[log]\nlevel = \"debug\"\n"));
    let connect = || TcpStream::connect(daemon.port).unwrap();
    let mut silent: Vec<_> = (0..64).map(|_| connect()).collect();
    // some of them within a head
    silent.iter_mut().step_by(2).for_each(|stream| stream.write_all(b"GET /healthz HT").unwrap());
    assert_eq!(daemon.get("/healthz").0, 200);
    // and not because their time was over
    let why = "closed one for a newcomer";
    wait_for("the reason", || daemon.log().contains(why));
}

#[test]
fn refused_callers_get_a_reason_and_an_audit_entry() {
    let daemon = Managed::start(CONFIG);
    let token = daemon.token();
    let right = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(daemon.ask("GET", "/api/v1/status", &right).0, 200);

    let none = daemon.get("/api/v1/status");
    assert_eq!(none.0, 401);
    let head = none.1.to_ascii_lowercase();
    assert!(head.contains("www-authenticate: bearer"), "{head}");
    assert!(head.contains("content-type: application/problem+json"), "{head}");
    assert_eq!(none.json()["type"], "urn:ekiden:token");
    assert!(none.json()["hint"].as_str().unwrap().contains("ekiden token show"));
    let wrong = format!("Authorization: Bearer {}\r\n", token.replace(['0', '1', '2', '3'], "4"));
    for (path, fields, status) in [
        ("/api/v1/accounts", wrong.clone(), 401),
        ("/api/v1/accounts", "Authorization: Basic YTpi\r\n".to_owned(), 401),
        ("/api", String::new(), 401),
        ("/api/v1/nothing", String::new(), 401),
        ("/api/v1/status", format!("{right}Origin: http://evil.example\r\n"), 403),
        ("/api/v1/status", format!("{right}Origin: null\r\n"), 403),
        ("/api/v1/status", format!("{right}Host: evil.example\r\n"), 403),
        ("/metrics", "Host: evil.example:9128\r\n".to_owned(), 403),
        ("/healthz", "Origin: https://evil.example\r\n".to_owned(), 403),
    ] {
        let answer = daemon.ask("GET", path, &fields);
        assert_eq!(answer.0, status, "{path} {fields}");
        assert!(!answer.1.to_ascii_lowercase().contains("access-control"), "{}", answer.1);
    }
    // a page that asks whether it may
    let asks = "Origin: http://evil.example\r\nAccess-Control-Request-Method: DELETE\r\n";
    assert_eq!(daemon.ask("OPTIONS", "/api/v1/accounts/x", asks).0, 403);
    // a page of its own
    let own = format!("{right}Host: localhost:1\r\nOrigin: http://localhost:1\r\n");
    assert_eq!(daemon.ask("GET", "/api/v1/status", &own).0, 200);

    let refused = daemon.state("audit-refused.jsonl");
    let lines: Vec<Value> =
        refused.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 11, "{refused}");
    assert_eq!((&lines[0]["status"], &lines[0]["path"]), (&json!(401), &json!("/api/v1/status")));
    assert_eq!((&lines[0]["outcome"], &lines[0]["token"]), (&json!("refused"), &Value::Null));
    assert!(lines[5]["what"].as_str().unwrap().contains("evil.example"), "{refused}");
    let log = daemon.log();
    assert!(log.contains("rejected 127.0.0.1, 401: GET /api/v1/status"), "{log}");
    assert!(
        log.contains(
            "rejected 127.0.0.1, 403: GET /api/v1/status: pages of \"http://evil.example\""
        ),
        "{log}"
    );
    for text in [&refused, &log, &daemon.state("audit-changes.jsonl")] {
        assert!(!text.contains(&token), "{text}");
    }
    for name in ["management.token", "audit-refused.jsonl", "audit-changes.jsonl"] {
        let mode = fs::metadata(daemon.path().join("state").join(name)).unwrap().permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_new_token_counts_at_once() {
    let daemon = Managed::start(CONFIG);
    let old = format!("Authorization: Bearer {}\r\n", daemon.token());
    assert_eq!(daemon.ask("GET", "/api/v1/relays", &old).0, 200);
    let new = String::from_utf8(daemon.run(&["token", "rotate"]).stdout).unwrap();
    assert_eq!(new.trim(), daemon.token());
    assert_eq!(String::from_utf8(daemon.run(&["token", "show"]).stdout).unwrap(), new);
    assert_eq!(daemon.ask("GET", "/api/v1/relays", &old).0, 401);
    assert_eq!(daemon.call("GET", "/api/v1/relays", None).0, 200);
    let file = daemon.path().join("state/management.token");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let open = daemon.ask("GET", "/api/v1/relays", &old);
    assert_eq!((open.0, &open.json()["type"]), (503, &json!("urn:ekiden:no-token")));
    let shown = daemon.run(&["token", "show"]);
    assert_eq!(shown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&shown.stderr).contains("other users can read"), "{shown:?}");
}

#[test]
fn an_account_lives_and_dies_by_the_api() {
    let (daemon, server) = (Managed::start(CONFIG), TcpListener::bind("127.0.0.1:0").unwrap());
    let to = server.local_addr().unwrap();
    assert_eq!(daemon.connect(to, ANNA).0, 407);
    let new = json!({
        "name": "tanaka", "down": 5_000_000, "quota": 20_000_000_000_u64, "period": "month",
        "devices": [
            { "kind": "password", "user": "anna", "password": "right password" },
            { "kind": "prefix", "prefix": "100.64.7.0/24", "name": "house" }
        ]
    });
    let added = daemon.call("POST", "/api/v1/accounts", Some(&new));
    assert_eq!(added.0, 201, "{}", added.2);
    assert!(added.1.contains("/api/v1/accounts/tanaka"), "{}", added.1);
    let account = added.json();
    assert_eq!((&account["down"], &account["period"]), (&json!(5_000_000), &json!("month")));
    // the command sees what the API sees
    let shown = daemon.run(&["account", "show", "tanaka", "--json"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["accounts"][0], account);
    assert_eq!(daemon.call("GET", "/api/v1/accounts/tanaka", None).json(), account);
    assert_eq!(daemon.call("GET", "/api/v1/accounts", None).json(), shown);

    wait_for("the new account", || daemon.connect(to, ANNA).0 == 200);
    let (_, mut tunnel) = daemon.connect(to, ANNA);
    let off = json!({ "disabled": true });
    assert_eq!(daemon.call("PATCH", "/api/v1/accounts/tanaka", Some(&off)).0, 200);
    let mut rest = Vec::new();
    let ended = tunnel.read_to_end(&mut rest).unwrap_err();
    assert_eq!(ended.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(daemon.connect(to, ANNA).0, 403);
    let on = json!({ "disabled": null, "down": null, "forget": ["house"], "name": "sato" });
    let changed = daemon.call("PATCH", "/api/v1/accounts/tanaka", Some(&on));
    assert_eq!((changed.0, &changed.json()["down"]), (200, &Value::Null));
    assert_eq!(changed.json()["devices"].as_array().unwrap().len(), 1);
    wait_for("the open door", || daemon.connect(to, ANNA).0 == 200);
    assert_eq!(daemon.call("GET", "/api/v1/accounts/tanaka", None).0, 404);

    for (document, status, kind) in [
        (json!({ "name": "sato", "devices": [{ "kind": "peer", "peer": "x" }] }), 409, "taken"),
        (
            json!({ "name": "x", "devices": [{ "kind": "password", "user": "anna", "password": "12345678" }] }),
            409,
            "taken",
        ),
        (json!({ "name": "x", "devices": [] }), 400, "document"),
        (json!({ "name": "a€b", "devices": [{ "kind": "peer", "peer": "x" }] }), 422, "no-sense"),
        (
            json!({ "name": "x", "zone": "Atlantis", "devices": [{ "kind": "peer", "peer": "x" }] }),
            422,
            "no-sense",
        ),
    ] {
        let answer = daemon.call("POST", "/api/v1/accounts", Some(&document));
        assert_eq!(
            (answer.0, &answer.json()["type"]),
            (status, &json!(format!("urn:ekiden:{kind}"))),
            "{document}"
        );
    }
    let bad = json!({ "name": "x", "devices": [{ "kind": "password", "user": "u", "password": 5 }], "colour": 1 });
    let told = daemon.call("POST", "/api/v1/accounts", Some(&bad)).json();
    assert_eq!(told["errors"].as_array().unwrap().len(), 2, "{told:#}");

    let usage = daemon.call("GET", "/api/v1/usage?account=sato&since=2026-01-01", None);
    assert_eq!(usage.0, 200, "{}", usage.2);
    let csv = daemon.call("GET", "/api/v1/usage.csv", None);
    assert!(csv.2.starts_with("account,name,begun,down,up\n"), "{}", csv.2);
    assert_eq!(daemon.call("GET", "/api/v1/usage?since=yesterday", None).0, 400);
    let status = daemon.call("GET", "/api/v1/status", None).json();
    assert!(status["accounts"]["log_ins"]["known"].as_u64().unwrap() >= 1, "{status:#}");
    wait_for("the fleet", || {
        let fleet = daemon.call("GET", "/api/v1/relays", None).json();
        fleet["relays"][0]["health"] == "well"
    });

    assert_eq!(daemon.call("DELETE", "/api/v1/accounts/sato", None).0, 204);
    assert_eq!(daemon.call("DELETE", "/api/v1/accounts/sato", None).0, 404);
    wait_for("the removal", || daemon.connect(to, ANNA).0 == 407);
    let changes = daemon.state("audit-changes.jsonl");
    assert!(!changes.contains("right password") && !changes.contains("argon2"), "{changes}");
    for part in [
        r#""what":"add: devices, down 5000000, name tanaka, period month, quota 20000000000""#,
        r#""what":"change \"tanaka\": disabled true""#,
        r#""what":"remove \"sato\"""#,
        "\"status\":409,\"outcome\":\"failed\"",
    ] {
        assert!(changes.contains(part), "{part}\n{changes}");
    }
}

#[test]
fn refuses_large_slow_and_useless_requests() {
    let daemon = Managed::start(CONFIG);
    let mut slow = TcpStream::connect(daemon.port).unwrap();
    slow.set_read_timeout(Some(PATIENCE)).unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ").unwrap();
    let long = json!({ "name": "x".repeat(70_000) });
    let answer = daemon.call("PATCH", "/api/v1/accounts/x", Some(&long));
    assert_eq!(answer.0, 413, "{}", answer.1);
    let head = format!("Authorization: Bearer {}\r\n", daemon.token());
    let form = format!(
        "{head}Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 3\r\n\r\na=b"
    );
    assert_eq!(daemon.ask("POST", "/api/v1/accounts", form.trim_end()).0, 415);
    let method = daemon.call("PUT", "/api/v1/accounts/x", None);
    assert_eq!((method.0, &method.json()["type"]), (405, &json!("urn:ekiden:method")));
    let allow = method.1.to_ascii_lowercase();
    assert!(allow.contains("allow: ") && allow.contains("patch"), "{allow}");
    assert_eq!(daemon.call("GET", "/api/v1/nothing", None).0, 404);
    assert_eq!(daemon.get("/nothing").0, 404);
    let head =
        format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(40_000));
    assert_eq!(daemon.say(&head).0, 431);
    let refused = daemon.state("audit-changes.jsonl");
    assert!(refused.contains("\"status\":413") && refused.contains("\"status\":405"), "{refused}");
    // cut, and not waited for
    let mut rest = String::new();
    let _ended = slow.read_to_string(&mut rest);
    assert!(!rest.contains("200 OK"), "{rest}");
}

#[test]
fn metrics_and_health_follow_the_relay() {
    let daemon = Managed::start(&format!("{CONFIG}[timeouts]\nstop = \"30 s\"\n"));
    assert_eq!(daemon.get("/healthz").2, "ok\n");
    assert_eq!(daemon.get("/readyz").2, "ready\n");
    let page = include_str!("../../../../../docs/book/src/reference/metrics.md");
    let metrics = daemon.get("/metrics");
    assert!(metrics.1.contains("application/openmetrics-text"), "{}", metrics.1);
    // on this machine it would be work for nothing
    let plain = daemon.ask("GET", "/metrics", "Accept-Encoding: gzip\r\n");
    assert!(plain.2.ends_with("# EOF\n"), "{}", plain.1);
    for line in metrics.2.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let new =
        json!({ "name": "tanaka", "devices": [{ "kind": "prefix", "prefix": "127.0.0.0/8" }] });
    assert_eq!(daemon.call("POST", "/api/v1/accounts", Some(&new)).0, 201);
    let to = server.local_addr().unwrap();
    let (_, _held) =
        eventually("the account", || Some(daemon.connect(to, "")).filter(|c| c.0 == 200));
    let line = "ekiden_account_connections{account=\"tanaka\"} 1";
    wait_for("its connection among metrics", || daemon.get("/metrics").2.contains(line));

    // a mistake changes nothing
    let file = daemon.path().join("ekiden/config.toml");
    fs::write(&file, format!("colour = 1\n{CONFIG}")).unwrap();
    let wrong = daemon.call("POST", "/api/v1/reload", None);
    assert_eq!(wrong.0, 409);
    let told = wrong.json()["errors"][0]["detail"].as_str().unwrap().to_owned();
    assert!(told.contains("unknown key `colour`"), "{told}");
    fs::write(&file, CONFIG.replace("127.0.0.1:0\"\n", "127.0.0.1:1\"\n")).unwrap();
    let done = daemon.call("POST", "/api/v1/reload", None);
    assert_eq!(done.json(), json!({ "warnings": ["change of [management] needs a restart"] }));
    assert_eq!(daemon.call("GET", "/api/v1/status", None).json()["reloads"], 1);

    // clients of the proxy do not get there, though they may go to other ports of this machine
    let (status, mut why) = daemon.connect(daemon.port, "");
    let mut text = String::new();
    why.read_to_string(&mut text).unwrap();
    assert_eq!(status, 508, "{text}");
    assert!(text.contains("is this relay itself"), "{text}");

    daemon.signal(Signal::TERM);
    let draining = eventually("draining", || Some(daemon.get("/readyz")).filter(|a| a.0 == 503));
    assert!(draining.2.starts_with("stopping"), "{}", draining.2);
    assert_eq!(daemon.get("/healthz").0, 200);
}

#[test]
fn a_relay_without_accounts_says_so_and_asks_for_no_second_try() {
    let daemon = Managed::start(&CONFIG.replace("enabled = true", "enabled = false"));
    let answer = daemon.call("GET", "/api/v1/accounts", None);
    assert_eq!((answer.0, &answer.json()["type"]), (409, &json!("urn:ekiden:no-accounts")));
    assert!(!answer.1.to_lowercase().contains("retry-after"), "{}", answer.1);
}

#[test]
fn a_port_that_is_taken_ends_the_daemon_only_where_it_was_asked_for() {
    // taken by this, or by somebody else
    let _held = TcpListener::bind("127.0.0.1:9128");
    let said = daemon("").log();
    assert!(
        said.contains("no management port, so no metrics and no API: 127.0.0.1:9128"),
        "{said}"
    );

    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = held.local_addr().unwrap();
    let config = format!("listen = [\"127.0.0.1:0\"]\n[management]\nlisten = \"{at}\"\n");
    let ended = home(&config).run(&["serve"]);
    assert_eq!(ended.status.code(), Some(69), "{ended:?}");
    let ended = home("[management]\nlisten = \"0.0.0.0:9128\"\n").run(&["check"]);
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stdout).contains("in the clear"), "{ended:?}");
}
