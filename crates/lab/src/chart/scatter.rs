//! One figure over another on equal logarithmic axes, with the line of equality and a band of agreement.

use super::{Area, Panel, bars, scale};

/// Half the width of the band, as a share: 15 %.
const BAND: f64 = 0.15;

pub(super) fn draw(panel: &Panel, area: &Area, out: &mut String) {
    bars::legend(panel, out);
    let x_of = |x: f64| area.left + area.y.share(x) * (area.right - area.left);
    for tick in area.y.ticks() {
        *out += &area.tick(x_of(tick), &scale::label(tick));
    }
    let (low, high) = area.y.ends();
    let (over, under) = (1.0 + BAND, 1.0 - BAND);
    // corners where the band leaves the panel, so that its edges stay straight
    let above = [(low, low), (low, low * over), (high / over, high)];
    let below = [(high, high), (high, high * under), (low / under, low)];
    let path = |points: &[(f64, f64)]| area.path(points.iter().map(|(x, y)| (x_of(*x), *y)));
    *out += &format!(
        "<polygon points=\"{}\" fill=\"var(--s0)\" opacity=\".18\"/>\
         <polyline points=\"{}\" fill=\"none\" stroke=\"var(--s0)\" stroke-width=\"1.2\"/>",
        path(&[above, below].concat()),
        path(&[(low, low), (high, high)])
    );
    *out += &area.marks(panel, x_of);
}
