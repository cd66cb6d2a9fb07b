//! Whether a relay is best where [`ekiden_model::network::placement`] says: where max(RTT·√loss) over the legs
//! is smallest.

use super::{CellResult, Decision, Short, not_measured};
use crate::cell::Cell;
use crate::cell::axis;
use crate::path::{Leg, legs_at};
use crate::plan::Selection;
use ekiden_model::network::placement::{Segment, best_position};
use ekiden_model::units::Share;

/// The best share of the round trip before the relay, to a per mille, by the rule for a cell's losses.
fn best(cell: &Cell) -> Option<f64> {
    let at = |per_mille: u32| f64::from(per_mille) / 1000.0;
    let candidates: Vec<(f64, Vec<Segment>)> = (1..1000)
        .filter_map(|per_mille| Some((at(per_mille), legs_at(cell, at(per_mille)).ok()?)))
        .map(|(at, legs)| (at, legs.iter().map(segment).collect()))
        .collect();
    let chosen = best_position(candidates.iter().map(|(_, segments)| segments.as_slice()))?;
    candidates.get(chosen).map(|(at, _)| *at)
}

fn segment(leg: &Leg) -> Segment {
    let loss = Share::from_parts_per_billion((leg.loss * 1e9).round() as u64);
    Segment { rtt: leg.rtt, loss: loss.unwrap_or(Share::ALL) }
}

/// Decides the claim: the measured position nearest the predicted one reaches `within` of the best.
pub(super) fn decide(of: &Selection, within: f64, cells: &[CellResult]) -> Decision {
    let position = |result: &CellResult| {
        axis::named("at")?.number(result.cell.values.get("at")?).map(|percent| percent / 100.0)
    };
    let chosen: Vec<(f64, f64, &Cell)> = cells
        .iter()
        .filter(|result| of.includes(&result.cell))
        .filter_map(|result| Some((position(result)?, result.median, &result.cell)))
        .collect();
    let first = chosen.first().filter(|_| chosen.len() > 1);
    let Some(predicted) = first.and_then(|(.., cell)| best(cell)) else { return not_measured() };
    let nearest =
        chosen.iter().min_by(|a, b| (a.0 - predicted).abs().total_cmp(&(b.0 - predicted).abs()));
    let fastest = chosen.iter().max_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(nearest), Some(fastest)) = (nearest, fastest) else { return not_measured() };
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
