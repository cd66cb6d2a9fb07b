use super::*;
use crate::engine::Calibration;
use crate::evaluation::tests::{plan, rows};
use crate::machine::Machine;
use crate::runner::journal::{Begin, Identity, Journal};

fn identity() -> Identity {
    let (experiment, engine) = ("sample".into(), "made-up".into());
    Identity { experiment, engine, plan: plan().hash, version: "1".into(), seed: 1 }
}

fn begin() -> Begin {
    Begin {
        time: 1_700_000_000,
        command: "ekiden lab run sample".into(),
        machine: Machine { cpu: "a processor".into(), cores: 2, ..Machine::default() },
        facts: [("congestion control".to_owned(), "cubic".to_owned())].into(),
        calibration: Calibration {
            errors: [("rate, 1 Gbit/s".to_owned(), 0.004)].into(),
            figures: [("RTT error p50, µs".to_owned(), 84.0)].into(),
        },
        ..Begin::default()
    }
}

/// Headings alone, with what stands in the answer.
fn outline(html: &str) -> String {
    let mut out = String::new();
    for tag in ["h1", "h2", "h3", "summary"] {
        for part in html.split(&format!("<{tag}")).skip(1) {
            let text = part.split_once('>').map_or("", |(_, rest)| rest);
            let text = text.split("</").next().unwrap_or_default();
            out += &format!("{tag} {text}\n");
        }
    }
    out
}

#[test]
fn a_folder_of_rows_becomes_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let (mut journal, ..) = Journal::open(folder.path(), &identity(), false).unwrap();
    journal.begin(&begin()).unwrap();
    rows().iter().for_each(|row| journal.row(row).unwrap());
    let written = write(&plan(), folder.path()).unwrap();
    for file in ["summary.json", "rows.csv", "row.svg", "files.svg", "report.html"] {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
    assert_eq!(written.evaluation.failing(), 0);
    let html = fs::read_to_string(&written.page).unwrap();
    insta::assert_snapshot!(outline(&html));
    assert!(html.contains("<b>2 of 2</b> published figures hold here."));
    assert!(!html.contains("Here:") && !html.contains("virtual time"));
    // self-contained: nothing is fetched
    for outside in ["http://", "https://", "<script", "<link", "src=", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
}

/// The plan's words are of all its repetitions, and of programs.
#[test]
fn says_where_less_was_run_than_the_plan_has_and_where_nothing_real_was() {
    let folder = tempfile::tempdir().unwrap();
    let text = include_str!("../runner/sample.toml").replace("made-up\"", "sim\"");
    let plan = crate::plan::parse("sample.toml", &text).unwrap();
    let identity = Identity { engine: "sim".into(), plan: plan.hash.clone(), ..identity() };
    let (mut journal, ..) = Journal::open(folder.path(), &identity, false).unwrap();
    journal.begin(&begin()).unwrap();
    let first = rows().into_iter().filter(|row| row.repetition == 0);
    first.for_each(|row| journal.row(&row).unwrap());
    let html = fs::read_to_string(write(&plan, folder.path()).unwrap().page).unwrap();
    assert!(html.contains("<b>Here: 1 of the 3 repetitions of the plan.</b>"), "{html}");
    assert!(html.contains("engine <b>sim</b>, on virtual time"), "{html}");
}

#[test]
fn reports_rows_of_each_version() {
    let folder = tempfile::tempdir().unwrap();
    let next = Identity { version: "9".into(), ..identity() };
    for (nth, identity) in [identity(), next].iter().enumerate() {
        let (mut journal, _) = Journal::open(folder.path(), identity, true).unwrap();
        journal.begin(&begin()).unwrap();
        rows().iter().skip(nth).take(1).for_each(|row| journal.row(row).unwrap());
    }
    let written = write(&plan(), folder.path()).unwrap();
    let versions: Vec<_> = written.summary.makers.iter().map(|m| (&*m.version, m.rows)).collect();
    assert_eq!(versions, [(&*identity().version, 1), ("9", 1)]);
    let html = fs::read_to_string(&written.page).unwrap();
    assert!(html.contains("<dt>1 rows</dt><dd>ekiden 9, plan"), "{html}");
}

#[test]
fn names_the_command_when_there_are_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let message = write(&plan(), folder.path()).unwrap_err().to_string();
    assert!(message.contains("ekiden lab run sample"), "{message}");
}
