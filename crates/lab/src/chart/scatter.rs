//! One figure over another of the same unit, both axes logarithmic and alike: the line where they are
//! equal, and the band within which they agree.

use super::{Area, Panel, bars, mark, put, scale};

/// Half the width of the band, as a share: 15 %.
const BAND: f64 = 0.15;

pub(super) fn draw(panel: &Panel, area: &Area, out: &mut String) {
    bars::legend(panel, out);
    let x_of = |x: f64| area.left + area.y.share(x) * (area.right - area.left);
    for tick in area.y.ticks() {
        area.tick(x_of(tick), &scale::label(tick), out);
    }
    let (low, high) = area.y.ends();
    let at = |x: f64, y: f64| format!("{:.1},{:.1}", x_of(x), area.y_of(y));
    let (over, under) = (1.0 + BAND, 1.0 - BAND);
    // corners where the band leaves the panel, so that its edges stay straight
    let corners = [
        at(low, low),
        at(low, low * over),
        at(high / over, high),
        at(high, high),
        at(high, high * under),
        at(low / under, low),
    ];
    put(
        out,
        format_args!(
            "<polygon points=\"{}\" fill=\"var(--s0)\" opacity=\".18\"/>\
             <polyline points=\"{} {}\" fill=\"none\" stroke=\"var(--s0)\" stroke-width=\"1.2\"/>",
            corners.join(" "),
            at(low, low),
            at(high, high)
        ),
    );
    for series in &panel.series {
        for point in &series.points {
            out.push_str(&mark(series.style, x_of(point.x), area.y_of(point.y)));
        }
    }
}
