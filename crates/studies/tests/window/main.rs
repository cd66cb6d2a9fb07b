//! The example of `docs/book/src/lab/write-an-experiment.md`: it runs, and the page shows these files.
#![allow(clippy::unwrap_used)] // a test that cannot go on panics

mod study;

use ekiden_lab::command::{Run, run};
use ekiden_lab::engine::sim::Simulated;
use ekiden_lab::runner::Options;
use ekiden_lab::study::Study;

const STUDIES: &[&dyn Study] = &[&study::Window];

#[test]
fn the_example_runs_and_its_claims_hold() {
    ekiden_lab::study::register(STUDIES);
    let folder = tempfile::tempdir().unwrap();
    let command = "ekiden lab run window".into();
    let options = Options { seed: 1, version: "1".into(), command, ..Options::default() };
    let asked = Run {
        experiment: "window".into(),
        engine: None,
        options,
        jobs: Some(1),
        out: Some(folder.path().to_owned()),
        json: false,
    };
    let engines = |_: &str, study: &'static dyn Study| Ok(Box::new(Simulated(study)) as Box<_>);
    let answer = run(&asked, &engines, std::sync::Arc::default()).unwrap();
    assert!(answer.complete && answer.holds, "{}", answer.text);
    assert!(folder.path().join("window/sim/windows.svg").is_file());
}

#[test]
fn the_page_shows_the_files_of_the_example() {
    let page = include_str!("../../../../docs/book/src/lab/write-an-experiment.md");
    for file in [include_str!("plan.toml"), include_str!("study.rs")] {
        assert!(page.contains(file), "copy the example's files into the page's code blocks anew");
    }
}
