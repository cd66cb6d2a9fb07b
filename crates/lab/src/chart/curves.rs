//! Curves of many points in colours and dashes, with a legend and vertical lines at events.

use super::{Area, Panel, bars, reach};

const DASHES: [&str; 4] = ["2 3", "7 3", "", "9 3 2 3"];

pub(super) fn draw(panel: &Panel, area: &Area, out: &mut String) {
    bars::legend(panel, out);
    let (low, high) = reach(panel.ticks.iter().map(|(x, _)| *x)).unwrap_or((0.0, 0.0));
    let wide = (high - low).max(f64::MIN_POSITIVE);
    let x_of = |x: f64| area.left + ((x - low) / wide).clamp(0.0, 1.0) * (area.right - area.left);
    for (x, name) in &panel.ticks {
        *out += &(area.tick(x_of(*x), name) + &area.upright(x_of(*x), "class=\"g\""));
    }
    for mark in panel.marks.iter().filter(|mark| (low..=high).contains(*mark)) {
        let style = "stroke=\"var(--s5)\" stroke-width=\"1.2\" opacity=\".8\"";
        *out += &area.upright(x_of(*mark), style);
    }
    for series in &panel.series {
        for run in series.points.chunk_by(|a, b| panel.gap.is_none_or(|gap| b.x - a.x <= gap)) {
            if let [only] = run {
                *out += &format!(
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"1.5\" fill=\"var(--s{})\"/>",
                    x_of(only.x),
                    area.y_of(only.y),
                    series.style
                );
                continue;
            }
            *out += &format!(
                "<polyline points=\"{}\" fill=\"none\" stroke=\"var(--s{})\" stroke-width=\"1.8\" stroke-dasharray=\"{}\"/>",
                area.path(run.iter().map(|p| (x_of(p.x), p.y))),
                series.style,
                DASHES.get((series.style + 3) % 4).unwrap_or(&"")
            );
        }
    }
}
