//! `ekiden lab record`: one run of a plan in the simulator, written down packet by packet.

use super::{Answer, check_choice};
use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use crate::plan::{self, Choice, Plan, axis};
use crate::runner::order;
use crate::sim::{self, Sights};
use ekiden_model::units::Bytes;
use ekiden_simulator::recorder::Flows;
use ekiden_simulator::recorder::packets::{Packets, Side};
use ekiden_simulator::recorder::rows::Rows;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// What `ekiden lab record` was asked.
#[derive(Debug, Clone)]
pub struct Record {
    /// A plan's name or file.
    pub experiment: String,
    /// These parts alone; empty: all.
    pub only: Vec<String>,
    /// `AXIS=VALUE`: cells with this value alone.
    pub cell: Vec<String>,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// All randomness follows from it, as in `ekiden lab run`.
    pub seed: u64,
    /// Where the rows go.
    pub packets: Option<PathBuf>,
    /// Where the capture goes.
    pub pcap: Option<PathBuf>,
    /// At which hosts it is made.
    pub at: At,
    /// These flows alone; empty: all.
    pub flows: Vec<u32>,
    /// One JSON document instead of text.
    pub json: bool,
    /// As it was typed: it stands in the files.
    pub command: String,
}

/// Where a capture is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum At {
    /// At the hosts that send most: servers, and relays towards the client.
    #[default]
    Sender,
    /// At the hosts that receive it.
    Receiver,
}

type Writer = BufWriter<File>;
type Recorders = (Option<Rows<Writer>>, Option<Packets<Writer>>);

/// A file that was written.
struct Written<'a> {
    what: &'static str,
    count: u64,
    path: &'a Path,
    bytes: u64,
}

/// `ekiden lab record NAME`.
///
/// # Errors
/// In words: what happened, where, what to try.
pub fn record(asked: &Record) -> Result<Answer, String> {
    let plan = plan::find(&asked.experiment).map_err(|error| error.to_string())?;
    if !plan.engines.iter().any(|engine| engine == sim::NAME) {
        return Err(format!(
            "experiment «{}» runs on {} alone, and runs of the simulator are what can be recorded; \
             `ekiden lab list` says which experiments run on {}",
            plan.name,
            plan.engines.join(", "),
            sim::NAME
        ));
    }
    if let (Some(packets), Some(pcap)) = (&asked.packets, &asked.pcap)
        && are_one_file(packets, pcap)
    {
        return Err(format!(
            "--packets and --pcap are both {}, and would overwrite each other; give them two names",
            pcap.display()
        ));
    }
    let cell = the_cell(&plan, asked)?;
    let seed = order::seed_of(&plan, &cell, asked.repetition, asked.seed);
    let ran = sim::record(&cell, seed, |sights| recorders(asked, sights));
    let (outcome, (rows, packets)) = ran.map_err(|error| error.to_string())?;
    let outcome = outcome.checked().map_err(|error| error.to_string())?;
    let mut files = Vec::new();
    if let (Some(rows), Some(path)) = (rows, &asked.packets) {
        files.push(written("rows", path, rows.finish())?);
    }
    if let (Some(packets), Some(path)) = (packets, &asked.pcap) {
        files.push(written("packets", path, packets.finish())?);
    }
    let text = if asked.json {
        document(&plan, &cell, asked, &outcome, &files)
    } else {
        summary(&plan, &cell, asked, &outcome, &files)
    };
    Ok(Answer { text, fine: true })
}

/// Whether two paths are one regular file, or will be; a device such as `/dev/null` takes both.
fn are_one_file(one: &Path, other: &Path) -> bool {
    // what is not there yet is its folder and a name
    let whole = |path: &Path| {
        path.canonicalize().ok().or_else(|| {
            let absolute = std::path::absolute(path).ok()?;
            Some(absolute.parent()?.canonicalize().ok()?.join(absolute.file_name()?))
        })
    };
    let device = one.metadata().is_ok_and(|known| !known.is_file());
    !device && whole(one).is_some_and(|path| Some(path) == whole(other))
}

/// The one cell that is meant.
fn the_cell(plan: &Plan, asked: &Record) -> Result<Cell, String> {
    let engine = Some(sim::NAME.to_owned());
    let choice = Choice { only: asked.only.clone(), engine, ..Choice::default() };
    check_choice(plan, &choice)?;
    let mut cells: Vec<Cell> = plan.cells(&choice).into_iter().map(|(cell, _)| cell).collect();
    for pair in &asked.cell {
        let told = |why: &str| format!("--cell {pair}: {why}");
        let (name, text) = pair.split_once('=').ok_or_else(|| told("write it like relays=4"))?;
        let Some(axis) = axis::named(name.trim()) else {
            let hint =
                axis::similar(name.trim()).map(|axis| format!("; did you mean «{}»?", axis.name));
            return Err(told(&format!("there is no such axis{}", hint.unwrap_or_default())));
        };
        let value = axis.canonical(text.trim()).map_err(|why| told(&why))?;
        let has = |cell: &Cell| cell.values.get(axis.name) == Some(&value);
        if !cells.iter().any(has) {
            let which = listed(axis, values(&cells).remove(axis.name).unwrap_or_default());
            return Err(told(&format!("no cell has it; of those left, {} is {which}", axis.name)));
        }
        cells.retain(has);
    }
    if let [only] = cells.as_slice() {
        return Ok(only.clone());
    }
    let mut text =
        format!("{} cells of «{}» are left; one has to be meant", cells.len(), plan.name);
    let parts: BTreeSet<&str> = cells.iter().map(|cell| cell.part.as_str()).collect();
    if parts.len() > 1 {
        let parts: Vec<&str> = parts.into_iter().collect();
        let _infallible = write!(text, "\n  --only {}", parts.join(" | "));
    }
    for (name, several) in values(&cells).into_iter().filter(|(_, several)| several.len() > 1) {
        if let Some(axis) = axis::named(name) {
            let _infallible = write!(text, "\n  --cell {name}={}", listed(axis, several));
        }
    }
    Err(text)
}

/// By axis, the values that cells have.
fn values(cells: &[Cell]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (axis, value) in cells.iter().flat_map(|cell| &cell.values) {
        all.entry(axis).or_default().insert(value);
    }
    all
}

/// Values in the order of a table.
fn listed(axis: &axis::Axis, values: BTreeSet<&str>) -> String {
    let mut values: Vec<&str> = values.into_iter().collect();
    values.sort_by(|a, b| axis.rank(a).total_cmp(&axis.rank(b)));
    values.join(" | ")
}

fn recorders(asked: &Record, sights: &Sights) -> Result<Recorders, EngineError> {
    let flows = || match asked.flows.as_slice() {
        [] => Flows::All,
        some => Flows::These(some.iter().copied().collect()),
    };
    let missing: Vec<String> =
        asked.flows.iter().filter(|flow| **flow >= sights.flows).map(u32::to_string).collect();
    if !missing.is_empty() {
        return Err(EngineError(format!(
            "--flows: there is no flow {}; this run has {}, numbered from 0",
            missing.join(", "),
            sights.flows
        )));
    }
    let other = match sights.server {
        Side::Opener => Side::Acceptor,
        Side::Acceptor => Side::Opener,
    };
    let side = if asked.at == At::Sender { sights.server } else { other };
    let comment = &asked.command;
    let rows = asked.packets.as_deref().map(|path| {
        let rows =
            |to| Rows::new(to, flows(), sights.server, sights.watched, sights.kinds, comment);
        create(path).and_then(rows).map_err(|error| EngineError(told(path, &error)))
    });
    let packets = asked.pcap.as_deref().map(|path| {
        let packets = |to| Packets::new(to, side, sights.server, flows(), comment);
        create(path).and_then(packets).map_err(|error| EngineError(told(path, &error)))
    });
    Ok((rows.transpose()?, packets.transpose()?))
}

fn create(path: &Path) -> std::io::Result<Writer> {
    File::create(path).map(BufWriter::new)
}

fn told(path: &Path, error: &std::io::Error) -> String {
    format!("writing {}: {error}", path.display())
}

fn written<'a>(
    what: &'static str,
    path: &'a Path,
    finished: std::io::Result<(Writer, u64)>,
) -> Result<Written<'a>, String> {
    let closed = finished.and_then(|(to, count)| {
        let file = to.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        Ok((count, file.metadata()?.len()))
    });
    let (count, bytes) = closed.map_err(|error| told(path, &error))?;
    Ok(Written { what, count, path, bytes })
}

fn fingerprint(outcome: &Outcome) -> &str {
    outcome.facts.get("fingerprint").map_or("", String::as_str)
}

fn summary(
    plan: &Plan,
    cell: &Cell,
    asked: &Record,
    outcome: &Outcome,
    files: &[Written<'_>],
) -> String {
    let measure = plan.measure_of(&cell.part);
    let mut text = format!("{}\n", cell.key());
    let _infallible = writeln!(text, "repetition {}, seed {}", asked.repetition, asked.seed);
    let _infallible = writeln!(
        text,
        "{}: {} {}",
        measure.name,
        crate::evaluation::Short(outcome.value),
        measure.unit
    );
    for file in files {
        let (count, bytes) = (file.count, Bytes::new(file.bytes));
        let _infallible =
            writeln!(text, "{count} {} in {} ({bytes})", file.what, file.path.display());
    }
    text + &format!("fingerprint: {}\n", fingerprint(outcome))
}

fn document(
    plan: &Plan,
    cell: &Cell,
    asked: &Record,
    outcome: &Outcome,
    files: &[Written<'_>],
) -> String {
    let files: Vec<_> = files
        .iter()
        .map(|file| {
            json!({
                "holds": file.what, "count": file.count, "path": file.path.display().to_string(),
                "bytes": file.bytes,
            })
        })
        .collect();
    let document = json!({
        "experiment": plan.name, "cell": cell, "repetition": asked.repetition, "seed": asked.seed,
        "value": outcome.value, "unit": plan.measure_of(&cell.part).unit, "fingerprint": fingerprint(outcome),
        "files": files,
    });
    format!("{document:#}\n")
}

#[cfg(test)]
mod tests;
