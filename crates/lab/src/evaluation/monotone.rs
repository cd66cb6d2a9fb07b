//! Whether a value never rises along an axis of numbers.

use super::{CellResult, Decision, Short, not_measured};
use crate::cell::axis;
use crate::plan::Selection;
use std::collections::BTreeMap;

/// Decides it by medians, for each group of cells alike but for the axis; a rise of up to `slack` times the
/// group's highest median is none.
pub(super) fn decide(of: &Selection, along: &str, slack: f64, cells: &[CellResult]) -> Decision {
    let groups = groups(of, along, cells);
    let long: Vec<_> = groups.iter().filter(|(_, line)| line.len() > 1).collect();
    if long.is_empty() {
        return not_measured();
    }
    let mut largest = 0.0_f64;
    let rises = long.iter().filter_map(|(name, line)| {
        let highest = line.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        let mut lowest = f64::INFINITY;
        let mut worst: Option<(f64, f64)> = None;
        for (at, value) in line.iter() {
            let rise = (value - lowest) / highest;
            if rise.is_finite() {
                largest = largest.max(rise);
            }
            if rise > worst.map_or(slack, |(_, most)| most) {
                worst = Some((*at, rise));
            }
            lowest = lowest.min(*value);
        }
        let (at, rise) = worst?;
        Some(format!("{name}: up by {:.0} % at {}", rise * 100.0, Short(at)))
    });
    let rises: Vec<String> = rises.collect();
    let allowed = format!(
        "the largest rise is {} % of a line's highest value, and up to {} % is none",
        Short(largest * 100.0),
        Short(slack * 100.0)
    );
    if rises.is_empty() {
        return (Some(true), format!("{} lines, none of which rises; {allowed}", long.len()));
    }
    (
        Some(false),
        format!("{} of {} rise: {}; {allowed}", rises.len(), long.len(), rises.join("; ")),
    )
}

/// Medians along an axis of numbers, in its order, by the other axes' values; a line's name has those that
/// differ.
pub(super) fn groups(
    of: &Selection,
    along: &str,
    cells: &[CellResult],
) -> BTreeMap<String, Vec<(f64, f64)>> {
    let Some(axis) = axis::named(along) else { return BTreeMap::new() };
    let chosen: Vec<&CellResult> = cells.iter().filter(|r| of.includes(&r.cell)).collect();
    let same = |name: &&str| {
        let first = chosen.first().and_then(|result| result.cell.values.get(*name));
        chosen.iter().all(|result| result.cell.values.get(*name) == first)
    };
    let mut quiet: Vec<&str> = axis::all().map(|axis| axis.name).filter(same).collect();
    quiet.push(along);
    let mut groups: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for result in &chosen {
        let place = result.cell.values.get(along).and_then(|text| axis.number(text));
        let Some(place) = place else { continue };
        let key = result.cell.key_without(&quiet);
        let name = key.split_once(' ').map_or(key.as_str(), |(_, rest)| rest);
        groups.entry(name.to_owned()).or_default().push((place, result.median));
    }
    for line in groups.values_mut() {
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::gain::tests::jammed;

    fn of() -> Selection {
        Selection { part: "jam".to_owned(), cells: BTreeMap::new() }
    }

    #[test]
    fn names_the_value_that_rises() {
        let cells = jammed(&[
            ("10 Mbit/s", "1500", "0 %", 400.0),
            ("10 Mbit/s", "1500", "50 %", 400.0),
            ("10 Mbit/s", "1500", "100 %", 30.0),
            ("100 Mbit/s", "1500", "0 %", 900.0),
            ("100 Mbit/s", "1500", "50 %", 500.0),
            ("100 Mbit/s", "1500", "100 %", 520.0),
        ]);
        let (holds, evidence) = decide(&of(), "jam", 0.03, &cells);
        assert_eq!(holds, Some(true), "{evidence}");
        let (holds, evidence) = decide(&of(), "jam", 0.02, &cells);
        assert_eq!(holds, Some(false));
        assert!(evidence.contains("uplink=100Mbit/s: up by 2 % at 100"), "{evidence}");
        assert!(evidence.contains("1 of 2"), "{evidence}");
    }

    #[test]
    fn detects_a_rise_in_small_steps() {
        let cells = jammed(&[
            ("10 Mbit/s", "1500", "0 %", 100.0),
            ("10 Mbit/s", "1500", "10 %", 80.0),
            ("10 Mbit/s", "1500", "20 %", 81.5),
            ("10 Mbit/s", "1500", "30 %", 83.0),
        ]);
        assert_eq!(decide(&of(), "jam", 0.02, &cells).0, Some(false));
    }

    #[test]
    fn one_cell_decides_nothing() {
        let cells = jammed(&[("10 Mbit/s", "1500", "0 %", 400.0)]);
        assert_eq!(decide(&of(), "jam", 0.0, &cells), not_measured());
    }
}
