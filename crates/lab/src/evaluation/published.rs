//! A published figure compared with the measured one.

use super::*;

pub(super) fn judge(
    plan: &Plan,
    row: &Published,
    cells: &[CellResult],
    seed: u64,
    engine: &str,
) -> Judged {
    let runs = plan.runs_on(&row.expectation.of.part, engine);
    let seldom = |result: &CellResult| {
        row.expectation.of.includes(&result.cell)
            && result.runs.len() < row.repetitions_at_least as usize
    };
    let is_too_few = row.asserted.on(engine) && cells.iter().any(seldom);
    let asserted = row.asserted.on(engine) && !is_too_few;
    let found = measured::figure(&row.expectation, cells, seed);
    let measured = found.as_ref().map(|found| found.value);
    let within = measured.map(|value| row.expectation.is_met(value));
    let bounded = row.expectation.low.is_some() || row.expectation.high.is_some();
    Judged {
        row: row.clone(),
        measured,
        asserted,
        is_too_few,
        is_asked: row.asserted.concerns(engine) && runs,
        interval: found.and_then(|found| found.interval),
        holds: within.filter(|_| asserted),
        within: within.filter(|_| bounded),
        lack: measured::lack(&row.expectation.of, row.expectation.figure.as_deref(), cells),
    }
}
