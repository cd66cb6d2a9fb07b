//! The daemon with live connections: reload, stop, a lack of descriptors, the access log.

use crate::daemons::{daemon as start, home, stderr};
use ekiden_testkit::{Daemon, eventually, wait_for};
use rustix::fs::{CWD, Mode, OFlags, fcntl_setfl, mkfifoat};
use rustix::process::{Resource, Rlimit, Signal, prlimit};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

const OPEN: &str = "[access]\nallow_destinations = [\"127.0.0.0/8\"]\n";

/// Sends back what it is sent.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut writer = stream.try_clone().unwrap();
                let _ = std::io::copy(&mut stream, &mut writer);
                let _ = writer.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    address
}

fn connect(daemon: &Daemon, to: SocketAddr, more: &str) -> TcpStream {
    try_connect(daemon, to, more).unwrap_or_else(|head| panic!("{head}"))
}

/// Or the head of the refusal.
fn try_connect(daemon: &Daemon, to: SocketAddr, more: &str) -> Result<TcpStream, String> {
    let (head, stream) = daemon.connect(to, more);
    if head.starts_with("HTTP/1.1 200") { Ok(stream) } else { Err(head) }
}

fn echoes(stream: &mut TcpStream) -> bool {
    let mut back = [0; 2];
    stream.write_all(b"hi").is_ok() && stream.read_exact(&mut back).is_ok() && back == *b"hi"
}

#[test]
fn a_reload_leaves_transfers_alone_and_a_live_status_holds_to_the_schema() {
    let daemon = start(OPEN);
    let (relay, to) = (daemon.address, echo());
    let mut stream = connect(&daemon, to, "");
    assert!(echoes(&mut stream));
    daemon.reload(&format!("name = \"other\"\n{OPEN}"));
    assert!(echoes(&mut stream));
    // access is closed to newcomers now
    daemon.reload("name = \"third\"\n");
    assert!(echoes(&mut stream));
    let mut refused = TcpStream::connect(relay).unwrap();
    write!(refused, "CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").unwrap();
    let mut text = String::new();
    refused.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 403"), "{text}");
    let status = daemon.status();
    assert_eq!(status["connections"][0]["legs"].as_array().unwrap().len(), 2);
    let schema = include_str!("../../../../docs/book/src/reference/schema/status.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    jsonschema::validator_for(&schema).unwrap().validate(&status).unwrap();
}

#[test]
fn a_stop_waits_for_transfers_closes_idle_ones_and_takes_nobody_new() {
    let mut daemon = start(OPEN);
    let (relay, to) = (daemon.address, echo());
    let mut busy = connect(&daemon, to, "");
    let mut silent = TcpStream::connect(relay).unwrap();
    wait_for("both connections", || daemon.status()["connections"].as_array().unwrap().len() == 2);
    daemon.signal(Signal::TERM);
    assert_eq!(silent.read(&mut [0]).unwrap(), 0);
    wait_for("a closed listener", || TcpStream::connect(relay).is_err());
    assert!(echoes(&mut busy), "it may finish");
    drop(busy);
    assert_eq!(daemon.code(), Some(0));
    assert!(daemon.log().contains("2 connections finished"), "{}", daemon.log());
}

#[test]
fn cuts_remaining_connections_at_the_limit_or_second_signal() {
    let mut daemon = start(&format!("{OPEN}[timeouts]\nstop = \"200 ms\"\n"));
    let mut stream = connect(&daemon, echo(), "");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.code(), Some(0));
    assert!(stream.read(&mut [0]).is_err(), "its end would be taken for the stream's");
    assert!(daemon.log().contains("0 connections finished, 1 was cut"));
    let mut daemon = start(OPEN);
    let mut stream = connect(&daemon, echo(), "");
    daemon.signal(Signal::TERM);
    wait_for("its line in the log", || daemon.log().contains("a second signal ends at once"));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.code(), Some(0));
    assert!(stream.read(&mut [0]).is_err(), "its end would be taken for the stream's");
    assert!(daemon.log().contains("second signal, which cut 1 connection"), "{}", daemon.log());
}

#[test]
fn a_reload_listens_where_the_configuration_says_there_and_back() {
    let [one, two] = ["127.0.40.1", "127.0.40.2"].map(|ip| {
        let socket = TcpListener::bind((ip, 0)).unwrap();
        socket.local_addr().unwrap()
    });
    let config = |listen: &[SocketAddr]| {
        let list: Vec<_> = listen.iter().map(|address| format!("\"{address}\"")).collect();
        format!("listen = [{}]\n{OPEN}", list.join(", "))
    };
    let home = home(&config(&[one]));
    let daemon = home.serve_by(home.command(&["serve"]));
    let listens = |address| TcpStream::connect(address).is_ok();
    assert!(listens(one) && !listens(two));
    for (listen, at_one, at_two) in
        [(&[one, two][..], true, true), (&[two], false, true), (&[one], true, false)]
    {
        daemon.reload(&config(listen));
        wait_for("the addresses", || (listens(one), listens(two)) == (at_one, at_two));
        assert_eq!(daemon.status()["listen"].as_array().unwrap().len(), listen.len());
    }
}

#[test]
fn a_reload_refuses_an_empty_and_a_cut_file() {
    let config = format!("name = \"whole\"\n{OPEN}");
    let daemon = start(&config);
    for (text, why) in
        [("", "the configuration is empty"), ("name = \"whole\"\n[access]", "is cut off")]
    {
        fs::write(daemon.config(), text).unwrap();
        daemon.signal(Signal::HUP);
        wait_for("the reason", || daemon.log().contains(why));
    }
    assert_eq!(daemon.status()["name"], "whole");
    assert_eq!(daemon.status()["reloads"], 0);
}

#[test]
fn out_of_descriptors_it_says_so_once_and_recovers() {
    let daemon = start(OPEN);
    let (relay, to) = (daemon.address, echo());
    let open = fs::read_dir(daemon.proc("fd")).unwrap().count() as u64;
    let before = prlimit(
        Some(daemon.pid()),
        Resource::Nofile,
        Rlimit { current: Some(open + 4), maximum: Some(4096) },
    )
    .unwrap();
    assert!(before.current.is_none_or(|limit| limit > open));
    let waiting: Vec<_> = (0..16).map(|_| TcpStream::connect(relay).unwrap()).collect();
    wait_for("its line in the log", || daemon.log().contains("cannot accept connections"));
    drop(waiting);
    // those in the listener's queue are taken in and seen to be gone first, and have descriptors until then
    let mut stream = eventually("a descriptor", || try_connect(&daemon, to, "").ok());
    assert!(echoes(&mut stream));
    assert_eq!(daemon.log().matches("cannot accept connections").count(), 1, "{}", daemon.log());
}

#[test]
fn the_access_log_is_json_without_credentials_and_reopened() {
    let config = format!("{OPEN}[log]\naccess = \"DIR/access.log\"\n");
    let daemon = start(&config);
    let to = echo();
    let lines = |name: &str| fs::read_to_string(daemon.path().join(name)).unwrap_or_default();
    let secret = "Proxy-Authorization: Basic c2VjcmV0OnBhc3N3b3Jk\r\n";
    drop(connect(&daemon, to, secret));
    wait_for("a line", || lines("access.log").ends_with('\n'));
    fs::rename(daemon.path().join("access.log"), daemon.path().join("old.log")).unwrap();
    daemon.reload(&config);
    drop(connect(&daemon, to, secret));
    let new =
        eventually("a line", || Some(lines("access.log")).filter(|text| text.ends_with('\n')));
    assert_eq!(lines("old.log").lines().count(), 1);
    let record: serde_json::Value = serde_json::from_str(&new).unwrap();
    let mut keys: Vec<_> = record.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(
        keys.join(" "),
        "bytes_down bytes_up client connection method protocol result seconds status target through time"
    );
    assert_eq!(
        (record["target"].as_str(), record["status"].as_u64()),
        (Some(&*to.to_string()), Some(200))
    );
    for text in [new, lines("old.log"), daemon.log()] {
        assert!(!text.contains("c2VjcmV0") && !text.contains("secret"), "{text}");
    }
}

#[test]
fn a_reload_that_is_refused_reopens_the_access_log() {
    let daemon = start(&format!("{OPEN}[log]\naccess = \"DIR/access.log\"\n"));
    let at = |name: &str| daemon.path().join(name);
    fs::rename(at("access.log"), at("access.log.1")).unwrap();
    fs::write(daemon.config(), "nonsense = 1\n").unwrap();
    daemon.signal(Signal::HUP);
    wait_for("the refusal", || !daemon.status()["refused_reload"].is_null());
    drop(connect(&daemon, echo(), ""));
    let lines = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
    wait_for("a line", || lines("access.log").ends_with('\n') || !lines("access.log.1").is_empty());
    assert_eq!((lines("access.log").lines().count(), lines("access.log.1")), (1, String::new()));
}

#[test]
fn an_access_log_that_nobody_reads_holds_up_neither_clients_nor_the_stop() {
    let home = home(&format!("{OPEN}[log]\naccess = \"DIR/pipe\"\n"));
    let path = home.path().join("pipe");
    mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
    let mut pipe = fs::File::options().read(true).write(true).open(&path).unwrap();
    // full before it begins
    fcntl_setfl(&pipe, OFlags::NONBLOCK).unwrap();
    while matches!(pipe.write(&[b'\n'; 4096]), Ok(written) if written > 0) {}
    let mut daemon = home.serve();
    let to = echo();
    for _ in 0..8 {
        assert!(echoes(&mut connect(&daemon, to, "")));
    }
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.code(), Some(0));
    let log = daemon.log();
    assert!(log.contains("cannot write the access log") && log.contains("left_out=8"), "{log}");
}

#[test]
fn beyond_loopback_only_with_a_rule() {
    let output = home("").run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    assert!(stderr(&output).contains("rule"), "{output:?}");
}
