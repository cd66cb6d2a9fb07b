//! Values over time: panels one below the other on one axis, with a vertical line at each time-out.

use ekiden_lab::chart::scale::label;
use ekiden_lab::chart::{Panel, PanelKind, Point, Series, reach};
use ekiden_lab::evaluation::CellResult;

/// Heading, unit, whether logarithmic, and the series with names and styles. Time-outs double, so only a
/// logarithmic axis shows them beside the estimate.
type Row = (&'static str, &'static str, bool, &'static [(&'static str, &'static str, usize)]);
const ROWS: [Row; 3] = [
    ("congestion window", "segments", false, &[("cwnd_segments", "cwnd", 3)]),
    ("round trip and time-out", "ms", true, &[("srtt_ms", "srtt", 4), ("rto_ms", "RTO", 1)]),
    ("queueing delay", "ms", false, &[("queue_ms", "router", 2)]),
];

/// Samples further apart than this, in seconds, are not joined, because no values lie between.
const GAP: f64 = 1.0;

pub(crate) fn panels(cell: &CellResult) -> Vec<Panel> {
    let kept = |name: &str| cell.series.get(name).map_or(&[][..], Vec::as_slice);
    let named = ROWS.iter().flat_map(|(.., series)| *series).map(|(name, ..)| *name);
    let Some((low, high)) = reach(named.flat_map(kept).map(|[at, _]| *at)) else {
        return Vec::new();
    };
    let marks: Vec<f64> = kept("timeout").iter().map(|[at, _]| *at).collect();
    let (first, last) = ((low / 10.0).floor() as i32, (high / 10.0).ceil() as i32);
    let ticks: Vec<(f64, String)> =
        (first..=last.max(first + 1)).map(|n| f64::from(n) * 10.0).map(|t| (t, label(t))).collect();
    let row = |(title, unit, log, series): &Row| Panel {
        title: (*title).to_owned(),
        x_title: "time, s".to_owned(),
        y_title: (*unit).to_owned(),
        kind: PanelKind::Curves,
        log: *log,
        ticks: ticks.clone(),
        series: series
            .iter()
            .map(|(name, shown, style)| {
                let point = |[x, y]: &[f64; 2]| Point { x: *x, y: *y, interval: None };
                let points = kept(name).iter().map(point).collect();
                Series { name: (*shown).to_owned(), style: *style, points }
            })
            .collect(),
        marks: marks.clone(),
        gap: Some(GAP),
        wide: true,
        ..Panel::default()
    };
    ROWS.iter().map(row).collect()
}
