//! One combination of a plan's values: what a run is made of and what its repeats have in common.

use crate::plan::Selection;
use crate::plan::axis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A cell of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// The part it belongs to.
    pub part: String,
    /// Axis → value.
    pub values: BTreeMap<String, String>,
}

/// A cell that an engine cannot make sense of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("part «{part}», {axis}: {what}")]
pub struct CellError {
    /// Which part.
    pub part: String,
    /// Which axis.
    pub axis: String,
    /// What is wrong.
    pub what: String,
}

impl Cell {
    /// What it is known by in rows: the part and every value, in the order of their names.
    #[must_use]
    pub fn key(&self) -> String {
        self.key_without(&[])
    }

    /// The same without some axes: what cells have in common that differ in those alone.
    #[must_use]
    pub fn key_without(&self, axes: &[&str]) -> String {
        let mut key = self.part.clone();
        for (axis, value) in self.values.iter().filter(|(axis, _)| !axes.contains(&axis.as_str())) {
            key += &format!(" {axis}={}", value.replace(' ', ""));
        }
        key
    }

    /// The value of an axis, as text.
    ///
    /// # Errors
    /// The plan does not give it.
    pub fn text(&self, axis: &str) -> Result<&str, CellError> {
        let found = self.values.get(axis).map(String::as_str);
        found.ok_or_else(|| self.error(axis, "the plan gives no value; put it into [fixed]"))
    }

    /// The value of an axis as a quantity.
    ///
    /// # Errors
    /// The plan does not give it, or it is no such quantity.
    pub fn value<T: std::str::FromStr>(&self, axis: &str) -> Result<T, CellError>
    where
        T::Err: fmt::Display,
    {
        self.text(axis)?.parse().map_err(|error: T::Err| self.error(axis, &error.to_string()))
    }

    /// An error about one of its values.
    #[must_use]
    pub fn error(&self, axis: &str, what: &str) -> CellError {
        CellError { part: self.part.clone(), axis: axis.to_owned(), what: what.to_owned() }
    }

    /// Whether a selection means it.
    #[must_use]
    pub fn is_in(&self, selection: &Selection) -> bool {
        let fits = |(axis, values): (&String, &Vec<String>)| {
            self.values.get(axis).is_some_and(|value| values.contains(value))
        };
        self.part == selection.part && selection.cells.iter().all(fits)
    }

    /// Orders cells as a table should: numbers by size, words as declared.
    #[must_use]
    pub fn compare(&self, other: &Self) -> std::cmp::Ordering {
        let ranks = |cell: &Self| -> Vec<f64> {
            let rank =
                |axis: &axis::Axis| cell.values.get(axis.name).map_or(-1.0, |v| axis.rank(v));
            axis::AXES.iter().map(rank).collect()
        };
        let (ours, theirs) = (ranks(self), ranks(other));
        let differ = ours.iter().zip(&theirs).map(|(a, b)| a.total_cmp(b)).find(|o| o.is_ne());
        self.part.cmp(&other.part).then(differ.unwrap_or(std::cmp::Ordering::Equal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(values: &[(&str, &str)]) -> Cell {
        let values = values.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        Cell { part: "row".to_owned(), values }
    }

    #[test]
    fn keys_leave_out_what_is_asked() {
        let cell = cell(&[("file", "8 MiB"), ("peer", "squid"), ("relays", "4")]);
        assert_eq!(cell.key(), "row file=8MiB peer=squid relays=4");
        assert_eq!(cell.key_without(&["peer"]), "row file=8MiB relays=4");
        assert_eq!(cell.value::<u32>("relays"), Ok(4));
        let missing = cell.text("rtt").unwrap_err().to_string();
        assert!(missing.contains("row") && missing.contains("rtt") && missing.contains("[fixed]"));
    }

    #[test]
    fn tables_count_8_before_32() {
        assert!(cell(&[("file", "8 MiB")]).compare(&cell(&[("file", "32 MiB")])).is_lt());
        assert!(cell(&[("peer", "squid")]).compare(&cell(&[("peer", "none")])).is_gt());
    }
}
