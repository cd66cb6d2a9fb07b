//! The page for an account's owner on the proxy's own port: whose figures it shows to whom, and in which language.

use crate::accounts::Accounts;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ekiden_testkit::{Daemon, PATIENCE, wait_for};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

/// Status, head and body of an answer to a request in origin form with these fields.
fn ask(daemon: &Daemon, path: &str, fields: &str) -> (u16, String, String) {
    let at: SocketAddr = daemon.address;
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let host = if fields.contains("Host:") { String::new() } else { format!("Host: {at}\r\n") };
    stream.write_all(format!("GET {path} HTTP/1.1\r\n{host}{fields}\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_owned(), body.to_owned())
}

fn basic(user: &str, password: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{user}:{password}")))
}

#[test]
fn figures_are_shown_to_the_accounts_own_devices_alone() {
    let accounts = Accounts::new();
    let password = "right password\n";
    accounts.account(
        &["add", "tanaka", "--user", "<b>anna</b>", "--password-stdin", "--quota", "300 GB/month"],
        password,
    );
    let daemon = accounts.serve();
    // nobody yet, and that is no refusal
    let (status, head, body) = ask(&daemon, "/", "");
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("This device is not known") && body.contains("/?login"), "{body}");
    assert!(!body.contains("tanaka"), "{body}");
    for field in ["style-src 'sha256-", "frame-ancestors 'none'", "nosniff", "no-store"] {
        assert!(head.contains(field), "{field}\n{head}");
    }
    assert!(!head.contains("unsafe") && !body.contains("<script"), "{head}");
    let (status, head, _) = ask(&daemon, "/?login", "");
    assert_eq!(status, 401);
    assert!(head.contains("WWW-Authenticate: Basic realm=\"Ekiden\""), "{head}");
    assert_eq!(ask(&daemon, "/?login", &basic("<b>anna</b>", "wrong password")).0, 401);
    let (status, _, body) = ask(&daemon, "/?login", &basic("<b>anna</b>", "right password"));
    assert_eq!(status, 200, "{body}");
    for part in [
        "<bdi>tanaka</bdi>",
        "Used <b>0 kB</b> of 300 GB</p><p>Left <b>300 GB</b>",
        "&lt;b&gt;anna&lt;/b&gt;",
        "Begins anew: ",
        "/proxy.pac",
        "<svg class=\"qr\"",
    ] {
        assert!(body.contains(part), "{part}\n{body}");
    }
    // by its address, unless the name could be a stranger's
    accounts.account(&["set", "tanaka", "--address", "127.0.0.0/8"], "");
    wait_for("the address", || ask(&daemon, "/", "").2.contains("<bdi>tanaka</bdi>"));
    let strange = ask(&daemon, "/", "Host: relay.example\r\n").2;
    assert!(
        strange.contains("by the relay&#39;s address") && !strange.contains("tanaka"),
        "{strange}"
    );
    let local = ask(&daemon, "/", "Host: relay.local\r\n").2;
    assert!(local.contains("<bdi>tanaka</bdi>"), "{local}");
    // what was used is what is shown
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = server.local_addr().unwrap();
    let (head, mut stream) = daemon.connect(to, "");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let (mut far, _) = server.accept().unwrap();
    stream.write_all(&[7; 70_000]).unwrap();
    far.read_exact(&mut [0; 70_000]).unwrap();
    wait_for("the use", || ask(&daemon, "/", "").2.contains("Used <b>70.0 kB</b>"));
    accounts.account(&["set", "tanaka", "--disable"], "");
    wait_for("the refusal", || ask(&daemon, "/", "").2.contains("account is disabled"));
    assert_eq!(ask(&daemon, "/", "").0, 403);
}

#[test]
fn speaks_japanese_and_english_and_can_be_switched_off() {
    let accounts = Accounts::with("");
    let daemon = accounts.serve();
    let (_, head, body) = ask(&daemon, "/", "Accept-Language: ja,en;q=0.5\r\n");
    assert!(head.contains("Content-Language: ja"), "{head}");
    assert!(body.contains("<html lang=\"ja\">") && body.contains("端末の設定"), "{body}");
    assert!(ask(&daemon, "/", "Accept-Language: fr\r\n").2.contains("Set up a device"));
    assert!(ask(&daemon, "/", "").2.contains("This relay has no accounts"));
    // a host cannot write into the page
    let (status, _, body) = ask(&daemon, "/", "Host: \"><script>\r\n");
    assert!(status == 400 || !body.contains("<script>"), "{status} {body}");
    for other in ["/x", "/?x", "//"] {
        assert_eq!(ask(&daemon, other, "").0, 400, "{other}");
    }
    daemon.reload("[pac]\npage = false\n");
    assert_eq!(ask(&daemon, "/", "").0, 400);
    assert_eq!(ask(&daemon, "/proxy.pac", "").0, 200);
}
