//! Whether a figure falls along an axis, in the mean over repetitions and in enough single repetitions, whose
//! cells met the same randomness.

use super::{CellResult, Decision, NOT_MEASURED, Short, not_measured};
use crate::evaluation::measured;
use crate::plan::Selection;
use crate::statistics::paired::Runs;

/// Decides the claim; open with a missing cell, several cells for a value, or too few repetitions.
pub(super) fn decide(
    of: &Selection,
    along: &str,
    figure: Option<&str>,
    at_least: u32,
    cells: &[CellResult],
) -> Decision {
    let lack = || measured::lack(of, figure, cells).unwrap_or_else(|| NOT_MEASURED.to_owned());
    let names = of.cells.get(along).map_or(&[][..], Vec::as_slice);
    let mut runs: Vec<&Runs> = Vec::new();
    for name in names {
        let chosen: Vec<&CellResult> = cells
            .iter()
            .filter(|r| of.includes(&r.cell) && r.cell.values.get(along) == Some(name))
            .collect();
        match chosen.as_slice() {
            [one] => match one.runs_of(figure) {
                Some(found) => runs.push(found),
                None => return (None, lack()),
            },
            [] => return (None, lack()),
            several => {
                let what = format!("open: {} cells are `{name}`, one is meant", several.len());
                return (None, what);
            }
        }
    }
    let Some((first, rest)) = runs.split_first() else { return (None, lack()) };
    // a repetition counts when every value of the axis has it
    let value = |runs: &Runs, n: u32| runs.iter().find(|(m, _)| *m == n).map(|(_, value)| *value);
    let paired: Vec<Vec<f64>> = first
        .iter()
        .filter_map(|(n, value_of_first)| {
            let others = rest.iter().map(|runs| value(runs, *n));
            std::iter::once(Some(*value_of_first)).chain(others).collect()
        })
        .collect();
    if paired.is_empty() {
        return not_measured();
    }
    let falls = |values: &[f64]| values.windows(2).all(|pair| pair[0] > pair[1]);
    let mean = |n: usize| paired.iter().map(|v| v[n]).sum::<f64>() / paired.len() as f64;
    let means: Vec<f64> = (0..names.len()).map(mean).collect();
    let whole = paired.iter().filter(|values| falls(values)).count();
    let report: Vec<String> =
        names.iter().zip(&means).map(|(name, mean)| format!("{name} {}", Short(*mean))).collect();
    let evidence = format!(
        "means: {}; {whole} of {} repetitions show the whole order, {at_least} are asked for",
        report.join(if falls(&means) { " > " } else { ", " }),
        paired.len()
    );
    if paired.len() < at_least as usize {
        return (None, format!("open, too few repetitions: {evidence}"));
    }
    (Some(falls(&means) && whole >= at_least as usize), evidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;

    fn result(scenario: &str, values: &[f64]) -> CellResult {
        let runs: Runs = (0..).zip(values.iter().copied()).collect();
        CellResult {
            cell: Cell::new("study", [("scenario", scenario)]),
            figures: [("dup".to_owned(), runs.iter().map(|(n, v)| (*n, -v)).collect())].into(),
            runs,
            ..CellResult::default()
        }
    }

    fn of(names: &[&str]) -> Selection {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Selection { part: "study".into(), cells: [("scenario".to_owned(), names)].into() }
    }

    fn decided(cells: &[CellResult], names: &[&str], at_least: u32) -> Decision {
        decide(&of(names), "scenario", None, at_least, cells)
    }

    #[test]
    fn means_fall_and_enough_repetitions_with_them() {
        let cells = [
            result("none", &[6.0, 5.0, 7.0]),
            result("P", &[4.0, 5.5, 3.0]),
            result("approach 1", &[1.0, 1.0, 1.0]),
        ];
        let names = ["none", "P", "approach 1"];
        let (holds, evidence) = decided(&cells, &names, 2);
        assert_eq!(holds, Some(true));
        assert_eq!(
            evidence,
            "means: none 6.00 > P 4.17 > approach 1 1.00; 2 of 3 repetitions show the whole order, \
             2 are asked for"
        );
        assert_eq!(decided(&cells, &names, 3).0, Some(false));
        let (holds, evidence) = decided(&cells, &names, 4);
        assert!(holds.is_none() && evidence.starts_with("open, too few"), "{evidence}");
        assert_eq!(decided(&cells, &["P", "none"], 0).0, Some(false), "the means rise");
    }

    #[test]
    fn equal_values_do_not_fall() {
        let cells = [result("none", &[2.0]), result("P", &[2.0])];
        assert_eq!(decided(&cells, &["none", "P"], 0).0, Some(false));
    }

    #[test]
    fn leaves_claim_open_when_a_cell_is_missing() {
        let cells = [result("none", &[2.0])];
        assert_eq!(decided(&cells, &["none", "P"], 1), not_measured());
        let cells = [result("none", &[2.0]), result("none", &[2.0]), result("P", &[1.0])];
        let (holds, evidence) = decided(&cells, &["none", "P"], 1);
        assert!(holds.is_none() && evidence.contains("2 cells are `none`"), "{evidence}");
    }

    #[test]
    fn repetitions_are_paired_by_their_number() {
        let mut early = result("P", &[9.0, 1.0]);
        early.runs = vec![(1, 1.0), (5, 9.0)];
        let cells = [result("none", &[0.0, 2.0]), early];
        let (holds, evidence) = decided(&cells, &["none", "P"], 1);
        assert_eq!(holds, Some(true), "{evidence}");
        assert!(evidence.contains("1 of 1 repetitions"), "{evidence}");
    }

    #[test]
    fn orders_a_further_figure_by_its_own_values() {
        let cells = [result("none", &[2.0]), result("P", &[1.0])];
        let names = of(&["P", "none"]);
        assert_eq!(decide(&names, "scenario", Some("dup"), 1, &cells).0, Some(true));
        let (holds, evidence) = decide(&names, "scenario", Some("dups"), 1, &cells);
        assert!(holds.is_none() && evidence.contains("there are: dup"), "{evidence}");
    }
}
