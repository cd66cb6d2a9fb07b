//! Grouped bars, or marks on a logarithmic axis, with whiskers for intervals and values where there is room.

use super::{Area, Panel, TOP, mark, text};
use crate::evaluation::Short;

/// A bar as wide as this has its value above it.
const ROOM: f64 = 27.0;

pub(super) fn draw(panel: &Panel, area: &Area, out: &mut String) {
    legend(panel, out);
    let groups = panel.ticks.len().max(1) as f64;
    let group = (area.right - area.left) / groups;
    let bar = (group * 0.82 / panel.series.len().max(1) as f64).min(34.0);
    for (n, (x, name)) in panel.ticks.iter().enumerate() {
        let middle = area.left + (n as f64 + 0.5) * group;
        *out += &area.tick(middle, name);
        // a group without one of the series stays centred
        let present: Vec<_> = panel
            .series
            .iter()
            .filter_map(|s| Some((s, s.points.iter().find(|p| p.x.total_cmp(x).is_eq())?)))
            .collect();
        let begin = middle - bar * present.len() as f64 / 2.0;
        for (n, (series, point)) in present.into_iter().enumerate() {
            let left = begin + n as f64 * bar;
            let top = area.y_of(point.y);
            if panel.log {
                // a logarithmic axis has no zero for a bar to begin at
                out.push_str(&mark(series.style, left + bar / 2.0, top));
            } else {
                *out += &format!(
                    "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"var(--s{})\"/>",
                    left + 0.75,
                    bar - 1.5,
                    (area.bottom - top).max(0.5),
                    series.style
                );
            }
            let mut above = top;
            if let Some((low, high)) = point.interval {
                let (x, low, high) = (left + bar / 2.0, area.y_of(low), area.y_of(high));
                above = above.min(high);
                *out += &format!(
                    "<path class=\"w\" d=\"M{x:.1} {low:.1}V{high:.1}M{a:.1} {high:.1}H{b:.1}M{a:.1} {low:.1}H{b:.1}\" fill=\"none\"/>",
                    a = x - 3.0,
                    b = x + 3.0
                );
            }
            if bar >= ROOM {
                let y = above - if panel.log { 8.0 } else { 4.0 };
                let centred = "class=\"v\" text-anchor=\"middle\"";
                *out += &text(centred, left + bar / 2.0, y, &Short(point.y).to_string());
            }
        }
    }
}

/// Names with their colour, in the order of the bars, right of the y axis' name, or above it where that leaves no room.
pub(super) fn legend(panel: &Panel, out: &mut String) {
    const SQUARE: f64 = 24.0;
    let wide = |text: &str| text.chars().count() as f64 * 6.4;
    let all: f64 = panel.series.iter().map(|series| wide(&series.name) + SQUARE).sum();
    let mut x = panel.size().0 - 4.0;
    let up = if all + wide(&panel.y_title) > x && panel.title.is_empty() { 18.0 } else { 0.0 };
    for series in panel.series.iter().rev() {
        x -= wide(&series.name);
        *out += &format!(
            "<rect x=\"{:.1}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"var(--s{})\"/>",
            x - 14.0,
            TOP - 18.0 - up,
            series.style
        );
        *out += &text("class=\"m\"", x, TOP - 9.0 - up, &series.name);
        x -= SQUARE;
    }
}
