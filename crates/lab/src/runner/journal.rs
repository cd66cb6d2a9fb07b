//! `rows.jsonl`: every run appended as it ends, so that whatever interrupts a batch costs one run.
//!
//! The first line says whose rows these are; each start of a batch adds a line with its machine; then
//! one line a run, failed ones too. A line cut short by a crash is left out and said. Where rows of another version
//! were to be kept, another line says whose the following are.

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    #[must_use]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    #[must_use]
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
#[derive(Debug, Clone, PartialEq)]
pub struct Kept {
    /// Whose rows; the last, where several are kept.
    pub identity: Identity,
    /// Those before, and how many rows each made.
    pub earlier: Vec<(Identity, usize)>,
    /// Every start.
    pub begins: Vec<Begin>,
    /// Every run.
    pub rows: Vec<Row>,
    /// Lines that could not be read.
    pub unreadable: usize,
}

/// Reads a folder's rows; `None` where there are none.
///
/// # Errors
/// The file's; `InvalidData` when it does not begin with its identity.
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
    let (earlier, begins, rows) = (Vec::new(), Vec::new(), Vec::new());
    let mut kept = Kept { identity, earlier, begins, rows, unreadable: 0 };
    let mut before = 0;
    for line in lines {
        match serde_json::from_str(&line?) {
            Ok(Line::Begin(begin)) => kept.begins.push(begin),
            Ok(Line::Row(row)) => kept.rows.push(row),
            Ok(Line::Identity(next)) if next.may_follow(&kept.identity) => {
                let last = std::mem::replace(&mut kept.identity, next);
                kept.earlier.push((last, kept.rows.len() - before));
                before = kept.rows.len();
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
}

impl Journal {
    /// Opens the folder's rows to go on with them. Rows of another identity, or that cannot be read,
    /// are put aside under another name; the last value then says why and where. Those of another plan or program
    /// are gone on with where `keep` is set, and that is said.
    ///
    /// # Errors
    /// The folder's and the file's.
    pub fn open(
        folder: &Path,
        identity: &Identity,
        keep: bool,
    ) -> io::Result<(Self, Vec<Row>, Option<String>)> {
        fs::create_dir_all(folder)?;
        let path = folder.join(FILE);
        let mut whose = true;
        let (rows, said) = match read(folder) {
            Ok(None) => (Vec::new(), None),
            Ok(Some(kept)) => match kept.identity.difference(identity) {
                None => {
                    whose = false;
                    (kept.rows, None)
                }
                Some(why) if keep && identity.may_follow(&kept.identity) => {
                    (kept.rows, Some(format!("goes on with rows of before ({why})")))
                }
                Some(why) => (Vec::new(), Some(aside(&path, &why)?)),
            },
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                (Vec::new(), Some(aside(&path, &error.to_string())?))
            }
            Err(error) => return Err(error),
        };
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        let length = file.metadata()?.len();
        if length > 0 && !ends_with_newline(&path)? {
            file.write_all(b"\n")?; // what a crash cut short must not swallow the next line
        }
        let mut journal = Self { file };
        if whose {
            journal.append(&Line::Identity(identity.clone()))?;
        }
        Ok((journal, rows, said))
    }

    /// Notes what a batch begins on.
    ///
    /// # Errors
    /// The file's.
    pub fn begin(&mut self, begin: &Begin) -> io::Result<()> {
        self.append(&Line::Begin(begin.clone()))
    }

    /// Notes a run, before anything else is done.
    ///
    /// # Errors
    /// The file's.
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
        let cell = Cell { part: "row".into(), values: BTreeMap::new() };
        let outcome = Some(Outcome { value: 5.5, ..Outcome::default() });
        Row { cell, repetition, attempt: 0, seed: 9, time: 1, seconds: 2.0, outcome, failure: None }
    }

    #[test]
    fn goes_on_where_it_stopped_and_survives_a_line_cut_short() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, rows, said) = Journal::open(folder.path(), &identity(1), false).unwrap();
        assert!(rows.is_empty() && said.is_none());
        journal.begin(&Begin::default()).unwrap();
        journal.row(&row(0)).unwrap();
        drop(journal);
        let mut file = OpenOptions::new().append(true).open(folder.path().join(FILE)).unwrap();
        file.write_all(b"{\"row\":{\"cell").unwrap();
        drop(file);
        let (mut journal, rows, said) = Journal::open(folder.path(), &identity(1), false).unwrap();
        assert_eq!((rows, said), (vec![row(0)], None));
        journal.row(&row(1)).unwrap();
        let kept = read(folder.path()).unwrap().unwrap();
        assert_eq!((kept.rows, kept.unreadable), (vec![row(0), row(1)], 1));
    }

    #[test]
    fn rows_of_another_seed_are_kept_aside() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, ..) = Journal::open(folder.path(), &identity(1), false).unwrap();
        journal.row(&row(0)).unwrap();
        let (_, rows, said) = Journal::open(folder.path(), &identity(2), false).unwrap();
        assert!(rows.is_empty());
        let said = said.unwrap();
        assert!(said.contains("seed 1, now 2") && said.contains("rows-1.jsonl"), "{said}");
        assert!(folder.path().join("rows-1.jsonl").exists());
    }

    #[test]
    fn rows_of_another_version_are_gone_on_with_where_asked() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, ..) = Journal::open(folder.path(), &identity(1), false).unwrap();
        journal.row(&row(0)).unwrap();
        let next = Identity { version: "2".into(), ..identity(1) };
        let (mut journal, rows, said) = Journal::open(folder.path(), &next, true).unwrap();
        assert_eq!(rows, [row(0)]);
        assert!(said.unwrap().contains("version 1, now 2"));
        journal.row(&row(1)).unwrap();
        // the same again needs no word
        let (_, rows, said) = Journal::open(folder.path(), &next, false).unwrap();
        assert_eq!((rows, said), (vec![row(0), row(1)], None));
        let kept = read(folder.path()).unwrap().unwrap();
        assert_eq!((kept.identity, kept.earlier), (next, vec![(identity(1), 1)]));
        // links of another seed are other links
        let (_, rows, said) = Journal::open(folder.path(), &identity(2), true).unwrap();
        assert!(rows.is_empty() && said.unwrap().contains("rows-1.jsonl"));
    }
}
