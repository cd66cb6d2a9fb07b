//! A way to a relay that counts what moves below TLS.

use crate::common::wire::Relay;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;

/// Carries one connection.
pub(super) struct Carrier {
    moved: Arc<[AtomicU64; 2]>,
    thread: JoinHandle<()>,
}

impl Carrier {
    /// Clients of this relay reach it by the carrier from now on.
    pub(super) fn before(relay: &mut Relay) -> Self {
        let (listener, at) = crate::common::listener();
        let to = std::mem::replace(&mut relay.address, at);
        let moved = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let counts = Arc::clone(&moved);
        let thread = std::thread::spawn(move || {
            let client = listener.accept().unwrap().0;
            let relay = TcpStream::connect(to).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| copy(&client, &relay, &counts[0]));
                copy(&relay, &client, &counts[1]);
            });
        });
        Self { moved, thread }
    }

    /// Bytes up and down, once both ends are closed.
    pub(super) fn moved(self) -> (u64, u64) {
        self.thread.join().unwrap();
        (self.moved[0].load(SeqCst), self.moved[1].load(SeqCst))
    }
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, moved: &AtomicU64) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        moved.fetch_add(n as u64, SeqCst);
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
