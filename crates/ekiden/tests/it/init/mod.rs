//! `ekiden init`: each arrangement from nothing to a page, in two commands a side; and what it refuses.

mod arrangements;
mod certificates;
mod gateways;
mod machine;
mod packaged;
mod refusals;
mod service;

use crate::daemons::{free_port, home};
use ekiden_testkit::Home;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::Arc;

/// A folder whose daemon takes clients at a port that is free, and may reach servers on this machine.
fn relay() -> Arc<Home> {
    home("# mine\nlisten = [\"127.0.0.1:0\"]\n\n[access]\nallow_destinations = [\"127.0.0.0/8\"]\n")
}

/// A server whose every answer is `page`.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\npage";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    port
}

/// What curl got through a proxy.
fn page(proxy: &str, port: u16, more: &[&str]) -> Output {
    let url = format!("http://127.0.0.1:{port}/");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-m", "20", "-p", "-x", proxy, &url]).args(more).output().unwrap()
}

/// The invitation in the line that `init shore` printed.
fn invitation(line: &str) -> &str {
    line.trim().strip_prefix("ekiden init far ").unwrap_or_else(|| panic!("{line}"))
}

/// `init shore` of a relay that listens for tunnels on loopback; its line.
fn shore(home: &Home, port: u16) -> String {
    let address = format!("127.0.0.1:{port}");
    home.printed(&[
        "init",
        "--yes",
        "shore",
        "--address",
        &address,
        "--listen",
        &address,
        "--name",
        "ship",
        "--send",
        "20 Mbit/s",
        "--receive",
        "2 Mbit/s",
    ])
}
