//! `ekiden account` beside a running daemon: who is added comes in, who is disabled goes, what was used is written
//! down, also when the daemon is killed.

use crate::accounts::{ANNA, Accounts};
use ekiden_testkit::{Daemon, wait_for};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// So many connections, so many bytes to the byte, and then an end, which outlives the daemon.
#[test]
fn enforces_the_limits_of_an_account() {
    let (accounts, server) = (Accounts::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let to = server.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in server.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                // when it is asked to; who is cut takes no more
                let _ended =
                    stream.read_exact(&mut [0]).and_then(|()| stream.write_all(&[7; 300_000]));
            });
        }
    });
    let limits = ["--connections", "1", "--quota", "100000 B/month", "--on-quota-exceeded", "cut"];
    let added = [&["add", "home", "--user", "anna", "--password-stdin"], &limits[..]].concat();
    accounts.account(&added, "right password\n");
    let mut daemon = accounts.serve();
    let (answer, mut one) = daemon.connect(to, ANNA);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let (second, mut rest) = daemon.connect(to, ANNA);
    let mut body = String::new();
    let _ = rest.read_to_string(&mut body);
    assert!(second.starts_with("HTTP/1.1 429 "), "{second}{body}");
    assert!(second.contains("\r\nRetry-After: 1\r\n"), "{second}");
    one.write_all(b"!").unwrap();
    let (up, down) = Daemon::opening(to, ANNA);
    assert_eq!(until_cut(&mut one), 99_999 - up - down, "and the one that asked");
    drop(one);
    let used = format!(",{},{}", 99_999 - up, 1 + up);
    wait_for("the journal", || accounts.account(&["usage", "--csv"], "").contains(&used));
    let listed = accounts.account(&["list"], "");
    assert!(listed.contains("cut until 2") && !listed.contains("active"), "{listed}");
    assert!(listed.contains("USED") && listed.contains("100 kB"), "{listed}");
    // in its own time zone
    assert!(listed.contains("-01 00:00 UTC: quota of 100000 B/month used up"), "{listed}");
    let shown = accounts.account(&["show", "home"], "");
    assert!(shown.contains("then cut; begins anew 2") && shown.contains("100 kB"), "{shown}");
    daemon.kill();
    let daemon = accounts.serve();
    let (spent, mut rest) = daemon.connect(to, ANNA);
    let mut body = String::new();
    let _ = rest.read_to_string(&mut body);
    assert!(spent.starts_with("HTTP/1.1 403 "), "{spent}");
    assert!(body.contains("quota is used up; it begins anew at 2"), "{body}");
    // as its page says it
    assert!(body.contains("-01 00:00 UTC; try again in "), "{body}");
    // another quota goes on from what was counted, by the same count
    accounts.account(&["set", "home", "--quota", "250000 B/month"], "");
    let audit = daemon.state("audit-changes.jsonl");
    let last = audit.lines().last().unwrap_or_default();
    for part in ["\"ekiden account set\"", "\"home\"", "--quota \\\"250000 B/month\\\"", "\"uid "] {
        assert!(last.contains(part), "{part}: {audit}");
    }
    assert!(!audit.contains("right password"), "{audit}");
    let mut again = None;
    wait_for("the larger quota", || {
        let (answer, stream) = daemon.connect(to, ANNA);
        again = answer.starts_with("HTTP/1.1 200 ").then_some(stream);
        again.is_some()
    });
    let mut again = again.unwrap();
    again.write_all(b"!").unwrap();
    assert_eq!(until_cut(&mut again), 149_999 - up - down, "and the one that asked");
    let used = format!(",{},{}", 249_998 - 2 * up, 2 + 2 * up);
    wait_for("the journal", || accounts.account(&["usage", "--csv"], "").contains(&used));
}

/// Bytes that come before the end, of whatever kind it is.
fn until_cut(stream: &mut TcpStream) -> usize {
    let (mut came, mut piece) = (0, [0; 8_192]);
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        came += length;
    }
    came
}

#[test]
fn a_cut_account_is_listed_as_cut_at_once_and_no_daemon_is_promised() {
    let off = Accounts::with("");
    let said = off.account(&["add", "tanaka", "--peer", "ship"], "");
    assert!(said.contains("it counts once accounts are enabled"), "{said}");
    let unknown = off.run(&["account", "set", "tanaka", "--peer", "ship2"]);
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(unknown.status.success() && said.contains("knows no peer `ship2`"), "{unknown:?}");
    let said = off.account(&["set", "tanaka", "--down", "5 Mbit/s"], "");
    assert!(said.contains("accounts are not enabled"), "{said}");
    let (accounts, server) = (Accounts::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let to = server.local_addr().unwrap();
    let quota = ["--quota", "50 kB/month", "--on-quota-exceeded", "cut"];
    accounts.account(&[&["add", "tanaka", "--address", "127.0.0.0/8"], &quota[..]].concat(), "");
    let daemon = accounts.serve();
    let (head, mut stream) = daemon.connect(to, "");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let (mut far, _) = server.accept().unwrap();
    let _cut = stream.write_all(&[7; 200_000]);
    drop(stream);
    let _cut = far.read_to_end(&mut Vec::new());
    wait_for("the cut", || daemon.status()["sharing"]["accounts"][0]["state"] == "cut");
    // before the use is settled in the database
    for list in [&["list"][..], &["show", "tanaka"]] {
        let said = accounts.account(list, "");
        assert!(said.contains("cut until ") && !said.contains("active"), "{said}");
    }
}

#[test]
fn admits_added_accounts_and_cuts_disabled_ones() {
    let (accounts, server) = (Accounts::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let to = server.local_addr().unwrap();
    let daemon = accounts.serve();
    assert!(daemon.connect(to, ANNA).0.starts_with("HTTP/1.1 407 "));
    let added = ["add", "tanaka", "--user", "anna", "--password-stdin"];
    assert_eq!(
        accounts.account(&added, "right password\n"),
        "added account \"tanaka\", #1; a running daemon admits it within a second\n"
    );
    wait_for("the new account", || daemon.connect(to, ANNA).0.starts_with("HTTP/1.1 200 "));
    assert!(daemon.connect(to, "").0.starts_with("HTTP/1.1 407 "));

    let (_, mut tunnel) = daemon.connect(to, ANNA);
    accounts.account(&["set", "tanaka", "--disable"], "");
    let mut rest = Vec::new();
    let ended = tunnel.read_to_end(&mut rest).unwrap_err();
    assert_eq!(ended.kind(), std::io::ErrorKind::ConnectionReset);
    let (answer, _) = daemon.connect(to, ANNA);
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    accounts.account(&["set", "tanaka", "--enable", "--deny", "127.0.0.0/8"], "");
    wait_for("the list", || daemon.connect(to, ANNA).0.starts_with("HTTP/1.1 403 "));
    accounts.account(&["remove", "tanaka"], "");
    wait_for("the removal", || daemon.connect(to, ANNA).0.starts_with("HTTP/1.1 407 "));
}

/// Bytes by account and period, and not what they were for.
#[test]
fn no_file_of_the_state_names_a_destination() {
    let (accounts, server) = (Accounts::new(), TcpListener::bind("127.77.66.55:0").unwrap());
    let to = server.local_addr().unwrap();
    accounts.account(&["add", "sato", "--address", "127.0.0.0/8"], "");
    let daemon = accounts.serve();
    let mut client = TcpStream::connect(daemon.address).unwrap();
    write!(client, "GET http://{to}/a-path-of-its-own HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let (mut far, _) = server.accept().unwrap();
    far.read_exact(&mut [0; 10]).unwrap();
    far.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    client.read_exact(&mut [0; 10]).unwrap();
    wait_for("what it used", || {
        let used = accounts.account(&["usage", "sato", "--json"], "");
        let used: serde_json::Value = serde_json::from_str(&used).unwrap();
        used["usage"][0]["up"].as_u64() > Some(0)
    });
    let files = fs::read_dir(daemon.path().join("state")).unwrap().flatten();
    let files: Vec<_> = files.map(|file| file.path()).filter(|path| path.is_file()).collect();
    assert!(files.len() > 1, "{files:?}");
    for path in files {
        let bytes = fs::read(&path).unwrap();
        for secret in [&b"a-path-of-its-own"[..], b"127.77.66.55", &[127, 77, 66, 55]] {
            let found = bytes.windows(secret.len()).any(|part| part == secret);
            assert!(!found, "{secret:?} in {path:?}");
        }
    }
}

#[test]
fn usage_survives_a_killed_daemon() {
    let (accounts, server) = (Accounts::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let to = server.local_addr().unwrap();
    accounts.account(&["add", "sato", "--address", "127.0.0.0/8"], "");
    let (up, down) = Daemon::opening(to, "");
    let (up, down) = (1000 + up, 3000 + down);
    for life in 1..=2_usize {
        let mut daemon = accounts.serve();
        let (_, mut client) = daemon.connect(to, "");
        let (mut far, _) = server.accept().unwrap();
        client.write_all(&[7; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        far.write_all(&[7; 3000]).unwrap();
        client.read_exact(&mut [0; 3000]).unwrap();
        // into the journal, and the connection is still open
        std::thread::sleep(Duration::from_millis(1_500));
        daemon.kill();
        drop(daemon);
        let daemon = accounts.serve();
        wait_for("settling", || {
            let json = accounts.account(&["usage", "sato", "--json"], "");
            let used: serde_json::Value = serde_json::from_str(&json).unwrap();
            used["usage"][0]["down"] == down * life && used["usage"][0]["up"] == up * life
        });
        drop(daemon);
    }
    let csv = accounts.account(&["usage", "--csv"], "");
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines[0], "account,name,begun,down,up");
    let used = format!("T00:00:00Z,{},{}", 2 * down, 2 * up);
    assert!(lines[1].starts_with("1,sato,20") && lines[1].ends_with(&used), "{csv}");
    accounts.account(&["remove", "sato"], "");
    assert!(accounts.account(&["usage"], "").contains("#1 (removed)"));
}

#[test]
fn shows_accounts_and_explains_errors() {
    let accounts = Accounts::new();
    assert!(accounts.account(&["list"], "").contains("ekiden account add"));
    accounts.account(
        &[
            "add",
            "sato",
            "--address",
            "100.64.7.0/24",
            "--down",
            "5 Mbit/s",
            "--quota",
            "20 GB/month",
        ],
        "",
    );
    let shown = accounts.account(&["show", "sato"], "");
    for part in
        ["address 100.64.7.0/24", "5 Mbit/s", "20 GB/month, then 256 kbit/s", "never", "always"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let listed = accounts.account(&["list"], "");
    assert!(listed.lines().nth(1).unwrap().starts_with("sato "), "{listed}");
    for (args, input, why) in [
        (&["add", "sato", "--address", "100.64.8.0/24"][..], "", "account \"sato\" exists already"),
        (&["add", "Sato", "--address", "100.64.8.0/24"], "", "differs from it by case alone"),
        (
            &["add", "ito", "--address", "100.64.7.0/24"],
            "",
            "the prefix \"100.64.7.0/24\" already belongs to a device",
        ),
        (&["add", "ito"], "", "needs a device"),
        (&["add", "a b", "--peer", "x"], "", "invalid name"),
        (&["add", "ito", "--user", "u", "--password-stdin"], "short\n", "8 to 255 bytes"),
        (&["add", "ito", "--user", "a:b", "--password-stdin"], "long enough\n", "no colon"),
        (&["set", "sato", "--forget", "tv"], "", "no device \"tv\""),
        (&["set", "sato", "--zone", "Atlantis"], "", "Asia/Tokyo"),
        (&["show", "ito"], "", "no account \"ito\""),
        (&["remove", "ito"], "", "no account \"ito\""),
        (&["usage", "ito"], "", "no account \"ito\""),
    ] {
        let said = accounts.account_fails(args, input);
        assert!(said.contains(why), "{args:?}: {said}");
    }
    // an account that is refused is not half there
    assert!(!accounts.account(&["list"], "").contains("ito"));
    accounts
        .configure("[accounts]\ndatabase = \"postgres://nobody@localhost/x?host=/nonexistent\"\n");
    assert!(accounts.account_fails(&["list"], "").contains("the database failed"));
}
