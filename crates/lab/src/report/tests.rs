use super::*;
use crate::engine::Calibration;
use crate::evaluation::tests::{plan, rows};
use crate::machine::Machine;
use crate::runner::journal::{Begin, Identity, Journal};

fn identity() -> Identity {
    Identity {
        experiment: "sample".into(),
        engine: "made-up".into(),
        plan: plan().hash,
        version: "1".into(),
        seed: 1,
    }
}

fn begin() -> Begin {
    Begin {
        time: 1_700_000_000,
        command: "ekiden lab run sample".into(),
        machine: Machine {
            cpu: "a processor".into(),
            cores: 2,
            kernel: "6.1".into(),
            ..Machine::default()
        },
        facts: [("congestion control".to_owned(), "cubic".to_owned())].into(),
        calibration: Calibration {
            errors: [("rate, 1 Gbit/s".to_owned(), 0.004)].into(),
            figures: [("RTT error p50, µs".to_owned(), 84.0)].into(),
        },
        lacks: std::collections::BTreeMap::new(),
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
    assert!(written.evaluation.holds());
    let html = fs::read_to_string(&written.page).unwrap();
    insta::assert_snapshot!(outline(&html));
    assert!(html.contains("<b>2 of 2</b> published figures hold here."));
    // self-contained: nothing is fetched
    for outside in ["http://", "https://", "<script", "<link", "src=", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
}

#[test]
fn rows_of_several_versions_are_told_apart() {
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
fn without_rows_it_says_how_to_make_them() {
    let folder = tempfile::tempdir().unwrap();
    let said = write(&plan(), folder.path()).unwrap_err().to_string();
    assert!(said.contains("ekiden lab run sample"), "{said}");
}

#[test]
fn every_plan_that_comes_with_the_program_is_drawn_from_nothing() {
    for plan in crate::plan::all().unwrap() {
        let (identity, begins) = (identity(), vec![begin()]);
        let kept = Kept { identity, earlier: vec![], begins, rows: vec![], unreadable: 0 };
        let evaluation = evaluation::evaluate(&plan, &kept);
        let said = html(&plan, &kept, &evaluation)
            .contains("No published figure that is asserted was measured");
        assert_eq!(said, !plan.published.is_empty());
    }
}

/// Made-up rows of the whole island, to look at: `EKIDEN_KEEP_REPORT=DIR cargo test -p ekiden-lab`.
#[test]
fn the_island_is_drawn_whole() {
    let plan = crate::plan::find("island").unwrap();
    let rows = evaluation::tests::made_up(&plan);
    let kept = std::env::var_os("EKIDEN_KEEP_REPORT").map(PathBuf::from);
    let temporary = tempfile::tempdir().unwrap();
    let folder = kept.unwrap_or_else(|| temporary.path().to_owned());
    let identity = Identity {
        experiment: "island".into(),
        engine: "kernel".into(),
        plan: plan.hash.clone(),
        ..identity()
    };
    let (mut journal, ..) = Journal::open(&folder, &identity, false).unwrap();
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
    let plan = crate::plan::find("island").unwrap();
    let folder = tempfile::tempdir().unwrap();
    for engine in ["kernel", "sim"] {
        let identity = Identity {
            experiment: "island".into(),
            engine: engine.into(),
            plan: plan.hash.clone(),
            ..identity()
        };
        let (mut journal, ..) =
            Journal::open(&folder.path().join(engine), &identity, false).unwrap();
        journal.begin(&begin()).unwrap();
        let rows = evaluation::tests::made_up(&plan);
        let has =
            |cell: &crate::cell::Cell| engine == "kernel" || cell.values["congestion"] != "bbr";
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
