//! Observers that write a run down, packet by packet: [`rows::Rows`] in columns,
//! [`packets::Packets`]
//! as a capture. They run beside other observers:
//!
//! ```text
//! let mut simulator = Simulator::new(topology, (delays, (Some(rows), Some(packets))));
//! …                                            simulator.run(until);
//! rows.finish()?, packets.finish()?            here a full disk is reported
//! ```
//! A run goes on after a writer failed; `finish` returns its first error. Held in memory are one
//! group of rows, and some numbers for each flow.

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
    pub fn has(&self, flow: u32) -> bool {
        match self {
            Self::All => true,
            Self::These(flows) => flows.contains(&flow),
        }
    }
}

/// A packet's direction by the side that serves, which may be the opener.
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
