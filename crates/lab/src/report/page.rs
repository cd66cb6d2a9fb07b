//! `report.html`: the answer first, then the figures, then everything needed to doubt it.

use super::{cells, figures};
use crate::chart::scale::label;
use crate::chart::{self, escape};
use crate::engine::sim;
use crate::evaluation::tables::Filled;
use crate::evaluation::{Decided, Evaluation, Judged, Short, summary};
use crate::plan::{Asserted, Choice, Figure, Part, Plan, Table};
use crate::runner::journal::{Begin, Kept};
use crate::runner::progress::words;

pub(super) fn begin(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{}{}</style></head><body><main>\n",
        include_str!("style.css"),
        chart::STYLE
    )
}

/// The page.
pub fn html(plan: &Plan, kept: &Kept, evaluation: &Evaluation) -> String {
    let mut out = begin(&escape(&plan.title));
    head(plan, kept, evaluation, &mut out);
    published(evaluation, &mut out);
    parts(plan, &kept.identity.engine, evaluation, &mut out);
    conditions(plan, kept, evaluation, &mut out);
    out.push_str("</main></body></html>\n");
    out
}

fn head(plan: &Plan, kept: &Kept, evaluation: &Evaluation, out: &mut String) {
    let machine = kept.begins.last().map(|begin| &begin.machine);
    let on = machine.map_or(String::new(), |m| {
        let memory = m.memory_kib as f64 / 1_048_576.0;
        format!("{} processors ({}), {memory:.0} GiB, Linux {}", m.cores, m.cpu, m.kernel)
    });
    *out += &format!(
        "<p class=\"muted\">experiment <b>{}</b> · engine <b>{}</b>{}</p><h1>{}</h1><p class=\"lead\">{}</p>",
        escape(&plan.name),
        escape(&kept.identity.engine),
        if kept.identity.engine == sim::NAME { SIMULATED } else { "" },
        escape(&plan.title),
        escape(&plan.replays)
    );
    let asserted = || evaluation.rows.iter().filter(|row| row.asserted);
    let counted = |wanted: Option<bool>| asserted().filter(|row| row.holds == wanted).count();
    let (yes, no, none) = (counted(Some(true)), counted(Some(false)), counted(None));
    let asserted = yes + no;
    let mut answer = if plan.published.is_empty() {
        String::new()
    } else if asserted == 0 {
        "No published figure that is asserted was measured.".to_owned()
    } else {
        let failed = match no {
            0 => String::new(),
            no => format!("; <b>{no}</b> {} not", if no == 1 { "does" } else { "do" }),
        };
        let open = if none > 0 { format!("; {none} were not measured") } else { String::new() };
        format!("<b>{yes} of {asserted}</b> published figures hold here{failed}{open}.")
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
    *out += &format!(
        "<div class=\"answer\">{}{}<p class=\"muted\">{} runs on {}. Source: {}.</p></div>",
        if answer.is_empty() { answer } else { format!("<p class=\"lead\">{answer}</p>") },
        claims(evaluation),
        kept.rows.len(),
        escape(&on),
        escape(&plan.source)
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
        *out += &format!(
            "<tr><td>{}</td><td class=\"n\" data-head=\"published\">{}</td><td class=\"n\" data-head=\"measured\">{measured}</td>\
             <td class=\"n\" data-head=\"asked for\">{asked}</td><td>{}</td><td class=\"muted\">{}<small>{}</small></td></tr>",
            escape(&judged.row.name),
            judged.row.published.map_or("in words".to_owned(), given),
            verdict_of(judged),
            escape(judged.lack.as_ref().unwrap_or(&judged.row.conditions)),
            escape(&judged.row.source)
        );
    }
    out.push_str("</tbody></table></div>");
}

fn elsewhere(asserted: &Asserted) -> String {
    format!("<span class=\"verdict none\">{}</span>", escape(&asserted.elsewhere()))
}

fn verdict_of(judged: &Judged) -> String {
    let verdict = match (judged.holds, judged.within, judged.measured) {
        (Some(true), ..) => "<span class=\"verdict yes\">✓ holds</span>",
        (Some(false), ..) => "<span class=\"verdict no\">✗ does not hold</span>",
        _ if !judged.is_asked => return elsewhere(&judged.row.asserted),
        (None, _, Some(_)) if judged.is_too_few => {
            "<span class=\"verdict none\">reported; too few runs</span>"
        }
        (None, _, None) => "<span class=\"verdict none\">not measured</span>",
        (None, Some(true), _) => "<span class=\"verdict none\">reported; would hold</span>",
        (None, Some(false), _) => "<span class=\"verdict none\">reported; would not</span>",
        (None, None, _) => "<span class=\"verdict none\">reported</span>",
    };
    verdict.to_owned()
}

fn claims(evaluation: &Evaluation) -> String {
    let mut out = String::new();
    if evaluation.claims.is_empty() {
        return out;
    }
    out.push_str("<ul class=\"claims\">");
    for Decided { claim, asserted, is_asked, holds, evidence, .. } in &evaluation.claims {
        let verdict = match holds {
            Some(true) => "<span class=\"verdict yes\">✓ holds</span>".to_owned(),
            Some(false) => "<span class=\"verdict no\">✗ does not hold</span>".to_owned(),
            None if !is_asked => elsewhere(&claim.asserted),
            None if *asserted => "<span class=\"verdict none\">not measured</span>".to_owned(),
            None => "<span class=\"verdict none\">reported</span>".to_owned(),
        };
        out += &format!(
            "<li><span>{verdict}</span><span>{}<br><span class=\"muted\">{}</span></span></li>",
            capital(&claim.text),
            escape(evidence)
        );
    }
    out.push_str("</ul>");
    out
}

/// Where a plan's words are about programs, and none of them ran.
const SIMULATED: &str =
    ", on virtual time: connections, kernels and programs that are named here are its models";

/// Where fewer runs were made than the plan's words speak of.
fn fewer(plan: &Plan, part: &Part, engine: &str, evaluation: &Evaluation) -> String {
    let choice = Choice {
        only: vec![part.name.clone()],
        engine: Some(engine.to_owned()),
        ..Choice::default()
    };
    let wanted = plan.cells(&choice).iter().map(|(_, wanted)| *wanted as usize).max();
    let of_part = evaluation.cells.iter().filter(|result| result.cell.part == part.name);
    match (of_part.map(|result| result.runs.len()).max(), wanted) {
        (Some(made), Some(wanted)) if made < wanted => {
            format!(" <b>Here: {made} of the {wanted} repetitions of the plan.</b>")
        }
        _ => String::new(),
    }
}

fn parts(plan: &Plan, engine: &str, evaluation: &Evaluation, out: &mut String) {
    for part in &plan.parts {
        if !evaluation.cells.iter().any(|result| result.cell.part == part.name) {
            continue;
        }
        *out += &format!(
            "<h2 id=\"{}\">{}</h2><p>{}{}</p>",
            escape(&part.name),
            escape(&part.title),
            escape(&part.about),
            fewer(plan, part, engine, evaluation)
        );
        // one of another engine has no lines
        let of_part = |(filled, wanted): &(&Filled, &Table)| {
            wanted.of.part == part.name && !filled.lines.is_empty()
        };
        for (table, _) in evaluation.tables.iter().zip(&plan.tables).filter(of_part) {
            tabled(table, out);
        }
        for figure in plan.figures.iter().filter(|figure| figure.of.part == part.name) {
            draw(figure, plan, evaluation, out);
        }
        let measure = plan.measure_of(&part.name);
        *out += &format!(
            "<details><summary>All cells: {}, {}</summary>{}</details>",
            escape(&measure.name),
            escape(&measure.unit),
            cells::table(part, plan, evaluation)
        );
    }
}

fn tabled(table: &Filled, out: &mut String) {
    *out += &format!(
        "<figure><figcaption><b>{}</b>{}{}</figcaption><div class=\"scroll\"><table class=\"cells\"><thead><tr>",
        escape(&table.title),
        escape(&table.caption),
        if table.repeated { " Medians of the runs." } else { "" }
    );
    table.head.iter().for_each(|word| *out += &format!("<th class=\"n\">{}</th>", escape(word)));
    out.push_str("</tr></thead><tbody>");
    for line in &table.lines {
        out.push_str("<tr>");
        for word in line.words() {
            *out += &format!("<td class=\"n\">{}</td>", escape(&word));
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
    *out += &format!(
        "<figure><figcaption><b>{}</b>{}{log}</figcaption><div class=\"panels p{}\">",
        escape(&figure.title),
        escape(&figure.caption),
        if panels.iter().any(|panel| panel.wide) {
            "-stacked".to_owned()
        } else {
            panels.len().to_string()
        }
    );
    panels.iter().for_each(|panel| out.push_str(&panel.svg()));
    out.push_str("</div></figure>");
}

fn conditions(plan: &Plan, kept: &Kept, evaluation: &Evaluation, out: &mut String) {
    out.push_str("<h2>How it was measured</h2>");
    for note in &plan.notes {
        *out += &format!("<p>{}</p>", escape(note));
    }
    out.push_str("<p>Intervals are percentile bootstraps of the median, 95 %. Peers of one condition ran side by side in shuffled order and on links with the same randomness; ratios are taken run by run and averaged geometrically, over the faster of the others by median.</p>");
    makers(kept, out);
    if let Some(begin) = kept.begins.last() {
        again(begin, kept, out);
    }
    fidelity(kept, evaluation, out);
    if !evaluation.failed.is_empty() {
        let failed = evaluation.failed.iter().map(|(cell, why)| (cell.key(), why.clone()));
        *out += &format!("<h3>Cells that failed every time</h3>{}", list(failed));
    }
}

fn again(begin: &Begin, kept: &Kept, out: &mut String) {
    *out += &format!("<h3>To run it again</h3><pre>{}</pre>", escape(&begin.command));
    let (identity, machine) = (&kept.identity, &begin.machine);
    let own = [
        ("ekiden", identity.version.clone()),
        ("seed", identity.seed.to_string()),
        ("plan", identity.plan.clone()),
        ("processor", format!("{} × {}", machine.cores, machine.cpu)),
        ("kernel", machine.kernel.clone()),
        ("load before", machine.load.to_string()),
    ];
    let facts = begin.facts.iter().map(|(name, fact)| (name.as_str(), fact.clone()));
    *out += &format!("<h3>Machine and versions</h3>{}", list(own.into_iter().chain(facts)));
}

fn list<T: AsRef<str>>(pairs: impl Iterator<Item = (T, String)>) -> String {
    let one = |(term, what): (T, String)| {
        format!("<dt>{}</dt><dd>{}</dd>", escape(term.as_ref()), escape(&what))
    };
    format!("<dl>{}</dl>", pairs.map(one).collect::<String>())
}

fn makers(kept: &Kept, out: &mut String) {
    let makers = summary::makers(kept);
    if makers.is_empty() {
        return;
    }
    out.push_str("<p>Rows of several versions of program or plan are kept here. Side by side ran what is of the same one; calibration, machine and command below are the last start's.</p>");
    let one = |maker: summary::Maker| {
        let parts: Vec<String> = maker.parts.into_iter().collect();
        let what = format!("ekiden {}, plan {}: {}", maker.version, maker.plan, parts.join(", "));
        (format!("{} rows", maker.rows), what)
    };
    *out += &list(makers.into_iter().map(one));
}

fn fidelity(kept: &Kept, evaluation: &Evaluation, out: &mut String) {
    let failed = kept.rows.iter().filter(|row| row.failure.is_some()).count();
    let tainted: usize = evaluation.cells.iter().map(|result| result.tainted).sum();
    let noisy: usize = evaluation.cells.iter().map(|result| result.noisy).sum();
    let values: usize = evaluation.cells.iter().map(|result| result.runs.len()).sum();
    let took = words(kept.rows.iter().map(|row| row.seconds).sum());
    *out += &format!(
        "<h3>Fidelity</h3><p>{} attempts took {took}; {failed} failed. Of the {values} values used, \
         {noisy} come from links that were late now and then (noisy) and {tainted} from links that did not keep their time \
         (tainted, marked † in the tables).</p>",
        kept.rows.len()
    );
    if kept.unreadable > 0 {
        *out += &format!("<p>{} rows could not be parsed.</p>", kept.unreadable);
    }
    let Some(begin) = kept.begins.last() else { return };
    let calibration = &begin.calibration;
    if !calibration.errors.is_empty() || !calibration.figures.is_empty() {
        out.push_str("<p>Links before the batch, measured against what was asked:</p>");
        let errors =
            calibration.errors.iter().map(|(name, e)| (name, format!("{:+.2} %", e * 100.0)));
        let figures = calibration.figures.iter().map(|(name, f)| (name, Short(*f).to_string()));
        *out += &list(errors.chain(figures));
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
