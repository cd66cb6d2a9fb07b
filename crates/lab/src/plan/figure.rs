//! Figures and tables of a plan.

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
    /// The axis across; empty for a shape with an axis of its own.
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
    /// A shape of the plan's study ([`crate::study::Study::shapes`]).
    Own(&'static str),
}

/// A table: a line for each combination of some axes' values, a column for each figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub name: String,
    pub title: String,
    /// One sentence.
    pub caption: String,
    /// The engines that have its figures; empty: all.
    pub engines: Vec<String>,
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
    pub fn is_of(&self, engine: &str) -> bool {
        self.engines.is_empty() || self.engines.iter().any(|name| name == engine)
    }
}
