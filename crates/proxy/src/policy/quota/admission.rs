//! Admission of connections to accounts.

use super::state::ConnectionSlot;
use super::{AccountConnection, NotAdmitted, Quotas, UNCLAIMED};
use crate::observe::registry::ConnectionEntry;
use crate::settings::{Limits, Unclaimed};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::quota::{Config, Refused};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Quotas {
    /// Admits a connection by its client's address or peer. `None`: no account claims it, nothing
    /// limits it.
    pub(crate) fn admit_by_origin(
        self: &Arc<Self>,
        address: IpAddr,
        peer: Option<&str>,
        entry: Option<&Arc<ConnectionEntry>>,
    ) -> Result<Option<Arc<AccountConnection>>, NotAdmitted> {
        if !self.wanted.load(Relaxed) {
            return Ok(None);
        }
        let claimed = {
            let state = &mut *locked(&self.state);
            match state.claims.of_client(address, peer) {
                Some(name) => Arc::clone(name),
                None if state.unclaimed == Unclaimed::Refuse => {
                    state.refused += 1;
                    return Err(NotAdmitted::Unclaimed);
                }
                None if state.config == Config::default() => return Ok(None),
                None => {
                    let found = state.accounts.get(UNCLAIMED);
                    match found.is_some_and(|one| one.account.is_some()) {
                        true => UNCLAIMED.into(),
                        false => state.set(clock::now(), UNCLAIMED, Limits::default()),
                    }
                }
            }
        };
        match self.admit(&claimed, entry) {
            Ok(connection) => Ok(Some(connection)),
            Err(refused) => Err(NotAdmitted::Account(claimed, refused)),
        }
    }

    /// Admits a connection of a named account; one that is not known yet is unlimited, and counted.
    pub(crate) fn admit_known(
        self: &Arc<Self>,
        name: &str,
        entry: Option<&Arc<ConnectionEntry>>,
    ) -> Result<Arc<AccountConnection>, NotAdmitted> {
        self.change(|state, now| {
            // a removed account stays removed
            if !state.accounts.contains_key(name) {
                state.set(now, name, Limits::default());
            }
        });
        self.admit(name, entry).map_err(|why| NotAdmitted::Account(name.into(), why))
    }

    /// Why an account gets no connection now, if its quota is used up and it is cut. Counts no refusal.
    pub(crate) fn cut(&self, name: &str) -> Option<NotAdmitted> {
        let state = locked(&self.state);
        let (name, found) = state.accounts.get_key_value(name)?;
        let until = state.quota.cut_until(found.account?)?;
        Some(NotAdmitted::Account(Arc::clone(name), Refused::Spent(until)))
    }

    fn admit(
        self: &Arc<Self>,
        name: &str,
        entry: Option<&Arc<ConnectionEntry>>,
    ) -> Result<Arc<AccountConnection>, Refused> {
        let state = &mut *locked(&self.state);
        let admitted = state
            .accounts
            .get_key_value(name)
            .and_then(|(name, found)| Some((name, found, found.account?)))
            .ok_or(Refused::Gone)
            .and_then(|(name, found, account)| {
                let flow = state.quota.admit(clock::now(), account)?;
                Ok((flow, Arc::clone(name), Arc::clone(&found.used)))
            });
        let (flow, name, used) = admitted.inspect_err(|_| state.refused += 1)?;
        let entry = entry.map(Arc::downgrade);
        state.slots.insert(flow, ConnectionSlot { entry, wakers: [const { None }; 2] });
        Ok(Arc::new(AccountConnection::new(self, flow, name, used)))
    }
}
