//! Log-ins beside a crowd: guessers of other addresses, and one device with many connections.

use super::server;
use crate::accounts::Accounts;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ekiden_testkit::{Daemon, PATIENCE, wait_for};
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// The status of the answer to one request with this log-in, from this address; 0 without an answer.
fn log_in(daemon: &Daemon, from: Ipv4Addr, to: SocketAddr, user: &str, password: &str) -> u16 {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = String::new();
    let credentials = STANDARD.encode(format!("{user}:{password}"));
    let request = format!(
        "GET http://{to}/ HTTP/1.1\r\nHost: {to}\r\nProxy-Authorization: Basic {credentials}\r\nConnection: close\r\n\r\n"
    );
    let asked = socket.connect(&daemon.address.into());
    let asked = asked.and_then(|()| (&socket).write_all(request.as_bytes()));
    if asked.and_then(|()| (&socket).read_to_string(&mut answer)).is_err() {
        return 0;
    }
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default()
}

#[test]
fn first_log_ins_are_served_beside_guessers() {
    const GUESSERS: usize = 80;
    const GUESSES: usize = 200;
    let accounts = Accounts::new();
    for user in 0..5 {
        let args = ["add", &format!("home{user}"), "--user", &format!("user{user}")];
        accounts.account(&[&args[..], &["--password-stdin"]].concat(), "right password\n");
    }
    let (daemon, page) = (accounts.serve(), server(None));
    let (enough, waiting) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for nth in 0..GUESSERS {
            let (daemon, enough, waiting) = (&daemon, &enough, &waiting);
            scope.spawn(move || {
                let from = Ipv4Addr::new(127, 0, 1, 1 + (nth % 4) as u8);
                for guess in 0..GUESSES {
                    if enough.load(SeqCst) {
                        break;
                    }
                    waiting.fetch_add(1, SeqCst);
                    // few users: an address that guesses at many has to wait, and so is no load
                    let user = format!("user{}", 100 + nth % 28);
                    log_in(daemon, from, page, &user, &format!("guess {nth} {guess}"));
                    waiting.fetch_sub(1, SeqCst);
                }
            });
        }
        wait_for("the guessers", || waiting.load(SeqCst) == GUESSERS);
        let right = |user: usize| {
            let daemon = &daemon;
            let user = format!("user{user}");
            let from = Ipv4Addr::new(127, 0, 2, 1);
            scope.spawn(move || log_in(daemon, from, page, &user, "right password"))
        };
        let right: Vec<_> = (0..5).map(right).collect();
        let answers: Vec<u16> = right.into_iter().map(|asked| asked.join().unwrap()).collect();
        enough.store(true, SeqCst);
        assert_eq!(answers, [200; 5]);
    });
}

#[test]
fn many_connections_of_one_device_log_in_at_once() {
    let accounts = Accounts::new();
    accounts.account(&["add", "home", "--user", "anna", "--password-stdin"], "right password\n");
    let (daemon, page) = (accounts.serve(), server(None));
    std::thread::scope(|scope| {
        let daemon = &daemon;
        let from = Ipv4Addr::LOCALHOST;
        let ask = |_| scope.spawn(move || log_in(daemon, from, page, "anna", "right password"));
        let asked: Vec<_> = (0..100).map(ask).collect();
        let answers: Vec<u16> = asked.into_iter().map(|asked| asked.join().unwrap()).collect();
        let refused = answers.iter().filter(|code| **code != 200).count();
        assert_eq!(refused, 0, "{answers:?}");
    });
}

/// An address of this machine that is not loopback, if it has one.
fn outer_address() -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // nothing is sent: this only chooses the source
    socket.connect("192.0.2.1:9").ok()?;
    match socket.local_addr().unwrap().ip() {
        IpAddr::V4(address) if !address.is_loopback() => Some(address),
        _ => None,
    }
}

#[test]
fn a_password_in_the_clear_is_refused_beyond_loopback() {
    let Some(outside) = outer_address() else {
        assert!(std::env::var_os("CI").is_none(), "this machine has no address but loopback");
        println!("SKIPPED: this machine has no address but loopback");
        return;
    };
    let accounts = Accounts::new();
    accounts.account(&["add", "home", "--user", "anna", "--password-stdin"], "right password\n");
    let (daemon, page) = (accounts.serve(), server(None));
    for password in ["right password", "wrong password"] {
        assert_eq!(log_in(&daemon, outside, page, "anna", password), 403);
    }
    assert_eq!(log_in(&daemon, Ipv4Addr::LOCALHOST, page, "anna", "right password"), 200);
    let log = daemon.log();
    assert!(log.contains("its password would cross the network in cleartext"), "{log}");
}
