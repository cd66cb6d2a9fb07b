use super::*;
use crate::engine::Outcome;
use crate::engine::Task;
use crate::plan::{self, Choice};
use crate::runner::order;
use ekiden_model::rng::Rng;

pub(crate) fn plan() -> Plan {
    plan::parse("sample.toml", include_str!("../runner/sample.toml")).unwrap()
}

/// Every run of the sample plan, with figures that a window over a leg's round trip would give.
pub(crate) fn rows() -> Vec<Row> {
    let plan = plan();
    let tasks = order::tasks(&plan, &plan.cells(&Choice::default()), 1);
    let mut rng = Rng::new(5);
    let row = |task: Task| {
        let relays: f64 = task.cell.value("relays").unwrap();
        let peer = match task.cell.text("peer").unwrap() {
            "ekiden" => 1.02,
            "squid" => 0.9,
            _ => 1.0,
        };
        let file: f64 = if task.cell.text("file").unwrap() == "8 MiB" { 1.0 } else { 0.4 };
        let noise = 0.99 + rng.below(1000) as f64 / 50_000.0;
        let value = 62.0 * (relays + 1.0) * peer * file * noise;
        let figures = [("connect_ms".to_owned(), 50.2)].into();
        let outcome = Some(Outcome { value, figures, ..Outcome::default() });
        let Task { cell, repetition, seed } = task;
        Row { cell, repetition, seed, time: 1_700_000_000, seconds: 1.5, outcome, ..Row::default() }
    };
    tasks.into_iter().map(row).collect()
}

/// As a folder of the sample plan's would hold them.
pub(crate) fn kept(rows: Vec<Row>) -> Kept {
    let identity = crate::runner::journal::Identity {
        experiment: "sample".into(),
        engine: "made-up".into(),
        plan: "0".into(),
        version: "1".into(),
        seed: 1,
    };
    Kept { identity, rows, ..Kept::default() }
}

#[test]
fn published_figures_are_judged_and_claims_decided() {
    let evaluation = evaluate(&plan(), &kept(rows()));
    assert_eq!((evaluation.missing, evaluation.failed.len()), (0, 0));
    let [squid, over] = evaluation.rows.as_slice() else { panic!("{:?}", evaluation.rows) };
    assert!((270.0..290.0).contains(&squid.measured.unwrap()), "{squid:?}");
    assert_eq!(squid.holds, Some(true));
    assert!(squid.interval.is_some());
    // 5 legs, squid at 0.9: 4.5 times
    assert!((4.3..4.7).contains(&over.measured.unwrap()), "{over:?}");
    assert_eq!(over.holds, Some(true));
    let [claim] = evaluation.claims.as_slice() else { panic!() };
    assert_eq!(claim.holds, Some(true), "{}", claim.evidence);
    assert!(claim.evidence.contains("over 7 cells"), "{}", claim.evidence);
    assert_eq!(evaluation.failing(), 0);
}

#[test]
fn names_the_slow_cell_that_fails_a_claim() {
    let mut rows = rows();
    for row in &mut rows {
        let ours = row.cell.values.get("peer").is_some_and(|p| p == "ekiden");
        if let Some(outcome) = row.outcome.as_mut().filter(|_| ours && row.cell.part == "slow") {
            outcome.value *= 0.5;
        }
    }
    let evaluation = evaluate(&plan(), &kept(rows));
    assert_eq!(evaluation.claims[0].holds, Some(false));
    let evidence = &evaluation.claims[0].evidence;
    assert!(evidence.contains("below 0.95: slow "), "{evidence}");
    assert_ne!(evaluation.failing(), 0);
}

#[test]
fn leaves_claims_open_without_runs() {
    let rows: Vec<Row> = rows().into_iter().filter(|r| r.cell.values["relays"] != "4").collect();
    let evaluation = evaluate(&plan(), &kept(rows));
    assert_eq!((evaluation.rows[0].measured, evaluation.rows[0].holds), (None, None));
    assert_eq!(evaluation.rows[1].holds, None);
    assert_eq!(evaluation.missing, 6);
}

#[test]
fn prefers_the_cleanest_of_several_attempts() {
    let mut rows = rows();
    let mut tainted = rows[0].clone();
    tainted.outcome = Some(Outcome { fidelity: Fidelity::Tainted, ..Outcome::of(1.0) });
    let cell = tainted.cell.clone();
    rows.insert(0, tainted);
    let evaluation = evaluate(&plan(), &kept(rows));
    let found = evaluation.cells.iter().find(|r| r.cell == cell).unwrap();
    assert_eq!(found.tainted, 0);
    assert!(found.runs.iter().all(|(_, value)| *value > 2.0));
}

#[test]
fn reports_the_reason_of_a_cell_that_always_failed() {
    let mut rows = rows();
    let cell = rows[0].cell.clone();
    for row in rows.iter_mut().filter(|row| row.cell == cell) {
        row.outcome = None;
        row.failure = Some("squid ended".into());
    }
    let evaluation = evaluate(&plan(), &kept(rows));
    assert_eq!(evaluation.failed, [(cell, "squid ended".to_owned())]);
}

#[test]
fn summary_has_the_documented_form() {
    let kept = kept(rows());
    let summary = summary::summary(&kept, &evaluate(&plan(), &kept));
    let document = serde_json::to_value(&summary).unwrap();
    let keys =
        |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let wanted =
        ["claims", "engine", "experiment", "measured", "rows", "seconds", "seed", "version"];
    let mut found = keys(&document);
    found.sort();
    assert_eq!(found, wanted);
    let mut row = keys(&document["rows"][0]);
    row.sort();
    assert_eq!(row, ["high", "holds", "low", "measured", "name", "published", "source", "unit"]);
    assert!(document["rows"][1]["high"].is_null() && document["rows"][1]["published"].is_null());
    let mut text = Vec::new();
    summary::csv(&kept.rows, "Mbit/s", &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let head = text.lines().next().unwrap();
    assert_eq!(
        head,
        "part,peer,relays,file,rtt,loss,repetition,attempt,seed,time,seconds,value_mbit_per_s,fidelity,reasons,failure,connect_ms"
    );
    assert_eq!(text.lines().count(), kept.rows.len() + 1);
}

/// The sample's first row, but of a further figure.
fn of_figure(name: &str) -> Judged {
    let text = include_str!("../runner/sample.toml");
    let wanted = format!("low = 200\nhigh = 400\nfigure = \"{name}\"");
    let plan = plan::parse("sample.toml", &text.replace("low = 200\nhigh = 400", &wanted)).unwrap();
    evaluate(&plan, &kept(rows())).rows.remove(0)
}

#[test]
fn judges_a_row_by_a_further_figure() {
    let judged = of_figure("connect_ms");
    assert_eq!((judged.measured, judged.holds, judged.lack), (Some(50.2), Some(false), None));
    let interval = judged.interval.unwrap();
    assert_eq!((interval.low, interval.high), (50.2, 50.2));
}

#[test]
fn names_the_known_figures_beside_an_unknown_one() {
    let judged = of_figure("conect_ms");
    assert_eq!((judged.measured, judged.holds), (None, None));
    let lack = judged.lack.unwrap();
    assert_eq!(lack, "not measured: there is no figure `conect_ms`; there are: connect_ms");
}

#[test]
fn reports_without_judging_when_runs_are_too_few() {
    let text = include_str!("../runner/sample.toml");
    let judged = |least: u32| {
        let wanted = format!("low = 1000\nrepetitions_at_least = {least}");
        let plan = plan::parse("sample.toml", &text.replace("low = 200\nhigh = 400", &wanted));
        evaluate(&plan.unwrap(), &kept(rows())).rows.remove(0)
    };
    let of_three = judged(3);
    assert_eq!((of_three.holds, of_three.is_too_few), (Some(false), false));
    let of_four = judged(4);
    assert_eq!((of_four.holds, of_four.is_too_few, of_four.within), (None, true, Some(false)));
}

#[test]
fn unknown_figure_fails_the_evaluation() {
    let text = include_str!("../runner/sample.toml");
    let parsed = |changed: &str| plan::parse("sample.toml", changed).unwrap();
    let row = |more: &str| {
        let plan = parsed(&text.replace("low = 200\nhigh = 400", &format!("low = 1\n{more}")));
        evaluate(&plan, &kept(rows()))
    };
    let fine = row("figure = \"connect_ms\"");
    assert!(fine.unknown.is_empty() && fine.failing() == 0);
    let wrong = row("figure = \"conect_ms\"");
    let [message] = wrong.unknown.as_slice() else { panic!("{:?}", wrong.unknown) };
    assert!(
        message.contains("published `squid, 4 relays`") && message.contains("connect_ms"),
        "{message}"
    );
    // of an engine that is not asked, nothing is known
    let others = text.replace("engines = [\"made-up\"]", "engines = [\"made-up\", \"other\"]");
    let wanted = "low = 1\nasserted = [\"other\"]\nfigure = \"conect_ms\"";
    let plan = parsed(&others.replace("low = 200\nhigh = 400", wanted));
    assert!(evaluate(&plan, &kept(rows())).unknown.is_empty());
    let table = "[[table]]\nname = \"t\"\ntitle = \"T\"\nof = { part = \"row\" }\nrows = \"relays\"\n\
                 columns = [\"value\", \"conect_ms\"]\n";
    let wrong = evaluate(&parsed(&format!("{text}\n{table}")), &kept(rows()));
    assert!(wrong.unknown[0].contains("table `t`"), "{:?}", wrong.unknown);
}

#[test]
fn does_not_count_lacking_cells_as_missing() {
    let mut kept = kept(rows());
    let cell = kept.rows[0].cell.clone();
    kept.rows.retain(|row| row.cell != cell);
    assert_eq!(evaluate(&plan(), &kept).missing, 1);
    let lacks = [(cell.key(), "no such relay".to_owned())].into();
    kept.begins.push(crate::runner::journal::Begin { lacks, ..Default::default() });
    let evaluation = evaluate(&plan(), &kept);
    assert_eq!(evaluation.missing, 0);
    assert_eq!(evaluation.lacking, [("no such relay".to_owned(), 1)].into());
}
