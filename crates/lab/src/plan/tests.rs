use super::*;

const SAMPLE: &str = include_str!("../runner/sample.toml");

fn mistake(from: &str, to: &str) -> String {
    assert!(SAMPLE.contains(from), "{from}");
    parse("sample.toml", &SAMPLE.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn every_embedded_plan_is_read_and_has_quick_cells() {
    for plan in all().unwrap() {
        let full = plan.cells(&Choice::default());
        let quick = plan.cells(&Choice { quick: true, ..Choice::default() });
        assert!(!quick.is_empty() && quick.len() < full.len(), "{}", plan.name);
        assert!(quick.iter().all(|(cell, _)| full.iter().any(|(other, _)| other == cell)));
        assert_eq!(find(&plan.name).unwrap(), plan);
    }
}

/// In the simulator all relays are one, so that nothing beside another program can be asked of it.
#[test]
fn no_relay_is_set_beside_another_in_the_simulator() {
    for plan in all().unwrap() {
        let beside = |claim: &&Claim| matches!(claim.rule, Rule::Beside { .. });
        for claim in plan.claims.iter().filter(beside) {
            assert!(!claim.asserted.concerns("sim"), "{}: {}", plan.name, claim.text);
        }
    }
}

#[test]
fn a_plan_is_the_union_of_its_grids() {
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
    let told = [
        mistake("together = ", "togethre = "),
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
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn an_experiment_that_is_not_there_is_guessed() {
    let said = find("iland").unwrap_err().to_string();
    assert!(said.contains("did you mean «island»?"), "{said}");
    assert!(find("./none.toml").unwrap_err().to_string().contains("./none.toml"));
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
