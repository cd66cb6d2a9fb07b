//! Published figures and claims.

use super::Source;
use crate::cell::axis;
use crate::plan::draft::{
    AssertedDraft, ClaimDraft, ExpectationDraft, GainDraft, OrderDraft, PublishedDraft, TakeDraft,
};
use crate::plan::{Asserted, Claim, Expectation, Gain, Part, PlanError, Published, Rule, Take};
use std::ops::Range;
use toml::Spanned;

impl Source<'_> {
    fn expectation(
        &self,
        draft: &ExpectationDraft,
        parts: &[Part],
    ) -> Result<Expectation, PlanError> {
        let against = draft.against.as_ref().map(|against| self.selection(against, parts));
        if let (Some(low), Some(high)) = (draft.low, draft.high)
            && low > high
        {
            let what = format!("low = {low} exceeds high = {high}");
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
                let what = "take = \"half-way\" needs an axis: along = \"…\"";
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
                        "asserted on `{wrong}`, which is not one of this plan's engines: {}",
                        known.join(", ")
                    );
                    Err(self.error(place, what))
                }
            },
        }
    }

    pub(super) fn published(
        &self,
        draft: PublishedDraft,
        parts: &[Part],
        engines: &[String],
    ) -> Result<Published, PlanError> {
        let PublishedDraft { of, against, figure, take, along, low, high, .. } = draft;
        let expectation = ExpectationDraft { of, against, figure, take, along, low, high };
        let asserted = self.asserted(draft.asserted, &draft.name.span(), engines)?;
        if asserted != Asserted::Everywhere(false) && low.is_none() && high.is_none() {
            let what = "an asserted row needs low or high, or asserted = false";
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

    pub(super) fn claim(
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
                let what = "a claim is decided by one of `beside`, `placement`, `figure`, `order`, \
                            `falls` and `gain`";
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
            let what = format!("an order needs two values of `{along}` at least, in `of`");
            return Err(self.error(&draft.along.span(), what));
        }
        let OrderDraft { figure, repetitions_at_least, .. } = draft;
        Ok(Rule::Order { of, along, figure, repetitions_at_least })
    }
}
