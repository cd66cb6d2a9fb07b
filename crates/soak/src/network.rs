//! The network: four machines, and links whose faults are a schedule of the emulator's.
//!
//! ```text
//! clients ── near relay ══ tunnel ══ far relay ── servers
//!                 └──────────── direct ──────────────┘
//! ```

use crate::faults::{Fault, Kind, LINKS, Link};
use ekiden_emulator::topology::{HostPlan, LinkPlan, MTU, TopologyPlan};
use ekiden_model::network::link::{Change, Config, Loss};
use ekiden_model::units::{Share, Span};
use std::time::Duration;

/// Names of the machines.
pub(crate) const CLIENTS: &str = "clients";
pub(crate) const NEAR: &str = "near";
pub(crate) const FAR: &str = "far";
pub(crate) const SERVERS: &str = "servers";

/// Parts per billion in a thousandth.
const PERMILLE: u64 = 1_000_000;

/// The network of a run. Faults begin `lead` after it was made.
pub(crate) fn plan(seed: u64, faults: &[Fault], lead: Duration) -> TopologyPlan {
    let host = |name: &str| HostPlan { name: name.to_owned(), ..HostPlan::default() };
    let link = |link: Link| {
        let (between, delay) = match link {
            Link::Clients => ([CLIENTS, NEAR], Span::from_millis(1)),
            Link::Tunnel => ([NEAR, FAR], Span::from_millis(10)),
            Link::Direct => ([NEAR, SERVERS], Span::from_millis(5)),
            Link::Far => ([FAR, SERVERS], Span::from_millis(1)),
        };
        let config = |way: u64| Config {
            delay,
            seed: seed.wrapping_mul(16).wrapping_add(2 * link as u64 + way),
            schedule: schedule(link, faults, lead),
            ..Config::default()
        };
        LinkPlan {
            name: format!("{link:?}").to_lowercase(),
            between: between.map(str::to_owned),
            mtu: MTU,
            super_packets: false,
            one_by_one: false,
            forward: config(0),
            backward: config(1),
        }
    };
    TopologyPlan {
        hosts: [CLIENTS, NEAR, FAR, SERVERS].map(host).into(),
        links: LINKS.map(link).into(),
        processes: Vec::new(),
    }
}

/// What changes on a link, and when.
fn schedule(link: Link, faults: &[Fault], lead: Duration) -> Vec<(Span, Change)> {
    let at = |time: Duration| Span::from_nanos((lead + time).as_nanos() as u64);
    let of_link = faults.iter().filter(|fault| fault.kind.link() == Some(link));
    let both = |fault: &Fault| {
        let share = match fault.kind {
            Kind::Lossy(_) => Share::from_parts_per_billion(fault.permille * PERMILLE),
            _ => Share::from_percent(100),
        };
        let loss = Loss::from(share.unwrap_or(Share::NONE));
        [(at(fault.at), Change::Loss(loss)), (at(fault.end()), Change::Loss(Loss::None))]
    };
    of_link.flat_map(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::draw;

    #[test]
    fn every_fault_of_a_link_begins_and_ends_on_both_its_ways() {
        let faults = draw(1, Duration::from_secs(3_600), Duration::from_secs(10));
        let plan = plan(1, &faults, Duration::from_secs(20));
        plan.check().unwrap();
        for (link, of) in plan.links.iter().zip(LINKS) {
            let count = faults.iter().filter(|fault| fault.kind.link() == Some(of)).count();
            assert!(count > 0);
            for way in [&link.forward, &link.backward] {
                assert_eq!(way.schedule.len(), 2 * count);
                assert!(way.schedule.is_sorted_by_key(|(at, _)| *at));
                let (_, last) = way.schedule.last().unwrap();
                assert_eq!(*last, Change::Loss(Loss::None));
            }
            assert_ne!(link.forward.seed, link.backward.seed);
        }
    }
}
