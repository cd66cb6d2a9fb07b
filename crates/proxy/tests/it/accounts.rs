//! Who comes in with accounts: by user and password over HTTP and SOCKS5, by address; and who goes out again.
use crate::common::wire::{Origin, Relay, Wire, field, get, ok, request};
use crate::connect_udp::{server, upgrade};
use ekiden_proxy::observe::status::AccountsStatus;
use ekiden_proxy::policy::accounts::{Directory, KnownAccount, LoginOutcome, PendingLogin};
use ekiden_proxy::settings::{AccessLog, HostPattern, Pattern, Settings};
use ekiden_testkit::wait_for;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Anna and Otto, each with "right password"; Anna may not go to a.example.
#[derive(Debug, Default)]
pub(crate) struct Book {
    barred: Mutex<BTreeSet<i64>>,
    /// Whom clients on loopback belong to.
    at_loopback: Mutex<Option<i64>>,
    looked_at: Mutex<u32>,
    /// The next look panics, as with a fault of the relay.
    panics: AtomicBool,
}

pub(crate) const ANNA: i64 = 1;
pub(crate) const OTTO: i64 = 2;

impl Book {
    pub(crate) fn at_loopback(&self, id: i64) {
        *self.at_loopback.lock().unwrap() = Some(id);
    }

    pub(crate) fn disable(&self, id: i64) {
        self.barred.lock().unwrap().insert(id);
    }

    fn member(&self, id: i64) -> Result<Arc<KnownAccount>, String> {
        self.may_stay(id)?;
        let forbidden = Pattern { host: HostPattern::Name("a.example".into()), ports: None };
        let (name, deny) = match id {
            ANNA => ("anna's", vec![forbidden]),
            _ => ("otto's", vec![]),
        };
        Ok(Arc::new(KnownAccount { id, name: name.into(), allow: vec![], deny }))
    }
}

impl Directory for Book {
    fn at(&self, address: IpAddr) -> Option<Result<Arc<KnownAccount>, String>> {
        assert!(address.is_loopback());
        let id = (*self.at_loopback.lock().unwrap())?;
        Some(self.member(id))
    }

    fn behind(&self, _: &str) -> Option<Result<Arc<KnownAccount>, String>> {
        None
    }

    fn log_in<'a>(&'a self, user: &'a str, password: &'a str, _: IpAddr) -> PendingLogin<'a> {
        *self.looked_at.lock().unwrap() += 1;
        let id = match (user, password) {
            ("anna", "right password") => Some(ANNA),
            ("otto", "right password") => Some(OTTO),
            _ => None,
        };
        let answer = match (user, id.map(|id| self.member(id))) {
            ("late", _) => LoginOutcome::Wait("2.5 s".parse().unwrap()),
            ("crowd", _) => LoginOutcome::Busy,
            (_, Some(Ok(member))) => LoginOutcome::Known(member),
            (_, Some(Err(why))) => LoginOutcome::Barred(why),
            (_, None) => LoginOutcome::Wrong,
        };
        Box::pin(std::future::ready(answer))
    }

    fn may_stay(&self, id: i64) -> Result<(), String> {
        assert!(!self.panics.swap(false, Ordering::AcqRel), "a test asked for it");
        if self.barred.lock().unwrap().contains(&id) {
            return Err("this account is disabled".into());
        }
        Ok(())
    }

    fn status(&self) -> AccountsStatus {
        AccountsStatus { known: 2, database: "a book".into(), ..AccountsStatus::default() }
    }
}

pub(crate) fn relay(book: &Arc<Book>, edit: impl FnOnce(&mut Settings)) -> Relay {
    Relay::of(Some(Arc::clone(book) as Arc<dyn Directory>), |settings| {
        settings.accounts.enabled = true;
        edit(settings);
    })
}

/// `Proxy-Authorization` of "anna" or "otto" with "right password", as base64 by hand.
pub(crate) const ANNA_BASIC: &str = "Proxy-Authorization: Basic YW5uYTpyaWdodCBwYXNzd29yZA==\r\n";
const OTTO_BASIC: &str = "Proxy-Authorization: Basic b3R0bzpyaWdodCBwYXNzd29yZA==\r\n";
pub(crate) const WRONG_BASIC: &str = "Proxy-Authorization: Basic YW5uYTp3cm9uZyBwYXNzd29yZA==\r\n";
const LATE_BASIC: &str = "Proxy-Authorization: Basic bGF0ZTp4\r\n";
const CROWD_BASIC: &str = "Proxy-Authorization: Basic Y3Jvd2Q6eA==\r\n";

pub(crate) fn asked(relay: &Relay, message: impl AsRef<[u8]>) -> String {
    let mut client = relay.client();
    client.send(message);
    client.until_end()
}

/// A request by a client with these credentials, forwarded and answered. `during` runs while the origin has it.
pub(crate) fn served(client: &mut Wire, origin: &Origin, credentials: &str, during: impl FnOnce()) {
    client.send(get(origin, "/", credentials));
    let mut server = origin.accept();
    server.head();
    during();
    server.send(ok("1"));
    client.until("\r\n\r\n1");
}

#[test]
fn forwards_nothing_without_a_log_in() {
    let server = server();
    let (book, origin) = (Arc::new(Book::default()), Origin::new());
    let relay = relay(&book, |_| {});
    let connect = format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n", origin.name);
    for message in [
        get(&origin, "/", ""),
        get(&origin, "/", WRONG_BASIC),
        get(&origin, "/", "Proxy-Authorization: Bearer YW5uYTpyaWdodCBwYXNzd29yZA==\r\n"),
        // what is for the origin is no log-in here
        get(&origin, "/", "Authorization: Basic YW5uYTpyaWdodCBwYXNzd29yZA==\r\n"),
        request("HEAD", &origin, "/", ""),
        format!("{connect}\r\n"),
        format!("{connect}{WRONG_BASIC}\r\n"),
        upgrade(server.local_addr().unwrap(), ""),
        upgrade(server.local_addr().unwrap(), WRONG_BASIC),
    ] {
        let answer = asked(&relay, &message);
        assert!(answer.starts_with("HTTP/1.1 407 "), "{message}: {answer}");
        let realm = field(&answer, "Proxy-Authenticate").unwrap();
        assert_eq!(realm, "Basic realm=\"relay-under-test\", charset=\"UTF-8\"");
    }
    for (credentials, status) in [(LATE_BASIC, "429"), (CROWD_BASIC, "503")] {
        let begun = Instant::now();
        let answer = asked(&relay, get(&origin, "/", credentials));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(begun.elapsed() >= Duration::from_secs(1), "it may ask again at once");
    }
    assert!(asked(&relay, get(&origin, "/", LATE_BASIC)).contains("try again in 3 s"));
    assert!(origin.came().is_none());
    assert_eq!(relay.status().accounts.unwrap().known, 2);
    // with one, datagrams belong to the account
    relay.settles();
    let mut client = relay.client();
    client.send(upgrade(server.local_addr().unwrap(), ANNA_BASIC));
    assert!(client.head().starts_with("HTTP/1.1 101 "));
    assert_eq!(relay.status().connections.remove(0).account.as_deref(), Some("anna's"));
}

#[test]
fn strips_credentials_after_a_log_in() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let (book, origin) = (Arc::new(Book::default()), Origin::new());
    let relay = relay(&book, |settings| settings.access_log = AccessLog::File(log.clone()));
    let mut client = relay.client();
    client.send(get(&origin, "/one", ANNA_BASIC));
    let mut server = origin.accept();
    let head = server.head();
    assert!(!head.to_ascii_lowercase().contains("authorization"), "{head}");
    assert!(!head.contains("YW5uY"), "{head}");
    let seen = relay.status().connections.remove(0);
    assert_eq!(seen.account.as_deref(), Some("anna's"));
    server.send(ok("1"));
    client.until("\r\n\r\n1");

    // the next request on the same connection is of whoever it says
    client.send(get(&origin, "/two", OTTO_BASIC));
    assert!(server.head().starts_with("GET /two"));
    server.send(ok("2"));
    client.until("\r\n\r\n2");
    assert_eq!(relay.status().connections[0].account.as_deref(), Some("otto's"));
    client.send(get(&origin, "/three", ""));
    assert!(client.until_end().starts_with("HTTP/1.1 407 "));

    let mut client = relay.client();
    let name = &origin.name;
    client.send(format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n{ANNA_BASIC}\r\nearly"));
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    assert_eq!(origin.accept().exactly(5), b"early");
    drop(client);
    relay.settles();
    let log = relay.logged(&log);
    let accounts: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let accounts: Vec<_> = accounts.iter().map(|line| line["account"].as_str()).collect();
    assert_eq!(accounts[..2], [Some("anna's"), Some("otto's")], "{log}");
    assert_eq!(accounts.last().unwrap(), &Some("anna's"), "{log}");
    assert!(!log.contains("YW5uY") && !log.contains("right password"), "{log}");
}

/// A SOCKS5 greeting with these methods, and the method that was chosen.
pub(crate) fn greeted(relay: &Relay, methods: &[u8]) -> (Wire, u8) {
    let mut client = relay.client();
    client.send([&[5, methods.len() as u8], methods].concat());
    let answer = client.exactly(2);
    assert_eq!(answer[0], 5);
    (client, answer[1])
}

pub(crate) fn socks_connect(port: u16) -> Vec<u8> {
    [&[5, 1, 0, 1, 127, 0, 0, 1][..], &port.to_be_bytes()].concat()
}

#[test]
fn socks_logs_in_with_user_and_password() {
    let (book, origin) = (Arc::new(Book::default()), Origin::new());
    let relay = relay(&book, |_| {});
    let (mut client, method) = greeted(&relay, &[0]);
    assert_eq!(method, 0xff);
    client.is_gone();
    let (mut client, method) = greeted(&relay, &[0, 2]);
    assert_eq!(method, 2);
    client.send(b"\x01\x04anna\x0ewrong password");
    assert_eq!(client.exactly(2), [1, 1]);
    client.is_gone();
    let (mut client, _) = greeted(&relay, &[2]);
    // all at once, as a client in a hurry would
    let hurry = [&b"\x01\x04anna\x0eright password"[..], &socks_connect(origin.port())].concat();
    client.send(hurry);
    assert_eq!(client.exactly(2), [1, 0]);
    assert_eq!(client.exactly(10)[..2], [5, 0]);
    let mut server = origin.accept();
    client.send("up");
    assert_eq!(server.exactly(2), b"up");
    // those that were refused may be there for a moment
    let connections = relay.status().connections;
    assert!(connections.iter().any(|one| one.account.as_deref() == Some("anna's")));

    let mut client = relay.client();
    client.send([&[4, 1][..], &origin.port().to_be_bytes(), &[127, 0, 0, 1, 0]].concat());
    assert_eq!(client.exactly(8)[..2], [0, 91]);
    assert!(origin.came().is_none());
}

#[test]
fn an_account_reaches_only_destinations_on_its_lists() {
    let book = Arc::new(Book::default());
    let relay = relay(&book, |_| {});
    let message =
        format!("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n{ANNA_BASIC}\r\n");
    let answer = asked(&relay, message);
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("your account"), "{answer}");
    let (mut client, _) = greeted(&relay, &[2]);
    client.send(b"\x01\x04anna\x0eright password");
    assert_eq!(client.exactly(2), [1, 0]);
    client.send(b"\x05\x01\x00\x03\x09a.example\x00\x50");
    assert_eq!(client.exactly(10)[..2], [5, 2]);
}

#[test]
fn a_known_address_needs_no_password() {
    let (book, origin) = (Arc::new(Book::default()), Origin::new());
    book.at_loopback(OTTO);
    let relay = relay(&book, |_| {});
    let mut client = relay.client();
    served(&mut client, &origin, "", || ());
    assert_eq!(greeted(&relay, &[0, 2]).1, 0);
    assert_eq!(*book.looked_at.lock().unwrap(), 0);
    // and on the next request of the same connection not any more
    *book.at_loopback.lock().unwrap() = None;
    client.send(get(&origin, "/", ""));
    assert!(client.until_end().starts_with("HTTP/1.1 407 "));
    book.at_loopback(OTTO);
    book.disable(OTTO);
    let answer = asked(&relay, get(&origin, "/", ""));
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("disabled"), "{answer}");
}

#[test]
fn counts_the_usage_of_accounts_to_the_byte() {
    let (book, origin) = (Arc::new(Book::default()), Origin::new());
    let relay = relay(&book, |_| {});
    let mut client = relay.client();
    let mut server = None;
    let (mut annas, mut ottos) = ((0, 0), (0, 0));
    // two accounts in turn on one connection
    for (credentials, body) in [(ANNA_BASIC, "a"), (OTTO_BASIC, "ottos"), (ANNA_BASIC, "aa")] {
        let asked = get(&origin, "/", credentials);
        client.send(&asked);
        let server = server.get_or_insert_with(|| origin.accept());
        let up = asked.len().max(server.head().len());
        server.send(ok(body));
        let down = client.until(&format!("\r\n\r\n{body}")).len();
        let sum = if credentials == OTTO_BASIC { &mut ottos } else { &mut annas };
        *sum = (sum.0 + down as u64, sum.1 + up as u64);
    }
    drop((client, server));
    let name = &origin.name;
    let mut client = relay.client();
    let asked = format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n{OTTO_BASIC}\r\n");
    client.send(format!("{asked}12345"));
    ottos = (ottos.0 + client.head().len() as u64, ottos.1 + asked.len() as u64);
    let mut server = origin.accept();
    server.exactly(5);
    let used = |name: &str| {
        let usage = relay.server.as_ref().unwrap().handle().accounts().usage();
        let found = usage.into_iter().find(|one| *one.account == *name).unwrap();
        (found.down, found.up)
    };
    // while it runs, too
    let begun = Instant::now();
    while used("otto's") != (ottos.0, ottos.1 + 5) {
        assert!(begun.elapsed() < crate::common::wire::PATIENCE);
        std::thread::sleep(Duration::from_millis(10));
    }
    server.send("1234567");
    client.exactly(7);
    drop((client, server));
    relay.settles();
    assert_eq!((used("otto's"), used("anna's")), ((ottos.0 + 7, ottos.1 + 5), annas));
}

#[test]
fn ends_only_the_connections_of_a_disabled_account() {
    let (book, origin) = (Arc::new(Book::default()), Origin::new());
    let relay = relay(&book, |_| {});
    let tunnel = |credentials: &str| {
        let (mut client, name) = (relay.client(), &origin.name);
        client.send(format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n{credentials}\r\n"));
        assert!(client.head().starts_with("HTTP/1.1 200 "));
        (client, origin.accept())
    };
    let (mut annas, mut annas_server) = tunnel(ANNA_BASIC);
    let (mut ottos, mut ottos_server) = tunnel(OTTO_BASIC);
    book.disable(ANNA);
    assert_eq!(annas.until_reset(), "");
    assert_eq!(annas_server.until_reset(), "");
    std::thread::sleep(Duration::from_millis(500));
    ottos.send("still here");
    assert_eq!(ottos_server.exactly(10), b"still here");
    let answer = asked(&relay, get(&origin, "/", ANNA_BASIC));
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("disabled"), "{answer}");
}

#[test]
fn accounts_are_looked_at_again_after_a_panic() {
    let (book, origin) = (Arc::new(Book::default()), Origin::new());
    let relay = relay(&book, |_| {});
    let (mut client, name) = (relay.client(), &origin.name);
    client.send(format!("CONNECT {name} HTTP/1.1\r\nHost: {name}\r\n{ANNA_BASIC}\r\n"));
    assert!(client.head().starts_with("HTTP/1.1 200 "));
    let _server = origin.accept();
    book.panics.store(true, Ordering::Release);
    wait_for("the look has panicked", || !book.panics.load(Ordering::Acquire));
    book.disable(ANNA);
    assert_eq!(client.until_reset(), "");
}

#[test]
fn optional_accounts_let_admitted_clients_in() {
    let (book, origin) = (Arc::new(Book::default()), Origin::new());
    let relay = relay(&book, |settings| settings.accounts.required = false);
    let mut client = relay.client();
    served(&mut client, &origin, "", || ());
    assert_eq!(relay.status().connections[0].account, None);
    assert_eq!(greeted(&relay, &[0]).1, 0);
    // who can say who it is does
    assert_eq!(greeted(&relay, &[0, 2]).1, 2);
    assert!(asked(&relay, get(&origin, "/", WRONG_BASIC)).starts_with("HTTP/1.1 407 "));
}

#[test]
fn without_accounts_a_log_in_has_no_effect() {
    let (relay, origin) = (Relay::new(), Origin::new());
    let mut client = relay.client();
    client.send(get(&origin, "/", WRONG_BASIC));
    let mut server = origin.accept();
    assert!(!server.head().contains("Authorization"));
    server.send(ok("1"));
    client.until("\r\n\r\n1");
    assert!(relay.status().accounts.is_none());
    assert_eq!(greeted(&relay, &[2]).1, 0xff);
}

/// A proxy before this one may carry several users on one connection.
#[test]
fn accounts_on_one_connection_share_no_authenticated_connection() {
    let (relay, origin) = (relay(&Arc::default(), |_| {}), Origin::new());
    let mut client = relay.client();
    client.send(get(&origin, "/1", &format!("{ANNA_BASIC}Authorization: NTLM TlRMTVNTUAAD\r\n")));
    let mut annas = origin.accept();
    annas.head();
    annas.send(ok("1"));
    client.until("\r\n\r\n1");
    client.send(get(&origin, "/2", OTTO_BASIC));
    let mut ottos = origin.accept();
    assert!(ottos.head().starts_with("GET /2 "));
    ottos.send(ok("2"));
    client.until("\r\n\r\n2");
    // it is hers still
    client.send(get(&origin, "/3", ANNA_BASIC));
    assert!(annas.head().starts_with("GET /3 "));
    annas.send(ok("3"));
    client.until("\r\n\r\n3");
}
