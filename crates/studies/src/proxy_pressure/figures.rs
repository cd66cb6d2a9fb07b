//! Mean response times over the size of what was asked for: the proxy-pressure study's figures.

use ekiden_lab::cell::axis;
use ekiden_lab::chart::{Panel, PanelKind, Point, Series, share_reach};
use ekiden_lab::evaluation::CellResult;
use ekiden_lab::plan::Figure;
use ekiden_lab::report::figures::{AxisValue, with_histogram};
use std::collections::BTreeMap;

/// A mean of fewer documents is not drawn.
const FEWEST: u64 = 10;
/// Decades of document sizes: 100 B … 100 MB.
const DECADES: std::ops::RangeInclusive<i32> = 2..=8;
const NAMES: [&str; 7] = ["100 B", "1 kB", "10 kB", "100 kB", "1 MB", "10 MB", "100 MB"];
/// Classes are thirds of decades; a point stands in the middle of its own.
const MIDDLE: f64 = 1.0 / 6.0;

pub(crate) fn panels(figure: &Figure, cells: &[&CellResult]) -> Vec<Panel> {
    let Some(by) = axis::named(&figure.series) else { return Vec::new() };
    let split = figure.panels.as_deref().and_then(axis::named);
    let panel = |(place, cells): (AxisValue, BTreeMap<AxisValue, &CellResult>)| Panel {
        title: split
            .map_or_else(String::new, |axis| format!("{} {}", axis.shown(&place.text), axis.title)),
        x_title: "document size".to_owned(),
        y_title: "mean response time, s".to_owned(),
        kind: PanelKind::Curves,
        log: true,
        ticks: DECADES.zip(NAMES).map(|(n, name)| (f64::from(n), name.to_owned())).collect(),
        series: cells
            .into_iter()
            .map(|(place, cell)| Series {
                name: by.shown(&place.text),
                style: (place.rank as usize + 1).min(5),
                points: points(cell),
            })
            .collect(),
        ..Panel::default()
    };
    let mut panels: Vec<Panel> =
        with_histogram(figure, cells, "documents").into_iter().map(panel).collect();
    share_reach(&mut panels);
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
    use crate::tests::{figure, result};

    #[test]
    fn draws_only_sizes_with_enough_documents() {
        crate::register();
        let mut first = result(&[("peer", "squid")]);
        let figure = figure("sizes", "row", "peer", None);
        first.histograms.insert("documents".into(), [(1_000, 10), (2_000, 9), (5_000, 20)].into());
        first
            .histograms
            .insert("microseconds".into(), [(1_000, 5_000_000), (5_000, 60_000_000)].into());
        let panels = panels(&figure, &[&first]);
        let points = &panels[0].series[0].points;
        assert_eq!(points.len(), 2, "nine are too few: {points:?}");
        assert!((points[0].y - 0.5).abs() < 1e-9 && (points[1].y - 3.0).abs() < 1e-9);
        assert!((points[0].x - 3.0 - MIDDLE).abs() < 1e-9);
    }
}
