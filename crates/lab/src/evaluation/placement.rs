//! Whether a relay stands best where the rule says: where max(RTT·√loss) over the legs is smallest.

use super::{CellResult, NOT_MEASURED, Short};
use crate::cell::Cell;
use crate::path::{Leg, legs_at};
use crate::plan::{Selection, axis};

/// How slow the slowest leg is, in arbitrary units: a loss-based congestion control's rate goes with
/// 1/(RTT·√loss).
#[must_use]
pub fn cost(legs: &[Leg]) -> f64 {
    let one = |leg: &Leg| leg.rtt.as_nanos() as f64 * leg.loss.sqrt();
    legs.iter().map(one).fold(0.0, f64::max)
}

/// The share of the round trip before the relay at which [`cost`] is smallest, for a cell's losses.
#[must_use]
pub fn best(cell: &Cell) -> Option<f64> {
    let cost_at = |per_mille: u32| {
        let at = f64::from(per_mille) / 1000.0;
        legs_at(cell, at).ok().map(|legs| (cost(&legs), at))
    };
    (1..1000).filter_map(cost_at).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, at)| at)
}

/// Decides the claim: the measured position nearest the predicted one reaches `within` of the best.
#[must_use]
pub fn decide(of: &Selection, within: f64, cells: &[CellResult]) -> (Option<bool>, String) {
    let position = |result: &CellResult| {
        axis::named("at")?.number(result.cell.values.get("at")?).map(|percent| percent / 100.0)
    };
    let chosen: Vec<(f64, f64, &Cell)> = cells
        .iter()
        .filter(|result| result.cell.is_in(of))
        .filter_map(|result| Some((position(result)?, result.median, &result.cell)))
        .collect();
    let first = chosen.first().filter(|_| chosen.len() > 1);
    let Some(predicted) = first.and_then(|(.., cell)| best(cell)) else {
        return (None, NOT_MEASURED.to_owned());
    };
    let nearest =
        chosen.iter().min_by(|a, b| (a.0 - predicted).abs().total_cmp(&(b.0 - predicted).abs()));
    let fastest = chosen.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(nearest), Some(fastest)) = (nearest, fastest) else {
        return (None, NOT_MEASURED.to_owned());
    };
    let evidence = format!(
        "the rule says {:.1} %; measured nearest to it, at {:.1} %: {} Mbit/s; best, at {:.1} %: {} Mbit/s",
        predicted * 100.0,
        nearest.0 * 100.0,
        Short(nearest.1),
        fastest.0 * 100.0,
        Short(fastest.1),
    );
    (Some(nearest.1 >= within * fastest.1), evidence)
}
