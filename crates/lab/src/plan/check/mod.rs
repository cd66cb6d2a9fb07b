//! Checks a plan's file: axes, values and parts; the first mistake is reported with its line.

mod claims;
mod figures;

use super::draft::{PartDraft, PlanDraft, SelectionDraft, Settings};
use super::{Grid, Part, Plan, PlanError, Quick, Selection};
use crate::cell::axis;
use crate::study::{self, Study};
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
            let hint = axis::hint(name.get_ref(), axis::all().map(|axis| axis.name));
            self.error(&name.span(), format!("there is no axis `{}`; {hint}", name.get_ref()))
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

    /// The study of a plan: the one it names, or the one that is named like the plan.
    fn study(
        &self,
        named: Option<&Spanned<String>>,
        plan: &str,
    ) -> Result<&'static dyn Study, PlanError> {
        let name = named.map_or(plan, |name| name.get_ref());
        study::named(name).ok_or_else(|| {
            let names: Vec<&str> = study::registered().iter().map(|study| study.name()).collect();
            let what =
                format!("there is no study \"{name}\"; give study = one of: {}", names.join(", "));
            self.error(&named.map_or(0..0, Spanned::span), what)
        })
    }

    /// The engines of a part or grid; each must be one of the plan's.
    fn engines(
        &self,
        draft: Option<Spanned<Vec<String>>>,
        known: &[String],
    ) -> Result<Option<Vec<String>>, PlanError> {
        let Some(draft) = draft else { return Ok(None) };
        if let Some(wrong) = draft.get_ref().iter().find(|name| !known.contains(name)) {
            let what = format!("engine `{wrong}` is not one of this plan's: {}", known.join(", "));
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
                let what = "repetitions must be 1 or more";
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
            measure: draft.measure,
            paired: paired.map(|axis| axis.name.to_owned()),
            grids,
            quick: quick.transpose()?,
        })
    }

    fn selection(&self, draft: &SelectionDraft, parts: &[Part]) -> Result<Selection, PlanError> {
        let name = draft.part.get_ref();
        let cells = self.settings(&draft.cells)?;
        let Some(part) = parts.iter().find(|part| part.name == *name) else {
            let hint = axis::similar_name(name, parts.iter().map(|part| part.name.as_str()))
                .map_or_else(String::new, |other| format!("; did you mean `{other}`?"));
            return Err(self.error(&draft.part.span(), format!("there is no part `{name}`{hint}")));
        };
        for (axis, values) in &cells {
            for value in values {
                let has =
                    |grid: &Grid| grid.values.get(axis).is_some_and(|all| all.contains(value));
                if !part.grids.iter().any(has) {
                    let what = format!("part `{name}` has no cell with {axis} = `{value}`");
                    return Err(self.error(&draft.part.span(), what));
                }
            }
        }
        Ok(Selection { part: name.clone(), cells })
    }
}

/// Says so where a receiver's window holds no segment of the grid's largest packets: nothing is sent then.
fn closed_window(values: &Values) -> Option<String> {
    let all = |name: &str| values.get(name).into_iter().flatten();
    let windows = all("window").filter_map(|text| Some((text.parse::<Bytes>().ok()?, text)));
    let (least, text) = windows.min_by_key(|(window, _)| *window)?;
    let mtu = all("mtu").filter_map(|text| text.parse::<u64>().ok()).max()?;
    (least.as_u64() < mtu).then(|| {
        format!("window: `{text}` is smaller than one packet of mtu = {mtu}, so nothing would be sent; try a larger window or a smaller mtu")
    })
}

/// Reads a plan. Errors: the first mistake, with its line and a hint.
pub fn parse(file: &str, text: &str) -> Result<Plan, PlanError> {
    let source = Source { file, text };
    let draft: PlanDraft = toml::from_str(text)
        .map_err(|error| source.error(&error.span().unwrap_or_default(), hint(error.message())))?;
    let study = source.study(draft.study.as_ref(), &draft.name)?;
    let fixed = source.settings(&draft.fixed)?;
    let mut parts = Vec::new();
    let mut names = BTreeSet::new();
    for part in draft.part {
        if !names.insert(part.name.get_ref().clone()) {
            let what = format!("a second part `{}`: give it another name", part.name.get_ref());
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
    let figures = draft.figure.into_iter().map(|figure| source.figure(figure, &parts, study));
    let tables = draft.table.into_iter().map(|table| source.table(table, &parts, engines));
    let (published, claims, figures, tables) = (
        published.collect::<Result<_, _>>()?,
        claims.collect::<Result<_, _>>()?,
        figures.collect::<Result<_, _>>()?,
        tables.collect::<Result<_, _>>()?,
    );
    Ok(Plan {
        study,
        title: draft.title,
        source: draft.source,
        replays: draft.replays,
        engines: draft.engines,
        measure: draft.measure,
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
            let hint = axis::hint(wrong, known.iter().copied());
            format!("there is no key `{wrong}` here; {hint}")
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
