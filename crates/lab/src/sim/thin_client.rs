//! Thin clients over a bottleneck: the cells of seed 0's study.
//!
//! ```text
//! server i ── 100 Mbit/s, 1 ms ── router ══ 10 Mbit/s, 20 ms ══ router ── 100 Mbit/s, 1 ms ── client i
//! ```

mod figures;
mod scenario;
mod timelines;

use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use ekiden_model::rng::Rng;
use ekiden_model::units::{Span, Time};
use ekiden_model::workload::flows::Summary;
use ekiden_model::workload::thin_client::{ThinClient, Trace, generate};
use ekiden_simulator::connection::ConnectionConfig;
use ekiden_simulator::dumbbell::Dumbbell;
use ekiden_simulator::flow::{Scripted, Source};
use ekiden_simulator::random::Substreams;
use ekiden_simulator::simulator::{BuildError, Direction, Simulator};
use figures::Watched;
use scenario::Scenario;
use timelines::Timelines;

/// What is written at the end has so long to arrive.
const AFTER: Span = Span::from_secs(60);

/// A cell's run: one value of the seed gives all traces of the cell. `over_time`: the connection with
/// the most time-outs is kept as series too.
///
/// # Errors
/// The cell lacks a value, or no trace can be drawn.
pub(super) fn run(cell: &Cell, seed: u64, over_time: bool) -> Result<Outcome, EngineError> {
    let scenario = Scenario::of(cell)?;
    let workload = workload(cell)?;
    let pairs: u32 = cell.value("pairs")?;
    let streams = Substreams::new(seed);
    let traces: Result<Vec<Trace>, _> =
        (0..pairs).map(|pair| generate(&workload, &mut streams.of("trace", pair.into()))).collect();
    let traces = traces.map_err(|error| EngineError(error.to_string()))?;
    let fewest = traces.iter().map(|trace| trace.summary.flows()).min().unwrap_or(0);
    let mut summary = Summary::default();
    traces.iter().for_each(|trace| summary.merge(&trace.summary));
    let building = EngineError::during("building the network");
    let simulator = build(&scenario, &traces, &streams).map_err(|error| building(&error));
    let mut simulator = simulator?;
    simulator.observer.timelines = over_time.then(Timelines::default);
    simulator.run(Time::ZERO + workload.duration + AFTER);
    let mut outcome = figures::outcome(&simulator, pairs, &summary);
    outcome.figures.insert("flows_fewest".to_owned(), fewest as f64);
    outcome.series =
        simulator.observer.timelines.as_ref().map(Timelines::series).unwrap_or_default();
    Ok(outcome)
}

fn workload(cell: &Cell) -> Result<ThinClient, EngineError> {
    let base = match cell.text("traffic")? {
        "internet" => ThinClient::internet(),
        _ => ThinClient::intranet(),
    };
    // with the longest pause at 20 s, each σ with the μ that keeps 1,132 flows in 300 s (ALGORITHMS B.4)
    let (sigma, mu) = match cell.text("burstiness")? {
        "1.5" => (1.5, -2.4714),
        "2" => (2.0, -3.2837),
        "2.4" => (2.4, -4.0186),
        other => {
            let what = format!("«{other}» is none of 1.5, 2 and 2.4, whose means are known");
            return Err(cell.error("burstiness", &what).into());
        }
    };
    Ok(ThinClient { gap_sigma: sigma, gap_mu: mu, ..base })
}

fn build(
    scenario: &Scenario,
    traces: &[Trace],
    streams: &Substreams,
) -> Result<Simulator<Watched>, BuildError> {
    let dumbbell = Dumbbell::new(&scenario.dumbbell(traces.len() as u32));
    let mut simulator = Simulator::new(dumbbell.topology.clone(), Watched::default());
    let hosts = dumbbell.senders.iter().zip(&dumbbell.receivers);
    for (pair, ((server, client), trace)) in hosts.zip(traces).enumerate() {
        let mut clocks = streams.of("clock", pair as u64);
        for lane in scenario.lanes() {
            let writes = trace.writes.iter().map(|write| Scripted {
                at: write.at,
                bytes: write.bytes,
                kind: write.kind as u8,
            });
            let script =
                writes.filter(|write| lane.is_none_or(|kind| write.kind == kind as u8)).collect();
            let connection = simulator.connect(ConnectionConfig {
                opener: *server,
                acceptor: *client,
                start: Time::ZERO,
                opening: scenario.era.opening(),
                three_way: false,
                handshake_bytes: 40,
            })?;
            let phase = phase(&mut clocks);
            let config = scenario.flow(phase, lane, Source::Script(script));
            simulator.flow(connection, Direction::FromOpener, config)?;
        }
    }
    Ok(simulator)
}

/// Where in its tick a connection's clock stands.
fn phase(rng: &mut Rng) -> Span {
    Span::from_nanos(rng.below(Span::from_millis(10).as_nanos()))
}
