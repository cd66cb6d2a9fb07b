//! A link in the simulator: one call a packet where nothing later matters, else with events.

use ekiden_model::network::link::{Config, Fifo, Link, Snapshot};
use ekiden_model::units::Time;

/// One direction of a link while it runs.
#[derive(Debug)]
pub(crate) enum Carrier {
    /// What becomes of a packet is known when it is offered.
    Steady(Fifo),
    /// The link says when to come again.
    Waking { link: Box<Link>, event: Time },
}

impl Carrier {
    pub(crate) fn new(config: &Config, now: Time) -> Self {
        match Fifo::new(config, now) {
            // arrivals in order: what comes next may take them at once
            Some(fifo) if !config.reorder => Self::Steady(fifo),
            _ => Self::Waking { link: Box::new(Link::new(config, now)), event: Time::NEVER },
        }
    }

    pub(crate) const fn is_steady(&self) -> bool {
        matches!(self, Self::Steady(_))
    }

    pub(crate) fn snapshot(&mut self, now: Time) -> Snapshot {
        match self {
            Self::Steady(fifo) => fifo.snapshot(now),
            Self::Waking { link, .. } => link.snapshot(),
        }
    }
}
