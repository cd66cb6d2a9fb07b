//! One test's rows as text: medians, spreads, ratios, best first.

use crate::comparison::{Contestant, Row, Test};
use ekiden_lab::statistics::{median, spread};
use std::fmt::Write;

struct Line {
    contestant: Contestant,
    value: f64,
    spread: f64,
    busy: f64,
    second: f64,
    failures: u64,
}

/// A table; nothing where nothing was measured.
pub(crate) fn of(test: Test, rows: &[Row]) -> String {
    let mut lines: Vec<Line> =
        Contestant::ALL.into_iter().filter_map(|c| line(test, c, rows)).collect();
    if lines.is_empty() {
        return String::new();
    }
    lines.sort_by(|a, b| b.value.total_cmp(&a.value));
    if test.less_is_better() {
        lines.reverse();
    }
    let best = lines.iter().find(|l| !l.contestant.is_ekiden()).map(|l| l.value);
    let squid = lines.iter().find(|l| l.contestant.name == "squid").map(|l| l.value);
    let (scale, unit, second) = match test {
        Test::Bulk1 | Test::Bulk100 => (1e9, "GB/CPU-s", "GB/s"),
        Test::Connects => (1.0, "conn/s", "conn/CPU-s"),
        Test::Idle => (1024.0, "KiB/conn", "MiB all"),
    };
    let mut text = format!(
        "\n{name}: {what}, median of {n}\n{0:16} {unit:>10} {1:>7} {2:>8} {3:>8} {second:>10} {4:>6} {5:>8}\n",
        "",
        "spread",
        "/best",
        "/squid",
        "busy",
        "failures",
        name = test.name(),
        what = test.unit(),
        n = rows.iter().filter(|r| r.test == test.name()).map(|r| r.round).max().unwrap_or(0) + 1,
    );
    for line in lines {
        let ratio =
            |to: Option<f64>| to.map_or(String::new(), |to| format!("{:.2}", line.value / to));
        let _infallible = writeln!(
            text,
            "{:16} {:>10.2} {:>6.0}% {:>8} {:>8} {:>10.2} {:>5.0}% {:>8}",
            line.contestant.name,
            line.value / scale,
            line.spread * 100.0,
            ratio(best),
            ratio(squid),
            line.second,
            line.busy * 100.0,
            line.failures,
        );
    }
    text
}

fn line(test: Test, contestant: Contestant, rows: &[Row]) -> Option<Line> {
    let mine: Vec<&Row> =
        rows.iter().filter(|r| r.test == test.name() && r.peer == contestant.name).collect();
    let of = |figure: fn(&Row) -> f64| -> Vec<f64> { mine.iter().map(|r| figure(r)).collect() };
    let second = match test {
        Test::Bulk1 | Test::Bulk100 => of(|r| r.bytes as f64 / r.seconds / 1e9),
        Test::Connects => of(|r| r.connections as f64 / r.cpu_seconds.max(0.01)),
        Test::Idle => of(|r| r.memory as f64 / 1024.0 / 1024.0),
    };
    let values = of(|r| r.value);
    Some(Line {
        contestant,
        value: median(&values)?,
        spread: spread(&values).unwrap_or(0.0),
        busy: if test == Test::Idle { 0.0 } else { median(&of(|r| r.cpu_seconds / r.seconds))? },
        second: median(&second)?,
        failures: mine.iter().map(|r| r.failures).sum(),
    })
}
