//! `ekiden lab record`: one run of a plan in the simulator, written down packet by packet.

use super::{Answer, check_choice};
use crate::cell::Cell;
use crate::cell::axis;
use crate::engine::{Engine, EngineError, sim};
use crate::evaluation::Short;
use crate::plan::{self, Choice, Plan};
use crate::runner::order;
use crate::study::{Recorders, Sights, SimRun, Writer};
use ekiden_model::units::Bytes;
use ekiden_simulator::recorder::Flows;
use ekiden_simulator::recorder::packets::{Packets, Side};
use ekiden_simulator::recorder::rows::Rows;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// What `ekiden lab record` was asked.
#[derive(Debug, Clone, Default)]
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

struct Written<'a> {
    what: &'static str,
    count: u64,
    path: &'a Path,
    bytes: u64,
}

impl Written<'_> {
    fn text(&self) -> String {
        let (path, bytes) = (self.path.display(), Bytes::new(self.bytes));
        format!("{} {} in {path} ({bytes})\n", self.count, self.what)
    }

    fn json(&self) -> Value {
        let path = self.path.display().to_string();
        json!({ "holds": self.what, "count": self.count, "path": path, "bytes": self.bytes })
    }
}

/// `ekiden lab record NAME`.
pub fn record(asked: &Record) -> Result<Answer, String> {
    let plan = plan::find(&asked.experiment).map_err(|error| error.to_string())?;
    if !plan.engines.iter().any(|engine| engine == sim::NAME) {
        return Err(format!(
            "experiment `{}` runs on {} only, and only simulated runs can be recorded; \
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
    if let Some(why) = sim::Simulated(plan.study).lacks(&cell) {
        return Err(why.to_owned());
    }
    let run = SimRun { cell: &cell, repetition: asked.repetition, seed };
    let ran = plan.study.record(&run, Box::new(|sights| recorders(asked, sights)));
    let (outcome, (rows, packets)) = ran.map_err(|error| error.to_string())?;
    let outcome = outcome.checked().map_err(|error| error.to_string())?;
    let mut files = Vec::new();
    if let (Some(rows), Some(path)) = (rows, &asked.packets) {
        files.push(written("rows", path, rows.finish())?);
    }
    if let (Some(packets), Some(path)) = (packets, &asked.pcap) {
        files.push(written("packets", path, packets.finish())?);
    }
    let (measure, value) = (plan.measure_of(&cell.part), outcome.value);
    let fingerprint = outcome.facts.get("fingerprint").map_or("", String::as_str);
    let Record { repetition, seed, .. } = asked;
    let text = if asked.json {
        let files: Vec<_> = files.iter().map(Written::json).collect();
        let document = json!({
            "experiment": plan.name, "cell": cell, "repetition": repetition, "seed": seed, "value": value,
            "unit": measure.unit, "fingerprint": fingerprint, "files": files,
        });
        format!("{document:#}\n")
    } else {
        let files: String = files.iter().map(Written::text).collect();
        format!(
            "{}\nrepetition {repetition}, seed {seed}\n{}: {} {}\n{files}fingerprint: {fingerprint}\n",
            cell.key(),
            measure.name,
            Short(value),
            measure.unit
        )
    };
    Ok(Answer::of(text))
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

fn the_cell(plan: &Plan, asked: &Record) -> Result<Cell, String> {
    let engine = Some(sim::NAME.to_owned());
    let choice = Choice { only: asked.only.clone(), engine, ..Choice::default() };
    check_choice(plan, &choice)?;
    let mut cells: Vec<Cell> = plan.cells(&choice).into_iter().map(|(cell, _)| cell).collect();
    for pair in &asked.cell {
        let report = |why: &str| format!("--cell {pair}: {why}");
        let (name, text) = pair.split_once('=').ok_or_else(|| report("write it like relays=4"))?;
        let Some(axis) = axis::named(name.trim()) else {
            let similar = axis::similar_name(name.trim(), axis::all().map(|axis| axis.name));
            let hint = similar.map(|axis| format!("; did you mean `{axis}`?"));
            return Err(report(&format!("there is no such axis{}", hint.unwrap_or_default())));
        };
        let value = axis.canonical(text.trim()).map_err(|why| report(&why))?;
        let has = |cell: &Cell| cell.values.get(axis.name) == Some(&value);
        if !cells.iter().any(has) {
            let which = listed(axis, values(&cells).remove(axis.name).unwrap_or_default());
            return Err(report(&format!(
                "no cell has this value; among the remaining cells, {} is {which}",
                axis.name
            )));
        }
        cells.retain(has);
    }
    if let [only] = cells.as_slice() {
        return Ok(only.clone());
    }
    let mut text = format!("{} cells of `{}` match; choose one", cells.len(), plan.name);
    let parts: BTreeSet<&str> = cells.iter().map(|cell| cell.part.as_str()).collect();
    if parts.len() > 1 {
        let parts: Vec<&str> = parts.into_iter().collect();
        text += &format!("\n  --only {}", parts.join(" | "));
    }
    for (name, several) in values(&cells).into_iter().filter(|(_, several)| several.len() > 1) {
        if let Some(axis) = axis::named(name) {
            text += &format!("\n  --cell {name}={}", listed(axis, several));
        }
    }
    Err(text)
}

fn values(cells: &[Cell]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (axis, value) in cells.iter().flat_map(|cell| &cell.values) {
        all.entry(axis).or_default().insert(value);
    }
    all
}

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
        create(path).and_then(rows).map_err(|error| EngineError(report(path, &error)))
    });
    let packets = asked.pcap.as_deref().map(|path| {
        let packets = |to| Packets::new(to, side, sights.server, flows(), comment);
        create(path).and_then(packets).map_err(|error| EngineError(report(path, &error)))
    });
    Ok((rows.transpose()?, packets.transpose()?))
}

fn create(path: &Path) -> std::io::Result<Writer> {
    File::create(path).map(BufWriter::new)
}

fn report(path: &Path, error: &std::io::Error) -> String {
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
    let (count, bytes) = closed.map_err(|error| report(path, &error))?;
    Ok(Written { what, count, path, bytes })
}
