//! One page for all engines of an experiment: published, measured and closed form, and where two engines
//! differ.

use super::figures::style;
use crate::cell::axis;
use crate::chart::scale::label;
use crate::chart::{self, Panel, PanelKind, Point, Series, escape};
use crate::evaluation::{CellResult, Evaluation, closed_form, short, tables};
use crate::plan::{Plan, Published};
use std::collections::BTreeMap;

/// An engine's name and what it found.
pub type Ran<'a> = (&'a str, &'a Evaluation);

struct Line<'a> {
    row: &'a Published,
    measured: Vec<Option<f64>>,
    closed_form: Option<f64>,
}

fn lines<'a>(plan: &'a Plan, engines: &[Ran<'_>]) -> Vec<Line<'a>> {
    let line = |(n, row): (usize, &'a Published)| {
        let of = |(_, e): &Ran<'_>| e.rows.get(n).and_then(|judged| judged.measured);
        // any engine that has all its cells will do: the formulas look at what was asked alone
        let computed = |(_, e): &Ran<'_>| closed_form::of(plan.study, &row.expectation, &e.cells);
        Line {
            row,
            measured: engines.iter().map(of).collect(),
            closed_form: engines.iter().find_map(computed),
        }
    };
    plan.published.iter().enumerate().map(line).collect()
}

/// For a terminal.
pub fn text(plan: &Plan, engines: &[Ran<'_>]) -> String {
    let mut all = vec![head(engines)];
    all.extend(lines(plan, engines).iter().map(Line::words));
    tables::columns(&all, 1)
}

fn head(engines: &[Ran<'_>]) -> Vec<String> {
    let names = engines.iter().map(|(name, _)| *name);
    let all = ["", "published"].into_iter().chain(names).chain(["closed form", "unit"]);
    all.map(str::to_owned).collect()
}

impl Line<'_> {
    fn words(&self) -> Vec<String> {
        let short = |value: &Option<f64>| short(*value);
        let published = self.row.published.map_or("–".to_owned(), label);
        let measured = self.measured.iter().chain([&self.closed_form]).map(short);
        let name = [self.row.name.clone(), published].into_iter();
        name.chain(measured).chain([self.row.unit.clone()]).collect()
    }
}

/// The page.
pub fn page(plan: &Plan, engines: &[Ran<'_>]) -> String {
    let title = escape(&plan.title);
    let mut out = format!(
        "{}<p class=\"muted\">experiment <b>{}</b> · all engines</p><h1>{title}</h1><p class=\"lead\">{}</p>\
         <h2>Published, measured and computed</h2><div class=\"scroll\"><table class=\"cells\"><thead><tr>",
        super::page::begin(&title),
        escape(&plan.name),
        escape(&plan.replays)
    );
    let cell = |tag: &str, n: usize, word: &str| {
        let class = if n == 0 { "" } else { " class=\"n\"" };
        format!("<{tag}{class}>{}</{tag}>", escape(word))
    };
    let row = |tag: &str, words: &[String]| -> String {
        words.iter().enumerate().map(|(n, word)| cell(tag, n, word)).collect()
    };
    out += &row("th", &head(engines));
    out.push_str("</tr></thead><tbody>");
    for line in lines(plan, engines) {
        out += &format!("<tr>{}</tr>", row("td", &line.words()));
    }
    out.push_str("</tbody></table></div><p class=\"muted\">The closed form counts handshakes, slow start, the window and the mean window under loss; it has no queue and no time-out; of a thin uplink it is the model of ACKs. A dash: not measured, or out of the formulas' reach (BBR, loss by super-packet).</p>");
    for (n, one) in engines.iter().enumerate() {
        for other in engines.iter().skip(n + 1) {
            scatter(plan, *one, *other, &mut out);
        }
    }
    out.push_str("<h2>Each engine by itself</h2><ul>");
    for (name, _) in engines {
        out += &format!("<li><a href=\"{0}/report.html\">{0}</a></li>", escape(name));
    }
    out.push_str("</ul></main></body></html>\n");
    out
}

fn scatter(plan: &Plan, (x, one): Ran<'_>, (y, other): Ran<'_>, out: &mut String) {
    let common: Vec<(&CellResult, f64)> = one
        .cells
        .iter()
        .filter_map(|a| Some((a, other.cells.iter().find(|b| b.cell == a.cell)?.median)))
        .filter(|(a, b)| a.median > 0.0 && *b > 0.0)
        .collect();
    if common.is_empty() {
        return;
    }
    let close = common.iter().filter(|(a, b)| (b / a.median - 1.0).abs() <= 0.15).count();
    let paired = axis::named(&plan.paired);
    let mut series: BTreeMap<String, Series> = BTreeMap::new();
    for (result, median) in &common {
        let value = result.cell.values.get(&plan.paired).map_or("", String::as_str);
        let nth = series.keys().position(|known| known == value).unwrap_or(series.len());
        let style = paired.map_or(0, |axis| style(axis, value, nth));
        let name = paired.map_or_else(|| value.to_owned(), |axis| axis.shown(value));
        let new = || Series { name, style, points: Vec::new() };
        let point = Point { x: result.median, y: *median, interval: None };
        series.entry(value.to_owned()).or_insert_with(new).points.push(point);
    }
    let values = common.iter().flat_map(|(a, b)| [a.median, *b]);
    let mut series: Vec<Series> = series.into_values().collect();
    series.sort_by_key(|series| series.style);
    let panel = Panel {
        x_title: format!("{x}, {}", plan.measure.unit),
        y_title: format!("{y}, {}", plan.measure.unit),
        kind: PanelKind::Scatter,
        log: true,
        series,
        reach: chart::reach(values),
        ..Panel::default()
    };
    *out += &format!(
        "<figure><figcaption><b>{} over {}</b>Each cell that both ran, by its medians: {close} of {} lie within 15 %, the band. Logarithmic axes.</figcaption><div class=\"panels p1\">{}</div></figure>",
        escape(y),
        escape(x),
        common.len(),
        panel.svg()
    );
}
