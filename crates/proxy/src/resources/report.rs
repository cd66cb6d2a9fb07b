//! The status of buffers, idle connections and admission.

use super::{ResourceSettings, Resources, State, leg};
use crate::observe::status::{
    BudgetStatus, BuffersStatus, EvictedStatus, GrantStatus, IdleStatus, LevelStatus,
    PressureStatus,
};
use crate::resources::arrival::JoinedPeers;
use crate::resources::pool::IdleConnection;
use ekiden_linux::host::clock;
use ekiden_linux::host::sync::locked;
use ekiden_model::resources::buffers::{DemandOrigin, Enough, Limit, Row, Scheme, Side};
use ekiden_model::resources::overload::{Resource, Shortage};
use ekiden_model::units::Bytes;
use std::sync::atomic::Ordering::Relaxed;

impl Resources {
    /// `counted`: with what each connection's buffers add up to.
    pub(crate) fn status(&self, counted: bool) -> (BuffersStatus, IdleStatus, PressureStatus) {
        let state = &mut *locked(&self.state);
        state.level();
        let mut pressure = state.pressure_status(&self.peers);
        pressure.memory_refused = self.memory_refused.times.load(Relaxed);
        pressure.memory_waiting = self.memory_waiting();
        let buffers = if counted { state.buffers_status() } else { state.refusals() };
        (buffers, state.idle_status(), pressure)
    }

    /// What is shortest of what newcomers need; `None` while there is enough of all.
    pub(crate) fn shortage(&self) -> Option<Shortage> {
        locked(&self.state).pressure.shortage()
    }

    /// The budget of heads, TLS and HTTP/2.
    pub(crate) fn memory_status(&self) -> BudgetStatus {
        let memory = &self.memory;
        BudgetStatus {
            name: "sessions".into(),
            used: memory.used(),
            peak: memory.peak(),
            limit: memory.limit(),
        }
    }

    /// The buffers of a leg: demand, grant, the kernel's answer, and reasons.
    pub(crate) fn explain(&self, leg: u64) -> Vec<GrantStatus> {
        let state = &*locked(&self.state);
        let rows = state.allocator.explain(leg);
        Side::ALL.into_iter().filter_map(|side| state.grant(leg, side, &rows)).collect()
    }
}

/// The reason in words. The partner's leg number means nothing outside.
fn why(why: &DemandOrigin) -> String {
    match why {
        DemandOrigin::Rate { limit: Limit::Partner(leg), .. } => {
            why.to_string().replace(&format!("connection {leg}"), "the other leg")
        }
        _ => why.to_string(),
    }
}

pub(crate) const fn scheme_name(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Conventional => "fixed",
        Scheme::Buffers => "equation",
        Scheme::Connections => "evict",
        Scheme::Shrinking => "shrink",
    }
}

impl ResourceSettings {
    /// Who decides the sizes.
    fn mode(&self, explicit: bool) -> &'static str {
        match (self.buffers.scheme, explicit) {
            (Scheme::Conventional, _) => "fixed",
            (_, true) => "shared out",
            (_, false) => "kernel",
        }
    }
}

impl State {
    fn buffers_status(&self) -> BuffersStatus {
        let report = self.allocator.snapshot();
        let counted = |bytes: Bytes| leg::counted(bytes).as_u64();
        let budget = self.settings.buffers.budget;
        let sides = |is: fn(&leg::Leg, Side) -> bool| {
            let legs = self.legs.values().flat_map(|leg| Side::ALL.map(|side| is(leg, side)));
            legs.filter(|is| *is).count() as u64
        };
        let explicit = self.allocator.config().enough == Enough::Demand || report.short;
        BuffersStatus {
            mode: self.settings.mode(explicit).to_owned(),
            granted: counted(report.granted),
            demand: counted(report.demand),
            shortage: budget.map_or(0, |_| counted(report.shortage)),
            queued: counted(report.queued),
            shared: report.buffers.len() as u64,
            explicit: sides(|leg, side| leg.given(side).is_some()),
            widened: sides(leg::Leg::is_widened),
            ..self.refusals()
        }
    }

    /// What the kernel refused, and nothing that takes a look at each connection.
    fn refusals(&self) -> BuffersStatus {
        let last = self.counts.last_refused;
        BuffersStatus {
            scheme: scheme_name(self.settings.buffers.scheme).to_owned(),
            budget: self.settings.buffers.budget.map(Bytes::as_u64),
            refused: self.counts.refused,
            refusal: last.map(|refused| self.refusal(refused.side, refused.given)),
            ..BuffersStatus::default()
        }
    }

    /// Why the kernel granted less, and how to fix it.
    fn refusal(&self, side: Side, given: u32) -> String {
        let name = match side {
            Side::Send => "net.core.wmem_max",
            Side::Receive => "net.core.rmem_max",
        };
        let most = Bytes::new(self.limits[side as usize].unprivileged);
        format!(
            "a {side} buffer was cut to {}: {name} allows {most} without CAP_NET_ADMIN",
            Bytes::new(given.into())
        )
    }

    fn idle_status(&self) -> IdleStatus {
        let (mut clients, mut tunnels, mut pooled) = (0, 0, 0);
        for (_, parked, _) in self.register.iter() {
            *match parked {
                IdleConnection::Client { .. } => &mut clients,
                IdleConnection::Tunnel { .. } => &mut tunnels,
                IdleConnection::Origin { .. } => &mut pooled,
            } += 1;
        }
        let oldest = self
            .register
            .head()
            .map(|(_, _, since)| clock::now().since(since).as_millis() as f64 / 1e3);
        IdleStatus {
            clients,
            tunnels,
            pooled,
            oldest_seconds: oldest,
            reused: self.counts.reused,
            expired: self.counts.expired,
        }
    }

    fn pressure_status(&self, peers: &JoinedPeers) -> PressureStatus {
        let level = |level: &ekiden_model::resources::overload::Level| LevelStatus {
            resource: level.resource.to_string(),
            used: level.used,
            limit: level.max,
            low: level.low,
        };
        let evicted = Resource::ALL.into_iter().filter_map(|resource| {
            let count = self.counts.evicted[resource as usize];
            (count > 0).then(|| EvictedStatus { resource: resource.to_string(), count })
        });
        let (admission, sources) = (self.admission.snapshot(), self.sources.snapshot());
        PressureStatus {
            levels: self.pressure.snapshot().iter().map(level).collect(),
            evicted: evicted.collect(),
            spoke: self.counts.spoke,
            waiting: admission.waiting as u64,
            waited: admission.waited,
            refused: self.counts.turned_away,
            refused_beside_idle: self.counts.turned_away_beside_idle,
            silent_evicted: self.counts.silent_evicted,
            unfinished_evicted: self.counts.unfinished_evicted,
            stalled_evicted: self.counts.stalled_evicted,
            memory_refused: 0,
            memory_waiting: 0,
            handshakes_waiting: 0,
            log_ins_held_back: 0,
            names_waiting: 0,
            share_refused: self.counts.share_refused,
            strangers: sources.strangers,
            logged_in: sources.logged_in,
            largest_source: sources.largest.map_or(0, |(_, held)| held),
            largest_source_name: sources.largest.map(|(source, _)| peers.name_of(source)),
        }
    }

    fn grant(&self, id: u64, side: Side, rows: &[Row]) -> Option<GrantStatus> {
        let leg = self.legs.get(id)?;
        let row = rows.iter().find(|row| row.side == side);
        let given = leg.given(side);
        let why = match row {
            None => "the leg's own profile sets this buffer".to_owned(),
            Some(row) => why(&row.why),
        };
        let how = match (given, leg.is_widened(side)) {
            _ if !leg.is_shared(side) => "set by the leg's profile",
            (_, true) => "widened beyond the kernel's tuning limit, which throttled it",
            (Some(_), _) => "granted from the budget",
            (None, _) => "tuned by the kernel",
        };
        let refused = given.filter(|(asked, given)| u64::from(*given) < *asked);
        Some(GrantStatus {
            side: side.to_string(),
            demand: row.map(|row| leg::counted(row.demand).as_u64()),
            grant: given.map(|(asked, _)| asked),
            given: given.map(|(_, given)| given.into()),
            how: how.to_owned(),
            why,
            refused: refused.map(|(_, given)| self.refusal(side, given)),
        })
    }
}
