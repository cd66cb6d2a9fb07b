//! The end of a carrier at a driver: datagrams that come and go over TCP instead of the UDP socket.
//!
//! They do not touch the network stack in between, so that no packet filter and no lack of room in a socket stops them.

use super::{Shared, locked};
pub(super) use crate::core::is_carrier;
use crate::core::{Way, is_initial};
use bytes::{Bytes, BytesMut};
use ekiden_linux::host::clock;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;

/// Datagrams that may wait for the connection: so short that a full path shows early.
const QUEUE: usize = 96;

/// Datagrams that may come before a tunnel goes over a carrier: as many as a connection may send before it is known.
const UNCLAIMED: u32 = 4_096;
/// Initials among them: two handshakes take 20 where all is repeated until they are given up.
const UNCLAIMED_INITIALS: u32 = 64;

/// Carriers so far, of all drivers.
static CARRIERS: AtomicU64 = AtomicU64::new(0);

/// A carrier's end. The carrier is unknown to the driver once this is dropped.
#[derive(Debug)]
pub(crate) struct CarrierEnd {
    /// Takes what came.
    pub(crate) inlet: Inlet,
    /// What is to be sent; over where the driver is gone.
    pub(crate) outgoing: mpsc::Receiver<Bytes>,
}

/// Hands datagrams to the core, which sees the other end at an address of 0.0.0.0/8: the kernel delivers nothing from
/// there (RFC 6890, table 1).
#[derive(Debug)]
pub(crate) struct Inlet {
    shared: Arc<Shared>,
    way: Way,
    /// `None` where this end connected, or a tunnel went over it when the rest was used up.
    unclaimed: Option<Unclaimed>,
}

/// What may still come while no tunnel goes over a carrier.
#[derive(Debug, Clone, Copy)]
struct Unclaimed {
    datagrams: u32,
    initials: u32,
}

impl Unclaimed {
    /// Whether one more may come.
    fn takes(&mut self, datagram: &[u8]) -> bool {
        let initials = self.initials.checked_sub(u32::from(is_initial(datagram)));
        let left = self.datagrams.checked_sub(1).zip(initials);
        if let Some((datagrams, initials)) = left {
            *self = Self { datagrams, initials };
        }
        left.is_some()
    }
}

impl Drop for Inlet {
    fn drop(&mut self) {
        locked(&self.shared.carriers).remove(&self.way.peer);
    }
}

impl CarrierEnd {
    /// A new one, at an address that no other has; `from` the address that connected, where that was not this end.
    pub(super) fn new(shared: Arc<Shared>, from: Option<IpAddr>) -> Self {
        let at = address(CARRIERS.fetch_add(1, Ordering::Relaxed));
        let (sender, outgoing) = mpsc::channel(QUEUE);
        locked(&shared.carriers).insert(at, sender);
        let way = Way { peer: at, here: None, tcp: from };
        let all = Unclaimed { datagrams: UNCLAIMED, initials: UNCLAIMED_INITIALS };
        let unclaimed = from.is_some().then_some(all);
        Self { inlet: Inlet { shared, way, unclaimed }, outgoing }
    }

    /// The address by which the core knows it.
    pub(crate) const fn at(&self) -> SocketAddr {
        self.inlet.way.peer
    }
}

impl Inlet {
    /// Hands the core a datagram that came. Errors: too many came, and no tunnel goes over the carrier.
    pub(crate) fn deliver(&mut self, datagram: BytesMut) -> io::Result<()> {
        let mut events = Vec::new();
        {
            let mut core = locked(&self.shared.core);
            if self.unclaimed.as_mut().is_some_and(|unclaimed| !unclaimed.takes(&datagram)) {
                if core.tunnel_at(self.way.peer).is_none() {
                    return Err(io::Error::other("too much came, and no tunnel goes over it"));
                }
                self.unclaimed = None;
            }
            core.receive(clock::now(), self.way, datagram);
            events.extend(std::iter::from_fn(|| core.event()));
        }
        // as a datagram on the socket wakes the thread
        self.shared.ring();
        self.shared.tell(events);
        Ok(())
    }
}

/// Gives datagrams of `size` bytes each, the last perhaps shorter, to the carrier at `to`. Those without room are lost,
/// as on any link.
pub(super) fn send(shared: &Shared, to: SocketAddr, bytes: &[u8], size: usize) {
    let carriers = locked(&shared.carriers);
    let Some(carrier) = carriers.get(&to) else { return };
    for datagram in bytes.chunks(size.max(1)) {
        if carrier.try_send(Bytes::copy_from_slice(datagram)).is_err() {
            return;
        }
    }
}

/// The nth address of 0.0.0.0/8, of 2^40.
fn address(nth: u64) -> SocketAddr {
    let port = 1 + (nth % 65_535) as u16;
    let host = 1 + (nth / 65_535) % 0xff_fffe;
    SocketAddr::from((Ipv4Addr::from_bits(host as u32), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_carrier_has_an_address_that_no_network_has() {
        let seen: std::collections::BTreeSet<_> = (65_500..65_600).map(address).collect();
        assert_eq!(seen.len(), 100);
        assert!(seen.iter().all(|at| is_carrier(*at) && at.port() != 0));
        assert!(!seen.iter().any(|at| at.ip().is_unspecified()));
        assert!(!is_carrier("127.0.0.1:1".parse().unwrap()));
        assert!(!is_carrier("[::1]:1".parse().unwrap()));
    }

    #[test]
    fn initials_and_all_datagrams_are_bounded_before_a_tunnel_goes_over_a_carrier() {
        let initial = [0xc0, 0, 0, 0, 1];
        let mut left = Unclaimed { datagrams: 4, initials: 2 };
        assert!(left.takes(&initial) && left.takes(&initial) && !left.takes(&initial));
        assert!(left.takes(&[0x40]) && left.takes(&[]) && !left.takes(&[]));
    }
}
