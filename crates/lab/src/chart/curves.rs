//! Curves of many points: told apart by colour and dashes, named in a legend, with lines upright where
//! something happened.

use super::{Area, Panel, bars, put};

const DASHES: [&str; 4] = ["2 3", "7 3", "", "9 3 2 3"];

pub(super) fn draw(panel: &Panel, area: &Area, out: &mut String) {
    bars::legend(panel, out);
    let xs = || panel.ticks.iter().map(|(x, _)| *x);
    let low = xs().fold(f64::INFINITY, f64::min);
    let high = xs().fold(f64::NEG_INFINITY, f64::max);
    let wide = (high - low).max(f64::MIN_POSITIVE);
    let x_of = |x: f64| area.left + ((x - low) / wide).clamp(0.0, 1.0) * (area.right - area.left);
    for (x, text) in &panel.ticks {
        area.tick(x_of(*x), text, out);
        put(
            out,
            format_args!(
                "<line class=\"g\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{}\"/>",
                area.top,
                area.bottom,
                x = x_of(*x)
            ),
        );
    }
    for mark in panel.marks.iter().filter(|mark| (low..=high).contains(*mark)) {
        put(
            out,
            format_args!(
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{}\" stroke=\"var(--s5)\" stroke-width=\"1.2\" opacity=\".8\"/>",
                area.top,
                area.bottom,
                x = x_of(*mark)
            ),
        );
    }
    for series in &panel.series {
        for run in series.points.chunk_by(|a, b| b.x - a.x <= panel.gap) {
            if let [only] = run {
                put(
                    out,
                    format_args!(
                        "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"1.5\" fill=\"var(--s{})\"/>",
                        x_of(only.x),
                        area.y_of(only.y),
                        series.style
                    ),
                );
                continue;
            }
            let path: Vec<String> =
                run.iter().map(|p| format!("{:.1},{:.1}", x_of(p.x), area.y_of(p.y))).collect();
            put(
                out,
                format_args!(
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"var(--s{})\" stroke-width=\"1.8\" stroke-dasharray=\"{}\"/>",
                    path.join(" "),
                    series.style,
                    DASHES.get((series.style + 3) % 4).unwrap_or(&"")
                ),
            );
        }
    }
}
