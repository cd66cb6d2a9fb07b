//! The pages study on virtual time: a [`visit`] of a page's model through the tunnel's own core.

mod visit;

use crate::long_link::tunnel_pair::{Asked, NEAR, Pair};
use crate::pages::outcome::{Loaded, tell_up};
use crate::pages::page::Page;
use crate::pages::steps::{FILES, Steps, apart};
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_model::units::{Span, Time};
use ekiden_tunnel::core::FlowId;
use visit::{Visit, Visited};

/// What goes over the way before anything is measured, so that its ends know the line.
const WARMING: u64 = 1_000_000;

pub(super) fn run(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    let mut way = Way::warm(cell, seed)?;
    match cell.text("load")? {
        "steps" => steps(cell, &mut way),
        "page" => page(cell, &mut way),
        other => Err(cell.error("load", &format!("`{other}` is not simulated here")).into()),
    }
}

/// A tunnel that stands, and what else goes over it.
struct Way {
    pair: Pair,
    /// A download's flow and its bytes so far.
    beside: Option<(FlowId, u64)>,
    patience: Span,
    /// Of the next connection.
    number: usize,
}

impl Way {
    fn warm(cell: &Cell, seed: u64) -> Result<Self, EngineError> {
        let patience = cell.value("duration")?;
        let pair = Pair::up(cell, seed)?;
        let mut way = Self { pair, beside: None, patience, number: 0 };
        let flow = way.pair.open(Asked::Document(WARMING))?;
        let mut came = 0;
        way.pair.wait("the first megabyte does not come", |pair| {
            came += pair.read(NEAR, flow);
            came >= WARMING
        })?;
        way.pause(apart(cell)?)?;
        if cell.text("line")? == "download" {
            way.beside = Some((way.pair.open(Asked::Pour)?, 0));
            way.pause(cell.value("settle")?)?;
        }
        Ok(way)
    }

    /// Does all that is due until the next instant, at most `until`, and at it. Errors: the tunnel is lost.
    fn step(&mut self, until: Time) -> Result<(), EngineError> {
        self.pair.step(until)?;
        self.pair.settle()?;
        if let Some((flow, bytes)) = &mut self.beside {
            *bytes += self.pair.read(NEAR, *flow);
        }
        Ok(())
    }

    fn pause(&mut self, lasts: Span) -> Result<(), EngineError> {
        let end = self.pair.now + lasts;
        while self.pair.now < end {
            self.step(end)?;
        }
        Ok(())
    }

    fn visit(&mut self, page: &Page, hello: u64) -> Result<Visited, EngineError> {
        let end = self.pair.now + self.patience;
        let mut visit = Visit::begin(page, &mut self.pair, (self.number, hello))?;
        self.number += visit::CONNECTIONS;
        while !visit.is_done() {
            if self.pair.now >= end {
                let text = format!("page `{}` did not come in {}", page.name, self.patience);
                return Err(EngineError(text));
            }
            self.step(end)?;
            visit.go_on(&mut self.pair)?;
        }
        Ok(visit.end())
    }
}

fn page(cell: &Cell, way: &mut Way) -> Result<Outcome, EngineError> {
    let page = Page::of(cell)?;
    let (begin, before) = (way.pair.now, way.beside.map(|(_, bytes)| bytes));
    let up = |way: &Way| way.pair.snapshot(NEAR).map(|seen| [seen.sent, seen.copied_bytes]);
    let first = up(way);
    let Visited { objects, .. } = way.visit(&page, visit::BROWSER_HELLO)?;
    let mut outcome = Loaded { objects, paint: None }.outcome(cell, &page)?;
    if let Some((then, now)) = first.zip(up(way)) {
        tell_up(then.map(|bytes| bytes as f64), now.map(|bytes| bytes as f64), &mut outcome);
    }
    if let Some((before, (_, bytes))) = before.zip(way.beside) {
        let seconds = way.pair.now.since(begin).as_secs_f64();
        outcome.add_figures([("beside_mbit", (bytes - before) as f64 * 8e-6 / seconds)]);
    }
    Ok(outcome)
}

fn steps(cell: &Cell, way: &mut Way) -> Result<Outcome, EngineError> {
    let byte = way.visit(&Page::file(1), visit::PLAIN_HELLO)?;
    way.pause(apart(cell)?)?;
    let mut files = Vec::new();
    for (_, bytes) in FILES {
        let file = way.visit(&Page::file(bytes), visit::PLAIN_HELLO)?;
        files.extend(file.objects.first().map(|object| object.last));
        way.pause(apart(cell)?)?;
    }
    let first = byte.objects.first().map_or(0.0, |object| object.first);
    Steps { tls: byte.tls, first, files }.outcome(cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(part: &str, wanted: &[(&str, &str)]) -> Cell {
        let wanted = [wanted, &[("way", "ekiden")]].concat();
        crate::tests::planned("pages", "sim", part, &wanted)
    }

    #[test]
    fn first_byte_takes_a_round_trip_of_tls_and_one_of_the_request() {
        let outcome = run(&planned("steps", &[("loss", "0 %")]), 1).unwrap();
        let trips = |name: &str| outcome.figures[name];
        assert!((1.0..1.2).contains(&trips("tls_trips")), "{outcome:?}");
        assert!((2.0..2.2).contains(&trips("first_byte_trips")), "{outcome:?}");
        assert!(trips("1_mb_trips") < trips("10_mib_trips"), "{outcome:?}");
    }

    #[test]
    fn pages_come_whole_at_little_more_than_the_floor() {
        for page in ["small", "application"] {
            let cell = planned("pages", &[("loss", "1 %"), ("page", page)]);
            let outcome = run(&cell, 1).unwrap();
            assert!((1.0..1.12).contains(&outcome.figures["over_floor"]), "{page}: {outcome:?}");
            let rows = outcome.series["receiving"].len();
            assert_eq!(rows, Page::of(&cell).unwrap().objects.len());
            assert_eq!(run(&cell, 1).unwrap(), outcome, "a seed has one outcome");
        }
    }

    #[test]
    fn download_goes_on_beside_a_page() {
        let outcome = run(&planned("busy", &[("page", "small")]), 1).unwrap();
        assert!(outcome.figures["beside_mbit"] > 0.5, "{outcome:?}");
    }
}
