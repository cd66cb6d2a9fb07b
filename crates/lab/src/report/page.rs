//! `report.html`: the answer first, then the figures, then everything needed to doubt it.

use super::{cells, figures};
use crate::chart::scale::label;
use crate::chart::{self, escape};
use crate::evaluation::tables::Filled;
use crate::evaluation::{Decided, Evaluation, Judged, Short, summary};
use crate::plan::{Figure, Plan, Table};
use crate::runner::journal::{Begin, Kept};
use crate::runner::progress::words;
use std::fmt::Write;

pub(super) const STYLE: &str = include_str!("style.css");

pub(super) fn page(plan: &Plan, kept: &Kept, evaluation: &Evaluation) -> String {
    let title = escape(&plan.title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}{}</style></head><body><main>\n",
        chart::STYLE
    );
    head(plan, kept, evaluation, &mut out);
    published(evaluation, &mut out);
    parts(plan, evaluation, &mut out);
    conditions(plan, kept, evaluation, &mut out);
    out.push_str("</main></body></html>\n");
    out
}

fn add(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _infallible = out.write_fmt(text);
}

fn head(plan: &Plan, kept: &Kept, evaluation: &Evaluation, out: &mut String) {
    let machine = kept.begins.last().map(|begin| &begin.machine);
    let on = machine.map_or(String::new(), |m| {
        let memory = m.memory_kib as f64 / 1_048_576.0;
        format!("{} processors ({}), {memory:.0} GiB, Linux {}", m.cores, m.cpu, m.kernel)
    });
    add(
        out,
        format_args!(
            "<p class=\"muted\">experiment <b>{}</b> · engine <b>{}</b></p><h1>{}</h1><p class=\"lead\">{}</p>",
            escape(&plan.name),
            escape(&kept.identity.engine),
            escape(&plan.title),
            escape(&plan.replays)
        ),
    );
    let counted = |wanted: Option<bool>| {
        evaluation
            .rows
            .iter()
            .filter(|row| row.holds == wanted && (wanted.is_some() || row.asserted))
            .count()
    };
    let (yes, no, none) = (counted(Some(true)), counted(Some(false)), counted(None));
    let asserted = yes + no;
    let mut answer = if plan.published.is_empty() {
        String::new()
    } else if asserted == 0 {
        "No published figure that is asserted was measured.".to_owned()
    } else {
        format!("<b>{yes} of {asserted}</b> published figures hold here")
            + &(if no > 0 {
                format!("; <b>{no}</b> {} not", if no == 1 { "does" } else { "do" })
            } else {
                String::new()
            })
            + &(if none > 0 { format!("; {none} were not measured.") } else { ".".to_owned() })
    };
    if evaluation.missing > 0 || !evaluation.failed.is_empty() {
        let all = evaluation.cells.len() + evaluation.missing + evaluation.failed.len();
        answer += &format!("<br>{} of {all} cells of the plan were run", evaluation.cells.len());
        if !evaluation.failed.is_empty() {
            answer += &format!("; {} failed every time", evaluation.failed.len());
        }
        answer.push('.');
    }
    for unknown in &evaluation.unknown {
        answer += &format!("<br><b>Unknown figure</b>: {}.", escape(unknown));
    }
    for (why, count) in &evaluation.lacking {
        answer += &format!("<br>{count} cells are left out: {}.", escape(why));
    }
    add(
        out,
        format_args!(
            "<div class=\"answer\">{}{}<p class=\"muted\">{} runs on {}. Source: {}.</p></div>",
            if answer.is_empty() { answer } else { format!("<p class=\"lead\">{answer}</p>") },
            claims(evaluation),
            kept.rows.len(),
            escape(&on),
            escape(&plan.source)
        ),
    );
}

fn published(evaluation: &Evaluation, out: &mut String) {
    if evaluation.rows.is_empty() {
        return;
    }
    out.push_str(
        "<h2>Published beside measured</h2><div class=\"scroll\"><table class=\"published\"><thead><tr><th>What</th>\
         <th class=\"n\">published</th><th class=\"n\">measured</th><th class=\"n\">asked for</th><th>verdict</th>\
         <th>conditions and source</th></tr></thead><tbody>",
    );
    for judged in &evaluation.rows {
        let expectation = &judged.row.expectation;
        let unit = escape(&judged.row.unit);
        let figure = |value: f64| format!("{} {unit}", Short(value));
        let given = |value: f64| format!("{} {unit}", label(value));
        let asked = match (expectation.low, expectation.high) {
            (Some(low), Some(high)) => format!("{} … {}", label(low), given(high)),
            (Some(low), None) => format!("≥ {}", given(low)),
            (None, Some(high)) => format!("≤ {}", given(high)),
            (None, None) => "–".to_owned(),
        };
        let range = judged.interval.map_or(String::new(), |i| {
            format!("<small>{} … {}</small>", Short(i.low), Short(i.high))
        });
        let measured =
            judged.measured.map_or("–".to_owned(), |v| format!("<b>{}</b>{range}", figure(v)));
        add(
            out,
            format_args!(
                "<tr><td>{}</td><td class=\"n\" data-head=\"published\">{}</td><td class=\"n\" data-head=\"measured\">{measured}</td>\
             <td class=\"n\" data-head=\"asked for\">{asked}</td><td>{}</td><td class=\"muted\">{}<small>{}</small></td></tr>",
                escape(&judged.row.name),
                judged.row.published.map_or("in words".to_owned(), given),
                verdict_of(judged),
                escape(judged.lack.as_ref().unwrap_or(&judged.row.conditions)),
                escape(&judged.row.source)
            ),
        );
    }
    out.push_str("</tbody></table></div>");
}

const NOT_ASKED: &str = "<span class=\"verdict none\">not asked of this engine</span>";

fn verdict_of(judged: &Judged) -> &'static str {
    match (judged.holds, judged.within, judged.measured) {
        (Some(true), ..) => "<span class=\"verdict yes\">✓ holds</span>",
        (Some(false), ..) => "<span class=\"verdict no\">✗ does not hold</span>",
        (None, _, Some(_)) if !judged.is_asked => NOT_ASKED,
        (None, _, Some(_)) if judged.is_too_few => {
            "<span class=\"verdict none\">reported; too few runs</span>"
        }
        (None, _, None) => "<span class=\"verdict none\">not measured</span>",
        (None, Some(true), _) => "<span class=\"verdict none\">reported; would hold</span>",
        (None, Some(false), _) => "<span class=\"verdict none\">reported; would not</span>",
        (None, None, _) => "<span class=\"verdict none\">reported</span>",
    }
}

fn claims(evaluation: &Evaluation) -> String {
    let mut out = String::new();
    if evaluation.claims.is_empty() {
        return out;
    }
    out.push_str("<ul class=\"claims\">");
    for Decided { claim, asserted, is_asked, holds, evidence } in &evaluation.claims {
        let verdict = match holds {
            Some(true) => "<span class=\"verdict yes\">✓ holds</span>",
            Some(false) => "<span class=\"verdict no\">✗ does not hold</span>",
            None if !is_asked => NOT_ASKED,
            None if *asserted => "<span class=\"verdict none\">not measured</span>",
            None => "<span class=\"verdict none\">reported</span>",
        };
        add(
            &mut out,
            format_args!(
                "<li><span>{verdict}</span><span>{}<br><span class=\"muted\">{}</span></span></li>",
                capital(&claim.text),
                escape(evidence)
            ),
        );
    }
    out.push_str("</ul>");
    out
}

fn parts(plan: &Plan, evaluation: &Evaluation, out: &mut String) {
    for part in &plan.parts {
        if !evaluation.cells.iter().any(|result| result.cell.part == part.name) {
            continue;
        }
        add(
            out,
            format_args!(
                "<h2 id=\"{}\">{}</h2><p>{}</p>",
                escape(&part.name),
                escape(&part.title),
                escape(&part.about)
            ),
        );
        let of_part = |(_, wanted): &(_, &Table)| wanted.of.part == part.name;
        for (table, _) in evaluation.tables.iter().zip(&plan.tables).filter(of_part) {
            tabled(table, out);
        }
        for figure in plan.figures.iter().filter(|figure| figure.of.part == part.name) {
            draw(figure, plan, evaluation, out);
        }
        let measure = plan.measure_of(&part.name);
        add(
            out,
            format_args!(
                "<details><summary>All cells: {}, {}</summary>{}</details>",
                escape(&measure.name),
                escape(&measure.unit),
                cells::table(part, plan, evaluation)
            ),
        );
    }
}

fn tabled(table: &Filled, out: &mut String) {
    add(
        out,
        format_args!(
            "<figure><figcaption><b>{}</b>{}{}</figcaption><div class=\"scroll\"><table class=\"cells\"><thead><tr>",
            escape(&table.title),
            escape(&table.caption),
            if table.repeated { " Medians of the runs." } else { "" }
        ),
    );
    table
        .head
        .iter()
        .for_each(|word| add(out, format_args!("<th class=\"n\">{}</th>", escape(word))));
    out.push_str("</tr></thead><tbody>");
    for line in &table.lines {
        out.push_str("<tr>");
        for word in line.words() {
            add(out, format_args!("<td class=\"n\">{}</td>", escape(&word)));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div></figure>");
}

fn draw(figure: &Figure, plan: &Plan, evaluation: &Evaluation, out: &mut String) {
    let panels = figures::panels(figure, plan, &evaluation.cells);
    if panels.is_empty() {
        return;
    }
    let log = if figure.log { " Logarithmic axis." } else { "" };
    add(
        out,
        format_args!(
            "<figure><figcaption><b>{}</b>{}{log}</figcaption><div class=\"panels p{}\">",
            escape(&figure.title),
            escape(&figure.caption),
            if panels.iter().any(|panel| panel.wide) {
                "-stacked".to_owned()
            } else {
                panels.len().to_string()
            }
        ),
    );
    panels.iter().for_each(|panel| out.push_str(&panel.svg()));
    out.push_str("</div></figure>");
}

fn conditions(plan: &Plan, kept: &Kept, evaluation: &Evaluation, out: &mut String) {
    out.push_str("<h2>How it was measured</h2>");
    for note in &plan.notes {
        add(out, format_args!("<p>{}</p>", escape(note)));
    }
    out.push_str("<p>Intervals are percentile bootstraps of the median, 95 %. Peers of one condition ran side by side in shuffled order and on links with the same randomness; ratios are taken run by run and averaged geometrically, over the faster of the others by median.</p>");
    makers(kept, out);
    if let Some(begin) = kept.begins.last() {
        again(begin, kept, out);
    }
    fidelity(kept, evaluation, out);
    if !evaluation.failed.is_empty() {
        out.push_str("<h3>Cells that failed every time</h3><dl>");
        for (cell, why) in &evaluation.failed {
            add(out, format_args!("<dt>{}</dt><dd>{}</dd>", escape(&cell.key()), escape(why)));
        }
        out.push_str("</dl>");
    }
}

fn again(begin: &Begin, kept: &Kept, out: &mut String) {
    add(out, format_args!("<h3>To run it again</h3><pre>{}</pre>", escape(&begin.command)));
    let identity = &kept.identity;
    add(
        out,
        format_args!(
            "<h3>Machine and versions</h3><dl><dt>ekiden</dt><dd>{}</dd><dt>seed</dt><dd>{}</dd><dt>plan</dt><dd>{}</dd>\
         <dt>processor</dt><dd>{} × {}</dd><dt>kernel</dt><dd>{}</dd><dt>load before</dt><dd>{}</dd>",
            escape(&identity.version),
            identity.seed,
            escape(&identity.plan),
            begin.machine.cores,
            escape(&begin.machine.cpu),
            escape(&begin.machine.kernel),
            begin.machine.load
        ),
    );
    for (name, fact) in &begin.facts {
        add(out, format_args!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(fact)));
    }
    out.push_str("</dl>");
}

/// Rows that other versions made.
fn makers(kept: &Kept, out: &mut String) {
    let makers = summary::makers(kept);
    if makers.is_empty() {
        return;
    }
    out.push_str("<p>Rows of several versions of program or plan are kept here. Side by side ran what is of the same one; calibration, machine and command below are the last start's.</p><dl>");
    for maker in makers {
        let parts: Vec<String> = maker.parts.into_iter().collect();
        add(
            out,
            format_args!(
                "<dt>{} rows</dt><dd>ekiden {}, plan {}: {}</dd>",
                maker.rows,
                escape(&maker.version),
                escape(&maker.plan),
                escape(&parts.join(", "))
            ),
        );
    }
    out.push_str("</dl>");
}

fn fidelity(kept: &Kept, evaluation: &Evaluation, out: &mut String) {
    let failed = kept.rows.iter().filter(|row| row.failure.is_some()).count();
    let tainted: usize = evaluation.cells.iter().map(|result| result.tainted).sum();
    let noisy: usize = evaluation.cells.iter().map(|result| result.noisy).sum();
    let values: usize = evaluation.cells.iter().map(|result| result.runs.len()).sum();
    let took = words(kept.rows.iter().map(|row| row.seconds).sum());
    add(
        out,
        format_args!(
            "<h3>Fidelity</h3><p>{} attempts took {took}; {failed} failed. Of the {values} values used, \
         {noisy} come from links that were late now and then (noisy) and {tainted} from links that did not keep their time \
         (tainted, marked † in the tables).</p>",
            kept.rows.len()
        ),
    );
    if kept.unreadable > 0 {
        add(out, format_args!("<p>{} lines of rows could not be read.</p>", kept.unreadable));
    }
    let Some(begin) = kept.begins.last() else { return };
    let calibration = &begin.calibration;
    if !calibration.errors.is_empty() || !calibration.figures.is_empty() {
        out.push_str("<p>Links before the batch, measured against what was asked:</p><dl>");
        for (name, error) in &calibration.errors {
            add(out, format_args!("<dt>{}</dt><dd>{:+.2} %</dd>", escape(name), error * 100.0));
        }
        for (name, figure) in &calibration.figures {
            add(out, format_args!("<dt>{}</dt><dd>{}</dd>", escape(name), Short(*figure)));
        }
        out.push_str("</dl>");
    }
}

/// With a capital, as at the beginning of a sentence; a program's name keeps its own.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().collect::<String>());
    if text.starts_with("ekiden") {
        return escape(text);
    }
    escape(&(first.unwrap_or_default() + letters.as_str()))
}
