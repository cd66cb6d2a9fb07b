//! Several figures of several cells side by side: what a setting does to all that is counted.

use super::{CellResult, short};
use crate::cell::axis;
use crate::plan::Table;
use crate::statistics::median;
use serde::Serialize;

/// A plan's table, filled in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Filled {
    pub name: String,
    pub title: String,
    pub caption: String,
    /// Titles of the axes, then the figures.
    pub head: Vec<String>,
    pub lines: Vec<Line>,
    /// Whether any cell was run more than once, so that medians are something else than values.
    #[serde(skip)]
    pub repeated: bool,
}

/// One cell of the plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Values of the axes.
    pub labels: Vec<String>,
    /// Medians over repetitions; `null` where the cell has no such figure.
    pub medians: Vec<Option<f64>>,
}

pub(super) fn fill(table: &Table, cells: &[CellResult], measure: &str) -> Filled {
    let axes: Vec<&'static axis::Axis> =
        table.rows.iter().filter_map(|name| axis::named(name)).collect();
    let mut chosen: Vec<&CellResult> =
        cells.iter().filter(|result| table.of.includes(&result.cell)).collect();
    chosen.sort_by(|a, b| a.cell.compare_by(&b.cell, axes.iter().copied()));
    let line = |result: &&CellResult| {
        let label =
            |a: &&axis::Axis| result.cell.values.get(a.name).map_or("–".into(), |v| a.shown(v));
        let value = |column: &String| {
            let figure = Some(column.as_str()).filter(|name| *name != VALUE);
            median(&result.values_of(figure)?)
        };
        Line {
            labels: axes.iter().map(label).collect(),
            medians: table.columns.iter().map(value).collect(),
        }
    };
    let column = |name: &String| match table.heads.get(name) {
        Some(head) => head.clone(),
        None if name == VALUE => measure.to_owned(),
        None => name.replace('_', " "),
    };
    let titles = axes.iter().map(|axis| axis.title.to_owned());
    Filled {
        name: table.name.clone(),
        title: table.title.clone(),
        caption: table.caption.clone(),
        head: titles.chain(table.columns.iter().map(column)).collect(),
        lines: chosen.iter().map(line).collect(),
        repeated: chosen.iter().any(|result| result.runs.len() > 1),
    }
}

/// The column that is the outcome's value and none of its further figures.
pub(super) const VALUE: &str = "value";

impl Line {
    /// As written: labels, then figures.
    pub(crate) fn words(&self) -> Vec<String> {
        self.labels.iter().cloned().chain(self.medians.iter().map(|value| short(*value))).collect()
    }
}

/// Words in columns as wide as they need: the first `left` flush left, the others flush right.
pub(crate) fn columns(lines: &[Vec<String>], left: usize) -> String {
    let wide = |n: usize| {
        let words = lines.iter().filter_map(|line| line.get(n));
        words.map(|word| word.chars().count()).max().unwrap_or(0)
    };
    let mut text = String::new();
    for line in lines {
        for (n, word) in line.iter().enumerate() {
            let width = wide(n);
            text +=
                &if n < left { format!("{word:<width$}  ") } else { format!("{word:>width$}  ") };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

impl Filled {
    /// For a terminal; nothing where no cell was run.
    pub(crate) fn text(&self) -> String {
        if self.lines.is_empty() {
            return String::new();
        }
        let lines: Vec<Vec<String>> =
            std::iter::once(self.head.clone()).chain(self.lines.iter().map(Line::words)).collect();
        let medians = if self.repeated { ": medians" } else { "" };
        let text = format!("\n{}{medians}\n\n", self.title);
        text + &columns(&lines, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::{evaluate, tests};
    use crate::plan::Selection;

    fn table() -> Table {
        Table {
            name: "row".into(),
            title: "A row".into(),
            engines: Vec::new(),
            caption: String::new(),
            of: Selection {
                part: "row".into(),
                cells: [("file".to_owned(), vec!["8 MiB".to_owned()])].into(),
            },
            rows: vec!["relays".into(), "peer".into()],
            columns: vec!["value".into(), "connect_ms".into(), "nothing".into()],
            heads: [("nothing".to_owned(), "nothing at all".to_owned())].into(),
        }
    }

    #[test]
    fn a_line_for_each_cell_and_a_column_for_each_figure() {
        let evaluation = evaluate(&tests::plan(), &tests::kept(tests::rows()));
        let text = fill(&table(), &evaluation.cells, "goodput").text();
        insta::assert_snapshot!(text);
        assert_eq!(fill(&table(), &[], "goodput").text(), "");
    }
}
