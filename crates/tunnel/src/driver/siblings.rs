//! Threads that share an address. The kernel chooses one by a datagram's sender; where a peer's address has changed,
//! that may be another than the one that has its connection, which then gets the datagram here.

use super::{Shared, locked};
use crate::core::{Way, identifiers};
use crate::trust::Credentials;
use bytes::BytesMut;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, HashedConnectionIdGenerator};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Threads at most.
pub(super) const MOST: usize = 8;
/// Datagrams that wait for their thread; more are dropped, as in a full socket buffer.
const WAITING: usize = 256;
/// Of a packet that is not of a handshake: one byte, then the identifier (RFC 9000 §17.3.1).
const LONG: u8 = 0x80;
const IDENTIFIER: std::ops::Range<usize> = 1..9;

/// A thread among those of its address.
#[derive(Default)]
pub(super) struct Siblings {
    /// Of every thread; none where it is alone.
    identifiers: Vec<HashedConnectionIdGenerator>,
    own: usize,
    all: OnceLock<Vec<Weak<Shared>>>,
    /// Given by others.
    inbox: Mutex<Vec<(Way, BytesMut)>>,
    has_any: AtomicBool,
}

impl Siblings {
    /// Thread `own` of so many.
    pub(super) fn new(credentials: &Credentials, own: usize, count: usize) -> Self {
        let identifiers = (0..count as u64).map(|nth| identifiers(credentials, nth));
        let identifiers = if count > 1 { identifiers.collect() } else { Vec::new() };
        Self { identifiers, own, ..Self::default() }
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
        let Some(thread) = self.owner(datagram).filter(|thread| *thread != self.own) else {
            return false;
        };
        let sibling = self.all.get().and_then(|all| all.get(thread)?.upgrade());
        if let Some(sibling) = sibling {
            let mut inbox = locked(&sibling.siblings.inbox);
            if inbox.len() < WAITING {
                inbox.push((way, BytesMut::from(datagram)));
                sibling.siblings.has_any.store(true, Ordering::Release);
                drop(inbox);
                sibling.ring();
            }
        }
        true
    }

    /// The thread whose identifier a datagram bears.
    fn owner(&self, datagram: &[u8]) -> Option<usize> {
        let identifier = ConnectionId::new(datagram.get(IDENTIFIER)?);
        if datagram[0] & LONG != 0 {
            return None;
        }
        let is_of = |thread: &HashedConnectionIdGenerator| thread.validate(&identifier).is_ok();
        // nearly always its own
        let own = self.identifiers.get(self.own)?;
        if is_of(own) { Some(self.own) } else { self.identifiers.iter().position(is_of) }
    }

    /// Whether others have given it something.
    pub(super) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Takes what others have given it.
    pub(super) fn take(&self) -> Vec<(Way, BytesMut)> {
        let mut inbox = locked(&self.inbox);
        self.has_any.store(false, Ordering::Release);
        std::mem::take(&mut inbox)
    }
}

impl std::fmt::Debug for Siblings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Siblings({} of {})", self.own, self.identifiers.len().max(1))
    }
}
