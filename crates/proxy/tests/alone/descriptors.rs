//! When this process has no descriptor left for a connection to a destination. One test after the other: the
//! limit is the whole process's.
use crate::common::wire::{Origin, Relay, Wire, get, ok};
use ekiden_testkit::wait_for;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::time::Duration;

/// Everything that can be opened, opened. Its drop sets the limit from before.
struct All {
    files: Vec<File>,
    before: Rlimit,
}

impl All {
    fn of_300() -> Self {
        let before = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: Some(300), ..before }).unwrap();
        let files = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        Self { files, before }
    }

    /// Closes some.
    fn give(&mut self, count: usize) {
        self.files.truncate(self.files.len() - count);
    }
}

impl Drop for All {
    fn drop(&mut self) {
        setrlimit(Resource::Nofile, self.before).unwrap();
    }
}

fn answered(client: &mut Wire, origin: &Origin) {
    let mut server = origin.accept();
    server.head();
    server.send(ok("x"));
    let head = client.head();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    client.exactly(1);
}

#[test]
fn evicts_an_idle_connection_for_a_descriptor() {
    let _alone = crate::alone();
    let relay = Relay::with(|settings| settings.pool.connections = 0);
    let origin = Origin::new();
    let mut idle = relay.client();
    idle.send(get(&origin, "/", ""));
    answered(&mut idle, &origin);
    let mut client = relay.client();
    wait_for("one idles and one has come", || {
        let status = relay.status();
        status.idle.clients == 1 && status.connections.len() == 2
    });
    let mut rest = All::of_300();
    client.send(get(&origin, "/", ""));
    wait_for("one is closed", || !relay.status().pressure.evicted.is_empty());
    assert_eq!(relay.status().pressure.evicted[0].resource, "descriptors");
    // one for this test's own end
    rest.give(4);
    answered(&mut client, &origin);
    idle.is_gone();
}

#[test]
fn waits_a_second_for_a_descriptor() {
    let _alone = crate::alone();
    let relay = Relay::with(|settings| settings.pool.connections = 0);
    let origin = Origin::new();
    for ends in [true, false] {
        let mut client = relay.client();
        wait_for("it has come", || relay.status().connections.len() == 1);
        let mut rest = All::of_300();
        client.send(get(&origin, "/", ""));
        if ends {
            std::thread::sleep(Duration::from_millis(200));
            rest.give(4);
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
