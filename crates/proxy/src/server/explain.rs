//! Why a connection, or all of an account, is as fast as it is.

use super::{Handle, Inner};
use crate::observe::registry::{Around, Rivals};
use crate::observe::status::{
    AccountExplanation, AccountStatus, ConnectionStatus, Explanation, SharingStatus, TunnelStatus,
};

/// Of an account with many connections, so many are explained.
const EXPLAINED: usize = 20;

/// One look at all that connections share.
struct Facts {
    tunnels: Vec<TunnelStatus>,
    connections: Vec<ConnectionStatus>,
    sharing: Option<SharingStatus>,
}

impl Facts {
    fn account(&self, name: &str) -> Option<&AccountStatus> {
        self.sharing.as_ref()?.accounts.iter().find(|account| account.name == name)
    }
}

impl Handle {
    /// Everything about one live connection, by its number; `None` when there is no such connection.
    pub fn explain(&self, connection: u64) -> Option<Explanation> {
        let facts = self.inner.facts();
        let found = facts.connections.iter().find(|found| found.id == connection);
        // one that is within this one stands for it in the list
        let outer = || Some(self.inner.registry.find(connection)?.status(&facts.tunnels));
        let status = found.cloned().or_else(outer)?;
        self.inner.explain(status, &facts)
    }

    /// The connections of an account, or of the peer of that name: what holds each back. `None`: there is neither.
    pub fn explain_account(&self, name: &str) -> Option<AccountExplanation> {
        let facts = self.inner.facts();
        let config = self.inner.config();
        let is_peer = facts.tunnels.iter().any(|tunnel| tunnel.peer == name);
        let standing = config.directory.as_ref().and_then(|directory| directory.standing(name));
        let account = facts.account(name).cloned();
        if !is_peer && standing.is_none() && account.is_none() {
            return None;
        }
        let of = |found: &&ConnectionStatus| {
            found.account.as_deref() == Some(name) || found.peer() == Some(name)
        };
        let mut of: Vec<&ConnectionStatus> = facts.connections.iter().filter(of).collect();
        let moving = |found: &&ConnectionStatus| found.rate_up + found.rate_down;
        // those that wait for an answer before those between two requests
        let waits = |found: &&ConnectionStatus| found.state != "idle";
        of.sort_by_key(|found| std::cmp::Reverse((waits(found), moving(found))));
        let slow = config.resolver.lookups().slow();
        Some(AccountExplanation {
            name: name.to_owned(),
            account,
            barred: standing.and_then(Result::err),
            connections: of.len() as u64,
            slow_lookup: slow.map(|(name, took)| format!("{name} took {took}")),
            explained: of
                .into_iter()
                .take(EXPLAINED)
                .filter_map(|found| self.inner.explain(found.clone(), &facts))
                .collect(),
        })
    }
}

impl Inner {
    fn facts(&self) -> Facts {
        let tunnels = self.tunnels();
        let connections = self.registry.status(&tunnels);
        Facts { tunnels, connections, sharing: self.shared.quotas.status() }
    }

    fn explain(&self, connection: ConnectionStatus, facts: &Facts) -> Option<Explanation> {
        let entry = self.registry.find(connection.id)?;
        let peer = connection.legs.iter().find_map(|leg| leg.tunnel.as_ref());
        let host = connection.destination.as_deref().and_then(|to| to.rsplit_once(':'));
        let config = self.config();
        let around = Around {
            tunnel: facts.tunnels.iter().find(|tunnel| Some(&tunnel.peer) == peer),
            rivals: Rivals::of(&connection, &facts.connections),
            account: connection.account.as_ref().and_then(|name| facts.account(name)),
            lookup: host.and_then(|(host, _)| config.resolver.lookups().waits(host)),
        };
        Some(entry.explain(connection, &around, |leg| self.shared.resources.explain(leg)))
    }
}
