//! From a plan's figure to panels.

mod delays;
mod distribution;
mod sizes;
mod time;

use crate::chart::{Kind, Panel, Point, Series};
use crate::evaluation::CellResult;
use crate::plan::axis::{self, Axis};
use crate::plan::{Figure, Plan, Shape};
use std::collections::BTreeMap;

/// The panels of a figure, of the cells that were run; none when none was.
#[must_use]
pub fn panels(figure: &Figure, plan: &Plan, cells: &[CellResult]) -> Vec<Panel> {
    let chosen: Vec<&CellResult> = cells.iter().filter(|r| r.cell.is_in(&figure.of)).collect();
    match figure.shape {
        Shape::Ccdf => {
            return chosen.first().map_or_else(Vec::new, |cell| distribution::panels(cell));
        }
        Shape::Timeline => return chosen.first().map_or_else(Vec::new, |cell| time::panels(cell)),
        Shape::Sizes => return sizes::panels(figure, &chosen),
        Shape::Delays => return delays::panels(figure, &chosen),
        Shape::Lines | Shape::Bars => {}
    }
    let (Some(x), Some(series)) = (axis::named(&figure.x), axis::named(&figure.series)) else {
        return Vec::new();
    };
    let split = figure.panels.as_deref().and_then(axis::named);
    let mut groups: BTreeMap<Place, Vec<&CellResult>> = BTreeMap::new();
    for result in chosen {
        let value = split.and_then(|axis| result.cell.values.get(axis.name));
        let place = Place::of(split, value.map_or("", String::as_str));
        groups.entry(place).or_default().push(result);
    }
    let mut panels: Vec<Panel> = groups
        .into_iter()
        .map(|(place, cells)| {
            let title = match split {
                Some(axis) => format!("{} {}", axis.title, shown(axis, &place.text)),
                None => String::new(),
            };
            panel(figure, plan, x, series, &title, &cells)
        })
        .collect();
    if figure.log {
        // decades compare across panels only on one axis
        let ranges: Vec<(f64, f64)> = panels.iter().filter_map(Panel::range).collect();
        let low = ranges.iter().map(|r| r.0).fold(f64::INFINITY, f64::min);
        let high = ranges.iter().map(|r| r.1).fold(f64::NEG_INFINITY, f64::max);
        panels.iter_mut().for_each(|panel| panel.reach = Some((low, high)));
    }
    panels
}

/// A value and where it stands among the others.
#[derive(Debug, Clone, PartialEq)]
struct Place {
    rank: f64,
    text: String,
}

impl Place {
    fn of(axis: Option<&Axis>, text: &str) -> Self {
        Self { rank: axis.map_or(0.0, |axis| axis.rank(text)), text: text.to_owned() }
    }
}

impl Eq for Place {}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Place {
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
    let place = |axis: &Axis, result: &CellResult| {
        Place::of(Some(axis), result.cell.values.get(axis.name).map_or("", String::as_str))
    };
    let mut xs: Vec<Place> = cells.iter().map(|result| place(x, result)).collect();
    xs.sort();
    xs.dedup();
    let lines = figure.shape == Shape::Lines;
    let x_of = |place: &Place| {
        let index = xs.iter().position(|other| other == place).unwrap_or(0) as f64;
        if lines { x.number(&place.text).unwrap_or(index) } else { index }
    };
    let mut series: BTreeMap<Place, Vec<Point>> = BTreeMap::new();
    for result in cells {
        series.entry(place(by, result)).or_default().push(Point {
            x: x_of(&place(x, result)),
            y: result.median,
            interval: result.interval.map(|i| (i.low, i.high)),
        });
    }
    let series = series.into_iter().enumerate().map(|(nth, (place, mut points))| {
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Series { name: shown(by, &place.text), style: style(by, &place.text, nth), points }
    });
    let measure = plan.measure_of(&figure.of.part);
    let unit =
        if lines && !x.unit().is_empty() { format!(", {}", x.unit()) } else { String::new() };
    Panel {
        title: title.to_owned(),
        x_title: format!("{}{unit}", x.title),
        y_title: format!("{}, {}", measure.name, measure.unit),
        kind: if lines { Kind::Lines } else { Kind::Bars },
        log: figure.log,
        ticks: xs
            .iter()
            .map(|place| {
                let number = if lines { x.number(&place.text) } else { None };
                let text = number.map_or_else(|| shown(x, &place.text), |n| n.to_string());
                (x_of(place), text)
            })
            .collect(),
        series: series.collect(),
        reach: None,
        marks: Vec::new(),
        gap: f64::INFINITY,
        wide: false,
    }
}

/// The colour and mark of a series: a word keeps its own in all figures, numbers go by their place among
/// each other.
pub(super) fn style(by: &Axis, value: &str, nth: usize) -> usize {
    const NUMBERS: [usize; 6] = [5, 3, 4, 2, 1, 0];
    match by.kind {
        axis::Kind::Word(_) => (by.rank(value) as usize).min(5),
        _ => NUMBERS[nth % NUMBERS.len()],
    }
}

/// A value as a person reads it.
#[must_use]
pub fn shown(axis: &Axis, value: &str) -> String {
    match (axis.name, value) {
        ("peer", "none") => "un-split".to_owned(),
        ("congestion", "reno") => "New Reno".to_owned(),
        ("congestion", word @ ("cubic" | "bbr")) => word.to_uppercase(),
        // there is no room for its digit beside a line
        ("way", "hysteria2") => "hysteria".to_owned(),
        ("scheme", "1" | "2" | "3" | "4") => format!("({value})"),
        ("lossy", word) => word.replace('-', " "),
        ("mtu" | "lan-mtu", number) => {
            match number.split_at_checked(number.len().saturating_sub(3)) {
                Some((thousands, rest)) if !thousands.is_empty() => format!("{thousands},{rest} B"),
                _ => format!("{number} B"),
            }
        }
        ("up-queue", "droptail") => "FIFO".to_owned(),
        ("up-queue", "ack-first") => "ACKs first".to_owned(),
        _ => value.to_owned(),
    }
}
