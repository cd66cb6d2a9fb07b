//! Formulas beside measured figures ([`crate::study::Study::closed_form`]). They judge nothing.

use super::CellResult;
use crate::evaluation::measured;
use crate::plan::Expectation;
use crate::study::Study;

/// The figure of an expectation whose cells all have a formula.
pub(crate) fn of(
    study: &dyn Study,
    expectation: &Expectation,
    cells: &[CellResult],
) -> Option<f64> {
    if expectation.figure.is_some() {
        return None;
    }
    let computed: Vec<CellResult> = cells
        .iter()
        .filter_map(|result| {
            let value = study.closed_form(&result.cell)?;
            Some(CellResult {
                runs: vec![(0, value)],
                median: value,
                interval: None,
                ..result.clone()
            })
        })
        .collect();
    let wanted = cells.iter().filter(|result| expectation.of.includes(&result.cell)).count();
    let found = computed.iter().filter(|result| expectation.of.includes(&result.cell)).count();
    // part of a figure is not the figure
    (wanted == found).then(|| measured::figure(expectation, &computed, 1).map(|f| f.value))?
}
