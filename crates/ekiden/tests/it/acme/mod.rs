//! Certificates that the daemon orders by itself, from pebble.

mod authority;

use crate::daemons::{as_nobody, home};
use authority::{Authority, EXTERNAL_KEY, Manner, Secure, free_port, own_address, secure};
use ekiden_testkit::{Daemon, Home, eventually, wait_for};
use rustix::process::Signal;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

const NAMES: &str = "[\"relay.example\", \"www.relay.example\"]";
const LOOPBACK: &str = "[access]\nallow_destinations = [\"127.0.0.0/8\"]\n";

/// The daemon on the port at which the authority looks for answers.
fn serve(home: &Arc<Home>, at: (Ipv4Addr, u16)) -> Daemon {
    home.serve_by(home.command(&["serve", "--listen", &format!("{}:{}", at.0, at.1)]))
}

fn acme(daemon: &Daemon) -> serde_json::Value {
    daemon.status()["acme"].clone()
}

fn obtained(daemon: &Daemon, n: u64) {
    let log = || format!("no certificate: {} {}", acme(daemon), daemon.log());
    ekiden_testkit::eventually_or(log, || (acme(daemon)["obtained"] == n).then_some(()));
}

fn failure(daemon: &Daemon) -> String {
    eventually("a failed order", || {
        let acme = acme(daemon);
        // the time of the next order is said when the failure is counted
        acme["next_order_in_seconds"].as_f64()?;
        acme["last_failure"].as_str().map(str::to_owned)
    })
}

fn shown(daemon: &Daemon, name: &str, roots: &RootCertStore) -> Option<CertificateDer<'static>> {
    let stream = TcpStream::connect(daemon.address).unwrap();
    let secure = secure(stream, name, roots.clone(), &[b"http/1.1"]).ok()?;
    Some(secure.conn.peer_certificates()?.first()?.clone().into_owned())
}

/// Sends back what it is sent.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut bytes = [0; 64];
                while let Ok(n) = stream.read(&mut bytes) {
                    if n == 0 || stream.write_all(&bytes[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn connect(stream: &mut (impl Read + Write), to: SocketAddr) {
    write!(stream, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
}

fn echoes(stream: &mut (impl Read + Write), nth: usize) -> bool {
    let sent = format!("{nth:08}");
    let mut back = [0; 8];
    stream.write_all(sent.as_bytes()).is_ok()
        && stream.flush().is_ok()
        && stream.read_exact(&mut back).is_ok()
        && back == sent.as_bytes()
}

#[test]
fn a_certificate_is_ordered_kept_and_renewed_while_connections_run() {
    let ip = own_address();
    let (port, directory) = (free_port(ip), free_port(ip));
    let prepared = Authority::prepare(ip);
    let place = prepared.0.path().to_owned();
    let table = |more: &str| {
        Authority::table(&place, (ip, directory), NAMES, &format!("{more}\n{LOOPBACK}"))
    };
    // first there is no authority
    let home = home(&table(""));
    let daemon = serve(&home, (ip, port));
    let why = failure(&daemon);
    assert!(why.contains("the authority cannot be asked") && why.contains("refused"), "{why}");
    let waits = acme(&daemon)["next_order_in_seconds"].as_f64().unwrap();
    assert!(waits > 30.0 && acme(&daemon)["failures"] == 1, "{waits}");
    let nobody = RootCertStore::empty();
    let stream = TcpStream::connect(daemon.address).unwrap();
    let refused = secure(stream, "relay.example", nobody, &[]).err().unwrap();
    assert!(refused.contains("AccessDenied"), "{refused}");
    wait_for("the reason in the log", || {
        daemon.log().contains("there is no certificate: the last")
    });
    let text = home.printed(&["status"]);
    assert!(text.contains("certificate for relay.example, www.relay.example: none yet"), "{text}");

    let manner = Manner { ip, challenges: port, port: directory, external: false, resolves: true };
    let Some(authority) = Authority::start(prepared, manner) else { return };
    daemon.reload(&table("contact = \"you@relay.example\""));
    obtained(&daemon, 1);
    let roots = authority.root();
    for name in ["relay.example", "www.relay.example"] {
        eventually("the certificate", || shown(&daemon, name, &roots));
    }
    assert!(shown(&daemon, "other.example", &roots).is_none());
    let seen = acme(&daemon);
    assert!(seen["last_failure"].is_null() && seen["failures"] == 0, "{seen}");
    let left = seen["expires_in_seconds"].as_f64().unwrap();
    assert!(left > 80.0 * 86_400.0 && left < 90.0 * 86_400.0, "{left}");
    assert!(home.printed(&["status"]).contains("ends in 89 d"), "{}", home.printed(&["status"]));
    for file in kept(&home) {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    // its challenges are over
    let stream = TcpStream::connect(daemon.address).unwrap();
    assert!(secure(stream, "relay.example", roots.clone(), &[b"acme-tls/1"]).is_err());

    // renewed under a hundred connections, half of them within TLS
    let to = echo();
    let mut plain: Vec<TcpStream> = (0..50).map(|_| daemon.connect(to, "").1).collect();
    let mut within: Vec<Secure> = (0..50)
        .map(|_| {
            let stream = TcpStream::connect(daemon.address).unwrap();
            let mut secure =
                secure(stream, "relay.example", roots.clone(), &[b"http/1.1"]).unwrap();
            connect(&mut secure, to);
            secure
        })
        .collect();
    let first = shown(&daemon, "relay.example", &roots).unwrap();
    authority.wants_renewal(&first);
    daemon.signal(Signal::HUP);
    let mut rounds = 0;
    wait_for("the next certificate", || {
        rounds += 1;
        assert!(plain.iter_mut().enumerate().all(|(nth, stream)| echoes(stream, nth)));
        assert!(within.iter_mut().enumerate().all(|(nth, stream)| echoes(stream, nth)));
        shown(&daemon, "relay.example", &roots).is_some_and(|now| now != first)
    });
    obtained(&daemon, 2);
    let unhurt =
        plain.iter_mut().enumerate().filter_map(|(n, s)| echoes(s, n).then_some(())).count()
            + within.iter_mut().enumerate().filter_map(|(n, s)| echoes(s, n).then_some(())).count();
    println!("renewed after {rounds} rounds of 100 echoes; {unhurt} connections are still whole");
    assert_eq!(unhurt, 100);
    assert!(
        authority.log().contains("replaces") || daemon.log().contains("advises"),
        "{}",
        daemon.log()
    );

    // after a restart it is there at once, and none is ordered
    drop((plain, within));
    let renewed = shown(&daemon, "relay.example", &roots).unwrap();
    daemon.stop();
    let daemon = serve(&home, (ip, port));
    assert_eq!(shown(&daemon, "relay.example", &roots), Some(renewed));
    assert_eq!(acme(&daemon)["obtained"], 0);
    drop(authority);
}

fn kept(home: &Home) -> Vec<std::path::PathBuf> {
    let acme = home.path().join("state/acme");
    let folder = fs::read_dir(acme).unwrap().next().unwrap().unwrap().path();
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
    files
}

#[test]
fn a_challenge_that_goes_astray_is_said_and_not_repeated() {
    // something else answers, nothing answers, and the name leads nowhere
    for (answers, resolves, words) in [
        (true, true, "port 443 of relay.example must be open"),
        (false, true, "443"),
        (false, false, "must have this machine's public address in the DNS"),
    ] {
        let ip = own_address();
        let (port, directory) = (free_port(ip), free_port(ip));
        let other = TcpListener::bind((ip, 0)).unwrap();
        let challenges = other.local_addr().unwrap().port();
        if answers {
            std::thread::spawn(move || other.incoming().flatten().for_each(drop));
        } else {
            drop(other);
        }
        let manner = Manner { ip, challenges, port: directory, external: false, resolves };
        let Some(authority) = Authority::start(Authority::prepare(ip), manner) else { return };
        let config = Authority::table(authority.folder(), (ip, directory), "\"relay.example\"", "");
        let home = home(&config);
        let daemon = serve(&home, (ip, port));
        let why = failure(&daemon);
        println!("{why}");
        assert!(why.contains(words), "{why}");
        let seen = acme(&daemon);
        assert!(seen["failures"] == 1, "{seen}");
        assert!(seen["next_order_in_seconds"].as_f64().unwrap() > 30.0, "{seen}");
        // asking again changes nothing within the first minute
        daemon.signal(Signal::HUP);
        wait_for("the reload", || daemon.status()["reloads"] == 1);
        assert_eq!(acme(&daemon)["failures"], 1);
        // nor does a restart
        daemon.stop();
        let daemon = serve(&home, (ip, port));
        let wait = eventually("the next order", || acme(&daemon)["next_order_in_seconds"].as_f64());
        assert!(wait > 10.0 && acme(&daemon)["failures"] == 0, "{wait}");
        daemon.reload(&Authority::table(
            authority.folder(),
            (ip, directory),
            "\"relay.example\"",
            "contact = \"you@relay.example\"\n",
        ));
        failure(&daemon);
        let doctor = String::from_utf8(home.run(&["doctor"]).stdout).unwrap();
        assert!(doctor.contains("no certificate for relay.example"), "{doctor}");
    }
}

#[test]
fn an_external_account_is_bound() {
    let ip = own_address();
    let (port, directory) = (free_port(ip), free_port(ip));
    let manner = Manner { ip, challenges: port, port: directory, external: true, resolves: true };
    let Some(authority) = Authority::start(Authority::prepare(ip), manner) else { return };
    let name = "\"relay.example\"";
    let home = home(&Authority::table(authority.folder(), (ip, directory), name, ""));
    let daemon = serve(&home, (ip, port));
    let why = failure(&daemon);
    assert!(why.contains("set `external_key_id`"), "{why}");
    let file = authority.folder().join("key");
    fs::write(&file, format!("{EXTERNAL_KEY}\n")).unwrap();
    let keys = format!("external_key_id = \"kid-1\"\nexternal_key_file = \"{}\"\n", file.display());
    daemon.reload(&Authority::table(authority.folder(), (ip, directory), name, &keys));
    obtained(&daemon, 1);
}

/// The authority's connection is that of a stranger, whom the rules refuse everything else.
#[test]
fn no_rule_refuses_a_challenge() {
    let ip = own_address();
    let (port, directory) = (free_port(ip), free_port(ip));
    let manner = Manner { ip, challenges: port, port: directory, external: false, resolves: true };
    let Some(authority) = Authority::start(Authority::prepare(ip), manner) else { return };
    let rules = "[sharing]\nunclaimed = \"refuse\"\n[[account]]\nname = \"village\"\naddresses = [\"192.0.2.0/24\"]\n";
    let home =
        home(&Authority::table(authority.folder(), (ip, directory), "\"relay.example\"", rules));
    let daemon = serve(&home, (ip, port));
    obtained(&daemon, 1);
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    let mut answer = String::new();
    let _ = stream.write_all(b"GET http://127.0.0.1:1/ HTTP/1.1\r\n\r\n");
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}

/// What cannot be kept is not ordered, so that no authority counts it.
#[test]
fn nothing_is_ordered_into_a_folder_that_is_closed() {
    let ip = own_address();
    let directory = TcpListener::bind((ip, 0)).unwrap();
    let port = directory.local_addr().unwrap().port();
    let (place, _) = Authority::prepare(ip);
    let home = home(&Authority::table(place.path(), (ip, port), "\"relay.example\"", LOOPBACK));
    let hash = Sha256::digest(format!("https://{ip}:{port}/dir"));
    let short: String = hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let folder = home.path().join(format!("state/acme/{ip}-{short}"));
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let Some(command) = as_nobody(&home, &["serve", "--listen", &format!("{ip}:0")]) else {
        return;
    };
    // made by root, before it left files to the service
    fs::create_dir_all(&folder).unwrap();
    let daemon = home.serve_by(command);
    let why = failure(&daemon);
    assert!(why.contains("unfinished.json cannot be written: Permission denied"), "{why}");
    assert!(why.contains("nothing was ordered"), "{why}");
    directory.set_nonblocking(true).unwrap();
    assert!(directory.accept().is_err(), "the authority was asked: {}", daemon.log());
}
