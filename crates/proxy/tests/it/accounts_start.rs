//! When limits of accounts begin to count.
use crate::accounts::{ANNA, Book};
use crate::common::wire::Relay;
use ekiden_proxy::observe::status::AccountsStatus;
use ekiden_proxy::policy::accounts::{Directory, KnownAccount, PendingLogin};
use ekiden_proxy::policy::quota::Quotas;
use ekiden_proxy::settings::Limits;
use ekiden_testkit::wait_for;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A book whose first client connects while the relay's limits are told.
#[derive(Debug)]
struct Told {
    book: Book,
    address: SocketAddr,
    client: Mutex<Option<TcpStream>>,
    is_told: AtomicBool,
    /// Of each look, whether the limits were told before.
    looks: Mutex<Vec<bool>>,
}

impl Directory for Told {
    fn begin(&self, quotas: &Arc<Quotas>) {
        let mut client = TcpStream::connect(self.address).unwrap();
        client.write_all(b"GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n").unwrap();
        *self.client.lock().unwrap() = Some(client);
        // a relay that takes clients already looks at this one meanwhile
        std::thread::sleep(Duration::from_millis(200));
        quotas.set("anna's", Limits { connections: Some(1), ..Limits::default() });
        self.is_told.store(true, Ordering::Release);
    }

    fn at(&self, address: IpAddr) -> Option<Result<Arc<KnownAccount>, String>> {
        self.looks.lock().unwrap().push(self.is_told.load(Ordering::Acquire));
        self.book.at(address)
    }

    fn behind(&self, relay: &str) -> Option<Result<Arc<KnownAccount>, String>> {
        self.book.behind(relay)
    }

    fn log_in<'a>(&'a self, user: &'a str, password: &'a str, from: IpAddr) -> PendingLogin<'a> {
        self.book.log_in(user, password, from)
    }

    fn may_stay(&self, id: i64) -> Result<(), String> {
        self.book.may_stay(id)
    }

    fn status(&self) -> AccountsStatus {
        self.book.status()
    }
}

#[test]
fn accounts_have_their_limits_before_anybody_comes_in() {
    // a test beside this one takes no port of this address meanwhile
    let address = TcpListener::bind("127.83.0.1:0").unwrap().local_addr().unwrap();
    let told = Arc::new(Told {
        book: Book::default(),
        address,
        client: Mutex::default(),
        is_told: AtomicBool::default(),
        looks: Mutex::default(),
    });
    told.book.at_loopback(ANNA);
    let _relay = Relay::of(Some(Arc::clone(&told) as Arc<dyn Directory>), |settings| {
        settings.accounts.enabled = true;
        settings.listen = vec![address];
    });
    wait_for("the client is looked at", || !told.looks.lock().unwrap().is_empty());
    assert!(told.looks.lock().unwrap().iter().all(|told| *told));
}
