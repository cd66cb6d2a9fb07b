//! What a plan says of its figures.

use super::Selection;

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
    /// The axis across.
    pub x: String,
    /// The axis that makes the series.
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
}
