//! A path between two relays on loopback, which carries UDP and TCP, loses datagrams and is blocked as a test wants.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Stands between two relays, and carries UDP and TCP until a test stops one of them.
#[derive(Clone)]
pub(crate) struct Middle {
    pub(crate) port: u16,
    pub(crate) udp: Arc<AtomicBool>,
    /// One datagram of so many is lost in each direction; 0 for none.
    pub(crate) losing: Arc<AtomicU64>,
    /// Datagrams so far.
    count: Arc<AtomicU64>,
    /// Sockets towards the far relay, by where their datagrams come from.
    towards: Arc<Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>>,
    /// How many there were.
    pub(crate) addresses: Arc<AtomicU64>,
}

impl Middle {
    pub(crate) fn before(relay: u16) -> Self {
        let (front, listener) = loop {
            let front = UdpSocket::bind("127.0.0.1:0").unwrap();
            if let Ok(listener) = TcpListener::bind(front.local_addr().unwrap()) {
                break (Arc::new(front), listener);
            }
        };
        let port = front.local_addr().unwrap().port();
        let middle = Self {
            port,
            udp: Arc::new(AtomicBool::new(true)),
            losing: Arc::default(),
            count: Arc::default(),
            towards: Arc::default(),
            addresses: Arc::default(),
        };
        let this = middle.clone();
        thread::spawn(move || this.datagrams(&front, relay));
        thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(("127.0.0.1", relay)));
                let Ok(far) = far else { continue };
                let (a, b) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                thread::spawn(move || carry(near, far));
                thread::spawn(move || carry(b, a));
            }
        });
        middle
    }

    fn datagrams(&self, front: &Arc<UdpSocket>, relay: u16) {
        let mut buffer = [0; 65_536];
        loop {
            let Ok((length, from)) = front.recv_from(&mut buffer) else { continue };
            if !self.passes() {
                continue;
            }
            let mut towards = self.towards.lock().unwrap();
            let back = towards.entry(from).or_insert_with(|| {
                self.addresses.fetch_add(1, Ordering::Relaxed);
                let back = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
                back.connect(("127.0.0.1", relay)).unwrap();
                let (this, front, socket) = (self.clone(), Arc::clone(front), Arc::clone(&back));
                thread::spawn(move || this.answers(&front, &socket, from));
                back
            });
            let _ = back.send(&buffer[..length]);
        }
    }

    fn answers(&self, front: &UdpSocket, back: &UdpSocket, to: SocketAddr) {
        let mut buffer = [0; 65_536];
        loop {
            // nobody is there for a moment while a relay starts again
            let Ok(length) = back.recv(&mut buffer) else {
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            if self.passes() {
                let _ = front.send_to(&buffer[..length], to);
            }
        }
    }

    fn passes(&self) -> bool {
        let nth = self.count.fetch_add(1, Ordering::Relaxed);
        let losing = self.losing.load(Ordering::Relaxed);
        self.udp.load(Ordering::Relaxed) && (losing == 0 || !nth.is_multiple_of(losing))
    }

    /// From now on the far relay sees other addresses, as when an address translator has forgotten.
    pub(crate) fn forget(&self) {
        self.towards.lock().unwrap().clear();
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}
