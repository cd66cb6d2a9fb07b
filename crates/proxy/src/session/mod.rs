//! One client's connection: admission, the account, the way to a destination, and the tunnel that may follow.

mod auth;
mod context;
mod log_entry;
mod origin;
mod refusals;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use context::{OpenedRoute, within};
pub(crate) use log_entry::{LogEntry, OpenEntry};

use crate::error::{Failure, LateFailure};
use crate::observe::access_log::{AccessLog, CutBy};
use crate::observe::log_throttle::LogThrottle;
use crate::observe::registry::{ConnectionEntry, Registration};
use crate::policy::quota::{AccountConnection, Framing, NotAdmitted};
use crate::resources::arrival::{Directed, TunnelArrival, reset};
use crate::resources::{AdmissionPermit, ManagedLeg};
use crate::runtime::RuntimeConfig;
use crate::transfer::budget::EarlyBytes;
use crate::transfer::end::End;
use crate::transfer::rejection::Rejection;
use crate::transfer::relay::{RelayEnd, Side, relay};
use ekiden_linux::host::sync::locked;
use ekiden_linux::sockets::apply::Inherited;
use ekiden_model::resources::idle_timeout::{Expired, Limits};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, Weak};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// A client's connection and all it needs.
pub(crate) struct Session {
    pub(crate) config: Arc<RuntimeConfig>,
    /// The configuration of the last reload, which a connection that lasts may follow.
    pub(crate) in_effect: watch::Receiver<Arc<RuntimeConfig>>,
    pub(crate) client: End,
    pub(crate) managed: ManagedLeg,
    pub(crate) address: SocketAddr,
    /// What its socket has from the one that listens.
    pub(crate) inherited: Inherited,
    /// The flow whose outer end this is, where the connection came out of a tunnel.
    pub(crate) arrival: Option<Arc<TunnelArrival>>,
    /// Where it goes, if the client does not speak with this relay.
    pub(crate) directed: Option<Directed>,
    pub(crate) slot: Mutex<AccountSlot>,
    /// The client's own connection, where this one is within its TLS.
    pub(crate) tls: Option<Weak<TcpStream>>,
    /// The name that the client asked for by that TLS (RFC 6066 §3).
    pub(crate) tls_name: Option<Arc<str>>,
    /// What carries this connection's bytes to the client, where that is TLS.
    pub(crate) framing: Option<Arc<Framing>>,
    pub(crate) hops: u8,
    pub(crate) log: Arc<AccessLog>,
    pub(crate) stopping: watch::Receiver<bool>,
    /// Dropped after all that the connection holds, so that the next one finds it free.
    pub(crate) permit: AdmissionPermit,
    /// Dropped last: a connection that holds something is in the status.
    pub(crate) registration: Registration,
}

/// Whether a client is served.
#[derive(Debug)]
pub(crate) enum Admission {
    Granted,
    /// It has its answer.
    Refused,
    /// The volume of this account is used up, and the client cannot log in to another; it may read about it.
    Spent(Arc<str>, NotAdmitted),
}

#[derive(Debug, Default)]
pub(crate) enum AccountSlot {
    #[default]
    Unrequested,
    /// Granted under the account of this number, or of none. Without a connection, nothing limits it.
    Granted { account: Option<i64>, share: Option<Arc<AccountConnection>> },
}

/// A tunnel that is open at both ends.
pub(crate) struct OpenTunnel {
    pub(crate) upstream: End,
    pub(crate) managed: ManagedLeg,
    pub(crate) early_up: EarlyBytes,
    pub(crate) early_down: EarlyBytes,
    pub(crate) limits: Limits,
    pub(crate) entry: LogEntry,
    /// Why it broke, where a peer knows.
    pub(crate) answer: Option<Arc<LateFailure>>,
}

impl Session {
    /// Identifies the client and takes its slot in its account; refuses the client where either fails.
    pub(crate) async fn admit(&self) -> Admission {
        let client_leg = Arc::clone(&self.config.client_leg);
        let outcomes = self.client.apply(&client_leg.leg.socket, self.inherited);
        self.registration.set_client_leg(self.client_stats(client_leg, outcomes));
        // with accounts, a client that no rule admits may still log in
        let identified = match self.identify() {
            Ok(None) if self.config.directory.is_none() => {
                self.decider(None).client().map_err(Failure::from)
            }
            // as one of no account: refused later, unless it logs in to another
            _ if self.can_log_in_later() && self.barred().is_some() => Ok(()),
            identified => identified.map(|account| self.set_account(account)),
        };
        if let Err(denied) = identified {
            self.refuse_by_rule(&denied).await;
            return Admission::Refused;
        }
        // a client that may still log in takes a slot when its account is known; a peer's flow cannot
        let known = self.config.directory.is_none()
            || self.registration.entry.account().is_some()
            || self.arrival.is_some();
        if known && let Err(not) = self.join_account() {
            // others do not speak with this relay
            let own_client = self.arrival.is_none() && self.directed.is_none();
            if own_client && let Some(account) = not.spent_account() {
                return Admission::Spent(account, not);
            }
            self.refuse_by_account(&not).await;
            return Admission::Refused;
        }
        Admission::Granted
    }

    async fn refuse_by_rule(&self, denied: &Failure) {
        self.count_and_log_refusal(&denied.text);
        if let Some(arrival) = &self.arrival {
            return arrival.deny(&denied.text);
        }
        if self.directed.is_some() {
            return reset(&self.client);
        }
        let name = &self.config.settings.name;
        self.send_and_close(&denied.response(name, false)).await;
    }

    pub(crate) async fn refuse_by_account(&self, not: &NotAdmitted) {
        let text = not.to_string();
        self.count_and_log_refusal(&text);
        if let Some(arrival) = &self.arrival {
            return arrival.deny(&text);
        }
        if self.directed.is_some() {
            return reset(&self.client);
        }
        let (status, retry_after) = not.status();
        let rejection = Rejection { status, text, retry_after };
        // silently where too many rejections are in progress
        if let Some(slot) = self.resources().rejections.slot() {
            slot.reject(&self.client, &self.config.settings.name, &rejection).await;
        }
    }

    /// The session for the same client's bytes within TLS, out of `client`. The first inner session
    /// takes over the account slot; later ones take their own.
    pub(crate) fn inner(
        &self,
        client: End,
        tls_name: Option<Arc<str>>,
        framing: &Arc<Framing>,
        permit: AdmissionPermit,
    ) -> Self {
        let managed = self.resources().manage(&client, &self.config.client_leg.leg, None);
        let registration = self.registration.inner();
        registration.entry.legs[0].store(managed.id, Relaxed);
        permit.assign_to(&registration.entry);
        let slot = self.hand_over_slot(&registration.entry);
        if let AccountSlot::Granted { share, .. } = &slot {
            framing.set_payer(share.as_deref());
        }
        Self {
            config: Arc::clone(&self.config),
            in_effect: self.in_effect.clone(),
            client,
            managed,
            address: self.address,
            inherited: Inherited::default(),
            arrival: None,
            directed: None,
            slot: Mutex::new(slot),
            tls: Some(self.client.downgrade()),
            tls_name,
            framing: Some(Arc::clone(framing)),
            hops: 0,
            log: Arc::clone(&self.log),
            stopping: self.stopping.clone(),
            permit,
            registration,
        }
    }

    fn hand_over_slot(&self, inner: &Arc<ConnectionEntry>) -> AccountSlot {
        let slot = std::mem::take(&mut *locked(&self.slot));
        if let AccountSlot::Granted { share: Some(share), .. } = &slot {
            share.set_entry(inner);
            inner.set_share(Some(share));
            self.registration.entry.set_share::<AccountConnection>(None);
        }
        slot
    }

    pub(crate) async fn relay(&self, tunnel: OpenTunnel) {
        // its leg is managed to the end
        let OpenTunnel { upstream, managed: _managed, early_up, early_down, limits, .. } = tunnel;
        let mut entry = OpenEntry { session: self, entry: tunnel.entry };
        let answer = tunnel.answer;
        let client = self.client.clone();
        let budget = &self.transfer();
        let (registration, share) = (&self.registration, self.share());
        let early = [early_up, early_down];
        // a peer reports only of what goes through its tunnel
        let upstream = (upstream, answer.is_some());
        let ended =
            relay(client, upstream, early, limits, registration, share.as_ref(), budget).await;
        if matches!(ended, RelayEnd::Reset(..)) && self.is_cut_off() {
            return;
        }
        let (cut_by, result) = match &ended {
            RelayEnd::Closed | RelayEnd::Reset(..) if registration.entry.evicted.load(Relaxed) => {
                (Some(CutBy::Relay), "silent, and closed to make room".to_owned())
            }
            RelayEnd::Closed => (None, "closed".to_owned()),
            RelayEnd::Reset(_, error) if error.kind() == io::ErrorKind::QuotaExceeded => {
                (Some(CutBy::Relay), error.to_string())
            }
            RelayEnd::Reset(Side::Client, error) => {
                self.trace_error("client_reset");
                (Some(CutBy::Client), format!("the client's connection broke: {error}"))
            }
            RelayEnd::Reset(Side::Upstream, error) => {
                self.trace_error("upstream_reset");
                // the client was answered before the peer had connected
                if let Some(refusal) = answer.as_ref().and_then(|answer| answer.refusal()) {
                    registration.count(&refusal);
                    static TOLD: LogThrottle = LogThrottle::new();
                    if TOLD.is_due() {
                        let to = entry.target.as_deref().unwrap_or("-");
                        tracing::warn!("{to}: {}; the client had been answered", refusal.text);
                    }
                }
                let reported = answer.and_then(|answer| answer.failure());
                let why = reported.map_or_else(|| error.to_string(), |failure| failure.text);
                (Some(CutBy::Destination), format!("the destination's connection broke: {why}"))
            }
            RelayEnd::Expired(Expired::Idle) => {
                (Some(CutBy::Relay), format!("silent for {}", limits.idle))
            }
            RelayEnd::Expired(Expired::HalfClosed) => {
                (Some(CutBy::Relay), format!("half-closed and silent for {}", limits.half_closed))
            }
        };
        entry.cut_by = cut_by;
        self.log(&mut entry, &result);
    }
}
