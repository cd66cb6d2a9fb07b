//! `rows.jsonl`: every run is appended as it ends, so an interruption costs one run.
//!
//! The first line identifies experiment and version, each start of a batch adds a line with its machine, each
//! run another, failed or not. A line cut short by a crash is skipped and reported. Where rows of another
//! version are kept, another identity line comes before the following rows.

use crate::cell::Cell;
use crate::engine::{Calibration, Fidelity, Outcome};
use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// The file's name.
pub const FILE: &str = "rows.jsonl";

/// Whose rows these are: rows of another identity do not belong to the same figures.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The plan's name.
    pub experiment: String,
    /// The engine's.
    pub engine: String,
    /// [`crate::plan::Plan::hash`].
    pub plan: String,
    /// Of the program that is measured.
    pub version: String,
    /// Of all randomness.
    pub seed: u64,
}

impl Identity {
    /// What differs, in words.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let seeds = (self.seed.to_string(), other.seed.to_string());
        let fields = [
            ("experiment", &self.experiment, &other.experiment),
            ("engine", &self.engine, &other.engine),
            ("plan", &self.plan, &other.plan),
            ("version", &self.version, &other.version),
            ("seed", &seeds.0, &seeds.1),
        ];
        let differ: Vec<String> = fields
            .iter()
            .filter(|(_, a, b)| a != b)
            .map(|(name, a, b)| format!("{name} {a}, now {b}"))
            .collect();
        (!differ.is_empty()).then(|| differ.join("; "))
    }

    /// Whether another plan or program of the same experiment made the other's rows: they may be kept beside these.
    fn may_follow(&self, other: &Self) -> bool {
        let of = |one: &Self| (one.experiment.clone(), one.engine.clone(), one.seed);
        of(self) == of(other)
    }
}

/// What a batch ran on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// Seconds since 1970.
    pub time: u64,
    /// As it was typed.
    pub command: String,
    /// Processor, kernel, memory.
    pub machine: Machine,
    /// [`crate::engine::Engine::facts`].
    pub facts: BTreeMap<String, String>,
    /// Before the first run.
    pub calibration: Calibration,
    /// Cells that the engine cannot run, by [`Cell::key`], and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lacks: BTreeMap<String, String>,
}

/// One run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was run.
    pub cell: Cell,
    /// Which repetition of it, from 0.
    pub repetition: u32,
    /// Which attempt at this repetition, from 0.
    pub attempt: u32,
    /// Its links' randomness.
    pub seed: u64,
    /// When it ended, seconds since 1970.
    pub time: u64,
    /// How long it took, with all it took to set it up; of several beside each other, each has its part.
    pub seconds: f64,
    /// What it yielded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Why it yielded nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl Row {
    /// Whether its figure can be believed.
    pub fn is_good(&self) -> bool {
        self.outcome.as_ref().is_some_and(|o| o.fidelity != Fidelity::Tainted)
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Identity(Identity),
    Begin(Begin),
    Row(Row),
}

/// All that a file holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Kept {
    /// Whose rows; the last, where several are kept.
    pub identity: Identity,
    /// Those before, and how many rows there were when the next began.
    pub earlier: Vec<(Identity, usize)>,
    /// Every start.
    pub begins: Vec<Begin>,
    /// Every run.
    pub rows: Vec<Row>,
    /// Lines that could not be read.
    pub unreadable: usize,
}

impl Kept {
    /// Who made which rows, in order, where there are several; those who made none are left out.
    pub fn makers(&self) -> Vec<(&Identity, &[Row])> {
        let ends = self.earlier.iter().map(|(identity, end)| (identity, *end));
        let mut begin = 0;
        let all = ends.chain([(&self.identity, self.rows.len())]).map(|(identity, end)| {
            let rows = self.rows.get(begin..end).unwrap_or_default();
            begin = end;
            (identity, rows)
        });
        all.filter(|(_, rows)| !rows.is_empty()).collect()
    }
}

/// Reads a folder's rows; `None` where there are none. Errors: the file's; `InvalidData` when it does not begin
/// with its identity.
pub fn read(folder: &Path) -> io::Result<Option<Kept>> {
    let file = match File::open(folder.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut lines = BufReader::new(file).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let Ok(Line::Identity(identity)) = serde_json::from_str(&first) else {
        let what = format!("{FILE} does not begin with whose rows it holds; move it aside");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    };
    let mut kept = Kept { identity, ..Kept::default() };
    for line in lines {
        match serde_json::from_str(&line?) {
            Ok(Line::Begin(begin)) => kept.begins.push(begin),
            Ok(Line::Row(row)) => kept.rows.push(row),
            Ok(Line::Identity(next)) if next.may_follow(&kept.identity) => {
                let last = std::mem::replace(&mut kept.identity, next);
                kept.earlier.push((last, kept.rows.len()));
            }
            Ok(Line::Identity(_)) | Err(_) => kept.unreadable += 1,
        }
    }
    Ok(Some(kept))
}

/// The file, open for appending.
#[derive(Debug)]
pub struct Journal {
    file: File,
    /// The identity of the following rows, where rows of another one were kept before them.
    next: Option<Identity>,
}

/// What there was in a folder to go on with.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    /// All rows.
    pub rows: Vec<Row>,
    /// From here on they are of the same program and plan as what follows.
    pub own: usize,
    /// What of it is of others, and what becomes of it.
    pub differs: Option<String>,
}

impl Journal {
    /// Opens the folder's rows to continue them. Rows of another identity, or unreadable ones, are moved to
    /// another name, unless `keep` is set and only plan or program differ.
    pub fn open(folder: &Path, identity: &Identity, keep: bool) -> io::Result<(Self, Found)> {
        fs::create_dir_all(folder)?;
        let path = folder.join(FILE);
        let afresh = |why: &str| -> io::Result<Found> {
            Ok(Found { differs: Some(aside(&path, why)?), ..Found::default() })
        };
        let mut next = None;
        let found = match read(folder) {
            Ok(None) => Found::default(),
            Ok(Some(kept)) => match kept.identity.difference(identity) {
                None => {
                    let own = kept.earlier.last().map_or(0, |(_, end)| *end);
                    Found { rows: kept.rows, own, differs: None }
                }
                Some(why) if keep && identity.may_follow(&kept.identity) => {
                    next = Some(identity.clone());
                    let differs = Some(format!("goes on with rows of before ({why})"));
                    Found { own: kept.rows.len(), rows: kept.rows, differs }
                }
                Some(why) => afresh(&why)?,
            },
            Err(error) if error.kind() == io::ErrorKind::InvalidData => afresh(&error.to_string())?,
            Err(error) => return Err(error),
        };
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        let length = file.metadata()?.len();
        if length > 0 && !ends_with_newline(&path)? {
            file.write_all(b"\n")?; // what a crash cut short must not swallow the next line
        }
        let mut journal = Self { file, next };
        if length == 0 {
            journal.append(&Line::Identity(identity.clone()))?;
        }
        Ok((journal, found))
    }

    /// Notes what a batch begins on.
    pub fn begin(&mut self, begin: &Begin) -> io::Result<()> {
        if let Some(identity) = self.next.take() {
            self.append(&Line::Identity(identity))?;
        }
        self.append(&Line::Begin(begin.clone()))
    }

    /// Notes a run, before anything else is done.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        self.append(&Line::Row(row.clone()))
    }

    fn append(&mut self, line: &Line) -> io::Result<()> {
        // in one write, so that an interruption leaves it out or leaves it whole
        self.file.write_all(format!("{}\n", serde_json::to_string(line)?).as_bytes())?;
        self.file.flush()
    }
}

fn ends_with_newline(path: &Path) -> io::Result<bool> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

fn aside(path: &Path, why: &str) -> io::Result<String> {
    let names = (1..).map(|n| path.with_file_name(format!("rows-{n}.jsonl")));
    let free: Option<PathBuf> = names.take(10_000).find(|name| !name.exists());
    let to = free.ok_or_else(|| io::Error::other("10,000 old files of rows: delete some"))?;
    fs::rename(path, &to)?;
    let name = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(format!("starts afresh ({why}); the old rows are kept in {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(seed: u64) -> Identity {
        Identity {
            experiment: "island".into(),
            engine: "kernel".into(),
            plan: "0123".into(),
            version: "1".into(),
            seed,
        }
    }

    fn row(repetition: u32) -> Row {
        let cell = Cell::new("row", []);
        let outcome = Some(Outcome::of(5.5));
        Row { cell, repetition, seed: 9, time: 1, seconds: 2.0, outcome, ..Row::default() }
    }

    #[test]
    fn goes_on_where_it_stopped_and_survives_a_line_cut_short() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, found) = Journal::open(folder.path(), &identity(1), false).unwrap();
        assert_eq!(found, Found::default());
        journal.begin(&Begin::default()).unwrap();
        journal.row(&row(0)).unwrap();
        drop(journal);
        let mut file = OpenOptions::new().append(true).open(folder.path().join(FILE)).unwrap();
        file.write_all(b"{\"row\":{\"cell").unwrap();
        drop(file);
        let (mut journal, found) = Journal::open(folder.path(), &identity(1), false).unwrap();
        assert_eq!(found, Found { rows: vec![row(0)], ..Found::default() });
        journal.row(&row(1)).unwrap();
        let kept = read(folder.path()).unwrap().unwrap();
        assert_eq!((kept.rows, kept.unreadable), (vec![row(0), row(1)], 1));
    }

    #[test]
    fn rows_of_another_seed_are_kept_aside() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(folder.path(), &identity(1), false).unwrap();
        journal.row(&row(0)).unwrap();
        let (_, found) = Journal::open(folder.path(), &identity(2), false).unwrap();
        assert!(found.rows.is_empty());
        let message = found.differs.unwrap();
        assert!(message.contains("seed 1, now 2") && message.contains("rows-1.jsonl"), "{message}");
        assert!(folder.path().join("rows-1.jsonl").exists());
    }

    #[test]
    fn rows_of_another_version_are_gone_on_with_where_asked() {
        let folder = tempfile::tempdir().unwrap();
        let open =
            |identity: &Identity, keep| Journal::open(folder.path(), identity, keep).unwrap();
        let (mut journal, _) = open(&identity(1), false);
        journal.begin(&Begin::default()).unwrap();
        journal.row(&row(0)).unwrap();
        let next = Identity { version: "2".into(), plan: "4567".into(), ..identity(1) };
        // an identity without rows is not written: all runs may exist already, or calibration failed
        let (_, found) = open(&next, true);
        assert_eq!((found.rows, found.own), (vec![row(0)], 1));
        assert!(found.differs.unwrap().contains("plan 0123, now 4567; version 1, now 2"));
        assert_eq!(read(folder.path()).unwrap().unwrap().identity, identity(1));
        let (mut journal, _) = open(&next, true);
        journal.begin(&Begin::default()).unwrap();
        journal.row(&row(1)).unwrap();
        // the same again needs no word
        let (_, found) = open(&next, false);
        assert_eq!(found, Found { rows: vec![row(0), row(1)], own: 1, differs: None });
        let kept = read(folder.path()).unwrap().unwrap();
        assert_eq!(kept.makers(), [(&identity(1), &[row(0)][..]), (&next, &[row(1)][..])]);
        // links of another seed are other links
        let (_, found) = open(&identity(2), true);
        assert!(found.rows.is_empty() && found.differs.unwrap().contains("rows-1.jsonl"));
    }
}
