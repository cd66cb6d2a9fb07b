//! What the result should be: published figures, and claims that are nobody's figure.

use crate::cell::Cell;
use std::collections::BTreeMap;

/// Cells of one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Which part.
    pub part: String,
    /// Axis → values that are meant; an axis that is not here means all of them.
    pub cells: BTreeMap<String, Vec<String>>,
}

impl Selection {
    /// Whether a cell belongs to it.
    pub fn includes(&self, cell: &Cell) -> bool {
        let fits = |(axis, values): (&String, &Vec<String>)| {
            cell.values.get(axis).is_some_and(|value| values.contains(value))
        };
        cell.part == self.part && self.cells.iter().all(fits)
    }
}

/// How one figure comes from several cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Take {
    /// The geometric mean of their medians; of one cell, its median.
    Mean,
    /// The cell with the lowest median.
    Lowest,
    /// The cell with the highest median.
    Highest,
    /// Where along an axis, in its unit, the medians fall to half of the first, by linear interpolation.
    HalfWay(String),
}

/// Where something must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asserted {
    /// On every engine, or reported only.
    Everywhere(bool),
    /// On these engines, and reported on others.
    On(Vec<String>),
}

impl Asserted {
    /// Whether it must hold on this engine.
    pub fn on(&self, engine: &str) -> bool {
        match self {
            Self::Everywhere(yes) => *yes,
            Self::On(engines) => engines.iter().any(|name| name == engine),
        }
    }

    /// Of one that a list of engines leaves out: where it is asserted instead.
    pub fn elsewhere(&self) -> String {
        match self {
            Self::Everywhere(_) => "not run on this engine".to_owned(),
            Self::On(engines) if engines.is_empty() => "reported".to_owned(),
            Self::On(engines) => format!("asserted on {} alone", engines.join(" and ")),
        }
    }

    /// Whether this engine is asked at all: one that a list of engines leaves out is not.
    pub fn concerns(&self, engine: &str) -> bool {
        matches!(self, Self::Everywhere(_)) || self.on(engine)
    }
}

/// What one value of an axis gives over another, and where that should be larger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gain {
    pub of: Selection,
    /// Axis, the value that gains, and the one that it is compared with.
    pub from: [String; 3],
    /// Axis, the value where it gains more, and the one where it gains less.
    pub more: [String; 3],
}

/// A figure computed from cells, and the range it should lie in.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    pub of: Selection,
    /// If given, each of them as a ratio to the cell here that is alike in all axes that neither names.
    pub against: Option<Selection>,
    /// Which of an outcome's further figures; `None`: its value.
    pub figure: Option<String>,
    pub take: Take,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// A published figure, and where it stands beside ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    pub name: String,
    /// The figure; `None` where the source has it in words.
    pub published: Option<f64>,
    /// Its unit; `×` for a ratio.
    pub unit: String,
    /// The source's conditions, and how ours differ.
    pub conditions: String,
    pub source: String,
    /// Where it must hold and is not only reported.
    pub asserted: Asserted,
    /// It is only reported of fewer runs than this of any of its cells: chance would decide.
    pub repetitions_at_least: u32,
    pub expectation: Expectation,
}

/// Something expected of the whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// In words.
    pub text: String,
    /// Where it must hold and is not only reported.
    pub asserted: Asserted,
    /// How it is decided.
    pub rule: Rule,
}

impl Rule {
    /// The part whose cells are looked at, if it is one.
    pub fn part(&self) -> Option<&str> {
        match self {
            Self::Beside { .. } => None,
            Self::Placement { of, .. } | Self::Falls { of, .. } | Self::Order { of, .. } => {
                Some(&of.part)
            }
            Self::Figure(expectation) => Some(&expectation.of.part),
            Self::Gain(gain) => Some(&gain.of.part),
        }
    }
}

/// How a claim is decided.
#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    /// A peer against the faster of others, in every cell that has them.
    Beside {
        /// Whose claim it is.
        ours: String,
        /// Beside whom.
        others: Vec<String>,
        /// The geometric mean over cells is at least this.
        mean_at_least: f64,
        /// No cell's whole 95 % interval lies below this.
        no_interval_below: f64,
    },
    /// The position that the placement rule predicts is as good as the best one measured.
    Placement {
        /// Whose cells: the position is the axis `at`.
        of: Selection,
        /// At least this share of the best position's median.
        within: f64,
    },
    /// A figure lies in a range.
    Figure(Expectation),
    /// The value never rises along an axis of numbers, in any group of cells that are alike otherwise.
    Falls {
        /// Whose cells.
        of: Selection,
        /// Which axis.
        along: String,
        /// What is no rise yet, as a share of the highest value of the group.
        slack: f64,
    },
    /// What one value of an axis gains is larger at one place than at another.
    Gain(Gain),
    /// A figure falls from each value of an axis to the next.
    Order {
        /// Whose cells: one for each value of the axis.
        of: Selection,
        /// Which axis; its values in `of`, from the highest figure to the lowest.
        along: String,
        /// Which of an outcome's further figures; `None`: its value.
        figure: Option<String>,
        /// So many repetitions show the whole order by themselves.
        repetitions_at_least: u32,
    },
}
