//! Delays of writes, by kind, as both engines report them.

use ekiden_lab::engine::Outcome;
use ekiden_model::network::workload::flows::FlowKind;
use ekiden_model::network::workload::thin_client::Write;
use ekiden_record::histogram::Histogram;
use std::time::Duration;

/// What is written at the end has so long to arrive.
pub(crate) const AFTER: Duration = Duration::from_secs(20);
/// A key whose echo takes longer is felt to hang.
const SLOW: Duration = Duration::from_millis(300);

#[derive(Debug, Default)]
pub(crate) struct Delays {
    kinds: [Histogram; 2],
    interactive: u64,
    slow: u64,
    never: u64,
}

impl Delays {
    /// One screen's, in order; those at the end that have no time never came.
    pub(crate) fn add(&mut self, writes: &[Write], took: &[Duration]) {
        self.never += (writes.len() - took.len().min(writes.len())) as u64;
        for (write, took) in writes.iter().zip(took) {
            if let Some(histogram) = self.kinds.get_mut(write.kind as usize) {
                histogram.add(took.as_nanos() as u64);
            }
            if write.kind == FlowKind::Interactive {
                self.interactive += 1;
                self.slow += u64::from(*took >= SLOW);
            }
        }
    }

    /// Under the names that the simulator's have.
    pub(crate) fn outcome(&self) -> Outcome {
        let mut outcome = Outcome::default();
        let mut put = |name: String, value: f64| {
            outcome.figures.insert(name, value);
        };
        put("slow_interactive".to_owned(), self.slow as f64 / self.interactive.max(1) as f64);
        put("never_came".to_owned(), self.never as f64);
        for (kind, name) in [(FlowKind::Interactive, "interactive"), (FlowKind::Bulk, "bulk")] {
            let histogram = &self.kinds[kind as usize];
            let Some(summary) = histogram.summary() else { continue };
            for (figure, value) in [
                ("mean", summary.mean),
                ("p999", summary.p999 as f64),
                ("most", summary.most as f64),
            ] {
                put(format!("{name}_end-to-end_ms_{figure}"), value / 1e6);
            }
            let counts = histogram.slots().map(|(floor, count)| [floor, count]).collect();
            outcome.histograms.insert(format!("{name} end-to-end"), counts);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::units::Time;

    #[test]
    fn reports_delays_by_kind_and_counts_missing_writes() {
        let write = |kind| Write { at: Time::ZERO, bytes: 100, kind, flow: 0 };
        let writes = [FlowKind::Interactive, FlowKind::Interactive, FlowKind::Bulk, FlowKind::Bulk]
            .map(write);
        let mut delays = Delays::default();
        delays.add(&writes, &[23, 400, 90].map(Duration::from_millis));
        let outcome = delays.outcome();
        let figure = |name: &str| outcome.figures.get(name).copied();
        assert_eq!(figure("slow_interactive"), Some(0.5));
        assert_eq!(figure("never_came"), Some(1.0));
        assert_eq!(figure("interactive_end-to-end_ms_most"), Some(400.0));
        assert_eq!(figure("bulk_end-to-end_ms_mean"), Some(90.0));
        assert_eq!(outcome.histograms.len(), 2);
    }
}
