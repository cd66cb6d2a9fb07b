use super::*;

const SAMPLE: &str = include_str!("../runner/sample.toml");

fn mistake(from: &str, to: &str) -> String {
    assert!(SAMPLE.contains(from), "{from}");
    parse("sample.toml", &SAMPLE.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn plan_is_the_union_of_its_grids() {
    let plan = parse("sample.toml", SAMPLE).unwrap();
    let cells = plan.cells(&Choice::default());
    // 2 un-split, 3 peers × 3 × 2 files, 2 slow
    assert_eq!(cells.len(), 22);
    let quick = plan.cells(&Choice { quick: true, ..Choice::default() });
    assert_eq!(quick.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [1; 4]);
    let peers = vec!["ekiden".to_owned()];
    let ekiden = plan.cells(&Choice { peers, repetitions: Some(9), ..Choice::default() });
    assert_eq!(ekiden.len(), 2 + 6 + 1);
    assert!(ekiden.iter().all(|(_, n)| *n == 9));
}

#[test]
fn every_mistake_has_its_line_and_a_hint() {
    let report = [
        mistake("together = ", "togethre = "),
        mistake("title = \"A sample\"", "study = \"islands\"\ntitle = \"A sample\""),
        mistake("shape = \"bars\"", "shape = \"bras\""),
        mistake("relays = [1, 2, 4]", "relay = [1, 2, 4]"),
        mistake("[\"squid\", \"dante\", \"ekiden\"], relays", "[\"squib\"], relays"),
        mistake("rtt = \"50 ms\"", "rtt = 50"),
        mistake("rtt = \"50 ms\"", "rtt = \"50 ms\"\ncut = \"0 s\""),
        mistake("rtt = \"50 ms\"", "mtu = [1500, 9000]\nwindow = \"8 KiB\""),
        mistake("relays = [1, 2, 4]", "relays = [1, 2.5]"),
        mistake("repetitions = 3", "repetitions = 0"),
        mistake("low = 200", "low = 500"),
        mistake("low = 4\n", ""),
        mistake(
            "part = \"row\", cells = { peer = \"squid\", relays = 4, file",
            "part = \"rows\", cells = { peer = \"squid\", relays = 4, file",
        ),
        mistake("relays = 4, file = \"8 MiB\" } }", "relays = 3, file = \"8 MiB\" } }"),
        mistake("beside = {", "besides = {"),
        mistake("name = \"slow\"", "name = \"row\""),
        mistake("engines = [\"made-up\"]", "engines = [\"made-up\""),
    ];
    insta::assert_snapshot!(report.join("\n"));
}

#[test]
fn expectations_do_not_invalidate_rows() {
    let plan = parse("sample.toml", SAMPLE).unwrap();
    let other = parse("sample.toml", &SAMPLE.replace("low = 200", "low = 100")).unwrap();
    assert_eq!(plan.hash, other.hash);
    let other =
        parse("sample.toml", &SAMPLE.replace("rtt = \"50 ms\"", "rtt = \"60 ms\"")).unwrap();
    assert_ne!(plan.hash, other.hash);
}
