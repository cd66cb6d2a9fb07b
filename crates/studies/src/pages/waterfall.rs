//! What a browser waited for: a panel a way, a row an object, and lines at the floor and the first paint.

use crate::pages::outcome::{FLOOR, PAINT, PHASES};
use ekiden_lab::cell::axis;
use ekiden_lab::chart::scale::label;
use ekiden_lab::chart::{Panel, PanelKind, Point, Series, reach};
use ekiden_lab::evaluation::{CellResult, Short};
use ekiden_lab::plan::Figure;
use ekiden_lab::report::figures::AxisValue;

/// Of the phases.
const STYLES: [usize; 3] = [2, 0, 3];

/// The first repetition of each cell, one panel below the other on one axis.
pub(super) fn panels(figure: &Figure, cells: &[&CellResult]) -> Vec<Panel> {
    let Some(by) = axis::named(&figure.series) else { return Vec::new() };
    let has = |cell: &&&CellResult| PHASES.iter().all(|name| cell.series.contains_key(*name));
    let mut cells: Vec<&CellResult> = cells.iter().filter(has).copied().collect();
    cells.sort_by_key(|result| AxisValue::of(Some(by), &result.cell));
    let ends = cells.iter().flat_map(|result| result.series.values().flatten().flatten().copied());
    let Some((_, last)) = reach(ends) else { return Vec::new() };
    let step = [0.5, 1.0, 2.0, 5.0, 10.0].into_iter().find(|step| last / step <= 14.0);
    let step = step.unwrap_or(20.0);
    let count = (last / step).ceil() as u32;
    let ticks: Vec<(f64, String)> =
        (0..=count).map(|n| f64::from(n) * step).map(|at| (at, label(at))).collect();
    let panel = |result: &&CellResult| {
        let way = by.shown(&AxisValue::of(Some(by), &result.cell).text);
        let first = |name: &str| result.runs_of(Some(name))?.first().map(|(_, value)| *value);
        let upright: Vec<(&str, f64)> = [("first paint", PAINT), ("floor", FLOOR)]
            .into_iter()
            .filter_map(|(name, figure)| Some((name, first(figure)?)))
            .collect();
        let told = upright.iter().map(|(name, at)| format!("{name} {}", Short(*at)));
        let took = result.runs.first().map_or(result.median, |(_, value)| *value);
        Panel {
            title: format!("{way}: last response after {} s", Short(took)),
            x_title: format!("s; upright: {}", told.collect::<Vec<_>>().join(", ")),
            kind: PanelKind::Spans,
            ticks: ticks.clone(),
            series: PHASES
                .iter()
                .zip(STYLES)
                .map(|(name, style)| phase(result, name, style))
                .collect(),
            marks: upright.iter().map(|(_, at)| *at).collect(),
            wide: true,
            ..Panel::default()
        }
    };
    cells.iter().map(panel).collect()
}

fn phase(result: &CellResult, name: &str, style: usize) -> Series {
    let spans = result.series.get(name).map_or(&[][..], Vec::as_slice).iter().enumerate();
    let point = |(row, [from, to]): (usize, &[f64; 2])| {
        let row = row as f64;
        Point { x: *from, y: row, interval: Some((*from, *to)) }
    };
    Series { name: name.to_owned(), style, points: spans.map(point).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_share_one_axis_and_rows_follow_the_objects() {
        crate::register();
        let of = |way: &str, last: f64| {
            let mut result = crate::tests::result(&[("way", way)]);
            for name in PHASES {
                result.series.insert(name.to_owned(), vec![[0.0, 1.0], [1.0, last]]);
            }
            result.runs = vec![(0, last)];
            result.figures.insert(FLOOR.to_owned(), vec![(0, 1.5)]);
            result
        };
        let (slow, fast) = (of("hysteria2", 9.0), of("ekiden", 4.0));
        let bare = crate::tests::result(&[("way", "bbr")]);
        let figure = crate::tests::figure("waterfall", "pages", "way", None);
        let panels = panels(&figure, &[&slow, &bare, &fast]);
        let titles: Vec<&str> = panels.iter().map(|panel| panel.title.as_str()).collect();
        assert!(titles[0].starts_with("ekiden") && titles[1].contains("9.00 s"), "{titles:?}");
        assert_eq!((panels.len(), &panels[0].ticks), (2, &panels[1].ticks));
        assert_eq!(
            (&*panels[0].marks, &*panels[0].x_title),
            (&[1.5][..], "s; upright: floor 1.50")
        );
        let receiving = &panels[0].series[2].points;
        assert_eq!((receiving[1].y, receiving[1].interval), (1.0, Some((1.0, 4.0))));
        let svg = panels[0].svg();
        assert_eq!(svg.matches("<path").count(), 3, "one path a phase: {svg}");
    }
}
