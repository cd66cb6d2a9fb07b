//! Threads that share an address. The kernel chooses one by a datagram's sender; where a peer's address has changed,
//! that may be another than the one that has its connection, which then gets the datagram here.

use super::{Shared, locked};
use crate::core::{AddressThread, Owners, Way};
use crate::trust::Credentials;
use bytes::BytesMut;
use quinn_proto::ConnectionId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Bytes that wait for their thread; more are dropped, as in a full socket buffer.
const WAITING: usize = 2 << 20;
/// The first byte of packets of a handshake (RFC 9000 §17.2) has it set, and not that of others (§17.3.1).
const LONG: u8 = 0x80;
/// Of an identifier of this relay.
const LENGTH: usize = 8;

/// A thread among those of its address.
#[derive(Debug, Default)]
pub(super) struct Siblings {
    /// None where it is alone.
    owners: Option<Owners>,
    all: OnceLock<Vec<Weak<Shared>>>,
    inbox: Mutex<Inbox>,
    has_any: AtomicBool,
}

/// Datagrams from other threads.
#[derive(Debug, Default)]
struct Inbox {
    datagrams: Vec<(Way, BytesMut)>,
    bytes: usize,
}

impl Siblings {
    /// A thread that has others beside it.
    pub(super) fn new(credentials: &Credentials, thread: &AddressThread) -> Self {
        Self { owners: Some(thread.owners(credentials)), ..Self::default() }
    }

    /// Tells all threads of an address of each other, in their order.
    pub(super) fn introduce(all: &[Arc<Shared>]) {
        for one in all {
            let others = all.iter().map(Arc::downgrade).collect();
            // once, before anything is received that they could pass on
            let _ = one.siblings.all.set(others);
        }
    }

    /// Gives a datagram of another thread's connection to that thread; whether it was one.
    pub(super) fn pass_on(&self, way: Way, datagram: &[u8]) -> bool {
        let Some(thread) = self.elsewhere(datagram) else { return false };
        let sibling = self.all.get().and_then(|all| all.get(thread)?.upgrade());
        if let Some(sibling) = sibling {
            let mut inbox = locked(&sibling.siblings.inbox);
            if inbox.bytes + datagram.len() <= WAITING {
                inbox.bytes += datagram.len();
                inbox.datagrams.push((way, BytesMut::from(datagram)));
                // before the other looks whether it may sleep, or it is rung
                sibling.siblings.has_any.store(true, Ordering::SeqCst);
                drop(inbox);
                sibling.ring();
            }
        }
        true
    }

    /// The other thread whose identifier a datagram bears.
    fn elsewhere(&self, datagram: &[u8]) -> Option<usize> {
        let owners = self.owners.as_ref()?;
        let identifier = match datagram {
            [first, ..] if first & LONG == 0 => datagram.get(1..1 + LENGTH)?,
            // version, and the length of the identifier
            [_, _, _, _, _, length, rest @ ..] if usize::from(*length) == LENGTH => {
                rest.get(..LENGTH)?
            }
            _ => return None,
        };
        owners.elsewhere(&ConnectionId::new(identifier))
    }

    /// Whether others have given it something.
    pub(super) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::SeqCst)
    }

    /// Takes what others have given it.
    pub(super) fn take(&self) -> Vec<(Way, BytesMut)> {
        let mut inbox = locked(&self.inbox);
        self.has_any.store(false, Ordering::SeqCst);
        inbox.bytes = 0;
        std::mem::take(&mut inbox.datagrams)
    }
}
