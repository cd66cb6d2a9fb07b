//! A page out of all live connections: cheap questions to each, the kernel's figures for those on the page alone.

use super::slowest::{Around, Rivals, TunnelShares, slowest};
use super::{ConnectionEntry, Registry};
use crate::observe::status::{
    AccountStatus, ConnectionLine, ConnectionOrder, ConnectionPage, ConnectionQuery,
    ConnectionStatus, TunnelStatus,
};
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::units::Time;
use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The most connections on a page.
const MOST: usize = 200;

impl Registry {
    /// The connections that `query` asks for. `account` says what is known of one, by its name.
    pub(crate) fn page(
        &self,
        query: &ConnectionQuery,
        tunnels: &[TunnelStatus],
        account: impl Fn(&str) -> Option<AccountStatus>,
    ) -> ConnectionPage {
        let now = clock::now();
        let wanted = query.find.to_lowercase();
        let mut total = 0;
        let found = self.shown().inspect(|_| total += 1).filter(|entry| entry.mentions(&wanted));
        let mut found: Vec<_> =
            found.map(|entry| (Reverse(entry.weight(query.order, now)), entry.id, entry)).collect();
        let key = |row: &(Reverse<u64>, u64, Arc<ConnectionEntry>)| (row.0, row.1);
        let end = query.offset.saturating_add(query.count.min(MOST)).min(found.len());
        // what comes after the page need not be in order
        if end < found.len() {
            found.select_nth_unstable_by_key(end, key);
        }
        found[..end].sort_unstable_by_key(key);
        let page = found[..end].iter().skip(query.offset);
        // without a tunnel there is nothing to share
        let shares = match tunnels {
            [] => TunnelShares::new(std::iter::empty()),
            _ => self.tunnel_shares(),
        };
        let lines = page.map(|(.., entry)| entry.line(tunnels, &shares, &account)).collect();
        ConnectionPage { total, found: found.len(), lines }
    }
}

impl ConnectionEntry {
    /// Whether its account, its destination or its client has these letters, in lower case.
    fn mentions(&self, wanted: &str) -> bool {
        if wanted.is_empty() {
            return true;
        }
        let has = |text: &str| text.to_lowercase().contains(wanted);
        let share = locked(&self.share).as_ref().and_then(std::sync::Weak::upgrade);
        let detail = locked(&self.detail);
        has(&self.client.to_string())
            || detail.destination.as_deref().is_some_and(has)
            || detail.account.as_ref().is_some_and(|account| has(&account.name))
            || share.is_some_and(|share| has(share.account()))
    }

    /// What it is sorted by; the largest comes first.
    fn weight(&self, order: ConnectionOrder, now: Time) -> u64 {
        match order {
            ConnectionOrder::Rate => {
                let detail = locked(&self.detail);
                detail.rates.iter().map(|meter| meter.rate(now).as_bits_per_second()).sum()
            }
            ConnectionOrder::Bytes => {
                self.bytes_up.load(Relaxed).saturating_add(self.bytes_down.load(Relaxed))
            }
            ConnectionOrder::Age => now.since(self.since).as_micros(),
            ConnectionOrder::New => self.id,
        }
    }

    fn line(
        &self,
        tunnels: &[TunnelStatus],
        shares: &TunnelShares,
        account: impl Fn(&str) -> Option<AccountStatus>,
    ) -> ConnectionLine {
        let connection = self.status(tunnels);
        let carried = connection.legs.iter().filter_map(|leg| leg.tunnel.as_ref());
        let account = connection.account.as_deref().and_then(account);
        let around = Around {
            tunnel: carried.filter_map(|peer| tunnels.iter().find(|t| t.peer == *peer)).next(),
            rivals: Rivals::of(self.id, shares),
            account: account.as_ref(),
            lookup: None,
        };
        let slowest = slowest(&connection, &around);
        let ConnectionStatus { id, destination, client, account, class, .. } = connection;
        let ConnectionStatus { rate_down, rate_up, bytes_down, bytes_up, age_seconds, .. } =
            connection;
        ConnectionLine {
            id,
            destination,
            client,
            account,
            class,
            rate_down,
            rate_up,
            bytes_down,
            bytes_up,
            age_seconds,
            slowest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Nobody;
    use super::*;

    #[test]
    fn sorts_filters_and_pages() {
        let registry = Arc::new(Registry::new(Arc::new(Nobody)));
        let at = |port| ([192, 0, 2, 1], port).into();
        let held: Vec<_> = (1_001..1_021).map(|port| registry.enter(at(port))).collect();
        held[4].entry.bytes_down.store(500, Relaxed);
        held[7].entry.bytes_up.store(900, Relaxed);
        let ask = |find: &str, order, offset, count| {
            let query = ConnectionQuery { find: find.into(), order, offset, count };
            registry.page(&query, &[], |_| None)
        };
        let page = ask("", ConnectionOrder::Bytes, 0, 2);
        assert_eq!((page.total, page.found), (20, 20));
        let ids: Vec<_> = page.lines.iter().map(|line| line.id).collect();
        assert_eq!(ids, [held[7].entry.id, held[4].entry.id]);
        let page = ask("", ConnectionOrder::New, 18, 50);
        assert_eq!(page.lines.len(), 2);
        assert_eq!(page.lines[1].id, held[0].entry.id);
        let page = ask("192.0.2.1:1009", ConnectionOrder::Rate, 0, 50);
        assert_eq!((page.total, page.found), (20, 1));
        assert_eq!(page.lines[0].slowest, "nothing: it is reading");
        assert_eq!(ask("elsewhere", ConnectionOrder::Age, 0, 50).found, 0);
    }
}
