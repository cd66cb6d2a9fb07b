//! A line that is free is found again, from any state.

use super::{Observation, PROBE, Path, at, drive_on, late, mbit};
use crate::control::rate_hold::{Config, Mode, RateHold};
use crate::testing::*;
use proptest::test_runner::RngSeed;

/// Ten round trips or 5 s, whichever is longer.
fn bound(rtt: f64) -> f64 {
    (10.0 * rtt).max(5.0)
}

/// A line of which all is allotted.
fn line(rate: f64, rtt: f64, loss: f64, round_trips_queued: f64) -> Path {
    let bytes = rate * 1e6 / 8.0 * rtt * round_trips_queued;
    let queue = bytes.max(15_000.0) as u64;
    let acks = late::Acks { every: 10, ..late::Acks::default() };
    Path { rate, rtt, loss, queue, changes: Vec::new(), acks }
}

/// Whether a controller sends at nine tenths of a rate, Mbit/s, but for what trains spread.
fn finds(hold: &RateHold, rate: f64) -> bool {
    let seen = hold.snapshot();
    let line = seen.line.map_or(f64::INFINITY, |line| line as f64 * 1e-6);
    line >= 0.9 * rate && !seen.resting && !seen.silent && seen.breaker.open.is_none()
}

/// Sends from a time on, and says how long after the first news of a line that is free again its
/// rate was found, to stay so for 2 s.
fn found(
    hold: RateHold,
    path: &Path,
    (loaded, free): (f64, f64),
    seconds: u64,
) -> (f64, Observation, RateHold) {
    let rate = path.changes.last().map_or(path.rate, |change| change.1);
    let mut since: Option<Time> = None;
    let mut first = f64::INFINITY;
    let mut news = None;
    let (seen, hold) = drive_on(
        hold,
        path,
        seconds,
        false,
        |now| now >= at(loaded),
        |now, hold| {
            // what comes within half a round trip left the line before
            if hold.heard > at(free + path.rtt / 2.0) {
                news.get_or_insert(now);
            }
            if !finds(hold, rate) || now < at(free) {
                since = None;
            } else {
                let since = *since.get_or_insert(now);
                if now.since(since) > Span::from_secs(2) {
                    let from = news.filter(|_| !path.changes.is_empty()).unwrap_or(at(free));
                    first = first.min(since.since(from).as_nanos() as f64 / 1e9);
                }
            }
        },
    );
    (first, seen, hold)
}

/// A controller that believes in a line of so many Mbit/s.
fn believing(rate: f64, allotted: f64, rtt: Option<f64>) -> RateHold {
    let mut hold = RateHold::new(Config::new(mbit(allotted)), Time::ZERO);
    hold.line = Some(rate * 1e6).filter(|line| *line < allotted * 1e6);
    hold.trains.calm(Time::ZERO, Time::ZERO);
    hold.base = rtt.map(|rtt| Span::from_nanos((rtt * 1e9) as u64));
    hold
}

/// The rate stayed at 118,784 bit/s of 20 Mbit/s for 18 minutes, idle or loaded.
#[test]
fn low_estimate_does_not_lock_in() {
    for loaded in [0.0, 30.0] {
        let path = line(20.0, 0.6, 0.0, 1.0);
        let hold = believing(0.118_784, 20.0, Some(0.6));
        let (when, seen, hold) = found(hold, &path, (loaded, loaded), loaded as u64 + 60);
        assert!(when <= 6.0, "found after {when} s: {:?}", hold.snapshot());
        let from = loaded as usize + 30;
        assert!(seen.goodput(from, from + 30) > 0.95 * 20.0, "{}", seen.goodput(from, from + 30));
    }
}

/// Beside others no train is due; their end is forgotten with the mode.
#[test]
fn another_mode_does_not_lock_in() {
    let mut hold = believing(1.0, 20.0, Some(0.6));
    hold.trains.calm(Time::ZERO, Time::NEVER);
    hold.set_mode(Time::ZERO, Mode::Shared);
    let (when, ..) = found(hold, &line(20.0, 0.6, 0.0, 1.0), (0.0, 0.0), 10);
    assert!(when <= 6.0, "found after {when} s");
}

/// 20 Mbit/s fell to 100 kbit/s for 10 s. Goodput was a sawtooth of 14 to 18 Mbit/s after that.
#[test]
fn no_sawtooth_follows_a_fade() {
    for queue in [0.1, 1.0] {
        let fade = vec![(20.0, 0.1, 0.6, 0.0), (30.0, 20.0, 0.6, 0.0)];
        let path = Path { changes: fade, ..line(20.0, 0.6, 0.0, queue) };
        let (when, seen, _) = found(believing(20.0, 20.0, None), &path, (0.0, 30.0), 100);
        assert!(when <= 6.0, "{queue}: found after {when} s");
        assert!(seen.goodput(60, 100) > 0.95 * 20.0, "{queue}: {}", seen.goodput(60, 100));
    }
}

/// The same draws each time; `CASES` draws more of them.
fn cases() -> ProptestConfig {
    let cases = std::env::var("CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        max_shrink_iters: 40,
        rng_seed: RngSeed::Fixed(24),
        ..ProptestConfig::with_cases(cases.unwrap_or(64))
    }
}

/// From one to another, evenly by ratio.
fn ratio(low: f64, high: f64) -> impl Strategy<Value = f64> {
    (low.ln()..high.ln()).prop_map(f64::exp)
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn free_line_is_found_from_any_estimate(
        rate in ratio(0.5, 100.0),
        rtt in ratio(0.02, 0.7),
        (loss, queue) in (0.0..5.0_f64, ratio(0.25, 2.0)),
        share in 0.0..1.0_f64,
        (knows_path, idle) in (any::<bool>(), prop_oneof![Just(0.0), 0.0..30.0_f64]),
    ) {
        let path = line(rate, rtt, loss, queue);
        // from the floor up, evenly by ratio
        let believed = 0.064 * (rate / 0.064_f64).powf(share);
        let hold = believing(believed, rate, knows_path.then_some(rtt));
        let (when, _, hold) = found(hold, &path, (idle, idle), (idle + bound(rtt)) as u64 + 4);
        prop_assert!(when <= bound(rtt), "{when} s: {:?}", hold.snapshot());
    }

    #[test]
    fn free_line_is_found_after_any_fade(
        rate in ratio(1.0, 100.0),
        rtt in ratio(0.02, 0.7),
        (loss, queue) in (0.0..5.0_f64, ratio(0.25, 2.0)),
        fades in prop::collection::vec((0.0..1.0_f64, 0.2..30.0_f64, 0.0..10.0_f64), 1..4),
    ) {
        let mut now = 3.0;
        let mut path = line(rate, rtt, loss, queue);
        // where a queue is too short to show, a fade shows by losses alone: that is not promised
        path.queue = path.queue.max((rate * 1e6 / 8.0 * 0.05) as u64);
        for (depth, lasts, apart) in fades {
            path.changes.push((now, (rate * 0.001_f64.powf(depth)).max(0.02), rtt, loss));
            now += lasts;
            path.changes.push((now, rate, rtt, loss));
            now += apart;
        }
        let ends = path.changes.last().unwrap().0;
        let (when, seen, hold) = found(believing(rate, rate, None), &path, (0.0, ends), ends as u64 + 45);
        // losses at the end of what was sent show by a probe, as long later
        let bound = bound(rtt) + PROBE.as_nanos() as f64 / 1e9;
        prop_assert!(when <= bound, "{when} s: {:?}", hold.snapshot());
        let (from, ceiling) = (ends as usize + 31, rate * (1.0 - loss / 100.0));
        prop_assert!(seen.goodput(from, from + 10) > 0.95 * ceiling, "{}", seen.goodput(from, from + 10));
    }
}
