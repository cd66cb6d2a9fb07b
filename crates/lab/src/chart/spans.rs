//! Spans of time in rows, one below the other, in the colours of their series, with vertical lines at events.

use super::{Area, Panel, bars, reach};

/// Between two rows, as a share of a row.
const BETWEEN: f64 = 0.2;
/// What takes no time is still seen, in pixels.
const LEAST: f64 = 0.6;

/// How many rows there are.
pub(super) fn rows(panel: &Panel) -> f64 {
    let rows = panel.series.iter().flat_map(|series| &series.points).map(|point| point.y + 1.0);
    rows.fold(1.0, f64::max)
}

pub(super) fn draw(panel: &Panel, area: &Area, out: &mut String) {
    bars::legend(panel, out);
    let (low, high) = reach(panel.ticks.iter().map(|(x, _)| *x)).unwrap_or((0.0, 1.0));
    let wide = (high - low).max(f64::MIN_POSITIVE);
    let x_of = |x: f64| area.left + ((x - low) / wide).clamp(0.0, 1.0) * (area.right - area.left);
    for (x, name) in &panel.ticks {
        *out += &(area.tick(x_of(*x), name) + &area.upright(x_of(*x), "class=\"g\""));
    }
    let row = (area.bottom - area.top) / rows(panel);
    let thick = row * (1.0 - BETWEEN);
    for series in &panel.series {
        let mut path = String::new();
        for point in &series.points {
            let Some((from, to)) = point.interval else { continue };
            let y = area.top + (point.y + BETWEEN / 2.0) * row;
            let (from, to) = (x_of(from), x_of(to));
            let long = (to - from).max(LEAST);
            path += &format!("M{from:.1} {y:.1}h{long:.1}v{thick:.1}h-{long:.1}z");
        }
        *out += &format!("<path d=\"{path}\" fill=\"var(--s{})\"/>", series.style);
    }
    for mark in panel.marks.iter().filter(|mark| (low..=high).contains(*mark)) {
        let style = "stroke=\"var(--s5)\" stroke-width=\"1.2\" stroke-dasharray=\"4 3\"";
        *out += &area.upright(x_of(*mark), style);
    }
}
