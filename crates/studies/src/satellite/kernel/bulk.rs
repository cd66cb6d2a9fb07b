//! Bulk one way, with echoes and a competing TCP beside it where the cell has them; counted from `settle` to
//! the end.

use crate::long_link::PAYLOAD;
use crate::long_link::bottleneck::{Bottleneck, Summary};
use crate::long_link::duration;
use crate::long_link::ends::TunnelFigures;
use crate::long_link::testbed::Testbed;
use crate::satellite::outcome::{LAST, evenness, tell_echoes, tell_sides};
use ekiden_lab::engine::{EngineError, Outcome};
use ekiden_lab::study::KernelRun;
use ekiden_model::units::Rate;
use ekiden_testbed::load::far_client::FarClient;
use ekiden_testbed::load::meter::Meter;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(100);
/// After a fade, a link is full again by then.
const RECOVERED: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy)]
struct CounterSnapshot {
    at: Instant,
    cpu: Option<Duration>,
    /// Downwards, upwards.
    message: [Option<TunnelFigures>; 2],
}

impl CounterSnapshot {
    fn take(scene: &Testbed) -> Self {
        let message = [true, false].map(|down| scene.way.message(down));
        Self { at: Instant::now(), cpu: scene.way.cpu(), message }
    }
}

pub(crate) fn run(run: &KernelRun<'_>) -> Result<Outcome, EngineError> {
    let cell = run.cell;
    let (lasts, settle) = (duration(cell, "duration")?, duration(cell, "settle")?);
    if settle + LAST >= lasts {
        return Err(cell.error("duration", "it is to be longer than `settle` by 2 s").into());
    }
    let down = cell.text("load")? != "upload";
    let rival = Some(cell.text("rival")?).filter(|name| *name != "none");
    let scene = Testbed::warm(run)?;

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
            let (own, ask) = (Arc::clone(&beside), FarClient { proxy: None, ..ask });
            Some(scene.start(move || ask.download(Some(&name), &own))?)
        }
        None => None,
    };
    thread::sleep((begin + settle).saturating_duration_since(Instant::now()));
    let first = CounterSnapshot::take(&scene);
    thread::sleep(end.saturating_duration_since(Instant::now()));
    let last = CounterSnapshot::take(&scene);
    for thread in threads {
        scene.ended("a bulk stream", thread)?;
    }
    let echoes = echoes.map(|thread| scene.ended("the echoes", thread)).transpose()?;
    let rival = rival.map(|thread| scene.ended("the competing flow", thread)).transpose()?;

    let came = if down { meters.iter().map(Arc::as_ref).collect() } else { vec![server.taken()] };
    let mut outcome = goodput(&came, settle, lasts)?;
    let configured: Rate = cell.value(if down { "told-down" } else { "told-up" })?;
    // what comes at the end was sent before: the link is looked at from the beginning of what is counted
    let ceiling = scene.bottleneck.through(down, configured, (begin + settle, end)) * PAYLOAD;
    let bits = outcome.value * 1e6 * (lasts - settle).as_secs_f64();
    outcome.add_figures([("of_ceiling", bits / ceiling)]);
    if rival.is_some() {
        let mbit = beside.between(settle, lasts) as f64 * 8e-6 / (lasts - settle).as_secs_f64();
        let link = if down { "downlink" } else { "uplink" };
        let link = cell.value::<Rate>(link)?.as_bits_per_second() as f64;
        outcome.add_figures([("rival_mbit", mbit), ("rival_percent", mbit * 1e8 / link)]);
        outcome.series.insert("rival, Mbit/s".to_owned(), beside.over_time());
    }
    if matches!(cell.text("changes")?, "fade" | "drawn fade")
        && let (Some(over), [came]) = (scene.bottleneck.last_change(), &came[..])
    {
        let over = over.saturating_duration_since(begin);
        let whole = cell.value::<Rate>("downlink")?.as_bits_per_second() as f64 * PAYLOAD;
        tell_fade(came, (over, lasts), whole, &mut outcome)?;
    }
    if let Some(echoes) = echoes {
        tell_echoes(&echoes, (settle, lasts - LAST), &mut outcome);
    }
    tell_ends(first, last, down, bits / 8.0, &mut outcome);
    // what came last is still on its way
    let counted = (first.at, last.at - LAST);
    tell_link(&scene.bottleneck, down, counted, &mut outcome);
    if cell.text("load")? == "pace" {
        let paced = scene.bottleneck.paced(down, configured, counted);
        let lacks = || EngineError("the record of packets is not whole".to_owned());
        paced.ok_or_else(lacks)?.tell(&mut outcome);
    }
    scene.finish(server, &mut outcome)?;
    Ok(outcome)
}

/// Goodput of what was counted from `settle` to `lasts`, and over time.
fn goodput(meters: &[&Meter], settle: Duration, lasts: Duration) -> Result<Outcome, EngineError> {
    let bytes: Vec<f64> = meters.iter().map(|m| m.between(settle, lasts) as f64).collect();
    let all: f64 = bytes.iter().sum();
    if all == 0.0 {
        return Err(EngineError("nothing came in all the time that is counted".to_owned()));
    }
    let mut outcome = Outcome::of(all * 8e-6 / (lasts - settle).as_secs_f64());
    if bytes.len() > 1 {
        outcome.add_figures([("evenness", evenness(&bytes))]);
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

/// The longest pause after a fade was over, and goodput from ten seconds after it on. `whole`: what a full link carries,
/// bit/s.
fn tell_fade(
    came: &Meter,
    (over, lasts): (Duration, Duration),
    whole: f64,
    outcome: &mut Outcome,
) -> Result<(), EngineError> {
    let later = over + RECOVERED;
    if later + LAST > lasts {
        return Err(EngineError(format!(
            "the fade is over after {over:?}: `duration` is too short"
        )));
    }
    let bits = came.between(later, lasts) as f64 * 8.0 / (lasts - later).as_secs_f64();
    let pause = came.longest_pause(over, lasts).as_secs_f64();
    outcome.add_figures([("pause_s", pause), ("recovered_of_ceiling", bits / whole)]);
    Ok(())
}

/// What the ends say, and what they cost. `bytes` of payload were moved meanwhile.
fn tell_ends(
    first: CounterSnapshot,
    last: CounterSnapshot,
    down: bool,
    bytes: f64,
    outcome: &mut Outcome,
) {
    if let Some((then, now)) = first.cpu.zip(last.cpu) {
        let seconds = now.saturating_sub(then).as_secs_f64();
        outcome.add_figures([("cpu_s_per_gb", seconds * 1e9 / bytes)]);
    }
    let [forward, back] = if down { [0, 1] } else { [1, 0] };
    for (side, name) in [(forward, "copied_percent"), (back, "copied_back_percent")] {
        let Some((then, now)) = first.message[side].zip(last.message[side]) else { continue };
        let sent = (now.sent - then.sent).max(1.0);
        outcome.add_figures([(name, (now.copied - then.copied) * 100.0 / sent)]);
        if let (true, Some([half, most])) = (side == forward, now.pacing) {
            outcome.add_figures([("pacing_p50_us", half), ("pacing_p99_us", most)]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_the_pause_after_a_fade_and_what_comes_later() {
        let begin = Instant::now().checked_sub(Duration::from_secs(12)).unwrap();
        let meter = Meter::new(begin, Duration::from_secs(13));
        // after 12 s of nothing
        meter.add(1_000_000);
        let seconds = Duration::from_secs;
        let mut outcome = Outcome::default();
        tell_fade(&meter, (seconds(1), seconds(13)), 8e6, &mut outcome).unwrap();
        let figure = |name: &str| outcome.figures[name];
        assert!((10.9..=11.1).contains(&figure("pause_s")), "{}", figure("pause_s"));
        assert_eq!(figure("recovered_of_ceiling"), 0.5);
        assert!(tell_fade(&meter, (seconds(3), seconds(13)), 8e6, &mut outcome).is_err());
    }

    #[test]
    fn reports_copies_by_direction_and_cpu_time_by_gigabyte() {
        let message =
            |sent: f64, copied: f64| Some(TunnelFigures { sent, copied, pacing: Some([1.0, 2.0]) });
        let at = Instant::now();
        let cpu = |ms| Some(Duration::from_millis(ms));
        let first =
            CounterSnapshot { at, cpu: cpu(100), message: [message(0.0, 0.0), message(0.0, 0.0)] };
        let last = CounterSnapshot {
            at,
            cpu: cpu(300),
            message: [message(1_000.0, 10.0), message(100.0, 50.0)],
        };
        let mut outcome = Outcome::default();
        tell_ends(first, last, true, 1e8, &mut outcome);
        let configured = |name: &str| outcome.figures[name];
        assert!((configured("cpu_s_per_gb") - 2.0).abs() < 1e-9);
        assert_eq!((configured("copied_percent"), configured("copied_back_percent")), (1.0, 50.0));
        assert_eq!(configured("pacing_p99_us"), 2.0);
    }
}
