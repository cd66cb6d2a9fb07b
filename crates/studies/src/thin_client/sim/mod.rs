//! Thin clients over a bottleneck.
//!
//! ```text
//! server i ── 100 Mbit/s, 1 ms ── router ══ 10 Mbit/s, 20 ms ══ router ── 100 Mbit/s, 1 ms ── client i
//! ```

mod outcome;
mod scenario;
mod time_line;
pub(crate) mod tunnel;

use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{During, EngineError, Outcome};
use ekiden_lab::study::Sights;
use ekiden_model::network::workload::flows::Summary;
use ekiden_model::network::workload::thin_client::{ThinClient, Trace, generate};
use ekiden_model::rng::Rng;
use ekiden_model::units::{Span, Time};
use ekiden_simulator::network::connection::ConnectionConfig;
use ekiden_simulator::network::dumbbell::Dumbbell;
use ekiden_simulator::network::flow::{Scripted, Source};
use ekiden_simulator::network::topology::LinkDirection;
use ekiden_simulator::observer::Observer;
use ekiden_simulator::random::Substreams;
use ekiden_simulator::recorder::packets::Side;
use ekiden_simulator::simulator::{Direction, Simulator};
use ekiden_simulator::trace;
use outcome::{Typical, Watched};
use scenario::Scenario;
use time_line::Line;

/// What is written at the end has so long to arrive.
const AFTER: Span = Span::from_secs(60);

/// What the rows of a record call the two kinds of writes, by their numbers.
const KINDS: &[trace::WriteKind] = &[trace::WriteKind::Interactive, trace::WriteKind::Bulk];

/// A cell's run; all traces follow from the seed. The first repetition of the scenario without remedies also
/// has the time line of one connection.
pub(crate) fn run(cell: &Cell, repetition: u32, seed: u64) -> Result<Outcome, EngineError> {
    let study = Study::of(cell, seed)?;
    let (mut outcome, watched, ()) = study.run(|_| Ok(()))?;
    if repetition == 0
        && cell.text("scenario")? == "none"
        && let Some(typical) = watched.typical()
    {
        outcome.series = study.line(&typical)?;
    }
    Ok(outcome)
}

/// The scenario of the study that stands beside the kernel's runs, if a cell is the simulator's.
pub(crate) fn scenario(cell: &Cell) -> Option<&'static str> {
    match cell.text("way") {
        Ok("simulated") => Some("RACK-TLP"),
        Ok("simulated-held") => Some("held rate"),
        _ => None,
    }
}

/// The same traces in the simulator. Errors: the cell lacks a value.
pub(crate) fn simulate(cell: &Cell, scenario: &str, seed: u64) -> Result<Outcome, EngineError> {
    let mut cell = cell.clone();
    cell.values.insert("scenario".to_owned(), scenario.to_owned());
    // the time line is for the study's own runs
    run(&cell, 1, seed)
}

/// The sessions of a cell over a long link: through a tunnel, or by the TCP that its `way` names.
pub(crate) fn over_link(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    match scenario(cell) {
        Some(scenario) => simulate(cell, scenario, seed),
        None => tunnel::run(cell, seed),
    }
}

pub(crate) fn record<O: Observer>(
    cell: &Cell,
    seed: u64,
    observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
) -> Result<(Outcome, O), EngineError> {
    let (outcome, _, observer) = Study::of(cell, seed)?.run(observer)?;
    Ok((outcome, observer))
}

/// A cell with its traces, ready to run as often as is wanted.
struct Study {
    scenario: Scenario,
    streams: Substreams,
    traces: Vec<Trace>,
    until: Time,
}

impl Study {
    fn of(cell: &Cell, seed: u64) -> Result<Self, EngineError> {
        let scenario = Scenario::of(cell)?;
        let (workload, traces) = traces(cell, seed)?;
        let streams = Substreams::new(seed);
        Ok(Self { scenario, streams, traces, until: Time::ZERO + workload.duration + AFTER })
    }

    fn run<O: Observer>(
        &self,
        observer: impl FnOnce(&Sights) -> Result<O, EngineError>,
    ) -> Result<(Outcome, Watched, O), EngineError> {
        let mut simulator = self.build(|bottleneck| {
            // the study's servers send to clients, and their agents of one way open connections
            let watched = Some(bottleneck);
            let flows = (self.traces.len() * self.scenario.lanes().len()) as u32;
            let server = Side::Opener;
            let observer = observer(&Sights { watched, server, flows, kinds: KINDS })?;
            Ok((Watched::default(), observer))
        })?;
        simulator.run(self.until);
        let mut summary = Summary::default();
        self.traces.iter().for_each(|trace| summary.merge(&trace.summary));
        let [_, results] = simulator.fingerprints();
        let (watched, observer) = simulator.observer;
        let pairs = self.traces.len() as u32;
        let mut outcome = outcome::outcome(&watched, results, pairs, &summary);
        let fewest = self.traces.iter().map(|trace| trace.summary.flows()).min().unwrap_or(0);
        outcome.add_figures([("flows_fewest", fewest as f64)]);
        Ok((outcome, watched, observer))
    }

    /// The same run again, as far as one connection's time line goes.
    fn line(&self, typical: &Typical) -> Result<time_line::Series, EngineError> {
        let mut simulator = self.build(|_| Ok(Line::new(typical)))?;
        simulator.run(simulator.observer.until().min(self.until));
        Ok(simulator.observer.series())
    }

    fn build<O: Observer>(
        &self,
        observer: impl FnOnce(LinkDirection) -> Result<O, EngineError>,
    ) -> Result<Simulator<O>, EngineError> {
        let Self { scenario, streams, traces, .. } = self;
        let dumbbell = Dumbbell::new(&scenario.dumbbell(traces.len() as u32));
        let observer = observer(dumbbell.bottleneck)?;
        let mut simulator = Simulator::new(dumbbell.topology, observer);
        let hosts = dumbbell.senders.iter().zip(&dumbbell.receivers);
        for (pair, ((server, client), trace)) in hosts.zip(traces).enumerate() {
            let mut clocks = streams.of("clock", pair as u64);
            for lane in scenario.lanes() {
                let writes = trace.writes.iter().map(|write| Scripted {
                    at: write.at,
                    bytes: write.bytes,
                    kind: write.kind as u8,
                });
                let script = writes
                    .filter(|write| lane.is_none_or(|kind| write.kind == kind as u8))
                    .collect();
                let base = ConnectionConfig::new(*server, *client, scenario.era);
                let connection = simulator.connect(ConnectionConfig { three_way: false, ..base });
                let phase = phase(&mut clocks);
                let config = scenario.flow(phase, lane, Source::Script(script));
                let flow = connection.and_then(|connection| {
                    simulator.flow(connection, Direction::FromOpener, config)
                });
                flow.during("building the network")?;
            }
        }
        Ok(simulator)
    }
}

/// The traces of a cell, one a connection, the same on both engines.
pub(crate) fn traces(cell: &Cell, seed: u64) -> Result<(ThinClient, Vec<Trace>), EngineError> {
    let workload = workload(cell)?;
    let pairs: u32 = cell.value("pairs")?;
    let streams = Substreams::new(seed);
    let trace = |pair: u32| generate(&workload, &mut streams.of("trace", pair.into()));
    let traces: Result<_, _> = (0..pairs).map(trace).collect();
    Ok((workload, traces.map_err(|error| EngineError(error.to_string()))?))
}

fn workload(cell: &Cell) -> Result<ThinClient, EngineError> {
    let base = match cell.text("traffic")? {
        "internet" => ThinClient::internet(),
        _ => ThinClient::intranet(),
    };
    // with the longest pause at 20 s, each σ with the μ that keeps 1,132 flows in 300 s (algorithms/thin-client B.4)
    let (sigma, mu) = match cell.text("burstiness")? {
        "1.5" => (1.5, -2.4714),
        "2" => (2.0, -3.2837),
        "2.4" => (2.4, -4.0186),
        other => {
            let what =
                format!("`{other}` is not supported: use 1.5, 2 or 2.4, whose means are published");
            return Err(cell.error("burstiness", &what).into());
        }
    };
    Ok(ThinClient { gap_sigma: sigma, gap_mu: mu, ..base })
}

/// Where in its tick a connection's clock stands.
fn phase(rng: &mut Rng) -> Span {
    Span::from_nanos(rng.below(Span::from_millis(10).as_nanos()))
}
