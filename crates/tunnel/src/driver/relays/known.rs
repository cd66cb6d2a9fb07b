//! A relay that is known, its tunnel while there is one, and who connects to it.

use super::TunnelStatus;
use crate::core::{Fingerprint, TunnelId};
use crate::driver::{Driver, locked};
use crate::trust::{Kind, Relay};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A tunnel that is up.
#[derive(Debug, Clone)]
pub(super) struct Ready {
    pub(super) driver: Arc<Driver>,
    pub(super) tunnel: TunnelId,
}

/// A relay that is known.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) relay: Relay,
    pub(super) ready: watch::Sender<Option<Ready>>,
    pub(super) last_error: Mutex<Option<String>>,
    /// Connects, for relays that invited us.
    pub(super) connecting: Option<JoinHandle<()>>,
}

impl Drop for Known {
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

impl Known {
    pub(super) fn last_error(&self) -> Option<String> {
        locked(&self.last_error).clone()
    }

    pub(super) fn status(&self) -> TunnelStatus {
        let ready = self.ready.borrow().clone();
        let tunnel = ready.as_ref().and_then(|ready| {
            let all = locked(&ready.driver.shared.core).snapshots();
            all.into_iter().find(|snapshot| snapshot.tunnel == ready.tunnel)
        });
        let pacing = ready.map(|ready| locked(&ready.driver.shared.late).clone());
        TunnelStatus {
            name: self.relay.name.clone(),
            joined: matches!(self.relay.kind, Kind::Joined { .. }),
            tunnel,
            over_tcp: None,
            last_error: self.last_error(),
            pacing: pacing.unwrap_or_default(),
        }
    }

    pub(super) const fn fingerprint(&self) -> Option<Fingerprint> {
        match &self.relay.kind {
            Kind::Invited { .. } => None,
            Kind::Peer { fingerprint } | Kind::Joined { fingerprint, .. } => Some(*fingerprint),
        }
    }
}

/// Whether two differ in their rates alone, which a running tunnel takes over.
pub(super) fn same_but_terms(one: &Relay, other: &Relay) -> bool {
    one.name == other.name
        && match (&one.kind, &other.kind) {
            (Kind::Joined { .. }, _) | (_, Kind::Joined { .. }) => false,
            // who was invited has come meanwhile
            (Kind::Peer { .. }, Kind::Invited { .. }) => true,
            (one, other) => one == other,
        }
}
