//! The plans that come with the program, and the axes of all studies.

use ekiden_lab::cell::Cell;
use ekiden_lab::cell::axis;
use ekiden_lab::plan::{Choice, Claim, Rule, all, find};
use ekiden_lab::study::Study;

#[test]
fn every_embedded_plan_is_read_and_has_quick_cells() {
    crate::register();
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
    crate::register();
    for plan in all().unwrap() {
        let beside = |claim: &&Claim| matches!(claim.rule, Rule::Beside { .. });
        for claim in plan.claims.iter().filter(beside) {
            assert!(!claim.asserted.concerns("sim"), "{}: {}", plan.name, claim.text);
        }
    }
}

#[test]
fn suggests_the_nearest_experiment() {
    crate::register();
    let message = find("iland").unwrap_err().to_string();
    assert!(message.contains("did you mean `island`?"), "{message}");
    assert!(find("./none.toml").unwrap_err().to_string().contains("./none.toml"));
}

#[test]
fn canonicalizes_values() {
    crate::register();
    let canonical = |axis, text| axis::named(axis).unwrap().canonical(text);
    assert_eq!(canonical("file", "8MiB"), Ok("8 MiB".to_owned()));
    assert_eq!(canonical("file", "8192 KiB"), Ok("8 MiB".to_owned()));
    assert_eq!(canonical("window", "defaults"), Ok("defaults".to_owned()));
    assert_eq!(canonical("relays", "4.0"), Ok("4".to_owned()));
    assert_eq!(canonical("loss", "0.4%"), Ok("0.4 %".to_owned()));
    assert_eq!(canonical("acks", "2.0"), Ok("2".to_owned()));
    assert_eq!(canonical("acks", "study"), Ok("study".to_owned()));
    assert!(canonical("acks", "studied").unwrap_err().contains("study"));
    assert!(canonical("peer", "squib").unwrap_err().contains("squid"));
}

#[test]
fn refuses_values_that_yield_nothing() {
    crate::register();
    let report = |axis: &str, text| axis::named(axis).unwrap().canonical(text).unwrap_err();
    for (axis, text, wanted) in [
        ("pairs", "0", "minimum of 1"),
        ("pairs", "2.5", "not a whole number"),
        ("pairs", "NaN", "not a whole number"),
        ("relays", "-1", "minimum of 0"),
        ("relays", "1e9", "maximum of 100"),
        ("segments", "0", "minimum of 1"),
        ("segments", "6000", "maximum of 5745"),
        ("rate", "1 bit/s", "minimum of 1 kbit/s"),
        ("file", "0 B", "minimum of 1 B"),
        ("window", "1 KiB", "minimum of 1460 B"),
        ("cut", "0 s", "minimum of 1 ms"),
        ("acks", "0", "minimum of 1"),
        ("acks", "1.5", "neither a whole number nor `study`"),
        ("burstiness", "1.7", "not one of 1.5, 2, 2.4"),
        ("mtu", "100", "minimum of 576"),
        ("handshake-loss", "25 %", "maximum of 22 %"),
    ] {
        let report = report(axis, text);
        assert!(report.contains(wanted) && report.contains(text), "{axis}: {report}");
    }
    assert_eq!(axis::named("burstiness").unwrap().canonical("2.0"), Ok("2".to_owned()));
    assert_eq!(axis::named("window").unwrap().canonical("defaults"), Ok("defaults".to_owned()));
}

/// A bound that cannot be read would be none.
#[test]
fn every_bound_is_a_value_of_its_axis() {
    crate::register();
    for axis in axis::all() {
        for bound in [axis.range.0, axis.range.1].into_iter().filter(|bound| !bound.is_empty()) {
            assert_eq!(axis.canonical(bound), Ok(bound.to_owned()), "{}", axis.name);
            assert!(axis.number(bound).is_some());
        }
    }
}

/// Every cell of a study's own plan that the kernel runs.
fn kernel_cells(study: &dyn Study) -> Vec<Cell> {
    crate::register();
    let choice = Choice { engine: Some("kernel".to_owned()), ..Choice::default() };
    let cells = find(study.name()).unwrap().cells(&choice);
    cells.into_iter().map(|(cell, _)| cell).collect()
}

#[test]
fn every_kernel_cell_makes_a_network() {
    use crate::{asymmetric, download, long_link, proxy_pressure};
    let legs: [&dyn Study; 3] =
        [&crate::island::ISLAND, &crate::island::AGREEMENT, &crate::island::DEMO];
    for cell in legs.into_iter().flat_map(kernel_cells) {
        download::network::of(&cell, 1, Some(1)).unwrap().plan.check().unwrap();
    }
    for cell in kernel_cells(&asymmetric::Asymmetric) {
        asymmetric::network(&cell).unwrap().plan.check().unwrap();
    }
    for cell in kernel_cells(&proxy_pressure::ProxyPressure) {
        proxy_pressure::kernel::network(&cell, 1).unwrap().check().unwrap();
    }
    let long: [&dyn Study; 2] = [&crate::satellite::Satellite, &crate::thin_client::ThinClient];
    for cell in long.into_iter().flat_map(kernel_cells) {
        long_link::network(&cell, 1, Some(1)).unwrap().check().unwrap();
    }
}
