//! Three relays on one PostgreSQL: who is added on one works on all, a quota is one, and while the database is away
//! nobody who is known is refused and nothing is lost.
//!
//! `EKIDEN_OUTAGE=60 cargo test -p ekiden --test it fleet:: -- --nocapture` keeps the database away for a minute; 5 s unless
//! said.

use crate::accounts::{ANNA, Accounts};
use ekiden_testkit::{Daemon, Postgres, wait_for};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// "otto" with "right password".
const OTTO: &str = "Proxy-Authorization: Basic b3R0bzpyaWdodCBwYXNzd29yZA==\r\n";
const MIB: u64 = 1 << 20;

/// Sends as many bytes as eight digits say, to whoever says them.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut asked = [0; 8];
                if stream.read_exact(&mut asked).is_err() {
                    return;
                }
                let mut left = std::str::from_utf8(&asked).unwrap().parse::<usize>().unwrap();
                while left > 0 {
                    let piece = left.min(65_536);
                    // who is cut takes no more
                    if stream.write_all(&[7; 65_536][..piece]).is_err() {
                        return;
                    }
                    left -= piece;
                }
            });
        }
    });
    address
}

/// A relay of the fleet.
struct Relay {
    accounts: Accounts,
    daemon: Daemon,
}

impl Relay {
    fn new(database: &str) -> Self {
        let config = format!(
            "[accounts]\nenabled = true\ndatabase = \"{database}\"\n[alerts]\nafter = \"1 s\"\n"
        );
        let accounts = Accounts::with(&config);
        let daemon = accounts.serve();
        Self { accounts, daemon }
    }

    /// The connection of who came in.
    fn let_in(&self, to: SocketAddr, who: &str) -> Option<TcpStream> {
        let (answer, stream) = self.daemon.connect(to, who);
        answer.starts_with("HTTP/1.1 200 ").then_some(stream)
    }

    /// Whether the database is away, and what it has not heard of.
    fn standing(&self) -> (bool, u64) {
        let accounts = &self.daemon.status()["accounts"];
        (!accounts["away"].is_null(), accounts["unsettled"].as_u64().unwrap())
    }
}

/// A database, a server, and three relays; none where there is no PostgreSQL.
fn fleet() -> Option<(Postgres, SocketAddr, [Relay; 3])> {
    let postgres = Postgres::begin()?;
    let database = postgres.address();
    Some((postgres, server(), std::array::from_fn(|_| Relay::new(&database))))
}

/// Asks for so many bytes and takes what comes of them.
fn fetch(mut stream: TcpStream, bytes: usize) -> usize {
    write!(stream, "{bytes:08}").unwrap();
    let (mut came, mut piece) = (0, vec![0; 65_536]);
    while came < bytes {
        match stream.read(&mut piece) {
            Ok(n @ 1..) => came += n,
            _ => break,
        }
    }
    came
}

/// An account's use in the database: bytes down and up.
fn used(relay: &Relay, name: &str) -> (u64, u64) {
    let json = relay.accounts.account(&["usage", name, "--json"], "");
    let used: serde_json::Value = serde_json::from_str(&json).unwrap();
    let field = |field: &str| used["usage"][0][field].as_u64().unwrap_or(0);
    (field("down"), field("up"))
}

fn add(relay: &Relay, name: &str, user: &str, more: &[&str]) {
    let args = [&["add", name, "--user", user, "--password-stdin"], more].concat();
    relay.accounts.account(&args, "right password\n");
}

/// How long the database is to be away.
fn outage() -> Duration {
    let asked = std::env::var("EKIDEN_OUTAGE").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(5))
}

#[test]
fn account_added_on_one_relay_is_served_by_all_without_the_database() {
    let Some((mut postgres, to, relays)) = fleet() else { return };
    add(&relays[0], "home-1", "anna", &[]);
    let (added, mut opened) = (Instant::now(), 0_u64);
    for (nth, relay) in relays.iter().enumerate() {
        wait_for("the account everywhere", || relay.let_in(to, ANNA).is_some());
        println!("relay {nth}: works after {:?}", added.elapsed());
    }
    postgres.stop();
    let (stopped, mut away) = (Instant::now(), [false; 3]);
    while stopped.elapsed() < outage() {
        for (relay, away) in relays.iter().zip(&mut away) {
            let stream = relay.let_in(to, ANNA);
            assert_eq!(fetch(stream.expect("a known account is refused"), 10_000), 10_000);
            opened += 1;
            *away |= relay.standing().0;
        }
        thread::sleep(Duration::from_millis(100));
    }
    println!("away for {:?}: {opened} connections, none refused", stopped.elapsed());
    assert!(outage() < Duration::from_secs(5) || away == [true; 3], "{away:?}");
    postgres.start();
    let back = Instant::now();
    // one more at each relay saw that the account was there
    let (up, down) = Daemon::opening(to, ANNA);
    let opening = |bytes: usize| bytes as u64 * (opened + 3);
    let books = (10_000 * opened + opening(down), 8 * opened + opening(up));
    wait_for("the books", || {
        relays.iter().all(|relay| !relay.standing().0) && used(&relays[1], "home-1") == books
    });
    println!("the books balance {:?} after it came back: {books:?}", back.elapsed());
    // and what is changed is heard of again
    relays[2].accounts.account(&["remove", "home-1"], "");
    for relay in &relays {
        wait_for("the removal", || relay.let_in(to, ANNA).is_none());
    }
}

#[test]
fn a_quota_is_one_for_all_relays() {
    let Some((_postgres, to, relays)) = fleet() else { return };
    // a slice is 1 MiB at least, and a 64th
    let (quota, slice) = (24 * MIB, MIB);
    let plan = format!("{quota} B/month");
    add(&relays[0], "home-2", "otto", &["--quota", &plan, "--on-quota-exceeded", "cut"]);
    for relay in &relays {
        wait_for("the account everywhere", || relay.let_in(to, OTTO).is_some());
    }
    // each takes all it is given, until none of them gives any for some seconds
    let came = thread::scope(|scope| {
        let takes = |relay| {
            move || {
                let (mut came, mut last) = (0_u64, Instant::now());
                while last.elapsed() < Duration::from_secs(6) {
                    let more =
                        Relay::let_in(relay, to, OTTO).map_or(0, |stream| fetch(stream, 4 << 20));
                    came += more as u64;
                    match more {
                        0 => thread::sleep(Duration::from_millis(50)),
                        _ => last = Instant::now(),
                    }
                }
                came
            }
        };
        let taking: Vec<_> = relays.iter().map(|relay| scope.spawn(takes(relay))).collect();
        taking.into_iter().map(|taker| taker.join().unwrap()).collect::<Vec<u64>>()
    });
    let down: u64 = came.iter().sum();
    println!("of {quota} bytes the three gave {came:?}, {down} together");
    // what was asked for with is used of it, too, and an idle relay may hold what is left of its slice
    assert!(down <= quota + 3 * slice, "{came:?}");
    assert!(down + 3 * slice >= quota, "{came:?}");
    wait_for("the books", || {
        let (settled, up) = used(&relays[0], "home-2");
        settled >= down && settled + up <= quota + 3 * slice
    });
    // each knows what all have used, and not its own slices alone
    let alerts = |relay: &Relay| relay.daemon.status()["alerts"]["standing"].to_string();
    let is_low = |relay: &Relay| {
        let all = alerts(relay);
        all.contains("quota-low") && all.contains("home-2 has used ")
    };
    wait_for("an alert on each", || relays.iter().all(is_low));
}
