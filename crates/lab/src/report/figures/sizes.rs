//! Mean response times over the size of what was asked for: seed 2's figures.

use super::{Place, shown};
use crate::chart::{Kind, Panel, Point, Series};
use crate::evaluation::CellResult;
use crate::plan::Figure;
use crate::plan::axis;
use std::collections::BTreeMap;

/// A mean of fewer documents says nothing.
const FEWEST: u64 = 10;
/// Decades of document sizes: 100 B … 100 MB.
const DECADES: std::ops::RangeInclusive<i32> = 2..=8;
const NAMES: [&str; 7] = ["100 B", "1 kB", "10 kB", "100 kB", "1 MB", "10 MB", "100 MB"];
/// Classes are thirds of decades; a point stands in the middle of its own.
const MIDDLE: f64 = 1.0 / 6.0;

/// The panels; none where no cell counts documents.
pub(super) fn panels(figure: &Figure, cells: &[&CellResult]) -> Vec<Panel> {
    let Some(by) = axis::named(&figure.series) else { return Vec::new() };
    let split = figure.panels.as_deref().and_then(axis::named);
    let value = |axis: &axis::Axis, cell: &CellResult| {
        cell.cell.values.get(axis.name).cloned().unwrap_or_default()
    };
    let mut groups: BTreeMap<Place, BTreeMap<Place, &CellResult>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.histograms.contains_key("documents")) {
        let panel = Place::of(split, &split.map_or(String::new(), |axis| value(axis, cell)));
        let series = Place::of(Some(by), &value(by, cell));
        groups.entry(panel).or_default().insert(series, cell);
    }
    let panel = |(place, cells): (Place, BTreeMap<Place, &CellResult>)| Panel {
        title: split.map_or_else(String::new, |axis| {
            format!("{} {}", shown(axis, &place.text), axis.title)
        }),
        x_title: "document size".to_owned(),
        y_title: "mean response time, s".to_owned(),
        kind: Kind::Curves,
        log: true,
        gap: f64::INFINITY,
        ticks: DECADES.zip(NAMES).map(|(n, name)| (f64::from(n), name.to_owned())).collect(),
        series: cells
            .into_iter()
            .map(|(place, cell)| Series {
                name: shown(by, &place.text),
                style: (place.rank as usize + 1).min(5),
                points: points(cell),
            })
            .collect(),
        reach: None,
        marks: Vec::new(),
        wide: false,
    };
    let mut panels: Vec<Panel> = groups.into_iter().map(panel).collect();
    let ranges: Vec<(f64, f64)> = panels.iter().filter_map(Panel::range).collect();
    let low = ranges.iter().map(|r| r.0).fold(f64::INFINITY, f64::min);
    let high = ranges.iter().map(|r| r.1).fold(f64::NEG_INFINITY, f64::max);
    panels.iter_mut().for_each(|panel| panel.reach = Some((low, high)));
    panels
}

fn points(cell: &CellResult) -> Vec<Point> {
    let (Some(counts), Some(times)) =
        (cell.histograms.get("documents"), cell.histograms.get("microseconds"))
    else {
        return Vec::new();
    };
    let well = counts.iter().filter(|(_, count)| **count >= FEWEST);
    well.map(|(from, count)| Point {
        x: (*from as f64).log10() + MIDDLE,
        y: times.get(from).copied().unwrap_or(0) as f64 / 1e6 / *count as f64,
        interval: None,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::{evaluate, tests};
    use crate::plan::{Selection, Shape};

    #[test]
    fn a_point_for_each_size_that_has_enough() {
        let mut cells = evaluate(&tests::plan(), &tests::kept(tests::rows())).cells;
        let figure = Figure {
            name: "response".into(),
            title: String::new(),
            caption: String::new(),
            shape: Shape::Sizes,
            x: String::new(),
            series: "peer".into(),
            panels: None,
            of: Selection { part: "row".into(), cells: BTreeMap::new() },
            log: true,
        };
        let first = cells.first_mut().unwrap();
        first.histograms.insert("documents".into(), [(1_000, 10), (2_000, 9), (5_000, 20)].into());
        first
            .histograms
            .insert("microseconds".into(), [(1_000, 5_000_000), (5_000, 60_000_000)].into());
        let chosen: Vec<&CellResult> = cells.iter().collect();
        let panels = panels(&figure, &chosen);
        let points = &panels[0].series[0].points;
        assert_eq!(points.len(), 2, "nine are too few: {points:?}");
        assert!((points[0].y - 0.5).abs() < 1e-9 && (points[1].y - 3.0).abs() < 1e-9);
        assert!((points[0].x - 3.0 - MIDDLE).abs() < 1e-9);
    }
}
