//! When this process has no descriptor left for a connection to a destination. One test after the other: the
//! limit is the whole process's.
#![allow(clippy::unwrap_used)]

mod http_common;

use http_common::{Origin, PATIENCE, Relay, Wire, get, ok};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::sync::Mutex;
use std::time::{Duration, Instant};

static ALONE: Mutex<()> = Mutex::new(());

/// Everything that can be opened, opened.
fn all_of_them() -> Vec<File> {
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(300), ..before }).unwrap();
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

fn answered(client: &mut Wire, origin: &Origin) {
    let mut server = origin.accept();
    server.head();
    server.send(ok("x"));
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    client.exactly(1);
}

fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn an_idle_connection_gives_way_to_one_that_is_made() {
    let _alone = ALONE.lock().unwrap();
    let relay = Relay::with(|settings| settings.pool.connections = 0);
    let origin = Origin::new();
    let mut idle = relay.client();
    idle.send(get(&origin, "/", ""));
    answered(&mut idle, &origin);
    let mut client = relay.client();
    wait_until("one idles and one has come", || {
        let status = relay.status();
        status.idle.clients == 1 && status.connections.len() == 2
    });
    let mut rest = all_of_them();
    client.send(get(&origin, "/", ""));
    wait_until("one is closed", || !relay.status().pressure.evicted.is_empty());
    assert_eq!(relay.status().pressure.evicted[0].resource, "descriptors");
    // one for this test's own end
    rest.truncate(rest.len() - 4);
    answered(&mut client, &origin);
    idle.is_gone();
}

#[test]
fn one_that_ends_in_time_is_waited_for_and_others_are_not() {
    let _alone = ALONE.lock().unwrap();
    let relay = Relay::with(|settings| settings.pool.connections = 0);
    let origin = Origin::new();
    for ends in [true, false] {
        let mut client = relay.client();
        wait_until("it has come", || relay.status().connections.len() == 1);
        let mut rest = all_of_them();
        client.send(get(&origin, "/", ""));
        if ends {
            std::thread::sleep(Duration::from_millis(200));
            rest.truncate(rest.len() - 4);
            answered(&mut client, &origin);
        } else {
            let head = client.until_end();
            assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
            assert!(head.contains("descriptor limit"), "{head}");
        }
        drop((client, rest));
        relay.settles();
    }
}
