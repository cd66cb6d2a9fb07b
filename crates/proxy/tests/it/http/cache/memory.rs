//! What answers out of the cache take of the memory of sessions, and those that go there.

use super::{answer, get, relay, through};
use crate::common::wait_until;
use crate::common::wire::{Origin, Relay, request};

/// Fields of 60 kB.
fn large(more: &str) -> String {
    let value = "a".repeat(10_000);
    (0..6).map(|nth| format!("X-{nth}: {value}\r\n")).chain([more.to_owned()]).collect()
}

fn held(relay: &Relay) -> u64 {
    relay.status().budgets.into_iter().find(|budget| budget.name == "sessions").unwrap().used
}

fn comes_to(relay: &Relay, what: &str, is: impl Fn(u64) -> bool) {
    wait_until(|| is(held(relay)), || format!("{what}: {} bytes", held(relay)));
}

#[test]
fn stored_answers_count_while_their_client_does_not_read() {
    let (relay, origin) = (relay(), Origin::new());
    let fields = large("Cache-Control: max-age=60\r\n");
    through(&relay, &origin, "GET", "/a", "", &answer("200 OK", &fields, "x"));
    comes_to(&relay, "the first is over", |held| held == 0);
    let mut client = relay.client();
    // more answers than the kernel's buffers take
    client.send(request("GET", &origin, "/a", "").repeat(1_000));
    // its head twice as it is stored, and once as it is sent
    comes_to(&relay, "one waits", |held| held >= 180_000);
    drop(client);
    comes_to(&relay, "it is given back", |held| held == 0);
    assert!(origin.came().is_none());
}

#[test]
fn an_answer_that_is_to_be_stored_counts_its_head_once_more() {
    for (said, copies) in [("no-store", 1), ("max-age=60", 2)] {
        let (relay, origin) = (relay(), Origin::new());
        let mut client = get(&relay, &origin, "/a", "");
        let mut server = origin.accept();
        server.head();
        let fields = large(&format!("Cache-Control: {said}\r\n"));
        server.send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 99\r\n\r\n0123456789"));
        client.head();
        // the head was sent before
        client.exactly(10);
        let heads = copies * 60_000;
        comes_to(&relay, said, |held| (heads..heads + 40_000).contains(&held));
    }
}
