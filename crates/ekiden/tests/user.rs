//! `ekiden user` beside a running daemon: who is added comes in, who is disabled goes, what was used is written
//! down, also when the daemon is killed.
#![allow(clippy::unwrap_used)] // a test may fail loudly

mod households;

use households::{ANNA, Place, wait_for};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// So many connections, so many bytes to the byte, and then an end, which outlives the daemon.
#[test]
fn what_an_account_may_holds() {
    let (place, server) = (Place::new(), TcpListener::bind("127.0.0.1:0").unwrap());
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
    let limits = ["--connections", "1", "--quota", "100000 B/month", "--when-spent", "cut"];
    let added = [&["add", "home", "--user", "anna", "--password-stdin"], &limits[..]].concat();
    place.did(&added, "right password\n");
    let mut daemon = place.serve();
    let (answer, mut one) = daemon.connect(to, ANNA);
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let (second, mut rest) = daemon.connect(to, ANNA);
    let mut body = String::new();
    let _ = rest.read_to_string(&mut body);
    assert!(second.starts_with("HTTP/1.1 429 "), "{second}{body}");
    one.write_all(b"!").unwrap();
    assert_eq!(until_cut(&mut one), 99_999, "and the one that asked");
    drop(one);
    wait_for("the journal", || place.did(&["usage", "--csv"], "").contains(",99999,1"));
    daemon.kill();
    let daemon = place.serve();
    let (spent, _) = daemon.connect(to, ANNA);
    assert!(spent.starts_with("HTTP/1.1 403 "), "{spent}");
    // another quota goes on from what was counted, by the same count
    place.did(&["set", "home", "--quota", "250000 B/month"], "");
    let mut again = None;
    wait_for("the larger quota", || {
        let (answer, stream) = daemon.connect(to, ANNA);
        again = answer.starts_with("HTTP/1.1 200 ").then_some(stream);
        again.is_some()
    });
    let mut again = again.unwrap();
    again.write_all(b"!").unwrap();
    assert_eq!(until_cut(&mut again), 149_999, "and the one that asked");
    wait_for("the journal", || place.did(&["usage", "--csv"], "").contains(",249998,2"));
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
fn who_is_added_comes_in_and_who_is_disabled_goes() {
    let (place, server) = (Place::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let to = server.local_addr().unwrap();
    let daemon = place.serve();
    assert!(daemon.connect(to, ANNA).0.starts_with("HTTP/1.1 407 "));
    let added = ["add", "tanaka", "--user", "anna", "--password-stdin"];
    assert_eq!(
        place.did(&added, "right password\n"),
        "household «tanaka» is added, #1; a running daemon lets it in within a second\n"
    );
    wait_for("the new household", || daemon.connect(to, ANNA).0.starts_with("HTTP/1.1 200 "));
    assert!(daemon.connect(to, "").0.starts_with("HTTP/1.1 407 "));

    let (_, mut tunnel) = daemon.connect(to, ANNA);
    place.did(&["set", "tanaka", "--disable"], "");
    let mut rest = Vec::new();
    let ended = tunnel.read_to_end(&mut rest).unwrap_err();
    assert_eq!(ended.kind(), std::io::ErrorKind::ConnectionReset);
    let (answer, _) = daemon.connect(to, ANNA);
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    place.did(&["set", "tanaka", "--enable", "--deny", "127.0.0.0/8"], "");
    wait_for("the list", || daemon.connect(to, ANNA).0.starts_with("HTTP/1.1 403 "));
    place.did(&["remove", "tanaka"], "");
    wait_for("the removal", || daemon.connect(to, ANNA).0.starts_with("HTTP/1.1 407 "));
}

#[test]
fn what_was_used_is_written_down_whoever_is_killed() {
    let (place, server) = (Place::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let to = server.local_addr().unwrap();
    place.did(&["add", "sato", "--address", "127.0.0.0/8"], "");
    for life in 1..=2_u64 {
        let mut daemon = place.serve();
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
        let daemon = place.serve();
        wait_for("settling", || {
            let json = place.did(&["usage", "sato", "--json"], "");
            let used: serde_json::Value = serde_json::from_str(&json).unwrap();
            used["usage"][0]["down"] == 3000 * life && used["usage"][0]["up"] == 1000 * life
        });
        drop(daemon);
    }
    let csv = place.did(&["usage", "--csv"], "");
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines[0], "account,name,begun,down,up");
    assert!(
        lines[1].starts_with("1,sato,20") && lines[1].ends_with("T00:00:00Z,6000,2000"),
        "{csv}"
    );
    place.did(&["remove", "sato"], "");
    assert!(place.did(&["usage"], "").contains("#1 (removed)"));
}

#[test]
fn what_is_said_is_shown_and_what_is_wrong_is_explained() {
    let place = Place::new();
    assert!(place.did(&["list"], "").contains("ekiden user add"));
    place.did(
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
    let shown = place.did(&["show", "sato"], "");
    for part in ["at 100.64.7.0/24", "5 Mbit/s", "20 GB/month, then 256 kbit/s", "never", "always"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let listed = place.did(&["list"], "");
    assert!(listed.lines().nth(1).unwrap().starts_with("sato "), "{listed}");
    for (args, input, why) in [
        (
            &["add", "sato", "--address", "100.64.8.0/24"][..],
            "",
            "there is a household «sato» already",
        ),
        (
            &["add", "ito", "--address", "100.64.7.0/24"],
            "",
            "known by the prefix «100.64.7.0/24» already",
        ),
        (&["add", "ito"], "", "has to be known by something"),
        (&["add", "a b", "--relay", "x"], "", "is no name"),
        (&["add", "ito", "--user", "u", "--password-stdin"], "short\n", "8 to 255 bytes"),
        (&["add", "ito", "--user", "a:b", "--password-stdin"], "long enough\n", "no colon"),
        (&["set", "sato", "--forget", "tv"], "", "no device «tv»"),
        (&["set", "sato", "--zone", "Atlantis"], "", "Asia/Tokyo"),
        (&["show", "ito"], "", "there is no household «ito»"),
        (&["remove", "ito"], "", "there is no household «ito»"),
        (&["usage", "ito"], "", "there is no household «ito»"),
    ] {
        let said = place.did_not(args, input);
        assert!(said.contains(why), "{args:?}: {said}");
    }
    // a household that is refused is not half there
    assert!(!place.did(&["list"], "").contains("ito"));
    place.configure("[accounts]\ndatabase = \"postgres://nobody@localhost/x?host=/nonexistent\"\n");
    assert!(place.did_not(&["list"], "").contains("the database does not do it"));
}
