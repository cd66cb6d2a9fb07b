//! Counts entries that the disk did not take: foyer drops them silently when its queues are full,
//! except in its metrics.

use mixtrics::metrics::{
    BoxedCounter, BoxedCounterVec, BoxedGaugeVec, BoxedHistogramVec, CounterOps, CounterVecOps,
    RegistryOps,
};
use mixtrics::registry::noop::NoopMetricsRegistry;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// foyer's operation counter, and its labels for dropped entries.
const DOINGS: &str = "foyer_storage_inner_op_total";
const DROPPED: [&str; 2] = ["buffer_overflow", "channel_overflow"];

type Word = Cow<'static, str>;

#[derive(Debug, Clone, Default)]
pub(super) struct DroppedWrites(Arc<AtomicU64>);

impl DroppedWrites {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl CounterOps for DroppedWrites {
    fn increase(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
}

impl CounterVecOps for DroppedWrites {
    fn counter(&self, labels: &[Word]) -> BoxedCounter {
        match labels.last() {
            Some(doing) if DROPPED.contains(&doing.as_ref()) => Box::new(self.clone()),
            _ => Box::new(NoopMetricsRegistry),
        }
    }
}

impl RegistryOps for DroppedWrites {
    fn register_counter_vec(
        &self,
        name: Word,
        about: Word,
        labels: &'static [&'static str],
    ) -> BoxedCounterVec {
        if name == DOINGS {
            Box::new(self.clone())
        } else {
            NoopMetricsRegistry.register_counter_vec(name, about, labels)
        }
    }

    fn register_gauge_vec(
        &self,
        name: Word,
        about: Word,
        labels: &'static [&'static str],
    ) -> BoxedGaugeVec {
        NoopMetricsRegistry.register_gauge_vec(name, about, labels)
    }

    fn register_histogram_vec(
        &self,
        name: Word,
        about: Word,
        labels: &'static [&'static str],
    ) -> BoxedHistogramVec {
        NoopMetricsRegistry.register_histogram_vec(name, about, labels)
    }

    fn register_histogram_vec_with_buckets(
        &self,
        name: Word,
        about: Word,
        labels: &'static [&'static str],
        buckets: Vec<f64>,
    ) -> BoxedHistogramVec {
        NoopMetricsRegistry.register_histogram_vec_with_buckets(name, about, labels, buckets)
    }
}
