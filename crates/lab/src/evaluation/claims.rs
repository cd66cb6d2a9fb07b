//! A claim of the plan decided from the measured cells.

use super::*;

pub(super) fn decide(
    claim: &Claim,
    plan: &Plan,
    cells: &[CellResult],
    seed: u64,
    compared: &mut Vec<Compared>,
) -> Decision {
    match &claim.rule {
        Rule::Beside { ours, others, mean_at_least, no_interval_below } => {
            let found = beside(plan, cells, ours, others, seed);
            let decided = beside_holds(&found, *mean_at_least, *no_interval_below, seed);
            compared.extend(found);
            decided
        }
        Rule::Placement { of, within } => placement::decide(of, *within, cells),
        Rule::Figure(expectation) => match measured::figure(expectation, cells, seed) {
            Some(found) => {
                let unit = match (&expectation.against, &expectation.figure) {
                    (Some(_), _) => "×",
                    (None, Some(figure)) => &figure.replace('_', " "),
                    (None, None) => &plan.measure_of(&expectation.of.part).unit,
                };
                let miss = expectation.miss(found.value);
                let miss = miss.map_or(String::new(), |miss| format!(": {miss}"));
                let evidence = format!("{} {unit}{miss}", Short(found.value));
                (Some(expectation.is_met(found.value)), evidence)
            }
            None => {
                let lack = measured::lack(&expectation.of, expectation.figure.as_deref(), cells);
                (None, lack.unwrap_or_else(|| NOT_MEASURED.to_owned()))
            }
        },
        Rule::Falls { of, along, slack } => monotone::decide(of, along, *slack, cells),
        Rule::Gain(gain) => gain::decide(gain, cells),
        Rule::Order { of, along, figure, repetitions_at_least } => {
            order::decide(of, along, figure.as_deref(), *repetitions_at_least, cells)
        }
    }
}

fn beside(
    plan: &Plan,
    cells: &[CellResult],
    ours: &str,
    others: &[String],
    seed: u64,
) -> Vec<Compared> {
    let peer = |result: &CellResult| result.cell.values.get(&plan.paired).cloned();
    let condition = |result: &CellResult| result.cell.key_without(&[&plan.paired]);
    let own = cells.iter().filter(|result| peer(result).as_deref() == Some(ours));
    own.filter_map(|own| {
        let same = cells.iter().filter(|result| condition(result) == condition(own));
        let rivals: Vec<(String, Runs)> = same
            .filter_map(|result| Some((peer(result)?, result.runs.clone())))
            .filter(|(name, _)| others.contains(name))
            .collect();
        let beside = paired::beside(&own.runs, &rivals, seed)?;
        Some(Compared { cell: own.cell.clone(), beside })
    })
    .collect()
}

fn beside_holds(found: &[Compared], mean: f64, floor: f64, seed: u64) -> Decision {
    let ratios: Vec<Vec<f64>> = found.iter().map(|c| c.beside.ratios.clone()).collect();
    let Some((all, interval)) = paired::over_all(&ratios, seed) else { return not_measured() };
    let below = |c: &&Compared| c.beside.interval.is_some_and(|i| i.high < floor);
    let slow: Vec<String> = found
        .iter()
        .filter(below)
        .map(|c| format!("{} ({:.2})", c.cell.key(), c.beside.ratio))
        .collect();
    let repeated = found.iter().any(|c| c.beside.interval.is_some());
    let range = interval.map_or(String::new(), |i| format!(" ({:.3} … {:.3})", i.low, i.high));
    let mut evidence = format!("geometric mean {all:.3}{range} over {} cells; ", found.len());
    evidence += &match (repeated, slow.as_slice()) {
        (false, _) => "one run each, so no intervals".to_owned(),
        (true, []) => format!("no cell's interval lies below {floor}"),
        (true, slow) => format!("below {floor}: {}", slow.join(", ")),
    };
    (Some(all >= mean && slow.is_empty()), evidence)
}
