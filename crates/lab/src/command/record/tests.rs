use super::*;
use crate::runner::progress::Silent;
use crate::runner::{Batch, Options, journal};
use crate::sim::Simulated;

const PLAN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ekiden/tests/cmd/lab.in/tiny.toml");

fn asked(cell: &[&str]) -> Record {
    Record {
        experiment: PLAN.into(),
        only: vec!["row".into()],
        cell: cell.iter().map(|pair| (*pair).to_owned()).collect(),
        repetition: 1,
        seed: 3,
        packets: None,
        pcap: None,
        at: At::Sender,
        flows: Vec::new(),
        json: true,
        command: "ekiden lab record tiny".into(),
    }
}

fn answer(asked: &Record) -> serde_json::Value {
    serde_json::from_str(&record(asked).unwrap().text).unwrap()
}

/// What `ekiden lab run` keeps of a repetition and what is recorded of it are one run.
#[test]
fn the_recorded_run_is_the_one_that_was_kept() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan::find(PLAN).unwrap();
    let options = Options {
        choice: Choice::default(),
        seed: 3,
        folder: folder.path().to_owned(),
        version: "1".into(),
        keep: false,
        command: String::new(),
        stop: std::sync::Arc::default(),
    };
    let batch = Batch::open(&plan, options, &Simulated).unwrap();
    batch.run(&mut [Box::new(Simulated)], &Silent).unwrap();
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
fn files_hold_what_is_said() {
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
    let told = record(&nowhere).unwrap_err();
    assert!(told.contains("writing /nonexistent/run.parquet"), "{told}");
}

#[test]
fn what_would_ruin_or_miss_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| Some(folder.path().join(name));
    let tiny = asked(&["relays=1", "file=1MiB"]);
    let same = Record { packets: path("run"), pcap: path("./run"), ..tiny.clone() };
    let told = record(&same).unwrap_err();
    assert!(told.contains("overwrite each other"), "{told}");
    std::fs::write(folder.path().join("one"), "kept").unwrap();
    std::os::unix::fs::symlink("one", folder.path().join("link")).unwrap();
    let linked = Record { packets: path("one"), pcap: path("link"), ..tiny.clone() };
    assert!(record(&linked).is_err());
    assert_eq!(std::fs::read_to_string(folder.path().join("one")).unwrap(), "kept");
    let null = Some(PathBuf::from("/dev/null"));
    assert!(record(&Record { packets: null.clone(), pcap: null, ..tiny.clone() }).is_ok());
    let flows = Record { packets: path("rows"), flows: vec![0, 4, 9999], ..tiny.clone() };
    let told = record(&flows).unwrap_err();
    assert!(told.contains("no flow 4, 9999") && told.contains("has 4"), "{told}");
    assert!(!folder.path().join("rows").exists());
    let demo = Record { experiment: "demo".into(), only: vec![], ..tiny };
    let told = record(&demo).unwrap_err();
    assert!(told.contains("runs on kernel alone"), "{told}");
}

#[test]
fn which_cell_is_meant_has_to_be_said() {
    let told = |asked: &Record| record(asked).unwrap_err().replace(PLAN, "tiny.toml");
    let told = [
        told(&Record { only: vec![], ..asked(&[]) }),
        told(&asked(&["peer=squid"])),
        told(&asked(&["peer=squid", "file=8 MiB"])),
        told(&asked(&["relay=1"])),
        told(&asked(&["relays"])),
        told(&asked(&["file=much"])),
        told(&Record { only: vec!["rows".into()], ..asked(&[]) }),
    ];
    insta::assert_snapshot!(told.join("\n"));
}
