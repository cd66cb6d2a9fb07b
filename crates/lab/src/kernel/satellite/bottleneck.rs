//! What the long link did with each packet: dropped by its queue, lost behind it, and how long it waited. It
//! is read off the emulator's own record and not off what an end believes.

use crate::statistics::quantile;
use ekiden_emulator::recording::{Outcome, Row, Rows};
use ekiden_model::link::{Config, Serialiser};
use ekiden_model::units::Time;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Packets are not written down one by one on faster links: it would cost what is to be measured.
const FASTEST: u64 = 150_000_000;

/// A record in the making.
#[derive(Debug, Clone)]
pub(super) struct Bottleneck {
    seen: Arc<Mutex<[Vec<Seen>; 2]>>,
    /// Up, down.
    links: [Link; 2],
    /// When the links began, to some milliseconds.
    begun: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    /// Nanoseconds.
    delay: u64,
    /// Bits per second.
    rate: u64,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    offered: Duration,
    bytes: u32,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Dropped,
    Lost,
    /// After it had waited so long for its turn, ms.
    Came(f64),
}

/// One direction in a time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Summary {
    pub(super) packets: u64,
    /// As IP packets, dropped and lost ones too.
    pub(super) bytes: u64,
    /// By the queue.
    pub(super) dropped: u64,
    /// Behind it.
    pub(super) lost: u64,
    /// Milliseconds in the queue: half of the packets no longer, and 99 of 100.
    pub(super) waited: [f64; 2],
}

impl Bottleneck {
    /// A record of the link whose directions these are, up and down; none of one that is too fast.
    pub(super) fn of(up: &Config, down: &Config) -> Option<Self> {
        let link = |config: &Config| match &config.serialiser {
            Serialiser::Rate(rate) => {
                Some(Link { delay: config.delay.as_nanos(), rate: rate.as_bits_per_second() })
            }
            _ => None,
        };
        let links = [link(up)?, link(down)?];
        let fits = links.iter().all(|link| (1..=FASTEST).contains(&link.rate));
        fits.then(|| Self { seen: Arc::default(), links, begun: None })
    }

    /// Where the emulator's rows go.
    pub(super) fn rows(&self) -> Rows {
        let (seen, links) = (Arc::clone(&self.seen), self.links);
        Box::new(move |row| {
            let direction = row.direction as usize;
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let (Some(seen), Some(link)) = (seen.get_mut(direction), links.get(direction)) {
                seen.extend(one(&row, *link));
            }
            Ok(())
        })
    }

    /// The links have begun just now.
    pub(super) fn begins(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// What became of packets that came to this direction between two times.
    pub(super) fn between(&self, down: bool, from: Instant, to: Instant) -> Summary {
        let Some(begun) = self.begun else { return Summary::default() };
        let since = |at: Instant| at.saturating_duration_since(begun);
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let all = seen.get(usize::from(down)).map_or(&[][..], Vec::as_slice);
        sum(all, since(from), since(to))
    }
}

fn one(row: &Row, link: Link) -> Option<Seen> {
    let offered = row.offered.since(Time::ZERO);
    let fate = match row.outcome {
        Outcome::Dropped => Fate::Dropped,
        Outcome::Lost => Fate::Lost,
        Outcome::Delivered { due, .. } => {
            let took = due.since(row.offered).as_nanos();
            let sending = u64::from(row.packet.bytes) * 8_000_000_000 / link.rate;
            Fate::Came(took.saturating_sub(link.delay + sending) as f64 / 1e6)
        }
        Outcome::Inside => return None,
    };
    let offered = Duration::from_nanos(offered.as_nanos());
    Some(Seen { offered, bytes: row.packet.bytes, fate })
}

fn sum(all: &[Seen], from: Duration, to: Duration) -> Summary {
    let mut summary = Summary::default();
    let mut waited = Vec::new();
    for seen in all.iter().filter(|seen| (from..to).contains(&seen.offered)) {
        summary.packets += 1;
        summary.bytes += u64::from(seen.bytes);
        match seen.fate {
            Fate::Dropped => summary.dropped += 1,
            Fate::Lost => summary.lost += 1,
            Fate::Came(ms) => waited.push(ms),
        }
    }
    summary.waited = [0.5, 0.99].map(|share| quantile(&waited, share).unwrap_or(0.0));
    summary
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::link::Packet;
    use ekiden_model::units::Rate;

    fn row(ms: u64, outcome: Outcome) -> Row {
        let packet =
            Packet { id: 0, bytes: 1_500, class: 0, flow: 0, segments: 1, ecn_capable: false };
        let offered = Time::from_nanos(ms * 1_000_000);
        Row { direction: 1, number: 0, offered, packet, outcome }
    }

    /// 1,500 bytes at 12 Mbit/s take 1 ms, and 10 ms more on the way.
    #[test]
    fn waiting_is_what_is_left_of_the_time_on_the_way() {
        let config = |delay| Config {
            serialiser: Serialiser::Rate(Rate::from_bits_per_second(12_000_000)),
            delay: ekiden_model::units::Span::from_millis(delay),
            ..Config::default()
        };
        let mut bottleneck = Bottleneck::of(&config(5), &config(10)).unwrap();
        bottleneck.begins();
        let begun = bottleneck.begun.unwrap();
        let mut rows = bottleneck.rows();
        let came =
            |at: u64| Outcome::Delivered { due: Time::from_nanos(at * 1_000_000), marked: false };
        for row in [
            row(100, came(111)),
            row(200, came(241)),
            row(300, Outcome::Dropped),
            row(400, Outcome::Lost),
            row(500, Outcome::Inside),
            row(9_000, Outcome::Dropped),
        ] {
            rows(row).unwrap();
        }
        let at = |ms| begun + Duration::from_millis(ms);
        let seen = bottleneck.between(true, at(50), at(1_000));
        assert_eq!((seen.packets, seen.dropped, seen.lost, seen.bytes), (4, 1, 1, 6_000));
        assert!((seen.waited[0] - 15.0).abs() < 1e-9, "{seen:?}");
        assert_eq!(bottleneck.between(false, at(0), at(10_000)), Summary::default());
    }

    #[test]
    fn a_fast_link_is_not_written_down() {
        let fast = Config {
            serialiser: Serialiser::Rate(Rate::from_bits_per_second(FASTEST + 1)),
            ..Config::default()
        };
        assert!(Bottleneck::of(&fast, &fast).is_none());
        assert!(Bottleneck::of(&Config::default(), &Config::default()).is_none());
    }
}
