//! From a plan's figure to panels.

use crate::cell::Cell;
use crate::cell::axis::{self, Axis};
use crate::chart::{Panel, PanelKind, Point, Series, share_reach};
use crate::evaluation::CellResult;
use crate::plan::{Figure, Plan, Shape};
use std::collections::BTreeMap;

/// As many colours and marks as there are.
const STYLES: usize = 6;

/// The panels of a figure, of the cells that were run; none when none was.
pub fn panels(figure: &Figure, plan: &Plan, cells: &[CellResult]) -> Vec<Panel> {
    let chosen: Vec<&CellResult> = cells.iter().filter(|r| figure.of.includes(&r.cell)).collect();
    if let Shape::Own(shape) = figure.shape {
        return plan.study.panels(shape, figure, &chosen);
    }
    let (Some(x), Some(series)) = (axis::named(&figure.x), axis::named(&figure.series)) else {
        return Vec::new();
    };
    let split = figure.panels.as_deref().and_then(axis::named);
    let mut groups: BTreeMap<AxisValue, Vec<&CellResult>> = BTreeMap::new();
    for result in chosen {
        groups.entry(AxisValue::of(split, &result.cell)).or_default().push(result);
    }
    let mut panels: Vec<Panel> = groups
        .into_iter()
        .map(|(place, cells)| {
            let title = match split {
                Some(axis) => format!("{} {}", axis.title, axis.shown(&place.text)),
                None => String::new(),
            };
            panel(figure, plan, x, series, &title, &cells)
        })
        .collect();
    if figure.log {
        share_reach(&mut panels);
    }
    panels
}

/// A value and its rank among the others.
#[derive(Debug, Clone, PartialEq)]
pub struct AxisValue {
    /// As [`Axis::rank`].
    pub rank: f64,
    /// As in the plan.
    pub text: String,
}

/// The cells with a histogram, by panel and series of a figure whose axis across is a study's own.
pub fn with_histogram<'a>(
    figure: &Figure,
    cells: &[&'a CellResult],
    histogram: &str,
) -> BTreeMap<AxisValue, BTreeMap<AxisValue, &'a CellResult>> {
    let named = |name: &str| axis::named(name);
    let (split, by) = (figure.panels.as_deref().and_then(named), named(&figure.series));
    let mut groups: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for result in cells.iter().filter(|result| result.histograms.contains_key(histogram)) {
        let panel = groups.entry(AxisValue::of(split, &result.cell)).or_default();
        panel.insert(AxisValue::of(by, &result.cell), *result);
    }
    groups
}

impl AxisValue {
    /// A cell's value of an axis; without an axis, all cells rank alike.
    pub fn of(axis: Option<&Axis>, cell: &Cell) -> Self {
        let value = axis.and_then(|axis| cell.values.get(axis.name));
        let text = value.map_or("", String::as_str);
        Self { rank: axis.map_or(0.0, |axis| axis.rank(text)), text: text.to_owned() }
    }
}

impl Eq for AxisValue {}

impl PartialOrd for AxisValue {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for AxisValue {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank.total_cmp(&other.rank).then_with(|| self.text.cmp(&other.text))
    }
}

fn panel(
    figure: &Figure,
    plan: &Plan,
    x: &Axis,
    by: &Axis,
    title: &str,
    cells: &[&CellResult],
) -> Panel {
    let place = |axis: &Axis, result: &CellResult| AxisValue::of(Some(axis), &result.cell);
    let mut xs: Vec<AxisValue> = cells.iter().map(|result| place(x, result)).collect();
    xs.sort();
    xs.dedup();
    let lines = figure.shape == Shape::Lines;
    let x_of = |place: &AxisValue| {
        let index = xs.iter().position(|other| other == place).unwrap_or(0) as f64;
        if lines { x.number(&place.text).unwrap_or(index) } else { index }
    };
    let mut series: BTreeMap<AxisValue, Vec<Point>> = BTreeMap::new();
    for result in cells {
        series.entry(place(by, result)).or_default().push(Point {
            x: x_of(&place(x, result)),
            y: result.median,
            interval: result.interval.map(|i| (i.low, i.high)),
        });
    }
    let styles = styles(by, series.keys().map(|place| place.text.as_str()));
    let series = series.into_iter().zip(styles).map(|((place, mut points), style)| {
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Series { name: by.shown(&place.text), style, points }
    });
    let measure = plan.measure_of(&figure.of.part);
    let unit =
        if lines && !x.unit().is_empty() { format!(", {}", x.unit()) } else { String::new() };
    Panel {
        title: title.to_owned(),
        x_title: format!("{}{unit}", x.title),
        y_title: format!("{}, {}", measure.name, measure.unit),
        kind: if lines { PanelKind::Lines } else { PanelKind::Bars },
        log: figure.log,
        ticks: xs
            .iter()
            .map(|place| {
                let number = if lines { x.number(&place.text) } else { None };
                let text = number.map_or_else(|| x.shown(&place.text), |n| n.to_string());
                (x_of(place), text)
            })
            .collect(),
        series: series.collect(),
        ..Panel::default()
    }
}

/// Colours and marks of a panel's series. Words beyond the first six take those that the panel's others leave.
fn styles<'a>(by: &Axis, values: impl Iterator<Item = &'a str> + Clone) -> Vec<usize> {
    let beyond = |value: &str| {
        matches!(by.kind, axis::ValueKind::Word(_)) && by.rank(value) as usize >= STYLES
    };
    let own = values.clone().enumerate().filter(|(_, value)| !beyond(value));
    let taken: Vec<usize> = own.map(|(nth, value)| style(by, value, nth)).collect();
    let mut left = (0..STYLES).filter(|style| !taken.contains(style)).cycle();
    let chosen = values.enumerate().map(|(nth, value)| match beyond(value) {
        true => left.next().unwrap_or(STYLES - 1),
        false => style(by, value, nth),
    });
    chosen.collect()
}

/// Colour and mark of a series: a word keeps its own in all figures, numbers go by their order.
pub fn style(by: &Axis, value: &str, nth: usize) -> usize {
    const NUMBERS: [usize; STYLES] = [5, 3, 4, 2, 1, 0];
    match by.kind {
        axis::ValueKind::Word(_) => (by.rank(value) as usize).min(STYLES - 1),
        _ => NUMBERS[nth % NUMBERS.len()],
    }
}
