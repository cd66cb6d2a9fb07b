//! Figures and tables.

use super::Source;
use crate::plan::draft::{FigureDraft, TableDraft};
use crate::plan::{Figure, Part, PlanError, Shape, Table};
use crate::study::Study;
use std::collections::BTreeMap;
use toml::{Spanned, Value};

impl Source<'_> {
    pub(super) fn figure(
        &self,
        draft: FigureDraft,
        parts: &[Part],
        study: &dyn Study,
    ) -> Result<Figure, PlanError> {
        let axis = |name: &Spanned<String>| self.axis(name).map(|axis| axis.name.to_owned());
        let shape = match draft.shape.get_ref().as_str() {
            "lines" => Shape::Lines,
            "bars" => Shape::Bars,
            own => match study.shapes().iter().find(|shape| **shape == own) {
                Some(shape) => Shape::Own(shape),
                None => {
                    let all = [&["lines", "bars"], study.shapes()].concat().join(", ");
                    let what = format!("there is no shape \"{own}\" here; there are: {all}");
                    return Err(self.error(&draft.shape.span(), what));
                }
            },
        };
        if matches!(shape, Shape::Lines | Shape::Bars)
            && (draft.x.is_none() || draft.series.is_none())
        {
            let what = "lines and bars need x and series";
            return Err(self.error(&draft.name.span(), what));
        }
        if matches!(shape, Shape::Own(_)) && draft.x.is_some() {
            let what =
                format!("{} has an axis across of its own: leave x out", draft.shape.get_ref());
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
            shape,
            log: draft.log,
        })
    }

    pub(super) fn table(
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
                let what = format!("a head for `{}`, which is no column", column.get_ref());
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
