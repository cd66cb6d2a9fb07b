//! Whether one value of an axis gains more over another at one place than at a second.

use super::{CellResult, Decision, Short, not_measured};
use crate::plan::Gain;

/// Decides it for each pair of places that are alike otherwise, by the ratios of medians.
pub(super) fn decide(gain: &Gain, cells: &[CellResult]) -> Decision {
    let [axis, gains, over] = &gain.from;
    let [place, more, less] = &gain.more;
    let apart = [axis.as_str(), place.as_str()];
    let chosen: Vec<&CellResult> = cells.iter().filter(|r| gain.of.includes(&r.cell)).collect();
    let find = |alike: &str, value: &str, at: &str| {
        let of = |result: &&&CellResult| {
            let is = |axis: &str, wanted: &str| result.cell.text(axis) == Ok(wanted);
            is(axis, value) && is(place, at) && result.cell.key_without(&apart) == alike
        };
        chosen.iter().find(of).map(|result| result.median)
    };
    let ratio = |alike: &str, at: &str| {
        Some(find(alike, gains, at)? / find(alike, over, at).filter(|below| *below > 0.0)?)
    };
    let mut report = Vec::new();
    let mut short = 0;
    for result in &chosen {
        let here = result.cell.text(axis) == Ok(gains) && result.cell.text(place) == Ok(more);
        let alike = result.cell.key_without(&apart);
        let (true, Some(a), Some(b)) = (here, ratio(&alike, more), ratio(&alike, less)) else {
            continue;
        };
        short += usize::from(a <= b);
        report.push((a, b));
    }
    let (Some(first), Some(last)) = (report.first(), report.last()) else { return not_measured() };
    let pair = |(a, b): &(f64, f64)| format!("{} × beside {} ×", Short(*a), Short(*b));
    let evidence = format!(
        "at {more} beside {less}: {} … {}; more in {} of {} places",
        pair(first),
        pair(last),
        report.len() - short,
        report.len()
    );
    (Some(short == 0), evidence)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cell::Cell;
    use crate::plan::Selection;
    use std::collections::BTreeMap;

    /// Cells of a jammed uplink: its rate, MTU, jam, goodput.
    pub(in crate::evaluation) fn jammed(rows: &[(&str, &str, &str, f64)]) -> Vec<CellResult> {
        let cell = |(uplink, mtu, jam, median): &(&str, &str, &str, f64)| CellResult {
            cell: Cell::new("jam", [("uplink", *uplink), ("mtu", *mtu), ("jam", *jam)]),
            runs: vec![(0, *median)],
            median: *median,
            quartiles: (*median, *median),
            ..CellResult::default()
        };
        rows.iter().map(cell).collect()
    }

    fn gain() -> Gain {
        Gain {
            of: Selection { part: "jam".to_owned(), cells: BTreeMap::new() },
            from: ["mtu", "9000", "1500"].map(str::to_owned),
            more: ["uplink", "10 Mbit/s", "100 Mbit/s"].map(str::to_owned),
        }
    }

    #[test]
    fn claim_fails_unless_every_place_gains_more() {
        let mut rows = vec![
            ("10 Mbit/s", "1500", "0 %", 400.0),
            ("10 Mbit/s", "9000", "0 %", 900.0),
            ("100 Mbit/s", "1500", "0 %", 800.0),
            ("100 Mbit/s", "9000", "0 %", 900.0),
            ("10 Mbit/s", "1500", "20 %", 300.0),
            ("10 Mbit/s", "9000", "20 %", 600.0),
            ("100 Mbit/s", "1500", "20 %", 600.0),
            ("100 Mbit/s", "9000", "20 %", 900.0),
        ];
        let (holds, evidence) = decide(&gain(), &jammed(&rows));
        assert_eq!(holds, Some(true));
        assert_eq!(
            evidence,
            "at 10 Mbit/s beside 100 Mbit/s: 2.25 × beside 1.12 × … 2.00 × beside 1.50 ×; more in 2 of 2 \
             places"
        );
        rows[7].3 = 1200.0;
        let (holds, evidence) = decide(&gain(), &jammed(&rows));
        assert_eq!(holds, Some(false), "equal is not more");
        assert!(evidence.contains("1 of 2"), "{evidence}");
        assert_eq!(decide(&gain(), &jammed(&rows[..2])).0, None, "nothing to stand beside");
    }
}
