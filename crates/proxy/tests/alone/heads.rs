//! Memory of what was refused or broke, while its client takes its time.

use crate::alone;
use crate::common::wire::{Origin, Relay, get, ok};

/// Bytes of this process's heap that are in use.
fn in_use() -> u64 {
    ekiden_linux::host::memory::process().unwrap().in_use
}

/// Each stays until its client has read why, which may take half a minute.
#[test]
fn a_refused_head_is_not_kept() {
    let _alone = alone();
    let relay = Relay::new();
    let head = format!("GET http://a/ HTTP/1.1\r\nX: {}\0", "x".repeat(60_000));
    let before = in_use();
    let mut clients = Vec::new();
    for _ in 0..200 {
        let mut client = relay.client();
        client.send(&head);
        let answer = client.head();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        clients.push(client);
    }
    // of 12 MB that came
    let kept = in_use().saturating_sub(before);
    assert!(kept < 6 << 20, "{kept} bytes are kept");
    drop(clients);
    relay.settles();
}

/// Before it, the client has an answer whose bytes it does not read.
#[test]
fn a_broken_answer_is_not_kept() {
    let _alone = alone();
    let (relay, origin) = (Relay::new(), Origin::new());
    let begin = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n";
    let (whole, bad) = (ok(&"x".repeat(256 << 10)), begin.to_owned() + &"x".repeat(60_000));
    let before = in_use();
    let mut clients = Vec::new();
    for _ in 0..40 {
        let mut client = relay.client();
        client.send(get(&origin, "/whole", "") + &get(&origin, "/bad", ""));
        let mut server = origin.accept();
        server.head();
        server.send(&whole);
        server.head();
        server.send(&bad);
        server.is_gone();
        clients.push(client);
    }
    // of 2.4 MB that came
    let kept = in_use().saturating_sub(before);
    assert!(kept < 2_000_000, "{kept} bytes are kept");
    let there = relay.status().budgets[0].used;
    assert_eq!(there, 40, "clients that still wait for what came before");
    drop(clients);
    relay.settles();
}
