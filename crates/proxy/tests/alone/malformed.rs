//! The malformed corpus against a real relay over real sockets: each input is refused as its line
//! says, in words, without a byte to the destination, and the relay serves on.
use crate::common::wire::{Origin, Relay, Wire, get, ok};
use crate::common::{descriptors, wait_until};
use ekiden_model::units::Bytes;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

struct Case {
    line: usize,
    answer: String,
    fragment: String,
    bytes: Vec<u8>,
    /// The client ends its direction.
    finish: bool,
}

fn cases(text: &str, origin: &Origin) -> Vec<Case> {
    let port = origin.port();
    let escaped_port = format!("\\x{:02x}\\x{:02x}", port >> 8, port & 0xff);
    let lines =
        text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            let mut parts = line.splitn(3, " | ");
            let [answer, fragment, bytes] = [(); 3].map(|()| parts.next().unwrap_or_default());
            let bytes = bytes
                .replace("{o}", &origin.name)
                .replace("{p}", &port.to_string())
                .replace("{p2}", &escaped_port);
            let (bytes, finish) = match bytes.strip_suffix("{eof}") {
                Some(bytes) => (bytes.to_owned(), true),
                None => (bytes, false),
            };
            Case {
                line: number + 1,
                answer: answer.to_owned(),
                fragment: fragment.trim().to_owned(),
                bytes: unescape(&repeat(&bytes)),
                finish,
            }
        })
        .collect()
}

/// `{3*ab}` is `ababab`.
fn repeat(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let inner = after.split_once('}');
        let parsed = inner.and_then(|(inner, rest)| {
            let (count, what) = inner.split_once('*')?;
            Some((what.repeat(count.parse().ok()?), rest))
        });
        match parsed {
            Some((repeated, after)) => {
                out.push_str(&repeated);
                rest = after;
            }
            None => {
                out.push('{');
                rest = after;
            }
        }
    }
    out + rest
}

fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend(c.encode_utf8(&mut [0; 4]).bytes());
            continue;
        }
        out.push(match chars.next() {
            Some('r') => b'\r',
            Some('n') => b'\n',
            Some('t') => b'\t',
            Some('x') => {
                let hex: String = chars.by_ref().take(2).collect();
                u8::from_str_radix(&hex, 16).unwrap()
            }
            Some('\\') => b'\\',
            other => panic!("\\{other:?} is no escape"),
        });
    }
    out
}

/// A relay with small budgets, so that "too large" is small, and its access log.
fn strict() -> (Relay, tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("access.log");
    let relay = Relay::with(|settings| {
        settings.access.allow_destinations = vec!["127.0.0.1/32".parse().unwrap()];
        settings.budgets.head = Bytes::kib(8);
        settings.budgets.fields = 32;
        settings.access_log = ekiden_proxy::settings::AccessLog::File(log.clone());
    });
    (relay, dir, log)
}

/// Descriptors are counted for the whole process, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serves(relay: &Relay, origin: &Origin) {
    let mut client = relay.client();
    client.send(get(origin, "/", "Connection: close\r\n"));
    let mut server = origin.accept();
    server.head();
    server.send(ok("fine"));
    assert!(client.until_end().ends_with("\r\n\r\nfine"));
}

/// Sends the case and returns all that is answered, up to an orderly end.
fn answer(relay: &Relay, case: &Case) -> Vec<u8> {
    let mut client = relay.client();
    client.send(&case.bytes);
    if case.finish {
        client.finish();
    }
    let (answer, how) = client.rest();
    assert!(how.is_ok(), "line {}: {how:?} after \"{}\"", case.line, answer.escape_ascii());
    answer
}

#[test]
fn http() {
    let _alone = crate::alone();
    let _alone = alone();
    let (relay, _dir, log) = strict();
    let origin = Origin::new();
    serves(&relay, &origin);
    relay.settles();
    let before = descriptors();
    let cases = cases(include_str!("messages/http.txt"), &origin);
    assert!(cases.len() >= 200);
    let mut wrong = Vec::new();
    for case in &cases {
        let text = String::from_utf8(answer(&relay, case)).unwrap();
        let (status, in_body) = match case.answer.strip_suffix('~') {
            Some(status) => (status, true),
            None => (case.answer.as_str(), false),
        };
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        let as_expected = text.starts_with(&format!("HTTP/1.1 {status} "))
            && text.contains("Connection: close\r\n")
            && body.starts_with("relay-under-test: ")
            && body.len() > "relay-under-test: \n".len() + 10
            && body.contains(&case.fragment);
        if !as_expected {
            wrong.push(format!("line {}: {text:?}", case.line));
        }
        match (origin.came(), in_body) {
            (None, false) => {}
            (Some(mut server), true) => {
                let (got, _) = server.rest();
                if got.ends_with(b"0\r\n\r\n") || !got.starts_with(b"POST / HTTP/1.1\r\n") {
                    wrong.push(format!("line {}: passed on {}", case.line, got.escape_ascii()));
                }
            }
            (None, true) => wrong.push(format!("line {}: nothing was passed on", case.line)),
            (Some(_), false) => wrong.push(format!("line {}: reached the origin", case.line)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    finally(&relay, &origin, before, cases.len(), &log);
}

/// The relay serves on, holds nothing of what was refused, and has a line for each.
fn finally(relay: &Relay, origin: &Origin, before: usize, cases: usize, log: &Path) {
    serves(relay, origin);
    relay.settles();
    // a connection's descriptors close a moment after its end was read
    wait_until(
        || descriptors() <= before,
        || format!("{before} descriptors, and then {}", descriptors()),
    );
    assert_eq!(relay.status().totals.refused, cases as u64);
    assert!(relay.logged(log).lines().count() >= cases);
}

#[test]
fn socks5() {
    let _alone = crate::alone();
    socks(include_str!("messages/socks5.txt"));
}

#[test]
fn socks4a() {
    let _alone = crate::alone();
    socks(include_str!("messages/socks4a.txt"));
}

fn socks(corpus: &str) {
    let _alone = alone();
    let (relay, _dir, log) = strict();
    let origin = Origin::new();
    serves(&relay, &origin);
    relay.settles();
    let before = descriptors();
    let cases = cases(corpus, &origin);
    let mut wrong = Vec::new();
    for case in &cases {
        let lines_before = relay.logged(&log).lines().count();
        let got = answer(&relay, case);
        let hex: String = got.iter().map(|b| format!("{b:02x}")).collect();
        let mut expected = case.answer.replace(' ', "");
        if let Some(request) = expected.strip_prefix("0500") {
            expected = format!("0500{request}0001{}", "00".repeat(6));
        } else if expected == "005b" {
            expected.push_str(&"00".repeat(6));
        }
        if hex != expected {
            wrong.push(format!("line {}: {hex}", case.line));
        }
        let lines = relay.logged(&log);
        let line = lines.lines().nth(lines_before).unwrap_or_default();
        if !line.contains(&case.fragment) {
            wrong.push(format!("line {}: {line}", case.line));
        }
        if origin.came().is_some() {
            wrong.push(format!("line {}: reached the origin", case.line));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    finally(&relay, &origin, before, cases.len(), &log);
}

/// Good requests, ended by their client after each byte but the last.
#[test]
fn survives_a_cut_at_every_byte() {
    let _alone = crate::alone();
    let _alone = alone();
    let (relay, _dir, _log) = strict();
    let origin = Origin::new();
    let [high, low] = origin.port().to_be_bytes();
    let connect = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.name);
    let socks5 = [&[5, 1, 0, 5, 1, 0, 3, 9][..], b"localhost", &[high, low]].concat();
    let socks4a = [&[4, 1, high, low, 0, 0, 0, 1][..], b"me\0localhost\0"].concat();
    for good in [get(&origin, "/", "").into_bytes(), connect.into_bytes(), socks5, socks4a] {
        for cut in 1..good.len() {
            let mut client: Wire = relay.client();
            client.send(&good[..cut]);
            client.finish();
            let (answer, how) = client.rest();
            assert!(how.is_ok() && !answer.is_empty(), "cut at {cut} of {}", good.escape_ascii());
            let clear = match good[0] {
                5 if cut < 3 => answer == [5, 0xff],
                // "5 1 0" is a whole greeting
                5 => answer.starts_with(&[5, 0, 5, 1]),
                4 => answer.starts_with(&[0, 91]),
                _ => String::from_utf8_lossy(&answer).contains("ended within the request head"),
            };
            assert!(clear, "cut at {cut}: {}", answer.escape_ascii());
            assert!(origin.came().is_none());
        }
    }
    serves(&relay, &origin);
    relay.settles();
}
