//! A known peer, its tunnel while there is one, and which side connects.

use super::TunnelStatus;
use crate::core::{Fingerprint, TunnelId};
use crate::driver::peers::connect::Joined;
use crate::driver::{Driver, locked};
use crate::trust::{Peer, PeerKind};
use ekiden_linux::host::clock;
use ekiden_model::connect::outage::Outage;
use ekiden_model::units::{Span, Time};
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Debug, Clone)]
pub(crate) struct Ready {
    pub(crate) driver: Arc<Driver>,
    pub(crate) tunnel: TunnelId,
}

/// So many lines at once.
const BURST: Span = Span::from_secs(10);

/// Lines of the log about one peer, which may come and go as often as it likes: one a second on average.
#[derive(Debug, Default)]
pub(crate) struct LogLines {
    /// When all of the burst is there again.
    full: Time,
    left_out: u64,
}

impl LogLines {
    /// `None` where a line is left out; else `Some` of how many were since the last, if any.
    pub(crate) fn next(&mut self, now: Time) -> Option<Option<u64>> {
        let full = self.full.max(now) + Span::from_secs(1);
        if full.since(now) > BURST {
            self.left_out += 1;
            return None;
        }
        self.full = full;
        Some(std::mem::take(&mut self.left_out)).map(|left_out| (left_out > 0).then_some(left_out))
    }
}

#[derive(Debug)]
pub(crate) struct PeerState {
    pub(crate) peer: Peer,
    pub(crate) ready: watch::Sender<Option<Ready>>,
    pub(crate) last_error: Mutex<Option<String>>,
    /// While there is no tunnel.
    pub(crate) outage: Mutex<Outage>,
    /// Whom the task connects to, where this side connects.
    pub(crate) joined: Option<Arc<Joined>>,
    pub(crate) connecting: Option<JoinHandle<()>>,
    /// The tunnel over TCP whose flows end beside the one that is used.
    pub(crate) draining: Mutex<Option<Ready>>,
    pub(crate) lines: Mutex<LogLines>,
}

impl Drop for PeerState {
    fn drop(&mut self) {
        if let Some(task) = &self.connecting {
            task.abort();
        }
        let draining = locked(&self.draining).take();
        let ready = self.ready.send_replace(None).filter(|_| self.connecting.is_some());
        for Ready { driver, tunnel } in ready.into_iter().chain(draining) {
            driver.close(tunnel, "the relay was revoked");
        }
    }
}

impl PeerState {
    /// Whether it is known by that invitation, and not by a later one under its name.
    pub(crate) fn came_of(&self, joined: &Joined) -> bool {
        self.joined.as_deref().is_some_and(|own| std::ptr::eq(own, joined))
    }

    /// As [`LogLines::next`].
    pub(crate) fn log_line(&self) -> Option<Option<u64>> {
        locked(&self.lines).next(clock::now())
    }

    pub(crate) fn last_error(&self) -> Option<String> {
        locked(&self.last_error).clone()
    }

    pub(crate) fn status(&self) -> TunnelStatus {
        let ready = self.ready.borrow().clone();
        let snapshot = |ready: &Ready| locked(&ready.driver.shared.core).snapshot(ready.tunnel);
        let tunnel = ready.as_ref().and_then(snapshot);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_flaps_gets_a_line_a_second() {
        let mut lines = LogLines::default();
        let at = |ms: u64| Time::ZERO + Span::from_millis(ms);
        let mut written = 0;
        let mut left_out = 0;
        for ms in (0..100_000).step_by(10) {
            if let Some(before) = lines.next(at(ms)) {
                written += 1;
                left_out += before.unwrap_or(0);
            }
        }
        assert!((109..=110).contains(&written), "{written}");
        assert_eq!(written + left_out + lines.left_out, 10_000);
        assert_eq!(lines.next(at(900_000)), Some(Some(10_000 - written - left_out)));
        assert_eq!(lines.next(at(900_001)), Some(None), "none was left out since");
    }
}
