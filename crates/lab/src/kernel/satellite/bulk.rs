//! Bulk in one direction for as long as the cell says, with echoes beside it and, where a cell has one, a
//! competing TCP straight over the same link.
//!
//! What is counted comes between `settle` and the end.

use super::bottleneck::{Bottleneck, Summary};
use super::changes::Phase;
use super::scene::Scene;
use super::way::Said;
use crate::cell::Cell;
use crate::engine::{EngineError, Outcome};
use crate::load::asking::{Ask, Echoed};
use crate::load::distant::Distant;
use crate::load::meter::Meter;
use crate::statistics::quantile;
use ekiden_emulator::topology::TopologyPlan;
use ekiden_model::units::{Rate, Span};
use ekiden_record::histogram::Histogram;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Payload of what is sent, by the acceptance of the tunnel: headers and acknowledgements take the rest.
pub(crate) const PAYLOAD: f64 = 0.965;
/// Between two echoes.
const EVERY: Duration = Duration::from_millis(100);
/// Before the end of what is counted, echoes are not: theirs may come behind it.
pub(crate) const LAST: Duration = Duration::from_secs(1);

/// A look at what grows.
#[derive(Debug, Clone, Copy)]
struct Look {
    at: Instant,
    cpu: Option<Duration>,
    /// Downwards, upwards.
    said: [Option<Said>; 2],
}

impl Look {
    fn take(scene: &Scene) -> Self {
        let said = [true, false].map(|down| scene.way.said(down));
        Self { at: Instant::now(), cpu: scene.way.cpu(), said }
    }
}

/// A cell's run.
///
/// # Errors
/// The cell lacks a value, something did not start or broke, or nothing came.
pub(super) fn run(
    cell: &Cell,
    plan: &TopologyPlan,
    links: [Vec<Phase>; 2],
    ekiden: &Path,
) -> Result<Outcome, EngineError> {
    let span = |axis: &str| -> Result<Duration, EngineError> {
        Ok(Duration::from_nanos(cell.value::<Span>(axis)?.as_nanos()))
    };
    let (lasts, settle) = (span("duration")?, span("settle")?);
    if settle + LAST >= lasts {
        return Err(cell.error("duration", "it is to be longer than «settle» by 2 s").into());
    }
    let down = cell.text("load")? != "upload";
    let rival = Some(cell.text("rival")?).filter(|name| *name != "none");
    let scene = Scene::warm(cell, plan, links, ekiden)?;

    let begin = Instant::now();
    let end = begin + lasts;
    let server = scene.serve(Meter::new(begin, lasts))?;
    let ask = scene.ask(end)?;
    let meter = || Arc::new(Meter::new(begin, lasts));
    let streams: usize = cell.value("streams")?;
    let mut meters = Vec::new();
    let mut threads = Vec::new();
    for _ in 0..streams {
        let own = meter();
        meters.push(Arc::clone(&own));
        let load = move || if down { ask.download(None, &own) } else { ask.upload() };
        threads.push(scene.start(load)?);
    }
    let echoes = match cell.text("load")? {
        "echo" => Some(scene.start(move || ask.echoes(EVERY, begin))?),
        _ => None,
    };
    let beside = meter();
    let rival = match rival.map(str::to_owned) {
        Some(name) => {
            let (own, ask) = (Arc::clone(&beside), Ask { proxy: None, ..ask });
            Some(scene.start(move || ask.download(Some(&name), &own))?)
        }
        None => None,
    };
    thread::sleep((begin + settle).saturating_duration_since(Instant::now()));
    let first = Look::take(&scene);
    thread::sleep(end.saturating_duration_since(Instant::now()));
    let last = Look::take(&scene);
    for thread in threads {
        scene.ended("a bulk stream", thread)?;
    }
    let echoes = echoes.map(|thread| scene.ended("the echoes", thread)).transpose()?;
    let rival = rival.map(|thread| scene.ended("the competing flow", thread)).transpose()?;

    let came = Came { down, settle, lasts, meters: &meters, server: &server };
    let mut outcome = came.outcome()?;
    let told: Rate = cell.value(if down { "told-down" } else { "told-up" })?;
    // what comes at the end was sent before: the link is looked at from the beginning of what is counted
    let ceiling = scene.bottleneck.through(down, told, (begin + settle, end)) * PAYLOAD;
    let bits = outcome.value * 1e6 * (lasts - settle).as_secs_f64();
    outcome.figures.insert("of_ceiling".to_owned(), bits / ceiling);
    if rival.is_some() {
        let mbit = beside.between(settle, lasts) as f64 * 8e-6 / (lasts - settle).as_secs_f64();
        let link = if down { "downlink" } else { "uplink" };
        let link = cell.value::<Rate>(link)?.as_bits_per_second() as f64;
        outcome.figures.insert("rival_mbit".to_owned(), mbit);
        outcome.figures.insert("rival_percent".to_owned(), mbit * 1e8 / link);
        outcome.series.insert("rival, Mbit/s".to_owned(), beside.over_time());
    }
    if let Some(echoes) = echoes {
        tell_echoes(&echoes, (settle, lasts - LAST), &mut outcome);
    }
    tell_ends(first, last, down, bits / 8.0, &mut outcome);
    // what came last is still on its way
    let counted = (first.at, last.at - LAST);
    tell_link(&scene.bottleneck, down, counted, &mut outcome);
    if cell.text("load")? == "pace" {
        let paced = scene.bottleneck.paced(down, told, counted);
        let lacks = || EngineError("the record of packets is not whole".to_owned());
        paced.ok_or_else(lacks)?.tell(&mut outcome);
    }
    scene.finish(server, &mut outcome)?;
    Ok(outcome)
}

/// What the load moved.
struct Came<'a> {
    down: bool,
    settle: Duration,
    lasts: Duration,
    meters: &'a [Arc<Meter>],
    server: &'a Distant,
}

impl Came<'_> {
    fn outcome(&self) -> Result<Outcome, EngineError> {
        let seconds = (self.lasts - self.settle).as_secs_f64();
        let taken = [self.server.taken()];
        let meters: Vec<&Meter> =
            if self.down { self.meters.iter().map(Arc::as_ref).collect() } else { taken.to_vec() };
        let bytes: Vec<f64> =
            meters.iter().map(|meter| meter.between(self.settle, self.lasts) as f64).collect();
        let all: f64 = bytes.iter().sum();
        if all == 0.0 {
            return Err(EngineError("nothing came in all the time that is counted".to_owned()));
        }
        let mut outcome = Outcome { value: all * 8e-6 / seconds, ..Outcome::default() };
        if bytes.len() > 1 {
            // Jain's index (1984): 1 where all have the same, 1/n where one has all
            let squares: f64 = bytes.iter().map(|one| one * one).sum();
            outcome.figures.insert("evenness".to_owned(), all * all / squares / bytes.len() as f64);
        }
        let mut sum: Vec<[f64; 2]> = Vec::new();
        for meter in meters {
            for (second, [at, rate]) in meter.over_time().into_iter().enumerate() {
                match sum.get_mut(second) {
                    Some(there) => there[1] += rate,
                    None => sum.push([at, rate]),
                }
            }
        }
        outcome.series.insert("goodput, Mbit/s".to_owned(), sum);
        Ok(outcome)
    }
}

/// How long echoes took that were sent between two times.
pub(crate) fn tell_echoes(
    echoes: &[Echoed],
    (from, to): (Duration, Duration),
    outcome: &mut Outcome,
) {
    let within = || echoes.iter().filter(|echo| (from..to).contains(&echo.sent));
    let delays: Vec<f64> = within().map(|echo| echo.took.as_secs_f64() * 1e3).collect();
    for (name, share) in
        [("echo_p50_ms", 0.5), ("echo_p90_ms", 0.9), ("echo_p99_ms", 0.99), ("echo_most_ms", 1.0)]
    {
        if let Some(value) = quantile(&delays, share) {
            outcome.figures.insert(name.to_owned(), value);
        }
    }
    let late = within().filter(|echo| !echo.came).count();
    outcome.figures.insert("echoes_that_never_came".to_owned(), late as f64);
    let mut histogram = Histogram::new();
    within().for_each(|echo| histogram.add(echo.took.as_nanos() as u64));
    let slots = histogram.slots().map(|(floor, count)| [floor, count]).collect();
    outcome.histograms.insert("echo".to_owned(), slots);
}

/// What the ends say, and what they cost. `bytes` of payload were moved meanwhile.
fn tell_ends(first: Look, last: Look, down: bool, bytes: f64, outcome: &mut Outcome) {
    let mut tell = |name: &str, value: f64| {
        outcome.figures.insert(name.to_owned(), value);
    };
    if let Some((then, now)) = first.cpu.zip(last.cpu) {
        tell("cpu_s_per_gb", now.saturating_sub(then).as_secs_f64() * 1e9 / bytes);
    }
    let [forward, back] = if down { [0, 1] } else { [1, 0] };
    for (side, name) in [(forward, "copied_percent"), (back, "copied_back_percent")] {
        let pair =
            first.said.get(side).copied().flatten().zip(last.said.get(side).copied().flatten());
        let Some((then, now)) = pair else { continue };
        let sent = (now.sent - then.sent).max(1.0);
        tell(name, (now.copied - then.copied) * 100.0 / sent);
        if let (true, Some([half, most])) = (side == forward, now.pacing) {
            tell("pacing_p50_us", half);
            tell("pacing_p99_us", most);
        }
    }
}

fn tell_link(bottleneck: &Bottleneck, down: bool, time: (Instant, Instant), outcome: &mut Outcome) {
    let sides: Option<(Summary, Summary)> =
        bottleneck.between(down, time).zip(bottleneck.between(!down, time));
    if let Some(sides) = sides {
        tell_sides(sides, time.1.duration_since(time.0), outcome);
    }
}

/// What became of packets one way and back in such a time.
pub(crate) fn tell_sides(
    (forward, back): (Summary, Summary),
    time: Duration,
    outcome: &mut Outcome,
) {
    let share = |part: u64| part as f64 * 100.0 / forward.packets.max(1) as f64;
    let [half, most] = forward.waited;
    for (name, value) in [
        ("dropped_percent", share(forward.dropped)),
        ("lost_percent", share(forward.lost)),
        ("queue_p50_ms", half),
        ("queue_p99_ms", most),
        ("back_percent", back.bytes as f64 * 100.0 / forward.bytes.max(1) as f64),
        ("wire_mbit", forward.bytes as f64 * 8e-6 / time.as_secs_f64()),
    ] {
        outcome.figures.insert(name.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_that_never_came_counts_as_late_as_it_is() {
        let ms = Duration::from_millis;
        let echo = |sent, took, came| Echoed { sent: ms(sent), took: ms(took), came };
        let mut echoes: Vec<Echoed> = (0..99).map(|n| echo(1_000 + n, 600, true)).collect();
        echoes.push(echo(1_500, 9_000, false));
        echoes.push(echo(10, 5_000, true)); // before it is counted
        let mut outcome = Outcome::default();
        tell_echoes(&echoes, (ms(1_000), ms(2_000)), &mut outcome);
        let told = |name: &str| outcome.figures[name];
        assert_eq!((told("echo_p50_ms"), told("echo_most_ms")), (600.0, 9_000.0));
        assert_eq!(told("echoes_that_never_came"), 1.0);
        let counted: u64 = outcome.histograms["echo"].iter().map(|[_, count]| count).sum();
        assert_eq!(counted, 100);
    }

    #[test]
    fn copies_are_told_by_direction_and_processor_time_by_gigabyte() {
        let said = |sent: f64, copied: f64| Some(Said { sent, copied, pacing: Some([1.0, 2.0]) });
        let at = Instant::now();
        let cpu = |ms| Some(Duration::from_millis(ms));
        let first = Look { at, cpu: cpu(100), said: [said(0.0, 0.0), said(0.0, 0.0)] };
        let last = Look { at, cpu: cpu(300), said: [said(1_000.0, 10.0), said(100.0, 50.0)] };
        let mut outcome = Outcome::default();
        tell_ends(first, last, true, 1e8, &mut outcome);
        let told = |name: &str| outcome.figures[name];
        assert!((told("cpu_s_per_gb") - 2.0).abs() < 1e-9);
        assert_eq!((told("copied_percent"), told("copied_back_percent")), (1.0, 50.0));
        assert_eq!(told("pacing_p99_us"), 2.0);
    }
}
