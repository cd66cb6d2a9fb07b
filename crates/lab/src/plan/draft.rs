//! A plan as it stands in the file: every table with all its keys, and nothing else let through.

use super::Measure;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Spanned, Value};

/// Axis → value or list of values, each with its place.
pub(super) type Settings = BTreeMap<Spanned<String>, Spanned<Value>>;

#[derive(Debug, Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TakeDraft {
    #[default]
    Mean,
    Lowest,
    Highest,
    HalfWay,
}

/// `true`, `false`, or the engines on which it is.
#[derive(Debug, Deserialize, Clone)]
#[serde(untagged)]
pub(super) enum AssertedDraft {
    Everywhere(bool),
    On(Vec<String>),
}

impl Default for AssertedDraft {
    fn default() -> Self {
        Self::Everywhere(true)
    }
}

/// Declares tables, whose unknown keys are refused.
macro_rules! tables {
    ($(struct $name:ident { $($(#[$meta:meta])* $field:ident: $kind:ty,)* })*) => {$(
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name { $($(#[$meta])* pub(super) $field: $kind,)* }
    )*};
}

tables! {
    struct PlanDraft {
        name: String,
        study: Option<Spanned<String>>,
        title: String,
        source: String,
        replays: String,
        engines: Vec<String>,
        measure: Measure,
        paired: Spanned<String>,
        #[serde(default)] together: Vec<Spanned<String>>,
        #[serde(default)] notes: Vec<String>,
        #[serde(default)] fixed: Settings,
        part: Vec<PartDraft>,
        #[serde(default)] published: Vec<PublishedDraft>,
        #[serde(default)] claim: Vec<ClaimDraft>,
        #[serde(default)] figure: Vec<FigureDraft>,
        #[serde(default)] table: Vec<TableDraft>,
    }
    struct PartDraft {
        name: Spanned<String>,
        title: String,
        #[serde(default)] about: String,
        measure: Option<Measure>,
        paired: Option<Spanned<String>>,
        repetitions: u32,
        #[serde(default)] fixed: Settings,
        engines: Option<Spanned<Vec<String>>>,
        quick: Option<QuickDraft>,
        grid: Vec<GridDraft>,
    }
    struct QuickDraft {
        repetitions: u32,
        #[serde(default)] only: Settings,
    }
    struct GridDraft {
        repetitions: Option<u32>,
        engines: Option<Spanned<Vec<String>>>,
        vary: Settings,
    }
    struct SelectionDraft {
        part: Spanned<String>,
        #[serde(default)] cells: Settings,
    }
    struct PublishedDraft {
        name: Spanned<String>,
        published: Option<f64>,
        unit: String,
        conditions: String,
        source: String,
        #[serde(default)] asserted: AssertedDraft,
        #[serde(default)] repetitions_at_least: u32,
        of: SelectionDraft,
        against: Option<SelectionDraft>,
        figure: Option<String>,
        #[serde(default)] take: TakeDraft,
        along: Option<Spanned<String>>,
        low: Option<f64>,
        high: Option<f64>,
    }
    struct ClaimDraft {
        text: Spanned<String>,
        #[serde(default)] asserted: AssertedDraft,
        beside: Option<BesideDraft>,
        placement: Option<PlacementDraft>,
        figure: Option<ExpectationDraft>,
        order: Option<OrderDraft>,
        falls: Option<FallsDraft>,
        gain: Option<GainDraft>,
    }
    struct FallsDraft {
        of: SelectionDraft,
        along: Spanned<String>,
        slack: f64,
    }
    struct GainDraft {
        of: SelectionDraft,
        /// Axis, value, the one below it.
        from: [Spanned<String>; 3],
        /// Axis, where it is more, where it is less.
        more: [Spanned<String>; 3],
    }
    struct OrderDraft {
        of: SelectionDraft,
        along: Spanned<String>,
        figure: Option<String>,
        repetitions_at_least: u32,
    }
    struct BesideDraft {
        ours: Spanned<String>,
        others: Vec<Spanned<String>>,
        mean_at_least: f64,
        no_interval_below: f64,
    }
    struct PlacementDraft {
        of: SelectionDraft,
        within: f64,
    }
    struct ExpectationDraft {
        of: SelectionDraft,
        against: Option<SelectionDraft>,
        figure: Option<String>,
        #[serde(default)] take: TakeDraft,
        along: Option<Spanned<String>>,
        low: Option<f64>,
        high: Option<f64>,
    }
    struct TableDraft {
        name: String,
        title: String,
        #[serde(default)] caption: String,
        engines: Option<Spanned<Vec<String>>>,
        of: SelectionDraft,
        rows: Spanned<Value>,
        columns: Vec<String>,
        #[serde(default)] heads: BTreeMap<Spanned<String>, String>,
    }
    struct FigureDraft {
        name: Spanned<String>,
        title: String,
        #[serde(default)] caption: String,
        shape: Spanned<String>,
        x: Option<Spanned<String>>,
        series: Option<Spanned<String>>,
        panels: Option<Spanned<String>>,
        of: SelectionDraft,
        #[serde(default)] log: bool,
    }
}
