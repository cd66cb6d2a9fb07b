//! A stream played while it comes: times without data although the next packet is due (algorithms/satellite
//! E.8).

use crate::long_link::duration;
use crate::long_link::testbed::Testbed;
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::statistics::quantile;
use ekiden_lab::study::KernelRun;
use ekiden_model::units::{Rate, Share, Span};
use ekiden_testbed::load::far_client::Stalls;
use ekiden_testbed::load::meter::Meter;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    let cell = run.cell;
    let (lasts, settle) = (duration(cell, "duration")?, duration(cell, "settle")?);
    let rate = cell.value::<Rate>("video")?.as_bits_per_second();
    let scene = Testbed::warm(run)?;
    let begin = Instant::now();
    let server = scene.serve(Meter::new(begin, Duration::ZERO))?;
    let ask = scene.ask(begin + lasts)?;
    let stream = scene.start(move || ask.play(rate, begin))?;
    thread::sleep((begin + lasts).saturating_duration_since(Instant::now()));
    let came = scene.ended("the stream", stream)?;
    let stalls = Stalls::of(&came, rate, (settle, lasts));
    let mut outcome = Outcome::of(stalls.blocked * 100.0);
    let gaps: Vec<f64> = stalls.gaps.iter().map(|gap| gap.as_secs_f64() * 1e3).collect();
    let minutes = stalls.looked.as_secs_f64() / 60.0;
    let within = came.iter().filter(|at| (settle..lasts).contains(*at)).count();
    let packet = ekiden_testbed::load::far_server::interval(rate).as_secs_f64();
    outcome.add_figures([
        ("stalls_per_minute", gaps.len() as f64 / minutes),
        ("stall_mean_ms", gaps.iter().sum::<f64>() / gaps.len().max(1) as f64),
        ("stall_p99_ms", quantile(&gaps, 0.99).unwrap_or(0.0)),
        ("predicted_percent", predicted(cell, packet)? * 100.0),
        ("came_percent", within as f64 * packet * 100.0 / stalls.looked.as_secs_f64()),
    ]);
    scene.finish(server, &mut outcome)?;
    Ok(outcome)
}

/// Share of the time that holes block delivery where each takes one round trip to fill: 1 − exp(−λ · RTT), λ
/// losses or bursts a second (algorithms/satellite E.6).
fn predicted(cell: &Cell, packet: f64) -> Result<f64, EngineError> {
    let lost = cell.value::<Share>("loss")?.as_parts_per_billion() as f64 / 1e9;
    let burst: f64 = cell.value("burst")?;
    let rtt = cell.value::<Span>("rtt")?.as_secs_f64();
    Ok(1.0 - (-lost / burst / packet * rtt).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_testbed::load::far_server::interval;

    /// The table of algorithms/satellite E.6: 1 Mbit/s over 615 ms, blocked for 44, 69 and 95 % at 1, 2 and 5 %.
    #[test]
    fn prediction_matches_its_table() {
        let cell = |loss| Cell::new("p", [("loss", loss), ("burst", "1"), ("rtt", "615 ms")]);
        let packet = interval(1_000_000).as_secs_f64();
        for (loss, percent) in [("1 %", 44.0), ("2 %", 69.0), ("5 %", 95.0)] {
            let configured = predicted(&cell(loss), packet).unwrap() * 100.0;
            assert!((configured - percent).abs() < 1.0, "{loss}: {configured}");
        }
    }
}
