//! Rows as text: medians, and how far the repeats lie apart.

use crate::test::{Row, Test, What};
use ekiden_lab::statistics::median;
use std::fmt::Write as _;

/// All tests that were run.
pub(crate) fn of(tests: &[Test], rows: &[Row]) -> String {
    let mut text = format!(
        "\n{:18} {:8} {:>10} {:>10} {:>10}  {:>8} {:>8} {:>8}  other figures (medians); verdicts\n",
        "test", "", "median", "least", "most", "CPU-s", "all CPU", "seconds",
    );
    for test in tests {
        let lines: Vec<String> =
            ["ekiden", "rattan"].into_iter().filter_map(|name| line(test, name, rows)).collect();
        text.extend(lines);
        if test.what == What::Tcp {
            let values =
                |name| median(&of_test(test, name, rows).map(|row| row.value).collect::<Vec<_>>());
            if let (Some(ekiden), Some(rattan)) = (values("ekiden"), values("rattan")) {
                let _infallible = writeln!(text, "{:18} ekiden/rattan {:.2}", "", ekiden / rattan);
            }
        }
    }
    text
}

fn of_test<'a>(test: &'a Test, name: &'a str, rows: &'a [Row]) -> impl Iterator<Item = &'a Row> {
    rows.iter().filter(move |row| row.test == test.name && row.emulator == name)
}

fn line(test: &Test, name: &str, rows: &[Row]) -> Option<String> {
    let mine: Vec<&Row> = of_test(test, name, rows).collect();
    let of =
        |figure: &dyn Fn(&Row) -> f64| -> Vec<f64> { mine.iter().map(|row| figure(row)).collect() };
    let middle = |figure: &dyn Fn(&Row) -> f64| median(&of(figure)).unwrap_or(0.0);
    let values = of(&|row| row.value);
    let unit = match test.what {
        What::Rtt => "µs",
        What::Rate(_) | What::Loss => "%",
        What::Tcp => "Gbit/s",
    };
    let mut text = format!(
        "{:18} {:8} {:>10.3} {:>10.3} {:>10.3}  {:>8.2} {:>8.2} {:>8.1}  ",
        test.name,
        name,
        median(&values)?,
        values.iter().copied().fold(f64::INFINITY, f64::min),
        values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        middle(&|row| row.emulator_cpu_seconds),
        middle(&|row| row.machine_cpu_seconds),
        middle(&|row| row.seconds),
    );
    text += unit;
    for (n, (label, _)) in mine.first()?.figures.iter().enumerate() {
        let _infallible = write!(text, ", {label} {:.4}", middle(&|row| row.figures[n].1));
    }
    let verdicts: Vec<&str> = mine.iter().filter_map(|row| row.verdict.as_deref()).collect();
    if !verdicts.is_empty() {
        let _infallible = write!(text, "; {}", verdicts.join(", "));
    }
    Some(text + "\n")
}
