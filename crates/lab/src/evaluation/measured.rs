//! One figure from many cells, by a plan's expectation.

use super::{CellResult, Short, monotone};
use crate::plan::{Expectation, Selection, Take};
use crate::statistics::bootstrap::{self, Interval};
use crate::statistics::{geometric_mean, median};
use std::collections::BTreeSet;

/// A figure, and its interval where there is one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Found {
    pub(super) value: f64,
    /// 95 %.
    pub(super) interval: Option<Interval>,
}

impl Expectation {
    /// Whether a figure lies in the range.
    pub fn is_met(&self, value: f64) -> bool {
        self.low.is_none_or(|low| value >= low) && self.high.is_none_or(|high| value <= high)
    }

    /// How a figure misses the range, with as many digits as show it; `None` where it lies in it.
    pub fn miss(&self, value: f64) -> Option<String> {
        let below = self.low.filter(|low| value < *low).map(|low| ("below", low));
        let above = self.high.filter(|high| value > *high).map(|high| ("above", high));
        let (side, bound) = below.or(above)?;
        let usual = Short(value).to_string();
        let differs = |shown: &String| shown.parse().is_ok_and(|shown: f64| !self.is_met(shown));
        let longer = (0..=9).map(|digits| format!("{value:.digits$}"));
        let shown = longer.filter(|shown| shown.len() >= usual.len()).find(differs);
        let shown = shown.unwrap_or(usual);
        Some(format!("{shown} is {side} {bound}"))
    }
}

/// The figure; `None` when a cell it needs was not run: part of a figure is not the figure.
pub(crate) fn figure(expectation: &Expectation, cells: &[CellResult], seed: u64) -> Option<Found> {
    let chosen: Vec<&CellResult> =
        cells.iter().filter(|result| expectation.of.includes(&result.cell)).collect();
    // every value that the selection names must be there
    let complete = expectation.of.cells.iter().all(|(axis, values)| {
        let has = |value: &String| chosen.iter().any(|r| r.cell.values.get(axis) == Some(value));
        values.iter().all(has)
    });
    if chosen.is_empty() || !complete {
        return None;
    }
    if let Take::HalfWay(along) = &expectation.take {
        let lines = monotone::groups(&expectation.of, along, cells);
        // several lines have no one place
        let [line] = lines.values().collect::<Vec<_>>()[..] else { return None };
        return half_way(line).map(|value| Found { value, interval: None });
    }
    let figures: Option<Vec<Found>> = chosen
        .iter()
        .map(|result| match &expectation.against {
            None => of_cell(result, expectation.figure.as_deref(), seed),
            Some(against) => ratio(result, expectation, against, cells, seed),
        })
        .collect();
    let figures = figures?;
    if let [one] = figures.as_slice() {
        return Some(*one);
    }
    let values: Vec<f64> = figures.iter().map(|found| found.value).collect();
    let extreme =
        |order: fn(&&Found, &&Found) -> std::cmp::Ordering| figures.iter().max_by(order).copied();
    match expectation.take {
        Take::Mean | Take::HalfWay(_) => {
            Some(Found { value: geometric_mean(&values)?, interval: None })
        }
        Take::Lowest => extreme(|a, b| b.value.total_cmp(&a.value)),
        Take::Highest => extreme(|a, b| a.value.total_cmp(&b.value)),
    }
}

/// Why a figure is unknown although cells were run: none of them has it. Names the figures that they have.
pub(super) fn lack(of: &Selection, figure: Option<&str>, cells: &[CellResult]) -> Option<String> {
    let name = figure?;
    let mut chosen = cells.iter().filter(|result| of.includes(&result.cell)).peekable();
    chosen.peek()?;
    let mut known = BTreeSet::new();
    for result in chosen {
        if result.figures.contains_key(name) {
            return None;
        }
        known.extend(result.figures.keys().map(String::as_str));
    }
    let known: Vec<&str> = known.into_iter().collect();
    Some(format!("not measured: there is no figure `{name}`; there are: {}", known.join(", ")))
}

/// Where a line first falls to half of its first value; `None` if it never does.
fn half_way(line: &[(f64, f64)]) -> Option<f64> {
    let half = line.first()?.1 / 2.0;
    line.windows(2).find_map(|pair| {
        let (&[(x, high), (next, low)] | &[(x, high), (next, low), ..]) = pair else { return None };
        (high > half && low <= half).then(|| x + (next - x) * (high - half) / (high - low))
    })
}

fn of_cell(result: &CellResult, figure: Option<&str>, seed: u64) -> Option<Found> {
    if figure.is_none() {
        return Some(Found { value: result.median, interval: result.interval });
    }
    let values = result.values_of(figure)?;
    Some(Found { value: median(&values)?, interval: bootstrap::of_median(&values, seed) })
}

/// The ratio of medians to the cell that is alike in all that neither selection names.
fn ratio(
    result: &CellResult,
    expectation: &Expectation,
    against: &Selection,
    cells: &[CellResult],
    seed: u64,
) -> Option<Found> {
    let named: Vec<&str> = against.cells.keys().map(String::as_str).collect();
    // an axis with several values in `of` is matched, one with a single value is what sets it apart
    let apart = expectation
        .of
        .cells
        .iter()
        .filter(|(axis, values)| values.len() == 1 && against.cells.contains_key(*axis));
    let mut ignored: Vec<&str> = apart.map(|(axis, _)| axis.as_str()).collect();
    ignored.extend(named);
    let tail = |key: &str| key.split_once(' ').map(|(_, rest)| rest.to_owned());
    let wanted = result.cell.key_without(&ignored);
    let other = cells.iter().find(|other| {
        against.includes(&other.cell) && tail(&other.cell.key_without(&ignored)) == tail(&wanted)
    })?;
    let values = |r: &CellResult| r.values_of(expectation.figure.as_deref());
    let figure = |groups: &[Vec<f64>]| {
        let below = median(groups.get(1)?).filter(|m| *m > 0.0)?;
        Some(median(groups.first()?)? / below)
    };
    let groups = [values(result)?, values(other)?];
    Some(Found { value: figure(&groups)?, interval: bootstrap::interval(&groups, seed, figure) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::gain::tests::jammed;

    #[test]
    fn half_way_is_where_the_line_crosses_it() {
        assert_eq!(half_way(&[(0.0, 400.0), (50.0, 300.0), (100.0, 100.0)]), Some(75.0));
        assert_eq!(half_way(&[(0.0, 400.0), (50.0, 300.0)]), None);
        assert_eq!(half_way(&[(0.0, 400.0), (50.0, 200.0), (100.0, 200.0)]), Some(50.0));
        assert_eq!(half_way(&[]), None);
    }

    #[test]
    fn finds_no_knee_for_several_lines() {
        let cells = jammed(&[
            ("10 Mbit/s", "1500", "0 %", 400.0),
            ("10 Mbit/s", "1500", "100 %", 0.0),
            ("50 Mbit/s", "1500", "0 %", 400.0),
            ("50 Mbit/s", "1500", "100 %", 100.0),
        ]);
        let of = |uplinks: &[&str]| Expectation {
            of: Selection {
                part: "jam".into(),
                cells: [("uplink".to_owned(), uplinks.iter().map(|u| (*u).to_owned()).collect())]
                    .into(),
            },
            against: None,
            figure: None,
            take: Take::HalfWay("jam".into()),
            low: None,
            high: None,
        };
        let found = |uplinks: &[&str]| figure(&of(uplinks), &cells, 1).map(|found| found.value);
        assert_eq!(found(&["10 Mbit/s"]), Some(50.0));
        assert!(found(&["50 Mbit/s"]).is_some_and(|at| (at - 200.0 / 3.0).abs() < 1e-9));
        assert_eq!(found(&["10 Mbit/s", "50 Mbit/s"]), None);
    }

    #[test]
    fn a_miss_shows_enough_digits() {
        let of = Selection { part: "row".to_owned(), cells: [].into() };
        let (low, high) = (Some(0.45), Some(100.0));
        let range = Expectation { of, against: None, figure: None, take: Take::Mean, low, high };
        let miss = |value| range.miss(value).unwrap_or_default();
        assert_eq!(miss(0.4453), "0.445 is below 0.45");
        assert_eq!(miss(0.4499), "0.4499 is below 0.45");
        assert_eq!(miss(0.3), "0.30 is below 0.45");
        assert_eq!(miss(100.2), "100.2 is above 100");
        assert_eq!(miss(0.45), "");
    }
}
