//! A hundred thin clients: the study's connections as real TCP, and the simulator's on the same traces.

use super::delays::{AFTER, Delays};
use crate::long_link::testbed::Testbed;
use crate::thin_client::sim;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::study::KernelRun;
use ekiden_model::network::workload::thin_client::{Trace, Write};
use ekiden_testbed::load::thin_clients::Scripts;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// All connections stand before the first write is due.
const OPENING: Duration = Duration::from_secs(3);
pub(crate) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    let (cell, seed) = (run.cell, run.seed);
    if let Some(scenario) = sim::scenario(cell) {
        return sim::simulate(cell, scenario, seed);
    }
    let (workload, traces) = sim::traces(cell, seed)?;
    let writes: Arc<Vec<Vec<Write>>> =
        Arc::new(traces.into_iter().map(|Trace { writes, .. }| writes).collect());
    let scene = Testbed::warm(run)?;
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
