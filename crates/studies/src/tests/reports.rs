//! Reports of the plans that come with the program.

use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{Outcome, Task};
use ekiden_lab::evaluation;
use ekiden_lab::machine::Machine;
use ekiden_lab::plan::{self, Choice, Plan};
use ekiden_lab::report::{engines_in, html, together, write, write_together};
use ekiden_lab::runner::journal::{Begin, Identity, Journal, Kept, Row};
use ekiden_lab::runner::order;
use ekiden_model::rng::Rng;
use std::fs;
use std::path::PathBuf;

fn identity(plan: &Plan, engine: &str) -> Identity {
    let (experiment, plan) = (plan.name.clone(), plan.hash.clone());
    Identity { experiment, engine: engine.into(), plan, version: "1".into(), seed: 1 }
}

fn begin() -> Begin {
    let machine = Machine { cpu: "a processor".into(), cores: 2, ..Machine::default() };
    Begin { command: "ekiden lab run sample".into(), machine, ..Begin::default() }
}

/// Every run of a plan of legs, as the closed form of a window or of loss would have it.
fn made_up(plan: &Plan) -> Vec<Row> {
    let mut rng = Rng::new(9);
    let run = |task: Task| {
        let cell = &task.cell;
        let legs = ekiden_lab::path::legs(cell).unwrap();
        let window = match cell.text("window").unwrap() {
            "defaults" => 3.0 * 1_048_576.0,
            _ => 393_216.0,
        };
        let divisor = if cell.text("unit").unwrap() == "packet" { 1.0 } else { 44.0 };
        let slowest = legs
            .iter()
            .map(|leg| {
                let rtt = leg.rtt.as_secs_f64().max(1e-4);
                let loss =
                    (1448.0 * 8.0 / rtt * (1.5 / (leg.loss / divisor).max(1e-12)).sqrt()).min(9e8);
                (window * 8.0 / rtt).min(loss)
            })
            .fold(f64::INFINITY, f64::min);
        let file: ekiden_model::units::Bytes = cell.value("file").unwrap();
        let bits = file.as_u64() as f64 * 8.0;
        let peer = match cell.text("peer").unwrap() {
            "ekiden" => 1.02,
            "squid" => 0.93,
            _ => 1.0,
        };
        let noise = 0.97 + rng.below(1000) as f64 / 16_000.0;
        let value = bits / (bits / slowest + 0.25) / 1e6 * peer * noise;
        let outcome = Some(Outcome::of(value));
        let Task { cell, repetition, seed } = task;
        Row { cell, repetition, seed, seconds: 2.0, outcome, ..Row::default() }
    };
    order::tasks(plan, &plan.cells(&Choice::default()), 1).into_iter().map(run).collect()
}

#[test]
fn reports_every_built_in_plan_without_rows() {
    crate::register();
    for plan in plan::all().unwrap() {
        let identity = identity(&plan, "made-up");
        let kept = Kept { identity, begins: vec![begin()], ..Kept::default() };
        let evaluation = evaluation::evaluate(&plan, &kept);
        let message = html(&plan, &kept, &evaluation)
            .contains("No published figure that is asserted was measured");
        assert_eq!(message, !plan.published.is_empty());
    }
}

/// Made-up rows of the whole island, to look at: `EKIDEN_KEEP_REPORT=DIR cargo test -p ekiden-studies`.
#[test]
fn reports_the_whole_island() {
    crate::register();
    let plan = plan::find("island").unwrap();
    let rows = made_up(&plan);
    let kept = std::env::var_os("EKIDEN_KEEP_REPORT").map(PathBuf::from);
    let temporary = tempfile::tempdir().unwrap();
    let folder = kept.unwrap_or_else(|| temporary.path().to_owned());
    let (mut journal, ..) = Journal::open(&folder, &identity(&plan, "kernel"), false).unwrap();
    journal.begin(&begin()).unwrap();
    rows.iter().for_each(|row| journal.row(row).unwrap());
    let written = write(&plan, &folder).unwrap();
    assert_eq!(written.evaluation.missing, 0);
    assert!(written.evaluation.rows.iter().all(|row| row.measured.is_some()));
    assert!(written.evaluation.claims.iter().all(|claim| claim.holds.is_some()));
    for figure in &plan.figures {
        assert!(folder.join(format!("{}.svg", figure.name)).is_file(), "{}", figure.name);
    }
}

#[test]
fn engines_stand_beside_each_other_on_one_page() {
    crate::register();
    let plan = plan::find("island").unwrap();
    let folder = tempfile::tempdir().unwrap();
    for engine in ["kernel", "sim"] {
        let folder = folder.path().join(engine);
        let (mut journal, ..) = Journal::open(&folder, &identity(&plan, engine), false).unwrap();
        journal.begin(&begin()).unwrap();
        let rows = made_up(&plan);
        let has = |cell: &Cell| engine == "kernel" || cell.values["congestion"] != "bbr";
        rows.iter().filter(|row| has(&row.cell)).for_each(|row| journal.row(row).unwrap());
    }
    let engines = engines_in(folder.path());
    assert_eq!(engines, ["kernel", "sim"]);
    let written = write_together(&plan, folder.path(), &engines).unwrap();
    let ran: Vec<together::Ran<'_>> =
        engines.iter().map(String::as_str).zip(written.iter().map(|w| &w.evaluation)).collect();
    insta::assert_snapshot!(together::text(&plan, &ran));
    let html = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(html.contains("<b>sim over kernel</b>") && html.contains("kernel/report.html"));
    let (all, sim) = (written[0].evaluation.cells.len(), written[1].evaluation.cells.len());
    assert!(sim < all && html.contains(&format!("{sim} of {sim} lie within 15 %")), "{sim} {all}");
}
