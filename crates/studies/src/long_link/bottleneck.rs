//! What the long link did with each packet, by the emulator's record: dropped, lost, and how long it waited.

use super::changes::{Phase, through, waited};
use super::pace::{Paced, in_order};
use ekiden_emulator::recording::{Outcome, Row, Rows};
use ekiden_lab::statistics::quantile;
use ekiden_model::units::{Rate, Span, Time};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Packets are not written down one by one on faster links: it would cost what is to be measured.
const FASTEST: u64 = 150_000_000;

#[derive(Debug, Clone)]
pub(crate) struct Bottleneck {
    seen: Arc<Mutex<[Vec<SentPacket>; 2]>>,
    /// What the link is up and down, and when.
    links: Arc<[Vec<Phase>; 2]>,
    records: bool,
    /// When the links began, to some milliseconds.
    begun: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SentPacket {
    /// Its place among those of its direction.
    pub(crate) number: u64,
    /// Since the link began.
    pub(crate) offered: Duration,
    /// As an IP packet.
    pub(crate) bytes: u32,
    fate: PacketOutcome,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum PacketOutcome {
    Dropped,
    Lost,
    /// After it had waited so long for its turn, ms.
    Came(f64),
}

#[cfg(test)]
impl SentPacket {
    /// One that came at once.
    pub(crate) const fn new(number: u64, offered: Duration, bytes: u32) -> Self {
        Self { number, offered, bytes, fate: PacketOutcome::Came(0.0) }
    }
}

/// One direction in a time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Summary {
    pub(crate) packets: u64,
    /// As IP packets, dropped and lost ones too.
    pub(crate) bytes: u64,
    /// By the queue.
    pub(crate) dropped: u64,
    /// Behind it.
    pub(crate) lost: u64,
    /// Milliseconds in the queue: half of the packets no longer, and 99 of 100.
    pub(crate) waited: [f64; 2],
}

impl Bottleneck {
    /// Of the link that is this up and down; a fast one is not written down, unless that is what is `asked` for.
    pub(crate) fn of(links: [Vec<Phase>; 2], asked: bool) -> Self {
        let slow = |phase: &Phase| phase.rate.as_bits_per_second() <= FASTEST;
        let records = asked || links.iter().flatten().all(slow);
        Self { seen: Arc::default(), links: Arc::new(links), records, begun: None }
    }

    pub(crate) fn rows(&self) -> Option<Rows> {
        let (seen, links) = (Arc::clone(&self.seen), Arc::clone(&self.links));
        let rows: Rows = Box::new(move |row| {
            let direction = row.direction as usize;
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if let (Some(seen), Some(link)) = (seen.get_mut(direction), links.get(direction)) {
                seen.extend(one(&row, link));
            }
            Ok(())
        });
        self.records.then_some(rows)
    }

    pub(crate) fn begins(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// When the downlink changed for the last time, if it does.
    pub(crate) fn last_change(&self) -> Option<Instant> {
        let [_, down] = &*self.links;
        let last = down.iter().skip(1).next_back()?;
        Some(self.begun? + Duration::from(last.from))
    }

    /// What became of packets offered in this direction between two times; `None` of a link that is not
    /// recorded.
    pub(crate) fn between(&self, down: bool, (from, to): (Instant, Instant)) -> Option<Summary> {
        self.within(down, (from, to), |seen, from, to| Some(sum(seen, from, to)))
    }

    fn within<T>(
        &self,
        down: bool,
        (from, to): (Instant, Instant),
        look: impl FnOnce(&[SentPacket], Duration, Duration) -> Option<T>,
    ) -> Option<T> {
        let begun = self.begun.filter(|_| self.records)?;
        let since = |at: Instant| at.saturating_duration_since(begun);
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        look(seen.get(usize::from(down))?, since(from), since(to))
    }

    /// How evenly packets at `rate` came in this direction between two times; `None` where the record lacks
    /// some.
    pub(crate) fn paced(&self, down: bool, rate: Rate, time: (Instant, Instant)) -> Option<Paced> {
        self.within(down, time, |seen, from, to| Paced::of(&in_order(seen, from, to)?, rate))
    }

    /// Bits that come through between two times of what is sent at `configured` or the link's rate, if that is
    /// less.
    pub(crate) fn through(
        &self,
        down: bool,
        configured: Rate,
        (from, to): (Instant, Instant),
    ) -> f64 {
        let since = |at: Instant| {
            let passed = self.begun.map(|begun| at.saturating_duration_since(begun));
            Span::from_nanos(passed.unwrap_or_default().as_nanos() as u64)
        };
        let link = self.links.get(usize::from(down));
        link.map_or(0.0, |phases| through(phases, configured, since(from), since(to)))
    }
}

/// A packet of a record; nothing where it is still inside.
pub(crate) fn one(row: &Row, link: &[Phase]) -> Option<SentPacket> {
    let offered = row.offered.since(Time::ZERO);
    let fate = match row.outcome {
        Outcome::Dropped => PacketOutcome::Dropped,
        Outcome::Lost => PacketOutcome::Lost,
        Outcome::Delivered { due, .. } => {
            let due = due.since(Time::ZERO);
            PacketOutcome::Came(
                waited(link, offered, due, row.packet.bytes).as_nanos() as f64 / 1e6,
            )
        }
        Outcome::Inside => return None,
    };
    let offered = Duration::from_nanos(offered.as_nanos());
    Some(SentPacket { number: row.number, offered, bytes: row.packet.bytes, fate })
}

pub(crate) fn sum(all: &[SentPacket], from: Duration, to: Duration) -> Summary {
    let mut summary = Summary::default();
    let mut waited = Vec::new();
    for seen in all.iter().filter(|seen| (from..to).contains(&seen.offered)) {
        summary.packets += 1;
        summary.bytes += u64::from(seen.bytes);
        match seen.fate {
            PacketOutcome::Dropped => summary.dropped += 1,
            PacketOutcome::Lost => summary.lost += 1,
            PacketOutcome::Came(ms) => waited.push(ms),
        }
    }
    summary.waited = [0.5, 0.99].map(|share| quantile(&waited, share).unwrap_or(0.0));
    summary
}

#[cfg(test)]
mod tests {
    use super::*;
    use ekiden_model::network::link::Packet;
    use ekiden_model::units::Share;

    fn row(ms: u64, outcome: Outcome) -> Row {
        let packet = Packet::new(0, 1_500);
        let offered = Time::from_nanos(ms * 1_000_000);
        Row { direction: 1, number: 0, offered, packet, outcome }
    }

    fn phase(mbit: u64, delay: u64) -> Phase {
        Phase {
            from: Span::ZERO,
            rate: Rate::from_bits_per_second(mbit * 1_000_000),
            delay: Span::from_millis(delay),
            loss: Share::from_percent(10).unwrap(),
        }
    }

    /// 1,500 bytes at 12 Mbit/s take 1 ms, and 10 ms more on the way.
    #[test]
    fn counts_packets_within_the_given_time() {
        let mut bottleneck = Bottleneck::of([vec![phase(12, 5)], vec![phase(12, 10)]], false);
        bottleneck.begins();
        let begun = bottleneck.begun.unwrap();
        let mut rows = bottleneck.rows().unwrap();
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
        let seen = bottleneck.between(true, (at(50), at(1_000))).unwrap();
        assert_eq!((seen.packets, seen.dropped, seen.lost, seen.bytes), (4, 1, 1, 6_000));
        assert!((seen.waited[0] - 15.0).abs() < 1e-9, "{seen:?}");
        assert_eq!(bottleneck.between(false, (at(0), at(10_000))), Some(Summary::default()));
        let bits =
            bottleneck.through(true, Rate::from_bits_per_second(1_000_000), (at(0), at(2_000)));
        assert!((bits - 1.8e6).abs() < 1.0, "{bits}");
    }

    #[test]
    fn does_not_record_fast_links() {
        let mut fast = Bottleneck::of([vec![phase(20, 5)], vec![phase(200, 5)]], false);
        fast.begins();
        let now = Instant::now();
        assert!(fast.rows().is_none() && fast.between(true, (now, now)).is_none());
    }
}
