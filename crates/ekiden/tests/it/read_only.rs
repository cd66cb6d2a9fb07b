//! A relay whose files can no longer be written serves, says so, and writes what it kept once it can.

use crate::daemons::home;
use ekiden_testkit::{Daemon, Home, PATIENCE, wait_for};
use rustix::process::{Resource, Rlimit, prlimit};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;

const CONFIG: &str = "[access]\nallow_destinations = [\"127.0.0.0/8\"]\n[log]\naccess = \"DIR/access.log\"\n\
     [accounts]\nenabled = true\n[alerts]\nafter = \"1 s\"\n[management]\nlisten = \"127.0.0.1:0\"\n";
/// Runs a command that survives a limit of its files. Its log goes through a pipe, which has none.
const SERVE: &str = "trap '' XFSZ; exec \"$@\" 2> >(exec cat >&2)";
/// Bytes of each connection.
const UP: usize = 100_000;
const ANSWER: &[u8] = b"taken";

/// The daemon in a mount namespace of its own. `None`, said aloud, where that takes more than this test has.
fn serve(home: &Arc<Home>) -> Option<Daemon> {
    let tried = Command::new("unshare").args(["--mount", "bash", "-c", "true"]).output().unwrap();
    if !tried.status.success() {
        assert!(std::env::var_os("CI").is_none(), "a mount namespace takes root: {tried:?}");
        println!("SKIPPED: a mount namespace takes root: {tried:?}");
        return None;
    }
    let mut program = Command::new("unshare");
    program.args(["--mount", "bash", "-c", SERVE, "bash", env!("CARGO_BIN_EXE_ekiden")]);
    Some(home.serve_by(home.command_of(program, &["serve", "--listen", "127.0.0.1:0"])))
}

/// For the daemon alone: nothing below the state folder can be opened to be written, and files that are open take
/// nothing. Or all is as before.
fn set_writable(daemon: &Daemon, writable: bool) {
    let mount = match writable {
        true => "mount -o remount,bind,rw \"$0\"",
        false => "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\"",
    };
    let pid = daemon.pid();
    let mut command = Command::new("nsenter");
    command.args(["--target", &pid.as_raw_nonzero().to_string(), "--mount", "sh", "-c", mount]);
    let done = command.arg(daemon.path().join("state")).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let current = if writable { None } else { Some(0) };
    prlimit(Some(pid), Resource::Fsize, Rlimit { current, maximum: None }).unwrap();
}

/// Whether a command succeeds where the daemon's files are, and what it says.
fn said_beside(daemon: &Daemon, home: &Home, args: &[&str]) -> (bool, String) {
    let mut program = Command::new("nsenter");
    let pid = daemon.pid().as_raw_nonzero().to_string();
    program.args(["--target", &pid, "--mount", env!("CARGO_BIN_EXE_ekiden")]);
    let done = home.command_of(program, args).output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8(said).unwrap())
}

/// Takes all that a client sends, and answers.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            stream.read_to_end(&mut Vec::new()).unwrap();
            stream.write_all(ANSWER).unwrap();
        }
    });
    address
}

/// A connection is served as ever.
fn move_bytes(daemon: &Daemon, to: SocketAddr) {
    let (head, mut stream) = daemon.connect(to, "");
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    stream.write_all(&vec![7; UP]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, ANSWER);
}

/// What so many connections use: bytes down and up.
fn of(connections: u64, to: SocketAddr) -> (u64, u64) {
    let (up, down) = Daemon::opening(to, "");
    (connections * (down + ANSWER.len()) as u64, connections * (up + UP) as u64)
}

/// What the database has heard of.
fn used(home: &Home) -> (u64, u64) {
    let printed = home.printed(&["account", "usage", "home", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let field = |name: &str| document["usage"][0][name].as_u64().unwrap_or(0);
    (field("down"), field("up"))
}

fn metrics(daemon: &Daemon) -> String {
    let log = daemon.log();
    let (_, rest) = log.split_once("management at http://").unwrap();
    let port: SocketAddr = rest.split(": /").next().unwrap().parse().unwrap();
    let mut stream = TcpStream::connect(port).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {port}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_relay_whose_files_become_read_only_serves_says_so_and_keeps_what_is_used() {
    let home = home(CONFIG);
    home.printed(&["account", "add", "home", "--address", "127.0.0.0/8"]);
    let Some(mut daemon) = serve(&home) else { return };
    let to = server();
    let is_used = |connections| used(&home) == of(connections, to);
    move_bytes(&daemon, to);
    wait_for("its usage", || is_used(1));
    let logged = || fs::read_to_string(home.path().join("access.log")).unwrap().lines().count();
    wait_for("its line", || logged() == 1);

    set_writable(&daemon, false);
    (0..2).for_each(|_| move_bytes(&daemon, to));
    let accounts = |field: &str| daemon.status()["accounts"][field].clone();
    wait_for("usage that cannot be written", || accounts("unwritten").is_string());
    // it fires only if it is so without a pause
    let printed = || home.printed(&["status"]);
    for alert in ["alert not-saved for ", "alert database-away for "] {
        wait_for(alert, || printed().contains(alert));
    }
    assert!(printed().contains("; usage cannot be written, and is kept in memory: "));
    for alert in ["not-saved", "database-away"] {
        assert!(metrics(&daemon).contains(&format!("ekiden_alerts_firing{{alert=\"{alert}\"}} ")));
    }
    let (is_listed, said) = said_beside(&daemon, &home, &["account", "list"]);
    assert!(is_listed && said.contains("home"), "{said}");
    let add = ["account", "add", "other", "--address", "192.0.2.0/24"];
    let (is_added, said) = said_beside(&daemon, &home, &add);
    assert!(!is_added && said.contains("accounts.db cannot be used: Read-only"), "{said}");
    assert_eq!((used(&home), logged()), (of(1, to), 1));

    set_writable(&daemon, true);
    wait_for("a disk again", || accounts("unwritten").is_null() && accounts("away").is_null());
    wait_for("what was kept", || is_used(3));
    move_bytes(&daemon, to);
    wait_for("the next line", || logged() == 2);
    wait_for("the next usage", || is_used(4));
    let log = daemon.log();
    for line in [
        "cannot write usage; keeping it in memory",
        "accounts' database is unreachable, using known accounts",
        "accounts' database is reachable again",
    ] {
        assert_eq!(log.matches(line).count(), 1, "{line}: {log}");
    }
    assert!(log.contains("cannot write the access log"), "{log}");
    daemon.kill();
    home.serve().stop();
    assert!(is_used(4));
}
