//! What befalls a tunnel in the middle of a transfer, and what becomes of the connections in it: each goes on,
//! every byte right, or ends with a reason that is written down.

use crate::daemons::{pair, pair_through, stdout, tunnel_is_up};
use crate::middle::Middle;
use ekiden_testkit::{Daemon, eventually, wait_for};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What is asked of the server; 3 s at the tunnel's rate.
const LENGTH: usize = 7_500_000;
/// After so much something happens.
const BEFORE: usize = 1_000_000;
const RATES: [&str; 2] = ["20 Mbit/s", "20 Mbit/s"];

fn pattern(nth: usize) -> u8 {
    (nth * 31 + nth / 517) as u8
}

/// A server of the pattern; what becomes of its connections is told.
fn server() -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let broken = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&broken);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, count) = (stream.unwrap(), Arc::clone(&count));
            thread::spawn(move || {
                let body: Vec<u8> = (0..LENGTH).map(pattern).collect();
                // all of it may be in buffers long before it has arrived
                let ended = stream.write_all(&body).and_then(|()| {
                    stream.shutdown(Shutdown::Write)?;
                    stream.read(&mut [0])
                });
                if ended.is_err() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    (port, broken)
}

/// A transfer from the server, of which the first bytes have come.
struct Transfer {
    stream: TcpStream,
    came: usize,
}

impl Transfer {
    fn begin(near: &Daemon, port: u16) -> Self {
        let (head, stream) = near.connect(([127, 0, 0, 1], port).into(), "");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let mut this = Self { stream, came: 0 };
        this.read(BEFORE).unwrap();
        this
    }

    /// Reads up to so many bytes from the beginning on, each of which is looked at.
    fn read(&mut self, to: usize) -> io::Result<()> {
        let mut buffer = [0; 16_384];
        while self.came < to {
            let length = self.stream.read(&mut buffer)?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            for (nth, byte) in (self.came..).zip(&buffer[..length]) {
                assert_eq!(*byte, pattern(nth), "byte {nth}");
            }
            self.came += length;
        }
        Ok(())
    }

    fn goes_on(mut self) {
        self.read(LENGTH).unwrap();
        assert_eq!(self.stream.read(&mut [0]).unwrap(), 0);
    }

    /// How long it took to end, not as if it were whole.
    fn breaks(mut self) -> (io::Error, Duration) {
        let begun = Instant::now();
        (self.read(LENGTH).unwrap_err(), begun.elapsed())
    }
}

/// Two daemons with something between them.
struct Stage {
    near: Daemon,
    far: Daemon,
    middle: Middle,
    port: u16,
    broken: Arc<AtomicU64>,
}

impl Stage {
    fn set() -> Self {
        let mut middle = None;
        let log = "[log]\naccess = \"DIR/access\"\n";
        let homes = pair_through(RATES, [log; 2], |port| middle.insert(Middle::before(port)).port);
        let [far, near] = homes.map(|home| home.serve());
        let (port, broken) = server();
        wait_for("the tunnel", || tunnel_is_up(&near));
        Self { near, far, middle: middle.unwrap(), port, broken }
    }

    fn transfer(&self) -> Transfer {
        Transfer::begin(&self.near, self.port)
    }

    /// The only line of the near relay's access log, when it is there.
    fn logged(&self) -> String {
        eventually("a line in the log", || {
            let log = fs::read_to_string(self.near.path().join("access")).ok()?;
            let (line, _) = log.split_once('\n')?;
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            Some(line["result"].as_str().unwrap().to_owned())
        })
    }
}

#[test]
fn an_address_that_changes_is_not_noticed() {
    let stage = Stage::set();
    let transfer = stage.transfer();
    let addresses = stage.middle.addresses.load(Ordering::Relaxed);
    stage.middle.forget();
    transfer.goes_on();
    assert!(stage.middle.addresses.load(Ordering::Relaxed) > addresses);
    assert_eq!(stage.broken.load(Ordering::Relaxed), 0);
}

#[test]
fn a_killed_relay_breaks_connections_with_a_reason_and_serves_again() {
    let mut stage = Stage::set();
    let transfer = stage.transfer();
    stage.far.kill();
    let (error, after) = transfer.breaks();
    println!("far relay killed: {error} after {after:.1?}; `{}`", stage.logged());
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert!(stage.logged().contains("tunnel"), "{}", stage.logged());
    stage.far.restart();
    wait_for("the tunnel", || tunnel_is_up(&stage.near));
    stage.transfer().goes_on();
}

#[test]
fn a_restarted_relay_is_noticed_at_once() {
    let mut stage = Stage::set();
    let transfer = stage.transfer();
    stage.far.kill();
    stage.far.restart();
    let (error, after) = transfer.breaks();
    println!("far relay restarted: {error} after {after:.1?}; `{}`", stage.logged());
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    wait_for("the tunnel", || tunnel_is_up(&stage.near));
    stage.transfer().goes_on();
}

#[test]
fn when_the_near_relay_is_killed_the_server_is_told() {
    let mut stage = Stage::set();
    let transfer = stage.transfer();
    stage.near.kill();
    let begun = Instant::now();
    assert!(transfer.breaks().0.kind() != io::ErrorKind::WouldBlock);
    wait_for("the break at the server", || stage.broken.load(Ordering::Relaxed) == 1);
    println!("near relay killed: the server was told after {:.1?}", begun.elapsed());
    stage.near.restart();
    wait_for("the tunnel", || tunnel_is_up(&stage.near));
    stage.transfer().goes_on();
}

#[test]
fn blocked_udp_ends_connections_and_falls_back_to_tcp() {
    let stage = Stage::set();
    let transfer = stage.transfer();
    stage.middle.udp.store(false, Ordering::Relaxed);
    let (error, after) = transfer.breaks();
    println!("UDP blocked: {error} after {after:.1?}; `{}`", stage.logged());
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    assert!(stage.logged().contains("tunnel"), "{}", stage.logged());
    wait_for("the tunnel", || tunnel_is_up(&stage.near));
    let tunnel = stage.near.status()["tunnels"][0].clone();
    assert_eq!(tunnel["over_tcp"], true, "{tunnel}");
    stage.transfer().goes_on();
}

#[test]
fn a_relay_that_stops_says_so_and_not_that_it_was_revoked() {
    let stage = Stage::set();
    stage.near.stop();
    let said = || stage.far.status()["tunnels"][0]["last_error"].as_str().map(str::to_owned);
    let reason = eventually("the end of the tunnel", said);
    assert!(reason.contains("the relay stops"), "{reason}");
}

/// Requests do not wait for a tunnel that has been down for a while, and take it again once it is up.
#[test]
fn requests_fail_at_once_while_a_tunnel_stays_down() {
    let [far, near] = pair(RATES, ["", "[leg.direct]\nconnect_timeout = \"1 s\"\n"]);
    let near = near.serve();
    wait_for("the end of patience", || near.status()["upstreams"][0]["fails_at_once"] == true);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap();
    let (head, mut rest) = near.connect(to, "");
    let mut body = String::new();
    rest.read_to_string(&mut body).unwrap();
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("\r\nRetry-After: "), "{head}");
    assert!(body.contains("no tunnel to peer `far` for ") && body.contains("try again"), "{body}");
    let text = stdout(&near.run(&["status"]));
    assert!(text.contains("no tunnel: requests fail at once"), "{text}");
    assert!(text.contains("connecting for ") || text.contains("down for "), "{text}");
    near.connect(to, "");
    let said = "requests through it fail at once until it is up";
    assert_eq!(near.log().matches(said).count(), 1, "{}", near.log());
    let _far = far.serve();
    wait_for("the tunnel", || tunnel_is_up(&near));
    assert!(near.connect(to, "").0.starts_with("HTTP/1.1 200 "));
}
