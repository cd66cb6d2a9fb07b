//! The running relay as its operator sees it.

use super::{Handle, Inner};
use crate::inbound::tls::handshakes_waiting;
use crate::observe::access_log::PendingLines;
use crate::observe::status::{
    BudgetStatus, ConnectionPage, ConnectionQuery, Measured, MemoryStatus, RefusedReload, Status,
    Summary, Totals, TunnelStatus,
};
use crate::outbound::tunnel::{Tunnels, measure};
use crate::policy::quota::Quotas;
use crate::runtime::certificate::Certificate;
use crate::settings::Settings;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Handle {
    /// The current status.
    pub fn status(&self) -> Status {
        self.inner.status()
    }

    /// The current status without connections, for which the kernel is not asked: a millisecond where they are thousands.
    pub fn overview(&self) -> Status {
        self.inner.overview(self.inner.tunnels(), None).status
    }

    /// What changes from second to second, at a cost that does not grow with connections, and little with accounts.
    pub fn summary(&self, busiest: usize) -> Summary {
        self.inner.overview(self.inner.tunnels(), Some(busiest))
    }

    /// Whether it was told to stop: live connections end, and new ones are rejected.
    pub fn is_stopping(&self) -> bool {
        *self.inner.stopping.borrow()
    }

    /// The settings in effect.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.inner.config().settings)
    }

    /// Some of the live connections. The kernel is asked about those alone.
    pub fn connections(&self, query: &ConnectionQuery) -> ConnectionPage {
        let quotas = &self.inner.shared.quotas;
        self.inner.registry.page(query, &self.inner.tunnels(), |name| quotas.account(name))
    }

    /// Measures the tunnel to a peer for 1 to 30 seconds in each direction, beside other traffic.
    pub async fn measure(&self, peer: &str, seconds: u16) -> Measured {
        let mut measured = Measured { peer: peer.to_owned(), ..Measured::default() };
        let shared = &self.inner.shared;
        let Some(tunnels) = shared.tunnels() else {
            measured.error = Some("this relay has no tunnels".to_owned());
            return measured;
        };
        let seconds = seconds.clamp(1, measure::LONGEST);
        for (up, rate) in [(false, &mut measured.received), (true, &mut measured.sent)] {
            match tunnels.measure(peer, (seconds, u64::MAX), up, None).await {
                Ok(found) => *rate = Some(found),
                Err(failure) => measured.error = Some(failure.text),
            }
            if measured.error.is_some() {
                break;
            }
        }
        measured.tunnel = tunnels.status().into_iter().find(|tunnel| tunnel.peer == peer);
        measured
    }

    /// The accounts' limits and usage.
    pub fn accounts(&self) -> Arc<Quotas> {
        Arc::clone(&self.inner.shared.quotas)
    }

    /// What the access log still has to take: to be waited for at the end, or before its file is read.
    pub fn pending_lines(&self) -> PendingLines {
        self.inner.log.pending_lines()
    }

    /// Resets every live connection, and returns how many there were.
    pub fn cut(&self) -> u64 {
        self.inner.registry.cut_all() as u64
    }
}

impl Inner {
    pub(super) fn tunnels(&self) -> Vec<TunnelStatus> {
        self.shared.tunnels().map_or_else(Vec::new, Tunnels::status)
    }

    pub(super) fn status(&self) -> Status {
        let tunnels = self.tunnels();
        let connections = self.registry.status(&tunnels);
        Status { connections, ..self.overview(tunnels, None).status }
    }

    /// All but the connections. With so many accounts, the busiest, and without counts over all buffers; or with all.
    fn overview(&self, tunnels: Vec<TunnelStatus>, busiest: Option<usize>) -> Summary {
        let config = self.config();
        let shared = &self.shared;
        let totals = &self.registry.totals;
        let connections = BudgetStatus {
            name: "connections".into(),
            used: self.registry.len() as u64,
            peak: self.peak.load(Relaxed),
            limit: self.limit,
        };
        let [pipes, memory] = shared.transfer.status();
        let (buffers, idle, mut pressure) = shared.resources.status(busiest.is_none());
        pressure.handshakes_waiting = handshakes_waiting();
        pressure.log_ins_held_back = shared.log_ins_held_back.now();
        pressure.names_waiting = shared.name_places.waiting() as u64;
        let (sharing, accounts) = shared.quotas.status(busiest).unzip();
        let status = Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: config.settings.name.clone(),
            pid: std::process::id(),
            uptime_seconds: clock::now().since(self.started).as_millis() as f64 / 1e3,
            stopping: *self.stopping.borrow(),
            listen: config.settings.listen.clone(),
            reloads: self.reloads.load(Relaxed),
            reloads_refused: self.reloads_refused.load(Relaxed),
            refused_reload: locked(&self.refused_reload).as_ref().map(|(since, why)| {
                let for_seconds = clock::now().since(*since).as_millis() as f64 / 1e3;
                RefusedReload { for_seconds, errors: why.clone() }
            }),
            totals: Totals {
                accepted: totals.accepted.load(Relaxed),
                refused: totals.refused.load(Relaxed),
                failed: totals.failed.load(Relaxed),
                requests: totals.requests.load(Relaxed),
                bytes_up: totals.bytes_up.load(Relaxed),
                bytes_down: totals.bytes_down.load(Relaxed),
            },
            budgets: vec![connections, pipes, memory, shared.resources.memory_status()],
            memory: locked(&self.memory)
                .map(|now| MemoryStatus { resident: now.resident, in_use: now.in_use }),
            buffers,
            idle,
            pressure,
            cache: shared.cache.as_ref().map(|cache| cache.status()),
            sharing,
            accounts: config.directory.as_ref().map(|directory| directory.status()),
            acme: shared.acme.status(),
            certificates: config.certificate.iter().filter_map(Certificate::status).collect(),
            operators: shared.alerts.operators(),
            alerts: shared.alerts.status(),
            traces: shared.traces.status(),
            udp: shared.udp.status(config.settings.udp.associations.into()),
            gateway: self.gateway_status(),
            wireguard: self.wireguard_status(),
            dns: self.dns_status(&config),
            upstreams: config.upstream_status(&tunnels),
            tunnels,
            legs: config.leg_status(),
            connections: Vec::new(),
        };
        Summary { status, accounts: accounts.unwrap_or(0) }
    }
}
