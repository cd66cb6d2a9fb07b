//! Observers that write a run down, packet by packet: [`rows::Rows`] in columns, [`packets::Packets`]
//! as a capture. They stand beside whatever else observes it:
//!
//! ```text
//! let mut simulator = Simulator::new(topology, (delays, (Some(rows), Some(packets))));
//! …                                            simulator.run(until);
//! rows.finish()?, packets.finish()?            here a full disc is told
//! ```
//! A run goes on without a writer that failed: its first error is kept and returned in the end. Held in
//! memory are one group of rows, and some numbers for each flow.

pub mod packets;
pub mod rows;

use crate::trace::Direction;
use packets::Side;
use std::collections::BTreeSet;

/// The flows that are written down.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Flows {
    /// All.
    #[default]
    All,
    /// These, by their numbers.
    These(BTreeSet<u32>),
}

impl Flows {
    /// Whether this one is.
    #[must_use]
    pub fn has(&self, flow: u32) -> bool {
        match self {
            Self::All => true,
            Self::These(flows) => flows.contains(&flow),
        }
    }
}

/// Which way a packet goes, of a connection that this side serves. It may be the opener: the study's
/// servers open connections to their clients.
fn direction(from_opener: bool, server: Side) -> Direction {
    if from_opener == (server == Side::Opener) { Direction::ToClient } else { Direction::ToServer }
}

/// The element of this number, the ones before it made where they are not there yet.
fn at<T: Default>(all: &mut Vec<T>, number: u32) -> Option<&mut T> {
    let number = number as usize;
    if all.len() <= number {
        all.resize_with(number + 1, T::default);
    }
    all.get_mut(number)
}

#[cfg(test)]
mod tests;
