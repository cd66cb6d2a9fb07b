//! The satellite study on virtual time: the tunnel's own core at both ends of the kernel's links, and the
//! model's TCP.

mod quic;
mod tcp;

use crate::long_link::PAYLOAD;
use crate::long_link::changes::through;
use crate::long_link::tunnel_pair::{Asked, FAR, NEAR, Pair};
use crate::satellite::outcome::{LAST, evenness, tell_echoes, tell_sides};
use crate::thin_client;
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_model::units::{Bytes, Rate, Span, Time};
use ekiden_testbed::load::far_client::Echoed;
use ekiden_tunnel::core::FlowId;
use std::time::Duration;

const EVERY: Span = Span::from_millis(100);
/// Of an echo, there and back.
const ECHO: usize = 64;
pub(crate) fn run(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    match (cell.text("way")?, cell.text("load")?) {
        (_, "quic") => quic::run(cell, seed),
        ("cubic", _) => tcp::run(cell, seed),
        (_, "download" | "upload" | "echo") => bulk(cell, seed),
        (_, "file") => file(cell, seed),
        (_, "first byte") => first(cell, seed),
        (_, "screens") => thin_client::sim::over_link(cell, seed),
        (_, other) => Err(cell.error("load", &format!("`{other}` is not simulated")).into()),
    }
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

    fn configured(&self, begin: Time, end: Time) -> Vec<Echoed> {
        let one = |(number, sent): (usize, &Time)| {
            let came = self.came.get(number);
            Echoed {
                sent: sent.since(begin).into(),
                took: came.unwrap_or(&end).since(*sent).into(),
                came: came.is_some(),
            }
        };
        self.sent.iter().enumerate().map(one).collect()
    }
}

/// Bulk one way for the cell's duration, with echoes beside it where the cell has them.
fn bulk(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    let (lasts, settle): (Span, Span) = (cell.value("duration")?, cell.value("settle")?);
    let down = cell.text("load")? != "upload";
    let streams: usize = cell.value("streams")?;
    let mut pair = Pair::up(cell, seed)?;
    let (begin, from, end) = (pair.now, pair.now + settle, pair.now + lasts);
    let asked = if down { Asked::Pour } else { Asked::Take };
    let flows: Vec<FlowId> = (0..streams).map(|_| pair.open(asked)).collect::<Result<_, _>>()?;
    let echo = if cell.text("load")? == "echo" { Some(pair.open(Asked::Echo)?) } else { None };
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
    let counted = lasts.as_secs_f64() - settle.as_secs_f64();
    let mut outcome = Outcome::of(bytes as f64 * 8e-6 / counted);
    if bytes == 0 {
        return Err(EngineError("nothing came in all the time that is counted".to_owned()));
    }
    if down && streams > 1 {
        let came: Vec<f64> = came.iter().map(|one| *one as f64).collect();
        outcome.add_figures([("evenness", evenness(&came))]);
    }
    let configured: Rate = cell.value(if down { "told-down" } else { "told-up" })?;
    let since = |time: Time| time.since(Time::ZERO);
    let ceiling = through(pair.phases(down), configured, since(from), since(end)) * PAYLOAD;
    outcome.add_figures([("of_ceiling", bytes as f64 * 8.0 / ceiling)]);
    if echo.is_some() {
        let counted = (settle.into(), Duration::from(lasts).saturating_sub(LAST));
        tell_echoes(&echoes.configured(begin, end), counted, &mut outcome);
    }
    let names = ["copied_percent", "copied_back_percent"];
    for (name, (then, now)) in names.into_iter().zip(first.into_iter().zip(looks(&pair))) {
        let Some((then, now)) = then.zip(now) else { continue };
        let sent = (now.sent - then.sent).max(1) as f64;
        let copied = (now.copied_bytes - then.copied_bytes) as f64;
        outcome.add_figures([(name, copied * 100.0 / sent)]);
    }
    let counted = (since(from), since(Time::from_nanos(end.as_nanos() - LAST.as_nanos() as u64)));
    tell_sides(
        pair.sides(down, counted),
        Duration::from(counted.1) - Duration::from(counted.0),
        &mut outcome,
    );
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
    let took = pair.now.since(begin).as_secs_f64();
    let mut outcome = Outcome::of(took);
    let first = first.unwrap_or(begin).since(begin).as_secs_f64() * 1e3;
    let mbit = length as f64 * 8e-6 / took;
    outcome.add_figures([("with_start_s", took), ("first_byte_ms", first), ("mbit", mbit)]);
    Ok(outcome)
}

/// Until the first byte of an answer over a tunnel that stands.
fn first(cell: &Cell, seed: u64) -> Result<Outcome, EngineError> {
    let rtt: Span = cell.value("rtt")?;
    let mut pair = Pair::up(cell, seed)?;
    let begin = pair.now;
    let flow = pair.open(Asked::Document(1))?;
    pair.wait("the first byte never came", |pair| pair.read(NEAR, flow) > 0)?;
    let took = pair.now.since(begin).as_secs_f64();
    let mut outcome = Outcome::of(took * 1e3);
    outcome.add_figures([("round_trips", took / rtt.as_secs_f64())]);
    Ok(outcome)
}
