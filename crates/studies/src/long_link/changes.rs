//! Rate, loss and delay of the downlink that change during a run, at times and to values drawn from its seed.

use ekiden_lab::cell::Cell;
use ekiden_lab::engine::EngineError;
use ekiden_model::network::link::{Change, Serialiser};
use ekiden_model::rng::Rng;
use ekiden_model::units::{Rate, Share, Span};

/// Longer than any run with changes, its setting up included.
const LASTS: Span = Span::from_secs(300);
/// How long each phase is, ms.
const PHASES: [u64; 2] = [4_000, 8_000];
/// Of the link's rate, and of its delay, in parts of a hundred.
const RATES: [u64; 2] = [50, 100];
const DELAYS: [u64; 2] = [80, 120];
/// Per cent, each as likely as another.
const LOSSES: [u64; 4] = [0, 1, 2, 5];

/// What the link is from one time to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Phase {
    /// Since the link began.
    pub(crate) from: Span,
    pub(crate) rate: Rate,
    pub(crate) delay: Span,
    pub(crate) loss: Share,
}

/// A cell's link up and down in a run: one phase each, unless its downlink has changes.
pub(crate) fn links(cell: &Cell, seed: u64) -> Result<[Vec<Phase>; 2], EngineError> {
    let rtt: Span = cell.value("rtt")?;
    let loss: Share = cell.value("loss")?;
    let phase = |rate| {
        let delay = Span::from_nanos(rtt.as_nanos() / 2);
        Phase { from: Span::ZERO, rate, delay, loss }
    };
    let [up, down] = [phase(cell.value("uplink")?), phase(cell.value("downlink")?)];
    let down = match cell.text("changes")? {
        "none" => vec![down],
        "drawn" => drawn(down, seed),
        "fade" => fade(down, cell.value("faded")?, cell.value("fading")?),
        "drawn fade" => drawn_fade(down, seed),
        other => return Err(cell.error("changes", &format!("`{other}` is not known")).into()),
    };
    Ok([vec![up], down])
}

/// When a fade begins: both ends are warm, and the download fills the link.
const FADES: Span = Span::from_secs(20);
/// What a drawn fade leaves of the rate, and how long it lasts, seconds: each ratio as likely as another.
const DEPTHS: [f64; 2] = [0.001, 0.75];
const LENGTHS: [f64; 2] = [0.5, 45.0];

/// The link as it was after a lower rate.
fn fade(first: Phase, rate: Rate, lasts: Span) -> Vec<Phase> {
    let faded = Phase { from: FADES, rate, ..first };
    vec![first, faded, Phase { from: FADES + lasts, ..first }]
}

fn drawn_fade(first: Phase, seed: u64) -> Vec<Phase> {
    let mut rng = Rng::new(seed);
    let mut draw = |[low, high]: [f64; 2]| {
        low * (high / low).powf(rng.below(1 << 20) as f64 / f64::from(1 << 20))
    };
    let rate = first.rate.as_bits_per_second() as f64 * draw(DEPTHS);
    let lasts = Span::from_nanos((draw(LENGTHS) * 1e9) as u64);
    fade(first, Rate::from_bits_per_second(rate as u64), lasts)
}

fn drawn(first: Phase, seed: u64) -> Vec<Phase> {
    let mut rng = Rng::new(seed);
    let mut between = move |[from, to]: [u64; 2]| from + rng.below(to - from + 1);
    let mut phases = vec![first];
    let mut from = Span::from_millis(between(PHASES));
    while from < LASTS {
        let part = |whole: u64, hundredths: u64| whole / 100 * hundredths;
        let rate = part(first.rate.as_bits_per_second(), between(RATES));
        let percent = LOSSES.get(between([0, LOSSES.len() as u64 - 1]) as usize);
        phases.push(Phase {
            from,
            rate: Rate::from_bits_per_second(rate),
            delay: Span::from_nanos(part(first.delay.as_nanos(), between(DELAYS))),
            loss: percent.and_then(|n| Share::from_percent(*n)).unwrap_or(Share::NONE),
        });
        from += Span::from_millis(between(PHASES));
    }
    phases
}

/// The same as the model's link takes it: the first phase is the link as it is made.
pub(crate) fn schedule(phases: &[Phase]) -> Vec<(Span, Change)> {
    let changes = |phase: &Phase| {
        [
            Change::Serialiser(Serialiser::Rate(phase.rate)),
            Change::Delay(phase.delay),
            Change::Loss(phase.loss.into()),
        ]
        .map(|change| (phase.from, change))
    };
    phases.iter().skip(1).flat_map(changes).collect()
}

/// Bits that come through of what is sent between two times at `configured` or the link's rate, if that is less.
pub(crate) fn through(phases: &[Phase], configured: Rate, from: Span, to: Span) -> f64 {
    let ends = phases.iter().skip(1).map(|phase| phase.from).chain([to]);
    let of = |(phase, end): (&Phase, Span)| {
        let (begin, end) = (phase.from.max(from), end.min(to));
        let seconds = end.as_nanos().saturating_sub(begin.as_nanos()) as f64 / 1e9;
        let lost = phase.loss.as_parts_per_billion() as f64 / 1e9;
        phase.rate.min(configured).as_bits_per_second() as f64 * (1.0 - lost) * seconds
    };
    phases.iter().zip(ends).map(of).sum()
}

/// How long a packet of so many bytes that was due so long after the link began waited for its turn: its time
/// on the way without sending and the propagation delay that held when it left.
pub(crate) fn waited(phases: &[Phase], offered: Span, due: Span, bytes: u32) -> Span {
    let left = |phase: &Phase| due.as_nanos().saturating_sub(phase.delay.as_nanos());
    // the last one that can have sent it
    let phase = phases.iter().rev().find(|phase| left(phase) >= phase.from.as_nanos());
    let Some(phase) = phase.or_else(|| phases.first()) else { return Span::ZERO };
    let sending = u64::from(bytes) * 8_000_000_000 / phase.rate.as_bits_per_second().max(1);
    Span::from_nanos(left(phase).saturating_sub(offered.as_nanos() + sending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::network::link::{Bound, Config, Discipline, Link, Packet};
    use ekiden_model::units::{Bytes, Time};
    use proptest::prelude::*;

    fn first() -> Phase {
        Phase {
            from: Span::ZERO,
            rate: Rate::from_bits_per_second(20_000_000),
            delay: Span::from_millis(300),
            loss: Share::NONE,
        }
    }

    #[test]
    fn draws_within_bounds_and_repeats_by_seed() {
        let phases = drawn(first(), 7);
        assert_eq!(phases, drawn(first(), 7));
        assert_ne!(phases, drawn(first(), 8));
        for pair in phases.windows(2) {
            let lasts = pair[1].from.as_nanos() - pair[0].from.as_nanos();
            assert!((4_000_000_000..=8_000_000_000).contains(&lasts));
        }
        for phase in &phases {
            assert!((10_000_000..=20_000_000).contains(&phase.rate.as_bits_per_second()));
            assert!((240..=360).contains(&phase.delay.as_millis()));
        }
        assert!(phases.iter().any(|phase| phase.loss != Share::NONE));
    }

    #[test]
    fn fades_end_with_the_link_as_it_was() {
        for seed in 0..50 {
            let phases = drawn_fade(first(), seed);
            assert_eq!(phases, drawn_fade(first(), seed));
            let [before, faded, after] = phases[..] else { panic!("{phases:?}") };
            assert_eq!((before, after), (first(), Phase { from: after.from, ..first() }));
            assert!((20_000..=15_000_000).contains(&faded.rate.as_bits_per_second()), "{faded:?}");
            let lasts = after.from.as_nanos() - faded.from.as_nanos();
            assert!((500_000_000..=45_000_000_000).contains(&lasts), "{lasts}");
        }
    }

    #[test]
    fn sums_throughput_over_phases() {
        let half = Phase {
            from: Span::from_secs(10),
            rate: Rate::from_bits_per_second(10_000_000),
            loss: Share::from_percent(10).unwrap(),
            ..first()
        };
        let bits = |configured, from, to| {
            let configured = Rate::from_bits_per_second(configured);
            through(&[first(), half], configured, Span::from_secs(from), Span::from_secs(to))
                .round()
        };
        assert_eq!(bits(100_000_000, 0, 20), 290e6);
        assert_eq!(bits(15_000_000, 8, 11), 39e6);
        assert_eq!(bits(15_000_000, 12, 12), 0.0);
    }

    proptest! {
        /// Beside the link's own departures: without a change, to the nanosecond but for rounding.
        #[test]
        fn waiting_is_as_the_link_has_it(gaps in prop::collection::vec(0_u64..2_000_000, 1..60)) {
            let first = first();
            let config = Config {
                serialiser: Serialiser::Rate(first.rate),
                delay: first.delay,
                discipline: Discipline::DropTail(Bound::Bytes(Bytes::new(1 << 20))),
                ..Config::default()
            };
            let mut link = Link::new(&config, Time::ZERO);
            let mut now = Time::ZERO;
            for (id, gap) in gaps.iter().enumerate() {
                now += Span::from_nanos(*gap);
                let packet =
                    Packet::new(id as u64, 1_500);
                link.offer(now, packet);
            }
            while let Some(came) = link.poll(now + Span::from_secs(9)) {
                let since = |time: Time| time.since(Time::ZERO);
                let expected = waited(&[first], since(came.offered), since(came.due), 1_500).as_nanos();
                let sending = 600_000; // 1,500 bytes at 20 Mbit/s
                let real = came.departed.since(came.offered).as_nanos() - sending;
                prop_assert!(expected.abs_diff(real) <= 2, "{expected} {real}");
            }
        }
    }
}
