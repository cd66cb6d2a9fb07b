//! One combination of a plan's values: what a run is made of and what its repeats have in common.

pub mod axis;
mod common;

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

/// A cell of an experiment.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// The part it belongs to.
    pub part: String,
    /// Axis → value.
    pub values: BTreeMap<String, String>,
}

/// A cell that an engine cannot make sense of.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("part `{part}`, {axis}: {what}")]
pub struct CellError {
    part: String,
    axis: String,
    what: String,
}

impl Cell {
    /// A cell of `part` with these values, as they stand in rows.
    pub fn new<'a>(part: &str, values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let values = values.into_iter().map(|(axis, value)| (axis.to_owned(), value.to_owned()));
        Self { part: part.to_owned(), values: values.collect() }
    }

    /// What it is known by in rows: the part and every value, in the order of their names.
    pub fn key(&self) -> String {
        self.key_without(&[])
    }

    /// The same without some axes: what cells have in common that differ in those alone.
    pub fn key_without(&self, axes: &[&str]) -> String {
        let mut key = self.part.clone();
        for (axis, value) in self.values.iter().filter(|(axis, _)| !axes.contains(&axis.as_str())) {
            key += &format!(" {axis}={}", value.replace(' ', ""));
        }
        key
    }

    /// The value of an axis, as text. Errors: the plan does not give it.
    pub fn text(&self, axis: &str) -> Result<&str, CellError> {
        let found = self.values.get(axis).map(String::as_str);
        found.ok_or_else(|| self.error(axis, "the plan has no value; add it to [fixed]"))
    }

    /// The value of an axis as a quantity. Errors: the plan does not give it, or it is no such quantity.
    pub fn value<T: std::str::FromStr>(&self, axis: &str) -> Result<T, CellError>
    where
        T::Err: fmt::Display,
    {
        self.text(axis)?.parse().map_err(|error: T::Err| self.error(axis, &error.to_string()))
    }

    /// An error about one of its values.
    pub fn error(&self, axis: &str, what: &str) -> CellError {
        CellError { part: self.part.clone(), axis: axis.to_owned(), what: what.to_owned() }
    }

    /// Orders cells as a table should: numbers by size, words as declared.
    pub fn compare(&self, other: &Self) -> Ordering {
        self.part.cmp(&other.part).then_with(|| self.compare_by(other, axis::all()))
    }

    /// The same by some axes, of whatever part.
    pub(crate) fn compare_by(
        &self,
        other: &Self,
        axes: impl IntoIterator<Item = &'static axis::Axis>,
    ) -> Ordering {
        let rank = |cell: &Self, axis: &axis::Axis| {
            cell.values.get(axis.name).map_or(-1.0, |value| axis.rank(value))
        };
        let mut orders = axes.into_iter().map(|a| rank(self, a).total_cmp(&rank(other, a)));
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(values: &[(&str, &str)]) -> Cell {
        Cell::new("row", values.iter().copied())
    }

    #[test]
    fn keys_leave_out_the_given_axes() {
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
