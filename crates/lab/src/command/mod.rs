//! `ekiden lab`: list, run, record, report. Text goes to standard output, progress to standard error.

mod medians;
pub mod record;

use crate::engine::Engine;
use crate::evaluation::{Evaluation, short};
use crate::plan::{self, Choice, Plan};
use crate::report::{self, Written};
use crate::runner::progress::{Screen, words};
use crate::runner::{Batch, Done, Options};
use crate::study::Study;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What `ekiden lab run` was asked.
#[derive(Debug, Clone, Default)]
pub struct Run {
    /// A plan's name or file.
    pub experiment: String,
    /// Which engine; `None`: the plan's first.
    pub engine: Option<String>,
    /// How the batch is run; its folder and its end are set here.
    pub options: Options,
    /// How many runs beside each other; `None`: as many as the engine bears.
    pub jobs: Option<usize>,
    /// Results go to `OUT/NAME/ENGINE/`; `None`: `results/NAME/ENGINE/`.
    pub out: Option<PathBuf>,
    /// One JSON document instead of text.
    pub json: bool,
}

/// What is to be printed, and how it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// For standard output.
    pub text: String,
    /// Nothing that was to be run is left, and every figure that the plan asks for exists.
    pub complete: bool,
    /// No figure or claim that is asserted fails. A published one that fails is a finding, not a failed run.
    pub holds: bool,
}

impl Answer {
    /// Text that asserts nothing.
    pub(crate) const fn of(text: String) -> Self {
        Self { text, complete: true, holds: true }
    }
}

/// Makes an engine of this name for a study; several are asked for to run beside each other.
pub type Engines<'a> =
    dyn Fn(&str, &'static dyn Study) -> Result<Box<dyn Engine + Send>, String> + 'a;

/// `ekiden lab list`. Errors: an embedded plan has a mistake.
pub fn list(as_json: bool) -> Result<Answer, String> {
    let plans = plan::all().map_err(|error| error.to_string())?;
    let count = |plan: &Plan, quick| {
        let cells = plan.cells(&Choice { quick, ..Choice::default() });
        (cells.len(), cells.iter().map(|(_, n)| *n as usize).sum::<usize>())
    };
    if as_json {
        let one = |plan: &Plan| {
            let ((cells, runs), (quick_cells, quick_runs)) =
                (count(plan, false), count(plan, true));
            let parts: Vec<Value> =
                plan.parts.iter().map(|p| json!({ "name": p.name, "title": p.title })).collect();
            json!({
                "name": plan.name, "title": plan.title, "source": plan.source,
                "engines": plan.engines, "parts": parts, "cells": cells, "runs": runs,
                "quick_cells": quick_cells, "quick_runs": quick_runs,
            })
        };
        let document = json!({ "experiments": plans.iter().map(one).collect::<Vec<_>>() });
        return Ok(Answer::of(format!("{document:#}\n")));
    }
    let mut text = String::new();
    for plan in &plans {
        let ((cells, runs), (_, quick)) = (count(plan, false), count(plan, true));
        text += &format!(
            "{}  {}\n    engines: {}; {cells} cells, {runs} runs, {quick} with --quick\n",
            plan.name,
            plan.title,
            plan.engines.join(", ")
        );
        for part in &plan.parts {
            text += &format!("    {:<10} {}\n", part.name, part.title);
        }
    }
    text += "\nekiden lab run NAME --quick is the shortest way to a report.\n";
    Ok(Answer::of(text))
}

/// `ekiden lab run NAME`.
pub fn run(asked: &Run, engines: &Engines<'_>, stop: Arc<AtomicBool>) -> Result<Answer, String> {
    let plan = plan::find(&asked.experiment).map_err(|error| error.to_string())?;
    let engine = engine_of(&plan, asked.engine.as_deref())?;
    check_choice(&plan, &asked.options.choice)?;
    let first = engines(&engine, plan.study)?;
    let most = first.most_jobs();
    let jobs = asked.jobs.unwrap_or(most).max(1);
    if jobs > most {
        return Err(format!(
            "--jobs {jobs}: engine `{engine}` measures real time and can run only {most} at once without \
             disturbing them"
        ));
    }
    let base = asked.out.clone().unwrap_or_else(|| PathBuf::from("results"));
    let folder = base.join(&plan.name).join(&engine);
    let options = Options { folder: folder.clone(), stop, ..asked.options.clone() };
    let batch = Batch::open(&plan, options, first.as_ref()).map_err(|error| error.to_string())?;
    let mut made = vec![first];
    for _ in 1..jobs {
        made.push(engines(&engine, plan.study)?);
    }
    let reasons: BTreeSet<&String> = batch.lacks.values().collect();
    for why in reasons {
        let count = batch.lacks.values().filter(|other| *other == why).count();
        eprintln!("ekiden lab: {count} cells skipped: {why}");
    }
    if let Some(why) = &batch.differs {
        eprintln!("ekiden lab: {why}");
    }
    if batch.kept() > 0 {
        eprintln!(
            "ekiden lab: {} runs are kept from before, {} are left",
            batch.kept(),
            batch.left()
        );
    }
    let done = batch.run(&mut made, &Screen::default()).map_err(|error| error.to_string())?;
    drop(made);
    let written = report::write(&plan, &folder).map_err(|error| error.to_string())?;
    Ok(answer(&plan, &written, Some(&done), asked.json))
}

/// `ekiden lab report DIR`: rewrites all from the rows in `folder`, or in its sub-folders of several engines.
pub fn report(folder: &Path, plan: Option<&str>, as_json: bool) -> Result<Answer, String> {
    let kept = crate::runner::journal::read(folder).map_err(|error| error.to_string())?;
    let Some(kept) = kept else {
        let engines = report::engines_in(folder);
        if let Some(first) = engines.first() {
            return together(folder, plan, first, &engines, as_json);
        }
        return Err(format!(
            "there are no rows in {}; `ekiden lab run NAME` writes them to results/NAME/ENGINE",
            folder.display()
        ));
    };
    let plan = plan::find(plan.unwrap_or(&kept.identity.experiment))
        .map_err(|e| format!("{e}; give the plan of these rows with --plan FILE"))?;
    let mut plans = kept.earlier.iter().map(|(identity, _)| identity).chain([&kept.identity]);
    if plans.any(|identity| identity.plan != plan.hash) {
        eprintln!(
            "ekiden lab: the plan has changed since; rows of cells it no longer has are left out"
        );
    }
    let written = report::write(&plan, folder).map_err(|error| error.to_string())?;
    Ok(answer(&plan, &written, None, as_json))
}

fn together(
    folder: &Path,
    plan: Option<&str>,
    first: &str,
    engines: &[String],
    as_json: bool,
) -> Result<Answer, String> {
    let kept = crate::runner::journal::read(&folder.join(first));
    let kept = kept.map_err(|error| error.to_string())?;
    let named = kept.map(|kept| kept.identity.experiment).unwrap_or_default();
    let plan = plan::find(plan.unwrap_or(&named))
        .map_err(|e| format!("{e}; give the plan of these rows with --plan FILE"))?;
    let written = report::write_together(&plan, folder, engines);
    let written = written.map_err(|error| error.to_string())?;
    let complete = written.iter().all(|written| written.evaluation.unknown.is_empty());
    let holds = written.iter().all(|written| written.evaluation.failing() == 0);
    if as_json {
        let summaries: Vec<_> = written.iter().map(|written| &written.summary).collect();
        let text = format!("{:#}\n", json!({ "engines": summaries }));
        return Ok(Answer { text, complete, holds });
    }
    let names = engines.iter().map(String::as_str);
    let ran: Vec<_> = names.zip(written.iter().map(|w| &w.evaluation)).collect();
    let page = folder.join("report.html");
    let text = format!("{}\nreport: {}\n", report::together::text(&plan, &ran), page.display());
    Ok(Answer { text, complete, holds })
}

/// The running program: its version and its own digest, because a version under development says little.
/// Errors: the program's file cannot be read.
pub fn version(message: &str) -> std::io::Result<String> {
    let mut hash = Sha256::new();
    let mut program = std::fs::File::open(std::env::current_exe()?)?;
    let mut part = vec![0; 1 << 16];
    loop {
        match program.read(&mut part)? {
            0 => break,
            long => hash.update(&part[..long]),
        }
    }
    let digest: String = hash.finalize().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{message} ({digest})"))
}

fn engine_of(plan: &Plan, asked: Option<&str>) -> Result<String, String> {
    let Some(name) = asked else {
        let first = plan.engines.first().cloned();
        return first.ok_or_else(|| format!("plan `{}` names no engine", plan.name));
    };
    if plan.engines.iter().any(|engine| engine == name) {
        return Ok(name.to_owned());
    }
    Err(format!("experiment `{}` runs on {}, not on `{name}`", plan.name, plan.engines.join(", ")))
}

/// A misspelt peer or part would silently leave everything out.
fn check_choice(plan: &Plan, choice: &Choice) -> Result<(), String> {
    let cells = plan.cells(&Choice::default());
    for peer in &choice.peers {
        let known: BTreeSet<&str> =
            cells.iter().filter_map(|(cell, _)| cell.text(plan::PEER).ok()).collect();
        if !known.contains(peer.as_str()) {
            let known: Vec<&str> = known.into_iter().filter(|name| *name != "none").collect();
            let there = if known.is_empty() { "no relays".to_owned() } else { known.join(", ") };
            return Err(format!("--peers {peer}: experiment `{}` has {there}", plan.name));
        }
    }
    for part in &choice.only {
        if plan.part(part).is_none() {
            let names: Vec<&str> = plan.parts.iter().map(|part| part.name.as_str()).collect();
            return Err(format!(
                "--only {part}: the parts of `{}` are {}",
                plan.name,
                names.join(", ")
            ));
        }
    }
    Ok(())
}

fn answer(plan: &Plan, written: &Written, done: Option<&Done>, as_json: bool) -> Answer {
    let left = done.map_or(0, |done| done.left);
    let given_up = done.map_or(0, |done| done.given_up);
    let failing = written.evaluation.failing();
    let complete = written.evaluation.unknown.is_empty() && left == 0 && given_up == 0;
    let holds = failing == 0;
    if as_json {
        let text = serde_json::to_string_pretty(&written.summary).unwrap_or_default() + "\n";
        return Answer { text, complete, holds };
    }
    let mut text = if plan.published.is_empty() {
        medians::medians(plan, &written.evaluation)
    } else {
        published(&written.evaluation)
    };
    text += &claims(&written.evaluation);
    text.extend(written.evaluation.tables.iter().map(|table| table.text()));
    for unknown in &written.evaluation.unknown {
        text += &format!("\nUNKNOWN FIGURE: {unknown}\n");
    }
    let seconds = words(written.summary.seconds);
    text += &format!("\n{} cells, all runs together {seconds}.\n", written.evaluation.cells.len());
    let notes = [
        (failing, "asserted figures or claims do not hold"),
        (
            written.evaluation.open(),
            "figures or claims of the plan were not measured; the report lists them",
        ),
        (
            written.evaluation.elsewhere(),
            "figures or claims concern another engine alone; the report lists them",
        ),
        (left, "runs are left; the same command resumes them"),
        (given_up, "runs failed in every attempt; the report has the reasons"),
        (done.map_or(0, |done| done.tainted), "runs are marked tainted: their links were late"),
        (written.evaluation.missing, "cells of the plan were not run"),
        (written.unreadable, "rows could not be parsed"),
    ];
    for (count, what) in notes.iter().filter(|(count, _)| *count > 0) {
        text += &format!("{count} {what}.\n");
    }
    text += &format!("report: {}\n", written.page.display());
    Answer { text, complete, holds }
}

fn published(evaluation: &Evaluation) -> String {
    let mut lines = vec![["", "published", "measured", "unit", ""].map(str::to_owned)];
    for judged in &evaluation.rows {
        let Some(measured) = judged.measured.filter(|_| judged.is_asked) else { continue };
        let verdict = match judged.holds {
            Some(true) => "holds".to_owned(),
            Some(false) => {
                let miss = judged.row.expectation.miss(measured);
                format!("DOES NOT HOLD: {}", miss.unwrap_or_default())
            }
            None if judged.is_too_few => "reported: too few runs".to_owned(),
            None => "reported".to_owned(),
        };
        lines.push([
            judged.row.name.clone(),
            judged.row.published.map_or("–".to_owned(), crate::chart::scale::label),
            short(judged.measured),
            judged.row.unit.clone(),
            verdict,
        ]);
    }
    let wide = |n: usize| lines.iter().map(|line| line[n].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..5).map(wide).collect();
    let mut text = String::new();
    for [name, published, measured, unit, verdict] in &lines {
        let line = format!(
            "{name:<0$}  {published:>1$}  {measured:>2$}  {unit:<3$}  {verdict}",
            widths[0], widths[1], widths[2], widths[3]
        );
        text += &format!("{}\n", line.trim_end());
    }
    text
}

/// What else was expected, and whether it holds.
fn claims(evaluation: &Evaluation) -> String {
    let mut text = String::new();
    for decided in
        evaluation.claims.iter().filter(|decided| decided.is_measured && decided.is_asked)
    {
        let verdict = match decided.holds {
            Some(true) => "holds",
            Some(false) => "DOES NOT HOLD",
            None if !decided.asserted => "reported",
            None => "open",
        };
        text += &format!("\n{verdict}: {}\n  {}\n", decided.claim.text, decided.evidence);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::{evaluate, tests};

    #[test]
    fn the_answer_fits_a_terminal() {
        let evaluation = evaluate(&tests::plan(), &tests::kept(tests::rows()));
        insta::assert_snapshot!(published(&evaluation) + &claims(&evaluation));
    }

    #[test]
    fn does_not_judge_claims_of_another_engine() {
        let text = include_str!("../runner/sample.toml");
        let both = text.replace("[\"made-up\"]", "[\"made-up\", \"other\"]");
        let row = "low = 200\nhigh = 400\n";
        let claim = "text = \"ekiden is at least as fast as the faster of squid and dante\"\n";
        let of_other = |part: &str| format!("{part}asserted = [\"other\"]\n");
        let both = both.replace(row, &of_other(row)).replace(claim, &of_other(claim));
        let plan = plan::parse("sample.toml", &both).unwrap();
        let evaluation = evaluate(&plan, &tests::kept(tests::rows()));
        assert!(!published(&evaluation).contains("squid"), "{}", published(&evaluation));
        assert_eq!(claims(&evaluation), "");
        assert_eq!((evaluation.failing(), evaluation.open(), evaluation.elsewhere()), (0, 0, 2));
    }
}
