//! Handles the sockets' events: tunnels up and lost, peers joined, flows opened.

use super::{Incoming, Inner};
use crate::core::{Event, Fingerprint, FlowId, STRANGER, TunnelEnd, TunnelId, is_carrier};
use crate::driver::peers::connect::Joined;
use crate::driver::peers::peer::{PeerState, Ready};
use crate::driver::peers::probe::TRIAL;
use crate::driver::{Driver, locked};
use crate::frame::Opening;
use crate::frame::reason::Reason;
use crate::trust::{Peer, PeerKind};
use ekiden_linux::host::clock;
use ekiden_model::control::rate_hold::Restraint;
use ekiden_model::control::rate_hold::breaker::Trip;
use ekiden_model::units::{Bytes, Rate, Time};
use std::sync::Arc;
#[cfg(test)]
use std::sync::atomic::Ordering;
use tokio::sync::{Mutex, mpsc};

/// To a relay that joins while the disk is full or cannot be written.
const UNSAVED: &str = "this relay cannot save you as its peer, which its operator can mend; the invitation stays good, so try again";

impl Inner {
    /// Handles the events of a socket that listens until it closes; begun anew after a panic, which lost an event.
    pub(super) async fn attend_listening(
        self: Arc<Self>,
        driver: Arc<Driver>,
        events: Arc<Mutex<mpsc::UnboundedReceiver<Event>>>,
    ) {
        let mut events = events.lock().await;
        self.catch_up();
        drop(self.attend(&driver, &mut events, None).await);
    }

    /// Peers have the tunnels that are up, also where nobody heard that one began or ended.
    pub(super) fn catch_up(&self) {
        for known in locked(&self.known).values() {
            let PeerKind::Peer { fingerprint } = known.peer.kind else { continue };
            let up_at = |driver: &Arc<Driver>| -> Vec<Ready> {
                let core = locked(&driver.shared.core);
                let tunnels = core.tunnels_of(fingerprint);
                tunnels.map(|tunnel| Ready { driver: Arc::clone(driver), tunnel }).collect()
            };
            let up: Vec<Ready> = self.listening.iter().flat_map(up_at).collect();
            let changed = known.ready.send_if_modified(|ready| {
                let stays = match ready {
                    Some(used) => up
                        .iter()
                        .any(|up| is_of((&up.driver, up.tunnel), &used.driver, used.tunnel)),
                    None => up.is_empty(),
                };
                if !stays {
                    *ready = up.last().cloned();
                }
                !stays
            });
            if changed && up.is_empty() {
                locked(&known.outage).on_lost(clock::now());
            }
        }
    }

    /// Handles one socket's events until it closes. With `own`, the relay that an outgoing tunnel
    /// leads to, it ends with the tunnel.
    pub(crate) async fn attend(
        self: &Arc<Self>,
        driver: &Arc<Driver>,
        events: &mut mpsc::UnboundedReceiver<Event>,
        own: Option<&Joined>,
    ) -> Option<TunnelEnd> {
        while let Some(event) = events.recv().await {
            #[cfg(test)]
            {
                let panics = self.panics.swap(false, Ordering::AcqRel);
                assert!(!panics, "a test asked for it");
            }
            match event {
                Event::Up { tunnel, peer } => self.on_up(driver, tunnel, peer, own),
                Event::Down { tunnel, peer, end } => {
                    self.on_down((driver, tunnel), peer, &end, own);
                    if own.is_some() {
                        return Some(end);
                    }
                }
                Event::Joining { peer, invitation } => {
                    let (inner, driver) = (Arc::clone(self), Arc::clone(driver));
                    // on the disk, which may be slow; events of other peers go on meanwhile
                    tokio::task::spawn_blocking(move || {
                        inner.on_joining(&driver, peer, invitation)
                    });
                }
                Event::Incoming { flow, peer, opening } => {
                    self.on_incoming(driver, flow, opening, (peer, own));
                }
                Event::Breaker { peer, open, .. } => self.on_breaker(peer, open, own),
                Event::Restrained { peer, why, rate, .. } => {
                    self.on_restrained(peer, why, rate, own);
                }
                Event::SendMemory { peer, used_up, largest, .. } => {
                    self.on_send_memory(peer, (used_up, largest), own);
                }
                Event::OrphansReset { peer, flows, .. } => {
                    self.on_orphans_reset(peer, flows, own);
                }
                Event::Unmarked { peer, lane, .. } => self.on_unmarked(peer, lane, own),
                Event::Flow(_) => {}
            }
        }
        None
    }

    /// The relay with this certificate that comes here, or the one of this invitation. A task that was aborted goes on
    /// until it waits, and another relay may have the name by then.
    pub(super) fn find<T>(
        &self,
        peer: Fingerprint,
        own: Option<&Joined>,
        then: impl FnOnce(&PeerState) -> T,
    ) -> Option<T> {
        let known = locked(&self.known);
        let found = match own {
            Some(joined) => known.get(&joined.name).filter(|known| known.came_of(joined)),
            None => known.values().find(|known| {
                known.fingerprint() == Some(peer)
                    && matches!(known.peer.kind, PeerKind::Peer { .. })
            }),
        };
        found.map(then)
    }

    pub(crate) fn on_up(
        &self,
        driver: &Arc<Driver>,
        tunnel: TunnelId,
        peer: Fingerprint,
        own: Option<&Joined>,
    ) {
        let ready = Ready { driver: Arc::clone(driver), tunnel };
        self.find(peer, own, |known| {
            if let Some(left_out) = known.log_line() {
                tracing::info!(peer = %known.peer.name, left_out, "the tunnel is up");
            }
            known.ready.send_replace(Some(ready));
        });
    }

    pub(super) fn on_down(
        &self,
        ended: (&Arc<Driver>, TunnelId),
        peer: Fingerprint,
        end: &TunnelEnd,
        own: Option<&Joined>,
    ) {
        let reason = end.reason.as_str();
        let is_trial = end.by_peer && reason.contains(TRIAL);
        self.find(peer, own, |known| {
            // while nobody else changes which is used: the other one's end, too, is heard before this or after it
            let other = self.other_tunnel(ended, peer, own);
            let goes_on = other.is_some();
            let lost = |ready: &mut Option<Ready>| {
                // another may have come up meanwhile
                let was_used =
                    ready.as_ref().is_some_and(|ready| is_of(ended, &ready.driver, ready.tunnel));
                if was_used {
                    ready.clone_from(&other);
                }
                was_used
            };
            let was_used = known.ready.send_if_modified(lost);
            let peer = &known.peer.name;
            if is_trial {
                if let Some(left_out) = known.log_line() {
                    tracing::info!(%peer, left_out, "the peer tried whether this relay is reached");
                }
                return;
            }
            *locked(&known.last_error) = Some(reason.to_owned());
            if was_used && !goes_on {
                locked(&known.outage).on_lost(clock::now());
                if let Some(left_out) = known.log_line() {
                    tracing::warn!(%peer, reason, left_out, "the tunnel is lost");
                }
            }
        });
    }

    /// Another tunnel that the same peer has here: a trial comes beside the one in use. One over TCP comes last, because
    /// it ends with its flows where there is one over UDP.
    fn other_tunnel(
        &self,
        ended: (&Arc<Driver>, TunnelId),
        peer: Fingerprint,
        own: Option<&Joined>,
    ) -> Option<Ready> {
        let listening = self.listening.iter().filter(|_| own.is_none());
        let others = listening.flat_map(|driver| {
            let core = locked(&driver.shared.core);
            let others = core.tunnels_of(peer).filter(|tunnel| !is_of(ended, driver, *tunnel));
            let others = others.map(|tunnel| {
                let address = core.snapshot(tunnel).and_then(|seen| seen.address);
                (address.is_some_and(is_carrier), Ready { driver: Arc::clone(driver), tunnel })
            });
            others.collect::<Vec<_>>()
        });
        others.min_by_key(|(over_tcp, _)| *over_tcp).map(|(_, ready)| ready)
    }

    fn on_restrained(
        &self,
        peer: Fingerprint,
        why: Option<Restraint>,
        rate: Rate,
        own: Option<&Joined>,
    ) {
        self.find(peer, own, |known| {
            let Some(left_out) = known.log_line() else { return };
            let peer = &known.peer.name;
            match why {
                Some(why) => {
                    tracing::warn!(%peer, %why, %rate, left_out, "rate held down for 10 s")
                }
                None => tracing::info!(%peer, %rate, left_out, "rate no longer held down"),
            }
        });
    }

    fn on_send_memory(
        &self,
        peer: Fingerprint,
        (used_up, largest): (bool, Bytes),
        own: Option<&Joined>,
    ) {
        self.find(peer, own, |known| {
            let Some(left_out) = known.log_line() else { return };
            let peer = &known.peer.name;
            match used_up {
                true => tracing::warn!(%peer, largest_account = %largest, left_out, "bytes that wait for the tunnel have used up their memory for 10 s: clients wait"),
                false => tracing::info!(%peer, left_out, "half of the memory for bytes that wait for the tunnel is free again"),
            }
        });
    }

    fn on_orphans_reset(&self, peer: Fingerprint, flows: u64, own: Option<&Joined>) {
        self.find(peer, own, |known| {
            let Some(left_out) = known.log_line() else { return };
            let peer = &known.peer.name;
            tracing::warn!(%peer, flows, left_out, "flows reset: their connections ended, and the peer took too little of the rest for too long");
        });
    }

    fn on_unmarked(&self, peer: Fingerprint, lane: u8, own: Option<&Joined>) {
        let nth = usize::from(lane.min(1));
        let (lane, dscp) = (["interactive", "bulk"][nth], self.settings.dscp[nth]);
        self.find(peer, own, |known| {
            let Some(left_out) = known.log_line() else { return };
            let peer = &known.peer.name;
            tracing::warn!(%peer, lane, dscp, left_out, "none of a lane's packets arrived in 5 s, those of the other lane did: they go without their DSCP, which the path may drop");
        });
    }

    fn on_breaker(&self, peer: Fingerprint, open: Option<(Trip, Time)>, own: Option<&Joined>) {
        self.find(peer, own, |known| {
            let Some(left_out) = known.log_line() else { return };
            let peer = &known.peer.name;
            match open {
                Some((why, until)) => {
                    let seconds = until.since(clock::now()).as_millis() / 1_000;
                    tracing::warn!(%peer, %why, seconds, left_out, "circuit breaker opened: sending at most a tenth of the rate");
                }
                None => tracing::info!(%peer, left_out, "circuit breaker closed: sending at the full rate"),
            }
        });
    }

    /// Only a relay that is saved is let in: the invitation would be good again after a restart. Waits for the disk, and
    /// holds `changes` meanwhile, so that the store and who is admitted change in one order.
    fn on_joining(&self, driver: &Driver, peer: Fingerprint, invitation: [u8; 32]) {
        let _changes = locked(&self.changes);
        let saved = self.settings.store.joined(invitation, peer);
        *locked(&self.unsaved) = saved.as_ref().err().map(ToString::to_string);
        // the names, before its tunnel is up
        let mut known = locked(&self.known);
        let invited = |known: &&mut PeerState| matches!(&known.peer.kind, PeerKind::Invited { invitation: hash } if *hash == invitation.into());
        for known in known.values_mut().filter(invited) {
            let name = &known.peer.name;
            match &saved {
                Ok(true) => {
                    tracing::info!(peer = %name, fingerprint = %peer, "peer joined");
                    known.peer.kind = PeerKind::Peer { fingerprint: peer };
                }
                // it was revoked just now
                Ok(false) => {}
                Err(error) => {
                    *locked(&known.last_error) =
                        Some(format!("it came, and cannot be saved: {error}"));
                    if let Some(left_out) = known.log_line() {
                        tracing::error!(peer = %name, %error, left_out, "a peer that joins cannot be saved: refused until it can be");
                    }
                }
            }
        }
        let kept = match saved {
            Ok(true) => Ok(()),
            Ok(false) => Err(STRANGER),
            Err(_) => Err(UNSAVED),
        };
        let peers: Vec<Peer> = known.values().map(|known| known.peer.clone()).collect();
        drop(known);
        if kept.is_ok() {
            // at all sockets, the one that it came to among them
            self.admit(&peers);
        }
        driver.with(|core| core.settle_join(clock::now(), invitation, kept));
    }

    fn on_incoming(
        &self,
        driver: &Driver,
        id: FlowId,
        opening: Opening,
        (peer, own): (Fingerprint, Option<&Joined>),
    ) {
        let flow = driver.flow(id);
        // by its certificate: a relay may have several tunnels
        let Some(peer) = self.find(peer, own, |known| known.peer.name.clone()) else {
            return flow.refuse(
                Reason::Denied,
                "your relay was removed from the peers of this one".to_owned(),
            );
        };
        if let Err(error) = self.incoming.try_send(Incoming { flow, opening, peer }) {
            let incoming = match error {
                mpsc::error::TrySendError::Full(incoming)
                | mpsc::error::TrySendError::Closed(incoming) => incoming,
            };
            incoming.flow.refuse(Reason::Exhausted, "the relay is busy".to_owned());
        }
    }
}

/// Each socket numbers its own tunnels.
fn is_of((on, tunnel): (&Arc<Driver>, TunnelId), driver: &Arc<Driver>, other: TunnelId) -> bool {
    tunnel == other && Arc::ptr_eq(on, driver)
}
