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

/// What figures and histograms call the kinds of writes.
pub(crate) const KINDS: [(FlowKind, &str); 2] =
    [(FlowKind::Interactive, "interactive"), (FlowKind::Bulk, "bulk")];

/// Delays of a kind over a part of the way: figures in ms, and the histogram.
pub(crate) fn tell(histogram: &Histogram, kind: &str, part: &str, outcome: &mut Outcome) {
    if let Some(summary) = histogram.summary() {
        for (figure, value) in
            [("mean", summary.mean), ("p999", summary.p999 as f64), ("most", summary.most as f64)]
        {
            outcome.figures.insert(format!("{kind}_{part}_ms_{figure}"), value / 1e6);
        }
    }
    let counts = histogram.slots().map(|(floor, count)| [floor, count]).collect();
    outcome.histograms.insert(format!("{kind} {part}"), counts);
}

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
        outcome.add_figures([
            ("slow_interactive", self.slow as f64 / self.interactive.max(1) as f64),
            ("never_came", self.never as f64),
        ]);
        for (kind, name) in KINDS {
            let histogram = &self.kinds[kind as usize];
            if histogram.summary().is_some() {
                tell(histogram, name, "end-to-end", &mut outcome);
            }
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
