//! A line that fades under a download, as rain and motion make satellite lines do, and comes back.

use super::super::network::{FAR, NEAR, Network, Path, mbit, pattern};
use crate::core::*;
use ekiden_model::control::rate_hold::Restraint;
use ekiden_model::network::link::{Change, Serialiser};
use ekiden_model::rng::Rng;
use ekiden_model::units::Span;

/// What one end saw of a download and of echoes of 64 bytes every 100 ms.
#[derive(Debug, Default)]
struct Observation {
    /// Bytes delivered in order, by time.
    delivered: Vec<(Time, usize)>,
    /// When each echo was asked for and when it came.
    echoes: Vec<(Time, Time)>,
}

/// The download's direction has each of these rates, Mbit/s, from its second on.
fn observe(path: &Path, changes: &[(f64, f64)], seconds: u64, echoes: bool) -> Observation {
    let mut network = Network::up(path);
    let (bulk, echo) = (network.flow(1), network.flow(2));
    let (bulk_there, echo_there) = (network.twin(bulk, FAR), network.twin(echo, FAR));
    network.settle(1_000);
    let begun = network.now;
    let at = |seconds: f64| begun + Span::from_nanos((seconds * 1e9) as u64);
    let until = begun + Span::from_secs(seconds);
    let (mut sent, mut echoed) = (0, 0);
    let mut changes = changes.iter().peekable();
    let mut asked = Vec::new();
    let mut seen = Observation::default();
    while network.now < until {
        let now = network.now;
        while let Some((_, rate)) = changes.next_if(|(when, _)| at(*when) <= now) {
            network.links[FAR].set(now, Change::Serialiser(Serialiser::Rate(mbit(*rate))));
        }
        let room = network.ends[FAR].room(bulk_there);
        if room > 30_000 {
            network.ends[FAR].write(now, bulk_there, pattern(sent, room));
            sent += room as u64;
        }
        let due = asked.last().is_none_or(|last: &Time| now.since(*last) >= Span::from_millis(100));
        if echoes && due {
            network.ends[NEAR].write(now, echo, pattern(0, 64));
            asked.push(now);
        }
        let (bytes, _) = network.read(FAR, echo_there);
        if !bytes.is_empty() {
            network.ends[FAR].write(now, echo_there, bytes.into());
        }
        echoed += network.read(NEAR, echo).0.len();
        while seen.echoes.len() < echoed / 64 {
            seen.echoes.push((asked[seen.echoes.len()], now));
        }
        let (bytes, _) = network.read(NEAR, bulk);
        if !bytes.is_empty() {
            seen.delivered.push((now, bytes.len()));
        }
        network.step(now + Span::from_millis(1));
    }
    // relative to the beginning
    let past = |when: &mut Time| *when = Time::ZERO + when.since(begun);
    seen.delivered.iter_mut().for_each(|(when, _)| past(when));
    seen.echoes.iter_mut().for_each(|(asked, came)| (past(asked), past(came)).0);
    seen
}

fn at(seconds: f64) -> Time {
    Time::from_nanos((seconds * 1e9) as u64)
}

impl Observation {
    fn bytes(&self, from: Time, to: Time) -> usize {
        self.delivered.iter().filter(|(when, _)| *when >= from && *when < to).map(|d| d.1).sum()
    }

    /// Mbit/s delivered in order from one second to another.
    fn goodput(&self, from: f64, to: f64) -> f64 {
        self.bytes(at(from), at(to)) as f64 * 8e-6 / (to - from)
    }

    /// The longest time without delivery that ends after `from` and begins before `to`.
    fn longest_pause(&self, from: f64, to: f64) -> Span {
        let mut last = at(from);
        let mut longest = Span::ZERO;
        let times = self.delivered.iter().map(|(when, _)| *when).chain([at(to)]);
        for when in times.filter(|when| *when >= at(from) && *when <= at(to)) {
            longest = longest.max(when.since(last));
            last = when;
        }
        longest
    }

    /// The slowest of the echoes asked for in this time.
    fn slowest_echo(&self, from: f64, to: f64) -> Span {
        let asked = self.echoes.iter().filter(|(asked, _)| *asked >= at(from) && *asked < at(to));
        asked.map(|(asked, came)| came.since(*asked)).max().unwrap_or(Span::from_secs(1_000))
    }
}

/// Mbit/s of 20 that are data.
const CEILING: f64 = 20.0 * 0.965;

fn satellite() -> Path {
    Path { rates: [2.0, 20.0], rtt: Span::from_millis(600), ..Path::default() }
}

/// A fade to a fiftieth for 18 s, and one to a 160th for 33 s, with a queue of a round trip.
#[test]
fn delivery_is_back_soon_after_a_fade() {
    for (depth, ends) in [(0.4, 30.0), (0.12, 45.0)] {
        let fade = [(12.0, depth), (ends, 20.0)];
        let seen = observe(&satellite(), &fade, ends as u64 + 25, true);
        let pause = seen.longest_pause(ends, ends + 25.0);
        let after = seen.goodput(ends + 10.0, ends + 25.0) / CEILING;
        let echo = seen.slowest_echo(ends, ends + 20.0);
        println!(
            "{depth} Mbit/s: {pause} without delivery, {after:.3} of the ceiling, echo {echo}"
        );
        assert!(pause <= Span::from_secs(2), "{depth}: {pause} without delivery");
        assert!(after >= 0.94, "{depth}: {after} of the ceiling");
        assert!(echo <= Span::from_millis(2 * 600), "{depth}: an echo took {echo}");
    }
}

/// Fades of any depth and length; `FADES` draws more of them. The same draws each time.
#[test]
fn delivery_is_back_after_drawn_fades() {
    let draws = std::env::var("FADES").ok().and_then(|draws| draws.parse().ok()).unwrap_or(6);
    let mut rng = Rng::new(24);
    let mut draw = |low: f64, high: f64| {
        low * (high / low).powf(rng.below(1 << 20) as f64 / f64::from(1 << 20))
    };
    let mut worst = Span::ZERO;
    for nth in 0..draws {
        let (depth, lasts, queue) = (draw(0.02, 15.0), draw(0.5, 45.0), draw(0.25, 1.5));
        let ends = 6.0 + lasts;
        let path = Path { queue, ..satellite() };
        let seen = observe(&path, &[(6.0, depth), (ends, 20.0)], ends as u64 + 12, false);
        let pause = seen.longest_pause(ends, ends + 11.0);
        worst = worst.max(pause);
        let fade = format!("{nth}: {depth:.3} Mbit/s for {lasts:.1} s, queue {queue:.2}");
        println!("{fade}: {pause}");
        assert!(pause <= Span::from_secs(4), "{fade}: {pause} without delivery");
    }
    println!("worst: {worst}");
}

/// 20 Mbit/s fell to 100 kbit/s for 10 s: a sawtooth of 0.88 of the ceiling followed.
#[test]
fn goodput_is_held_after_a_fade() {
    let seen = observe(&satellite(), &[(10.0, 0.1), (20.0, 20.0)], 75, false);
    let share = seen.goodput(50.0, 75.0) / CEILING;
    assert!(share >= 0.95, "{share} of the ceiling");
}

/// One word when it has lasted for 10 s, and one when it is over.
#[test]
fn long_restraint_is_reported() {
    let mut network = Network::up(&satellite());
    let bulk = network.flow(1);
    let there = network.twin(bulk, FAR);
    network.settle(1_000);
    let mut sent = 0;
    let mut said = Vec::new();
    for (rate, seconds) in [(20.0, 5), (2.0, 20), (20.0, 15)] {
        network.links[FAR].set(network.now, Change::Serialiser(Serialiser::Rate(mbit(rate))));
        let until = network.now + Span::from_secs(seconds);
        while network.now < until {
            let now = network.now;
            sent = network.fill(FAR, there, sent);
            network.read(NEAR, bulk);
            network.step(now + Span::from_millis(1));
        }
        said.push(network.ends[FAR].snapshots()[0].restrained);
    }
    assert_eq!(said, [None, Some(Restraint::Line), None]);
    let of = |event: &Event| match event {
        Event::Restrained { why, .. } => Some(*why),
        _ => None,
    };
    let events: Vec<_> = network.events[FAR].iter().filter_map(of).collect();
    assert_eq!(events, [Some(Restraint::Line), None]);
}
