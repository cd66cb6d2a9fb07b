//! A stream that is played while it comes: where nothing comes although the next packet is due
//! (ALGORITHMS §E.8).

use super::changes::Phase;
use super::scene::Scene;
use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use crate::load::asking::Stalls;
use crate::load::meter::Meter;
use crate::statistics::quantile;
use ekiden_emulator::topology::TopologyPlan;
use ekiden_model::units::{Rate, Share, Span};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A cell's run.
///
/// # Errors
/// The cell lacks a value, or something did not start or broke.
pub(super) fn run(
    cell: &Cell,
    plan: &TopologyPlan,
    links: [Vec<Phase>; 2],
    ekiden: &Path,
) -> Result<Outcome, EngineError> {
    let span = |axis: &str| -> Result<Duration, EngineError> {
        Ok(Duration::from_nanos(cell.value::<Span>(axis)?.as_nanos()))
    };
    let (lasts, settle) = (span("duration")?, span("settle")?);
    let rate = cell.value::<Rate>("video")?.as_bits_per_second();
    let scene = Scene::warm(cell, plan, links, ekiden)?;
    let begin = Instant::now();
    let server = scene.serve(Meter::new(begin, Duration::ZERO))?;
    let ask = scene.ask(begin + lasts)?;
    let stream = scene.start(move || ask.play(rate, begin))?;
    thread::sleep((begin + lasts).saturating_duration_since(Instant::now()));
    let came = scene.ended("the stream", stream)?;
    let stalls = Stalls::of(&came, rate, (settle, lasts));
    let mut outcome = Outcome { value: stalls.blocked * 100.0, ..Outcome::default() };
    let gaps: Vec<f64> = stalls.gaps.iter().map(|gap| gap.as_secs_f64() * 1e3).collect();
    let minutes = stalls.looked.as_secs_f64() / 60.0;
    let within = came.iter().filter(|at| (settle..lasts).contains(*at)).count();
    let packet = crate::load::distant::interval(rate).as_secs_f64();
    for (name, value) in [
        ("stalls_per_minute", gaps.len() as f64 / minutes),
        ("stall_mean_ms", gaps.iter().sum::<f64>() / gaps.len().max(1) as f64),
        ("stall_p99_ms", quantile(&gaps, 0.99).unwrap_or(0.0)),
        ("predicted_percent", predicted(cell, packet)? * 100.0),
        ("came_percent", within as f64 * packet * 100.0 / stalls.looked.as_secs_f64()),
    ] {
        outcome.figures.insert(name.to_owned(), value);
    }
    scene.finish(server, &mut outcome)?;
    Ok(outcome)
}

/// Share of the time that a hole blocks delivery where each takes one round trip to fill:
/// 1 − exp(−λ · RTT), with so many losses or bursts of losses a second (ALGORITHMS §E.6).
fn predicted(cell: &Cell, packet: f64) -> Result<f64, EngineError> {
    let lost = cell.value::<Share>("loss")?.as_parts_per_billion() as f64 / 1e9;
    let burst: f64 = cell.value("burst")?;
    let rtt = cell.value::<Span>("rtt")?.as_nanos() as f64 / 1e9;
    Ok(1.0 - (-lost / burst / packet * rtt).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::distant::interval;

    /// The table of ALGORITHMS §E.6: 1 Mbit/s over 615 ms, blocked for 44, 69 and 95 % at 1, 2 and 5 %.
    #[test]
    fn the_prediction_has_the_figures_of_its_table() {
        let cell = |loss: &str| Cell {
            part: "p".to_owned(),
            values: [("loss", loss), ("burst", "1"), ("rtt", "615 ms")]
                .map(|(axis, value)| (axis.to_owned(), value.to_owned()))
                .into(),
        };
        let packet = interval(1_000_000).as_secs_f64();
        for (loss, percent) in [("1 %", 44.0), ("2 %", 69.0), ("5 %", 95.0)] {
            let told = predicted(&cell(loss), packet).unwrap() * 100.0;
            assert!((told - percent).abs() < 1.0, "{loss}: {told}");
        }
    }
}
