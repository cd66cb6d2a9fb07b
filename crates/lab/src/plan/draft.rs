//! A plan as it stands in the file: every table with all its keys, and nothing else let through.

use serde::Deserialize;
use std::collections::BTreeMap;
use toml::{Spanned, Value};

/// Axis → value or list of values, each with its place.
pub(super) type Settings = BTreeMap<Spanned<String>, Spanned<Value>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanDraft {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) source: String,
    pub(super) replays: String,
    pub(super) engines: Vec<String>,
    pub(super) measure: MeasureDraft,
    pub(super) paired: Spanned<String>,
    #[serde(default)]
    pub(super) together: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    #[serde(default)]
    pub(super) fixed: Settings,
    pub(super) part: Vec<PartDraft>,
    #[serde(default)]
    pub(super) published: Vec<PublishedDraft>,
    #[serde(default)]
    pub(super) claim: Vec<ClaimDraft>,
    #[serde(default)]
    pub(super) figure: Vec<FigureDraft>,
    #[serde(default)]
    pub(super) table: Vec<TableDraft>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MeasureDraft {
    pub(super) name: String,
    pub(super) unit: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartDraft {
    pub(super) name: Spanned<String>,
    pub(super) title: String,
    #[serde(default)]
    pub(super) about: String,
    pub(super) measure: Option<MeasureDraft>,
    pub(super) paired: Option<Spanned<String>>,
    pub(super) repetitions: u32,
    #[serde(default)]
    pub(super) fixed: Settings,
    pub(super) engines: Option<Spanned<Vec<String>>>,
    pub(super) quick: Option<QuickDraft>,
    pub(super) grid: Vec<GridDraft>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QuickDraft {
    pub(super) repetitions: u32,
    #[serde(default)]
    pub(super) only: Settings,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GridDraft {
    pub(super) repetitions: Option<u32>,
    pub(super) engines: Option<Spanned<Vec<String>>>,
    pub(super) vary: Settings,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SelectionDraft {
    pub(super) part: Spanned<String>,
    #[serde(default)]
    pub(super) cells: Settings,
}

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

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PublishedDraft {
    pub(super) name: Spanned<String>,
    pub(super) published: Option<f64>,
    pub(super) unit: String,
    pub(super) conditions: String,
    pub(super) source: String,
    #[serde(default)]
    pub(super) asserted: AssertedDraft,
    #[serde(default)]
    pub(super) repetitions_at_least: u32,
    pub(super) of: SelectionDraft,
    pub(super) against: Option<SelectionDraft>,
    pub(super) figure: Option<String>,
    #[serde(default)]
    pub(super) take: TakeDraft,
    pub(super) along: Option<Spanned<String>>,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimDraft {
    pub(super) text: Spanned<String>,
    #[serde(default)]
    pub(super) asserted: AssertedDraft,
    pub(super) beside: Option<BesideDraft>,
    pub(super) placement: Option<PlacementDraft>,
    pub(super) figure: Option<ExpectationDraft>,
    pub(super) order: Option<OrderDraft>,
    pub(super) falls: Option<FallsDraft>,
    pub(super) gain: Option<GainDraft>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FallsDraft {
    pub(super) of: SelectionDraft,
    pub(super) along: Spanned<String>,
    pub(super) slack: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GainDraft {
    pub(super) of: SelectionDraft,
    /// Axis, value, the one below it.
    pub(super) from: [Spanned<String>; 3],
    /// Axis, where it is more, where it is less.
    pub(super) more: [Spanned<String>; 3],
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OrderDraft {
    pub(super) of: SelectionDraft,
    pub(super) along: Spanned<String>,
    pub(super) figure: Option<String>,
    pub(super) repetitions_at_least: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BesideDraft {
    pub(super) ours: Spanned<String>,
    pub(super) others: Vec<Spanned<String>>,
    pub(super) mean_at_least: f64,
    pub(super) no_interval_below: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PlacementDraft {
    pub(super) of: SelectionDraft,
    pub(super) within: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectationDraft {
    pub(super) of: SelectionDraft,
    pub(super) against: Option<SelectionDraft>,
    pub(super) figure: Option<String>,
    #[serde(default)]
    pub(super) take: TakeDraft,
    pub(super) along: Option<Spanned<String>>,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
}

#[derive(Debug, Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ShapeDraft {
    Lines,
    Bars,
    Ccdf,
    Timeline,
    Delays,
    Sizes,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableDraft {
    pub(super) name: String,
    pub(super) title: String,
    #[serde(default)]
    pub(super) caption: String,
    pub(super) engines: Option<Spanned<Vec<String>>>,
    pub(super) of: SelectionDraft,
    pub(super) rows: Spanned<Value>,
    pub(super) columns: Vec<String>,
    #[serde(default)]
    pub(super) heads: BTreeMap<Spanned<String>, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FigureDraft {
    pub(super) name: Spanned<String>,
    pub(super) title: String,
    #[serde(default)]
    pub(super) caption: String,
    pub(super) shape: ShapeDraft,
    pub(super) x: Option<Spanned<String>>,
    pub(super) series: Option<Spanned<String>>,
    pub(super) panels: Option<Spanned<String>>,
    pub(super) of: SelectionDraft,
    #[serde(default)]
    pub(super) log: bool,
}
