//! Offers the packets of a real run to the same link on virtual time: each must fare the same, to the
//! nanosecond.

use crate::recording::{Outcome, Row};
use ekiden_model::network::link::{Config, Link, Packet};
use ekiden_model::units::Time;
use std::collections::BTreeMap;

/// Where a replay and the run it replays part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("packet {number}, offered at {offered:?}: the run says {run:?}, the replay {replay:?}")]
pub struct Difference {
    /// The packet's place among those of its direction.
    pub number: u64,
    /// When it was offered.
    pub offered: Time,
    /// What became of it in the run.
    pub run: Outcome,
    /// What became of it in the replay.
    pub replay: Outcome,
}

/// Offers one direction's `rows`, in any order, to a link of `config` and compares what becomes of them;
/// returns their number. Packets still inside at the run's end may come through. Errors: the first packet that
/// fared differently.
pub fn replay(config: &Config, rows: &[Row]) -> Result<usize, Difference> {
    let mut rows: Vec<&Row> = rows.iter().collect();
    rows.sort_unstable_by_key(|row| row.number);
    let mut link = Link::new(config, Time::ZERO);
    let mut fates = BTreeMap::new();
    for row in &rows {
        link.offer(row.offered, Packet { id: row.number, ..row.packet });
        collect(&mut link, row.offered, &mut fates);
    }
    while link.next() != Time::NEVER {
        let next = link.next();
        collect(&mut link, next, &mut fates);
    }
    for row in &rows {
        let replay = fates.get(&row.number).copied().unwrap_or(Outcome::Inside);
        if row.outcome != Outcome::Inside && row.outcome != replay {
            let Row { number, offered, outcome: run, .. } = **row;
            return Err(Difference { number, offered, run, replay });
        }
    }
    Ok(rows.len())
}

fn collect(link: &mut Link, now: Time, fates: &mut BTreeMap<u64, Outcome>) {
    while let Some(delivered) = link.poll(now) {
        let outcome = Outcome::Delivered { due: delivered.due, marked: delivered.marked };
        fates.insert(delivered.packet.id, outcome);
    }
    link.gone(|id, fate| {
        fates.insert(id, fate.into());
    });
}
