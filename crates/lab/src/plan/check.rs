//! From what stands in the file to what can be run: every axis, value and part is looked at, and the
//! first mistake is told with its line.

use super::axis;
use super::draft::{
    AssertedDraft, ClaimDraft, ExpectationDraft, FigureDraft, GainDraft, OrderDraft, PartDraft,
    PlanDraft, PublishedDraft, SelectionDraft, Settings, ShapeDraft, TableDraft, TakeDraft,
};
use super::{
    Asserted, Claim, Expectation, Figure, Gain, Grid, Measure, Part, Plan, PlanError, Published,
    Quick, Rule, Selection, Shape, Table, Take, similar,
};
use ekiden_model::units::Bytes;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use toml::{Spanned, Value};

type Values = BTreeMap<String, Vec<String>>;

/// The file, for the places of mistakes.
struct Source<'a> {
    file: &'a str,
    text: &'a str,
}

impl Source<'_> {
    fn error(&self, span: &Range<usize>, what: impl Into<String>) -> PlanError {
        let before = self.text.get(..span.start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        PlanError { place: format!("{}:{line}", self.file), what: what.into() }
    }

    fn axis(&self, name: &Spanned<String>) -> Result<&'static axis::Axis, PlanError> {
        axis::named(name.get_ref()).ok_or_else(|| {
            let hint = axis::similar(name.get_ref()).map_or_else(
                || {
                    format!(
                        "there are: {}",
                        axis::AXES.iter().map(|a| a.name).collect::<Vec<_>>().join(", ")
                    )
                },
                |axis| format!("did you mean «{}»?", axis.name),
            );
            self.error(&name.span(), format!("there is no axis «{}»; {hint}", name.get_ref()))
        })
    }

    fn settings(&self, settings: &Settings) -> Result<Values, PlanError> {
        let mut values = Values::new();
        for (name, value) in settings {
            let axis = self.axis(name)?;
            let list = match value.get_ref() {
                Value::Array(list) => list.clone(),
                one => vec![one.clone()],
            };
            let text = |value: Value| match value {
                Value::String(text) => Some(text),
                Value::Integer(number) => Some(number.to_string()),
                Value::Float(number) => Some(number.to_string()),
                _ => None,
            };
            let mut canonical = Vec::new();
            for value in list {
                let text = text(value).ok_or("a value is a text or a number".to_owned());
                let one = text.and_then(|text| axis.canonical(&text));
                canonical.push(one.map_err(|why| {
                    self.error(&name.span(), format!("{}: {why} ({})", axis.name, axis.about))
                })?);
            }
            if canonical.is_empty() {
                return Err(self.error(&name.span(), format!("{}: no value given", axis.name)));
            }
            values.insert(axis.name.to_owned(), canonical);
        }
        Ok(values)
    }

    /// The engines of a part or grid; each must be one of the plan's.
    fn engines(
        &self,
        draft: Option<Spanned<Vec<String>>>,
        known: &[String],
    ) -> Result<Option<Vec<String>>, PlanError> {
        let Some(draft) = draft else { return Ok(None) };
        if let Some(wrong) = draft.get_ref().iter().find(|name| !known.contains(name)) {
            let what =
                format!("engine «{wrong}» is none of this plan's, which are {}", known.join(", "));
            return Err(self.error(&draft.span(), what));
        }
        Ok(Some(draft.into_inner()))
    }

    fn part(
        &self,
        draft: PartDraft,
        fixed: &Values,
        engines: &[String],
    ) -> Result<Part, PlanError> {
        let mut base = fixed.clone();
        base.extend(self.settings(&draft.fixed)?);
        let of_part = self.engines(draft.engines, engines)?;
        let paired = draft.paired.as_ref().map(|name| self.axis(name)).transpose()?;
        let mut grids = Vec::new();
        for grid in draft.grid {
            let mut values = base.clone();
            values.extend(self.settings(&grid.vary)?);
            if let Some(what) = closed_window(&values) {
                return Err(self.error(&draft.name.span(), what));
            }
            let repetitions = grid.repetitions.unwrap_or(draft.repetitions);
            if repetitions == 0 {
                let what = "a grid is run at least once: repetitions = 1 or more";
                return Err(self.error(&draft.name.span(), what));
            }
            let own = self.engines(grid.engines, engines)?.or_else(|| of_part.clone());
            let engines = own.unwrap_or_else(|| engines.to_vec());
            grids.push(Grid { repetitions, engines, values });
        }
        let quick = draft.quick.map(|quick| {
            let only = self.settings(&quick.only)?;
            Ok(Quick { repetitions: quick.repetitions.max(1), only })
        });
        Ok(Part {
            name: draft.name.into_inner(),
            title: draft.title,
            about: draft.about,
            measure: draft.measure.map(|own| Measure { name: own.name, unit: own.unit }),
            paired: paired.map(|axis| axis.name.to_owned()),
            grids,
            quick: quick.transpose()?,
        })
    }

    fn selection(&self, draft: &SelectionDraft, parts: &[Part]) -> Result<Selection, PlanError> {
        let name = draft.part.get_ref();
        let cells = self.settings(&draft.cells)?;
        let Some(part) = parts.iter().find(|part| part.name == *name) else {
            let hint = similar(name, parts.iter().map(|part| part.name.as_str()))
                .map_or_else(String::new, |other| format!("; did you mean «{other}»?"));
            return Err(self.error(&draft.part.span(), format!("there is no part «{name}»{hint}")));
        };
        for (axis, values) in &cells {
            for value in values {
                let has =
                    |grid: &Grid| grid.values.get(axis).is_some_and(|all| all.contains(value));
                if !part.grids.iter().any(has) {
                    let what = format!("part «{name}» has no cell with {axis} = «{value}»");
                    return Err(self.error(&draft.part.span(), what));
                }
            }
        }
        Ok(Selection { part: name.clone(), cells })
    }

    fn expectation(
        &self,
        draft: &ExpectationDraft,
        parts: &[Part],
    ) -> Result<Expectation, PlanError> {
        let against = draft.against.as_ref().map(|against| self.selection(against, parts));
        if let (Some(low), Some(high)) = (draft.low, draft.high)
            && low > high
        {
            let what = format!("nothing lies between {low} and {high}: low must not exceed high");
            return Err(self.error(&draft.of.part.span(), what));
        }
        Ok(Expectation {
            of: self.selection(&draft.of, parts)?,
            against: against.transpose()?,
            take: self.take(draft)?,
            figure: draft.figure.clone(),
            low: draft.low,
            high: draft.high,
        })
    }

    fn take(&self, draft: &ExpectationDraft) -> Result<Take, PlanError> {
        Ok(match (draft.take, &draft.along) {
            (TakeDraft::HalfWay, Some(along)) => Take::HalfWay(self.axis(along)?.name.to_owned()),
            (TakeDraft::HalfWay, None) => {
                let what = "half-way along which axis? say along = \"…\"";
                return Err(self.error(&draft.of.part.span(), what));
            }
            (_, Some(along)) => {
                let what = "only take = \"half-way\" goes along an axis";
                return Err(self.error(&along.span(), what));
            }
            (TakeDraft::Mean, None) => Take::Mean,
            (TakeDraft::Lowest, None) => Take::Lowest,
            (TakeDraft::Highest, None) => Take::Highest,
        })
    }

    /// Where something is asserted; each engine must be one of the plan's.
    fn asserted(
        &self,
        draft: AssertedDraft,
        place: &Range<usize>,
        known: &[String],
    ) -> Result<Asserted, PlanError> {
        match draft {
            AssertedDraft::Everywhere(yes) => Ok(Asserted::Everywhere(yes)),
            AssertedDraft::On(engines) => match engines.iter().find(|name| !known.contains(name)) {
                None => Ok(Asserted::On(engines)),
                Some(wrong) => {
                    let what = format!(
                        "asserted on «{wrong}», which is none of this plan's engines: {}",
                        known.join(", ")
                    );
                    Err(self.error(place, what))
                }
            },
        }
    }

    fn published(
        &self,
        draft: PublishedDraft,
        parts: &[Part],
        engines: &[String],
    ) -> Result<Published, PlanError> {
        let PublishedDraft { of, against, figure, take, along, low, high, .. } = draft;
        let expectation = ExpectationDraft { of, against, figure, take, along, low, high };
        let asserted = self.asserted(draft.asserted, &draft.name.span(), engines)?;
        if asserted != Asserted::Everywhere(false) && low.is_none() && high.is_none() {
            let what = "what is asserted needs low or high; or say asserted = false";
            return Err(self.error(&draft.name.span(), what));
        }
        Ok(Published {
            name: draft.name.into_inner(),
            published: draft.published,
            unit: draft.unit,
            conditions: draft.conditions,
            source: draft.source,
            asserted,
            repetitions_at_least: draft.repetitions_at_least,
            expectation: self.expectation(&expectation, parts)?,
        })
    }

    fn claim(
        &self,
        draft: ClaimDraft,
        parts: &[Part],
        (paired, engines): (&str, &[String]),
    ) -> Result<Claim, PlanError> {
        let span = draft.text.span();
        let asserted = self.asserted(draft.asserted, &span, engines)?;
        let ClaimDraft { beside, placement, figure, order, falls, gain, .. } = draft;
        let rule = match (beside, placement, figure, order, falls, gain) {
            (Some(beside), None, None, None, None, None) => {
                let axis = axis::named(paired);
                let peer = |name: Spanned<String>| {
                    let known = axis.map_or(Ok(String::new()), |a| a.canonical(name.get_ref()));
                    known.map_err(|why| self.error(&name.span(), why))
                };
                let others = beside.others.into_iter().map(peer).collect::<Result<_, _>>()?;
                Rule::Beside {
                    ours: peer(beside.ours)?,
                    others,
                    mean_at_least: beside.mean_at_least,
                    no_interval_below: beside.no_interval_below,
                }
            }
            (None, Some(placement), None, None, None, None) => Rule::Placement {
                of: self.selection(&placement.of, parts)?,
                within: placement.within,
            },
            (None, None, Some(figure), None, None, None) => {
                Rule::Figure(self.expectation(&figure, parts)?)
            }
            (None, None, None, Some(order), None, None) => self.order(order, parts)?,
            (None, None, None, None, Some(falls), None) => Rule::Falls {
                of: self.selection(&falls.of, parts)?,
                along: self.axis(&falls.along)?.name.to_owned(),
                slack: falls.slack,
            },
            (None, None, None, None, None, Some(gain)) => Rule::Gain(self.gain(&gain, parts)?),
            _ => {
                let what = "a claim is decided by one of «beside», «placement», «figure», «order», \
                            «falls» and «gain»";
                return Err(self.error(&span, what));
            }
        };
        Ok(Claim { text: draft.text.into_inner(), asserted, rule })
    }

    fn gain(&self, draft: &GainDraft, parts: &[Part]) -> Result<Gain, PlanError> {
        let values = |[axis, a, b]: &[Spanned<String>; 3]| {
            let known = self.axis(axis)?;
            let value = |text: &Spanned<String>| {
                known.canonical(text.get_ref()).map_err(|why| self.error(&text.span(), why))
            };
            Ok([known.name.to_owned(), value(a)?, value(b)?])
        };
        Ok(Gain {
            of: self.selection(&draft.of, parts)?,
            from: values(&draft.from)?,
            more: values(&draft.more)?,
        })
    }

    fn order(&self, draft: OrderDraft, parts: &[Part]) -> Result<Rule, PlanError> {
        let along = self.axis(&draft.along)?.name.to_owned();
        let of = self.selection(&draft.of, parts)?;
        if of.cells.get(&along).is_none_or(|values| values.len() < 2) {
            let what = format!("an order needs two values of «{along}» at least, in «of»");
            return Err(self.error(&draft.along.span(), what));
        }
        let OrderDraft { figure, repetitions_at_least, .. } = draft;
        Ok(Rule::Order { of, along, figure, repetitions_at_least })
    }

    fn figure(&self, draft: FigureDraft, parts: &[Part]) -> Result<Figure, PlanError> {
        let axis = |name: &Spanned<String>| self.axis(name).map(|axis| axis.name.to_owned());
        let own_x = matches!(draft.shape, ShapeDraft::Sizes | ShapeDraft::Delays);
        if own_x && (draft.x.is_some() || draft.series.is_none()) {
            let what = "sizes and delays have series, and an axis across of their own: no x";
            return Err(self.error(&draft.name.span(), what));
        }
        let has_axes = matches!(draft.shape, ShapeDraft::Lines | ShapeDraft::Bars);
        if has_axes != (draft.x.is_some() && draft.series.is_some()) {
            let what = "lines and bars have x and series; ccdf and timeline have axes of their own";
            return Err(self.error(&draft.name.span(), what));
        }
        let or_none =
            |name: &Option<Spanned<String>>| name.as_ref().map_or(Ok(String::new()), axis);
        Ok(Figure {
            of: self.selection(&draft.of, parts)?,
            x: or_none(&draft.x)?,
            series: or_none(&draft.series)?,
            panels: draft.panels.as_ref().map(axis).transpose()?,
            name: draft.name.into_inner(),
            title: draft.title,
            caption: draft.caption,
            shape: match draft.shape {
                ShapeDraft::Lines => Shape::Lines,
                ShapeDraft::Bars => Shape::Bars,
                ShapeDraft::Ccdf => Shape::Ccdf,
                ShapeDraft::Timeline => Shape::Timeline,
                ShapeDraft::Delays => Shape::Delays,
                ShapeDraft::Sizes => Shape::Sizes,
            },
            log: draft.log,
        })
    }

    fn table(
        &self,
        draft: TableDraft,
        parts: &[Part],
        engines: &[String],
    ) -> Result<Table, PlanError> {
        let own = self.engines(draft.engines, engines)?;
        let names = match draft.rows.get_ref() {
            Value::Array(list) => list.clone(),
            one => vec![one.clone()],
        };
        let rows = names.iter().map(|name| {
            let name = name.as_str().unwrap_or_default().to_owned();
            Ok(self.axis(&Spanned::new(draft.rows.span(), name))?.name.to_owned())
        });
        let mut heads = BTreeMap::new();
        for (column, head) in draft.heads {
            if !draft.columns.contains(column.get_ref()) {
                let what = format!("a head for «{}», which is no column", column.get_ref());
                return Err(self.error(&column.span(), what));
            }
            heads.insert(column.into_inner(), head);
        }
        Ok(Table {
            heads,
            engines: own.unwrap_or_default(),
            of: self.selection(&draft.of, parts)?,
            rows: rows.collect::<Result<_, PlanError>>()?,
            name: draft.name,
            title: draft.title,
            caption: draft.caption,
            columns: draft.columns,
        })
    }
}

/// Says so where a receiver's window holds no segment of the grid's largest packets: nothing is sent then.
fn closed_window(values: &Values) -> Option<String> {
    let all = |name: &str| values.get(name).into_iter().flatten();
    let windows = all("window").filter_map(|text| Some((text.parse::<Bytes>().ok()?, text)));
    let (least, text) = windows.min_by_key(|(window, _)| *window)?;
    let mtu = all("mtu").filter_map(|text| text.parse::<u64>().ok()).max()?;
    (least.as_u64() < mtu).then(|| {
        format!("window: «{text}» holds no packet of mtu = {mtu}, so that nothing is sent; a larger window, or a smaller mtu")
    })
}

pub(super) fn plan(file: &str, text: &str) -> Result<Plan, PlanError> {
    let source = Source { file, text };
    let draft: PlanDraft = toml::from_str(text)
        .map_err(|error| source.error(&error.span().unwrap_or_default(), hint(error.message())))?;
    let fixed = source.settings(&draft.fixed)?;
    let mut parts = Vec::new();
    let mut names = BTreeSet::new();
    for part in draft.part {
        if !names.insert(part.name.get_ref().clone()) {
            let what = format!("a second part «{}»: give it another name", part.name.get_ref());
            return Err(source.error(&part.name.span(), what));
        }
        parts.push(source.part(part, &fixed, &draft.engines)?);
    }
    let paired = source.axis(&draft.paired)?.name;
    let together = draft.together.iter().map(|name| Ok(source.axis(name)?.name.to_owned()));
    let engines = &draft.engines;
    let published = draft.published.into_iter().map(|row| source.published(row, &parts, engines));
    let claims =
        draft.claim.into_iter().map(|claim| source.claim(claim, &parts, (paired, engines)));
    let figures = draft.figure.into_iter().map(|figure| source.figure(figure, &parts));
    let tables = draft.table.into_iter().map(|table| source.table(table, &parts, engines));
    let (published, claims, figures, tables) = (
        published.collect::<Result<_, _>>()?,
        claims.collect::<Result<_, _>>()?,
        figures.collect::<Result<_, _>>()?,
        tables.collect::<Result<_, _>>()?,
    );
    Ok(Plan {
        title: draft.title,
        source: draft.source,
        replays: draft.replays,
        engines: draft.engines,
        measure: Measure { name: draft.measure.name, unit: draft.measure.unit },
        paired: paired.to_owned(),
        together: together.collect::<Result<_, PlanError>>()?,
        notes: draft.notes,
        hash: hash(&draft.name, &parts),
        name: draft.name,
        parts,
        published,
        claims,
        figures,
        tables,
    })
}

/// serde names the fields that are there; of a long list, the likely one is enough.
fn hint(message: &str) -> String {
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    match quoted.split_first() {
        Some((wrong, known)) if message.starts_with("unknown field") => {
            let hint = similar(wrong, known.iter().copied()).map_or_else(
                || format!("there are: {}", known.join(", ")),
                |name| format!("did you mean «{name}»?"),
            );
            format!("there is no key «{wrong}» here; {hint}")
        }
        _ => message.trim_end().to_owned(),
    }
}

fn hash(name: &str, parts: &[Part]) -> String {
    let mut hash = Sha256::new();
    hash.update(name);
    for part in parts {
        for grid in &part.grids {
            hash.update(format!("{}{:?}", part.name, grid.values));
        }
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}
