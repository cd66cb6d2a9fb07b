//! `ekiden lab` with the studies that come with the program.

use ekiden_lab::command::{Run, list, run};
use ekiden_lab::study::Study;
use serde_json::Value;
use std::sync::Arc;

#[test]
fn lists_every_study() {
    crate::register();
    let text = list(false).unwrap().text;
    assert!(text.contains("\nisland  ") && text.contains("with --quick"), "{text}");
    let document: Value = serde_json::from_str(&list(true).unwrap().text).unwrap();
    let all = document["experiments"].as_array().unwrap();
    assert!(all.iter().any(|one| one["name"] == "island"));
}

#[test]
fn refuses_impossible_requests() {
    crate::register();
    let asked = |change: fn(&mut Run)| {
        let mut asked = Run { experiment: "island".into(), ..Run::default() };
        asked.options.seed = 1;
        change(&mut asked);
        let engines = |name: &str, _: &'static dyn Study| Err(format!("no engine {name} here"));
        run(&asked, &engines, Arc::default()).unwrap_err()
    };
    let report = [
        asked(|run| run.experiment = "iland".into()),
        asked(|run| run.engine = Some("abacus".into())),
        asked(|run| run.options.choice.peers = vec!["squib".into()]),
        asked(|run| run.options.choice.only = vec!["rows".into()]),
        asked(|_| {}),
    ];
    insta::assert_snapshot!(report.join("\n"));
}
