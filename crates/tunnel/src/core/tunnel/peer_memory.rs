//! What a peer makes this side hold, in all its tunnels together.

use super::Tunnel;
use crate::core::Event;
use crate::core::flow::{Flow, Owner};
use crate::frame::owner_and_behind;
use crate::trust::Fingerprint;
use bytes::Bytes;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::send_queue::holdings::Holdings;
use ekiden_model::units::{self, Span, Time};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};

/// Memory of a piece of a flow that waits for one before it, beside its bytes.
const PIECE: u64 = 128;

/// How long the memory for bytes that wait to be sent is used up before that is reported.
const LONG: Span = Span::from_secs(10);

/// Of the memory for bytes that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Shortage {
    /// A flow found too little, and half of it has not been free since.
    pub(super) short: bool,
    since: Option<Time>,
    /// It was reported.
    told: bool,
}

/// Peers with tunnels to this relay; shared by the threads of all its addresses.
#[derive(Debug, Default)]
pub(crate) struct PeersMemory(Mutex<BTreeMap<Fingerprint, Weak<PeerMemory>>>);

/// What all tunnels of one peer hold.
#[derive(Debug, Default)]
struct PeerMemory {
    bytes: AtomicU64,
    flows: AtomicU64,
    tunnels: AtomicU64,
    /// Of bytes that wait to be sent.
    waiting: AtomicU64,
    owners: Mutex<Owners>,
}

/// Whose bytes wait, by the account's text: of an owner, or of one behind it.
#[derive(Debug, Default)]
struct Owners {
    known: BTreeMap<Bytes, Weak<Owner>>,
    /// Above so many, those without flows are forgotten.
    most: usize,
}

impl Owners {
    fn get(&mut self, account: &[u8]) -> Arc<Owner> {
        if let Some(owner) = self.known.get(account).and_then(Weak::upgrade) {
            return owner;
        }
        let (owner, behind) = owner_and_behind(account);
        let within = behind.map(|_| self.get(owner));
        if self.known.len() > self.most {
            self.known.retain(|_, owner| owner.strong_count() > 0);
            // so that it takes as many newcomers as it takes steps
            self.most = 2 * self.known.len() + 16;
        }
        let owner = Arc::new(Owner::new(within));
        // a slice would keep the datagram that brought it
        self.known.insert(Bytes::copy_from_slice(account), Arc::downgrade(&owner));
        owner
    }
}

/// What one tunnel of a peer holds, until this is dropped.
#[derive(Debug)]
pub(in crate::core) struct TunnelMemory {
    peer: Arc<PeerMemory>,
    bytes: u64,
    flows: u64,
    waiting: u64,
}

impl PeersMemory {
    /// Tunnels of a peer.
    pub(in crate::core) fn tunnels(&self, peer: Fingerprint) -> usize {
        let known = locked(&self.0).get(&peer).and_then(Weak::upgrade);
        known.map_or(0, |peer| peer.tunnels.load(Relaxed) as usize)
    }

    /// One more tunnel of a peer.
    pub(in crate::core) fn tunnel(&self, peer: Fingerprint) -> TunnelMemory {
        let mut peers = locked(&self.0);
        peers.retain(|_, known| known.strong_count() > 0);
        let known = peers.get(&peer).and_then(Weak::upgrade).unwrap_or_default();
        peers.insert(peer, Arc::downgrade(&known));
        known.tunnels.fetch_add(1, Relaxed);
        TunnelMemory { peer: known, bytes: 0, flows: 0, waiting: 0 }
    }
}

impl TunnelMemory {
    fn set(&mut self, bytes: u64, flows: u64) {
        // another thread may see either sum a moment too low, and counts again with its next packet
        change(&self.peer.bytes, self.bytes, bytes);
        change(&self.peer.flows, self.flows, flows);
        (self.bytes, self.flows) = (bytes, flows);
    }

    /// Whose flows of an account are, in all of the peer's tunnels.
    pub(super) fn owner(&self, account: &[u8]) -> Arc<Owner> {
        locked(&self.peer.owners).get(account)
    }

    /// What a flow has waiting to be sent has changed.
    pub(super) fn on_queue(&mut self, flow: &mut Flow) {
        self.set_waiting(flow, flow.queue().shared());
    }

    pub(super) fn on_removed(&mut self, flow: &mut Flow) {
        self.set_waiting(flow, 0);
    }

    fn set_waiting(&mut self, flow: &mut Flow, now: u64) {
        let before = flow.waiting.set(now);
        self.waiting = self.waiting + now - before;
        change(&self.peer.waiting, before, now);
    }

    /// What a flow's owner may add, where all flows of the peer share so much memory for bytes that wait to be sent.
    pub(super) fn free(&self, most: u64, flow: &Flow) -> u64 {
        let (all, owner) = (self.peer.waiting.load(Relaxed), flow.waiting.owner());
        let of = |owner: &Owner| Holdings { most, all, own: owner.waiting() };
        match owner.within() {
            None => of(owner).free(),
            Some(within) => of(within).free_behind(owner.waiting()),
        }
    }

    /// What nobody uses of it.
    fn unused(&self, most: u64) -> u64 {
        most.saturating_sub(self.peer.waiting.load(Relaxed))
    }

    /// What the owner has waiting that has the most.
    fn largest(&self) -> u64 {
        let owners = locked(&self.peer.owners);
        let held = owners.known.values().filter_map(Weak::upgrade).map(|owner| owner.waiting());
        held.max().unwrap_or(0)
    }

    /// Of this tunnel's bytes that wait to be sent.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(in crate::core) const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Tunnels of the peer, with this one.
    fn tunnels(&self) -> u64 {
        self.peer.tunnels.load(Relaxed)
    }

    /// Flows of the peer's other tunnels.
    pub(super) fn flows_elsewhere(&self) -> usize {
        self.peer.flows.load(Relaxed).saturating_sub(self.flows) as usize
    }

    /// Whether this tunnel is to end because the peer's hold more than `most` together.
    fn is_too_much(&self, most: u64) -> bool {
        let (all, tunnels) = (self.peer.bytes.load(Relaxed), self.peer.tunnels.load(Relaxed));
        ends(self.bytes, (all, tunnels), most)
    }
}

impl Drop for TunnelMemory {
    fn drop(&mut self) {
        self.set(0, 0);
        change(&self.peer.waiting, self.waiting, 0);
        self.peer.tunnels.fetch_sub(1, Relaxed);
    }
}

fn change(sum: &AtomicU64, before: u64, now: u64) {
    if now > before {
        sum.fetch_add(now - before, Relaxed);
    } else if now < before {
        sum.fetch_sub(before - now, Relaxed);
    }
}

/// Whether a tunnel with `own` bytes ends where all of its peer hold `all`. Those that hold the most end. A small one
/// ends only where `most` is far exceeded, because the others are still to be looked at.
const fn ends(own: u64, (all, tunnels): (u64, u64), most: u64) -> bool {
    all > most && (own.saturating_mul(tunnels) >= all || all > most + most / 4)
}

impl Tunnel {
    /// Counts what the peer makes this side hold, bytes behind lost packets included, and ends the tunnel where that is
    /// too much.
    pub(in crate::core) fn count_memory(&mut self) {
        let lanes: u64 = self.lanes.iter().flatten().map(super::Lane::holds).sum();
        let repairs = (self.repairs.received + self.repairs.packets_received) as u64;
        let pieces = PIECE * self.pieces as u64;
        let bytes = self.held + self.packets + repairs + pieces + lanes;
        self.memory.set(bytes, self.flows.len() as u64);
        let window = self.limits.unacknowledged(self.memory.tunnels());
        for lane in self.lanes.iter_mut().flatten() {
            lane.quinn.set_send_window(window);
        }
        let most = self.limits.peer_memory();
        if self.memory.is_too_much(most) {
            let most = units::Bytes::new(most);
            self.fail(format!("the peer's tunnels hold more than {most} here"));
        }
    }

    /// What a flow's owner may add of the memory for bytes that wait to be sent.
    pub(super) fn send_memory_free(&self, flow: &Flow) -> u64 {
        self.memory.free(self.limits.send_memory(), flow)
    }

    /// Reports that the memory for bytes that wait to be sent has been used up for long, or no longer is.
    pub(in crate::core) fn watch_send_memory(&mut self, now: Time) {
        let most = self.limits.send_memory();
        self.shortage.short &= self.memory.unused(most) < most / 2;
        let since = self.shortage.short.then(|| self.shortage.since.unwrap_or(now));
        self.shortage.since = since;
        let used_up = since.is_some_and(|since| now.since(since) >= LONG || self.shortage.told);
        if std::mem::replace(&mut self.shortage.told, used_up) != used_up {
            let (tunnel, peer) = (self.id, self.peer);
            let largest = units::Bytes::new(self.memory.largest());
            self.events.push_back(Event::SendMemory { tunnel, peer, used_up, largest });
        }
    }

    #[cfg(test)]
    pub(in crate::core) const fn memory_held(&self) -> u64 {
        self.memory.bytes
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn assert_memory_bounded(&self) {
        assert!(self.memory.bytes <= self.limits.peer_memory() || self.broken.is_some());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn peer(nth: u8) -> Fingerprint {
        Fingerprint::from([nth; 32])
    }

    #[test]
    fn a_tunnel_that_ends_gives_back_what_it_held() {
        let peers = PeersMemory::default();
        let mut first = peers.tunnel(peer(1));
        let mut second = peers.tunnel(peer(1));
        let other = peers.tunnel(peer(2));
        first.set(70, 3);
        second.set(50, 4);
        assert_eq!((peers.tunnels(peer(1)), second.flows_elsewhere()), (2, 3));
        assert!(first.is_too_much(100) && !second.is_too_much(100) && !other.is_too_much(100));
        drop(first);
        assert_eq!((peers.tunnels(peer(1)), second.flows_elsewhere()), (1, 0));
        assert!(!second.is_too_much(100));
        drop(second);
        assert_eq!(peers.tunnels(peer(1)), 0);
    }

    proptest! {
        /// Where a peer's tunnels hold too much, one that holds the most ends; and none that holds less than its part
        /// of what they may, unless they hold a quarter more.
        #[test]
        fn the_largest_ends(held in prop::collection::vec(0_u64..1_000, 1..16), most in 1_u64..8_000) {
            let all: u64 = held.iter().sum();
            let of = (all, held.len() as u64);
            let largest = held.iter().copied().max().unwrap_or(0);
            prop_assert_eq!(ends(largest, of, most), all > most);
            for own in held {
                let small = own * of.1 <= most && all <= most + most / 4;
                prop_assert!(!small || !ends(own, of, most));
            }
        }
    }
}
