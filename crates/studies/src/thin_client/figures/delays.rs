//! Share of echoes or thin-client writes that take longer than x: a panel a place and kind, a curve a way.

use super::distribution::ccdf;
use ekiden_lab::cell::axis;
use ekiden_lab::chart::{Panel, PanelKind, Series};
use ekiden_lab::evaluation::CellResult;
use ekiden_lab::plan::Figure;
use ekiden_lab::report::figures::{AxisValue, style, with_histogram};
use std::collections::BTreeMap;

struct Drawn {
    histogram: &'static str,
    /// What is counted.
    what: &'static str,
    /// Seconds.
    ticks: &'static [f64],
    /// The rarest share that the counts bear.
    least: f64,
}

/// From half a second to ten: a long link's echo takes more than the one, and nobody waits for the other.
const ECHO: Drawn =
    Drawn { histogram: "echo", what: "echo", ticks: &[0.5, 0.7, 1.0, 2.0, 5.0, 10.0], least: 1e-3 };
const WRITES: &[f64] = &[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0];
const ALL: [Drawn; 3] = [
    ECHO,
    Drawn {
        histogram: "interactive end-to-end",
        what: "interactive write",
        ticks: WRITES,
        least: 1e-5,
    },
    Drawn { histogram: "bulk end-to-end", what: "bulk write", ticks: WRITES, least: 1e-5 },
];

pub(crate) fn panels(figure: &Figure, cells: &[&CellResult]) -> Vec<Panel> {
    ALL.iter().flat_map(|drawn| of(drawn, figure, cells)).collect()
}

fn of(drawn: &Drawn, figure: &Figure, cells: &[&CellResult]) -> Vec<Panel> {
    let Some(by) = axis::named(&figure.series) else { return Vec::new() };
    let split = figure.panels.as_deref().and_then(axis::named);
    let curve = |(nth, (place, cell)): (usize, (AxisValue, &CellResult))| Series {
        name: by.shown(&place.text),
        style: style(by, &place.text, nth),
        points: cell.histograms.get(drawn.histogram).map_or_else(Vec::new, ccdf),
    };
    let panel = |(place, cells): (AxisValue, BTreeMap<AxisValue, &CellResult>)| Panel {
        title: split
            .map_or_else(String::new, |axis| format!("{} {}", axis.title, axis.shown(&place.text))),
        x_title: format!("{}, s", drawn.what),
        y_title: "share above".to_owned(),
        kind: PanelKind::Curves,
        log: true,
        ticks: drawn.ticks.iter().map(|s| (s.log10(), s.to_string())).collect(),
        series: cells.into_iter().enumerate().map(curve).collect(),
        reach: Some((drawn.least, 1.0)),
        ..Panel::default()
    };
    with_histogram(figure, cells, drawn.histogram).into_iter().map(panel).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{figure, result};

    #[test]
    fn draws_a_curve_for_each_way_with_echoes() {
        crate::register();
        let cells = ["ekiden", "cubic"].map(|way| {
            let mut cell = result(&[("way", way), ("loss", "5 %")]);
            let counts = [(600_000_000, 99), (2_000_000_000, 1)].into();
            cell.histograms.insert(ECHO.histogram.to_owned(), counts);
            cell
        });
        let figure = figure("delays", "", "way", Some("loss"));
        let drawn = panels(&figure, &cells.iter().collect::<Vec<_>>());
        let [panel] = drawn.as_slice() else { panic!("{} panels", drawn.len()) };
        assert_eq!(panel.title, "loss 5 %");
        let names: Vec<&str> = panel.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["cubic", "ekiden"]);
        let last = panel.series[0].points.last().unwrap();
        assert!((last.y - 0.01).abs() < 1e-9 && (last.x - 2_f64.log10()).abs() < 1e-9);
        assert!(panel.svg().contains("polyline"));
    }
}
