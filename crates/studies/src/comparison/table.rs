//! One test's rows as text: medians, spreads, ratios, best first.

use super::{Row, Test};
use ekiden_lab::statistics::{median, spread};
use ekiden_testbed::load::generator::Load;
use std::fmt::Write;

/// A column of ratios: to the best of some.
#[derive(Debug, Clone, Copy)]
pub struct Reference {
    /// The column's heading.
    pub heading: &'static str,
    /// Whether a contestant is one of them, by its name.
    pub has: fn(&str) -> bool,
}

struct Line {
    name: &'static str,
    value: Option<f64>,
    spread: f64,
    cpu: f64,
    busy: f64,
    second: f64,
    failures: u64,
}

/// A table; nothing where nothing was measured. The ratio behind the second figure is to the best of the first reference.
/// "cpu": the share of the window that the relay computed; "busy": that
/// its processor was not idle.
pub fn table(test: Test, rows: &[Row], references: &[Reference]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.test == test.name()).collect();
    let mut names: Vec<&'static str> = rows.iter().map(|row| row.peer).collect();
    names.sort_unstable();
    names.dedup();
    let mut lines: Vec<Line> = names.into_iter().filter_map(|n| line(test, n, &rows)).collect();
    let Some(last) = rows.iter().map(|row| row.round).max() else { return String::new() };
    lines.sort_by(|a, b| b.value.unwrap_or(0.0).total_cmp(&a.value.unwrap_or(0.0)));
    if test.less_is_better() {
        lines.reverse();
    }
    let best = |reference: &Reference| lines.iter().find(|l| (reference.has)(l.name))?.value;
    let best: Vec<Option<f64>> = references.iter().map(best).collect();
    let (scale, unit, second) = match test.load() {
        Load::Bulk => (1e9, "GB/CPU-s", "GB/s"),
        Load::Connects => (1.0, "conn/s", "conn/CPU-s"),
        Load::Idle => (1024.0, "KiB/conn", "MiB all"),
    };
    // the second figure's ratio is to the best of the first column's
    let among = |l: &&Line| references.first().is_some_and(|first| (first.has)(l.name));
    let best_second = lines.iter().filter(among).map(|l| l.second).reduce(f64::max);
    let heading_second = references.first().map_or("", |first| first.heading);
    let headings: String = references.iter().map(|r| format!(" {:>10}", r.heading)).collect();
    let mut text = format!(
        "\n{name}: {what}, median of {n}\n{0:16} {unit:>10} {1:>7}{headings} {second:>10} {heading_second:>10} {2:>6} {3:>6} {4:>8}\n",
        "",
        "spread",
        "cpu",
        "busy",
        "failures",
        name = test.name(),
        what = test.unit(),
        n = last + 1,
    );
    for line in &lines {
        let value = line.value.map_or("-".to_owned(), |value| format!("{:.2}", value / scale));
        let ratio = |to: &Option<f64>| {
            let ratio = line.value.zip(*to).map(|(value, to)| format!("{:.2}", value / to));
            format!(" {:>10}", ratio.unwrap_or_default())
        };
        let ratios: String = best.iter().map(ratio).collect();
        let _infallible = writeln!(
            text,
            "{:16} {value:>10} {:>6.0}%{ratios} {:>10.2} {:>10} {:>5.0}% {:>5.0}% {:>8}",
            line.name,
            line.spread * 100.0,
            line.second,
            best_second.map_or(String::new(), |best| format!("{:.2}", line.second / best)),
            line.cpu * 100.0,
            line.busy * 100.0,
            line.failures,
        );
    }
    text
}

fn line(test: Test, name: &'static str, rows: &[&Row]) -> Option<Line> {
    let mine: Vec<&Row> = rows.iter().filter(|row| row.peer == name).copied().collect();
    let of = |figure: fn(&Row) -> f64| -> Vec<f64> { mine.iter().map(|r| figure(r)).collect() };
    let second = match test.load() {
        Load::Bulk => of(|r| r.bytes as f64 / r.seconds / 1e9),
        // without a relay there is no processor time of one
        Load::Connects => of(|r| match r.cpu_seconds > 0.0 {
            true => r.connections as f64 / r.cpu_seconds,
            false => 0.0,
        }),
        Load::Idle => of(|r| r.memory as f64 / 1024.0 / 1024.0),
    };
    let values: Vec<f64> = mine.iter().filter_map(|row| row.value).collect();
    let share = |figure| if test == Test::Idle { Some(0.0) } else { median(&of(figure)) };
    Some(Line {
        name,
        value: median(&values),
        spread: spread(&values).unwrap_or(0.0),
        cpu: share(|r| r.cpu_seconds / r.seconds)?,
        busy: share(|r| r.busy_seconds / r.seconds)?,
        second: median(&second)?,
        failures: mine.iter().map(|r| r.failures).sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(peer: &'static str, round: usize, value: Option<f64>) -> Row {
        Row {
            test: Test::Bulk1.name(),
            peer,
            round,
            value,
            unit: Test::Bulk1.unit(),
            seconds: 2.0,
            cpu_seconds: 1.0,
            busy_seconds: 1.5,
            bytes: 4_000_000_000,
            connections: 1,
            failures: 1,
            first_failure: None,
            memory: 0,
            descriptors: 0,
            threads: 1,
        }
    }

    #[test]
    fn ratios_are_to_the_best_that_a_column_names() {
        let values = [
            ("ours", 4e9),
            ("good", 2e9),
            ("bad", 1e9),
            ("ours", 6e9),
            ("good", 2e9),
            ("bad", 1e9),
        ];
        let mut rows: Vec<Row> = values
            .iter()
            .enumerate()
            .map(|(n, (peer, value))| row(peer, n / 3, Some(*value)))
            .collect();
        rows.push(row("none", 0, None));
        let references = [
            Reference { heading: "/best", has: |name| name != "ours" },
            Reference { heading: "/bad", has: |name| name == "bad" },
        ];
        let text = table(Test::Bulk1, &rows, &references);
        let words: Vec<Vec<&str>> =
            text.trim().lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0].join(" "), "bulk1: bytes per CPU-second, median of 2");
        assert_eq!(
            words[2],
            ["ours", "5.00", "40%", "2.50", "5.00", "2.00", "1.00", "50%", "75%", "2"]
        );
        assert_eq!(
            words[3],
            ["good", "2.00", "0%", "1.00", "2.00", "2.00", "1.00", "50%", "75%", "2"]
        );
        assert_eq!(words[5][..4], ["none", "-", "0%", "2.00"]);
        assert_eq!(table(Test::Connects, &rows, &references), "");
    }
}
