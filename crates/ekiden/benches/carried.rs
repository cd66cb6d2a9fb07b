//! What an account's bytes take of a core: downloads by curl through a relay with accounts, in the clear and within TLS,
//! against the processor time that the relay used.
//!
//! `cargo bench -p ekiden --bench carried [GIB]`: 5 rounds of each; 2 GiB a round unless said.
#![allow(clippy::unwrap_used)] // a measurement that cannot go on panics

#[path = "../tests/it/accounts/mod.rs"]
mod accounts;

use accounts::Accounts;
use ekiden_testkit::{Certificate, Daemon};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

const ROUNDS: usize = 5;

/// Sends so many bytes to whoever asks.
fn server(bytes: u64) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let (mut head, mut piece) = (Vec::<u8>::new(), [0; 1_024]);
                while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut piece) {
                        Ok(n @ 1..) => head.extend(&piece[..n]),
                        _ => return,
                    }
                }
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
                let _ = stream.write_all(head.as_bytes());
                let (piece, mut left) = (vec![7; 1 << 20], bytes);
                while left > 0 {
                    let n = left.min(1 << 20);
                    if stream.write_all(&piece[..n as usize]).is_err() {
                        return;
                    }
                    left -= n;
                }
            });
        }
    });
    address
}

/// A certificate for "localhost" and its key.
fn certificate(folder: &Path) {
    Certificate::self_signed(folder, "own", &["localhost"]);
}

/// GB a second of a core, for one download each of so many curls at once.
fn carried(
    daemon: &Daemon,
    folder: &Path,
    scheme: &str,
    to: SocketAddr,
    at_once: u64,
    bytes: u64,
) -> f64 {
    let before = daemon.cpu();
    let curl = || {
        Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--noproxy", "", "--output", "/dev/null"])
            .args(["--proxy", &format!("{scheme}://localhost:{}", daemon.address.port())])
            .args(["--proxy-user", "anna:right password", "--proxytunnel"])
            .arg("--proxy-cacert")
            .arg(folder.join("own-certificate.pem"))
            .arg(format!("http://{to}/"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    };
    let curls: Vec<_> = (0..at_once).map(|_| curl()).collect();
    for mut curl in curls {
        assert!(curl.wait().unwrap().success());
    }
    (bytes * at_once) as f64 / 1e9 / (daemon.cpu() - before)
}

fn main() {
    let gib = std::env::args().filter_map(|text| text.parse().ok()).next().unwrap_or(2);
    let accounts = Accounts::new();
    certificate(accounts.path());
    let folder = accounts.path().display();
    accounts.configure(&format!(
        "[accounts]\nenabled = true\n[tls]\ncertificate = \"{folder}/own-certificate.pem\"\nkey = \"{folder}/own-key.pem\"\n"
    ));
    accounts.account(&["add", "home", "--user", "anna", "--password-stdin"], "right password\n");
    let daemon = accounts.serve();
    println!("{gib} GiB of an account's downloads by CONNECT, medians of {ROUNDS}");
    println!("{:<12}{:>8}{:>20}", "client", "at once", "GB per CPU-second");
    for (name, scheme) in [("in the clear", "http"), ("TLS 1.3", "https")] {
        for at_once in [1, 8] {
            let bytes = (gib << 30) / at_once;
            let to = server(bytes);
            let round = |_| carried(&daemon, accounts.path(), scheme, to, at_once, bytes);
            let mut rounds: Vec<f64> = (0..ROUNDS).map(round).collect();
            rounds.sort_by(f64::total_cmp);
            println!("{name:<12}{at_once:>8}{:>20.2}", rounds[ROUNDS / 2]);
        }
    }
}
