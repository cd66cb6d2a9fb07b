//! Reports of `ekiden lab`, out of the folder that `reports` of `[management]` names: `NAME/ENGINE/summary.json`, and the
//! page beside it. They are read, and never written.

use crate::Shared;
use crate::problem::Problem;
use axum::Json;
use axum::extract::{Path as UrlPath, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Reports that are listed at most.
const MOST: usize = 64;
/// The longest file that is read.
const LONGEST: u64 = 8 << 20;
/// The longest text of a claim that is shown.
const TEXT: usize = 500;

#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Reports {
    /// Where they are; null where no folder is set.
    folder: Option<String>,
    reports: Vec<Report>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Report {
    experiment: String,
    engine: String,
    version: String,
    /// Seconds since 1970.
    written: u64,
    /// Whether there is a page.
    page: bool,
    claims: Vec<Claim>,
}

/// What is read of `summary.json`.
#[derive(Debug, Deserialize)]
struct Summary {
    #[serde(default)]
    version: String,
    #[serde(default)]
    claims: Vec<Claim>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Claim {
    text: String,
    /// Null where it is not judged.
    holds: Option<bool>,
    #[serde(default)]
    evidence: String,
}

pub(super) async fn list(State(shared): State<Arc<Shared>>) -> Result<Json<Reports>, Problem> {
    let Some(folder) = shared.settings.reports.clone() else {
        return Ok(Json(Reports { folder: None, reports: Vec::new() }));
    };
    let shown = Some(folder.display().to_string());
    let read = shared.dashboard.reports.with(move || read(&folder)).await;
    let reports = read.map_err(|error| failed(&error.to_string()))?;
    let reports = reports.map_err(|error| failed(&error.to_string()))?;
    Ok(Json(Reports { folder: shown, reports }))
}

fn failed(why: &str) -> Problem {
    Problem::unavailable("reports", format!("the folder of reports cannot be read: {why}"))
        .hint("see `reports` in [management]; ekiden's user must be able to read it")
}

/// A report as a file to keep: its page has a style sheet of its own, which the policy of this one forbids.
pub(super) async fn page(
    State(shared): State<Arc<Shared>>,
    UrlPath((experiment, engine)): UrlPath<(String, String)>,
) -> Result<Response, Problem> {
    let none = || Problem::new(StatusCode::NOT_FOUND, "no-such-report", "there is no such report");
    let folder = shared.settings.reports.clone().ok_or_else(none)?;
    if !is_name(&experiment) || !is_name(&engine) {
        return Err(none());
    }
    let path = folder.join(experiment).join(engine).join("report.html");
    let read = shared.dashboard.reports.with(move || text(&path)).await;
    let text = read.map_err(|error| failed(&error.to_string()))?.map_err(|_| none())?;
    let fields = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_DISPOSITION, "attachment; filename=\"report.html\""),
    ];
    Ok((fields, text).into_response())
}

/// A folder's name that leads nowhere else.
fn is_name(name: &str) -> bool {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=64).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(fine)
}

fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = fs::File::open(path)?;
    if file.metadata()?.len() > LONGEST {
        return Err(io::Error::other("it is longer than 8 MiB"));
    }
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

/// The names of folders in `folder`, in order; links are not followed.
fn folders(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)?.take(1000) {
        let entry = entry?;
        let name = entry.file_name().into_string().unwrap_or_default();
        if is_name(&name) && entry.file_type()?.is_dir() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn read(folder: &Path) -> io::Result<Vec<Report>> {
    let mut reports = Vec::new();
    for experiment in folders(folder)? {
        for engine in folders(&folder.join(&experiment)).unwrap_or_default() {
            let at = folder.join(&experiment).join(&engine);
            // one that is being written, or is none, is left out
            let Ok(summary) = text(&at.join("summary.json")) else { continue };
            let Ok(summary) = serde_json::from_str::<Summary>(&summary) else { continue };
            let short = |text: &str| text.chars().take(TEXT).collect::<String>();
            let claim = |claim: &Claim| Claim {
                text: short(&claim.text),
                holds: claim.holds,
                evidence: short(&claim.evidence),
            };
            reports.push(Report {
                experiment: experiment.clone(),
                engine,
                version: short(&summary.version),
                written: written(&at.join("summary.json")),
                page: at.join("report.html").is_file(),
                claims: summary.claims.iter().take(100).map(claim).collect(),
            });
            if reports.len() == MOST {
                return Ok(reports);
            }
        }
    }
    Ok(reports)
}

fn written(path: &Path) -> u64 {
    let changed = fs::metadata(path).and_then(|data| data.modified());
    let since = changed.ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_reports_and_leaves_out_what_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("satellite/kernel");
        fs::create_dir_all(&at).unwrap();
        fs::create_dir_all(folder.path().join("broken/sim")).unwrap();
        fs::write(folder.path().join("broken/sim/summary.json"), "{").unwrap();
        let summary = "{\"version\":\"0.1.0\",\"claims\":[{\"text\":\"a\",\"holds\":null,\"evidence\":\"2 ×\"}],\"rows\":[]}";
        fs::write(at.join("summary.json"), summary).unwrap();
        std::os::unix::fs::symlink("/etc", folder.path().join("link")).unwrap();
        let reports = read(folder.path()).unwrap();
        assert_eq!(reports.len(), 1);
        assert_eq!((reports[0].experiment.as_str(), reports[0].page), ("satellite", false));
        assert_eq!(reports[0].claims[0].evidence, "2 ×");
        fs::write(at.join("report.html"), "<p>").unwrap();
        assert!(read(folder.path()).unwrap()[0].page);
        assert!(read(&folder.path().join("none")).is_err());
    }

    #[test]
    fn names_lead_nowhere_else() {
        assert!(is_name("proxy-pressure") && is_name("a.b_1"));
        for wrong in ["", ".", "..", ".git", "a/b", "a\\b", "ü", &"x".repeat(65)] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }
}
