//! A known peer, its tunnel while there is one, and which side connects.

use super::TunnelStatus;
use crate::core::{Fingerprint, TunnelId};
use crate::driver::{Driver, locked};
use crate::trust::{Peer, PeerKind};
use ekiden_linux::host::clock;
use ekiden_model::connect::outage::Outage;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Debug, Clone)]
pub(crate) struct Ready {
    pub(crate) driver: Arc<Driver>,
    pub(crate) tunnel: TunnelId,
}

#[derive(Debug)]
pub(crate) struct PeerState {
    pub(crate) peer: Peer,
    pub(crate) ready: watch::Sender<Option<Ready>>,
    pub(crate) last_error: Mutex<Option<String>>,
    /// While there is no tunnel.
    pub(crate) outage: Mutex<Outage>,
    pub(crate) connecting: Option<JoinHandle<()>>,
}

impl Drop for PeerState {
    fn drop(&mut self) {
        if let Some(task) = &self.connecting {
            task.abort();
        }
        if let Some(ready) = self.ready.send_replace(None)
            && self.connecting.is_some()
        {
            ready.driver.close(ready.tunnel, "the relay was revoked");
        }
    }
}

impl PeerState {
    pub(crate) fn last_error(&self) -> Option<String> {
        locked(&self.last_error).clone()
    }

    pub(crate) fn status(&self) -> TunnelStatus {
        let ready = self.ready.borrow().clone();
        let tunnel = ready.as_ref().and_then(|ready| {
            let all = locked(&ready.driver.shared.core).snapshots();
            all.into_iter().find(|snapshot| snapshot.tunnel == ready.tunnel)
        });
        let (now, outage) = (clock::now(), *locked(&self.outage));
        let is_down = ready.is_none();
        let pacing = ready.map(|ready| locked(&ready.driver.shared.late).clone());
        TunnelStatus {
            name: self.peer.name.clone(),
            joined: matches!(self.peer.kind, PeerKind::Joined { .. }),
            tunnel,
            over_tcp: None,
            last_error: self.last_error(),
            down_for: is_down.then(|| outage.lasted(now)),
            retry_in: outage.retry_in(now).filter(|_| is_down),
            pacing: pacing.unwrap_or_default(),
        }
    }

    pub(crate) const fn fingerprint(&self) -> Option<Fingerprint> {
        match &self.peer.kind {
            PeerKind::Invited { .. } => None,
            PeerKind::Peer { fingerprint } | PeerKind::Joined { fingerprint, .. } => {
                Some(*fingerprint)
            }
        }
    }
}

/// Whether two differ in their rates alone, which a running tunnel takes over.
pub(crate) fn same_but_terms(one: &Peer, other: &Peer) -> bool {
    one.name == other.name
        && match (&one.kind, &other.kind) {
            (PeerKind::Joined { .. }, _) | (_, PeerKind::Joined { .. }) => false,
            // an invited peer has joined meanwhile
            (PeerKind::Peer { .. }, PeerKind::Invited { .. }) => true,
            (one, other) => one == other,
        }
}
