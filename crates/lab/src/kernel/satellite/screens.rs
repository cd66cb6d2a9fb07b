//! A hundred thin clients: the study's connections as real TCP, and the simulator's on the same traces.

use super::changes::Phase;
use super::scene::Scene;
use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use crate::load::screens::Scripts;
use crate::sim::thin_client;
use ekiden_emulator::topology::TopologyPlan;
use ekiden_model::workload::flows::Kind;
use ekiden_model::workload::thin_client::{Trace, Write};
use ekiden_record::histogram::Histogram;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// All connections stand before the first write is due.
const OPENING: Duration = Duration::from_secs(3);
/// What is written at the end has so long to arrive.
pub(crate) const AFTER: Duration = Duration::from_secs(20);
/// A key whose echo takes longer is felt to hang.
const SLOW: Duration = Duration::from_millis(300);

/// The scenario of the study that stands beside the kernel's runs, if a cell is the simulator's.
pub(crate) fn scenario(cell: &Cell) -> Option<&'static str> {
    match cell.text("way") {
        Ok("simulated") => Some("RACK-TLP"),
        Ok("simulated-held") => Some("held rate"),
        _ => None,
    }
}

/// The same traces in the simulator.
///
/// # Errors
/// The cell lacks a value.
pub(crate) fn simulate(cell: &Cell, scenario: &str, seed: u64) -> Result<Outcome, EngineError> {
    let mut cell = cell.clone();
    cell.values.insert("scenario".to_owned(), scenario.to_owned());
    // the time line is for the study's own runs
    thin_client::run(&cell, 1, seed)
}

/// A cell's run on the kernel.
///
/// # Errors
/// The cell lacks a value, something did not start or broke, or a byte was wrong.
pub(super) fn run(
    cell: &Cell,
    seed: u64,
    plan: &TopologyPlan,
    links: [Vec<Phase>; 2],
    ekiden: &Path,
) -> Result<Outcome, EngineError> {
    let (workload, traces) = thin_client::traces(cell, seed)?;
    let writes: Arc<Vec<Vec<Write>>> =
        Arc::new(traces.into_iter().map(|Trace { writes, .. }| writes).collect());
    let scene = Scene::warm(cell, plan, links, ekiden)?;
    let begin = Instant::now() + OPENING;
    let scripts = Scripts { writes: Arc::clone(&writes), begin: Some(begin) };
    let server = scene.serve_scripts(scripts)?;
    let ask = scene.ask(begin + Duration::from_nanos(workload.duration.as_nanos()) + AFTER)?;
    let before = scene.timeouts()?;
    let watch = |nth: usize| {
        let all = Arc::clone(&writes);
        scene.start(move || ask.screen(nth, all.get(nth).map_or(&[], Vec::as_slice), begin))
    };
    let threads: Vec<_> = (0..writes.len()).map(watch).collect::<Result<_, _>>()?;
    let mut delays = Delays::default();
    for (thread, writes) in threads.into_iter().zip(writes.iter()) {
        delays.add(writes, &scene.ended("a screen", thread)?);
    }
    let timeouts = scene.timeouts()?.saturating_sub(before);
    let mut outcome = delays.outcome();
    outcome.value = timeouts as f64 / writes.len().max(1) as f64;
    scene.finish(server, &mut outcome)?;
    Ok(outcome)
}

/// How long writes took, by kind.
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
            if write.kind == Kind::Interactive {
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
        for (kind, name) in [(Kind::Interactive, "interactive"), (Kind::Bulk, "bulk")] {
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
    fn what_came_is_told_by_kind_and_what_did_not_is_counted() {
        let write = |kind| Write { at: Time::ZERO, bytes: 100, kind, flow: 0 };
        let writes = [Kind::Interactive, Kind::Interactive, Kind::Bulk, Kind::Bulk].map(write);
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
