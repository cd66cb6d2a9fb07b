//! The emulated network of a cell.

use ekiden_emulator::settings::Settings;
use ekiden_emulator::topology::{HostPlan, LinkPlan, MTU, TopologyPlan};
use ekiden_lab::cell::Cell;
use ekiden_lab::engine::{During, EngineError};
use ekiden_lab::path::{self, Leg};
use ekiden_model::network::link::{Loss, LossUnit, QueueLength};
use ekiden_model::units::{Rate, Share, Span};
use std::collections::BTreeMap;
use std::path::Path;

/// Segments in a super-packet of the study's kernel, 64 KiB, if the window has three times as many. Today's
/// kernels hand over what they send in a millisecond, and at least this many.
pub(crate) const STUDY_SEGMENTS: u32 = 44;

#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) plan: TopologyPlan,
    /// Names of hosts, from the client to the server.
    pub(crate) hosts: Vec<String>,
    /// Whether packets cross the links as super-packets.
    pub(crate) super_packets: bool,
}

/// The network of a cell; `window` is the receive buffer that makes its window, if it has one.
pub(crate) fn of(cell: &Cell, seed: u64, window: Option<u64>) -> Result<Network, EngineError> {
    let legs = path::legs(cell)?;
    let lossy = legs.iter().any(|leg| leg.loss > 0.0);
    let by_super_packet = match cell.text("unit")? {
        "packet" => false,
        "super-packet" => true,
        other => return Err(cell.error("unit", &format!("`{other}` is not known")).into()),
    };
    // what loses single packets must see them; elsewhere super-packets spare the processor
    let super_packets = by_super_packet || !lossy;
    let mut sysctls = BTreeMap::new();
    if lossy && by_super_packet {
        sysctls.insert("net.ipv4.tcp_min_tso_segs".to_owned(), STUDY_SEGMENTS.to_string());
    }
    if let Some(bytes) = window {
        sysctls.insert("net.ipv4.tcp_rmem".to_owned(), format!("4096 {bytes} {bytes}"));
    }
    let congestion = cell.text("congestion")?.to_owned();
    let like = HostPlan { congestion: Some(congestion), sysctls, ..HostPlan::default() };
    let (names, hosts) = row(legs.len() - 1, &like);
    let ends = names.windows(2).zip(&legs).enumerate();
    let links = ends
        .map(|(number, (pair, leg))| link(cell, number, pair, leg, super_packets, seed))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Network {
        plan: TopologyPlan { hosts, links, processes: Vec::new() },
        hosts: names,
        super_packets,
    })
}

/// A client, relays and a server, and their plans, alike but for the name.
pub(crate) fn row(relays: usize, like: &HostPlan) -> (Vec<String>, Vec<HostPlan>) {
    let relays = (1..=relays).map(|n| format!("relay{n}"));
    let names = ["client".to_owned()].into_iter().chain(relays).chain(["server".to_owned()]);
    let names: Vec<String> = names.collect();
    let host = |name: &String| HostPlan { name: name.clone(), ..like.clone() };
    (names.clone(), names.iter().map(host).collect())
}

fn link(
    cell: &Cell,
    number: usize,
    ends: &[String],
    leg: &Leg,
    super_packets: bool,
    seed: u64,
) -> Result<LinkPlan, EngineError> {
    let rate: Rate = cell.value("rate")?;
    let queue: Span = cell.value("queue")?;
    let share = Share::from_parts_per_billion((leg.loss * 1e9).round() as u64)
        .ok_or_else(|| cell.error("loss", "it is more than everything"))?;
    let unit = if super_packets { LossUnit::SuperPacket } else { LossUnit::Packet };
    let settings = Settings {
        delay: Some(Span::from_nanos(leg.rtt.as_nanos() / 2)),
        rate: Some(rate),
        loss: (share != Share::NONE).then_some(Loss::Independent(share, unit)),
        queue: Some(QueueLength::Time(queue)),
        ..Settings::default()
    };
    let name = ends.join("-");
    let config = |direction: u64| {
        let seed = seed.wrapping_add(2 * number as u64 + direction);
        let made = settings.config(MTU, super_packets, seed, Path::new("."));
        made.during(format!("the link {name}"))
    };
    let (forward, backward) = (config(0)?, config(1)?);
    let between = match ends {
        [a, b] => [a.clone(), b.clone()],
        _ => return Err(EngineError(format!("the link {name} has not two ends"))),
    };
    Ok(LinkPlan { name, between, mtu: MTU, super_packets, one_by_one: false, forward, backward })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(change: &[(&str, &str)]) -> Cell {
        let base = [
            ("peer", "squid"),
            ("layout", "row"),
            ("relays", "4"),
            ("rtt", "50 ms"),
            ("rate", "1 Gbit/s"),
            ("queue", "100 ms"),
            ("loss", "0 %"),
            ("lossy", "even"),
            ("unit", "packet"),
            ("congestion", "cubic"),
            ("window", "defaults"),
        ];
        Cell::new("p", base.iter().chain(change).copied())
    }

    #[test]
    fn four_relays_make_six_hosts_and_five_links() {
        let network = of(&cell(&[]), 1, None).unwrap();
        assert_eq!(network.hosts, ["client", "relay1", "relay2", "relay3", "relay4", "server"]);
        assert_eq!(network.plan.links.len(), 5);
        let delay = network.plan.links[0].forward.delay;
        assert_eq!(delay, Span::from_millis(5));
        assert!(network.super_packets);
        network.plan.check().unwrap();
    }

    #[test]
    fn single_packets_are_lost_one_by_one() {
        let one = of(&cell(&[("loss", "0.4 %")]), 1, None).unwrap();
        assert!(!one.super_packets);
        assert!(one.plan.hosts[0].sysctls.is_empty());
        let many = of(&cell(&[("loss", "0.4 %"), ("unit", "super-packet")]), 1, None).unwrap();
        assert!(many.super_packets);
        assert_eq!(many.plan.hosts[0].sysctls["net.ipv4.tcp_min_tso_segs"], "44");
        let [forward, backward] = [&many.plan.links[0].forward, &many.plan.links[0].backward];
        assert_eq!(forward.loss, backward.loss);
        assert_ne!(forward.seed, backward.seed);
    }
}
