//! Makes a plan's runs with an engine and keeps every one on disk before the next begins.
//!
//! A run that fails or whose links did not keep their time is kept and tried again, [`ATTEMPTS`] times at most,
//! once where every try would be the same. An interrupted batch resumes where it stopped.

pub mod journal;
pub mod order;
pub mod progress;

use crate::engine::Task;
use crate::engine::{Engine, EngineError, Outcome};
use crate::machine::Machine;
use crate::plan::{Choice, Plan};
use journal::{Begin, Found, Identity, Journal, Row};
use progress::Watch;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Attempts at one repetition in one start of a batch, by an engine whose tries differ.
pub const ATTEMPTS: u32 = 3;

/// How a batch is to be run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Which cells.
    pub choice: Choice,
    /// All randomness follows from it.
    pub seed: u64,
    /// Where rows, figures and report go.
    pub folder: PathBuf,
    /// Of the program that is measured; rows of another version are put aside.
    pub version: String,
    /// But for rows of another version or plan that are to be kept beside these.
    pub keep: bool,
    /// As it was typed, for the report.
    pub command: String,
    /// Set by Ctrl-C: the run that is being made is the last.
    pub stop: Arc<AtomicBool>,
}

/// Why a batch did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The choice leaves nothing.
    #[error("{0}")]
    Nothing(String),
    /// The links are not what they should be.
    #[error(
        "calibration failed: the links are off by more than 2 %: {0}. Nothing was run. Stop other programs and try again; at least two processors are needed."
    )]
    Calibration(String),
    /// The links cannot even be measured.
    #[error("calibrating: {0}")]
    Engine(EngineError),
    /// Rows cannot be kept.
    #[error("keeping rows in {0}: {1}; --out DIR chooses another folder")]
    Io(String, io::Error),
}

/// The result of a batch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// Runs made now.
    pub made: usize,
    /// Runs that were kept from before.
    pub kept: usize,
    /// Repetitions of which every attempt failed.
    pub given_up: usize,
    /// Repetitions of which every attempt was on links that did not keep their time.
    pub tainted: usize,
    /// Runs left when Ctrl-C came.
    pub left: usize,
}

/// A batch, ready to run.
#[derive(Debug)]
pub struct Batch {
    journal: Journal,
    options: Options,
    tasks: VecDeque<Task>,
    rows: Vec<Row>,
    kept: usize,
    /// Cells that the engine cannot run, by [`crate::cell::Cell::key`], and why.
    pub lacks: BTreeMap<String, String>,
    /// What of the rows that were there is of another version, and what becomes of them.
    pub differs: Option<String>,
}

struct Shared {
    journal: Journal,
    tasks: VecDeque<Task>,
    done: Done,
    error: Option<io::Error>,
}

impl Batch {
    /// Reads what is kept and finds what is left to run. Errors: the choice leaves nothing, or the folder
    /// cannot be used.
    pub fn open(plan: &Plan, options: Options, engine: &dyn Engine) -> Result<Self, BatchError> {
        let choice = Choice { engine: Some(engine.name().to_owned()), ..options.choice.clone() };
        let mut cells = plan.cells(&choice);
        let lacks: BTreeMap<String, String> = cells
            .iter()
            .filter_map(|(cell, _)| Some((cell.key(), engine.lacks(cell)?.to_owned())))
            .collect();
        cells.retain(|(cell, _)| !lacks.contains_key(&cell.key()));
        if cells.is_empty() {
            return Err(BatchError::Nothing(nothing(plan, &options.choice)));
        }
        let identity = Identity {
            experiment: plan.name.clone(),
            engine: engine.name().to_owned(),
            plan: plan.hash.clone(),
            version: options.version.clone(),
            seed: options.seed,
        };
        let opened = Journal::open(&options.folder, &identity, options.keep);
        let (journal, found) = opened.map_err(|error| io_error(&options, error))?;
        let all = order::tasks(plan, &cells, options.seed);
        let is_left = |task: &Task| {
            let same = |row: &&Row| row.repetition == task.repetition && row.cell == task.cell;
            let own = found.rows.iter().skip(found.own).filter(same);
            let yielded = own.filter(|row| row.outcome.is_some()).count();
            // tainted as often as it may be: another start would not change that
            !found.rows.iter().filter(same).any(Row::is_good) && yielded < ATTEMPTS as usize
        };
        let wanted = all.len();
        let tasks: VecDeque<Task> = all.into_iter().filter(is_left).collect();
        let kept = wanted - tasks.len();
        let Found { rows, differs, .. } = found;
        Ok(Self { journal, options, tasks, rows, kept, lacks, differs })
    }

    /// Runs that are left.
    pub fn left(&self) -> usize {
        self.tasks.len()
    }

    /// Runs that are kept from before.
    pub fn kept(&self) -> usize {
        self.kept
    }

    /// Calibrates, then makes the runs, one engine a thread. Errors: the calibration refuses, or rows cannot be
    /// kept. Runs that fail are no error: they are counted.
    pub fn run(
        self,
        engines: &mut [Box<dyn Engine + Send>],
        watch: &dyn Watch,
    ) -> Result<Done, BatchError> {
        let Self { mut journal, options, tasks, rows, kept, lacks, .. } = self;
        let done = Done { kept, ..Done::default() };
        if tasks.is_empty() {
            return Ok(done);
        }
        let Some(first) = engines.first_mut() else {
            return Err(BatchError::Nothing("there is no engine to run it".to_owned()));
        };
        if !first.is_deterministic() {
            watch.says("calibrating the links");
        }
        let calibration = first.calibrate().map_err(BatchError::Engine)?;
        let refusals = calibration.refusals();
        if !refusals.is_empty() {
            let off = refusals.iter().map(|(name, e)| format!("{name} by {:.1} %", e * 100.0));
            return Err(BatchError::Calibration(off.collect::<Vec<_>>().join(", ")));
        }
        let begin = Begin {
            time: now(),
            command: options.command.clone(),
            machine: Machine::read(),
            facts: first.facts(),
            calibration,
            lacks,
        };
        journal.begin(&begin).map_err(|error| io_error(&options, error))?;
        watch.begins(&tasks.iter().cloned().collect::<Vec<_>>(), &rows);
        let shared = Mutex::new(Shared { journal, tasks, done, error: None });
        if let [only] = engines {
            work(only.as_mut(), &shared, &options.stop, watch);
        } else {
            std::thread::scope(|scope| {
                for engine in engines {
                    scope.spawn(|| work(engine.as_mut(), &shared, &options.stop, watch));
                }
            });
        }
        let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        watch.ends();
        match shared.error {
            Some(error) => Err(io_error(&options, error)),
            None => Ok(Done { left: shared.tasks.len(), ..shared.done }),
        }
    }
}

/// Takes tasks until there is none, or Ctrl-C, or a row cannot be kept.
fn work(engine: &mut dyn Engine, shared: &Mutex<Shared>, stop: &AtomicBool, watch: &dyn Watch) {
    let attempts = if engine.is_deterministic() { 1 } else { ATTEMPTS };
    let lock = || shared.lock().unwrap_or_else(PoisonError::into_inner);
    while !stop.load(Ordering::Relaxed) {
        // a statement of its own, so that the lock is given back at its end
        let tasks = order::take(&mut lock().tasks, |cell| engine.weight(cell));
        if tasks.is_empty() {
            return;
        }
        // each with whether it was ever tainted
        let mut open: Vec<(Task, bool)> = tasks.into_iter().map(|task| (task, false)).collect();
        for attempt in 0..attempts {
            let begin = Instant::now();
            let asked: Vec<Task> = open.iter().map(|(task, _)| task.clone()).collect();
            let results = engine.run_beside(&asked);
            let seconds = begin.elapsed().as_secs_f64() / asked.len() as f64;
            let mut again = Vec::new();
            let mut interrupted = Vec::new();
            for ((task, mut tainted), result) in open.into_iter().zip(results) {
                let result = result.and_then(Outcome::checked);
                if stop.load(Ordering::Relaxed) && result.is_err() {
                    interrupted.push(task);
                    continue;
                }
                let (outcome, failure) = match result {
                    Ok(outcome) => (Some(outcome), None),
                    Err(error) => (None, Some(error.to_string())),
                };
                let Task { cell, repetition, seed } = task.clone();
                let time = now();
                let row = Row { cell, repetition, attempt, seed, time, seconds, outcome, failure };
                let mut shared = lock();
                if let Err(error) = shared.journal.row(&row) {
                    shared.error = Some(error);
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
                shared.done.made += 1;
                tainted |= row.outcome.is_some();
                let last = row.is_good() || attempt + 1 == attempts || stop.load(Ordering::Relaxed);
                watch.ran(&row, last);
                if !last {
                    again.push((task, tainted));
                } else if !row.is_good() && tainted {
                    shared.done.tainted += 1;
                } else if !row.is_good() {
                    shared.done.given_up += 1;
                }
            }
            interrupted.into_iter().rev().for_each(|task| lock().tasks.push_front(task));
            open = again;
            if open.is_empty() {
                break;
            }
        }
    }
}

fn nothing(plan: &Plan, choice: &Choice) -> String {
    let parts: Vec<&str> = plan.parts.iter().map(|part| part.name.as_str()).collect();
    let quick: Vec<&str> =
        plan.parts.iter().filter(|p| p.quick.is_some()).map(|p| p.name.as_str()).collect();
    format!(
        "experiment `{}` has no cells for this choice: its parts are {}{}",
        plan.name,
        parts.join(", "),
        if choice.quick { format!(", with --quick {}", quick.join(", ")) } else { String::new() },
    )
}

fn io_error(options: &Options, error: io::Error) -> BatchError {
    BatchError::Io(options.folder.display().to_string(), error)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests;
