//! Memory of heads that were refused.

use crate::alone;
use crate::common::wire::Relay;

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
