//! Lines over a numeric axis: bands for intervals, names at the lines' ends.

use super::{Area, Panel, Series, reach, text};

/// Names at the ends stand at least so far apart.
const APART: f64 = 13.0;

pub(super) fn draw(panel: &Panel, area: &Area, out: &mut String) {
    let (low, high) = reach(panel.ticks.iter().map(|(x, _)| *x)).unwrap_or((0.0, 0.0));
    let wide = (high - low).max(f64::MIN_POSITIVE);
    let inset = 10.0;
    let x_of =
        |x: f64| area.left + inset + (x - low) / wide * (area.right - area.left - 2.0 * inset);
    let mut free = f64::NEG_INFINITY;
    for (x, name) in &panel.ticks {
        let (place, half) = (x_of(*x), name.chars().count() as f64 * 3.2);
        if place - half > free {
            *out += &area.tick(place, name);
            free = place + half + 4.0;
        }
    }
    for series in &panel.series {
        let colour = format!("var(--s{})", series.style);
        match series.points.as_slice() {
            // the value that all others are seen against
            [one] => {
                let style =
                    format!("stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"4 4\"");
                *out += &area.across(area.y_of(one.y), &style);
            }
            points => {
                band(series, area, &x_of, &colour, out);
                let path = area.path(points.iter().map(|p| (x_of(p.x), p.y)));
                *out += &format!(
                    "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
                );
            }
        }
    }
    *out += &area.marks(panel, x_of);
    names(panel, area, out);
}

fn band(series: &Series, area: &Area, x_of: &dyn Fn(f64) -> f64, colour: &str, out: &mut String) {
    let ends = series.points.iter().filter_map(|p| p.interval.map(|(low, high)| (p.x, low, high)));
    let ends: Vec<(f64, f64, f64)> = ends.collect();
    if ends.len() < 2 {
        return;
    }
    let there = ends.iter().map(|(x, _, high)| (x_of(*x), *high));
    let path = area.path(there.chain(ends.iter().rev().map(|(x, low, _)| (x_of(*x), *low))));
    *out += &format!("<polygon points=\"{path}\" fill=\"{colour}\" opacity=\".16\"/>");
}

/// Names beside the last points, pushed apart where they would cover each other.
fn names(panel: &Panel, area: &Area, out: &mut String) {
    let mut ends: Vec<(f64, &Series)> = panel
        .series
        .iter()
        .filter_map(|series| Some((area.y_of(series.points.last()?.y), series)))
        .collect();
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let places = apart(&ends.iter().map(|(y, _)| *y).collect::<Vec<_>>(), area.top, area.bottom);
    for ((_, series), y) in ends.iter().zip(places) {
        let style = format!("style=\"fill:var(--s{});font-weight:600\"", series.style);
        *out += &text(&style, area.right + 5.0, y + 4.0, &series.name);
    }
}

/// Moves sorted places so that neighbours are [`APART`], staying within the panel.
fn apart(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut places = wanted.to_vec();
    let mut free = top;
    for place in &mut places {
        *place = place.max(free);
        free = *place + APART;
    }
    let mut limit = bottom;
    for (place, wanted) in places.iter_mut().rev().zip(wanted.iter().rev()) {
        // a crowd pushed down goes back up by half, so that it stands around what it names
        *place = f64::midpoint(*place, *wanted).min(limit);
        limit = *place - APART;
    }
    let mut free = top;
    for place in &mut places {
        *place = place.max(free);
        free = *place + APART;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_names_apart() {
        for wanted in [vec![100.0, 100.5, 101.0, 180.0], vec![50.0; 4], vec![225.0; 4]] {
            let places = apart(&wanted, 50.0, 226.0);
            assert!(places.windows(2).all(|p| p[1] - p[0] >= APART - 1e-9), "{places:?}");
        }
    }
}
