//! What a person opens: figures as SVG and one page that needs nothing else.

mod cells;
pub mod figures;
mod page;
pub mod together;

use crate::evaluation::{self, Evaluation, summary};
use crate::plan::Plan;
use crate::runner::journal;
pub use page::html;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The page.
    pub page: PathBuf,
    /// All that was found.
    pub evaluation: Evaluation,
    /// The document in `summary.json`.
    pub summary: summary::Summary,
    /// Lines of rows that could not be read.
    pub unreadable: usize,
}

/// Writes `summary.json`, `rows.csv`, the figures and `report.html` from the rows kept in `folder`. Errors:
/// there are no rows, or the folder cannot be written.
pub fn write(plan: &Plan, folder: &Path) -> io::Result<Written> {
    let Some(kept) = journal::read(folder)? else {
        let what = format!(
            "there are no rows in {}; `ekiden lab run {}` makes them",
            folder.display(),
            plan.name
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    };
    let evaluation = evaluation::evaluate(plan, &kept);
    let summary = summary::summary(&kept, &evaluation);
    replace(&folder.join("summary.json"), &(serde_json::to_string_pretty(&summary)? + "\n"))?;
    let mut csv = Vec::new();
    // one column for values of several units names none of them
    let one = plan.parts.iter().all(|part| part.measure.is_none());
    summary::csv(&kept.rows, if one { &plan.measure.unit } else { "" }, &mut csv)?;
    replace(&folder.join("rows.csv"), &String::from_utf8_lossy(&csv))?;
    for figure in &plan.figures {
        let panels = figures::panels(figure, plan, &evaluation.cells);
        if !panels.is_empty() {
            let text = crate::chart::figure(&figure.title, &panels);
            replace(&folder.join(format!("{}.svg", figure.name)), &text)?;
        }
    }
    let page = folder.join("report.html");
    replace(&page, &html(plan, &kept, &evaluation))?;
    Ok(Written { page, evaluation, summary, unreadable: kept.unreadable })
}

/// Writes each engine's report from the sub-folders with rows (`NAME/kernel`, `NAME/sim`), and one page for
/// all. Errors: a folder cannot be read or written.
pub fn write_together(plan: &Plan, folder: &Path, engines: &[String]) -> io::Result<Vec<Written>> {
    let written: Vec<Written> =
        engines.iter().map(|name| write(plan, &folder.join(name))).collect::<io::Result<_>>()?;
    let names = engines.iter().map(String::as_str);
    let ran: Vec<together::Ran<'_>> = names.zip(written.iter().map(|w| &w.evaluation)).collect();
    replace(&folder.join("report.html"), &together::page(plan, &ran))?;
    Ok(written)
}

/// The engines whose rows stand in sub-folders, by name.
pub fn engines_in(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| folder.join(name).join(journal::FILE).is_file())
        .collect();
    names.sort();
    names
}

/// Nobody ever sees half a file.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests;
