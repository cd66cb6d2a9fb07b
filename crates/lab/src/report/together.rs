//! One page for all engines that ran an experiment: published, as each engine has it, and the closed
//! form; and where two engines differ, cell by cell.

use super::figures::{shown, style};
use crate::chart::scale::label;
use crate::chart::{self, Kind, Panel, Point, Series, escape};
use crate::evaluation::{CellResult, Evaluation, Short, closed_form};
use crate::plan::{Plan, Published, axis};
use std::collections::BTreeMap;
use std::fmt::Write;

/// An engine's name and what it found.
pub type Ran<'a> = (&'a str, &'a Evaluation);

/// A published row as all have it.
struct Line<'a> {
    row: &'a Published,
    measured: Vec<Option<f64>>,
    closed_form: Option<f64>,
}

fn lines<'a>(plan: &'a Plan, engines: &[Ran<'_>]) -> Vec<Line<'a>> {
    let line = |(n, row): (usize, &'a Published)| {
        let of = |(_, e): &Ran<'_>| e.rows.get(n).and_then(|judged| judged.measured);
        // any engine that has all its cells will do: the formulas look at what was asked alone
        let computed = |(_, e): &Ran<'_>| closed_form::of(&row.expectation, &e.cells);
        Line {
            row,
            measured: engines.iter().map(of).collect(),
            closed_form: engines.iter().find_map(computed),
        }
    };
    plan.published.iter().enumerate().map(line).collect()
}

/// For a terminal.
#[must_use]
pub fn text(plan: &Plan, engines: &[Ran<'_>]) -> String {
    let mut all = vec![head(engines)];
    all.extend(lines(plan, engines).iter().map(Line::words));
    let columns = engines.len() + 4;
    let wide = |n: usize| {
        let words = all.iter().filter_map(|line| line.get(n));
        words.map(|word| word.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(wide).collect();
    let mut text = String::new();
    for line in &all {
        for (n, (word, width)) in line.iter().zip(&widths).enumerate() {
            let _infallible = if n == 0 {
                write!(text, "{word:<width$}  ")
            } else {
                write!(text, "{word:>width$}  ")
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

fn head(engines: &[Ran<'_>]) -> Vec<String> {
    let names = engines.iter().map(|(name, _)| *name);
    let all = ["", "published"].into_iter().chain(names).chain(["closed form", "unit"]);
    all.map(str::to_owned).collect()
}

impl Line<'_> {
    fn words(&self) -> Vec<String> {
        let short = |value: &Option<f64>| value.map_or("–".to_owned(), |v| Short(v).to_string());
        let mut words = vec![self.row.name.clone()];
        words.push(self.row.published.map_or("–".to_owned(), label));
        words.extend(self.measured.iter().map(short));
        words.push(short(&self.closed_form));
        words.push(self.row.unit.clone());
        words
    }
}

/// The page.
#[must_use]
pub fn page(plan: &Plan, engines: &[Ran<'_>]) -> String {
    let title = escape(&plan.title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{}{}</style></head><body><main>\n\
         <p class=\"muted\">experiment <b>{}</b> · all engines</p><h1>{title}</h1><p class=\"lead\">{}</p>\
         <h2>Published, measured and computed</h2><div class=\"scroll\"><table class=\"cells\"><thead><tr>",
        super::page::STYLE,
        chart::STYLE,
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
        let _infallible = write!(out, "<tr>{}</tr>", row("td", &line.words()));
    }
    out.push_str("</tbody></table></div><p class=\"muted\">The closed form counts handshakes, slow start, the window and the mean window under loss; it has no queue and no time-out; of a thin uplink it is the model of ACKs. A dash: not measured, or out of the formulas' reach (BBR, loss by super-packet).</p>");
    for (n, one) in engines.iter().enumerate() {
        for other in engines.iter().skip(n + 1) {
            scatter(plan, *one, *other, &mut out);
        }
    }
    out.push_str("<h2>Each engine by itself</h2><ul>");
    for (name, _) in engines {
        let name = escape(name);
        let _infallible = write!(out, "<li><a href=\"{name}/report.html\">{name}</a></li>");
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
        let name = paired.map_or_else(|| value.to_owned(), |axis| shown(axis, value));
        let new = || Series { name, style, points: Vec::new() };
        let point = Point { x: result.median, y: *median, interval: None };
        series.entry(value.to_owned()).or_insert_with(new).points.push(point);
    }
    let values = || common.iter().flat_map(|(a, b)| [a.median, *b]);
    let mut series: Vec<Series> = series.into_values().collect();
    series.sort_by_key(|series| series.style);
    let panel = Panel {
        title: String::new(),
        x_title: format!("{x}, {}", plan.measure.unit),
        y_title: format!("{y}, {}", plan.measure.unit),
        kind: Kind::Scatter,
        log: true,
        ticks: Vec::new(),
        series,
        reach: Some((
            values().fold(f64::INFINITY, f64::min),
            values().fold(f64::NEG_INFINITY, f64::max),
        )),
        marks: Vec::new(),
        gap: f64::INFINITY,
        wide: false,
    };
    let _infallible = write!(
        out,
        "<figure><figcaption><b>{} over {}</b>Each cell that both ran, by its medians: {close} of {} lie within 15 %, the band. Logarithmic axes.</figcaption><div class=\"panels p1\">{}</div></figure>",
        escape(y),
        escape(x),
        common.len(),
        panel.svg()
    );
}
