//! Share of delays that are longer: a panel a kind of write, a curve a part of the way.
//!
//! The axes are always those of the study's Figs. 5, 7 and 8: 10⁻⁵ … 10¹ s, 1 … 10⁻⁶. A histogram's class
//! stands at its floor, at most 1/16 below what was counted; a curve begins with the share beyond the axis' low
//! end.

use ekiden_lab::chart::scale::power;
use ekiden_lab::chart::{Panel, PanelKind, Point, Series};
use ekiden_lab::evaluation::{CellResult, Short};
use std::collections::BTreeMap;

const DECADES: (i32, i32) = (-5, 1);
const LEAST: f64 = 1e-6;
/// A histogram is named by kind and part.
const KINDS: [&str; 2] = ["interactive", "bulk"];
const PARTS: [(&str, usize); 4] = [("server", 1), ("router", 2), ("client", 4), ("end-to-end", 3)];

pub(crate) fn panels(cell: &CellResult) -> Vec<Panel> {
    if cell.histograms.is_empty() {
        return Vec::new();
    }
    let alone = KINDS.map(|kind| panel(cell, kind, &[kind], Some(kind)));
    std::iter::once(panel(cell, "all", &KINDS, None)).chain(alone).collect()
}

fn panel(cell: &CellResult, title: &str, kinds: &[&str], kind: Option<&str>) -> Panel {
    let series = PARTS.iter().filter_map(|(part, style)| {
        let mut sum: BTreeMap<u64, u64> = BTreeMap::new();
        for kind in kinds {
            for (floor, count) in
                cell.histograms.get(&format!("{kind} {part}")).into_iter().flatten()
            {
                *sum.entry(*floor).or_default() += count;
            }
        }
        let points = ccdf(&sum);
        (!points.is_empty()).then(|| Series { name: (*part).to_owned(), style: *style, points })
    });
    let ticks = (DECADES.0..=DECADES.1).map(|n| (f64::from(n), power(n)));
    Panel {
        title: format!("{title}{}", counts(cell, kind)),
        x_title: "delay, s".to_owned(),
        y_title: "share above".to_owned(),
        kind: PanelKind::Curves,
        log: true,
        ticks: ticks.collect(),
        series: series.collect(),
        reach: Some((LEAST, 1.0)),
        ..Panel::default()
    }
}

/// Time-outs and repairs per connection, means over the repetitions, as the study prints them.
fn counts(cell: &CellResult, kind: Option<&str>) -> String {
    let mean = |figure: Option<String>| {
        let values = cell.values_of(figure.as_deref())?;
        Some(values.iter().sum::<f64>() / values.len().max(1) as f64)
    };
    let rto = mean(kind.map(|kind| format!("rto_{kind}")));
    let dup = mean(Some(kind.map_or("dup".to_owned(), |kind| format!("dup_{kind}"))));
    match (rto, dup) {
        (Some(rto), Some(dup)) => format!(": RTO {}, dup {}", Short(rto), Short(dup)),
        _ => String::new(),
    }
}

/// log₁₀ of seconds, and which share of values is not shorter; within the axes.
pub(crate) fn ccdf(classes: &BTreeMap<u64, u64>) -> Vec<Point> {
    let all: u64 = classes.values().sum();
    let point = |x: f64, share: f64| Point { x, y: share, interval: None };
    let mut points = Vec::new();
    let mut left = all;
    for (floor, count) in classes {
        let x = (*floor as f64 / 1e9).log10();
        let share = left as f64 / all as f64;
        left -= count;
        if x < f64::from(DECADES.0) {
            continue;
        }
        if points.is_empty() {
            points.push(point(f64::from(DECADES.0), share));
        }
        if x > f64::from(DECADES.1) || share < LEAST {
            break;
        }
        points.push(point(x, share));
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begins_a_curve_with_the_share_beyond_the_axis() {
        // 0 ns six times, 1 ms three times, 1 s once
        let classes = [(0, 6), (1_000_000, 3), (1_000_000_000, 1)].into();
        let points: Vec<(f64, f64)> = ccdf(&classes).iter().map(|p| (p.x, p.y)).collect();
        assert_eq!(points, [(-5.0, 0.4), (-3.0, 0.4), (0.0, 0.1)]);
    }

    #[test]
    fn ends_a_curve_below_the_axis() {
        let classes = [(1_000_000, 9_999_999), (2_000_000, 1)].into();
        assert_eq!(ccdf(&classes).len(), 2);
        let classes = [(0, 5)].into();
        assert!(ccdf(&classes).is_empty() && ccdf(&BTreeMap::new()).is_empty());
    }
}
