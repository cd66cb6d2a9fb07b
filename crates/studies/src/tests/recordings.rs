//! `ekiden lab record`, of the island's downloads.

use ekiden_lab::command::Answer;
use ekiden_lab::command::record::{At, Record, record};
use ekiden_lab::engine::sim::Simulated;
use ekiden_lab::plan;
use ekiden_lab::runner::{Batch, Options, journal};
use std::path::PathBuf;

const PLAN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ekiden/tests/cmd/lab.in/tiny.toml");

fn asked(cell: &[&str]) -> Record {
    Record {
        experiment: PLAN.into(),
        only: vec!["row".into()],
        cell: cell.iter().map(|pair| (*pair).to_owned()).collect(),
        repetition: 1,
        seed: 3,
        json: true,
        command: "ekiden lab record tiny".into(),
        ..Record::default()
    }
}

fn recorded(asked: &Record) -> Result<Answer, String> {
    crate::register();
    record(asked)
}

fn answer(asked: &Record) -> serde_json::Value {
    serde_json::from_str(&recorded(asked).unwrap().text).unwrap()
}

/// What `ekiden lab run` keeps of a repetition and what is recorded of it are one run.
#[test]
fn recorded_run_equals_the_kept_one() {
    let folder = tempfile::tempdir().unwrap();
    crate::register();
    let plan = plan::find(PLAN).unwrap();
    let options = Options { seed: 3, folder: folder.path().to_owned(), ..Options::default() };
    let batch = Batch::open(&plan, options, &Simulated(plan.study)).unwrap();
    batch.run(&mut [Box::new(Simulated(plan.study))], &()).unwrap();
    let rows = journal::read(folder.path()).unwrap().unwrap().rows;
    let wanted = |row: &&journal::Row| {
        let values = &row.cell.values;
        row.repetition == 1 && values["relays"] == "2" && values["file"] == "1 MiB"
    };
    let kept = rows.iter().find(wanted).unwrap().outcome.clone().unwrap();
    let recorded = answer(&asked(&["relays=2", "file=1MiB"]));
    assert_eq!(recorded["fingerprint"], *kept.facts["fingerprint"]);
    assert_eq!(recorded["value"], kept.value);
    let other = answer(&Record { repetition: 0, ..asked(&["relays=2", "file=1MiB"]) });
    assert_ne!(other["fingerprint"], recorded["fingerprint"]);
}

#[test]
fn recorded_files_match_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let files = Record {
        packets: Some(folder.path().join("run.parquet")),
        pcap: Some(folder.path().join("run.pcapng")),
        ..asked(&["relays=1", "file=1MiB"])
    };
    let all = answer(&files);
    let count = |document: &serde_json::Value, nth: usize| {
        document["files"][nth]["count"].as_u64().unwrap()
    };
    // 1 MiB in segments of 1,448 bytes over two connections: sent and arrived
    assert!(count(&all, 0) > 4 * 725, "{all}");
    for (nth, begins) in [b"PAR1", b"\x0a\x0d\x0d\x0a"].iter().enumerate() {
        let path = all["files"][nth]["path"].as_str().unwrap();
        let bytes = std::fs::read(path).unwrap();
        assert_eq!(all["files"][nth]["bytes"], bytes.len());
        assert_eq!(bytes[..4], **begins);
    }
    // the second flow is the first connection's download
    let one = answer(&Record { flows: vec![1], ..files.clone() });
    assert!(count(&one, 0) * 3 < count(&all, 0) * 2 && count(&one, 1) < count(&all, 1));
    let receiver = answer(&Record { at: At::Receiver, ..files.clone() });
    // what is lost on the way never comes there
    assert_ne!(count(&receiver, 1), count(&all, 1));
    assert_eq!(receiver["fingerprint"], all["fingerprint"]);
    let nowhere = Record { packets: Some("/nonexistent/run.parquet".into()), ..files };
    let report = recorded(&nowhere).unwrap_err();
    assert!(report.contains("writing /nonexistent/run.parquet"), "{report}");
}

#[test]
fn refuses_files_that_overwrite_and_flows_that_do_not_exist() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| Some(folder.path().join(name));
    let tiny = asked(&["relays=1", "file=1MiB"]);
    let same = Record { packets: path("run"), pcap: path("./run"), ..tiny.clone() };
    let report = recorded(&same).unwrap_err();
    assert!(report.contains("overwrite each other"), "{report}");
    std::fs::write(folder.path().join("one"), "kept").unwrap();
    std::os::unix::fs::symlink("one", folder.path().join("link")).unwrap();
    let linked = Record { packets: path("one"), pcap: path("link"), ..tiny.clone() };
    assert!(recorded(&linked).is_err());
    assert_eq!(std::fs::read_to_string(folder.path().join("one")).unwrap(), "kept");
    let null = Some(PathBuf::from("/dev/null"));
    assert!(recorded(&Record { packets: null.clone(), pcap: null, ..tiny.clone() }).is_ok());
    let flows = Record { packets: path("rows"), flows: vec![0, 4, 9999], ..tiny.clone() };
    let report = recorded(&flows).unwrap_err();
    assert!(report.contains("no flow 4, 9999") && report.contains("has 4"), "{report}");
    assert!(!folder.path().join("rows").exists());
    let demo = Record { experiment: "demo".into(), only: vec![], ..tiny };
    let report = recorded(&demo).unwrap_err();
    assert!(report.contains("runs on kernel only"), "{report}");
}

#[test]
fn asks_for_the_cell_to_record() {
    let report = |asked: &Record| record(asked).unwrap_err().replace(PLAN, "tiny.toml");
    let report = [
        report(&Record { only: vec![], ..asked(&[]) }),
        report(&asked(&["peer=squid"])),
        report(&asked(&["peer=squid", "file=8 MiB"])),
        report(&asked(&["relay=1"])),
        report(&asked(&["relays"])),
        report(&asked(&["file=much"])),
        report(&Record { only: vec!["rows".into()], ..asked(&[]) }),
    ];
    insta::assert_snapshot!(report.join("\n"));
}
