//! Why a connection, or all of an account, is as fast as it is.

use super::{Handle, Inner};
use crate::observe::registry::{Around, ConnectionEntry, Rivals, TunnelShares};
use crate::observe::status::{
    AccountExplanation, ConnectionStatus, Explanation, TunnelStatus, WireguardPeerStatus,
};
use std::sync::Arc;

/// Of an account with many connections, so many are explained.
const EXPLAINED: usize = 20;

impl Handle {
    /// Everything about one live connection, by its number; `None` when there is no such connection. The kernel is asked
    /// about that one alone.
    pub fn explain(&self, connection: u64) -> Option<Explanation> {
        let tunnels = self.inner.tunnels();
        let entry = self.inner.registry.find(connection)?;
        let shares = self.inner.registry.tunnel_shares();
        Some(self.inner.explain(&entry, entry.status(&tunnels), &tunnels, &shares))
    }

    /// The connections of an account, or those that a peer's tunnel carries: what holds each back. `None`: there is
    /// neither of that name.
    pub fn explain_account(&self, name: &str) -> Option<AccountExplanation> {
        let inner = &self.inner;
        let (tunnels, config) = (inner.tunnels(), inner.config());
        let tunnel = tunnels.iter().find(|tunnel| tunnel.peer == name).cloned();
        let standing = config.directory.as_ref().and_then(|directory| directory.standing(name));
        let account = inner.shared.quotas.account(name);
        if tunnel.is_none() && standing.is_none() && account.is_none() {
            return None;
        }
        let is_meant = |entry: &Arc<ConnectionEntry>| {
            entry.account_name().as_deref() == Some(name) || entry.is_carried_by(name)
        };
        let found = inner.registry.shown().filter(is_meant);
        let mut of: Vec<_> = found.map(|entry| (entry.status(&tunnels), entry)).collect();
        let moving = |found: &ConnectionStatus| found.rate_up + found.rate_down;
        // those that wait for an answer before those between two requests
        let waits = |found: &ConnectionStatus| found.state != "idle";
        of.sort_by_key(|(found, _)| std::cmp::Reverse((waits(found), moving(found))));
        let slow = config.resolver.lookups().slow();
        let shares = inner.registry.tunnel_shares();
        Some(AccountExplanation {
            name: name.to_owned(),
            account,
            tunnel,
            wireguard: inner.wireguard_devices(name),
            barred: standing.and_then(Result::err),
            connections: of.len() as u64,
            slow_lookup: slow.map(|(name, took)| format!("{name} took {took}")),
            explained: of
                .into_iter()
                .take(EXPLAINED)
                .map(|(found, entry)| inner.explain(&entry, found, &tunnels, &shares))
                .collect(),
        })
    }
}

impl Inner {
    fn wireguard_devices(&self, account: &str) -> Vec<WireguardPeerStatus> {
        let peers = self.wireguard_status().map_or_else(Vec::new, |door| door.peers);
        peers.into_iter().filter(|peer| peer.account == account).collect()
    }

    fn explain(
        &self,
        entry: &ConnectionEntry,
        connection: ConnectionStatus,
        tunnels: &[TunnelStatus],
        shares: &TunnelShares,
    ) -> Explanation {
        let peer = connection.legs.iter().find_map(|leg| leg.tunnel.as_ref());
        let host = connection.destination.as_deref().and_then(|to| to.rsplit_once(':'));
        let config = self.config();
        let account = connection.account.as_ref().and_then(|name| self.shared.quotas.account(name));
        let around = Around {
            tunnel: tunnels.iter().find(|tunnel| Some(&tunnel.peer) == peer),
            rivals: Rivals::of(connection.id, shares),
            account: account.as_ref(),
            lookup: host.and_then(|(host, _)| config.resolver.lookups().waits(host)),
        };
        entry.explain(connection, &around, |leg| self.shared.resources.explain(leg))
    }
}
