//! The cache beside what RFC 9111 asks, case by case after the ideas of the public suite
//! (github.com/http-tests/cache-tests): an origin says something, a second request follows, and either it
//! comes to the origin, or it does not, or the origin is asked whether what is stored is still true.

mod invalidation;
mod memory;
mod only_if_cached;
mod reuse;
mod storage;
mod validation;

use crate::common::wire::{Origin, PATIENCE, Relay, Wire, field, request};
use ekiden_model::units::Bytes;
use ekiden_proxy::settings::{Cache, Settings};
use std::time::{Duration, Instant};

fn relay() -> Relay {
    relay_with(|_| {})
}

fn relay_with(edit: impl FnOnce(&mut Cache)) -> Relay {
    relay_of(|settings| edit(&mut settings.cache))
}

/// A relay whose cache is open.
fn relay_of(edit: impl FnOnce(&mut Settings)) -> Relay {
    let relay = Relay::with(|settings| {
        settings.cache.memory = Some(Bytes::mib(16));
        edit(settings);
    });
    let begun = Instant::now();
    while !relay.status().cache.unwrap().open {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
    relay
}

/// What the client got.
struct Got {
    head: String,
    body: String,
}

impl Got {
    fn status(&self) -> &str {
        &self.head[9..12]
    }

    fn cache_status(&self) -> &str {
        field(&self.head, "cache-status").unwrap_or_default()
    }

    fn is_hit(&self) -> bool {
        self.cache_status().ends_with("\"relay-under-test\"; hit")
            || self.cache_status().contains("\"relay-under-test\"; hit;")
    }
}

fn get(relay: &Relay, origin: &Origin, path: &str, fields: &str) -> Wire {
    ask(relay, "GET", origin, path, fields)
}

fn ask(relay: &Relay, method: &str, origin: &Origin, path: &str, fields: &str) -> Wire {
    let mut client = relay.client();
    client.send(request(method, origin, path, &format!("Connection: close\r\n{fields}")));
    client
}

fn got(mut client: Wire) -> Got {
    let head = client.head();
    Got { body: client.until_end(), head }
}

/// An origin's answer, its connection closed afterwards.
fn answer(status: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// One request that comes to the origin; its head there, and what the client got.
fn through(
    relay: &Relay,
    origin: &Origin,
    method: &str,
    path: &str,
    fields: &str,
    said: &str,
) -> (String, Got) {
    let client = ask(relay, method, origin, path, fields);
    let mut server = origin.accept();
    let head = server.head();
    server.send(said);
    drop(server);
    (head, got(client))
}
