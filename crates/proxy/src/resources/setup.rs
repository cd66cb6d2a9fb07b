//! The settings in the terms of the model's components.

use super::leg;
use crate::settings::Settings;
use ekiden_model::resources::buffers::{Config, Enough, Policy, Scheme};
use ekiden_model::resources::idle::Config as IdleConfig;
use ekiden_model::resources::overload::{
    AdmissionConfig, Pressure, Resource, SourcesConfig, Watermarks,
};
use ekiden_model::units::{Bytes, Share, Span};

/// The smallest idle buffer, payload: the kernel's least is 4.5 KiB (SOCK_MIN_SNDBUF), 2,304 of it
/// payload.
const IDLE_LEAST: Bytes = Bytes::kib(3);

/// The part of the budget to divide: a 32nd is left for new legs, which get at least 6.75 KiB each.
const fn shared_out(budget: Bytes) -> Bytes {
    Bytes::new(budget.as_u64() - budget.as_u64() / 32)
}

/// Without a budget, the pool is practically unlimited.
const ENDLESS: Bytes = Bytes::new(1 << 60);

/// Connections are checked at each admission, so they need no slack: as many idle ones are kept as fit.
const WHEN_FULL: Watermarks = Watermarks { high: Share::ALL, low: Share::ALL };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ResourceSettings {
    pub(super) buffers: crate::settings::Buffers,
    pub(super) pressure: crate::settings::Pressure,
    pub(super) pool: crate::settings::Pool,
    pub(super) connections: u64,
    /// Whether there are accounts.
    pub(super) accounts: bool,
}

impl ResourceSettings {
    pub(super) fn of(settings: &Settings, accounts: bool) -> Self {
        Self {
            buffers: settings.buffers,
            pressure: settings.pressure,
            pool: settings.pool,
            connections: settings.budgets.connections.into(),
            accounts,
        }
    }

    pub(super) fn evicts(&self) -> bool {
        self.buffers.scheme >= Scheme::Connections
    }

    /// The allocator's; `automatic` leaves tuning to the kernel while memory suffices.
    pub(super) fn allocator(&self, automatic: bool) -> Config {
        let buffers = &self.buffers;
        let policy = match buffers.scheme {
            Scheme::Conventional => Policy::Fixed(leg::payload(buffers.initial)),
            _ => Policy::Shared,
        };
        Config {
            policy,
            enough: if automatic { Enough::Automatic } else { Enough::Demand },
            excess: buffers.excess,
            period: buffers.tick,
            initial: leg::payload(buffers.initial.min(buffers.ceiling)),
            ceiling: leg::payload(buffers.ceiling),
            floor_segments: buffers.floor.into(),
            idle_least: IDLE_LEAST,
            ..Config::new(buffers.budget.map_or(ENDLESS, |budget| leg::payload(shared_out(budget))))
        }
    }

    pub(super) fn idle(&self) -> IdleConfig {
        let shrinks = self.buffers.scheme == Scheme::Shrinking;
        // the pool has its own expiry
        IdleConfig { persist: Span::MAX, halve_every: shrinks.then_some(Span::from_secs(1)) }
    }

    pub(super) fn admission(&self) -> AdmissionConfig {
        AdmissionConfig {
            evict: self.evicts(),
            most_waiting: self.pressure.waiting as usize,
            patience: self.pressure.patience,
        }
    }

    pub(super) fn sources(&self) -> SourcesConfig {
        let kept = self.pressure.accounts.of(self.connections);
        let strangers = if self.accounts { self.connections - kept } else { u64::MAX };
        SourcesConfig { strangers, ..SourcesConfig::default() }
    }

    pub(super) fn pressure(&self) -> Pressure {
        let marks = Watermarks { high: self.pressure.high, low: self.pressure.low };
        let mut pressure = Pressure::new(marks);
        pressure.set_watermarks(Resource::Connections, WHEN_FULL);
        pressure
    }
}
