//! What the disk did not take: foyer drops entries silently where more come than it can write, and says so
//! in its metrics alone.

use mixtrics::metrics::{
    BoxedCounter, BoxedCounterVec, BoxedGaugeVec, BoxedHistogramVec, CounterOps, CounterVecOps,
    RegistryOps,
};
use mixtrics::registry::noop::NoopMetricsRegistry;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// foyer's counters of its own doings, and those of them that count here.
const DOINGS: &str = "foyer_storage_inner_op_total";
const DROPPED: [&str; 2] = ["buffer_overflow", "channel_overflow"];

type Word = Cow<'static, str>;

/// How many entries were not written. Its clones count together.
#[derive(Debug, Clone, Default)]
pub(super) struct Lost(Arc<AtomicU64>);

impl Lost {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl CounterOps for Lost {
    fn increase(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
}

impl CounterVecOps for Lost {
    fn counter(&self, labels: &[Word]) -> BoxedCounter {
        match labels.last() {
            Some(doing) if DROPPED.contains(&doing.as_ref()) => Box::new(self.clone()),
            _ => Box::new(NoopMetricsRegistry),
        }
    }
}

impl RegistryOps for Lost {
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
