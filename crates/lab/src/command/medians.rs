//! Medians of the plan's first figure, for a plan without published figures: a line a place, a column a series.

use crate::cell::axis;
use crate::evaluation::{Evaluation, short};
use crate::plan::Plan;

pub(super) fn medians(plan: &Plan, evaluation: &Evaluation) -> String {
    let Some(figure) = plan.figures.first() else { return String::new() };
    let (Some(across), Some(series)) = (axis::named(&figure.x), axis::named(&figure.series)) else {
        return String::new();
    };
    let cells = evaluation.cells.iter().filter(|result| figure.of.includes(&result.cell));
    let mut places: Vec<&str> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    let mut values: Vec<(&str, &str, f64)> = Vec::new();
    for result in cells {
        let (Ok(place), Ok(name)) = (result.cell.text(&figure.x), result.cell.text(&figure.series))
        else {
            continue;
        };
        if !places.contains(&place) {
            places.push(place);
        }
        if !names.contains(&name) {
            names.push(name);
        }
        values.push((place, name, result.median));
    }
    if values.is_empty() {
        return String::new();
    }
    let measure = plan.measure_of(&figure.of.part);
    let mut text = format!("{}, {}: medians\n\n{:<12}", measure.name, measure.unit, across.title);
    for name in &names {
        text += &format!("{:>12}", series.shown(name));
    }
    text.push('\n');
    for place in places {
        text += &format!("{:<12}", across.shown(place));
        for name in &names {
            let value = values.iter().find(|(p, n, _)| *p == place && n == name);
            text += &format!("{:>12}", short(value.map(|(.., median)| *median)));
        }
        text.push('\n');
    }
    text
}
