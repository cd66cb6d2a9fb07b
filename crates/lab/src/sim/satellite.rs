//! A long link with loss and little room (seed 4) on virtual time: the tunnel's own core at both ends of the
//! links that the kernel's runs have, and the model's TCP over the same.

mod pair;
mod screens;
mod tcp;

use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use crate::kernel::satellite::bulk::{LAST, PAYLOAD, tell_echoes, tell_sides};
use crate::kernel::satellite::changes::through;
use crate::kernel::satellite::screens::{scenario, simulate};
use crate::load::asking::Echoed;
use ekiden_model::units::{Bytes, Rate, Span, Time};
use ekiden_tunnel::core::FlowId;
use pair::{Asked, FAR, NEAR, Pair};
use std::time::Duration;

/// Between two echoes.
const EVERY: Span = Span::from_millis(100);
/// Of an echo, there and back.
const ECHO: usize = 64;
/// Whoever has not come by then does not come.
const PATIENCE: Span = Span::from_secs(20);

/// Whether a cell is of this study.
pub(super) fn is_meant(cell: &Cell) -> bool {
    cell.values.contains_key("way")
}

/// Why a cell cannot be run here.
pub(super) fn lacks(cell: &Cell) -> Option<&'static str> {
    let bulk = matches!(cell.text("load"), Ok("download" | "upload"));
    let rival = cell.text("rival").is_ok_and(|name| name != "none");
    match cell.text("way") {
        Ok("bbr") => Some("BBR is not in the simulator"),
        Ok("hysteria2") => Some("hysteria2 is not in the simulator"),
        Ok("hold") => Some("programs of a kernel are not in the simulator"),
        Ok("cubic") if !bulk => Some("TCP's echoes and documents are not in the simulator"),
        _ if rival => Some("a tunnel beside TCP is not in the simulator"),
        _ => None,
    }
}

/// A cell's run.
///
/// # Errors
/// The cell lacks a value, or the tunnel does not come up.
pub(super) fn run(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    if let Some(scenario) = scenario(cell) {
        return simulate(cell, scenario, seed);
    }
    match (cell.text("way")?, cell.text("load")?) {
        ("cubic", _) => tcp::run(cell, seed),
        (_, "download" | "upload" | "echo") => bulk(cell, seed),
        (_, "file") => file(cell, seed),
        (_, "first byte") => first(cell, seed),
        (_, "screens") => screens::run(cell, seed),
        (_, other) => Err(cell.error("load", &format!("«{other}» is not simulated")).into()),
    }
}

fn seconds(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e9
}

fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.as_nanos())
}

/// Echoes on a flow of their own.
#[derive(Default)]
struct Echoes {
    sent: Vec<Time>,
    came: Vec<Time>,
    /// Of an echo that has begun to come.
    part: usize,
}

impl Echoes {
    /// When the next one is due, at the latest then.
    fn due(&self, begin: Time, end: Time) -> Time {
        self.sent.last().map_or(begin, |last| *last + EVERY).min(end)
    }

    fn go_on(&mut self, pair: &mut Pair, flow: FlowId, (begin, end): (Time, Time)) {
        if pair.now >= self.due(begin, end) && pair.now < end {
            pair.write(NEAR, flow, ECHO);
            self.sent.push(pair.now);
        }
        self.part += pair.read(NEAR, flow) as usize;
        while self.part >= ECHO {
            self.part -= ECHO;
            self.came.push(pair.now);
        }
    }

    fn told(&self, begin: Time, end: Time) -> Vec<Echoed> {
        let one = |(number, sent): (usize, &Time)| {
            let came = self.came.get(number);
            Echoed {
                sent: duration(sent.since(begin)),
                took: duration(came.unwrap_or(&end).since(*sent)),
                came: came.is_some(),
            }
        };
        self.sent.iter().enumerate().map(one).collect()
    }
}

/// Bulk one way for as long as the cell says, with echoes beside it where it has them.
fn bulk(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    let (lasts, settle): (Span, Span) = (cell.value("duration")?, cell.value("settle")?);
    let down = cell.text("load")? != "upload";
    let streams: usize = cell.value("streams")?;
    let mut pair = Pair::up(cell, seed)?;
    let (begin, from, end) = (pair.now, pair.now + settle, pair.now + lasts);
    let asked = if down { Asked::Pour } else { Asked::Take };
    let flows: Vec<FlowId> = (0..streams).map(|_| pair.open(asked)).collect::<Result<_, _>>()?;
    let echo = match cell.text("load")? {
        "echo" => Some(pair.open(Asked::Echo)?),
        _ => None,
    };
    let mut echoes = Echoes::default();
    let mut came = vec![0_u64; streams];
    let looks =
        |pair: &Pair| if down { [FAR, NEAR] } else { [NEAR, FAR] }.map(|end| pair.snapshot(end));
    let mut first = looks(&pair);
    while pair.now < end {
        let next = if echo.is_some() { echoes.due(begin, end) } else { end };
        let before = pair.now;
        // nothing is counted that came at a time before
        pair.step(if before < from { next.min(from) } else { next })?;
        if before < from && pair.now >= from {
            first = looks(&pair);
            pair.taken = 0;
        }
        for (flow, came) in flows.iter().zip(&mut came) {
            let read = if down { pair.read(NEAR, *flow) } else { 0 };
            pair.pour(NEAR, *flow, !down);
            *came += if pair.now >= from { read } else { 0 };
        }
        if let Some(flow) = echo {
            echoes.go_on(&mut pair, flow, (begin, end));
        }
    }
    let bytes = if down { came.iter().sum() } else { pair.taken };
    let counted = seconds(lasts) - seconds(settle);
    let mut outcome = Outcome { value: bytes as f64 * 8e-6 / counted, ..Outcome::default() };
    if bytes == 0 {
        return Err(EngineError("nothing came in all the time that is counted".to_owned()));
    }
    if down && streams > 1 {
        // Jain's index (1984)
        let squares: f64 = came.iter().map(|one| (*one as f64).powi(2)).sum();
        let evenness = (bytes as f64).powi(2) / squares / streams as f64;
        outcome.figures.insert("evenness".to_owned(), evenness);
    }
    let told: Rate = cell.value(if down { "told-down" } else { "told-up" })?;
    let since = |time: Time| time.since(Time::ZERO);
    let ceiling = through(pair.phases(down), told, since(from), since(end)) * PAYLOAD;
    outcome.figures.insert("of_ceiling".to_owned(), bytes as f64 * 8.0 / ceiling);
    if echo.is_some() {
        let counted = (duration(settle), duration(lasts).saturating_sub(LAST));
        tell_echoes(&echoes.told(begin, end), counted, &mut outcome);
    }
    let names = ["copied_percent", "copied_back_percent"];
    for (name, (then, now)) in names.into_iter().zip(first.into_iter().zip(looks(&pair))) {
        let Some((then, now)) = then.zip(now) else { continue };
        let sent = (now.sent - then.sent).max(1) as f64;
        let copied = (now.copied_bytes - then.copied_bytes) as f64;
        outcome.figures.insert(name.to_owned(), copied * 100.0 / sent);
    }
    let counted = (since(from), since(Time::from_nanos(end.as_nanos() - LAST.as_nanos() as u64)));
    tell_sides(pair.sides(down, counted), duration(counted.1) - duration(counted.0), &mut outcome);
    Ok(outcome)
}

/// A document from the request to its last byte; cold, from before there is a tunnel.
fn file(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    let length = cell.value::<Bytes>("file")?.as_u64();
    let lasts: Span = cell.value("duration")?;
    let cold = cell.text("tunnel")? == "cold";
    let mut pair = if cold { Pair::new(cell, seed)? } else { Pair::up(cell, seed)? };
    let begin = pair.now;
    let end = begin + lasts;
    if cold {
        pair.come_up()?;
    }
    let flow = pair.open(Asked::Document(length))?;
    let (mut came, mut first) = (0, None);
    while came < length {
        if pair.now >= end {
            return Err(EngineError(format!("{came} of {length} bytes came in {lasts}")));
        }
        pair.step(end)?;
        came += pair.read(NEAR, flow);
        first = first.or((came > 0).then_some(pair.now));
    }
    let took = seconds(pair.now.since(begin));
    let mut outcome = Outcome { value: took, ..Outcome::default() };
    let first = seconds(first.unwrap_or(begin).since(begin)) * 1e3;
    let mbit = length as f64 * 8e-6 / took;
    for (name, value) in [("with_start_s", took), ("first_byte_ms", first), ("mbit", mbit)] {
        outcome.figures.insert(name.to_owned(), value);
    }
    Ok(outcome)
}

/// Until the first byte of an answer over a tunnel that stands.
fn first(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    let rtt: Span = cell.value("rtt")?;
    let mut pair = Pair::up(cell, seed)?;
    let begin = pair.now;
    let end = begin + PATIENCE;
    let flow = pair.open(Asked::Document(1))?;
    while pair.read(NEAR, flow) == 0 {
        if pair.now >= end {
            return Err(EngineError("the first byte never came".to_owned()));
        }
        pair.step(end)?;
    }
    let took = seconds(pair.now.since(begin));
    let mut outcome = Outcome { value: took * 1e3, ..Outcome::default() };
    outcome.figures.insert("round_trips".to_owned(), took / seconds(rtt));
    Ok(outcome)
}
