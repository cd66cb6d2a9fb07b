//! What is asked of it all by the settings, in the terms of the values that decide.

use super::leg;
use crate::settings::Settings;
use ekiden_model::buffers::{Config, Enough, Policy, Scheme};
use ekiden_model::idle::Config as IdleConfig;
use ekiden_model::pressure::{AdmissionConfig, Pressure, Resource, Watermarks};
use ekiden_model::units::{Bytes, Share, Span};

/// An idle buffer's least size in payload bytes: the kernel gives a send buffer no less than 4.5 KiB
/// (SOCK_MIN_SNDBUF), 2,304 of them payload.
const IDLE_LEAST: Bytes = Bytes::kib(3);

/// What is shared out of a budget: the kernel gives no leg less than 6.75 KiB, and a 32nd part is for those
/// who come between two decisions and have no more.
const fn shared_out(budget: Bytes) -> Bytes {
    Bytes::new(budget.as_u64() - budget.as_u64() / 32)
}

/// With room for all the pool is as good as endless.
const ENDLESS: Bytes = Bytes::new(1 << 60);

/// Connections are counted one by one, so no slack is needed: as many idle ones are kept as fit.
const WHEN_FULL: Watermarks = Watermarks { high: Share::ALL, low: Share::ALL };

/// What is asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setup {
    pub(super) buffers: crate::settings::Buffers,
    pub(super) pressure: crate::settings::Pressure,
    pub(super) pool: crate::settings::Pool,
    pub(super) connections: u64,
}

impl Setup {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            buffers: settings.buffers,
            pressure: settings.pressure,
            pool: settings.pool,
            connections: settings.budgets.connections.into(),
        }
    }

    pub(super) fn evicts(&self) -> bool {
        self.buffers.scheme >= Scheme::Connections
    }

    /// Of the allocator; `automatic` says whether the kernel is left to tune while there is enough.
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
        // who keeps an idle connection keeps its time as well
        IdleConfig { persist: Span::MAX, halve_every: shrinks.then_some(Span::from_secs(1)) }
    }

    pub(super) fn admission(&self) -> AdmissionConfig {
        AdmissionConfig {
            evict: self.evicts(),
            most_waiting: self.pressure.waiting as usize,
            patience: self.pressure.patience,
        }
    }

    pub(super) fn pressure(&self) -> Pressure {
        let marks = Watermarks { high: self.pressure.high, low: self.pressure.low };
        let mut pressure = Pressure::new(marks);
        pressure.set_watermarks(Resource::Connections, WHEN_FULL);
        pressure
    }
}
