//! What a plan says of its figures.

use super::Selection;
use std::collections::BTreeMap;

/// A figure: panels side by side, each with its series over `x`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// File name without its ending.
    pub name: String,
    /// Heading.
    pub title: String,
    /// What to see in it, one sentence.
    pub caption: String,
    /// Lines over a numeric axis, or bars over any.
    pub shape: Shape,
    /// The axis across; empty for a CCDF and a time line, which have axes of their own.
    pub x: String,
    /// The axis that makes the series; empty as above.
    pub series: String,
    /// The axis that makes the panels, if there are several.
    pub panels: Option<String>,
    /// Which cells.
    pub of: Selection,
    /// Whether the value axis is logarithmic.
    pub log: bool,
}

/// How values are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Points joined, with a band for the 95 % interval.
    Lines,
    /// Bars in groups, with a whisker for it.
    Bars,
    /// A cell's histograms, its repetitions summed: which share of delays is longer than x, by part of
    /// the way and kind of write, on the axes of seed 0's Figs. 5, 7 and 8.
    Ccdf,
    /// What a cell's first repetition kept over time, stacked, as seed 0's Fig. 6 is.
    Timeline,
    /// Which share of echoes takes longer, both logarithmic: a curve for each cell, its repetitions summed.
    Delays,
    /// Mean response times over the size of what was asked for, both logarithmic, as seed 2's figures
    /// are: a curve for each cell, its repetitions summed.
    Sizes,
}

/// A table: a line for each combination of some axes' values, a column for each figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// In the summary.
    pub name: String,
    /// Heading.
    pub title: String,
    /// What to see in it, one sentence.
    pub caption: String,
    /// The engines that have its figures; empty: all.
    pub engines: Vec<String>,
    /// Which cells.
    pub of: Selection,
    /// The axes that make the lines.
    pub rows: Vec<String>,
    /// `value`, or an outcome's further figures.
    pub columns: Vec<String>,
    /// What stands above them, where it is not the figure's own name.
    pub heads: BTreeMap<String, String>,
}

impl Table {
    /// Whether an engine has its figures.
    #[must_use]
    pub fn is_of(&self, engine: &str) -> bool {
        self.engines.is_empty() || self.engines.iter().any(|name| name == engine)
    }
}
