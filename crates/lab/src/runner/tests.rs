use super::*;
use crate::cell::Cell;
use crate::engine::{Calibration, Fidelity, Outcome};
use crate::plan;
use std::collections::BTreeMap;

/// Fails, taints or stops at configured runs.
struct MadeUp {
    error: f64,
    calls: usize,
    fail: fn(usize) -> bool,
    taint: fn(usize) -> bool,
    value: f64,
    deterministic: bool,
    stop_at: usize,
    stop: Arc<AtomicBool>,
    /// Of each run.
    weight: u32,
    /// How many runs were made at once, each time.
    at_once: Arc<Mutex<Vec<usize>>>,
}

impl MadeUp {
    fn new() -> Self {
        let never: fn(usize) -> bool = |_| false;
        Self {
            error: 0.0,
            calls: 0,
            fail: never,
            taint: never,
            value: 10.0,
            deterministic: false,
            stop_at: usize::MAX,
            stop: Arc::default(),
            weight: crate::engine::WHOLE,
            at_once: Arc::default(),
        }
    }
}

impl Engine for MadeUp {
    fn name(&self) -> &'static str {
        "made-up"
    }

    fn is_deterministic(&self) -> bool {
        self.deterministic
    }

    fn facts(&mut self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    fn calibrate(&mut self) -> Result<Calibration, EngineError> {
        let errors = [("rate, 1 Gbit/s".to_owned(), self.error)].into();
        Ok(Calibration { errors, figures: BTreeMap::new() })
    }

    fn weight(&self, _: &Cell) -> u32 {
        self.weight
    }

    fn run_beside(&mut self, tasks: &[Task]) -> Vec<Result<Outcome, EngineError>> {
        self.at_once.lock().unwrap().push(tasks.len());
        tasks.iter().map(|task| self.run(&task.cell, task.repetition, task.seed)).collect()
    }

    fn run(&mut self, _: &Cell, _: u32, _: u64) -> Result<Outcome, EngineError> {
        self.calls += 1;
        if self.calls == self.stop_at {
            self.stop.store(true, Ordering::Relaxed);
        }
        if (self.fail)(self.calls) {
            return Err(EngineError("curl: connection refused".into()));
        }
        let taint = (self.taint)(self.calls);
        let fidelity = if taint { Fidelity::Tainted } else { Fidelity::Clean };
        Ok(Outcome { fidelity, ..Outcome::of(self.value) })
    }
}

fn plan() -> Plan {
    plan::parse("sample.toml", include_str!("sample.toml")).unwrap()
}

fn options(folder: &std::path::Path, stop: &Arc<AtomicBool>) -> Options {
    Options {
        choice: Choice { quick: true, ..Choice::default() },
        seed: 1,
        folder: folder.to_owned(),
        version: "1".into(),
        stop: stop.clone(),
        ..Options::default()
    }
}

fn run(folder: &std::path::Path, engine: MadeUp) -> Result<Done, BatchError> {
    let batch = Batch::open(&plan(), options(folder, &engine.stop), &engine)?;
    batch.run(&mut [Box::new(engine)], &())
}

/// Runs it in a folder of its own.
fn first(engine: MadeUp) -> (tempfile::TempDir, Done) {
    let folder = tempfile::tempdir().unwrap();
    let done = run(folder.path(), engine).unwrap();
    (folder, done)
}

fn rows(folder: &tempfile::TempDir) -> Vec<Row> {
    journal::read(folder.path()).unwrap().unwrap().rows
}

#[test]
fn runs_every_cell_once_and_then_has_nothing_left() {
    // none at 0 relays; three peers at 2; 1 MiB alone
    let (folder, done) = first(MadeUp::new());
    assert_eq!((done.made, done.kept, done.left), (4, 0, 0));
    let again = run(folder.path(), MadeUp::new()).unwrap();
    assert_eq!((again.made, again.kept), (0, 4));
}

#[test]
fn refuses_links_that_are_off() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = run(folder.path(), MadeUp { error: -0.03, ..MadeUp::new() }).unwrap_err();
    let message = refusal.to_string();
    assert!(message.contains("rate, 1 Gbit/s by -3.0 %"), "{message}");
    assert!(rows(&folder).is_empty());
    assert!(run(folder.path(), MadeUp { error: f64::NAN, ..MadeUp::new() }).is_err());
}

#[test]
fn keeps_and_retries_failures() {
    let (folder, done) = first(MadeUp { fail: |n| n == 2, ..MadeUp::new() });
    assert_eq!((done.made, done.given_up), (5, 0));
    let rows = rows(&folder);
    assert_eq!(rows[1].failure.as_deref(), Some("curl: connection refused"));
    assert_eq!((rows[2].attempt, &rows[2].cell), (1, &rows[1].cell));
}

#[test]
fn gives_up_a_run_that_always_fails_until_the_next_start() {
    let (folder, done) = first(MadeUp { fail: |_| true, ..MadeUp::new() });
    assert_eq!((done.made, done.given_up), (12, 4));
    let done = run(folder.path(), MadeUp::new()).unwrap();
    assert_eq!((done.made, done.given_up), (4, 0));
}

#[test]
fn does_not_retry_deterministic_failures() {
    let (_, done) = first(MadeUp { fail: |_| true, deterministic: true, ..MadeUp::new() });
    assert_eq!((done.made, done.given_up), (4, 4));
}

#[test]
fn keeps_non_finite_values_as_failures() {
    for value in [f64::NAN, f64::INFINITY] {
        let (folder, done) = first(MadeUp { value, deterministic: true, ..MadeUp::new() });
        assert_eq!((done.made, done.given_up), (4, 4));
        let kept = journal::read(folder.path()).unwrap().unwrap();
        assert_eq!((kept.rows.len(), kept.unreadable), (4, 0));
        let message = kept.rows[0].failure.clone().unwrap();
        assert!(
            message.contains("the measured value") && message.contains("not a number"),
            "{message}"
        );
    }
    let figures = [("first_byte_ms".to_owned(), f64::NAN)].into();
    let message = Outcome { figures, ..Outcome::default() }.checked().unwrap_err().to_string();
    assert!(message.contains("figure `first_byte_ms`"), "{message}");
    let series = [("srtt_ms".to_owned(), vec![[0.0, f64::NAN]])].into();
    assert!(Outcome { series, ..Outcome::default() }.checked().is_err());
}

/// Remembers messages.
#[derive(Default)]
struct Said(Mutex<Vec<String>>);

impl Watch for Said {
    fn says(&self, what: &str) {
        self.0.lock().unwrap().push(what.to_owned());
    }
}

#[test]
fn announces_calibration_only_where_it_runs() {
    for (deterministic, times) in [(false, 1), (true, 0)] {
        let folder = tempfile::tempdir().unwrap();
        let engine = MadeUp { deterministic, ..MadeUp::new() };
        let batch = Batch::open(&plan(), options(folder.path(), &engine.stop), &engine).unwrap();
        let message = Said::default();
        batch.run(&mut [Box::new(engine)], &message).unwrap();
        assert_eq!(message.0.lock().unwrap().len(), times);
    }
}

#[test]
fn marks_a_run_that_stays_tainted_and_stops_retrying() {
    let (folder, done) = first(MadeUp { taint: |_| true, ..MadeUp::new() });
    assert_eq!((done.made, done.tainted), (12, 4));
    assert_eq!(run(folder.path(), MadeUp::new()).unwrap().made, 0);
}

#[test]
fn resumes_an_interrupted_batch() {
    let (folder, done) = first(MadeUp { stop_at: 2, ..MadeUp::new() });
    assert_eq!((done.made, done.left), (2, 2));
    let done = run(folder.path(), MadeUp::new()).unwrap();
    assert_eq!((done.made, done.kept, done.left), (2, 2, 0));
}

#[test]
fn retries_only_the_failed_run_of_several() {
    let engine = MadeUp { weight: 30, fail: |n| n == 2, taint: |n| n == 3, ..MadeUp::new() };
    let at_once = Arc::clone(&engine.at_once);
    let (folder, done) = first(engine);
    assert_eq!(*at_once.lock().unwrap(), [3, 2, 1]);
    assert_eq!((done.made, done.given_up, done.tainted), (6, 0, 0));
    let rows = rows(&folder);
    let attempts: Vec<u32> = rows.iter().map(|row| row.attempt).collect();
    assert_eq!(attempts, [0, 0, 0, 1, 1, 0]);
    assert_eq!([&rows[3].cell, &rows[4].cell], [&rows[1].cell, &rows[2].cell]);
}

#[test]
fn keeps_the_order_of_interrupted_runs() {
    let engine = MadeUp { weight: 25, stop_at: 1, fail: |n| n > 2, ..MadeUp::new() };
    let (folder, done) = first(engine);
    assert_eq!((done.made, done.left, done.given_up), (2, 2, 0));
    let done = run(folder.path(), MadeUp::new()).unwrap();
    assert_eq!((done.made, done.kept, done.left), (2, 2, 0));
}

#[test]
fn several_engines_share_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let stop = Arc::default();
    let batch = Batch::open(&plan(), options(folder.path(), &stop), &MadeUp::new()).unwrap();
    let mut engines: Vec<Box<dyn Engine + Send>> =
        (0..3).map(|_| Box::new(MadeUp::new()) as _).collect();
    let done = batch.run(&mut engines, &()).unwrap();
    assert_eq!((done.made, done.left), (4, 0));
}

#[test]
fn reports_a_choice_without_cells() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = options(folder.path(), &Arc::default());
    options.choice.only = vec!["slow".into()];
    let message = Batch::open(&plan(), options, &MadeUp::new()).unwrap_err().to_string();
    assert!(
        message.contains("parts are row, slow") && message.contains("with --quick row"),
        "{message}"
    );
}
