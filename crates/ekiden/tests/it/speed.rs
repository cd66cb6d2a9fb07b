//! The speed test of the page for users: what it measures, what it costs, and who may begin it.

use crate::accounts::Accounts;
use crate::daemons::{pair, tunnel_is_up};
use crate::own_page::UNREADABLE;
use ekiden_testkit::{Daemon, PATIENCE, wait_for};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

const FIELD: &str = "X-Ekiden-Speed: 1\r\n";

/// Status, head and body of the answer to one request.
fn send(daemon: &Daemon, line: &str, fields: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let host = match fields.contains("Host:") {
        true => String::new(),
        false => format!("Host: {}\r\n", daemon.address),
    };
    stream.write_all(format!("{line} HTTP/1.1\r\n{host}{fields}\r\n").as_bytes()).unwrap();
    // a refused upload may be cut
    let _cut = stream.write_all(body);
    let mut answer = Vec::new();
    let _cut = stream.read_to_end(&mut answer);
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head, answer[end + 4..].to_vec())
}

fn page(daemon: &Daemon) -> String {
    String::from_utf8(send(daemon, "GET /", "", &[]).2).unwrap()
}

fn json(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}

#[test]
fn a_speed_test_counts_against_its_account_and_is_limited() {
    let accounts = Accounts::new();
    let add = ["add", "tanaka", "--address", "127.0.0.0/8", "--quota", "1 GB/month"];
    accounts.account(&add, "");
    let daemon = accounts.serve();
    wait_for("the account", || page(&daemon).contains("<bdi>tanaka</bdi>"));
    assert!(page(&daemon).contains("<noscript><p>The test needs JavaScript.</p></noscript>"));
    // of all this nothing counts and nothing is sent
    let up = |fields: &str, body: &[u8]| send(&daemon, "POST /?speed=up", fields, body);
    let cost = || page(&daemon).contains("Used <b>0 kB</b>");
    assert_eq!(send(&daemon, "GET /?speed=down", "", &[]).0, 403, "without the field");
    let strange = format!("{FIELD}Host: relay.example\r\n");
    assert_eq!(send(&daemon, "GET /?speed=down", &strange, &[]).0, 403, "by a strange name");
    assert_eq!(up(&format!("{FIELD}Content-Length: 99999999\r\n"), &[]).0, 413);
    assert_eq!(up(FIELD, &[]).0, 413);
    assert!(send(&daemon, "GET /?speed=tunnel", FIELD, &[]).0 >= 500, "there is no tunnel");
    assert!(cost());
    for hosts in UNREADABLE {
        let fields = format!("{FIELD}{hosts}");
        assert_eq!(send(&daemon, "GET /?speed=down", &fields, &[]).0, 400, "{hosts}");
    }

    let (status, head, body) = send(&daemon, "GET /?speed=down", FIELD, &[]);
    assert_eq!((status, body.len()), (200, 16 << 20), "{head}");
    assert!(head.contains("no-store"), "{head}");
    let body = vec![7; 300_000];
    let (status, _, answer) = up(&format!("{FIELD}Content-Length: {}\r\n", body.len()), &body);
    assert_eq!(status, 200);
    assert!(json(&answer)["bits_per_second"].as_u64() > Some(0));
    wait_for("the use", || page(&daemon).contains("Used <b>17.1 MB</b>"));
    // some more in a minute, and then a wait
    let waits = (0..20).find_map(|_| {
        let (status, head, body) = up(&format!("{FIELD}Content-Length: 1\r\n"), b"x");
        (status == 429).then(|| (head, String::from_utf8(body).unwrap()))
    });
    let (head, body) = waits.unwrap();
    assert!(head.contains("Retry-After: ") && body.contains("Wait a minute"), "{head}\n{body}");

    daemon.reload("[accounts]\nenabled = true\n[pac]\npage = false\n");
    assert_eq!(send(&daemon, "GET /?speed=down", FIELD, &[]).0, 400);
}

#[test]
fn a_speed_test_measures_the_tunnel() {
    let [far_home, near_home] = pair(["20 Mbit/s"; 2], ["", ""]);
    let (far, near) = (far_home.serve(), near_home.serve());
    wait_for("the tunnel", || tunnel_is_up(&near));
    assert!(page(&near).contains("The relay to <bdi>far</bdi>"), "{}", page(&near));
    let (status, _, body) = send(&near, "GET /?speed=tunnel", FIELD, &[]);
    let measured = json(&body);
    assert_eq!((status, &measured["peer"]), (200, &Value::from("far")), "{measured}");
    for way in ["down", "up"] {
        assert!(measured[way].as_u64() > Some(0), "{measured}");
    }
    near.stop();
    far.stop();
}
